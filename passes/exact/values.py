"""SSA values of kernels in the translation: names of LLVM values, with their shapes."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.runtime.records import dataclass

INDEX_BITS = 64


class IntValue(NamedTuple):
    """An integer, or a vector of integers: a kernel has thousands, and tuples take least time to make."""

    name: str
    bits: int
    lanes: int | None = None

    @property
    def constant(self) -> int | None:
        """Return the number in all lanes if it is a constant, or None."""
        if self.name.startswith("%"):
            return None
        text = self.name if self.lanes is None else self.name.removeprefix(f"splat (i{self.bits} ").removesuffix(")")
        if self.bits == 1:
            return {"true": 1, "false": 0}.get(text)
        return int(text) if text.removeprefix("-").isdigit() else None


class FloatValue(NamedTuple):
    """A float, or a vector of floats: one LLVM value for each plane of the arithmetic."""

    planes: tuple[str, ...]
    lanes: int | None = None
    is_loose: bool = False
    """Whether residues are below `Plane.loose` only, as integers of 64 bits: not reduced yet."""


@dataclass(frozen=True)
class PackedFloats:
    """Integers whose bits are `group` floats each: moved, and read as floats again."""

    floats: FloatValue
    group: int
    lanes: int | None


@dataclass(frozen=True)
class BufferRef:
    """A buffer, or a view of one: an access is clamped to the memory around the whole buffer."""

    kind: str
    """'f' or 'i'"""
    bits: int
    roots: tuple[str, ...]
    """For each plane, the address of the memory."""
    room: str
    """Bytes of each plane."""
    shape: tuple[int | IntValue, ...]
    strides: tuple[int | IntValue | None, ...]
    shift: IntValue | None = None
    """Bytes from the start of the memory to this view."""


@dataclass(frozen=True)
class BufferAddress:
    """The address of an element of a buffer, for instructions that take one."""

    buffer: BufferRef
    offset: IntValue
    """The position of the element."""
    element_bytes: int
    """Bytes of an element in the kernel."""


Number: TypeAlias = IntValue | FloatValue


class StructValue(NamedTuple):
    """Several numbers that an instruction returns."""

    parts: tuple[Number, ...]


KernelValue: TypeAlias = IntValue | FloatValue | PackedFloats | StructValue | BufferRef | BufferAddress


def llvm_type(element: str, lanes: int | None) -> str:
    return element if lanes is None else f"<{lanes} x {element}>"


def is_float(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, ir.FloatType)


def element_of(mlir_type: ir.Type) -> ir.Type:
    """Return the element type of a shaped type, or the type itself."""
    return mlir_type.element_type if isinstance(mlir_type, ir.ShapedType) else mlir_type


def lanes_of(mlir_type: ir.Type) -> int | None:
    """Return the number of elements of a vector, None for a scalar; those of several rows are one after the other."""
    return math.prod(mlir_type.shape) if isinstance(mlir_type, ir.VectorType) else None


def row_lanes_of(mlir_type: ir.Type) -> int | None:
    """Return the length of a vector of one row, None for a scalar."""
    if isinstance(mlir_type, ir.VectorType) and math.prod(list(mlir_type.shape)[:-1]) != 1:
        raise OutsideError(f"a vector of rank {len(mlir_type.shape)}")
    return lanes_of(mlir_type)


def bits_of(mlir_type: ir.Type) -> int:
    """Return the width of an integer type."""
    if isinstance(mlir_type, ir.IndexType):
        return INDEX_BITS
    if isinstance(mlir_type, ir.IntegerType):
        return int(mlir_type.width)
    raise OutsideError(f"a value of type {mlir_type}")


def row_major(shape: tuple[int | IntValue, ...]) -> tuple[int | IntValue | None, ...]:
    """Return the strides of a contiguous buffer; None where they depend on a size of run time."""
    strides: list[int | IntValue | None] = []
    total: int | None = 1
    for size in reversed(shape):
        strides.append(total)
        total = total * size if isinstance(size, int) and total is not None else None
    return tuple(reversed(strides))
