"""A converter's view of a node of an exported program: result types, promotion, and emission."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mirlo.extend.frontend import (
    Dim,
    DType,
    GraphBuilder,
    OperationView,
    SymbolicDim,
    Tensor,
    TensorType,
    UnsupportedOperation,
    dtype,
    number,
)
from mirlo_torch.complex_tensor import component, is_complex
from mirlo_torch.promotion import element_type, promoted
from mirlo_torch.sizes import SizeReader

if TYPE_CHECKING:
    import torch

Operand: TypeAlias = Tensor | SymbolicDim | float
"""Operands of elementwise operators: a tensor, a size or a number."""
Ints: TypeAlias = int | Sequence[int]
"""A number for all axes of a window, or one per axis."""
Axes: TypeAlias = int | Sequence[int] | None
"""Axes of a reduction; None for all of them."""


def each_axis(value: Ints, count: int) -> list[int]:
    """Return one number for each of the spatial dims."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


class GraphImporter(GraphBuilder, ABC):
    """The interface of an import that operations use."""

    sizes: SizeReader
    checks: bool
    """Whether calls check data that PyTorch's kernels refuse."""
    operator = ""
    """The operator that is being converted."""

    @abstractmethod
    def graph(self, graph: torch.fx.GraphModule, operands: Sequence[object]) -> list[object]:
        """Import a graph that belongs to an operator, with these arguments; return its results."""

    @abstractmethod
    def require(self, condition: torch.fx.Node | torch.SymBool | bool, message: str) -> None:
        """Check a condition on sizes, a node of the trace, in the call; the error contains the message."""

    @abstractmethod
    def bind_result(self, op: AtenOperation, count: Tensor) -> Dim:
        """Bind a data-dependent size of a result to a number, and return it."""

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator; dims of operands that PyTorch found equal are compared in the call."""
        return super().elementwise(name, self._with_equal_dims(operands), attributes)

    def _with_equal_dims(self, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return operands with one expression of each dim, where a guard of the trace states equality."""
        result = list(operands)
        for axis in range(-max((x.rank for x in operands), default=0), 0):
            dims = [x.shape[axis] for x in operands if -axis <= x.rank and x.shape[axis] != 1]
            wanted = next((dim for dim in dims if isinstance(dim, int)), dims[0] if dims else 1)
            for index, x in enumerate(result):
                if -axis <= x.rank and x.shape[axis] != 1:
                    result[index] = self.with_dim(x, x.rank + axis, wanted)
        return result

    def with_dim(self, x: Tensor, axis: int, wanted: Dim) -> Tensor:
        """Return x with a dim that a guard of the trace states to be equal to its own; the call checks it."""
        dim = x.shape[axis]
        if dim == wanted or isinstance(dim, int):
            return x
        self.require_nonnegative([wanted - dim, dim - wanted], f"a size of '{self.operator}': {dim} is {wanted}")
        shape = (*x.shape[:axis], wanted, *x.shape[axis + 1 :])
        return x.part([0] * x.rank, shape)


class AtenOperation(OperationView):
    """A node of the program, ready to be converted."""

    builder: GraphImporter

    def __init__(self, node: torch.fx.Node, name: str, builder: GraphImporter) -> None:
        super().__init__(builder)
        self.node = node
        self.name = name

    # Results

    def result(self, index: int | None = None) -> TensorType:
        """Return the type of the result with this index."""
        value = self.node.meta["val"]
        return self.type_of(value if index is None else value[index])

    def type_of(self, value: torch.Tensor) -> TensorType:
        """Return the type of a tensor of the trace; for complex tensors, the type of their parts."""
        return TensorType(self.builder.sizes.dims(value.shape), element_type(component(value.dtype)))

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the shape of the only result."""
        return self.builder.sizes.dims(self.node.meta["val"].shape)

    @property
    def dtype(self) -> DType:
        """Return the element type of the only result; for complex results, that of their parts."""
        return element_type(component(self.node.meta["val"].dtype))

    @property
    def is_complex(self) -> bool:
        """Return whether the only result is complex."""
        return is_complex(self.node.meta["val"].dtype)

    def is_used(self, index: int) -> bool:
        """Return whether the program uses the result with this index."""
        return any(user.op == "output" or (user.args[1:] == (index,) and user.users) for user in self.node.users)

    # Operands

    def operand(self, x: Operand, target: DType | str) -> Tensor:
        """Return a tensor, a number or a size as a tensor of an element type."""
        if isinstance(x, Tensor):
            return x.cast(target)
        if isinstance(x, SymbolicDim):
            return number(self.builder, x, dtype(target))
        wanted = dtype(target)
        if isinstance(x, int) and wanted.is_integer:  # wraps around
            return self.constant(np.array(x & ((1 << wanted.bits) - 1), np.uint64), wanted)
        return self.constant(x, wanted)

    def promoted(self, *operands: Operand) -> list[Tensor]:
        """Return operands in the type in which they are compared."""
        kind = promoted(operands)
        return [self.operand(x, kind) for x in operands]

    def wide(self, x: Tensor) -> Tensor:
        """Convert 16-bit floats to f32, in which PyTorch computes with them."""
        return x.cast("f32") if x.dtype.is_float and x.dtype.bits < 32 else x

    # Common forms

    def sorted_order(self, x: Tensor, axis: int, descending: bool) -> Tensor:
        """Return the positions of the sorted elements along an axis; NaN is the largest."""
        keys = x.cast("i8") if x.dtype.is_bool else x
        order = self.emit("argsort", keys, axis=axis, descending=descending)
        return order.cast("i64")

    def fixed(self, size: Dim, what: str) -> int:
        """Return a size as an integer; raise an error if it is dynamic."""
        if not isinstance(size, int):
            raise UnsupportedOperation(f"needs {what} that is a number, found '{size}'")
        return size


def axis_of(axis: int, rank: int) -> int:
    """Return an axis as an index from 0; a tensor without dims counts as one with one axis."""
    return axis % max(rank, 1)
