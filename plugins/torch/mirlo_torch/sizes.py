"""Sizes of exported programs, expressions of sympy, as dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirlo.extend.frontend import Dim, UnsupportedOperation
from mirlo.extend.frontend import dims as D

if TYPE_CHECKING:
    import torch


LARGEST_PART = 1 << 12
"""Largest numerator and denominator of a factor of sizes, so that products are exact in floats."""


class SizeExpression(Protocol):
    """The interface of sympy's expressions that is read here."""

    args: Sequence[SizeExpression]
    is_Integer: bool
    is_Symbol: bool
    is_Float: bool
    is_Function: bool
    is_Add: bool
    is_Mul: bool
    is_Pow: bool
    name: str
    """Of a symbol."""
    base: SizeExpression
    exp: SizeExpression
    """Of a power."""

    def has(self, part: SizeExpression) -> bool: ...

    def count_ops(self) -> int: ...

    def as_coeff_Mul(self) -> tuple[SizeExpression, SizeExpression]: ...  # noqa: N802

    def __int__(self) -> int: ...

    def __float__(self) -> float: ...


class SizeConditions(NamedTuple):
    """Conditions on sizes that a trace was made under."""

    known: Sequence[SizeExpression] = ()
    """Conditions that hold in all calls."""
    checked: Sequence[SizeExpression] = ()
    """Conditions that calls check."""


