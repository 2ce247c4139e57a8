"""The `mirlo` command: what each of its commands prints and writes."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import ENVIRONMENT, mirlo
from onnx import TensorProto, helper, numpy_helper

import mirlo as package
from mirlo.runtime.system import peak_memory
from mirlo.tools.cli import main
from mirlo.tools.cli.progress import Progress

WEIGHT = np.arange(32, dtype=np.float32).reshape(8, 4) / 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model of two inputs and two outputs, and its compiled form."""
    folder = tmp_path_factory.mktemp("models")
    nodes = [
        helper.make_node("MatMul", ["image/x", "w"], ["m"], name="head/MatMul"),
        helper.make_node("Gather", ["m", "index"], ["out:0"], name="head/Gather", axis=0),
        helper.make_node("Relu", ["m"], ["r"], name="head/Relu"),
    ]
    inputs = [
        helper.make_tensor_value_info("image/x", TensorProto.FLOAT, ["rows", 8]),
        helper.make_tensor_value_info("index", TensorProto.INT64, [3]),
    ]
    outputs = [
        helper.make_tensor_value_info("out:0", TensorProto.FLOAT, [3, 4]),
        helper.make_tensor_value_info("r", TensorProto.FLOAT, ["rows", 4]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHT, "w")])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "m.onnx")
    assert main(["compile", str(folder / "m.onnx"), "--shape", "image/x=5x8", "-o", str(folder / "m.mirlo")]) == 0
    np.save(folder / "x.npy", np.arange(40, dtype=np.float32).reshape(5, 8) - 20)
    np.save(folder / "index.npy", np.array([4, 0, 2]))
    return folder


