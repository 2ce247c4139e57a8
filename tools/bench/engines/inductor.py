"""TorchInductor on the CPU, with models imported by onnx2torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.version_converter
import onnx2torch
import torch
from onnx.numpy_helper import to_array

NEWEST = 17
"""The latest operator set for which onnx2torch supports most operators."""


class InductorModel:
    """A compiled module."""

    def __init__(self, module: torch.nn.Module, inputs: list[str], outputs: list[str]) -> None:
        self.module, self._inputs, self._outputs = module, inputs, outputs
        self.version = str(torch.__version__)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._tensors = [torch.from_numpy(np.array(inputs[name])) for name in self._inputs]

    def run(self) -> None:
        with torch.inference_mode():
            self._results = self.module(*self._tensors)

    def outputs(self) -> dict[str, np.ndarray]:
        results = self._results if isinstance(self._results, (tuple, list)) else (self._results,)
        return {name: tensor.numpy() for name, tensor in zip(self._outputs, results, strict=True)}


def load(model: str, threads: int, shapes: Mapping[str, Sequence[int]], cache: str | None) -> InductorModel:
    """Import and compile; compilation happens in the first call, which is made here with zeros."""
    torch.set_num_threads(threads)
    proto = onnx.load(model)
    version = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), NEWEST)
    if version > NEWEST:
        proto = onnx.version_converter.convert_version(proto, NEWEST)
    known = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        # onnx2torch rejects this attribute, which affects zeros only.
        if node.op_type == "Reshape" and node.input[1] in known and 0 not in to_array(known[node.input[1]]):
            kept = [attribute for attribute in node.attribute if attribute.name != "allowzero"]
            del node.attribute[:]
            node.attribute.extend(kept)
    values = [value for value in proto.graph.input if value.name not in known]
    zeros = {value.name: _zeros(value, shapes) for value in values}
    module = torch.compile(_with_constant_shapes(onnx2torch.convert(proto).eval()), backend="inductor")
    result = InductorModel(module, list(zeros), [value.name for value in proto.graph.output])
    result.bind(zeros)
    result.run()
    return result


def _with_constant_shapes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Make constant shapes of reshapes explicit: otherwise the compiler sees a data-dependent shape."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_module" or type(module.get_submodule(node.target)).__name__ != "OnnxReshape":
            continue
        x, shape = node.args
        if shape.op != "get_attr":
            continue
        owner, _, name = shape.target.rpartition(".")
        wanted = getattr(module.get_submodule(owner), name).tolist()
        with graph.inserting_before(node):
            reshaped = graph.call_method("reshape", (x, wanted))
        node.replace_all_uses_with(reshaped)
        graph.erase_node(node)
    module.recompile()
    return module


def _zeros(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[int]]) -> np.ndarray:
    tensor = value.type.tensor_type
    shape = shapes.get(value.name) or [dim.dim_value for dim in tensor.shape.dim]
    return np.zeros(list(shape), onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
