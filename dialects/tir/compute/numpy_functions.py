"""numpy's functions on scalar expressions: one function on arrays is the definition of an operator in loops too.

def meaning(x, *, beta):
return np.where(x > 0, x, beta * np.expm1(x))

as_scalar_function(meaning)(expression, beta=0.5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.errors import OpMistake
from mirlo.dialects.tir.compute.expr import Expr, ExprLike, abs_, call, clamp, constant, lift, maximum, minimum, select
from mirlo.runtime.callbacks import Expected, check_result

_RENAMED = {"power": "pow", "rint": "roundeven", "arctan2": "atan2"}
_RENAMED |= {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
"""The intrinsics that numpy calls otherwise."""


ELEMENT = Expected(
    "an expression, or a number", lambda value: isinstance(value, (Expr, int, float, complex, np.number, np.bool_))
)
"""What a function of elements returns."""


class NumpyScalar:
    """A scalar expression on which Python's operators and numpy's functions work as on an array."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr):
        self.expr = expr

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *values: float | NumpyScalar, **options: object
    ) -> NumpyScalar:
        if method != "__call__" or options:
            raise TypeError(f"np.{ufunc.__name__} with options is not defined on the elements of a kernel")
        name = ufunc.__name__
        first = next(value.expr for value in values if isinstance(value, NumpyScalar))
        exprs = [_expression(value, first) for value in values]
        function = _FUNCTIONS.get(name)
        return NumpyScalar(call(_RENAMED.get(name, name), *exprs) if function is None else function(*exprs))

    def __array_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        values: Sequence[NumpyScalar | float],
        options: Mapping[str, object],
    ) -> NumpyScalar:
        if function is np.where and len(values) == 3 and not options:
            condition, yes, no = (value.expr if isinstance(value, NumpyScalar) else value for value in values)
            return NumpyScalar(_select(condition, yes, no))
        if function is np.clip and len(values) == 3 and not options:
            first = next(value.expr for value in values if isinstance(value, NumpyScalar))
            x, low, high = (_expression(value, first) for value in values)
            return NumpyScalar(clamp(x, low, high))
        raise TypeError(f"np.{function.__name__} is not defined on the elements of a kernel: declare 'scalar'")

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an element of a kernel has no '{name}': it is a number; use numpy's functions")

    def __bool__(self) -> bool:
        raise TypeError("an element of a kernel has no truth value: use np.where(condition, a, b)")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an element of a kernel is not an array: use numpy's functions on elements")


def _operators(name: str, ufunc: np.ufunc) -> None:
    setattr(NumpyScalar, f"__{name}__", lambda self, *other: ufunc(self, *other))
    if ufunc.nin == 2:
        setattr(NumpyScalar, f"__r{name}__", lambda self, other: ufunc(other, self))


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.mod, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "neg": np.negative, "abs": np.absolute, "invert": np.invert,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    _operators(_name, _ufunc)


def _select(condition: ExprLike, yes: ExprLike, no: ExprLike) -> Expr:
    if not isinstance(condition, Expr):
        raise TypeError("np.where on the elements of a kernel needs a condition that depends on them")
    if not isinstance(yes, Expr) and not isinstance(no, Expr):
        compared = condition
        while compared.args and compared.dtype.is_bool:
            compared = compared.args[0]
        yes = constant(yes, compared.dtype)
    return select(condition, yes, no)


def _expression(value: float | NumpyScalar, like: Expr) -> Expr:
    if isinstance(value, NumpyScalar):
        return value.expr
    return lift(value.item() if isinstance(value, np.generic) else value, like.dtype)


_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y, "true_divide": lambda x, y: x / y, "floor_divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y, "maximum": maximum, "minimum": minimum, "negative": lambda x: -x,
    "positive": lambda x: x, "absolute": abs_, "fabs": abs_, "square": lambda x: x * x,
    "reciprocal": lambda x: 1.0 / x, "logical_and": lambda x, y: x & y, "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: x ^ y, "logical_not": lambda x: ~x, "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y, "invert": lambda x: ~x,
    "left_shift": lambda x, y: x << y, "right_shift": lambda x, y: x >> y, "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y), "less": lambda x, y: x < y, "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y, "greater_equal": lambda x, y: x >= y,
}  # fmt: skip


def as_scalar_function(function: Callable[..., NumpyScalar | ExprLike | np.ndarray]) -> Callable[..., Expr]:
    """Return a function on arrays as one on scalar expressions."""

    def apply(*xs: Expr, **attributes: object) -> Expr:
        result = function(*map(NumpyScalar, xs), **attributes)
        if isinstance(result, NumpyScalar):
            return result.expr
        check_result(result, function, ELEMENT, "a function of elements", OpMistake)
        return result if isinstance(result, Expr) else constant(result, xs[0].dtype)  # type: ignore[arg-type] # a number

    return apply
