"""The text of dims: names of symbols, and printed expressions."""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeGuard, TypeVar

_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
SYMBOL = re.compile(_NAME)
_BRACKET = re.compile(r"[()]")
FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}

T = TypeVar("T")
"""What symbols stand for: dims."""
Lookup = Callable[[str], T]
Apply = Callable[[str, "T | int", "T | int"], "T | int"]


@lru_cache(maxsize=4096)
def is_symbol_name(name: str) -> bool:
    """Return whether a symbol may have this name."""
    parts = name.split(".")
    return bool(SYMBOL.fullmatch(name)) and name not in FUNCTIONS and not any(map(keyword.iskeyword, parts))


def nesting(text: str) -> int:
    """Return how many calls are in each other at most."""
    most = depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "(" else -1
        most = max(most, depth)
    return most


def evaluate(text: str, lookup: Lookup[T], apply: Apply[T]) -> T | int:
    """Return the dim that a text denotes, given the dims of its symbols; raise ValueError if it is not a dim."""
    try:
        return _evaluate(ast.parse(text, mode="eval").body, lookup, apply)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is not a dim expression") from None
    except ValueError as error:
        raise ValueError(f"'{text}' is not a dim expression: {error}") from None


def arguments(text: str, lookup: Lookup[T], apply: Apply[T]) -> tuple[str, list[T | int]]:
    """Return the function and the arguments of a text that is a call."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    return call.func.id, [_evaluate(argument, lookup, apply) for argument in call.args]


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_NAMED: dict[type[ast.operator], str] = {ast.FloorDiv: "floordiv", ast.Mod: "mod"}


def _evaluate(node: ast.expr, lookup: Lookup[T], apply: Apply[T]) -> T | int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        return lookup(ast.unparse(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        negated: T | int = operator.mul(_evaluate(node.operand, lookup, apply), -1)
        return negated
    if _is_operation(node):
        return _evaluate_chain(node, lookup, apply)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        if len(node.args) != 2 or node.keywords:
            raise ValueError(f"'{node.func.id}' takes two dims")
        first, second = (_evaluate(argument, lookup, apply) for argument in node.args)
        return apply(node.func.id, first, second)
    raise ValueError(f"unexpected '{ast.unparse(node)}'")


def _is_operation(node: ast.expr) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and (type(node.op) in _OPERATORS or type(node.op) in _NAMED)


def _evaluate_chain(node: ast.expr, lookup: Lookup[T], apply: Apply[T]) -> T | int:
    """Return the dim of an operation; sums are long chains of them, each the left operand of the next."""
    chain: list[ast.BinOp] = []
    while _is_operation(node):
        chain.append(node)
        node = node.left
    result = _evaluate(node, lookup, apply)
    for each in reversed(chain):
        kind, right = type(each.op), _evaluate(each.right, lookup, apply)
        result = apply(_NAMED[kind], result, right) if kind in _NAMED else _OPERATORS[kind](result, right)
    return result
