"""The conformance kit: every operator has cases, wrong results are found, the page of target llvm is current."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import ROOT, mirlo, output_of, without_code
from drawn_cases import conformance
from snapshots import assert_snapshot

from mirlo.dialects.relax import OPS
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.tools.conformance.case import ANY, TABLE
from mirlo.tools.conformance.check import (
    DECLINED,
    NOT_COMPUTED,
    SupportVerdict,
    _judge_intrinsic,
    _not_computed,
    check_target,
    names,
)
from mirlo.tools.conformance.matrix import markdown
from mirlo.tools.conformance.programs import ProgramOutcome

PAGE = ROOT / "docs" / "support-matrix.md"
WRONG = Path(__file__).parent / "Inputs" / "wrong_rules.py"


def test_every_operator_has_cases() -> None:
    computed = {f"relax.{name}" for name in OPS} - NOT_COMPUTED
    assert set(names()) == computed | {f"tir.{name}" for name in INTRINSICS}
    without = [name for name in OPS if f"relax.{name}" in computed and not any(TABLE.cases(name, k) for k in ANY)]
    assert without == []


def test_cases_that_are_drawn_are_those_of_the_table() -> None:
    assert_snapshot("tools/check_target/cases.txt", conformance())


@pytest.mark.sample(0)
def test_page_of_llvm_is_up_to_date() -> None:
    matrix = check_target("llvm")
    assert matrix.unreached == ()
    assert markdown(matrix) == PAGE.read_text(encoding="utf-8"), (
        "run mirlo check-target llvm --markdown > docs/support-matrix.md"
    )


@pytest.mark.sample(0)
def test_what_is_wrong_is_found() -> None:
    only = [word for name in ("relax.relu", "tir.log2", "relax.abs", "tir.exp") for word in ("--operator", name)]
    done = mirlo("check-target", "llvm", "--plugin", WRONG, *only)
    assert done.returncode == 1
    assert without_code(done.stderr).startswith("mirlo: error: target 'llvm' fails ")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8", "bool"]
    assert lines[1].split() == ["relax.relu", *["WRONG"] * 8, "-"]
    assert lines[2].split() == ["tir.log2", *["WRONG"] * 4, *["-"] * 5]
    assert lines[3].split() == ["relax.abs", *["FAILED"] * 8, "-"]
    assert lines[4].split() == ["tir.exp", *["ok"] * 4, *["-"] * 5]
    told = re.compile(r"relax.relu f32: wrong: error \d\.\de-01, at most 2e-05 is allowed")
    assert any(map(told.fullmatch, lines))
    assert any(re.fullmatch(r"relax.relu i32: wrong: \d+ of 111 elements differ", line) for line in lines)
    failures = [line for line in lines if line.startswith("relax.abs f32: failed: ")]
    assert len(failures) == 1 and "rule 'abs_that_raises for relax.abs on llvm' at " in failures[0]
    assert lines[-1] == "llvm: 24 checks of 4 operators and intrinsics: 4 ok, 0 declined, 12 wrong, 8 failed"


def test_json() -> None:
    found = json.loads(output_of(mirlo("check-target", "llvm", "--json", "--operator", "relax.where")))
    assert found["target"] == "llvm" and found["totals"] == {"ok": 9, "declined": 0, "wrong": 0, "failed": 0}
    assert found["entries"]["relax.where"]["f32"] == {"status": "ok", "error": 0.0, "detail": ""}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lvm"], "unknown target 'lvm'; did you mean 'llvm'?"),
        (["llvm", "--operator", "cov"], "there is nothing to check called 'cov'; did you mean 'relax.conv'?"),
    ],
)
def test_unknown_names(arguments: list[str], message: str) -> None:
    done = mirlo("check-target", *arguments)
    assert done.returncode == 1 and without_code(done.stderr).startswith(f"mirlo: error: {message}")


def test_what_every_rule_declines_is_told_with_the_reasons() -> None:
    error = """no rule lowers 'tir.exp' on (vector<4xf64>) for target 'npu'; these declined:
  npu.py:3: exp [npu]: the unit computes in f32 (dtype=f64)"""
    verdict = _judge_intrinsic("exp", "f64", [], ProgramOutcome(error=error))
    assert (verdict.status, verdict.detail) == (DECLINED, "exp [npu]: the unit computes in f32 (dtype=f64)")


@pytest.mark.parametrize("place", ["", "/a/rules.py:3: ", "/my copy (2)/the rules.py:31: "])
def test_reasons_of_rules_in_any_folder(place: str) -> None:
    error = f"no rule lowers 'a.b' on (f32) for target 'c'; these declined:\n  {place}halve [c]: the type is f32"
    assert _not_computed(error) == SupportVerdict(DECLINED, "halve [c]: the type is f32")
