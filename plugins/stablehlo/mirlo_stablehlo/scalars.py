"""Evaluation of a region on numbers, to recognize its function."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import OPS, enumeration, ir
from mirlo_stablehlo.enumerations import COMPARISONS


class Unknown(Exception):
    """An operation that cannot be evaluated."""


def evaluate_region(
    operations: Sequence[ir.Operation], arguments: Sequence[ir.Value], numbers: Sequence[float]
) -> list[float]:
    """Return the results of a region of comparisons, logic and selects for numbers."""
    known: dict[ir.Value, float] = {}
    known.update(zip(arguments, numbers, strict=True))
    for op in operations:
        operands = [known[value] for value in op.operands]
        name = op.name.removeprefix("stablehlo.")
        if name == "return":
            return operands
        if name == "compare":
            result: float = _compared(enumeration(op, "comparison_direction"), *operands)
        elif name in ("and", "or"):
            result = all(operands) if name == "and" else any(operands)
        elif name == "not":
            result = not operands[0]
        elif name == "select":
            result = operands[1] if operands[0] else operands[2]
        else:
            raise Unknown(op.name)
        known[op.results[0]] = result
    raise Unknown("return")


def _compared(direction: str, left: float, right: float) -> bool:
    meaning = OPS[COMPARISONS[direction]].meaning
    assert meaning is not None
    return bool(meaning(left, right))
