"""Dimensions of tensors: a number, or an integer expression over named symbols.

A symbolic dim is kept in one canonical form, a polynomial with integer coefficients over atoms, so that two dims that
are the same expression are equal Python objects and print the same text. An atom is a symbol (`batch`) or an operation
that a polynomial cannot say (`floordiv(batch + 1, 2)`, `max(n, 4)`). A dim that nothing is known about is `UNKNOWN`: it
equals no other dim.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

Dim = Union[int, "SymbolicDim"]
Atom = str
Monomial = tuple[Atom, ...]

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*$")
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class SymbolicDim:
    """A dim that is not a number: sum of coefficient × product of atoms, sorted."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        if self is UNKNOWN:
            return "?"
        text = ""
        for atoms, factor in self.terms:
            sign = " - " if factor < 0 else " + "
            size = abs(factor)
            body = "*".join(([str(size)] if size != 1 or not atoms else []) + list(atoms))
            text = text + sign + body if text else ("-" if factor < 0 else "") + body
        return text

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __eq__(self, other: object) -> bool:
        if self is UNKNOWN or other is UNKNOWN:
            return False
        return isinstance(other, SymbolicDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: int) -> Dim:
        return _combine(self * -1, other, 1)

    def __mul__(self, other: Dim) -> Dim:
        if self is UNKNOWN or other is UNKNOWN:
            return UNKNOWN
        result: dict[Monomial, int] = {}
        for atoms, factor in self.terms:
            for other_atoms, other_factor in _terms(other):
                key = tuple(sorted(atoms + other_atoms))
                result[key] = result.get(key, 0) + factor * other_factor
        return _make(result)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return apply("floordiv", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return apply("mod", self, other)

    def symbols(self) -> set[str]:
        """Names of the symbols that this dim depends on."""
        names: set[str] = set()
        for atoms, _ in self.terms:
            for atom in atoms:
                names.update(n for n in re.findall(r"[A-Za-z_][A-Za-z0-9_.]*", atom) if n not in _FUNCTIONS)
        return names


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return (((), dim),) if isinstance(dim, int) else dim.terms


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = {atoms: factor for atoms, factor in terms.items() if factor}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    ordered = sorted(kept.items(), key=lambda item: (-len(item[0]), item[0]))
    return SymbolicDim(tuple(ordered))


def _combine(left: Dim, right: Dim, sign: int) -> Dim:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    result = dict(_terms(left))
    for atoms, factor in _terms(right):
        result[atoms] = result.get(atoms, 0) + sign * factor
    return _make(result)


UNKNOWN = SymbolicDim(((("?",), 1),))
"""A dim that nothing is known about."""


def symbol(name: str) -> SymbolicDim:
    """The dim that is this symbol."""
    if not _SYMBOL.match(name):
        raise ValueError(f"'{name}' is not a name for a dim: letters, digits, '_' and '.', not starting with a digit")
    return SymbolicDim((((name,), 1),))


def apply(function: str, left: Dim, right: Dim) -> Dim:
    """floordiv, mod, min or max of two dims, simplified where that is exact."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(left, int) and isinstance(right, int):
        return _FUNCTIONS[function](left, right)
    if function in ("min", "max") and left == right:
        return left
    if function in ("floordiv", "mod") and isinstance(right, int) and right > 0:
        if all(factor % right == 0 for _, factor in _terms(left)):
            return 0 if function == "mod" else _make({atoms: f // right for atoms, f in _terms(left)})
    elif function in ("floordiv", "mod") and left == right:
        return 1 if function == "floordiv" else 0
    arguments = [str(left), str(right)]
    if function in ("min", "max"):
        arguments.sort()
    return SymbolicDim((((f"{function}({arguments[0]}, {arguments[1]})",), 1),))


def ceildiv(left: Dim, right: Dim) -> Dim:
    return (left + right - 1) // right


def maximum(left: Dim, right: Dim) -> Dim:
    return apply("max", left, right)


def minimum(left: Dim, right: Dim) -> Dim:
    return apply("min", left, right)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def same_product(left: Dim, right: Dim) -> bool:
    """Whether both are a number times one and the same product of atoms."""
    both = [_terms(left), _terms(right)]
    return all(len(terms) == 1 for terms in both) and both[0][0][0] == both[1][0][0]


def is_static(dim: Dim) -> bool:
    return isinstance(dim, int)


@lru_cache(maxsize=4096)
def parse(text: str) -> Dim:
    """A dim from its text, as `str` prints it."""
    if text.strip() == "?":
        return UNKNOWN
    try:
        return _evaluate(ast.parse(text, mode="eval").body, symbol)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"'{text}' is not a dim expression: {error}") from None


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dim with some symbols replaced."""
    if isinstance(dim, int) or dim is UNKNOWN:
        return dim
    return _evaluate(ast.parse(str(dim), mode="eval").body, lambda name: values.get(name, symbol(name)))


def _evaluate(node: ast.expr, lookup: Callable[[str], Dim]) -> Dim:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        return lookup(ast.unparse(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _evaluate(node.operand, lookup) * -1
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, lookup), _evaluate(node.right, lookup)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv):
            return apply("floordiv", left, right)
        if isinstance(node.op, ast.Mod):
            return apply("mod", left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if len(node.args) == 2:
            return apply(node.func.id, _evaluate(node.args[0], lookup), _evaluate(node.args[1], lookup))
    raise ValueError(f"unexpected '{ast.unparse(node)}'")
