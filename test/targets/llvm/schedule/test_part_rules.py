"""Rules of packages schedule runs of blocks, as those of the target do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.tune.tasks import tasks_of
from mirlo.extend.rules import Choice, decline
from mirlo.extend.schedules import BlockGroup, PrimitivesPlan, part_rule, schedule_of
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.kernel import ScheduleContext
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main
from mirlo.tools.conformance.check import own_rules
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import text_lines


def _register() -> None:
    @part_rule(priority=60)
    def plan_pairs(
        group: BlockGroup[Any], rows: Annotated[int, Choice(range(1, 9), "rows at a time", tried=(2, 4))] = 2
    ) -> PrimitivesPlan | Decline:
        """Schedule one block without reductions some rows at a time."""
        if len(group.blocks) != 1 or group.blocks[0].is_reduction:
            return decline("not one block without a reduction")
        s = schedule_of(group)
        s.split(s.loops(s.blocks()[0])[0], (None, rows))
        return PrimitivesPlan(group, s, "pairs", {"rows": rows})


def _exp() -> Any:
    return make_model([node("Exp", "x", "y")], {"x": (F32, [12, 40])}, ["y"])


@pytest.mark.parametrize("rows", [None, 3])
def test_a_rule_for_blocks_is_one_for_functions(rows: int | None) -> None:
    with temporary_registrations(__name__):
        _register()
        chosen = {} if rows is None else {"exp": lambda s: s.apply_rule("pairs", rows=rows)}
        x = np.linspace(-1, 1, 480, dtype=np.float32).reshape(12, 40)
        np.testing.assert_allclose(mirlo.compile(_exp(), schedules=chosen, cache=False)(x), np.exp(x), rtol=1e-6)
        (task,), _ = tasks_of(_exp(), "llvm", 1)
        assert task.choices == ({"rows": 4},)
    (task,), _ = tasks_of(_exp(), "llvm", 1)
    assert {"unroll": 2} in task.choices and {"rows": 4} not in task.choices


def test_a_rule_for_blocks_takes_parts() -> None:
    with temporary_registrations(__name__):
        _register()
        chosen = {"exp": lambda s: s.apply_rule("pairs", s.blocks(), rows=4)}
        explained = explain_model(_exp(), schedules=chosen)
        assert [kernel.schedule.rule.name for kernel in explained.kernels if kernel.schedule] == ["stages"]
        (kernel,) = explained.kernels
        assert kernel.schedule is not None and "'pairs', ['exp'], rows=4" in str(kernel.schedule.trace)


def test_what_was_chosen_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every rule states its possible choices and its choices, wherever it does so in `emit`."""
    with temporary_registrations(__name__):
        _register()
        assert main(["explain", "schedule"]) == 0
        listed = capsys.readouterr().out
        assert "rows: rows at a time (an integer from 1 to 8); default 2; measured: 2, 4" in listed
        assert (
            "pack: whether panels of columns are packed: weights once, others in each call (0 or 1); the rule" in listed
        )
        onnx.save(_exp(), tmp_path / "exp.onnx")
        assert main(["explain", str(tmp_path / "exp.onnx"), "--kernel", "exp"]) == 0
        listed = capsys.readouterr().out
        assert "\n  chosen: rows=2\n" in listed and "s.split('exp_i', [None, 2])" in listed
    lines = list(text_lines(explain_model(_exp())))
    assert any(re.fullmatch(r"  chosen: lanes=\d+, unroll=\d+", line) for line in lines)


@pytest.mark.parametrize(
    ("target", "machine", "lanes"), [("llvm", "avx512", 16), ("llvm", "sse", 4), ("spirv", None, 1)]
)
def test_rules_know_the_vectors_of_the_machine(target: str, machine: str | None, lanes: int) -> None:
    context = ScheduleContext(target, {"machine": machine})
    assert (context.lanes("f32"), context.lanes("i8")) == (lanes, 4 * lanes if lanes > 1 else 1)


def test_rules_are_checked_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert [rule.name for rule in own_rules("llvm", ["schedule.window"], schedules=False)] == ["window"]
    assert main(["check-target", "llvm", "--operator", "schedule.windw"]) == 1
    assert "nothing to check called 'schedule.windw'; did you mean 'schedule.window'?" in capsys.readouterr().err
