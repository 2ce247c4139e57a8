"""Products on AMX: by its emulation on every machine, by the processor where it has it, and the code of both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from commands import output_of, run_script

import mirlo
from mirlo import R
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.system import permits_tiles
from mirlo.targets.llvm.schedule.contraction.matrix_unit_choices import RowTiles, row_tiles
from mirlo.testing import assert_verified
from mirlo.tools.fuzz.guarded_memory import GuardedMemory

EMULATED, WITHOUT = "llvm{tiles=emulated}", "llvm{tiles=none}"
can_emulate = pytest.mark.skipif(not {"avx2", "fma"} <= host_cpu().features, reason="needs AVX2 and FMA")
has_amx = pytest.mark.skipif(
    "amx-bf16" not in host_cpu().features or not permits_tiles(), reason="needs a processor with AMX"
)
SHAPES = [
    (32, 128, 96),
    (37, 96, 70),
    (5, 1024, 64),
    (64, 512, 48),
    (64, 512, 50),
    (197, 64, 40),
    (16, 1024, 16),
    (49, 96, 100),
]
"""Rows, products and columns: whole tiles, rests of both, one register of rows, one of columns."""
SIGNS = [("ui8", "i8"), ("i8", "i8"), ("ui8", "ui8"), ("i8", "ui8")]


def product(m: int, k: int, n: int, activation: Any = R.relu) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a model of a product with a bias and an activation, its input, and its result in f64 for bf16."""
    random = np.random.default_rng([m, k, n])
    w = random.standard_normal((k, n)).astype(np.float32)
    b = random.standard_normal(n).astype(np.float32)

    @mirlo.script
    def model(a: R.Tensor[(m, k), R.f32]):
        return activation(R.add(R.matmul(a, R.const(w)), R.const(b)))

    x = random.standard_normal((m, k)).astype(np.float32)
    narrow = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (x, w)]
    return model, x, narrow[0] @ narrow[1] + b


def convolution(channels: int, size: int, out: int, taps: int, stride: int, padding: int) -> tuple[Any, np.ndarray]:
    """Return a model of a convolution with a bias, and its input."""
    random = np.random.default_rng([channels, size, out])
    w = random.standard_normal((out, channels, taps, taps)).astype(np.float32)
    b = random.standard_normal((1, out, 1, 1)).astype(np.float32)
    strides, border = (stride, stride), (padding,) * 4

    @mirlo.script
    def model(a: R.Tensor[(1, channels, size, size), R.f32]):
        return R.add(R.conv2d(a, R.const(w), strides=strides, padding=border), R.const(b))

    return model, random.standard_normal((1, channels, size, size)).astype(np.float32)


def listing(model: Any, target: str, form: str = "asm", **options: Any) -> str:
    """Return the code of the kernels of a model."""
    request = CompileRequest(model, target=target, cache=False, precision="bf16", **options)
    return "\n".join(each.content.decode() for each in kernel_listings(request, form, None))


@can_emulate
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_bf16(shape: tuple[int, int, int]) -> None:
    model, x, wanted = product(*shape)
    found = mirlo.compile(model, precision="bf16", target=EMULATED, cache=False)(x)
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-5, atol=2e-5 * shape[1] ** 0.5)


@can_emulate
@pytest.mark.parametrize(("left", "right"), SIGNS)
@pytest.mark.parametrize("rows", [32, 37])
def test_products_of_int8_are_exact(rows: int, left: str, right: str, tmp_path: Path) -> None:
    def operand(kind: str, shape: tuple[int, int]) -> np.ndarray:
        info = np.iinfo(np.uint8 if kind == "ui8" else np.int8)
        return np.random.default_rng(1).integers(info.min, info.max + 1, shape).astype(info.dtype)

    x, w = operand(left, (rows, 192)), operand(right, (192, 70))
    types = f"tensor<{rows}x192x{left}>", f"tensor<192x70x{right}>", f"tensor<{rows}x70xi32>"
    path = tmp_path / "product.mlir"
    path.write_text(f"""func.func @main(%x: {types[0]}) -> {types[2]} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {types[1]}
      %0 = "relax.matmul"(%x, %w) {{out_dtype = i32, transpose_rhs = false}} : ({types[0]}, {types[1]}) -> {types[2]}
      return %0 : {types[2]}
    }}""")
    store = ParameterStore()
    store.add("w", w)
    compiled = mirlo.compile(str(path), target=EMULATED, params=store, save_ir=tmp_path / "ir", cache=False)
    schedule = next((tmp_path / "ir").glob("*-schedule.mlir")).read_text()
    assert f"llvm.x86.tdpb{'u' if left == 'ui8' else 's'}{'u' if right == 'ui8' else 's'}d" in schedule
    np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_equal_to_their_definitions(shape: tuple[int, int, int]) -> None:
    """Their instructions have a meaning that needs no such processor."""
    model, _, _ = product(*shape)
    assert_verified(model, "llvm{cpu=sapphirerapids}", precision="bf16", cache=False)


