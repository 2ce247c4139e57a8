"""Programs in C, C++ and Rust: language models, int8, threads, outputs in the memory of inputs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulated_aarch64
import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from emulated_machines import MACHINES, SYSTEMS
from libraries import make_program
from library_models import MODELS, RNG, compiler, dynamic_model, require_same
from onnx_models import F32, make_model, node
from reduced_models import reduced

import mirlo
from mirlo.targets.llvm.cpus import CPUS, X86
from mirlo.targets.llvm.processor import host_processor

pytestmark = needs_c_compiler


def _cpp() -> str:
    found = shutil.which(os.environ.get("CXX", "c++"))
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


@pytest.mark.sample(0)
@pytest.mark.parametrize("sanitizer", ["", "address,undefined", "thread"])
def test_threads_of_cpp(sanitizer: str, tmp_path: Path) -> None:
    flags = sanitizer_flags(_cpp(), sanitizer, tmp_path / "probe") if sanitizer else []
    make_program(dynamic_model(), tmp_path, compiler(), threads=2)
    source = Path(__file__).parents[3] / "support" / "run_threads.cpp"
    _run(compiler(), *flags, "-g", "-c", str(tmp_path / "mirlo.c"), "-o", str(tmp_path / "mirlo.o"))
    objects = sorted(map(str, tmp_path.glob("*.o")))
    warnings = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-g", "-DMODEL=mirlo_model_model", f"-I{tmp_path}"]
    _run(_cpp(), *warnings, *flags, str(source), *objects, "-o", str(tmp_path / "threads"), "-lm", "-ldl", "-lpthread")
    assert _run(str(tmp_path / "threads"), "8", "20") == "0 wrong\n"


def _run(*command: str, **where: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **where)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _language_model(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a tiny Llama of 4 bits with caches, and the inputs of a step after six tokens."""
    path = Path(__file__).parents[4] / "examples" / "tiny_language_model.py"
    spec = importlib.util.spec_from_file_location("tiny_language_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(folder, bits=4)
    inputs = {"input_ids": np.array([[7, 9]]), "attention_mask": np.ones((1, 8), np.int64)}
    for layer in range(2):
        for kind in ("key", "value"):
            cache = np.zeros((1, 2, 16, 16), np.float32)
            cache[:, :, :6] = RNG.standard_normal((1, 2, 6, 16))
            inputs[f"past_key_values.{layer}.{kind}"] = cache
    return folder / "model.onnx", inputs


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("activations", [None, "i8"])
@pytest.mark.sample(0)
def test_language_models(activations: str | None, in_place: bool, tmp_path: Path) -> None:
    path, inputs = _language_model(tmp_path / "llm")
    model = mirlo.compile(path, cache=False, jobs=1, activations=activations)
    flags = ["-DIN_PLACE"] if in_place else []
    folder = tmp_path / "program"
    program = make_program(path, folder, compiler(), flags=flags, activations=activations)
    found = program.run(inputs, 1, 1 if in_place else 3)
    for one, (name, other) in zip(found, model.run(inputs).items(), strict=True):
        assert one.tobytes() == other.tobytes(), name
    assert "present.0.key may have the memory of past_key_values.0.key" in (folder / "model.h").read_text()


@pytest.mark.sample(0)
def test_quantized_models(tmp_path: Path) -> None:
    """Run a network of int8 convolutions and products."""
    model, inputs = _small_model("int8", tmp_path)
    require_same(make_program(model, tmp_path, compiler(), threads=2), model, inputs, threads=2)


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", ["language model", "int8"])
def test_small_models_for_each_level(name: str, cpu: str, tmp_path: Path) -> None:
    host = host_processor()
    if not (host.arch == X86 and CPUS[cpu].features <= set(host.features)):
        pytest.skip(f"this machine is no {cpu}")
    model, inputs = _small_model(name, tmp_path / "model")
    target = f"llvm{{cpu={cpu}}}"
    program = make_program(model, tmp_path, compiler(), target, threads=2)
    require_same(program, model, inputs, target=target, threads=2)


@pytest.mark.sample(0)
@pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")
@pytest.mark.parametrize("name", ["language model", "int8"])
def test_small_models_on_an_emulated_aarch64(name: str, tmp_path: Path) -> None:
    model, inputs = _small_model(name, tmp_path / "model")
    expected = mirlo.compile(model, cache=False, jobs=1).run(inputs).values()
    program = make_program(
        model, tmp_path, emulated_aarch64.COMPILER, emulated_aarch64.TARGET, threads=2, flags=["-static"],
        runner=[emulated_aarch64.EMULATOR],
    )  # fmt: skip
    for found, wanted in zip(program.run(inputs), expected, strict=True):
        assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max()


@pytest.mark.sample(0)
def test_a_quantized_network_on_hexagon(tmp_path: Path) -> None:
    emulated, (model, inputs) = MACHINES["hexagonv67"], _small_model("int8", tmp_path)
    if emulated.missing():
        pytest.skip(emulated.missing())
    (expected,) = mirlo.compile(model, cache=False, jobs=1).run(inputs).values()
    program = make_program(
        model, tmp_path, emulated.compiler, emulated.target, runner=emulated.runner, weights="beside"
    )  # fmt: skip
    np.testing.assert_array_equal(program.run(inputs, 1, 1, str(tmp_path / "model.weights"))[0], expected)


def _small_model(name: str, folder: Path) -> tuple[Path | onnx.ModelProto, dict[str, np.ndarray]]:
    if name == "language model":
        return _language_model(folder)
    return _quantized(), {"x": RNG.standard_normal((2, 3, 12, 12)).astype(np.float32)}


def _quantized() -> onnx.ModelProto:
    random = np.random.default_rng(6)
    constants = {
        "k": random.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8), "s": np.float32(0.02), "z": np.uint8(128),
        "w": random.integers(-127, 128, (8 * 144, 10)).astype(np.int8), "t": np.float32(0.01), "n": np.int8(0),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z k t n s z", "c", pads=[1, 1, 1, 1]),
        node("Flatten", "c", "f"), node("QLinearMatMul", "f s z w t n s z", "m"),
        node("DequantizeLinear", "m s z", "y"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, ("n", 3, 12, 12))}, ["y"], constants)