def _call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def test_compile_tells_what_it_wrote(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _call(
        capsys,
        "compile",
        files / "m.onnx",
        "--shape",
        "image/x=5x8",
        "-o",
        tmp_path / "o.mirlo",
        "--timing",
        "--no-cache",
    )
    assert re.match(r".*o\.mirlo: 0\.0 MiB, weights .* MiB, arena .* MiB per call; compiled in \d+\.\d s", out)
    steps = [line.split()[0] for line in out.splitlines()[1:]]
    assert (steps[0], steps[-3:]) == ("import", ["emit", "save", "total"]) and "legalize" in steps
    assert package.load(tmp_path / "o.mirlo").inputs[0].shape == (5, 8)


def test_run_computes_with_the_arrays_given(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--input", f"image/x={files}/x.npy", "--input", f"index={files}/index.npy")
    out = _call(capsys, "run", files / "m.mirlo", *given, "--output-dir", tmp_path, "--repeat", 2)
    product = np.load(files / "x.npy") @ WEIGHT
    np.testing.assert_allclose(np.load(tmp_path / "out_0.npy"), product[[4, 0, 2]], rtol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "r.npy"), np.maximum(product, 0), rtol=1e-5)
    assert f"wrote {tmp_path}/out_0.npy\nwrote {tmp_path}/r.npy\n" in out
    assert re.search(r"^  index +i64\[3\] +2 +0 +4 +4, 0, 2$", out, re.MULTILINE)
    assert "random" not in out
    assert re.search(
        r"^latency: \d+\.\d{2,4} ms \(median of 2 runs, \d+\.\d{2,4} to \d+\.\d{2,4}\)$", out, re.MULTILINE
    )


def test_run_draws_inputs_from_the_seed(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for number, seed in enumerate((1, 1, 2)):
        out = _call(capsys, "run", files / "m.mirlo", "--seed", seed, "--output-dir", tmp_path / str(number))
        assert f"(random, seed {seed})" in out
        results.append(np.load(tmp_path / str(number) / "r.npy"))
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_run_compiles_an_onnx_model(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _call(capsys, "run", files / "m.onnx", "--shape", "image/x=2x8", "--profile", "--no-cache", "--kernels", 0)
    assert re.search(r"m\.onnx: compiled in \d+\.\d s.*; weights 0\.0 MiB, arena 0\.0 MiB per call\n", out)
    assert re.search(r"^  r +f32\[2, 4\]", out, re.MULTILINE)
    assert re.search(r"^kernel +kind +us +share", out, re.MULTILINE) and "head/MatMul" not in out
    assert re.search(r"^and \d+ more, 100.0%$", out, re.MULTILINE)
    assert "head/MatMul" in _call(capsys, "run", files / "m.onnx", "--shape", "image/x=2x8", "--profile")


@pytest.mark.sample(0)
def test_stages_are_saved_and_can_be_compiled(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--input", f"image/x={files}/x.npy", "--input", f"index={files}/index.npy")
    model = (files / "m.onnx", "--shape", "image/x=5x8")
    _call(capsys, "compile", *model, "-o", tmp_path / "o.mirlo", "--save-ir", tmp_path)
    stages = sorted(tmp_path.glob("*.mlir"))
    assert stages[0].name == "00-import.mlir" and len(stages) > 10
    product = np.load(files / "x.npy") @ WEIGHT
    for stage in stages:
        assert stage.read_text().startswith("// configuration: --pass-pipeline='builtin.module(")
        _call(capsys, "run", stage, *given, "--output-dir", tmp_path / "outputs", "--repeat", 1)
        np.testing.assert_allclose(np.load(tmp_path / "outputs" / "out_0.npy"), product[[4, 0, 2]], rtol=1e-5)


def test_info_of_a_model(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = f"""\
{files}/m.onnx: ONNX, operator sets: ai.onnx 18
inputs:
  image/x  f32[rows, 8]
  index    i64[3]
outputs: out:0, r
parameters: 1, 128 bytes
operators: 3 of 3 kinds
  MatMul  1
  Gather  1
  Relu    1
every operator is supported
"""
    assert _call(capsys, "info", files / "m.onnx") == expected


def test_the_report_of_a_compilation(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--shape", "image/x=5x8", "-o", tmp_path / "o.mirlo", "--no-cache", "--report"]
    out = _call(capsys, "compile", files / "m.onnx", *shape)
    found = re.search(r"^memory of a call: .*; at the worst moment .* are alive, which no plan goes below", out, re.M)
    assert found is not None and re.search(r"\d+ calls write over an input$", out, re.MULTILINE)
    assert re.search(r"^code: .* in \d+ object files", out, re.MULTILINE) and "legalize" in out
    if peak_memory():
        assert re.search(r"^most memory while compiling: [1-9].* in this process", out, re.MULTILINE)
    info = _call(capsys, "info", tmp_path / "o.mirlo")
    assert found.group(0) in info


def test_info_of_a_compiled_model(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _call(capsys, "info", files / "m.mirlo")
    start = f"""\
{files}/m.mirlo: compiled for llvm, 1 thread
inputs:
  image/x  f32[5, 8]
  index    i64[3]
outputs:
  out:0  f32[3, 4]
  r      f32[5, 4]
parameters: 1, 128 bytes
memory of a call: """
    assert out.startswith(start)
    assert re.search(r"^kernels: \d+, called \d+ times$", out, re.MULTILINE) and "head/Gather" in out


def test_import_keeps_names(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _call(capsys, "import", files / "m.onnx")
    assert '{relax.name = "image/x"}' in text and 'loc("head/MatMul"' in text
    assert 'tensor<?x8xf32, #relax.dims<["rows", 8]>>' in text
    assert _call(capsys, "import", files / "m.onnx", "-o", tmp_path / "m.mlir") == ""
    assert '"relax.matmul"' in (tmp_path / "m.mlir").read_text()


def test_targets(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _call(capsys, "targets").splitlines()
    assert any(re.fullmatch(r"llvm +llvm → default +CPUs, through LLVM: .*", line) for line in lines)


@pytest.mark.sample(0)
def test_progress_where_no_one_watches_is_for_the_verbose(files: Path, tmp_path: Path) -> None:
    command = ("compile", files / "m.onnx", "--shape", "image/x=5x8", "-o", tmp_path / "o.mirlo", "--no-cache")
    assert mirlo(*command).stderr == ""
    lines = mirlo(*command, "-v").stderr.splitlines()
    assert lines[0] == "mirlo: compiling m.onnx: import" and lines[-1] == "mirlo: compiling m.onnx: save"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compil m.onnx", "invalid choice: 'compil'"),
        ("compile", "give the file of a model, or --sample NAME"),
        ("compile m.onnx --threads 0", "argument --threads: expected a number from 1, found '0'"),
        ("run m.onnx --input x", "argument --input: expected NAME=FILE.npy, found 'x'"),
        ("run m.onnx --shape x=1x-2", "argument --shape: expected NAME=1x3x224x224, found the dim '-2' in 'x=1x-2'"),
    ],
)
def test_usage(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_debug_shows_where(files: Path) -> None:
    done = mirlo("run", files / "none.onnx", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "NotAFile: " in done.stderr


def test_interrupted(files: Path) -> None:
    command = [sys.executable, "-um", "mirlo.tools.cli", "run", str(files / "m.mirlo"), "--repeat", "1000000000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    # Tests that run in the background of a shell were told to ignore interrupts, and so would the child.
    with subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes) as child:
        assert child.stdout is not None
        # Not before: the modules of numpy.random lose an interrupt that comes while they are imported.
        while not child.stdout.readline().startswith("outputs:"):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        try:
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, errors) == (130, "mirlo: interrupted\n")


@pytest.mark.sample(0)
def test_reader_that_went_away(files: Path) -> None:
    command = [sys.executable, "-m", "mirlo.tools.cli", "info", str(files / "m.onnx")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == ""
    assert child.returncode == 1


def _unary(folder: Path, operator: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], name="only")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
    )
    path = folder / f"{operator}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    np.save(folder / "x.npy", np.array([[-1, 0], [1, np.inf]], np.float32))
    return path


def test_numbers_that_are_none_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _call(capsys, "run", _unary(tmp_path, "Log"), "--input", f"x={tmp_path}/x.npy")
    assert re.search(r"^  y +f32\[2, 2\] +0 +0 +0 +nan, -inf, 0, inf  \(1 NaN, 2 infinite\)$", out, re.MULTILINE)


def test_profile_of_a_model_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _call(capsys, "run", _unary(tmp_path, "Identity"), "--profile")
    assert out.endswith("\nno kernels: every output is an input or a constant\n")


class Terminal(io.StringIO):
    """A stream that says that someone watches."""

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_that_vanishes() -> None:
    terminal = Terminal()
    with Progress("compiling m.onnx", verbose=True, stream=terminal) as progress:
        progress("import")
        progress("emit")
        progress("emit")
    written = terminal.getvalue()
    assert "\n" not in written and "\rcompiling m.onnx: emit (0 s)" in written
    assert written.split("\r")[-1] == "" and set(written.split("\r")[-2]) == {" "}
    assert list(progress.seconds) == ["import", "emit"]


def test_precision(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ("compile", files / "m.onnx", "--shape", "image/x=5x8", "-o", tmp_path / "o.mirlo", "--precision", "bf16")
    assert "to-mixed-precision" in _call(capsys, *model, "--timing", "--no-cache")
    assert main([str(argument) for argument in (*model, "--pipeline", "simplify")]) == 1
    assert "precision: a pipeline of your own says so itself" in capsys.readouterr().err


def test_builds_for_some_sizes(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ("compile", files / "m.onnx", "-o", tmp_path / "o.mirlo")
    _call(capsys, *model, "--specialize", "rows=5", "--specialize", "rows=8")
    out = _call(capsys, "info", tmp_path / "o.mirlo")
    assert "image/x  f32[rows, 8]" in out
    assert re.findall(r"^build for (.*), index", out, re.MULTILINE) == ["image/x: f32[5, 8]", "image/x: f32[8, 8]"]
    assert "[5, 4]" in _call(capsys, "run", tmp_path / "o.mirlo", "--input", f"image/x={files / 'x.npy'}")
    assert main([str(argument) for argument in (*model, "--specialize", "row=5")]) == 1
    assert "'row' is not a symbolic dim of the model" in capsys.readouterr().err


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: mirlo [-h]")
