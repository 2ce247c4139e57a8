"""SSA values of what an import knows: constants, weights, strings, each made once in the region it belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import dense_attribute
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.errors import BroadcastDiffers
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import OF_BOOLS, GraphBuilder
from mirlo.frontends.onnx.broadcasts import expanded_operands
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.model import LoadedModel
from mirlo.frontends.onnx.node import relax_op
from mirlo.frontends.onnx.objects import call_host, object_of
from mirlo.frontends.onnx.values import (
    INLINE_ELEMENTS,
    AnyValue,
    ListValue,
    ObjectValue,
    OptionalValue,
    TensorValue,
)
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.params import ParameterStore


class ValueMaker(GraphBuilder, ABC):
    """Makes SSA values; operations go to the current insertion point, or to that of an enclosing region."""

    def __init__(self, model: LoadedModel, store: ParameterStore) -> None:
        super().__init__(model.name, store)
        self.model = model
        self.parameters: dict[tuple[object, ...], tuple[str, np.ndarray]] = {}
        """Parameter names by the address of the elements, so that a tensor is stored once. The arrays are kept, so
        that addresses are not reused."""
        self.constructed: list[TensorValue | ObjectValue] = []
        """The values with an SSA value that was made for them, in order."""

    def ssa(self, value: AnyValue) -> ir.Value:
        if not isinstance(value, TensorValue):
            raise NodeError(f"'{value.name}' is {value}, expected a tensor")
        return self.any_ssa(value)

    def any_ssa(self, value: AnyValue) -> ir.Value:
        if isinstance(value, (ListValue, OptionalValue)):
            return object_of(value, self.any_ssa)
        if value.ir is None:
            with self._region_of(value):
                value.ir = self._make(value)
            self.constructed.append(value)
        return value.ir

    def _make(self, value: TensorValue | ObjectValue) -> ir.Value:
        """Return the SSA value of a known value."""
        if isinstance(value, ObjectValue):
            assert value.strings is not None
            words = {"strings": value.strings.reshape(-1).tolist(), "shape": list(value.strings.shape)}
            return self.any_ssa(call_host("mirlo.string.constant", [], [value.kind], **words)[0])
        if value.packed is not None:
            kind = TensorType(value.packed.shape, DTYPES["u8"])
            held = relax_op("constant").make(param=self._parameter(value, value.packed), result_types=[kind])
            unpacked: ir.Value = relax_op("unpack").make(held, dtype=value.type.dtype)
            return unpacked
        assert value.known is not None
        if value.compute is not None:
            made = value.compute()
            return self.ssa(made) if isinstance(made, TensorValue) else self.full(made)
        if value.known.size <= INLINE_ELEMENTS:
            attributes: dict[str, ir.Attribute | str] = {"value": dense_attribute(value.known, value.type)}
        else:
            attributes = {"param": self._parameter(value, value.known)}
        result: ir.Value = relax_op("constant").make(**attributes, result_types=[value.type])
        return result

    def _parameter(self, value: TensorValue, array: np.ndarray) -> str:
        """Add the elements of a value to the parameter store; keep the model's name if it is free."""
        layout = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        if layout not in self.parameters:
            is_named = value.tensor is not None and self.model.content.parameters.get(value.name) is value.tensor
            if is_named and value.name not in self.store:
                self.store.add(value.name, array, source=self.model.path)
                self.parameters[layout] = value.name, array
            else:
                self.parameters[layout] = self.store.add_unique(value.name or "constant", array), array
        return self.parameters[layout][0]

    @contextmanager
    def _region_of(self, value: TensorValue | ObjectValue) -> Iterator[None]:
        """Insert into the region that a value belongs to, where all its users see it."""
        depth = self.depth if value.region is None else value.region
        if depth >= self.depth:
            yield
            return
        inside = self.blocks[depth + 1 :]
        del self.blocks[depth + 1 :]
        with ir.InsertionPoint(inside[0].owner):
            yield
        self.blocks += inside

    def close_regions(self) -> None:
        """Return to the outermost region after an exception."""
        del self.blocks[1:]

    @property
    def is_in_branch(self) -> bool:
        """Whether operations are inserted where a call may not come to."""
        return any(block.owner.operation.name == "scf.if" for block in self.blocks)

    # Operations

    @abstractmethod
    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        """Return what these dims broadcast to if only the call tells whether they are 1: a required dim or a symbol."""

    def operation(self, operator: type[DialectOp], operands: Sequence[Any], attributes: Mapping[str, Any]) -> ir.OpView:
        """Make an operation; operands that may broadcast at run time are expanded."""
        operands = list(map(self.operand, operands))
        while True:
            try:
                return super().operation(operator, operands, attributes)
            except BroadcastDiffers as error:
                expanded = expanded_operands(self, operands, error)
                if expanded is None:
                    raise
                operands = expanded

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors that broadcast, as relax infers its shape."""
        if name in OF_BOOLS and operands[0].dtype.is_bool:
            name = OF_BOOLS[name]
        return self.tensor(self.operation(relax_op(name), operands, attributes).operation.results[0])
