"""`mirlo check-target` compares the kernels of operator cases with their definitions, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core.surgery import blocks
from mirlo.passes.rules import SCHEDULE, schedule
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.tools.conformance.check import FAILED, OK, check_target


@contextmanager
def nearly_right(factor: float) -> Iterator[None]:
    """Register a rule that multiplies negated elements, in the plainest loops."""

    @schedule(target="llvm", priority=10_000)
    def nearly(kernel: Any, context: Any) -> Any:
        function = Schedule(kernel.view.op).emit()
        for found in [op for block in blocks(function) for op in block.operations]:
            if found.operation.name != "arith.negf" or not isinstance(found.operation.results[0].type, ir.F32Type):
                continue
            result = found.operation.results[0]
            with ir.InsertionPoint.after(found.operation), found.operation.location:
                number = arith.ConstantOp(result.type, ir.FloatAttr.get(result.type, factor)).result
                scaled = arith.MulFOp(result, number)
            result.replace_all_uses_except(scaled.result, scaled.operation)
        return function

    try:
        yield
    finally:
        for rules in SCHEDULE._rules.values():
            rules[:] = [rule for rule in rules if rule.function is not nearly]


@pytest.mark.parametrize("factor, status", [(1.0, OK), (1.000001, FAILED)])
def test_kernels_of_operator_cases(factor: float, status: str) -> None:
    """A factor that no tolerance sees fails."""
    with nearly_right(factor):
        (entry,) = check_target("llvm", ["relax.negative"], patterns=False).entries
    assert entry.verdicts["f32"].status == status
    assert ("differs" in entry.verdicts["f32"].detail) is (status == FAILED)
