"""Every operator that the library takes, computed by it as numpy does."""

from __future__ import annotations

import pytest

from mirlo.targets.onednn import checks
from mirlo.targets.onednn.native.library import is_available
from mirlo.targets.onednn.operators import DRAFTS
from mirlo.tools.conformance.check import OK, _checks, names
from mirlo.tools.conformance.programs import run

OPERATORS = sorted({*DRAFTS, "relax.split"})


@pytest.mark.skipif(not is_available(), reason="the oneDNN library is not installed (extra 'onednn')")
def test_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_reaches_heavy", lambda match, heavy, light: True)
    names()  # registers the cases
    cases = [(name, program, judge) for name in OPERATORS for kind, program, judge in _checks(name) if kind == "f32"]
    outcomes = run([program for _, program, _ in cases], "onednn,llvm", lambda done: None)
    verdicts = [(name, judge(outcome)) for (name, _, judge), outcome in zip(cases, outcomes, strict=True)]
    assert {name for name, _ in verdicts} == set(OPERATORS)
    assert [(name, verdict) for name, verdict in verdicts if verdict.status != OK] == []
