"""A sample of ONNX's suite with symbols for the dims of inputs: most pass, and none gives a wrong answer or crashes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import symbolic_suite
from onnx_suite import EXCUSED, PASSED, UNSUPPORTED, Outcome

SAMPLE = 40
LEAST = 0.92
"""Of the sample. All of the suite reach 0.99 (docs/dynamic-shapes.md); of forty by chance, some may be others."""


def test_sample(tmp_path: Path) -> None:
    found = tmp_path / "outcomes.json"
    command = [sys.executable, symbolic_suite.__file__, f"--json={found}", f"--sample={SAMPLE}", "--seed=1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    outcomes = [Outcome(**entry) for entry in json.loads(found.read_text())]
    assert len(outcomes) == SAMPLE
    excused = {reason for reason, _ in EXCUSED}
    bad = [o for o in outcomes if o.status not in (PASSED, UNSUPPORTED) and o.reason not in excused]
    assert not bad, "\n".join(f"{o.name}: {o.status}: {o.message[:300]}" for o in bad)
    passed = sum(outcome.status == PASSED for outcome in outcomes)
    refused = "\n".join(f"{o.name}: {o.message[:200]}" for o in outcomes if o.status == UNSUPPORTED)
    assert passed >= LEAST * SAMPLE, refused
