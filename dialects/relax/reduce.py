"""Reductions, arg reductions and cumulative operators."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool, Int, Ints
from mirlo.dialects.core.op import OpError, operand
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


class Reduce(RelaxOp):
    """Reduce over the axes (all if none are given); `keepdims` keeps them as dims of 1."""

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


# operator: element kinds that it accepts
REDUCE = {
    "reduce_sum": NUMBER, "reduce_mean": NUMBER, "reduce_prod": NUMBER, "reduce_max": ANY, "reduce_min": ANY,
    "reduce_l1": NUMBER, "reduce_l2": FLOAT, "reduce_sum_square": NUMBER, "reduce_log_sum": FLOAT,
    "reduce_log_sum_exp": FLOAT, "reduce_any": BOOL, "reduce_all": BOOL,
}  # fmt: skip

for _name, _kinds in REDUCE.items():
    globals()[class_name(_name)] = type(
        class_name(_name), (Reduce,), {"KINDS": _kinds, "__module__": __name__}, name=_name
    )


class ArgReduce(RelaxOp):
    """Position of an extreme value along the axis; of equal ones the first, or the last with `select_last`."""

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


class Cumulative(RelaxOp):
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
