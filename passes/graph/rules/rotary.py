"""Recognition of decomposed rotary embedding: x * cos + rotate_half(x) * sin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of
from mirlo.passes.rules import Decline, decline, recognize

_DEEPEST = 12


@recognize("relax.add", producers=["relax.multiply"])
def rotary_embedding(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x * cos + concat(-second half of x, first half of x) * sin with tables of two equal halves."""
    for straight, crossed in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        for rotated, sin in _match_rotation(crossed):
            x = _rotated(rotated)
            if x is None or not beside(crossed, b) or x.type != op.output.type:
                continue
            if kind_of(x).rank != 4:
                return decline("rotary embedding is of tensors of rank 4", rank=kind_of(x).rank)
            cos = next((table for value, table in _match_rotation(straight) if value == x), None)
            if cos is None:
                return decline("the other term is not a product with what is rotated")
            if not (_has_equal_halves(cos, b) and _has_equal_halves(sin, b)):
                return decline("the halves of the tables are not known to be equal")
            first, second = (_half(table, kind_of(x).shape, b) for table in (cos, sin))
            if first is None or second is None or kind_of(first).shape != kind_of(second).shape:
                return decline("the tables differ between heads, or from each other")
            return b.emit(OPS["rotary_embedding"], x, first, second)
    return decline("no term is a product with the rotated halves of a tensor")


def _match_rotation(value: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
    product = defining(value, "relax.multiply")
    if product is not None:
        yield product.lhs, product.rhs
        yield product.rhs, product.lhs


def _rotated(value: ir.Value) -> ir.Value | None:
    """Return the x of concat(-second half of x, first half of x)."""
    joined = defining(value, "relax.concat")
    if joined is None:
        return None
    operands, rank = list(joined.operation.operands), kind_of(value).rank
    if len(operands) != 2 or joined.axis % rank != rank - 1:
        return None
    negated = defining(operands[0], "relax.negative")
    size = kind_of(value).shape[-1]
    if negated is None or not isinstance(size, int) or size % 2:
        return None
    second, first = _sliced(negated.x), _sliced(operands[1])
    fits = second is not None and first is not None and second[0] == first[0] and first[0].type == value.type
    if not fits or second is None or first is None or (first[1], second[1]) != ((0, size // 2), (size // 2, size)):
        return None
    return first[0]


def _sliced(value: ir.Value) -> tuple[ir.Value, tuple[int, int]] | None:
    """Return a value as a range of the last axis of another one."""
    cut = defining(value, "relax.strided_slice")
    if cut is not None:
        rank, shape = kind_of(cut.x).rank, kind_of(cut.x).shape
        if len(cut.axes) != 1 or cut.axes[0] % rank != rank - 1 or tuple(cut.strides) != (1,):
            return None
        size = shape[-1]
        if not isinstance(size, int):
            return None
        inside = range(size)[slice(cut.begin[0], cut.end[0])]
        return cut.x, (inside.start, inside.stop)
    parts = defining(value, "relax.split")
    if parts is None or parts.axis % kind_of(parts.x).rank != kind_of(parts.x).rank - 1:
        return None
    if not all(isinstance(size, int) for size in parts.sizes):
        return None
    position = [result == value for result in parts.operation.results].index(True)
    begin = sum(parts.sizes[:position])
    return parts.x, (begin, begin + parts.sizes[position])


def _has_equal_halves(value: ir.Value, b: Rewriter, depth: int = 0) -> bool:
    """Return whether the two halves of a value's last axis are equal."""
    array = b.array(value)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return bool(array.ndim and array.shape[-1] % 2 == 0 and np.array_equal(array[..., :half], array[..., half:]))
    joined = defining(value, "relax.concat")
    if joined is not None:
        operands, rank = list(joined.operation.operands), kind_of(value).rank
        return len(operands) == 2 and joined.axis % rank == rank - 1 and operands[0] == operands[1]
    name = value.owner.name if hasattr(value.owner, "operands") else ""
    if depth > _DEEPEST:
        return False
    traits = traits_of(value.owner) if name else frozenset()
    if Trait.ELEMENTWISE in traits and len(value.owner.operands) == 1:
        return _has_equal_halves(value.owner.operands[0], b, depth + 1)
    if Trait.VIEW in traits or name == "relax.gather":
        source = value.owner.operands[0]
        rank = kind_of(source).rank
        if rank == 0 or kind_of(source).shape[-1] != kind_of(value).shape[-1]:
            return False
        along_last = name == "relax.gather" and value.owner.opview.axis % rank == rank - 1
        return not along_last and _has_equal_halves(source, b, depth + 1)
    if name in ("relax.multiply", "relax.divide"):
        left, right = value.owner.operands
        if b.splat(right) is not None:
            return _has_equal_halves(left, b, depth + 1)
        return name == "relax.multiply" and b.splat(left) is not None and _has_equal_halves(right, b, depth + 1)
    return False


def _half(table: ir.Value, shape: Sequence[Dim], b: Rewriter) -> ir.Value | None:
    """Return the first half of a table that is the same for all heads, else None."""
    kind = kind_of(table)
    batch, _, length, size = shape
    if kind.shape[-1:] != (size,) or kind.rank > 4 or (kind.rank >= 3 and kind.shape[-3] != 1):
        return None
    if kind.rank == 4 and kind.shape[0] not in (1, batch) or kind.rank >= 2 and kind.shape[-2] not in (1, length):
        return None
    axis = kind.rank - 1
    return b.emit(OPS["strided_slice"], table, axes=[axis], begin=[0], end=[size // 2], strides=[1])
