"""Sorting and selection along an axis, and counts of sequences."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, Int
from mirlo.dialects.core.conditions import require_at_most
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import INTEGER, NUMBER, normalize_axis, require_kind, require_rank, same_dtype


class Topk(RelaxOp, name="topk"):
    """The k largest (or smallest) elements along the axis, and their positions; equal elements keep their order."""

    meaning = staticmethod(array_meanings.topk)
    sharding = staticmethod(shardings.other_axes)
    x = operand()
    values = result()
    indices = result()
    k = Int()
    axis = Int(-1)
    largest = Bool(True)
    sorted = Bool(True)

    @staticmethod
    def infer(x: TensorType, *, k: int, axis: int, largest: bool, sorted: bool) -> tuple[TensorType, TensorType]:
        axis = _require_axis(x, axis)
        size = x.shape[axis]
        text = f"k must be 0 to {size}, the size of axis {axis} of {x}, got {k}"
        require_at_most(0, k, text)
        require_at_most(k, size, text)
        values = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
        return values, values.with_dtype("i64")


class Sort(RelaxOp, name="sort"):
    """The elements in ascending (or descending) order along the axis; stable."""

    meaning = staticmethod(array_meanings.sort)
    sharding = staticmethod(shardings.other_axes)
    x = operand()
    axis = Int(-1)
    descending = Bool(False)

    @staticmethod
    def infer(x: TensorType, *, axis: int, descending: bool) -> TensorType:
        _require_axis(x, axis)
        return x


class Argsort(RelaxOp, name="argsort"):
    """The positions in x of the elements of the sorted tensor."""

    meaning = staticmethod(array_meanings.argsort)
    sharding = staticmethod(shardings.other_axes)
    x = operand()
    axis = Int(-1)
    descending = Bool(False)

    @staticmethod
    def infer(x: TensorType, *, axis: int, descending: bool) -> TensorType:
        _require_axis(x, axis)
        return x.with_dtype("i64")


class ArgsortRows(RelaxOp, name="argsort_rows"):
    """The lexicographic order of the rows of x [N, M]: i64 [N]; stable."""

    meaning = staticmethod(array_meanings.argsort_rows)
    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        require_rank(x, 2, "operand")
        return x.with_shape(x.shape[:1]).with_dtype("i64")


def _require_axis(x: TensorType, axis: int) -> int:
    require_kind(x, NUMBER, "operand")
    return normalize_axis(axis, x.rank)


class CountNgrams(RelaxOp, name="count_ngrams"):
    """How often each row of grams [K, length] occurs in each row of x [N, T]: i64 [N, K].

    Up to `skips` elements are skipped between two elements of a gram, the same number everywhere.
    """

    x = operand()
    grams = operand()
    skips = Int(0)

    @staticmethod
    def infer(x: TensorType, grams: TensorType, *, skips: int) -> TensorType:
        require_kind(x, INTEGER, "operand")
        same_dtype("operand and grams", x, grams)
        require_rank(x, 2, "operand")
        require_rank(grams, 2, "grams")
        if skips < 0:
            raise OpError(f"skips must not be negative, got {skips}")
        return x.with_shape((x.shape[0], grams.shape[0])).with_dtype("i64")