@pytest.mark.parametrize(("left", "right"), SIGNS)
def test_products_of_int8_are_equal_to_their_definitions(left: str, right: str) -> None:
    types = f"tensor<37x192x{left}>", f"tensor<192x70x{right}>", "tensor<37x70xi32>"
    store = ParameterStore()
    store.add("w", np.ones((192, 70), np.uint8 if right == "ui8" else np.int8))
    assert_verified(
        f"""func.func @main(%x: {types[0]}) -> {types[2]} {{
          %w = "relax.constant"() {{param = "w"}} : () -> {types[1]}
          %0 = "relax.matmul"(%x, %w) {{out_dtype = i32, transpose_rhs = false}}
            : ({types[0]}, {types[1]}) -> {types[2]}
          return %0 : {types[2]}
        }}""",
        "llvm{cpu=sapphirerapids}", params=store, cache=False,
    )  # fmt: skip


@can_emulate
@pytest.mark.parametrize(
    "case", [(32, 14, 40, 3, 1, 1), (64, 9, 32, 3, 2, 1), (32, 14, 64, 1, 1, 0), (32, 7, 96, 5, 1, 2)]
)
def test_convolutions(case: tuple[int, int, int, int, int, int]) -> None:
    model, x = convolution(*case)
    assert "tdpbf16ps" in listing(model, "llvm{cpu=sapphirerapids}", "llvm-dialect")
    found, wanted = (
        mirlo.compile(model, target=target, precision=precision, cache=False)(x)
        for target, precision in ((EMULATED, "bf16"), (WITHOUT, None))
    )
    assert np.abs(found - wanted).max() < 2**-6 * np.abs(wanted).max()


