"""Reductions, arg reductions and cumulative operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.core.attributes import Bool, Int, Ints
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import AxisAttributes
from mirlo.dialects.core.types import TensorType
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


class ReadsEachElement(RelaxOp):
    """Base of operators with one operation for each element of the operand."""

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: Any) -> int:
        return math.prod(operands[0].static_shape)


class Reduce(ReadsEachElement):
    """Reduce over the axes (all if none are given); `keepdims` keeps them as dims of 1."""

    AXES = AxisAttributes(axes="axes", reduces=True)
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


def _norm(x: Array, **axes: Any) -> Array:
    return np.sqrt(np.sum(x * x, **axes))


# operator: element kinds that it accepts, meaning
REDUCE: dict[str, tuple[tuple[str, ...], Callable[..., Array]]] = {
    "reduce_sum": (NUMBER, np.sum),
    "reduce_mean": (NUMBER, np.mean),
    "reduce_prod": (NUMBER, np.prod),
    "reduce_max": (ANY, np.max),
    "reduce_min": (ANY, np.min),
    "reduce_l1": (NUMBER, lambda x, **axes: np.sum(np.abs(x), **axes)),
    "reduce_l2": (FLOAT, _norm),
    "reduce_sum_square": (NUMBER, lambda x, **axes: np.sum(x * x, **axes)),
    "reduce_log_sum": (FLOAT, lambda x, **axes: np.log(np.sum(x, **axes))),
    "reduce_log_sum_exp": (FLOAT, lambda x, **axes: np.log(np.sum(np.exp(x), **axes))),
    "reduce_any": (BOOL, np.any),
    "reduce_all": (BOOL, np.all),
}


def _reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    def meaning(x: Array, *, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        return function(widened(x), axis=axes, keepdims=keepdims)

    return meaning


for _name, (_kinds, _function) in REDUCE.items():
    _members = {"KINDS": _kinds, "meaning": staticmethod(_reduced(_function)), "__module__": __name__}
    globals()[class_name(_name)] = type(class_name(_name), (Reduce,), _members, name=_name)


class ArgReduce(ReadsEachElement):
    """Position of an extreme value along the axis; of equal ones the first, or the last with `select_last`."""

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
            raise OpError(f"axis {axis} of {x} is empty and has no extreme")
        return TensorType((*x.shape[:axis], *((1,) if keepdims else ()), *x.shape[axis + 1 :]), x.dtype).with_dtype(
            "i64"
        )


class Argmax(ArgReduce, name="argmax"):
    """Position of the maximum."""


class Argmin(ArgReduce, name="argmin"):
    """Position of the minimum."""


class Cumulative(ReadsEachElement):
    """Running result along the axis; `exclusive` excludes the element itself, `reverse` runs from the end."""

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


class Cumprod(Cumulative, name="cumprod"):
    """Running product."""
