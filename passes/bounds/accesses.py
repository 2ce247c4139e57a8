"""Accesses of memory: which elements of a buffer an operation reads or writes, and under which mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mirlo.dialects.bindings import ir


@dataclass(frozen=True)
class Access:
    """An access to `lanes` contiguous elements of a buffer, from an index on."""

    op: ir.Operation
    buffer: ir.Value
    indices: tuple[ir.Value, ...]
    kind: str
    """"load" or "store"."""
    lanes: tuple[int, ...] = ()
    """The shape of the vector of elements, along the last dims of the buffer."""
    mask: ir.Value | None = None
    """Which lanes are accessed; None for all."""
    offsets: ir.Value | None = None
    """A vector of offsets, of which each lane adds its own to the last index."""


def _scalar_load(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[0], tuple(operands[1:]), "load")]


def _scalar_store(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[1], tuple(operands[2:]), "store")]


def _vector_load(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[0], tuple(operands[1:]), "load", tuple(op.results[0].type.shape))]


def _vector_store(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[1], tuple(operands[2:]), "store", tuple(operands[0].type.shape))]


def _masked_load(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    lanes = tuple(op.results[0].type.shape)
    return [Access(op, operands[0], tuple(operands[1:-2]), "load", lanes, mask=operands[-2])]


def _masked_store(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    lanes = tuple(operands[-1].type.shape)
    return [Access(op, operands[0], tuple(operands[1:-2]), "store", lanes, mask=operands[-2])]


def _gather(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[0], tuple(operands[1:-3]), "load", mask=operands[-2], offsets=operands[-3])]


def _scatter(op: ir.Operation) -> list[Access]:
    operands = list(op.operands)
    return [Access(op, operands[0], tuple(operands[1:-3]), "store", mask=operands[-2], offsets=operands[-3])]


ACCESSES: dict[str, Callable[[ir.Operation], list[Access]]] = {
    "memref.load": _scalar_load,
    "memref.store": _scalar_store,
    "vector.load": _vector_load,
    "vector.store": _vector_store,
    "vector.maskedload": _masked_load,
    "vector.maskedstore": _masked_store,
    "vector.gather": _gather,
    "vector.scatter": _scatter,
}
"""The operations that access elements of buffers."""
HARMLESS = frozenset(
    [
        "memref.prefetch",  # of an address that is not mapped: does nothing
        "memref.dim",
        "memref.alloca",
        "memref.dealloc",
        "memref.alloca_scope",
        "memref.extract_aligned_pointer_as_index",
        "memref.collapse_shape",
        "memref.expand_shape",
        "memref.cast",
        "memref.view",
        "memref.assume_alignment",
    ]
)
"""Operations on buffers that access no element."""