@pytest.mark.sample(0)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base", "language model", "int8"])
def test_models_under_sanitizers(name: str, sanitizer: str, tmp_path: Path) -> None:
    """Run models in 8 threads of a program, each with a context of its own; compare all results.

    The pool is compiled by LLVM: ThreadSanitizer does not see its atomics, and takes what models clear in it for races.
    """
    flags = sanitizer_flags(compiler(), sanitizer, tmp_path / "probe")
    flags += ["-DOWN_THREADS"] if sanitizer == "thread" else []
    if name in ("language model", "int8"):
        model, inputs = _small_model(name, tmp_path / "llm")
    else:
        model, inputs = reduced(name), {}
    executable = mirlo.compile(model, threads=2, cache=False, jobs=1)
    inputs = inputs or executable.random_inputs(0)
    program = make_program(model, tmp_path / "program", compiler(), threads=2, flags=flags, weights="embed")
    for found, wanted in zip(program.run(inputs, 8, 3), executable.run(inputs).values(), strict=True):
        assert found.tobytes() == wanted.tobytes()


COUNT = 600_000_000
"""Elements of a weight of 2.4 GB."""


def _large(folder: Path) -> Path:
    """Write a model with weights of more than 2 GiB, in a file that is mostly a hole."""
    with (folder / "weights.bin").open("wb") as file:
        for at in (5, COUNT - 1):
            file.seek(at * 4)
            file.write(np.float32(at % 1000 + 0.5).tobytes())
        file.seek(COUNT * 4)
        file.write(np.arange(8, dtype=np.float32).tobytes())
    model = make_model(
        [node("Gather", "a i", "g"), node("Add", "g b", "y")], {"i": (onnx.TensorProto.INT64, (8,))}, ["y"]
    )
    for name, length, offset in (("a", COUNT, 0), ("b", 8, COUNT * 4)):
        made = model.graph.initializer.add(name=name, data_type=F32, dims=[length])
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", length * 4)):
            made.external_data.add(key=key, value=str(value))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("weights", ["beside", "embed"])
