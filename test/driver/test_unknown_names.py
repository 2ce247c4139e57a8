"""Names that mean nothing are errors with the nearest one: targets of rules and passes, schedules, nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.codegen import is_op, pattern_table
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import SCHEDULE, intrinsic, legalize, schedule
from mirlo.extend.target import Target, register_target
from mirlo.passes import targets
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %0 = "relax.relu"(%x) : (tensor<16x8xf32>) -> tensor<16x8xf32> loc("a")
  %1 = "relax.exp"(%0) : (tensor<16x8xf32>) -> tensor<16x8xf32> loc("b")
  %2 = "relax.relu"(%1) : (tensor<16x8xf32>) -> tensor<16x8xf32> loc("c")
  return %2 : tensor<16x8xf32>
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(MODEL)
    return path


@pytest.fixture
def registry() -> Iterator[None]:
    with temporary_registrations(__name__):
        yield


def doubled(op: Any, b: Any) -> Any:
    return elementwise(op, b, [op.x], lambda x: x * 2.0)


def anything(*arguments: Any) -> Any:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("register", "subjects", "name", "hint"),
    [
        (legalize, ("relax.exp",), "cuda", "'nvvm' is the one for 'cuda'"),
        (intrinsic, ("exp",), "Vulkan", "'spirv' is the one for 'Vulkan'"),
        (schedule, (), "lvm", "did you mean 'llvm'?"),
        (legalize, ("relax.exp",), "zzz", "installed: "),
    ],
)
def test_a_rule_for_an_unknown_target(
    register, subjects, name, hint, model: Path, registry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is for a target that is not installed here: nothing tries it, and the lists of targets show it."""
    register(*subjects, target=name)(anything)
    mirlo.compile(model, cache=False)
    for command in ("targets", "doctor"):
        assert main([command]) == 0
        text = capsys.readouterr().out
        assert f"rule 'anything for {subjects[0] if subjects else 'any'} on {name}' at {__file__}" in text
        assert f"is not tried: unknown target '{name}'" in text and hint in text


def test_a_schedule_rule_for_an_unknown_kind(model: Path, registry: None) -> None:
    SCHEDULE.decorator("anyy", target="llvm")(anything)
    with pytest.raises(mirlo.MirloError, match="is for 'anyy': expected 'any'"):
        mirlo.compile(model, cache=False)


@pytest.mark.parametrize(
    "step",
    [
        "run-on-external{target=lvm pipeline=legalize}",
        "hoist-layouts{target=lvm}",
        "outline-external{target=lvm}",
        "codegen-external{target=lvm}",
        "legalize{target=lvm}",
        "legalize,schedule{target=lvm}",
        "legalize,schedule,lower-loops,lower-intrinsics{target=lvm}",
    ],
)
def test_a_pass_for_an_unknown_target(step: str) -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODEL)
        with pytest.raises(PassFailed, match="unknown target 'lvm'; did you mean 'llvm'?"):
            Pipeline(step).run(module, Session())


def test_a_pass_may_name_what_the_module_names() -> None:
    """A module of another machine, whose target is not installed here, can be worked on."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse('module { module @far attributes {relax.external = "far"} {} }')
        Pipeline("run-on-external{target=far pipeline=simplify}").run(module, Session())


def test_schedules_by_the_name_of_no_function(model: Path) -> None:
    with pytest.raises(mirlo.MirloError) as error:
        mirlo.compile(model, schedules={"fused_relu_exq": lambda words: words}, cache=False)
    assert "a schedule is given for 'fused_relu_exq'" in str(error.value)
    assert "did you mean 'fused_relu_exp'?" in str(error.value)


@pytest.mark.parametrize(
    ("target", "placement", "message"),
    [
        ("onnx,llvm", {"onnx": [99]}, "gets node 99, which there is not: its nodes are 0 to 2"),
        ("onnx,llvm", {"onx": [0]}, "'onx' is no code generator of target 'onnx,llvm'; did you mean 'onnx'?"),
        ("llvm", {"onnx": [0]}, "'onnx' is no code generator of target 'llvm'"),
    ],
)
def test_placements_that_name_nothing(target, placement, message, model: Path) -> None:
    with pytest.raises((mirlo.MirloError, ValueError)) as error:
        mirlo.compile(model, target, placement=placement, cache=False)
    assert message in str(error.value)


def test_intrinsics_that_are_not_there(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mirlo.compile(model, intrinsics={"erf": anything}, cache=False)
    assert "the rule given for 'tir.erf' was never tried" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graphs", "--target", "lvm"], "unknown target 'lvm'; did you mean 'llvm'?"),
        (["files", "--target", "llvm"], "--target is for graphs"),
    ],
)
def test_fuzz(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", *arguments, "--count", "1"]) == 1
    assert message in capsys.readouterr().err


def test_legalize_in_a_region_uses_the_rules_of_its_target(registry: None) -> None:
    """`run-on-external{target=unit pipeline=legalize}`: the rules of `unit`, a name with patterns alone."""
    pattern_table("unit")(lambda: [("exp", is_op("relax.exp"))])
    legalize("relax.exp", target="unit", name="of_unit")(doubled)
    steps = "partition{targets=unit},outline-external,run-on-external{target=unit pipeline=legalize},inline-external"
    session = Session()
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(MODEL)
        Pipeline(steps + ",legalize").run(module, session)
    chosen = {note.operator: note.rule.name for note in session.notes if hasattr(note, "rule")}
    assert chosen["relax.exp"] == "of_unit" and chosen["relax.relu"] != "of_unit"


def test_a_rule_may_read_the_name_of_the_node(model: Path) -> None:
    """Operators that are equal but for their names share a function only if the rule builds the same for both."""

    def by_name(op: Any, b: Any) -> Any:
        factor = 2.0 if '"c"' in str(op.location) else 1.0
        return elementwise(op, b, [op.x], lambda x: x * factor)

    x = np.random.default_rng(0).standard_normal((16, 8), np.float32)
    found = mirlo.compile(model, legalize={"relax.relu": by_name}, cache=False)(x)
    np.testing.assert_allclose(found, 2 * np.exp(x), rtol=1e-5)


@pytest.mark.parametrize(("declared", "expected"), [(None, True), (False, False), (True, True)])
def test_a_target_takes_dynamic_dims_as_its_chain_does(declared, expected, registry: None) -> None:
    register_target(Target("mine", "of a test", parent="llvm", symbolic_dims=declared))
    register_target(Target("alone", "of a test", symbolic_dims=declared))
    assert targets.takes_dynamic_dims("mine") == expected
    assert targets.takes_dynamic_dims("alone") == bool(declared)
