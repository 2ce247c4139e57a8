"""The models of this folder as an exporter writes them for any batch and sequence: symbols for dims, shapes computed.

The graphs were exported for one size. What depends on it is a few constants, which `with_symbols` replaces: shapes of
Reshape, positions, masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

BATCH, SEQUENCE = "batch", "sequence"


def with_symbols(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of this folder with symbolic batch (and sequence, where its inputs are tokens)."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tokens = result.graph.input[0].name == "input_ids"
    length = result.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for value in result.graph.input:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_param = BATCH
        if tokens:
            dims[1].dim_param = SEQUENCE
    for value in result.graph.output:
        value.type.tensor_type.ClearField("shape")
    del result.graph.value_info[:]
    _Rewriter(result, tokens, length).run()
    return result


class _Rewriter:
    """Replaces the constants that hold a size."""

    def __init__(self, model: onnx.ModelProto, tokens: bool, length: int) -> None:
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.tokens = tokens
        self.length = length
        self.first: list[Any] = []
        """Nodes that come before all others."""

    def run(self) -> None:
        if self.tokens:
            self._sizes()
        for node in list(self.graph.node):
            if node.op_type == "Reshape" and node.input[1] in self.constants:
                self._reshape(node)
            elif self.tokens:
                self._positions(node)
                self._mask(node)
        rest = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*self.first, *rest])

    def _constant(self, name: str, array: Any) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.first.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _sizes(self) -> None:
        """Add `dyn.shape`, batch and sequence, `dyn.positions`, 0 to the sequence, and `dyn.causal`, a mask."""
        tokens = self.graph.input[0].name
        zero, one = self._constant("dyn.0", np.int64(0)), self._constant("dyn.1", np.int64(1))
        self._add("Shape", [tokens], "dyn.shape")
        length = self._add("Gather", ["dyn.shape", one], "dyn.length")
        positions = self._add("Range", [zero, length, one], "dyn.range")
        first, second = self._constant("dyn.axis0", np.array([0])), self._constant("dyn.axis1", np.array([1]))
        self._add("Unsqueeze", [positions, first], "dyn.positions")
        column = self._add("Unsqueeze", [positions, second], "dyn.column")
        causal = self._add("LessOrEqual", ["dyn.positions", column], "dyn.is_causal")
        low = self._constant("dyn.low", np.float32(np.finfo(np.float32).min))
        self._add("Where", [causal, self._constant("dyn.zero", np.float32(0)), low], "dyn.causal")

    def _reshape(self, node: Any) -> None:
        shape = numpy_helper.to_array(self.constants[node.input[1]]).tolist()
        if self.tokens and node.input[0] == self.graph.input[0].name:
            node.input[1] = "dyn.shape"
        elif self.tokens and len(shape) > 2 and shape[1] == self.length and shape[0] in (1, -1):
            tail = self._constant(f"{node.output[0]}.tail", np.array(shape[2:]))
            node.input[1] = self._add("Concat", ["dyn.shape", tail], f"{node.output[0]}.shape", axis=0)
        elif shape[0] in (1, self.length):
            node.input[1] = self._constant(f"{node.output[0]}.shape", np.array([-1, *shape[1:]]))

    def _positions(self, node: Any) -> None:
        """Add positions of tokens as a constant that counts."""
        for i, name in enumerate(node.input):
            constant = self.constants.get(name)
            if (
                constant is not None
                and list(constant.dims) == [1, self.length]
                and constant.data_type == onnx.TensorProto.INT64
            ):
                node.input[i] = "dyn.positions"

    def _mask(self, node: Any) -> None:
        for i, name in enumerate(node.input):
            constant = self.constants.get(name)
            if constant is None:
                continue
            if list(constant.dims) == [1, 1, self.length, self.length]:
                node.input[i] = "dyn.causal"
            elif constant.data_type == onnx.TensorProto.BOOL and list(constant.dims) == [1, 1, self.length, 1]:
                node.input[i] = self._constant(f"{node.output[0]}.all", np.ones((1, 1, 1, 1), bool))
            elif node.op_type == "GatherND" and i == 1:  # the mask of tokens as that of keys
                node.op_type = "Unsqueeze"
                del node.attribute[:]
                node.input[1] = self._constant(f"{node.output[0]}.axes", np.array([1, 2]))
