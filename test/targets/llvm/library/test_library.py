"""Libraries of models: C programs that run them give the bits that Python gives."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import emulated_aarch64
import ml_dtypes
import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from emulated_machines import MACHINES
from libraries import calls_rows, check_row_sums, make_program
from library_models import MODELS, RNG, compiler, dynamic_model, f16_model, require_same
from onnx_models import F32, make_model, node
from reduced_models import reduced

import mirlo
from mirlo import R
from mirlo.driver.code import compile_code, kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.passes.options import quote
from mirlo.passes.targets import CompileOptions, TargetError
from mirlo.runtime.artifact import load
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.system import permits_tiles
from mirlo.targets.llvm.cpus import CPUS, X86
from mirlo.targets.llvm.library.build import link_model
from mirlo.targets.llvm.library.description import LibraryError, describe
from mirlo.targets.llvm.library.sources import RUN_TIME, model_header, run_time_files
from mirlo.targets.llvm.machine import MachineError
from mirlo.targets.llvm.options import parse_options
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.targets.llvm.processor import host_processor
from mirlo.tools.cli import main
from mirlo.tools.explain.model import explain_model

pytestmark = needs_c_compiler


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shared", [False, True])
def test_programs_compute_the_same_bits(name: str, shared: bool, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    program = make_program(make(), tmp_path, compiler(), shared=shared)
    require_same(program, make(), inputs)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base"])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_reduced_models(cpu: str, name: str, tmp_path: Path) -> None:
    host = host_processor()
    if cpu != "native" and not (host.arch == X86 and CPUS[cpu].features <= set(host.features)):
        pytest.skip(f"this machine is not {cpu}")
    path, target = reduced(name), f"llvm{{cpu={cpu}}}"
    executable = mirlo.compile(path, target, threads=2, cache=False, jobs=1)
    inputs = executable.random_inputs(0)
    program = make_program(path, tmp_path, compiler(), target, threads=2, weights="embed")
    for found, wanted in zip(program.run(inputs), executable.run(inputs).values(), strict=True):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.sample(0)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitizer: str, tmp_path: Path) -> None:
    flags = sanitizer_flags(compiler(), sanitizer, tmp_path / "probe")
    for name in ("dynamic", "late", "int8"):
        make, inputs = MODELS[name]
        folder = tmp_path / name
        program = make_program(make(), folder, compiler(), threads=2, flags=flags)
        program.run(inputs, 8, 20)


def test_wrong_tensors_are_errors(tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler())
    content = np.array([3, 41], np.int64).tobytes() + bytes(3 * 41 * 4)
    (tmp_path / "inputs").write_bytes(content)
    done = program.start()
    assert done.returncode == 1 and "'x': dim 1 is 41, expected 40" in done.stderr


@mirlo.script
def calls_nothing(x: R.Tensor[(4, 6), R.f32]):
    return R.call_dps_packed("test.none", x, out=R.Tensor[(4,), R.f32])


@pytest.mark.sample(0)
def test_functions_of_the_caller(tmp_path: Path) -> None:
    check_row_sums(make_program(calls_rows, tmp_path, compiler()))
    done = make_program(calls_nothing, tmp_path, compiler()).start()
    assert done.returncode == 3 and "calls 'test.none': name it in options.functions" in done.stderr


@pytest.mark.sample(0)
def test_seeds_are_drawn(tmp_path: Path) -> None:
    model = make_model([node("RandomUniform", "", "y", shape=[50])], {"x": (F32, (1,))}, ["y"])
    program = make_program(model, tmp_path, compiler())
    (found,) = program.run({"x": np.zeros(1, np.float32)}, 1, 1)
    assert (found >= 0).all() and (found < 1).all() and len(set(found.tolist())) > 40


@pytest.mark.skipif(not permits_tiles() or "amx-int8" not in host_cpu().features, reason="needs AMX")
def test_programs_ask_for_the_registers_of_amx(tmp_path: Path) -> None:
    weights = RNG.integers(-128, 128, (256, 96)).astype(np.int8)
    model = make_model(
        [node("MatMulInteger", "a b", "z"), node("Cast", "z", "y", to=1)],
        {"a": (2, [64, 256])}, ["y"], {"b": weights},
    )  # fmt: skip
    program = make_program(model, tmp_path, compiler())
    assert "amx-tile" in mirlo.compile(model, cache=False, jobs=1).artifact.metadata["features"]
    require_same(program, model, {"a": RNG.integers(0, 256, (64, 256)).astype(np.uint8)})


@pytest.mark.sample(0)
def test_weights_in_a_file(tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler(), weights="beside")
    inputs = MODELS["dynamic"][1]
    found = program.run(inputs, 1, 3, str(tmp_path / "model.weights"))
    for one, other in zip(found, mirlo.compile(dynamic_model(), cache=False, jobs=1).run(inputs).values(), strict=True):
        assert one.tobytes() == other.tobytes()
    damaged = bytearray((tmp_path / "model.weights").read_bytes())
    damaged[8] ^= 1  # of the digest
    (tmp_path / "other").write_bytes(damaged)
    (tmp_path / "short").write_bytes(damaged[:70])
    for name, message in (("other", "not the weights"), ("short", "not the weights"), ("none", "cannot read")):
        done = program.start(1, 1, str(tmp_path / name))
        assert done.returncode == 3 and message in done.stderr and "status 4" in done.stderr


@pytest.mark.sample(0)
def test_weights_beside_a_library_are_found(tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler(), weights="beside", shared=True)
    require_same(program, dynamic_model(), MODELS["dynamic"][1])


@pytest.mark.sample(0)
def test_compiled_models_are_linked(tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler(), shared=True)
    mirlo.compile(dynamic_model(), cache=False, jobs=1).save(tmp_path / "m.mirlo")
    (tmp_path / "libmodel.so").unlink()
    link_model(*load(tmp_path / "m.mirlo"), tmp_path / "libmodel.so", "model")
    require_same(program, dynamic_model(), MODELS["dynamic"][1])


@pytest.mark.sample(0)
@pytest.mark.parametrize("weights", ["embed", "beside"])
def test_the_command_link(weights: str, tmp_path: Path) -> None:
    program = make_program(dynamic_model(), tmp_path, compiler(), shared=True)
    mirlo.compile(dynamic_model(), cache=False, jobs=1).save(tmp_path / "m.mirlo")
    library = tmp_path / "libmodel.so"
    library.unlink()
    command = ["link", str(tmp_path / "m.mirlo"), "-o", str(library), "--name", "model", "--weights", weights]
    assert main(command) == 0
    assert (tmp_path / "model.weights").exists() == (weights == "beside")
    require_same(program, dynamic_model(), MODELS["dynamic"][1])


@pytest.mark.sample(0)
def test_a_library_exports_one_symbol(tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    make_program(dynamic_model(), tmp_path, compiler(), shared=True, threads=2)
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "libmodel.so")], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["mirlo_model_model"]


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    "command",
    [
        ("-x", "c", "-std=c99"),
        pytest.param(
            ("-x", "c++", "-std=c++11"),
            marks=pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler"),
        ),
    ],
)
def test_headers_are_of_their_standards(command: tuple[str, ...], tmp_path: Path) -> None:
    for name, content in run_time_files().items():
        (tmp_path / name).write_bytes(content)
    assert len((tmp_path / "mirlo.h").read_text().splitlines()) < 150
    hostile = '*/ #error "x" \\\n??/ $(rm)'
    nodes = [onnx.helper.make_node("Relu", [hostile], ["y"])]
    model = make_model(nodes, {hostile: (F32, (3,))}, ["y"])
    made = mirlo.compile(model, cache=False, jobs=1)
    (tmp_path / "m.h").write_text(model_header(describe(made.artifact, _store(made), 'a"b;\n')))
    files = [name for name in ("mirlo.h", "mirlo.hpp", "m.h") if "c++" in command or name != "mirlo.hpp"]
    for name in files:
        (tmp_path / "use").write_text(f'#include "{name}"\nint main(void) {{ return 0; }}\n')
        flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
        done = subprocess.run(
            [compiler(), *command, *flags, str(tmp_path / "use")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert set(RUN_TIME) == set(run_time_files())


def _store(executable: Any) -> Any:
    return executable._store


@pytest.mark.sample(0)
@pytest.mark.parametrize("weights", ["embed", "beside"])
def test_parts_in_c(weights: str, tmp_path: Path) -> None:
    make, inputs = MODELS["dynamic"]
    program = make_program(make(), tmp_path, compiler(), "c,llvm", shared=True, weights=weights)
    assert program.artifact.externals
    require_same(program, make(), inputs, target="c,llvm")


SEVERAL = "llvm{cpu=x86-64-v2|x86-64-v3}"


@pytest.mark.skipif(host_processor().arch != X86, reason="builds for kinds of x86")
@pytest.mark.parametrize("target", [SEVERAL, f"c,{SEVERAL}"])
@pytest.mark.parametrize("call", ["library", "code", "explain"])
def test_a_library_has_one_build(call: str, target: str) -> None:
    calls = {
        "library": lambda: compile_code(CompileRequest(dynamic_model(), target, form="llvm-ir", cache=False)),
        "code": lambda: kernel_listings(CompileRequest(dynamic_model(), target), "asm"),
        "explain": lambda: explain_model(dynamic_model(), target),
    }
    with pytest.raises(TargetError, match="lists alternatives with .* name one value"):
        calls[call]()


@pytest.mark.sample(0)
@pytest.mark.skipif(host_processor().arch != X86, reason="builds for kinds of x86")
def test_a_model_of_several_builds_is_not_linked(tmp_path: Path) -> None:
    for file, several, options in (
        ("fat.mirlo", "processors", {"target": SEVERAL}),
        ("sizes.mirlo", "sizes", {"specialize": [{"n": 1}]}),
    ):
        mirlo.compile(dynamic_model(), cache=False, jobs=1, **options).save(tmp_path / file)
        with pytest.raises(LibraryError, match=f"builds for several {several}.*compile it for one"):
            link_model(*load(tmp_path / file), tmp_path / "libmodel.so", "model")


def test_models_without_a_library_say_why(tmp_path: Path) -> None:
    made = mirlo.compile(dynamic_model(), "onnxruntime,llvm", cache=False, jobs=1)
    if made.artifact.externals:
        with pytest.raises(LibraryError, match="target 'onnxruntime' compiled parts of the model"):
            describe(made.artifact, _store(made), "m")
    sequence = make_model([node("SplitToSequence", "x", "y", axis=0)], {"x": (F32, (2, 3))}, ["y"])
    with pytest.raises(TargetError, match="the model works on sequences"):
        compile_code(CompileRequest(sequence, form="llvm-ir"))


needs_emulator = pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")


@pytest.mark.sample(0)
@needs_emulator
@pytest.mark.parametrize("name", MODELS)
def test_programs_for_aarch64_under_emulation(name: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    program = make_program(
        make(), tmp_path, emulated_aarch64.COMPILER, emulated_aarch64.TARGET, threads=2, flags=["-static"],
        runner=[emulated_aarch64.EMULATOR],
    )  # fmt: skip
    expected = mirlo.compile(make(), cache=False, jobs=1).run(inputs).values()
    for found, wanted in zip(program.run(inputs), expected, strict=True):
        if name in ("int8", "late", "no rows"):
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def _products(
    signs: str, k: int, is_constant: bool, rows: int = 5
) -> tuple[onnx.ModelProto, list[np.ndarray], np.ndarray]:
    """Return a model of int8 products, its inputs, and the sums."""
    types = {"u": onnx.TensorProto.UINT8, "i": onnx.TensorProto.INT8}
    ranges = {"u": (0, 256, np.uint8), "i": (-128, 128, np.int8)}
    x, w = (
        RNG.integers(*ranges[sign][:2], shape).astype(ranges[sign][2])
        for sign, shape in zip(signs, ((rows, k), (k, 33)), strict=True)
    )
    inputs = {"x": (types[signs[0]], x.shape)} | ({} if is_constant else {"w": (types[signs[1]], w.shape)})
    model = make_model([node("MatMulInteger", "x w", "y")], inputs, ["y"], {"w": w} if is_constant else {})
    return model, [x] if is_constant else [x, w], x.astype(np.int32) @ w.astype(np.int32)


def _arm(cpu: str) -> str:
    return f"llvm{{cpu={cpu} triple=aarch64-linux-gnu}}"


@pytest.mark.sample(0)
@needs_emulator
@pytest.mark.parametrize("signs", ["ui", "ii", "uu", "iu"])
@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-n2"])
def test_products_of_int8_on_an_emulated_aarch64(cpu: str, signs: str) -> None:
    with emulated_aarch64.models_run_emulated():
        for k, is_constant, rows in ((72, True, 5), (70, True, 13), (7, False, 4), (64, True, 1), (24, False, 1)):
            model, arrays, expected = _products(signs, k, is_constant, rows)
            made = mirlo.compile(model, _arm(cpu), cache=False, jobs=1)
            np.testing.assert_array_equal(made(*arrays), expected)


@pytest.mark.sample(0)
@needs_emulator
@pytest.mark.parametrize("is_constant", [True, False])
def test_products_of_bf16_on_an_emulated_aarch64(is_constant: bool) -> None:
    with emulated_aarch64.models_run_emulated():
        for rows, k in ((1, 64), (6, 68), (7, 37)):
            x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((rows, k), (k, 33)))
            inputs = {"x": (F32, x.shape)} | ({} if is_constant else {"w": (F32, w.shape)})
            model = make_model([node("MatMul", "x w", "y")], inputs, ["y"], {"w": w} if is_constant else {})
            made = mirlo.compile(model, _arm("neoverse-n2"), precision="bf16", cache=False, jobs=1)
            wide = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (x, w)]
            found = made(x) if is_constant else made(x, w)
            np.testing.assert_allclose(found, wide[0] @ wide[1], atol=2**-7 * np.sqrt(k))


PRODUCTS = rb"\b(?:[su]|us)(?:dot|mmla)\b|\bbf(?:dot|mmla)\b"


@pytest.mark.sample(6)
@pytest.mark.parametrize(("cpu", "signs", "rows", "instruction"), [
    ("neoverse-n1", "ui", 5, b"sdot"), ("neoverse-n1", "uu", 5, b"udot"), ("cortex-a72", "ui", 5, None),
    ("neoverse-n2", "ii", 5, b"smmla"), ("neoverse-n2", "uu", 5, b"ummla"), ("neoverse-n2", "ui", 5, b"usmmla"),
    ("neoverse-n2", "iu", 5, b"usmmla"), ("neoverse-n2", "ii", 1, b"sdot"), ("neoverse-n2", "ui", 1, b"usdot"),
])  # fmt: skip
def test_dot_products_of_aarch64(cpu: str, signs: str, rows: int, instruction: bytes | None) -> None:
    listings = kernel_listings(CompileRequest(_products(signs, 64, True, rows)[0], _arm(cpu)), "asm")
    code = b"".join(listing.content for listing in listings)
    assert set(re.findall(PRODUCTS, code)) == ({instruction} if instruction else set())


@pytest.mark.parametrize(("rows", "instruction"), [(1, b"bfdot"), (8, b"bfmmla")])
def test_products_of_bf16_of_aarch64(rows: int, instruction: bytes) -> None:
    w = np.ones((64, 32), np.float32)
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, (rows, 64))}, ["y"], {"w": w})
    listings = kernel_listings(CompileRequest(model, _arm("neoverse-n2"), precision="bf16"), "asm")
    assert set(re.findall(PRODUCTS, b"".join(listing.content for listing in listings))) == {instruction}


def test_arithmetic_of_f16_of_aarch64() -> None:
    model = make_model([node("Add", "x x", "y")], {"x": (onnx.TensorProto.FLOAT16, (64,))}, ["y"])
    for cpu, is_native in (("neoverse-n1", True), ("cortex-a72", False)):
        (code,) = (each.content for each in kernel_listings(CompileRequest(model, _arm(cpu)), "asm") if each.nodes)
        assert bool(re.search(rb"fadd\s+v\d+\.8h", code)) == is_native


@pytest.mark.sample(0)
@needs_emulator
def test_operators_on_an_emulated_aarch64() -> None:
    """A sample of `make test-arm`."""
    names = ["relax.matmul", "relax.conv", "relax.softmax", "relax.max_pool", "tir.exp", "tir.pow"]
    done = subprocess.run(
        [sys.executable, emulated_aarch64.__file__, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong, 0 failed" in done.stdout


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", [*MODELS, "weights beside", "f16"])
@pytest.mark.parametrize("machine", MACHINES)
def test_programs_on_other_machines(machine: str, name: str, tmp_path: Path) -> None:
    """Run programs on RISC-V, with and without vectors, on Hexagon, and on WebAssembly."""
    emulated = MACHINES[machine]
    if emulated.missing():
        pytest.skip(emulated.missing())
    make, inputs = MODELS.get(name, (f16_model if name == "f16" else dynamic_model, MODELS["dynamic"][1]))
    weights = "beside" if name == "weights beside" else "auto"
    program = make_program(
        make(), tmp_path, emulated.compiler, emulated.target, threads=emulated.threads, runner=emulated.runner,
        weights=weights,
    )  # fmt: skip
    expected = mirlo.compile(make(), cache=False, jobs=1).run(inputs).values()
    path = [str(path) for path in tmp_path.glob("*.weights")]
    for found, wanted in zip(program.run(inputs, 1, 3, *path), expected, strict=True):
        if name in ("int8", "late", "no rows"):
            np.testing.assert_array_equal(found, wanted)
        else:
            bound = 4e-3 if name == "f16" else 1e-5
            np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=bound, atol=bound / 10)


@pytest.mark.sample(0)
def test_int8_products_of_all_signs_on_hexagon(tmp_path: Path) -> None:
    """Multiply rows and columns of sizes that fill vectors and groups or do not, exactly."""
    emulated, random = MACHINES["hexagonv67"], np.random.default_rng(0)
    if emulated.missing():
        pytest.skip(emulated.missing())
    kinds = {"u": (onnx.TensorProto.UINT8, np.uint8), "i": (onnx.TensorProto.INT8, np.int8)}
    sizes = [
        (1, 64, 64),
        (7, 30, 33),
        (16, 128, 40),
        *((2, 36, columns) for columns in (1, 2, 3, 4, 6, 8, 10, 12, 16, 24)),
    ]
    nodes, shapes, weights, inputs, expected = [], {}, {}, {}, {}
    for (rows, depth, columns), left, right in itertools.product(sizes, kinds, kinds):
        name = f"{left}{right}{rows}_{columns}"
        x = np.frombuffer(random.bytes(rows * depth), kinds[left][1]).reshape(rows, depth)
        w = np.frombuffer(random.bytes(depth * columns), kinds[right][1]).reshape(depth, columns)
        nodes.append(node("MatMulInteger", f"x{name} w{name}", name))
        shapes[f"x{name}"], inputs[f"x{name}"], weights[f"w{name}"] = (kinds[left][0], x.shape), x, w
        expected[name] = x.astype(np.int32) @ w.astype(np.int32)
    model = make_model(nodes, shapes, [*expected], weights)
    program = make_program(model, tmp_path, emulated.compiler, emulated.target, runner=emulated.runner)
    results = program.run(inputs, 1, 3, str(tmp_path / "model.weights"))
    for found, (name, wanted) in zip(results, expected.items(), strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=name)


@pytest.mark.parametrize("signs", ["ui", "uu", "ii", "iu"])
def test_dot_products_of_hexagon(signs: str) -> None:
    listings = kernel_listings(CompileRequest(_products(signs, 64, True, 5)[0], "llvm{cpu=hexagonv68}"), "asm")
    code = b"".join(listing.content for listing in listings)
    kinds = set(re.findall(rb"vrmpy\(v\d+\.(u?b),v\d+\.(u?b)\)", code))
    assert kinds == {{"ui": (b"ub", b"b"), "iu": (b"ub", b"b"), "uu": (b"ub", b"ub"), "ii": (b"b", b"b")}[signs]}


def test_features_of_hexagon_are_those_of_its_models() -> None:
    with pytest.raises(MachineError, match="no code for hexagon uses 'hvxv67'; it uses: those of its models"):
        parse_options("cpu=hexagonv67 features=-hvxv67")


def test_riscv_without_the_vectors_is_refused(tmp_path: Path) -> None:
    """Code for vectors of 512 bits is wrong on shorter ones; without vectors it ends the process."""
    emulated = MACHINES["sifive-x280"]
    if emulated.missing():
        pytest.skip(emulated.missing())
    program = make_program(dynamic_model(), tmp_path, emulated.compiler, emulated.target, runner=emulated.runner)
    inputs = MODELS["dynamic"][1]
    program.run(inputs)
    for cpu, lacking in (("rv64,v=true,vlen=256", "zvl512b"), ("rv64", "v"), ("rv64,v=true,vlen=1024", None)):
        program.runner = (emulated.runner[0], "-cpu", cpu)
        done = program.start()
        if lacking is None:
            assert done.returncode == 0, done.stderr
        else:
            assert done.returncode and f"for a processor with {lacking}, which this one lacks" in done.stderr


@needs_emulator
@pytest.mark.skipif("MIRLO_ARM_MODELS" not in os.environ, reason="part of `make test-arm`")
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50", "bert_base", "gpt2", "vit_base"])
def test_reduced_models_on_an_emulated_aarch64(name: str, tmp_path: Path) -> None:
    path = reduced(name)
    # Which convolutions Winograd's algorithm computes, and in which tiles, follows from the machine: ResNet-50 differs
    # by 1.4e-6 where two machines choose differently, each as near to f64, and by nothing where they choose alike.
    described = emulated_aarch64.TARGET.removeprefix("llvm{").removesuffix("}")
    pipeline = compile_pipeline(CompileOptions(threads=2)).replace(
        "winograd,", f"winograd{{machine={quote(described)}}},"
    )
    executable = mirlo.compile(path, pipeline=pipeline, threads=2, cache=False)
    inputs = executable.random_inputs(0)
    program = make_program(
        path, tmp_path, emulated_aarch64.COMPILER, emulated_aarch64.TARGET, threads=2, flags=["-static"],
        runner=[emulated_aarch64.EMULATOR], weights="embed",
    )  # fmt: skip
    for found, wanted in zip(program.run(inputs, 1, 1), executable.run(inputs).values(), strict=True):
        assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max()
