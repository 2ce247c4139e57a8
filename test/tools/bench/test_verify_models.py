"""`python -m benchmarks.verify_models`: models of folders compared, each in a process with limits, and the tables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from mirlo.benchmarks import verify_models
from mirlo.benchmarks.verify_models import (
    COMPARED,
    CRASHED,
    LATE,
    REFUSED,
    ModelRun,
    compare_model,
    models_in,
    run_models,
    tables,
)
from mirlo.passes.exact import compare
from mirlo.passes.exact.verdict import KernelVerdict
from mirlo.tools.fuzz.verdict import ACCEPTED

MODEL = """
  <ir_version: 9, opset_import: ["": 20]>
  g (float[3, 4] x, float[4, 5] w) => (float[3, 5] y) { m = MatMul(x, w) y = Softmax(m) }"""
WRONG = """
  <ir_version: 9, opset_import: ["": 20, "own": 1]>
  g (float[3] x) => (float[3] y) { y = own.Unknown(x) }"""


def test_models_of_a_folder(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(MODEL), tmp_path / "a.onnx")
    onnx.save(parser.parse_model(WRONG), tmp_path / "b.onnx")
    first, second = run_models(list(models_in(tmp_path)), "c", 60, 120, tmp_path / "kept")
    assert (first.state, first.counts, first.reasons) == (COMPARED, {"equal": 2}, {})
    assert first.model == f"{tmp_path.name}/a.onnx" and first.seconds > 0
    assert second.state == REFUSED and not second.counts and "Unknown" in next(iter(second.reasons))


def test_a_model_that_was_late_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that were equal before the limit are not compared again."""
    onnx.save(parser.parse_model(MODEL), tmp_path / "a.onnx")
    models, compared = list(models_in(tmp_path)), list[str]()
    verify = compare.KernelPair.verify

    def second_ends(pair: compare.KernelPair, *arguments: Any) -> KernelVerdict:
        compared.append(pair.definition.name)
        if len(compared) == 2:
            raise KeyboardInterrupt
        return verify(pair, *arguments)

    monkeypatch.setattr(compare.KernelPair, "verify", second_ends)
    with pytest.raises(KeyboardInterrupt):
        compare_model(models, "c", tmp_path / "kept", 0)
    assert compare_model(models, "c", tmp_path / "kept", 0).state == ACCEPTED
    assert len(compared) == 3 and compared[1] == compared[2] != compared[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the comparison is replaced in this process")
def test_late_and_crashed_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.tools.fuzz.workers.WAITING", 1)
    for name in ("end", "wait"):
        onnx.save(parser.parse_model(MODEL), tmp_path / f"{name}.onnx")
    monkeypatch.setattr(verify_models, "compare_model", lambda models, target, kept, i: _ENDS[models[i].path.stem]())
    states = [run.state for run in run_models(list(models_in(tmp_path)), "c", 1, 60)]
    assert states == [CRASHED, LATE]


_ENDS = {"end": lambda: os._exit(3), "wait": lambda: time.sleep(60)}


def test_tables() -> None:
    def run(name: str, state: str, counts: dict[str, int], reasons: dict[str, int]) -> ModelRun:
        return ModelRun("zoo", f"zoo/{name}", 3 << 20, "c", "c0", "2026-01-01", 2.0, state, counts, reasons)

    runs = [
        run("a", COMPARED, {"equal": 397, "outside": 3}, {"outside: slices at 1024 places": 3}),
        run("b", COMPARED, {"equal": 1600}, {}),
        run("c", LATE, {}, {"no result after 300 s": 1}),
    ]
    lines = tables(runs, ["package/d.onnx"]).splitlines()
    assert "| zoo | `c` | 2 | 1,997 | 0 | 3 | 99.85 % | 1 |" in lines
    assert "- `c`: 3 times outside: slices at N places" in lines
    assert lines[-1] == "1 models of packages were not begun: package/d.onnx."
    assert "- `c`, late: zoo/c (3.0 MiB): no result after N s" in lines
