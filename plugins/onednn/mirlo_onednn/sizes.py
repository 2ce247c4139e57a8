"""Dynamic dims of regions as text, and their values in a call.

A dim is a number, or a polynomial of symbols as text: `batch`, `12*seq`, `batch*seq`, `seq + 1`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

Dim = int | str
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class UndeterminedSize(ValueError):
    """A dim that the tensors of a call do not determine."""


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@lru_cache(maxsize=4096)
def symbols(text: str) -> frozenset[str]:
    """Return the symbols of a dim."""
    return frozenset(_symbols(_parsed(text)))


def _symbols(node: ast.expr) -> Iterable[str]:
    if isinstance(node, (ast.Name, ast.Attribute)):
        return [ast.unparse(node)]
    return [name for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for name in _symbols(child)]


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Evaluate a dim for these sizes of symbols."""
    return dim if isinstance(dim, int) else _evaluate(_parsed(dim), sizes)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = ast.unparse(node)
        if name not in sizes:
            raise UndeterminedSize(f"the tensors of the call do not determine the size '{name}'")
        return sizes[name]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, sizes)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    raise UndeterminedSize(f"'{ast.unparse(node)}' is not a sum of products")


def solve(dims: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Solve dims of known values for their symbols: plain symbols first, then dims with one unknown left."""
    left = dict(dims)
    sizes = {text: value for text, value in left.items() if symbols(text) == {text}}
    progress = True
    while progress:
        progress = False
        for text, value in left.items():
            unknown = symbols(text) - sizes.keys()
            if len(unknown) == 1:
                (name,) = unknown
                root = _root(text, name, value, sizes)
                if root is not None:
                    sizes[name] = root
                    progress = True
    return sizes


def _root(text: str, name: str, value: int, sizes: Mapping[str, int]) -> int | None:
    """Return the value of the symbol for which a dim has this value, if the dim is linear in the symbol."""
    at = [evaluate(text, {**sizes, name: trial}) for trial in range(3)]
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[1] != slope or (value - at[0]) % slope:
        return None
    return (value - at[0]) // slope


def undetermined(determining: Iterable[str], wanted: Iterable[str]) -> set[str]:
    """Return the symbols in `wanted` dims that `determining` dims do not determine."""
    listed = list(determining)
    names = sorted({name for text in listed for name in symbols(text)})
    # Arbitrary sizes show it; different primes make no two products equal.
    trial = dict(zip(names, _primes(len(names)), strict=True))
    known = solve((text, evaluate(text, trial)) for text in listed)
    return {name for text in wanted for name in symbols(text)} - known.keys()


def _primes(count: int) -> list[int]:
    primes: list[int] = []
    candidate = 101
    while len(primes) < count:
        if all(candidate % divisor for divisor in range(2, candidate)):
            primes.append(candidate)
        candidate += 2
    return primes