def test_weights_of_more_than_2_gib(weights: str, tmp_path: Path, whole: bool) -> None:
    if not whole or shutil.disk_usage(tmp_path).free < 12 << 30:
        pytest.skip("part of `pytest --whole`, where 12 GiB of disk are free")
    program = make_program(_large(tmp_path), tmp_path / "made", compiler(), weights=weights)
    index = np.array([0, 5, COUNT - 1, 7, COUNT - 2, 5, 5, COUNT - 1])
    path = [str(tmp_path / "made" / "model.weights")] if weights == "beside" else []
    found = program.run({"i": index}, 1, 2, *path)[0]
    shutil.rmtree(tmp_path / "made")
    last = (COUNT - 1) % 1000 + 0.5
    np.testing.assert_array_equal(found, np.array([0, 5.5, last, 0, 0, 5.5, 5.5, last]) + np.arange(8))


@pytest.mark.sample(0)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("weights", ["embed", "beside"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_programs_for_other_systems(
    system: str, weights: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Link programs and libraries for Windows and macOS; run them where there is Wine."""
    other = SYSTEMS[system]
    missing = replace(other, runner=()).missing()
    if missing:
        pytest.skip(missing)
    monkeypatch.setenv("WINEDEBUG", "-all")
    monkeypatch.setenv("WINEPREFIX", str(tmp_path / "wine"))
    program = make_program(
        dynamic_model(), tmp_path, other.compiler, other.target, threads=2, shared=shared, runner=other.runner,
        weights=weights, flags=["-DFLTUSED"] if "msvc" in other.target and not shared else [],
    )  # fmt: skip
    names = {path.name for path in tmp_path.iterdir()}
    assert not shared or names & {"model.dll", "libmodel.dylib"}
    assert ("model.weights" in names) == (weights == "beside")
    if not other.runner or other.missing():
        return
    inputs = MODELS["dynamic"][1]
    path = [str(tmp_path / "model.weights")] if weights == "beside" and not shared else []
    expected = mirlo.compile(dynamic_model(), cache=False, jobs=1).run(inputs).values()
    for threads in (1, 8):
        for found, wanted in zip(program.run(inputs, threads, 20, *path), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)


def _expected() -> list[int]:
    """Return the bits of what the programs below compute."""
    x = (np.arange(3 * 40, dtype=np.float32) / np.float32(100)).reshape(3, 40)
    found: list[int] = mirlo.compile(dynamic_model(), cache=False, jobs=1)(x)[0].view(np.uint32).ravel().tolist()
    return found


@pytest.mark.sample(0)
@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo")
@pytest.mark.parametrize(
    ("shared", "weights"), [(False, "embed"), (True, "embed"), (False, "beside"), (True, "beside")]
)
def test_crate_of_rust(shared: bool, weights: str, tmp_path: Path) -> None:
    make_program(dynamic_model(), tmp_path / "model", compiler(), threads=2, shared=shared, weights=weights)
    shutil.copytree(Path(__file__).parents[3] / "support" / "rust_program", tmp_path / "main")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "model")}
    command = ["cargo", "run", "--offline", "--quiet", "--", str(tmp_path / "model")]
    bits = _run(*command, cwd=tmp_path / "main", env=environment).split()
    assert list(map(int, bits)) == _expected()


BUILDS = {
    "cmake": "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build && cp build/main main",
    "pkg-config": "cc -std=gnu11 main.c $(PKG_CONFIG_PATH=model pkg-config --cflags --libs model) -o main",
}
CMAKE = """cmake_minimum_required(VERSION 3.13)
project(main C)
add_subdirectory(model)
add_executable(main main.c)
target_link_libraries(main mirlo_model)
"""


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("shared", "weights"), [(False, "embed"), (True, "embed"), (False, "beside"), (True, "beside")]
)
@pytest.mark.parametrize("tool", BUILDS)
def test_build_files(tool: str, shared: bool, weights: str, tmp_path: Path) -> None:
    """Build a program by the build files of a model; the weights are not linked in."""
    if shutil.which(tool) is None or shutil.which("cc") is None:
        pytest.skip(f"there is no {tool}, or no cc")
    make_program(dynamic_model(), tmp_path / "model", compiler(), threads=2, shared=shared, weights=weights)
    shutil.copy(Path(__file__).parents[3] / "support" / "linked_model.c", tmp_path / "main.c")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    _run("sh", "-ec", BUILDS[tool], cwd=tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "model")}
    path = [str(tmp_path / "model" / "model.weights")] if weights == "beside" else []
    assert list(map(int, _run(str(tmp_path / "main"), *path, env=environment).split())) == _expected()
