"""What is built for a GPU elsewhere: the folder runs without the compiler, and survives what its units do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from commands import MODELS, ROOT, output_of, run_script

from mirlo.targets.nvvm.device import capability

STAND_IN = ROOT / "test" / "targets" / "nvvm" / "stand_in" / "libcuda.c"
NEEDED = ("numpy", "ml_dtypes", "llvmlite", "cuda")
"""Packages on the machine that runs a folder: llvmlite for target llvm only."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of small units, whose target is this machine's CPU."""
    folder = tmp_path_factory.mktemp("kit") / "folder"
    said = output_of(run_script("-m", "benchmarks.gpu", "--build", folder, "--target", "llvm", "--groups", "first"))
    assert " units, " in said.splitlines()[-1]
    return folder


@pytest.fixture
def kit(built: Path, tmp_path: Path) -> Path:
    """Copy the folder."""
    return shutil.copytree(built, tmp_path / "kit")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of packages that a machine with a GPU has, without the compiler."""
    folder = tmp_path_factory.mktemp("bare")
    for name in NEEDED:
        spec = find_spec(name)
        if spec is None:
            continue
        for found in map(Path, spec.submodule_search_locations or ()):
            for part in (found, found.with_name(f"{name}.libs")):
                if part.exists() and not (folder / part.name).exists():
                    (folder / part.name).symlink_to(part)
    return folder


def run(
    folder: Path, *flags: object, bare: Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a folder where only a few packages are found, and this checkout is not."""
    command = [sys.executable, "-S", str(folder), *map(str, flags)]
    environment = {**os.environ, "PYTHONPATH": str(bare), **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd or folder)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())["units"]
    return found


def changed(folder: Path, name: str, **fields: Any) -> dict[str, Any]:
    """Change a unit in the list of a folder."""
    kit = json.loads((folder / "kit.json").read_text())
    unit: dict[str, Any] = next(unit for unit in kit["units"] if name in unit["name"])
    unit.update(fields)
    (folder / "kit.json").write_text(json.dumps(kit))
    return unit


@pytest.mark.sample(0)
def test_it_runs_without_the_compiler(kit: Path, bare: Path) -> None:
    found = run(kit, "--checks-only", bare=bare)
    assert found.returncode == 0, found.stdout + found.stderr
    rows = results(kit)
    assert len(rows) == 13 and {row["status"] for row in rows.values()} == {"ok"}
    assert all(row["checks"] == 1 and row["error"] < 3e-3 for row in rows.values())
    assert "| products | 5 | 5 | 5 |" in (kit / "results.md").read_text()
    # What is done is not done again.
    assert ": 0 units" in run(kit, bare=bare).stdout
    assert ": 5 units" in run(kit, "--again", "--only", "products", bare=bare).stdout


@pytest.mark.sample(0)
def test_it_runs_in_a_folder_with_other_benchmarks(kit: Path, bare: Path, tmp_path: Path) -> None:
    other = tmp_path / "checkout"
    (other / "benchmarks" / "gpu").mkdir(parents=True)
    (other / "benchmarks" / "__init__.py").write_text("raise ImportError('of another checkout')")
    done = run(kit, "--checks-only", "--only", "add f32", bare=bare, cwd=other)
    assert done.returncode == 0 and len(results(kit)) == 1, done.stdout + done.stderr


@pytest.mark.sample(0)
def test_checks_of_operators_and_intrinsics(bare: Path, tmp_path: Path) -> None:
    """Results of 4 bits, and of functions whose errors are counted in units of 1 near their zeros."""
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.operators import add_intrinsics, add_operators

    folder = Folder(tmp_path / "kit", "llvm", lambda name: None)
    add_operators(folder, "unpack")
    for name in ("j0", "digamma", "lgamma"):
        add_intrinsics(folder, name)
    folder.finish()
    done = run(folder.path, "--checks-only", bare=bare)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sample(0)
