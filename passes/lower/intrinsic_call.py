"""The argument of rules that lower intrinsics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.values import Num, ValueBuilder

TARGET = "target"
"""The option that is the target whose rules come first."""


class IntrinsicCall:
    """The operation that a rule lowers, with the builder for its replacement."""

    def __init__(self, operation: ir.Operation, b: ValueBuilder, options: Mapping[str, Any] = MappingProxyType({})):
        self.operation = operation
        self.options = options
        """The options of the compilation, with `TARGET`; rules of target `llvm` read `machine`."""
        self.name: str = operation.name.removeprefix("tir.")
        self.args: list[ir.Value] = list(operation.operands)
        """The operands, MLIR values: scalars, or vectors of one shape."""
        self.type: ir.Type | None = operation.results[0].type if len(operation.results) else None
        """The MLIR type of the result; None for an intrinsic without one."""
        self._b = b

    @cached_property
    def nums(self) -> list[Num]:
        """Return the operands as Nums, to compute with; handles are those of `args`."""
        return [self._b.num(value) for value in self.args if not _is_handle(value.type)]

    @cached_property
    def dtype(self) -> str:
        """Return the element type of the first operand: 'f32', 'i8', ..."""
        return self.nums[0].kind

    @property
    def is_vector(self) -> bool:
        return isinstance(self.type, ir.VectorType)

    @property
    def location(self) -> ir.Location:
        return self.operation.location


def _is_handle(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, ir.MemRefType) or str(mlir_type) == "!llvm.ptr"
