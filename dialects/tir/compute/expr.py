"""Scalar expressions of the compute builder: the results of lambdas over index variables.

Python operators build them; every expression has an element type. Index variables and arithmetic on them have type
`index`. Python numbers take the type of the other operand.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Union

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import SymbolicDim
from mirlo.dialects.core.dtypes import DTYPES, DType, dtype
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN, OwnIntrinsic, is_scalar_function

INDEX = DTYPES["index"]
BOOL = DTYPES["bool"]
Number = int | float | bool | SymbolicDim
ExprLike = Union["Expr", Number]


class Expr:
    """A scalar expression: an operation on other expressions."""

    __slots__ = ("op", "args", "dtype", "data")

    def __init__(self, op: str, args: tuple[Expr, ...], element: DType, data: Any = None):
        self.op = op
        self.args = args
        self.dtype = element
        self.data = data

    def _binary(self, op: str, other: ExprLike, swap: bool = False) -> Expr:
        right = lift(other, self.dtype)
        left: Expr = self
        if left.dtype is INDEX and right.dtype is not INDEX:
            right = right.cast(INDEX) if right.dtype.is_integer else right
        if right.dtype is INDEX and left.dtype is not INDEX:
            left = left.cast(INDEX)
        if left.dtype is not right.dtype:
            raise TypeError(f"'{op}' of {left.dtype} and {right.dtype}: cast one of them")
        first, second = (right, left) if swap else (left, right)
        if first.op in _SIZES and second.op in _SIZES and "size" in (first.op, second.op):
            result = _of_sizes(op, first.data, second.data)
            if result is not None:
                return result
        simpler = simplified(op, first, second)
        return Expr(op, (first, second), left.dtype) if simpler is None else simpler

    def __add__(self, other: ExprLike) -> Expr:
        return self._binary("add", other)

    def __radd__(self, other: ExprLike) -> Expr:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: ExprLike) -> Expr:
        return self._binary("sub", other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: ExprLike) -> Expr:
        return self._binary("mul", other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: ExprLike) -> Expr:
        return self._binary("div", other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return self._binary("div", other, swap=True)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return self._binary("floordiv", other, swap=True)

    def __mod__(self, other: ExprLike) -> Expr:
        return self._binary("mod", other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return self._binary("mod", other, swap=True)

    def __and__(self, other: ExprLike) -> Expr:
        return self._binary("and", other)

    def __or__(self, other: ExprLike) -> Expr:
        return self._binary("or", other)

    def __xor__(self, other: ExprLike) -> Expr:
        return self._binary("xor", other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return self._binary("shl", other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return self._binary("shr", other)

    def __neg__(self) -> Expr:
        return Expr("neg", (self,), self.dtype)

    def __invert__(self) -> Expr:
        return self ^ (True if self.dtype is BOOL else -1)

    def compare(self, predicate: str, other: ExprLike) -> Expr:
        """Compare: eq, ne, lt, le, gt or ge; a comparison with NaN is false, except ne."""
        comparison = self._binary("cmp", other)
        return Expr("cmp", comparison.args, BOOL, predicate)

    def with_number(self, value: int) -> Expr:
        """Return a constant of this expression's type."""
        return constant(value, self.dtype)

    def __lt__(self, other: ExprLike) -> Expr:
        return self.compare("lt", other)

    def __le__(self, other: ExprLike) -> Expr:
        return self.compare("le", other)

    def __gt__(self, other: ExprLike) -> Expr:
        return self.compare("gt", other)

    def __ge__(self, other: ExprLike) -> Expr:
        return self.compare("ge", other)

    def equals(self, other: ExprLike) -> Expr:
        return self.compare("eq", other)

    def differs(self, other: ExprLike) -> Expr:
        return self.compare("ne", other)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value while it is built: use select(condition, a, b)")

    def cast(self, to: str | DType) -> Expr:
        """Convert: to bool compares with zero; floats to integers truncate (and saturate if out of range)."""
        target = dtype(to)
        return self if target is self.dtype else Expr("cast", (self,), target)

    def bitcast(self, to: str | DType) -> Expr:
        """Reinterpret the bits as another type of the same size."""
        return Expr("bitcast", (self,), dtype(to))


_SIZES = ("const", "size")
"""Index expressions that are constant over all points."""


def _of_sizes(op: str, a: D.Dim, b: D.Dim) -> Expr | None:
    """Apply arithmetic on dims, which results in a dim; None if an operand is not a dim."""
    if op in ("floordiv", "mod") and (not isinstance(b, int) or b < 1):
        return None
    plain = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}
    if op in plain:
        return lift(plain[op](), INDEX)
    return lift(D.apply(op, a, b), INDEX) if op in ("floordiv", "mod", "min", "max") else None


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}
"""Folds constants, of type index only: narrower types wrap."""


def simplified(op: str, left: Expr, right: Expr) -> Expr | None:
    """Return a simpler expression with the value of `left op right`, or None."""
    a = left.data if left.op == "const" else None
    b = right.data if right.op == "const" else None
    if left.dtype.is_float:
        # Adding zero is not folded: it changes -0.0 to 0.0.
        return left if b == 1 and op in ("mul", "div") else right if a == 1 and op == "mul" else None
    if left.dtype.is_bool:
        return _of_bool(op, left, right, a, b)
    if a is not None and b is not None and left.dtype.name == "index":
        return _folded(op, left, a, b)
    if b is not None:
        return _with_number(op, left, right, b)
    if a is not None and (op, a) in (("add", 0), ("mul", 1)):
        return right
    return left if op == "mul" and a == 0 else None


