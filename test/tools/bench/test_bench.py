"""`mirlo bench`: measurements, output, files, and messages for missing or failing engines."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from commands import mirlo, output_of
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import mirlo as mirlo_package
from mirlo.runtime.errors import MirloError
from mirlo.tools.bench import page, plot, report, timeline
from mirlo.tools.bench.drawing import COLORS
from mirlo.tools.bench.kernels import RooflineLimits, RooflineMeasurement, kernel_rows
from mirlo.tools.bench.measure import EngineRow, ModelRow, _difference, model_name
from mirlo.tools.bench.options import MeasurementOptions
from mirlo.tools.bench.peak import copy_loop, peak_loop
from mirlo.tools.bench.processes import EngineError, Process
from mirlo.tools.bench.results import Results, markdown, text_lines


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two layers with an open batch."""
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape, dtype=np.float32) for shape in ((64, 96), (96, 8))]
    weights = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])], weights,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("bench") / "two-0123456789ab.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.sample(0)
def test_against_engines(model: Path, tmp_path: Path) -> None:
    """By two numbers of threads, with gaps between calls, where another engine is missing."""
    report_path = tmp_path / "out.html"
    flags = ["--shape", "x=5x64", "--against", "tvm,onnxruntime", "--python", "tvm=/no/such/python", "--seconds", 0.05]
    flags += ["--threads", "1,2", "--gap", "0,2.5", "--spinner", "--pressure", "--report", report_path]
    found = json.loads(output_of(mirlo("bench", model, *flags, "--json")))
    rows = found["models"]
    assert [(row["threads"], row["gap"]) for row in rows] == [(1, 0.0), (1, 2.5), (2, 0.0), (2, 2.5)]
    for row in rows:
        assert row["model"] == "two" and row["spinner"] and row["pressure"]
        assert list(row["missing"]) == ["tvm"] and "there is no Python at '/no/such/python'" in row["missing"]["tvm"]
        ours, theirs = row["engines"]
        assert (ours["engine"], theirs["engine"]) == ("mirlo", "onnxruntime")
        assert 0 < ours["error"] < 1e-4 or ours["error"] == 0
        assert ours["ratio"] == 1.0 and 0 < theirs["ratio"] < 100 and row["rounds"] >= 7
        assert ours["warm_seconds"] > 0 and ours["compile_seconds"] > 0
        assert all(0 < engine["least_milliseconds"] <= engine["milliseconds"] for engine in row["engines"])
        if sys.platform == "linux":
            assert ours["compile_peak"] > 10e6 and ours["run_peak"] > 10e6
    for row in rows[::2]:
        assert {kernel["source"] for kernel in row["kernels"]["kernels"]} >= {"second"}
        assert row["kernels"]["gflops"] > 1
    assert set(found["geometric_mean"]["onnxruntime"]) == {"1", "1, gap 2.5", "2", "2, gap 2.5"}
    text = report_path.read_text()
    assert text.count("<svg") == 6 and "ONNX Runtime ms" in text
    links = re.findall(r"href='#([^']+)'", text)
    assert len(links) == 8 and all(f"<details id='{link}'>" in text for link in links)
    assert text.count("<pre># kernel ") == text.count("<pre>; kernel ") == 6 and "# node second" in text


@pytest.mark.sample(0)
def test_a_gap_is_not_part_of_the_time(model: Path) -> None:
    with Process("mirlo") as process:
        process.ask("load", engine="mirlo", model=str(model), threads=1, shapes={"x": [5, 64]}, cache=None)
        process.ask("make_inputs", seed=0, path=str(model.with_name("in.npz")), dims={})
        process.ask("bind", inputs=str(model.with_name("in.npz")), outputs=str(model.with_name("out.npz")))
        start = time.perf_counter()
        seconds = process.ask("run", count=3, gap=0.2)["seconds"]
        assert time.perf_counter() - start >= 0.6 > 0.2 > min(seconds)


@pytest.mark.parametrize("threads", [1, 2])
def test_limits_are_measured_by_the_threads_of_models(threads: int) -> None:
    machine = RooflineMeasurement(threads)
    machine.measure((1 << 15, 1 << 17))
    machine.measure((1 << 17,))
    found = machine._bytes[1 << 17]
    peak, copy = peak_loop(threads), copy_loop(1 << 15, 3, threads)
    copy()
    peak.run()
    assert len(machine._flops) == 2 == len(found) and all(x > 0 for x in [*machine._flops, *found])
    assert peak.flops == threads * peak_loop(1).flops