class SizeReader:
    """Reads sizes as dims; a dim that shape inference wrote in another form keeps that form."""

    def __init__(self) -> None:
        self._known: dict[SizeExpression, Dim] = {}

    def assume(self, conditions: Iterable[SizeExpression]) -> None:
        """Read quotients and other functions of sizes as the numbers that conditions of all calls make them."""
        for condition in conditions:
            if type(condition).__name__ != "Equality":
                continue
            multiple, number = sorted(condition.args, key=lambda each: each.is_Integer)
            factor, part = multiple.as_coeff_Mul()
            if number.is_Integer and part.is_Function and factor.is_Integer and int(number) % int(factor) == 0:
                self._known[part] = int(number) // int(factor)

    def bind(self, sizes: Sequence[torch.SymInt | int]) -> None:
        """Name what no size of the inputs determines: for inputs of `s // 2` and `2 * (s // 2)`, the quotient.

        A call knows a symbol that is a size, or in which a size is linear. Another size that is computed from unknown
        symbols consists of quotients and other functions of them, which become symbols; or it becomes one as a whole.
        """
        expressions = dict.fromkeys(size.node.expr for size in sizes if not isinstance(size, int))
        rest = sorted(expressions, key=lambda each: (not each.is_Symbol, each.count_ops(), str(each)))
        bound: set[SizeExpression] = set()
        while rest:
            unsolved = [each for each in rest if not self._is_solved(each, bound)]
            if len(unsolved) == len(rest):
                parts = (each for each in self._unknown(rest[0], bound) if not self._is_symbol(each))
                part = next(parts, rest[0])
                self._known[part] = D.symbol(f"size_{len(self._known)}")
                if part is rest[0]:
                    bound.add(part)
            rest = unsolved

    def _is_solved(self, size: SizeExpression, bound: set[SizeExpression]) -> bool:
        """Return whether all parts of a size are known, or one is, now, as the size is linear in it."""
        unknown = self._unknown(size, bound)
        if len(unknown) > 1 or any(not self._is_symbol(each) or not _is_linear(size, each) for each in unknown):
            return False
        bound.update(unknown)
        return True

    def _is_symbol(self, part: SizeExpression) -> bool:
        return part.is_Symbol or part in self._known

    def _unknown(self, size: SizeExpression, bound: set[SizeExpression]) -> list[SizeExpression]:
        """Return the symbols and functions of symbols that a size is a polynomial of, without those that are bound."""
        if size in bound or size.is_Integer or isinstance(self._known.get(size), int):
            return []
        if self._is_symbol(size):
            return [size]
        parts = list(dict.fromkeys(part for each in size.args for part in self._unknown(each, bound)))
        return parts if not parts or size.is_Add or size.is_Mul or size.is_Pow else [size]

    def learn(self, size: torch.SymInt | int, dim: Dim) -> None:
        """Record the dim of a tensor for this size."""
        if not isinstance(size, int) and not isinstance(dim, int):
            self._known.setdefault(size.node.expr, dim)

    def dim(self, size: torch.SymInt | int) -> Dim:
        """Return a size, a number or a `SymInt`, as a dim."""
        return int(size) if isinstance(size, int) else self.of_expression(size.node.expr)

    def only_value(self, size: torch.SymInt | int) -> int | None:
        """Return the value of a size that has one value for all inputs in the ranges of the trace."""
        if isinstance(size, int) or isinstance(self._known.get(size.node.expr), int):
            return int(self.dim(size))
        bounds = size.node.shape_env.bound_sympy(size.node.expr)
        return int(bounds.lower) if bounds.is_int and bounds.lower == bounds.upper else None

    def dims(self, sizes: Sequence[torch.SymInt | int]) -> tuple[Dim, ...]:
        """Return sizes as dims."""
        return tuple(map(self.dim, sizes))

    def of_expression(self, expression: SizeExpression) -> Dim:
        """Return an expression of sympy as a dim."""
        if expression.is_Integer:
            return int(expression)
        dim = self._known.get(expression)
        return self._read(expression) if dim is None else dim

    def differences(self, condition: SizeExpression) -> list[Dim]:
        """Return sizes that are all nonnegative if and only if a condition holds."""
        kind = type(condition).__name__
        if kind == "And":
            return [each for part in condition.args for each in self.differences(part)]
        if kind not in _RELATIONS:
            raise UnsupportedOperation(f"requires '{condition}', which has no equivalent")
        left, right = map(self.of_expression, condition.args)
        return _RELATIONS[kind](left, right)

    def _read(self, expression: SizeExpression) -> Dim:
        if expression.is_Symbol:
            return D.symbol(expression.name)
        kind = type(expression).__name__
        if kind == "Pow" and expression.exp.is_Integer and 0 < int(expression.exp) <= 8:
            return D.product([self.of_expression(expression.base)] * int(expression.exp))
        if kind in ("TruncToInt", "FloorToInt"):
            return self._scaled(expression)
        function = _FUNCTIONS.get(kind)
        if function is None:
            raise UnsupportedOperation(f"has a size that is '{expression}', which has no equivalent")
        return reduce(function, map(self.of_expression, expression.args))

    def _scaled(self, expression: SizeExpression) -> Dim:
        """Return a size times a float, rounded down; exact if the float is a short binary fraction."""
        floats = [part for part in expression.args[0].args if part.is_Float]
        sizes = [part.args[0] for part in expression.args[0].args if type(part).__name__ == "ToFloat"]
        if expression.args[0].is_Mul and len(floats) == len(sizes) == 1 and len(expression.args[0].args) == 2:
            factor = Fraction(float(floats[0]))
            if factor > 0 and max(factor.as_integer_ratio()) <= LARGEST_PART:
                return self.of_expression(sizes[0]) * factor.numerator // factor.denominator
        raise UnsupportedOperation(f"has a size that is '{expression}', which has no equivalent in integers")


def _is_linear(size: SizeExpression, part: SizeExpression) -> bool:
    """Return whether a size is an integer times a part, and what the part is not in."""
    terms = [each for each in (size.args if size.is_Add else (size,)) if each.has(part)]
    return len(terms) == 1 and terms[0].as_coeff_Mul()[1] == part


def _floor(left: Dim, right: Dim) -> Dim:
    return left // right


def _modulo(left: Dim, right: Dim) -> Dim:
    return left % right


_RELATIONS: dict[str, Callable[[Dim, Dim], list[Dim]]] = {
    "GreaterThan": lambda left, right: [left - right],
    "StrictGreaterThan": lambda left, right: [left - right - 1],
    "LessThan": lambda left, right: [right - left],
    "StrictLessThan": lambda left, right: [right - left - 1],
    "Equality": lambda left, right: [left - right, right - left],
    "Unequality": lambda left, right: [D.maximum(left - right, right - left) - 1],
}
"""Conditions by the name of their class."""
_FUNCTIONS = {
    "Add": lambda left, right: left + right,
    "Mul": lambda left, right: left * right,
    "FloorDiv": _floor,
    "CleanDiv": _floor,
    "Mod": _modulo,
    "PythonMod": _modulo,
    "Max": D.maximum,
    "Min": D.minimum,
}
"""Functions of expressions by the name of their class."""