def test_what_fails_fails_alone(kit: Path, bare: Path) -> None:
    """A wrong result, a file that is damaged, a unit that takes too long: the others are run."""
    wrong = changed(kit, "add f32")
    wrong["checks"][0]["bound"] = -1.0
    changed(kit, "add f32", checks=wrong["checks"])
    file = changed(kit, "softmax f32")["model"]
    (kit / file).write_bytes(b"nothing")
    changed(kit, "product i8", seconds=1e-4)
    done = run(kit, bare=bare)
    assert done.returncode == 1 and "3 not right" in done.stdout, done.stdout
    rows = results(kit)
    bad = {name: row for name, row in rows.items() if row["status"] != "ok"}
    assert [row["status"] for row in bad.values()] == ["wrong", "failed", "timeout"] and len(rows) == 13
    page = (kit / "results.md").read_text()
    assert "at most -1e+00 is allowed" in page and "after 0 s" in page


@pytest.mark.sample(0)
def test_a_process_that_dies(kit: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit is reported with its output, and another process continues."""
    child = kit / "lib" / "benchmarks" / "gpu" / "child.py"
    text = child.read_text()
    broken = 'def _run(unit: Unit, arguments: Any) -> dict[str, Any]:\n    import os\n    if "bf16" in unit.name:\n'
    broken += '        print("last words", file=sys.stderr)\n        os.abort()\n    if "f8e4m3" in unit.name:\n'
    broken += '        raise RuntimeError("running the model failed: CUDA_ERROR_ILLEGAL_ADDRESS")\n'
    child.write_text(text.replace("def _run(unit: Unit, arguments: Any) -> dict[str, Any]:\n", broken))
    run(kit, "--only", "products", "--checks-only", bare=bare)
    rows = results(kit)
    died = next(row for name, row in rows.items() if "bf16" in name)
    assert (
        died["status"] == "died" and died["detail"] == "the process ended: signal 6" and "last words" in died["output"]
    )
    assert [row["status"] for row in rows.values()] == ["ok", "ok", "died", "ok", "failed"]


@pytest.mark.sample(0)
def test_no_unit_is_started_when_time_is_up(kit: Path, bare: Path) -> None:
    done = run(kit, "--minutes", 1e-6, bare=bare)
    assert "13 units are left" in done.stdout and not results(kit)
    assert run(kit, "--only", "products", "--checks-only", bare=bare).returncode == 0 and len(results(kit)) == 5


@pytest.mark.sample(0)
def test_what_compute_sanitizer_says_is_its_unit_s(kit: Path, bare: Path, tmp_path: Path) -> None:
    """A stand-in for it runs the command, and finds something in between."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text("""#!/bin/sh
test "$1 $2" = "--tool racecheck" || exit 4
shift 4
echo "========= COMPUTE-SANITIZER"
"$@" | while IFS= read -r line; do
  case "$line" in *'"checks": 1'*)
    n=$((n + 1)); test $n = 2 && echo "========= Error: Race reported between x and y";;
  esac
  printf '%s\\n' "$line"