def test_tables_show_gaps_where_there_are_any() -> None:
    row = _row()
    spaced = replace(row, gap=50.0, engines=[replace(engine, least_milliseconds=7.5) for engine in row.engines])
    lines = [*text_lines(Results([row, spaced], "", ""))]
    assert any("gap ms" in line and "Mirlo ms (least)" in line for line in lines)
    assert any("50" in line and "10 (7.5)" in line for line in lines)
    assert sum(line.startswith("net  ") and "OpenVINO" in line for line in lines) == 1
    assert "gap" not in "\n".join(text_lines(Results([row], "", "")))


@pytest.mark.sample(0)
def test_alone_as_text(model: Path, tmp_path: Path) -> None:
    flags = ["--shape", "x=5x64", "--seconds", 0.05, "--report", tmp_path / "r.svg"]
    out = output_of(mirlo("bench", model, *flags))
    assert "Mirlo ms" in out and "of limit" in out and "of model" in out and "by " not in out.splitlines()[2]
    ElementTree.parse(tmp_path / "r.svg")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--against", "tensorrt"], "there is no engine 'tensorrt'; known: onnxruntime"),
        (["--threads", "0"], "expected a number from 1"),
        (["--report", "x.pdf"], "the suffix of a report is one of .html"),
        (["--report", "no/such/folder.svg"], "there is no folder"),
        (["--python", "iree"], "expected NAME=PATH"),
        (["--gap", "-1"], "expected milliseconds from 0"),
        (["--gap", "nan"], "expected milliseconds from 0"),
        (["--gap", "soon"], "expected milliseconds from 0"),
        (["--dim", "batch=x"], "expected a number"),
    ],
)
def test_misuse(model: Path, flags: list[str], message: str) -> None:
    done = mirlo("bench", model, *flags)
    assert done.returncode in (1, 2) and message in done.stderr


@pytest.mark.sample(0)
def test_a_schedule_of_the_command_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"version": 1, "primitives": [["apply_rule", "contraction"]]}')
    flags = ["--shape", "x=5x64", "--schedule", f"nothing={tmp_path / 's.json'}", "--no-tuning"]
    done = mirlo("bench", model, *flags)
    assert done.returncode == 1 and "a schedule is given for 'nothing'" in done.stderr


