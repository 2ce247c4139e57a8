"""Evaluation of a region on numbers, to find out which function it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.frontends.stablehlo.enumerations import enumeration


class Unknown(Exception):
    """An operation that is not evaluated."""


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def evaluate_region(
    operations: Sequence[ir.Operation], arguments: Sequence[ir.Value], numbers: Sequence[Any]
) -> list[Any]:
    """Return what a region of comparisons, logic and choices returns for numbers."""
    known: dict[ir.Value, Any] = {}
    known.update(zip(arguments, numbers, strict=True))
    for op in operations:
        given = [known[value] for value in op.operands]
        name = op.name.removeprefix("stablehlo.")
        if name == "return":
            return given
        if name == "compare":
            made: Any = _COMPARE[enumeration(op, "comparison_direction")](*given)
        elif name in ("and", "or"):
            made = all(given) if name == "and" else any(given)
        elif name == "not":
            made = not given[0]
        elif name == "select":
            made = given[1] if given[0] else given[2]
        else:
            raise Unknown(op.name)
        known[op.results[0]] = made
    raise Unknown("return")