def _of_bool(op: str, left: Expr, right: Expr, a: bool | None, b: bool | None) -> Expr | None:
    if op not in ("and", "or"):
        return None
    neutral = op == "and"
    if a is not None:
        return right if a is neutral else left
    if b is not None:
        return left if b is neutral else right
    return None


def _folded(op: str, number: Expr, a: int, b: int) -> Expr | None:
    if op in _FOLD:
        return number.with_number(_FOLD[op](a, b))
    if op in ("floordiv", "mod") and b > 0:
        return number.with_number(a // b if op == "floordiv" else a % b)
    return None


def _with_number(op: str, left: Expr, right: Expr, b: int) -> Expr | None:
    if (op, b) in (("add", 0), ("sub", 0), ("mul", 1), ("div", 1), ("floordiv", 1)):
        return left
    if (op, b) in (("mul", 0), ("mod", 1)):
        return right.with_number(0)
    if left.dtype.name == "index" and op in ("add", "sub") and left.op in ("add", "sub") and left.args[1].op == "const":
        # (x + c) + b is x + (c + b).
        inner = left.args[1].data if left.op == "add" else -left.args[1].data
        total = inner + (b if op == "add" else -b)
        moved: Expr = left.args[0] + total if total >= 0 else left.args[0] - (-total)
        return moved
    return None


class Axis(Expr):
    """An index variable of a block."""

    __slots__ = ()

    def __init__(self, position: int):
        super().__init__("axis", (), INDEX, position)


def constant(value: Number, element: str | DType) -> Expr:
    """Return a constant of this element type; a symbolic dim is its run-time value."""
    target = dtype(element)
    if isinstance(value, SymbolicDim):
        return Expr("size", (), INDEX, value).cast(target)
    if target.is_float:
        return Expr("const", (), target, float(value))
    return Expr("const", (), target, bool(value) if target.is_bool else int(value))


def lift(value: ExprLike, element: DType) -> Expr:
    return value if isinstance(value, Expr) else constant(value, element)


def select(condition: Expr, yes: ExprLike, no: ExprLike) -> Expr:
    """Return `yes` if the condition holds, else `no`; both are evaluated."""
    if condition.op == "const":
        chosen = yes if condition.data else no
        if isinstance(chosen, Expr):
            return chosen
    if not isinstance(yes, Expr) and not isinstance(no, Expr):
        raise TypeError("select needs an expression for one of its values")
    element = yes.dtype if isinstance(yes, Expr) else no.dtype  # type: ignore[union-attr]
    a, b = lift(yes, element), lift(no, element)
    if a.dtype is not b.dtype:
        raise TypeError(f"select between {a.dtype} and {b.dtype}: cast one of them")
    return Expr("select", (condition, a, b), a.dtype)


def maximum(a: Expr, b: ExprLike) -> Expr:
    """Return the larger value; NaN if one is NaN."""
    return a._binary("max", b)


def minimum(a: Expr, b: ExprLike) -> Expr:
    """Return the smaller value; NaN if one is NaN."""
    return a._binary("min", b)


def call(name: str, *args: ExprLike) -> Expr:
    """Call the intrinsic `tir.<name>`."""
    row = INTRINSICS.get(name) or OWN.get(name)
    if row is None:
        near = difflib.get_close_matches(name, [*INTRINSICS, *OWN], n=1)
        raise ValueError(f"there is no intrinsic '{name}'{f'; did you mean {near[0]!r}?' if near else ''}")
    if isinstance(row, OwnIntrinsic) and not (is_scalar_function(row) and row.result in ("same", "bool")):
        raise ValueError(f"intrinsic '{name}' is not one of elements: call it in loops (loops.call, T.call_intrin)")
    first = args[0]
    if not isinstance(first, Expr):
        raise TypeError(f"the first argument of '{name}' must be an expression")
    lifted = tuple(lift(arg, first.dtype) for arg in args)
    return Expr("intrinsic", lifted, BOOL if row.result == "bool" else first.dtype, name)


def _unary(name: str) -> Callable[[Expr], Expr]:
    def function(x: Expr) -> Expr:
        return call(name, x)

    function.__name__ = name
    function.__doc__ = f"The intrinsic `tir.{name}`."
    return function


exp, log, sqrt, rsqrt, tanh, erf, sigmoid = map(_unary, ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid"))
floor, ceil, trunc, roundeven = map(_unary, ("floor", "ceil", "trunc", "roundeven"))


def abs_(x: Expr) -> Expr:
    """Return the absolute value of a float or integer."""
    return call("abs", x) if x.dtype.is_float else x if x.dtype.is_unsigned else maximum(x, -x)


def clamp(x: Expr, low: ExprLike, high: ExprLike) -> Expr:
    return minimum(maximum(x, low), high)


def all_of(conditions: Sequence[Expr]) -> Expr:
    """Return whether all conditions hold; true for none."""
    result = constant(True, BOOL)
    for i, condition in enumerate(conditions):
        result = condition if i == 0 else result & condition
    return result
