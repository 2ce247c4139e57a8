"""The scripts in `benchmarks` that pages refer to run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import MODELS, output_of, run_script
from optional_targets import needs_target

from mirlo.benchmarks.compile.peers import Compilation, CompiledModel, CompileTimes, markdown
from mirlo.benchmarks.test_times import costs
from mirlo.tools.bench.plot import scatter


@pytest.mark.sample(0)
@needs_target("onednn")
def test_sweep(tmp_path: Path) -> None:
    flags = ["--count", 1, "--rounds", 2, "--json", tmp_path / "rows.json", "--svg", tmp_path / "s.svg"]
    done = run_script("-m", "benchmarks.kernels.sweep", *flags)
    assert done.returncode in (0, 1), done.stderr  # 1: too slow, which a busy machine may be
    assert "| kind | shapes | least |" in done.stdout and "of 200" not in done.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 2 and all(row["ratio"] > 0 for row in rows)
    ElementTree.parse(tmp_path / "s.svg")


@pytest.mark.sample(0)
def test_host_of_gpu_models() -> None:
    target = "nvvm{chip=sm_80}"
    out = output_of(run_script("-m", "benchmarks.gpu.host", "gpt2", "--target", target))
    assert f"gpt2       {target}   new sizes" in out


def test_scatter() -> None:
    root = ElementTree.fromstring(scatter([(1e3, 0.9, "a", "x < 1"), (1e6, 2.0, "b", "y")], "t", "x", "y", (0.7, 1.0)))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["x < 1", "y"]


@pytest.mark.sample(0)
def test_results_go_into_the_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("before\n<!-- begin models -->\nold\n<!-- end models -->\nafter\n")
    flags = ["--models", MODELS, "--seconds", 0.05, "--report", tmp_path / "models.json"]
    out = output_of(run_script("-m", "benchmarks", "lenet", *flags))
    assert out.splitlines()[3].split()[:2] == ["lenet", "1"]
    assert run_script("-m", "benchmarks", "lenot").returncode == 2
    command = ["-m", "benchmarks.page", "--page", tmp_path / "page.md"]
    output_of(run_script(*command, "--models", tmp_path / "models.json"))
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert "| lenet | 1 |" in page
    done = run_script(*command, "--peers", tmp_path / "models.json")
    assert done.returncode == 1 and "the page has no part 'peers'" in done.stderr


@pytest.mark.sample(0)
def test_compile_times(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- begin compile -->\nold\n<!-- end compile -->\n")
    command = ["-m", "benchmarks.compile", "--models", MODELS, "--rounds", 1]
    done = run_script(*command, "lenet", "--against", "onnxruntime,tvm", "--json", tmp_path / "times.json")
    assert done.returncode in (0, 1), done.stderr  # 1: too slow, and making a session of ONNX Runtime is fast
    head, row = (line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| model", "| lenet")))
    assert head[1:3] == ["Mirlo s", "ONNX Runtime s"] and float(row[1]) > 0 and float(row[2]) > 0
    output_of(run_script("-m", "benchmarks.page", "--page", tmp_path / "page.md", "--compile", tmp_path / "times.json"))
    assert " | ".join(row) in (tmp_path / "page.md").read_text()
    assert "no model is named 'lenot'" in run_script(*command, "lenot").stderr


def test_compile_times_beyond_half_of_a_compiler() -> None:
    def times(own: float, theirs: float) -> CompileTimes:
        found = [Compilation("mirlo", "1", own, 0.1, again=0.05), Compilation("tvm", "2", theirs, 2.0)]
        return CompileTimes([CompiledModel("net", found, {"iree": "IREE: fails\nat length"})], 1, 3)

    assert times(0.1, 0.2).is_within_limit() and not times(0.11, 0.2).is_within_limit()
    text = markdown(times(0.1, 0.4))
    assert "| net | 0.1 | 0.4 | 0.25 | 0.05 | 0.2 | 2.4 |" in text and text.endswith("Missing: net: IREE: fails\n")
    assert CompileTimes.from_json(times(0.1, 0.4).as_json()) == times(0.1, 0.4)


def test_costs_of_tests_that_are_not_measured_stay() -> None:
    other = "test/architecture/test_imports.py"
    recorded = {f"{other}::test_old": 0.5, "test/no_longer_there.py": 9.0, other: 7.0, "test/x.py::test_skipped": 0.4}
    files, cases = Counter({"test/x.py": 8.0}), {"test/x.py::test_skipped": [0.001], "test/x.py::test_cheap": [0.01]}
    assert list(costs(files, cases, recorded)) == [
        "8 test/x.py", f"7 {other}", f"0.5 {other}::test_old", "0.4 test/x.py::test_skipped",
    ]  # fmt: skip