def test_a_model_that_cannot_be_compiled_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    done = mirlo("bench", tmp_path / "bad.onnx", "--seconds", "0.1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == mirlo("run", tmp_path / "bad.onnx").stderr.strip(), "the same words and code"


def test_errors_of_processes_name_the_model() -> None:
    ended = EngineError("Mirlo: its process ended with code -9").of_mirlo(Path("a.onnx"))
    assert (str(ended), ended.error_code) == ("a.onnx: Mirlo: its process ended with code -9", "MIR0001")
    answer = {"error": "a.onnx: empty", "error_code": "MIR0302", "remedy": "Export it again."}
    refused = EngineError("Mirlo: a.onnx: empty", answer).of_mirlo(Path("a.onnx"))
    assert (str(refused), refused.error_code, refused.remedy) == tuple(answer.values())


def test_a_package_that_is_not_installed() -> None:
    with pytest.raises(EngineError, match=r"is not installed.*pip install 'mirlo\[bench-"):
        # An interpreter that sees no packages.
        Process("openvino", _bare_python())


def _bare_python() -> str:
    base = Path(sys.base_prefix) / "bin" / "python3"
    return str(base) if base.exists() else sys.executable


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parents")
def test_a_stopped_engine_ends_with_a_killed_benchmark() -> None:
    program = (
        "import os\nfrom mirlo.tools.bench.processes import Process\nengine = Process('onnxruntime')\n"
        "try: engine.ask('nothing')\nexcept Exception: pass\n"
        "engine.pause()\nprint(engine._popen.pid, flush=True)\nos._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    state, end = Path(f"/proc/{int(done.stdout)}/stat"), time.monotonic() + 10
    with contextlib.suppress(OSError):  # gone
        while state.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end, "it is still there"
            time.sleep(0.02)


def test_a_process_that_dies_is_an_error() -> None:
    with Process("mirlo") as process:
        process._popen.kill()
        with pytest.raises(EngineError, match="ended with code"):
            process.ask("memory")


BUFFERS = [{"offset": 0, "bytes": 2048, "first": 0, "last": 1}, {"offset": 2048, "bytes": 1024, "first": 1, "last": 1}]


def _row() -> ModelRow:
    kernels = [
        {"kernel": "a", "kind": "contraction", "source": "n<1>", "flops": 10**9, "bytes": 10**6, "microseconds": 1e4,
         "least": 5e3, "expected": 8e3},
        {"kernel": "b", "kind": "injective", "source": "n2", "flops": 0, "bytes": 10**6, "microseconds": 10.0,
         "least": 9.0, "expected": 0.0},
    ]  # fmt: skip
    machine = {"kernels": kernels, "gflops": 200.0, "gbytes": {"1024": 100.0, "1048576": 10.0}, "buffers": BUFFERS,
               "code": {"a": {"asm": "# <a>\n\tret\n"}}}  # fmt: skip
    engines = [
        EngineRow("mirlo", "1", 2.0, 10.0, 1.0, 3 * 10**8, 2 * 10**8, 1e-6, 0.5),
        EngineRow("openvino", "2", 1.0, 20.0, 0.5, 0, 0),
    ]
    return ModelRow("net", 1, 9, 10**7, 10**6, engines, {"tvm": "TVM: not installed"}, machine)


def test_tables() -> None:
    row = _row()
    second = ModelRow("other", 1, 9, 0, 0, [row.engines[0], EngineRow("openvino", "2", 1.0, 5.0, 2.0, 0, 0)], {})
    results = Results([row, second], "2026-01-02", "a machine")
    assert results.mean_ratio("openvino", 1) == pytest.approx(1.0)
    assert results.mean_ratio("openvino", 2) is None and results.mean_ratio("iree", 1) is None
    text = "\n".join(text_lines(results))
    assert "missing: TVM: not installed" in text and "100.0" in text and "50%" in text
    page = markdown(results)
    assert "| net | 1 | 10 | 20 | 0.50 | 1.0e-06 |" in page and "| geometric mean | 1 |" in page
    json.dumps(results.as_json())


def test_rows_of_the_fastest_type_are_beside_an_engines_own_types() -> None:
    settings = MeasurementOptions(against=("onnxruntime", "openvino"))
    assert settings.in_fastest(None) is None and replace(settings, target="c").in_fastest("bf16") is None
    assert MeasurementOptions(against=("onnxruntime",)).in_fastest("bf16") is None
    fastest = settings.in_fastest("bf16")
    assert fastest is not None and fastest.against == ("openvino",)
    assert fastest.compile_options == {"precision": "fastest"} and fastest.precision == "bf16"
    row = _row()
    narrow = replace(row, precision="bf16", kernels=None, missing={})
    results = Results([row, narrow], "2026-01-02", "a machine")
    assert results.mean_ratio("openvino", 1) == pytest.approx(0.5)
    assert "| net, fastest (bf16) | 1 |" in markdown(results)


def test_the_plot_is_a_picture_of_all_kernels_that_compute(tmp_path: Path) -> None:
    root = ElementTree.fromstring(plot.svg(_row()))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["a: 10000.0 us, 100.0 GFLOP/s (n<1>)"]
    written = report.write(Results([_row(), _row()], "", ""), tmp_path / "r.svg")
    assert all(path.exists() for path in written)
    for suffix in (".md", ".json", ".html"):
        assert report.write(Results([_row()], "", ""), tmp_path / f"r{suffix}")[0].stat().st_size > 100


def _titles(drawing: str) -> list[str | None]:
    return [title.text for title in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}title")]


def test_the_timeline_has_all_kernels_in_order() -> None:
    drawing = timeline.timeline(_row())
    assert _titles(drawing) == ["a: 10000.0 us, contraction (n<1>)", "b: 10.0 us, injective (n2)"]
    bars = [bar for bar in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}rect")][1:]
    (first, width), (second, _) = ((float(bar.get("x", "")), float(bar.get("width", ""))) for bar in bars)
    assert first + width == pytest.approx(second, abs=0.02)


def test_code_cannot_leave_its_element() -> None:
    shown = page.page(Results([_row()], "", ""))
    assert "<a href='#code-0-0-asm'>asm</a>" in shown
    assert "<summary>a: asm</summary>\n<pre># &lt;a&gt;\n\tret\n</pre>" in shown


def test_the_memory_plan_has_all_buffers() -> None:
    assert _titles(timeline.memory_plan(_row())) == ["2.0 KiB at 0: from a to b", "1.0 KiB at 2048: from b to b"]
    row = _row()
    assert row.kernels is not None
    row.kernels["buffers"] = []
    assert timeline.memory_plan(row) == ""


def test_the_plan_of_a_model_says_when_buffers_are_alive(model: Path) -> None:
    executable = mirlo_package.compile(model, shapes={"x": (5, 64)})
    (buffer,) = executable.artifact.metadata["memory"]["buffers"]
    assert buffer == {"offset": 0, "bytes": 5 * 96 * 4, "first": 0, "last": 1}
    assert len(executable.artifact.kernels) == 2
    assert mirlo_package.compile(model).artifact.metadata["memory"]["buffers"] == []


def test_a_trace_has_an_event_for_each_kernel(tmp_path: Path) -> None:
    (path,) = report.write(Results([_row(), _row()], "", ""), tmp_path / "r.trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert [(event["pid"], event["name"]) for event in events if event["ph"] == "X"] == [
        (0, "a"),
        (0, "b"),
        (1, "a"),
        (1, "b"),
    ]
    assert events[1]["ts"] == 0 and events[2]["ts"] == events[1]["dur"] == 1e4
    assert events[0]["args"] == {"name": "net, 1 thread"}


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.sample(0)
@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
def test_a_browser_displays_the_page(tmp_path: Path) -> None:
    assert BROWSER is not None
    page, picture = report.write(Results([_row()], "", ""), tmp_path / "r.html")[0], tmp_path / "r.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,1500", f"--screenshot={picture}"]
    subprocess.run([BROWSER, *flags, page.as_uri()], check=True, capture_output=True, timeout=120)
    shown = np.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
    colors = {tuple(color) for color in np.unique(shown, axis=0).tolist()}
    # The bars are drawn at 0.7 of their colours over white.
    for color in COLORS[:2]:
        mixed = [round(0.7 * int(color[at : at + 2], 16) + 0.3 * 255) for at in (1, 3, 5)]
        assert any(max(abs(a - b) for a, b in zip(mixed, found, strict=True)) <= 2 for found in colors)


def test_png_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MirloError, match=r"mirlo\[plot\]"):
        report.write(Results([_row()], "", ""), tmp_path / "r.png")


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.write(Results([_row()], "", ""), tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_limits_between_the_sizes_that_were_measured() -> None:
    limits = RooflineLimits(100.0, {1000: 50.0, 100_000: 10.0})
    assert limits.bandwidth(10) == 50.0 and limits.bandwidth(10**9) == 10.0
    assert limits.bandwidth(10_000) == pytest.approx(30.0)
    assert limits.seconds(10**9, 10) == pytest.approx(0.01)
    assert limits.seconds(0, 100_000) == pytest.approx(1e-5)


def test_difference_is_relative_to_the_largest_value() -> None:
    expected = {"y": np.float32([1, -10]), "z": np.float32([])}
    assert _difference({"y": np.float32([1, -9])}, expected) == pytest.approx(0.1)
    assert _difference({}, expected) == 0.0


def test_names_lose_the_digest_of_a_cache() -> None:
    assert model_name(Path("a/resnet-0123456789ab.onnx")) == "resnet"
    assert model_name(Path("my-model.onnx")) == "my-model"


def test_kernels_stand_beside_what_the_cost_model_expects(tmp_path: Path) -> None:
    """The model's cycles are in the artifact, also in a saved one; a copy of elements has no estimate."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Transpose", ["m"], ["y"], perm=[1, 0]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (96, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (64, 96))],
        [numpy_helper.from_array(np.ones((64, 64), np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    mirlo_package.compile(model, cache=False).save(tmp_path / "m.mirlo")
    executable = mirlo_package.load(tmp_path / "m.mirlo")
    cycles = {info.kind: info.cycles for info in executable.artifact.kernels}
    assert 96 * 64 * 64 / 64 < cycles.pop("contraction") < 96 * 64 * 64
    assert all(each == 0 for each in cycles.values())
    table = kernel_rows(executable, executable.random_inputs(), 1, 1)
    expected = {row["kind"]: row["expected"] for row in table["kernels"]}
    assert 0 < expected["contraction"] < 1e4


def test_openvino_reads_inputs_after_the_caller_dropped_them(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    from mirlo.tools.bench.engines.openvino import load

    shape = [1 << 16]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "sums", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    model = load(str(tmp_path / "m.onnx"), 1, {}, None)
    model.bind({"x": np.ones(shape, np.float32)})
    others = [np.full(shape, 5, np.float32) for _ in range(8)]
    model.run()
    assert (model.outputs()["y"] == 2).all() and len(others) == 8