done
echo "========= RACECHECK SUMMARY: 1 hazard displayed"
""")
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = run(kit, "--sanitizer", "racecheck", "--only", "products", bare=bare, PATH=path)
    assert done.returncode == 1, done.stdout + done.stderr
    rows = json.loads((kit / "results-racecheck.json").read_text())["units"]
    assert [row["status"] for row in rows.values()] == ["ok", "unclean", "ok", "ok", "ok"]
    assert "Race reported between x and y" in (kit / "results-racecheck.md").read_text()
    assert not (kit / "results.json").exists()


@pytest.mark.sample(0)
def test_weights_are_made_of_seeds(bare: Path, tmp_path: Path) -> None:
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.models import add_model
    from mirlo.benchmarks.gpu.peers import write_weights

    folder = Folder(tmp_path / "kit", "c", lambda name: None)
    add_model(folder, "mobilenetv2", str(MODELS))
    folder.finish()
    (unit,) = folder.units
    # Targets that pack weights carry those along: which, depends on the processor. Target c packs none.
    assert unit.weights is not None and sum("initializer" in row for row in unit.weights) > 5
    done = run(folder.path, bare=bare)
    assert done.returncode == 0, done.stdout + done.stderr
    row = results(folder.path)["mobilenetv2"]
    assert row["error"] < 1e-4 and row["us"] > 0 and row["tflops"] > 0
    # Others are given the same weights: the file for ONNX Runtime has none of them in it.
    peer = unit.peer
    assert peer is not None and (folder.path / peer["onnx"]).stat().st_size < 1e6
    write_weights(folder.path / peer["file"], tmp_path / "weights.bin")
    shutil.copy(folder.path / peer["onnx"], tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    data = np.load(folder.path / unit.data)
    (found,) = session.run(None, {session.get_inputs()[0].name: data["i0"]})
    np.testing.assert_array_equal(found, data["o0"])


@pytest.mark.sample(0)
def test_models_by_pytorch(tmp_path: Path) -> None:
    """The nodes that PyTorch computes for comparison are the model."""
    torch = pytest.importorskip("torch")
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.models import add_model
    from mirlo.benchmarks.gpu.graphs import open_graph

    folder = Folder(tmp_path / "kit", "llvm", lambda name: None)
    add_model(folder, "mobilenetv2", str(MODELS))
    (unit,) = folder.units
    data = np.load(folder.path / unit.data)
    graph = open_graph(torch, folder.path, unit.peer or {}, "cpu")
    (found,) = graph({"pixel_values": torch.from_numpy(data["i0"])})
    np.testing.assert_allclose(found.numpy(), data["o0"], rtol=1e-4, atol=1e-5 * np.abs(data["o0"]).max())


@pytest.mark.sample(0)
def test_operators_and_intrinsics(bare: Path, tmp_path: Path) -> None:
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.operators import add_intrinsics, add_operators

    folder = Folder(tmp_path / "kit", "llvm", lambda name: None)
    for name in ("softmax", "dequantize"):  # the second one takes integers and gives floats
        add_operators(folder, name)
    for name in ("fma", "tanh", "popcount"):
        add_intrinsics(folder, name)
    folder.finish()
    assert not folder.left_out
    done = run(folder.path, bare=bare)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(row["checks"] for row in results(folder.path).values()) >= 20


@pytest.mark.skipif(shutil.which("cc") is None or find_spec("cuda") is None, reason="no C compiler or no cuda-bindings")
def test_on_a_driver_that_stands_in(bare: Path, tmp_path: Path) -> None:
    """CUDA's real bindings and a driver that starts nothing: what the zeros are compared with is not zero."""
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.kernels import add_product, add_rows

    made = ["-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(STAND_IN)]
    subprocess.run(["cc", *made], check=True)
    folder = Folder(tmp_path / "kit", "nvvm{chip=sm_90a}", lambda name: None)
    folder.add_copy(1 << 20)
    add_rows(folder, "add", "f32", 64, 256)
    add_product(folder, "bf16", (64, 64, 64))
    folder.finish()
    done = run(folder.path, bare=bare, LD_LIBRARY_PATH=str(tmp_path), STAND_IN_LOG=str(tmp_path / "log"))
    rows = list(results(folder.path).values())
    assert [row["status"] for row in rows] == ["ok", "wrong", "wrong"], done.stdout + done.stderr
    assert rows[0]["gbytes"] > 0 and all(row["us"] > 0 for row in rows[1:])


@pytest.mark.sample(0)
def test_variants(bare: Path, tmp_path: Path) -> None:
    """Masks, and dims that are known when a model is called: inputs of seeds, and what the CPU makes of them."""
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.variants import add_variants

    folder = Folder(tmp_path / "kit", "llvm", lambda name: None)
    for name in ("attention f32, mask", "softmax f32, 37 open", "attention f32, 50 over 130, open"):
        add_variants(folder, name)
    folder.finish()
    done = run(folder.path, bare=bare)
    assert done.returncode == 0 and not folder.left_out, done.stdout + done.stderr
    assert len(results(folder.path)) == 5 and all(row["error"] == 0 for row in results(folder.path).values())


def test_what_others_cannot_do_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo.benchmarks.gpu import measure
    from mirlo.benchmarks.gpu.unit import Unit

    model = SimpleNamespace(inputs=[SimpleNamespace(name="x")], device_microseconds=lambda *inputs, repeats: 5.0)
    unit = Unit("product", "products", "", (), (), flops=1e9)

    def refuse() -> float:
        raise RuntimeError("no kernel\nbecause")

    def timed(calls: Any) -> dict[str, Any]:
        monkeypatch.setattr(measure, "calls_of", calls)
        return measure.measured(unit, model, [np.zeros(1)], Path())

    row = timed(lambda *given: ({"A": refuse, "B": lambda: 1e-5, "C": lambda: 2e-5}, ""))
    assert (row["us"], row["tflops"], row["peer"], row["ratio"]) == (5.0, 200.0, "B", 2.0)
    assert row["peers"] == {"B": 10.0, "C": 20.0} and row["peer_why"] == "A: RuntimeError: no kernel"
    row = timed(lambda *given: refuse())
    assert row["us"] == 5.0 and "ratio" not in row and row["peer_why"] == "RuntimeError: no kernel"


EMULATED = """
import sys
sys.path[:0] = [{tests!r}, {package!r}]
from mirlo.testing.ptx.driver import emulated
from mirlo.benchmarks.gpu.child import main
with emulated():
    sys.exit(main())
"""


@pytest.mark.sample(0)
def test_everything_first_is_right_on_an_emulated_gpu(tmp_path: Path) -> None:
    """What is checked before everything else, executed from its PTX."""
    from mirlo.benchmarks.gpu.run import Options, run

    output_of(
        run_script(
            "-m", "benchmarks.gpu", "--build", tmp_path / "kit", "--groups", "first", "--target", "nvvm{chip=sm_90a}"
        )
    )
    script = tmp_path / "emulated.py"
    script.write_text(EMULATED.format(tests=str(STAND_IN.parents[1]), package=str(ROOT.parent)))
    command = [sys.executable, str(script)]
    run(
        tmp_path / "kit",
        Options(only=["product", "rows", "attention", "convolution"], checks_only=True, command=command),
    )
    rows = results(tmp_path / "kit")
    assert len(rows) == 13 and {name for name, row in rows.items() if row["status"] != "ok"} == set()


@pytest.mark.skipif(capability() is not None, reason="there is a GPU")
def test_without_a_gpu_it_says_so(bare: Path, tmp_path: Path) -> None:
    from mirlo.benchmarks.gpu.build.folder import Folder
    from mirlo.benchmarks.gpu.build.kernels import add_rows

    folder = Folder(tmp_path / "kit", "nvvm{chip=sm_90a}", lambda name: None)
    add_rows(folder, "add", "f32", 4, 4)
    folder.finish()
    done = run(folder.path, bare=bare, LD_LIBRARY_PATH="")
    assert done.returncode == 2 and "error: there is no GPU to run on" in done.stderr, done.stdout + done.stderr
    both = run_script("-m", "benchmarks.gpu")
    assert both.returncode == 2 and "with --build FOLDER" in both.stderr, both.stderr
    nothing = run_script("-m", "benchmarks.gpu", "--run", tmp_path)
    assert nothing.returncode == 2 and "has no kit.json" in nothing.stderr


def test_numbers_of_seeds_are_the_same_everywhere() -> None:
    from mirlo.benchmarks.gpu.seeds import seeded

    found = seeded(3, "f32", (2, 3), 1.0)
    assert found.tobytes().hex() == FLOATS, found.tobytes().hex()
    assert abs(seeded(1, "f16", (1000,), 0.25)).max() <= 0.25 and np.unique(seeded(1, "i8", (4000,))).size > 250


FLOATS = "847d1f3fcc2554bf5a2024bfc6c006bf282423bfa4401a3f"
