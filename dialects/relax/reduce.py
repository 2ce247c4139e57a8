"""Reductions, arg reductions and cumulative operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Bool, Int, Ints
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import AxisAttributes, OnnxName, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    ANY,
    BOOL,
    FLOAT,
    NUMBER,
    class_name,
    normalize_axes,
    normalize_axis,
    require_kind,
)
from mirlo.dialects.relax.meanings import Array, widened
from mirlo.dialects.tir.compute import Expr, abs_, log, sqrt
from mirlo.runtime.records import dataclass


class ReadsEachElement(RelaxOp):
    """Base of operators with one operation for each element of the operand."""

    @classmethod
    def flops(
        cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: int | tuple[int, ...] | None
    ) -> int:
        return math.prod(operands[0].static_shape)


class Reduce(ReadsEachElement):
    """Reduce over the axes (all if none are given); `keepdims` keeps them as dims of 1."""

    TRAITS = (Trait.REDUCTION,)
    AXES = AxisAttributes(axes="axes", reduces=True)
    COMBINE: ClassVar[Combination | None] = None
    KINDS: tuple[str, ...] = NUMBER
    x = operand()
    axes = Ints(None)
    keepdims = Bool(False)

    @classmethod
    def infer(cls, x: TensorType, *, axes: tuple[int, ...] | None, keepdims: bool) -> TensorType:
        require_kind(x, cls.KINDS, "operand")
        reduced = set(normalize_axes(axes, x.rank))
        if keepdims:
            return x.with_shape([1 if i in reduced else dim for i, dim in enumerate(x.shape)])
        return x.with_shape([dim for i, dim in enumerate(x.shape) if i not in reduced])


def _norm(x: Array, *, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


@dataclass(frozen=True)
class Combination:
    """How a reduction is computed: finish(combined before(x)); `finish` also receives the number of elements."""

    kind: str
    """What combines two elements: add, mul, max, min, or, and."""
    before: Callable[[Expr], Expr] = lambda x: x
    finish: Callable[[Expr, Dim], Expr] | None = None


def _divisor(total: Expr, count: Dim) -> Dim:
    """Return the divisor of a mean. No floats result in NaN, no integers in 0, without dividing by zero."""
    return count if total.dtype.is_float else D.maximum(count, 1)


def _mean(total: Expr, count: Dim) -> Expr:
    return total / _divisor(total, count)


@dataclass(frozen=True)
class ReductionOp:
    """The declaration of a reduction: the kinds of elements that it accepts, its meaning, how loops compute it."""

    kinds: tuple[str, ...]
    meaning: Callable[..., Array]
    combine: Combination | None
    onnx: str | None = None
    """ONNX's operator, of which axes may be an input and integers are computed in another way."""
    is_linear: bool = False
    """Whether that of a sum is the sum of those of its terms."""

    @property
    def is_sum(self) -> bool:
        """Return whether the results for parts of the elements add up to that of all."""
        return self.combine is not None and self.combine.kind == "add" and self.combine.finish is None


REDUCE = {
    "reduce_sum": ReductionOp(NUMBER, np.sum, Combination("add"), "ReduceSum", is_linear=True),
    "reduce_mean": ReductionOp(NUMBER, np.mean, Combination("add", finish=_mean), "ReduceMean", is_linear=True),
    "reduce_prod": ReductionOp(NUMBER, np.prod, Combination("mul"), "ReduceProd"),
    "reduce_max": ReductionOp(ANY, np.max, Combination("max"), "ReduceMax"),
    "reduce_min": ReductionOp(ANY, np.min, Combination("min"), "ReduceMin"),
    "reduce_l1": ReductionOp(NUMBER, lambda x, **axes: np.sum(np.abs(x), **axes), Combination("add", abs_), "ReduceL1"),
    "reduce_l2": ReductionOp(
        FLOAT, _norm, Combination("add", lambda x: x * x, lambda total, count: sqrt(total)), "ReduceL2"
    ),
    "reduce_sum_square": ReductionOp(
        NUMBER, lambda x, **axes: np.sum(x * x, **axes), Combination("add", lambda x: x * x), "ReduceSumSquare"
    ),
    "reduce_log_sum": ReductionOp(
        FLOAT,
        lambda x, **axes: np.log(np.sum(x, **axes)),
        Combination("add", finish=lambda total, count: log(total)),
        "ReduceLogSum",
    ),
    "reduce_log_sum_exp": ReductionOp(
        FLOAT, lambda x, **axes: np.log(np.sum(np.exp(x), **axes)), None, "ReduceLogSumExp"
    ),
    "reduce_any": ReductionOp(BOOL, np.any, Combination("or")),
    "reduce_all": ReductionOp(BOOL, np.all, Combination("and")),
}


def _reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    def meaning(x: Array, *, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        return function(widened(x), axis=axes, keepdims=keepdims)

    return meaning


for _name, _row in REDUCE.items():
    _members: dict[str, object] = {"KINDS": _row.kinds, "meaning": staticmethod(_reduced(_row.meaning))}
    _members["sharding"] = staticmethod(shardings.reduction(_row.is_sum, _row.is_linear))
    _members |= {"COMBINE": _row.combine, "__module__": __name__}
    if _row.onnx is not None:
        _members["ONNX"] = OnnxName(_row.onnx, imported=False, exported=False)
    globals()[class_name(_name)] = type(class_name(_name), (Reduce,), _members, name=_name)


def reductions_of_onnx() -> dict[str, type[Reduce]]:
    """Return the reductions that ONNX has, by its names."""
    return {cls.ONNX.operator: cls for cls in Reduce.__subclasses__() if cls.ONNX is not None}


class ArgReduce(ReadsEachElement):
    """Position of an extreme value along the axis; of equal ones the first, or the last with `select_last`."""

    sharding = staticmethod(shardings.other_axes)
    AXES = AxisAttributes(axis="axis", reduces=True)
    x = operand()
    axis = Int(0)
    keepdims = Bool(True)
    select_last = Bool(False)

    @staticmethod
    def infer(x: TensorType, *, axis: int, keepdims: bool, select_last: bool) -> TensorType:
        require_kind(x, NUMBER, "operand")
        axis = normalize_axis(axis, x.rank)
        if x.shape[axis] == 0:
            raise OpError(f"axis {axis} of {x} is empty: it has no minimum or maximum")
        return TensorType((*x.shape[:axis], *((1,) if keepdims else ()), *x.shape[axis + 1 :]), x.dtype).with_dtype(
            "i64"
        )


class Argmax(ArgReduce, name="argmax"):
    """Position of the maximum."""

    meaning = staticmethod(meanings.arg_extreme(np.argmax))


class Argmin(ArgReduce, name="argmin"):
    """Position of the minimum."""

    meaning = staticmethod(meanings.arg_extreme(np.argmin))


class Cumulative(ReadsEachElement):
    """Running result along the axis; `exclusive` excludes the element itself, `reverse` runs from the end."""

    sharding = staticmethod(shardings.other_axes)
    x = operand()
    axis = Int()
    exclusive = Bool(False)
    reverse = Bool(False)

    @staticmethod
    def infer(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
        require_kind(x, NUMBER, "operand")
        normalize_axis(axis, x.rank)
        return x


class Cumsum(Cumulative, name="cumsum"):
    """Running sum."""

    meaning = staticmethod(array_meanings.running(np.add))


class Cumprod(Cumulative, name="cumprod"):
    """Running product."""

    meaning = staticmethod(array_meanings.running(np.multiply))
