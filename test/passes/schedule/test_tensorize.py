"""Tiles for hardware: tensor intrinsics that call C functions with addresses and strides, of packed operands too."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context, register_dialect
from mirlo.extend.ops import TensorType, define_intrinsic
from mirlo.extend.rules import intrinsic
from mirlo.extend.schedules import ScheduleError, tensor_intrin
from mirlo.passes.schedule.primitives.arguments import PRIMITIVES
from mirlo.runtime.object_loader import define_symbol

ROOT = Path(__file__).parents[3]
M, N, K, TILE = 16, 24, 32, 8
CALLS: list[tuple[int, int, int]] = []
_F32 = ctypes.POINTER(ctypes.c_float)
_WORD = ctypes.c_int64


def _rows(pointer: Any, stride: int) -> np.ndarray:
    flat = np.ctypeslib.as_array(pointer, (stride * (TILE - 1) + TILE,))
    return np.lib.stride_tricks.as_strided(flat, (TILE, TILE), (4 * stride, 4))


@ctypes.CFUNCTYPE(None, _F32, _WORD, _F32, _WORD, _F32, _WORD)
def test_mma(a: Any, a_row: int, b: Any, b_row: int, c: Any, c_row: int) -> None:
    CALLS.append((a_row, b_row, c_row))
    _rows(c, c_row)[...] += _rows(a, a_row) @ _rows(b, b_row)


define_symbol("test_tile_mma", ctypes.cast(test_mma, ctypes.c_void_p).value)
DIALECT = register_dialect("tiles")
define_intrinsic(DIALECT, "mma", "hihihi", None, pure=False, doc="c += a @ b of 8 x 8, with the strides of rows")


@intrinsic("tiles.mma", target="llvm")
def lower_mma(op: Any, b: Any) -> None:
    words = iter(op.nums)
    given = [value if str(value.type).startswith(("memref", "!llvm")) else next(words) for value in op.args]
    b.call_extern("test_tile_mma", None, *given)


@mirlo.prim_func
def means(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        with T.block("mma"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def does(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    T.call_extern("test_tile_mma", a, T.stride(a, 0), b, T.stride(b, 0), c, T.stride(c, 0))


@mirlo.prim_func(buffers=True)
def does_own(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    T.call_intrin("tiles.mma", a, T.stride(a, 0), b, T.stride(b, 0), c, T.stride(c, 0))


@mirlo.prim_func(buffers=True)
def does_loops(a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
    for i, j, k in T.grid(TILE, TILE, TILE):
        c[i, j] += a[i, k] * b[k, j]


tensor_intrin("test.mma", means, does)
tensor_intrin("test.mma_own", means, does_own)
tensor_intrin("test.mma_loops", means, does_loops)


@mirlo.prim_func
def product(left: T.Buffer[(M, K), T.f32], right: T.Buffer[(K, N), T.f32], out: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                out[vi, vj] = 0.0
            out[vi, vj] += left[vi, vk] * right[vk, vj]


@mirlo.script
def model(a: R.Tensor[(M, K), R.f32], b: R.Tensor[(K, N), R.f32]):
    return R.call_tir(product, a, b)


TYPES = (TensorType.of((M, K), "f32"), TensorType.of((K, N), "f32"))
PACKINGS = {
    "plain": ((), ()),
    "transposed": ((1, 0), ()),
    "tiles": ((0, 1), ((0, TILE), (1, TILE))),
    "transposed tiles": ((1, 0), ((0, TILE), (1, TILE))),
    "columns": ((1, 0), ((1, TILE),)),
    "large tiles": ((0, 1), ((0, 2 * TILE), (1, TILE))),
}


def tiled(s: Any, name: str, packing: str = "", cached: bool = False) -> None:
    i, j, k = s.loops("matmul")
    _, _, ko, ii, _, _ = s.tile((i, j, k), (TILE, TILE, TILE))
    if cached:
        s.cache_write("matmul")
    if packing:
        order, tiles = PACKINGS[packing]
        s.pack(s.cache_read("matmul", 1), order, tiles)
    s.decompose_reduction("matmul", ko)
    s.tensorize(ii, name)


def run(schedule: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    CALLS.clear()
    found = mirlo.compile(model, schedules={"product": schedule}, cache=False)(a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["test.mma", "test.mma_own"])
@pytest.mark.parametrize("cached", [False, True])
def test_calls_with_addresses_and_strides(name: str, cached: bool) -> None:
    run(lambda s: tiled(s, name, cached=cached))
    assert CALLS == [(K, N, N)] * (M * N * K // TILE**3)


STRIDES = {"plain": N, "tiles": TILE, "columns": TILE, "large tiles": TILE}


@pytest.mark.sample(2)
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", ["test.mma", "test.mma_loops"])
def test_packed_operands(packing: str, name: str) -> None:
    if name == "test.mma" and packing.startswith("transposed"):
        pytest.skip("the C function takes rows whose elements are beside each other")
    run(lambda s: tiled(s, name, packing))
    if name == "test.mma":
        assert {b for _, b, _ in CALLS} == {STRIDES[packing]}


@pytest.mark.parametrize("tile", [4, 12])
def test_tiles_that_strides_do_not_reach(tile: int) -> None:
    def schedule(s: Any) -> None:
        PACKINGS["other"] = ((0, 1), ((0, tile),))
        tiled(s, "test.mma", "other")

    try:
        with pytest.raises(
            mirlo.MirloError, match=f"takes 8 elements of dim 0 .* packed in tiles of {tile}: they would"
        ):
            run(schedule)
    finally:
        del PACKINGS["other"]


def test_buffers_have_the_names_of_the_user() -> None:
    s = Schedule.of(product, *TYPES)
    assert s.buffers() == ["left", "right", "out"]
    assert s.reads("matmul") == ["left", "right"]
    assert "out[matmul_i, matmul_j] += left[matmul_i, matmul_k], right[matmul_k, matmul_j]" in str(s)
    assert s.cache_read("matmul", "right", "local") == "right_local"
    mirlo.compile(model, schedules={"product": lambda s: s.cache_read("matmul", "right")})


@mirlo.prim_func
def neighbours(x: T.Buffer[(TILE + 1,), T.f32], y: T.Out[(TILE,), T.f32]):
    for i in T.grid(TILE):
        with T.block("sum"):
            vi = T.axes("S", i)
            y[vi] = x[vi] + x[vi + 1]


def test_a_tile_that_is_copied_has_one_element_in_each_iteration() -> None:
    s = Schedule.of(neighbours, TensorType.of((TILE + 1,), "f32"))
    with pytest.raises(ScheduleError, match="'sum' reads no element of 'x', or several"):
        s.cache_read("sum", "x", "local", ["sum_i"])


def test_strides_are_of_buffers() -> None:
    def wrong(a: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]):
        T.call_extern("test_tile_mma", a, T.stride(a, 2), c)

    with (
        make_context(),
        ir.Location.unknown(),
        pytest.raises(mirlo.MirloError, match="'a' has dims 0 to 1, found 2"),
    ):
        mirlo.prim_func(buffers=True)(wrong).build({}, "wrong")


def test_words_in_messages_exist() -> None:
    """Every word that an error message of schedules begins with, or advises, is a method of Schedule."""
    folder = ROOT / "passes" / "schedule" / "primitives"
    texts = [text for path in folder.glob("*.py") for text in re.findall(r'"([^"\n]*)"', path.read_text())]
    named = {word for text in texts for word in re.match(r"(?:([a-z_]+): )?", text).groups() if word}
    named |= {
        word
        for text in texts
        for word in re.findall(r"\(([a-z]+_[a-z]+)\)|apply ([a-z_]+)", text)
        for word in word
        if word
    }
    assert {"tensorize", "pack", "cache_read", "decompose_reduction"} <= named
    missing = sorted(word for word in named if not callable(getattr(Schedule, word, None)))
    assert not missing
    assert all(inspect.isfunction(getattr(Schedule, word)) for word in PRIMITIVES)


@pytest.mark.sample(0)
def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("npu_feed_forward", ROOT / "examples" / "npu_feed_forward.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    unit = example.start_unit(tmp_path)
    rng = np.random.default_rng(0)
    shapes = ((768, 3072), (3072,), (3072, 768), (768,))
    w1, b1, w2, b2 = weights = [(rng.standard_normal(shape) / 30).astype(np.float32) for shape in shapes]
    x = rng.standard_normal((128, 768)).astype(np.float32)
    found = example.compile_layer()(x, *weights)
    assert unit.npu_calls() == 2 * 128 * 768 * 3072 // 16**3
    inner = x.astype(np.float64) @ w1 + b1
    erf = np.vectorize(__import__("math").erf)
    expected = (inner * 0.5 * (1 + erf(inner / np.sqrt(2)))) @ w2 + b2 + x
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_what_is_no_tile() -> None:
    with pytest.raises(ScheduleError, match="the loops are"):
        Schedule.of(product, *TYPES).tensorize("matmul_i", "test.mma")


def sums(kind: str, start: float, count: int = 50) -> Any:
    @mirlo.prim_func
    def reduce(x: T.Buffer[(6, count), kind], y: T.Out[(6,), kind]):
        for i, k in T.grid(6, count):
            with T.block("total"):
                vi, vk = T.axes("SR", i, k)
                with T.init():
                    y[vi] = start
                y[vi] += x[vi, vk]

    return reduce


def largest(kind: str, start: float, count: int = 50) -> Any:
    @mirlo.prim_func
    def reduce(x: T.Buffer[(6, count), kind], y: T.Out[(6,), kind]):
        for i, k in T.grid(6, count):
            with T.block("total"):
                vi, vk = T.axes("SR", i, k)
                with T.init():
                    y[vi] = start
                y[vi] = T.max(y[vi], x[vi, vk])

    return reduce


@pytest.mark.sample(4)
@pytest.mark.parametrize("lanes", [1, 8, 10, 16])
@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    ("make", "kind", "start", "oracle"),
    [(sums, "f32", 0.0, np.sum), (sums, "i32", 0, np.sum), (largest, "f32", -np.inf, np.max)],
    ids=["sum of f32", "sum of i32", "maximum"],
)
def test_partial_results(make: Any, kind: str, start: float, oracle: Any, outer: bool, lanes: int) -> None:
    function = make(kind, start)

    @mirlo.script
    def program(x: R.Tensor[(6, 50), kind]):
        return R.call_tir(function, x)

    def schedule(s: Schedule) -> None:
        i, k = s.loops("total")
        ko, ki = s.split(k, (None, lanes))
        factored = ko if outer else ki
        made = s.rfactor("total", factored)
        assert made == "total_rf" and s.blocks() == ["total_rf", "total"]
        assert s.kinds(made)[factored] == "spatial"
        if outer:
            s.reorder(ko, i, ki)
            s.parallel(ko)
        else:
            s.vectorize(ki)

    x = (np.random.default_rng(0).standard_normal((6, 50)) * 9).astype("float32" if kind == "f32" else "int32")
    found = mirlo.compile(program, schedules={"reduce": schedule}, cache=False)(x)
    np.testing.assert_allclose(found, oracle(x, axis=1), rtol=1e-5, atol=1e-4)


def test_what_has_no_partial_results() -> None:
    of = TensorType.of
    s = Schedule.of(sums("f32", 1.0), of((6, 50), "f32"))
    with pytest.raises(ScheduleError, match="'total' starts from 1.0, which each partial result would count"):
        s.rfactor("total", "total_j")
    s = Schedule.of(sums("f32", 0.0), of((6, 50), "f32"))
    with pytest.raises(ScheduleError, match="'total_i' is not a loop of the reduction 'total'"):
        s.rfactor("total", "total_i")
    s.decompose_reduction("total", "total_j")
    with pytest.raises(ScheduleError, match="'total' is not a reduction, or is decomposed already"):
        s.rfactor("total", "total_j")
