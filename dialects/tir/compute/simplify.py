"""Simplification of expressions during construction, so that general rules produce good code in special cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}
"""Folds constants, of type index only: narrower types wrap."""


def simplified(op: str, left: Any, right: Any) -> Any | None:
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


def _of_bool(op: str, left: Any, right: Any, a: bool | None, b: bool | None) -> Any | None:
    if op not in ("and", "or"):
        return None
    neutral = op == "and"
    if a is not None:
        return right if a is neutral else left
    if b is not None:
        return left if b is neutral else right
    return None


def _folded(op: str, number: Any, a: int, b: int) -> Any | None:
    if op in _FOLD:
        return number.with_number(_FOLD[op](a, b))
    if op in ("floordiv", "mod") and b > 0:
        return number.with_number(a // b if op == "floordiv" else a % b)
    return None


def _with_number(op: str, left: Any, right: Any, b: int) -> Any | None:
    if (op, b) in (("add", 0), ("sub", 0), ("mul", 1), ("div", 1), ("floordiv", 1)):
        return left
    if (op, b) in (("mul", 0), ("mod", 1)):
        return right.with_number(0)
    if left.dtype.name == "index" and op in ("add", "sub") and left.op in ("add", "sub") and left.args[1].op == "const":
        # (x + c) + b is x + (c + b).
        inner = left.args[1].data if left.op == "add" else -left.args[1].data
        total = inner + (b if op == "add" else -b)
        return left.args[0] + total if total >= 0 else left.args[0] - (-total)
    return None
