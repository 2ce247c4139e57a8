"""All operators that the library supports, compared with numpy."""

from __future__ import annotations

import pytest
from mirlo_onednn import checks
from mirlo_onednn.native.library import is_available
from mirlo_onednn.operators import DRAFTS

from mirlo.testing.conformance import OK, checks_of, names, run

OPERATORS = sorted({*DRAFTS, "relax.split"})


@pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")
def test_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_reaches_heavy", lambda match, heavy, light: True)
    names()  # registers the cases
    cases = [(name, program, judge) for name in OPERATORS for kind, program, judge in checks_of(name) if kind == "f32"]
    outcomes = run([program for _, program, _ in cases], "onednn,llvm", lambda done: None)
    verdicts = [(name, judge(outcome)) for (name, _, judge), outcome in zip(cases, outcomes, strict=True)]
    assert {name for name, _ in verdicts} == set(OPERATORS)
    assert [(name, verdict) for name, verdict in verdicts if verdict.status != OK] == []
