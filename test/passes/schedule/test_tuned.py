"""What a tuning database holds for the rules of another version is ignored with a warning."""

from __future__ import annotations

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import ANY, SCHEDULE
from mirlo.passes.schedule.tuned import TUNING, TuningRecord
from mirlo.passes.session import Session
from mirlo.passes.targets import chain

KIND = "tensor<8x16xf32>"
MODEL = f"""func.func @main(%x: {KIND}) -> {KIND} {{
  %e = "relax.exp"(%x) : ({KIND}) -> {KIND}
  %y = "relax.softmax"(%e) {{axis = 1 : i64}} : ({KIND}) -> {KIND}
  return %y : {KIND}
}}"""


class Fixed:
    """A database with one answer."""

    def __init__(self, values: dict[str, int]):
        self.values = values

    def find(self, key: str) -> dict[str, int]:
        return self.values


def tuned(target: str, values: dict[str, int], steps: str) -> tuple[str, list[dict[str, int]], list[str]]:
    """Return a module of two prim functions after these steps, the values that explain prints, and the warnings."""
    warnings: list[str] = []

    def report(severity: str, message: str, location: ir.Location | None) -> None:
        warnings.extend([message] if severity == "warning" else [])

    session = Session(report=report)
    session.options[TUNING] = Fixed(values)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODEL)
        Pipeline(f"legalize{{target={target}}},{steps}").run(module, session)
        notes = [dict(note.values) for note in session.notes if isinstance(note, TuningRecord)]
        return str(module), notes, warnings


def ranges(target: str) -> dict[str, list[range | tuple[int, ...]]]:
    """Return the allowed values of all choices of a target's rules by name."""
    result: dict[str, list[range | tuple[int, ...]]] = {}
    for rule in SCHEDULE.candidates(ANY, chain(target)):
        for choice in rule.choices:
            result.setdefault(choice.name, []).append(choice.allowed)
    return result


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["llvm", "nvvm"])
@pytest.mark.parametrize("is_above", [False, True])
def test_values_that_no_rule_allows_are_ignored(target: str, is_above: bool) -> None:
    declared = ranges(target)
    assert len(declared) > 5
    beyond = {
        name: max(each[-1] for each in allowed) + 1 if is_above else min(each[0] for each in allowed) - 1
        for name, allowed in declared.items()
    }
    step = f"apply-tuning{{target={target}}},schedule{{target={target}}}"
    text, notes, warnings = tuned(target, beyond, step)
    assert notes == [] and text == tuned(target, {}, step)[0]
    (warning,) = warnings  # for both functions
    assert f"no rule of target '{target}' allows" in warning and "run 'mirlo tune' to measure again" in warning
    assert all(f"{name}={value}, expected " in warning for name, value in beyond.items())


@pytest.mark.parametrize("target", ["llvm", "nvvm"])
def test_other_values_of_the_same_entry_are_used(target: str) -> None:
    *others, last = sorted(ranges(target).items())
    values = {name: allowed[0][0] for name, allowed in others}
    text, notes, warnings = tuned(target, {**values, last[0]: -1}, f"apply-tuning{{target={target}}}")
    assert notes == [values, values] and text.count("tir.tuned = {") == 2 and f"{last[0]} = -1" not in text
    assert len(warnings) == 1 and warnings[0].count("expected ") == 1


@pytest.mark.parametrize("target", ["c", "llvm", "nvvm", "spirv"])
def test_names_that_no_rule_declares_are_left_to_the_target(target: str) -> None:
    """Rules may read them by `tuned_values`."""
    text, notes, warnings = tuned(target, {"own": 7}, f"apply-tuning{{target={target}}},schedule{{target={target}}}")
    assert notes == [{"own": 7}] * 2 and warnings == []


CONV = """
func.func @main(%x: tensor<1x8x8x16xf32>) -> tensor<1x8x8x16xf32> {
  %w = "relax.constant"() {value = dense<1.0> : tensor<3x3x16x16xf32>} : () -> tensor<3x3x16x16xf32>
  %0 = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"}
    : (tensor<1x8x8x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32>
  return %0 : tensor<1x8x8x16xf32>
}
"""


@pytest.mark.parametrize(("tile", "is_allowed"), [(2, True), (0, True), (3, False)])
def test_values_for_operators_are_checked_too(tile: int, is_allowed: bool) -> None:
    warnings: list[str] = []
    session = Session(report=lambda severity, message, location: warnings.append(message))
    session.options[TUNING] = Fixed({"winograd": tile})
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(CONV)
        Pipeline("apply-tuning{target=llvm operators=relax.conv}").run(module, session)
        assert ("tir.tuned = {winograd" in str(module)) == is_allowed
        assert bool(warnings) != is_allowed
    notes = [note.values for note in session.notes if isinstance(note, TuningRecord)]
    assert notes == ([{"winograd": tile}] if is_allowed else [])
    if warnings:
        assert "no rule of target 'llvm' allows" in warnings[0] and "winograd=3, expected one of 0, 2, 4" in warnings[0]
