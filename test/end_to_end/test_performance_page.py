"""`python -m benchmarks.whole`: the tables that it measures are those of the page, and runs can be continued."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mirlo.benchmarks import whole

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_tables_are_on_the_page() -> None:
    headings = {line.lstrip("# ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("#")}
    for table in whole.TABLES:
        assert table.section in headings
        assert find_spec(f"mirlo.{table.words[0]}") is not None


def test_runs(tmp_path: Path) -> None:
    tables = [table for table in whole.TABLES if table.name in ("models", "libraries", "avx2")]
    pythons = {"openvino": "/o/python", "iree": "/i/python"}
    own, before, avx2, libraries = (
        " ".join(run.command[2:]) for run in whole.runs(tables, tmp_path, Path("/before"), pythons)
    )
    models = "benchmarks --threads 1,2 --report"
    assert own == f"{models} {tmp_path}/models.json --against onnxruntime,openvino --python openvino=/o/python"
    assert before == f"{models} {tmp_path}/models.before.json --against onnxruntime"
    assert avx2.endswith("--against onnxruntime,openvino")
    assert libraries == "benchmarks.libraries --iree /i/python"
    assert [run.command[0] for run in whole.runs(tables, tmp_path, Path("/before"), pythons)] == [
        sys.executable, "/before/.venv/bin/python", "/o/python", sys.executable,
    ]  # fmt: skip


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = whole.Table("good", "Models", ("json.tool", "--help"), before=False)
    bad = whole.Table("bad", "Models", ("json.tool", "--nothing"), before=False)
    monkeypatch.setattr(whole, "TABLES", (good, bad))
    assert whole.main(["--folder", str(tmp_path)]) == 1
    assert "exit code 2" in capsys.readouterr().out
    assert (tmp_path / "good.txt").exists() and not (tmp_path / "bad.txt").exists()
    assert whole.main(["--folder", str(tmp_path), "good"]) == 0
    assert not capsys.readouterr().out
    with pytest.raises(SystemExit):
        whole.main(["--folder", str(tmp_path), "other"])