@can_emulate
def test_threads_have_registers_of_their_own() -> None:
    model, x, _ = product(64, 256, 192)
    one, two = (
        mirlo.compile(model, precision="bf16", target=EMULATED, threads=count, cache=False)(x) for count in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@has_amx
@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_emulation_computes_what_the_processor_does(shape: tuple[int, int, int]) -> None:
    model, x, _ = product(*shape)
    x[0, :4] = [1e-39, np.inf, 3e38, -1e-41]
    found, emulated = (
        mirlo.compile(model, precision="bf16", target=target, cache=False)(x) for target in ("llvm", EMULATED)
    )
    np.testing.assert_array_equal(found, emulated)


def test_code_has_one_configuration_and_no_stores_in_the_loop() -> None:
    model, _, _ = product(128, 768, 96)
    text = listing(model, "llvm{cpu=sapphirerapids}")
    assert text.count("ldtilecfg") == 1
    assert "rsp" not in (inner := _inner_loop(text))
    assert len(re.findall("tdpbf16ps", inner)) == len(re.findall("tileloadd", inner)) == 4
    assert "tilestored" not in inner and len(inner.splitlines()) <= 14


def _inner_loop(text: str) -> str:
    """Return the smallest piece of code from a label to a jump back to it that multiplies."""
    loops = re.findall(r"^(\.LBB\w+):((?:(?!^\.LBB).)*?)\n\s+j\w+\s+\1$", text, re.MULTILINE | re.DOTALL)
    return min((body for _, body in loops if "tdpbf16ps" in body), key=len)


@pytest.mark.parametrize("target", ["llvm{cpu=znver4}", "llvm{cpu=sapphirerapids tiles=none}"])
def test_other_processors_have_no_tiles(target: str) -> None:
    model, _, _ = product(32, 128, 96)
    text = listing(model, target)
    assert "ldtilecfg" not in text and ("vdpbf16ps" in text) == ("znver4" in target)


@pytest.mark.parametrize(
    ("extent", "tiles"),
    [
        (9, RowTiles(9, 9)),
        (16, RowTiles(16, 16)),
        (128, RowTiles(16, 32)),
        (197, RowTiles(16, 32, 16)),
        (28, RowTiles(14, 28)),
        (56, RowTiles(14, 28)),
        (49, RowTiles(16, 32)),
    ],
)
def test_rows_of_tiles(extent: int, tiles: RowTiles) -> None:
    assert row_tiles(extent, 16) == tiles


REFUSED = """
import ctypes, threading, numpy as np, mirlo
from mirlo.runtime import system
from mirlo.runtime.errors import NotForThisMachine

class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

libc, ready, done = ctypes.CDLL(None), threading.Event(), threading.Event()

def with_small_stack():
    memory = ctypes.create_string_buffer(4096)
    libc.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 4096)), None)
    ready.set()
    done.wait()

thread = threading.Thread(target=with_small_stack)
thread.start()
ready.wait()
try:
    assert not system.permits_tiles()
    try:
        mirlo.load({path!r})
    except NotForThisMachine as error:
        assert "does not permit" in str(error), error
    else:
        raise AssertionError("loaded")
    from mirlo.targets.llvm.options import parse_options
    assert not parse_options().machine.tiles
finally:
    done.set()
    thread.join()
"""


@has_amx
def test_code_is_not_loaded_where_the_system_refuses_registers(tmp_path: Any) -> None:
    model, _, _ = product(32, 128, 96)
    path = tmp_path / "product.mirlo"
    mirlo.compile(model, precision="bf16", cache=False).save(path)
    run = subprocess.run([sys.executable, "-c", REFUSED.format(path=str(path))], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@can_emulate
def test_batches_that_only_the_run_time_knows() -> None:
    random, batch = np.random.default_rng(4), "batch"
    w = random.standard_normal((96, 104)).astype(np.float32)

    @mirlo.script
    def model(a: R.Tensor[(batch, 37, 96), R.f32]):
        return R.relu(R.matmul(a, R.const(w)))

    assert "tdpbf16ps" in listing(model, "llvm{cpu=sapphirerapids}", "llvm-dialect")
    narrow = mirlo.compile(model, target=EMULATED, precision="bf16", cache=False)
    wide = mirlo.compile(model, cache=False)
    for count in (0, 1, 3):
        x = random.standard_normal((count, 37, 96)).astype(np.float32)
        wanted = wide(x)
        assert np.abs(narrow(x) - wanted).max(initial=0) <= 2**-6 * np.abs(wanted).max(initial=0)


@can_emulate
@pytest.mark.sample(3)
@pytest.mark.parametrize("has_epilogue", [False, True])
@pytest.mark.parametrize(
    "shape", [(64, 512, 50), (64, 512, 24), (49, 96, 33), (5, 1024, 64), (33, 512, 16), (64, 512, 48)]
)
def test_nothing_is_read_or_written_beyond_operands(shape: tuple[int, int, int], has_epilogue: bool) -> None:
    """Registers are whole where rows or columns are not: calls run in memory between inaccessible pages."""
    m, k, n = shape
    random = np.random.default_rng(shape)
    w = random.standard_normal((k, n)).astype(np.float32)

    @mirlo.script
    def plain(a: R.Tensor[(m, k), R.f32]):
        return R.matmul(a, R.const(w))

    @mirlo.script
    def activated(a: R.Tensor[(m, k), R.f32]):
        return R.relu(R.matmul(a, R.const(w)))

    x = random.standard_normal((m, k)).astype(np.float32)
    model = activated if has_epilogue else plain
    _require_bounds(model, x)


@can_emulate
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "case", [(32, 15, 40, 3, 1, 1), (64, 9, 32, 3, 2, 1), (32, 15, 64, 1, 2, 0), (32, 7, 96, 5, 1, 2)]
)
def test_convolutions_stay_inside_of_operands(case: tuple[int, int, int, int, int, int]) -> None:
    _require_bounds(*convolution(*case))


def _require_bounds(model: Any, x: np.ndarray) -> None:
    """Run a model in memory between inaccessible pages; check its results and that it writes nothing outside."""
    compiled = mirlo.compile(model, target=EMULATED, precision="bf16", cache=False)
    wanted = compiled(x)
    for at_end in (False, True):
        memory = GuardedMemory(at_end)
        guarded = memory.executable(compiled)
        memory.begin(0xFF)
        np.testing.assert_array_equal(guarded(memory.read_only(x)), wanted)
        assert memory.overwritten() is None


@can_emulate
def test_the_benchmark_runs_where_no_processor_has_tiles() -> None:
    """Each row is computed, and those in bf16 are as exact as bf16 is."""
    output = output_of(run_script("-m", "benchmarks.amx", "--emulated", "--models", ""))
    errors = [float(error) for error in re.findall(r"error ([^;\s]+)", output)]
    assert len(errors) == 3 * len(output.splitlines()) == 18
    assert 0 < max(errors) < 2**-6
