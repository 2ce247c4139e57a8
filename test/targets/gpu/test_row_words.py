"""Rows in threads: results and elements that threads keep, and those that they exchange in main memory."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R, Schedule, T
from mirlo.testing.ptx.driver import emulated
from mirlo.tools.explain.model import explain_model

ROWS, COLUMNS = 6, 96
NVVM = "nvvm{chip=sm_80}"
TARGETS = [NVVM, pytest.param("spirv", marks=needs_vulkan())]


@mirlo.prim_func
def mirrored(a: T.Buffer[(ROWS, COLUMNS), T.f32], c: T.Out[(ROWS, COLUMNS), T.f32]):
    total = T.alloc((ROWS,), T.f32)
    scale = T.alloc((ROWS,), T.f32)
    scaled = T.alloc((ROWS, COLUMNS), T.f32)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += a[vi, vj]
    for i in T.grid(ROWS):
        with T.block("scale"):
            vi = T.axes("S", i)
            scale[vi] = total[vi] * 0.25
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("scaled"):
            vi, vj = T.axes("SS", i, j)
            scaled[vi, vj] = a[vi, vj] - scale[vi]
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = scaled[vi, COLUMNS - 1 - vj] - scaled[vi, vj]


@mirlo.prim_func
def centered(a: T.Buffer[(ROWS, COLUMNS), T.f32], c: T.Out[(ROWS, COLUMNS), T.f32]):
    total = T.alloc((ROWS,), T.f32)
    halves = T.alloc((ROWS, COLUMNS), T.f32)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("halves"):
            vi, vj = T.axes("SS", i, j)
            halves[vi, vj] = a[vi, vj] * 0.5
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += halves[vi, vj]
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = halves[vi, vj] - total[vi]


@mirlo.script
def mirrored_model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(mirrored, a)


@mirlo.script
def centered_model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(centered, a)


def values() -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_threads_wait_for_elements_of_others(target: str) -> None:
    """Elements that another loop reads in another order are in main memory, which threads of a row exchange."""
    (kernel,) = explain_model(mirrored_model, target=target, tune=False).kernels
    assert "threadIdx.y" in str(kernel.schedule), kernel.schedule
    compiled = mirlo.compile(mirrored_model, target, cache=False, tune=False)
    a = values()
    with emulated("sm_80", races=True):
        found = compiled(a)
    np.testing.assert_array_equal(found, a[:, ::-1] - a)


def in_threads(s: Schedule, edge: int, threads: int = 16) -> None:
    """Compute a row in the threads of a block, which keep its elements; several rows in a block, with an edge."""
    s.merge("halves_i", "total_i", "result_i")
    for block in ("halves", "total", "result"):
        pairs, lanes = s.split(f"{block}_j", (None, 2))
        step, thread = s.split(pairs, (None, threads))
        s.reorder(thread, step)
        s.unroll(step)
        s.vectorize(lanes)
        s.bind(thread, "threadIdx.x")
    s.accumulate("total", s.loops("total")[1], in_order=True)
    row, own = s.split("halves_i", (None, edge))
    s.bind(own, "threadIdx.y")
    s.bind(row, "blockIdx.x")
    for block in ("halves", "total", "result"):
        if s.is_limited(block):
            s.clamp(block)


@pytest.mark.parametrize("threads", [16, 10])
@pytest.mark.parametrize("edge", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_elements_stay_in_registers(target: str, edge: int, threads: int) -> None:
    def words(s: Schedule) -> None:
        in_threads(s, edge, threads)

    compiled = mirlo.compile(centered_model, target, schedules={"centered": words}, cache=False)
    a = values()
    with emulated("sm_80", races=True):
        found = compiled(a)
    np.testing.assert_array_equal(found, a / 2 - (a / 2).sum(1, keepdims=True))
    if target == NVVM and (edge, threads) == (4, 16):
        code = compiled.artifact.code.decode()
        assert ".local." not in code and "bar.sync" not in code
        assert len(re.findall(r"ld\.global", code)) == COLUMNS // threads // 2, "each pair is loaded once"


def test_all_threads_have_to_wait() -> None:
    """Threads that wait for one another in a loop are all of those of a block."""

    def words(s: Schedule) -> None:
        s.merge("total_i", "scale_i", "scaled_i", "result_i")
        s.bind("total_j", "threadIdx.x")
        s.set_scope("scale", "local")
        for block in ("scaled", "result"):
            step, thread = s.split(f"{block}_j", (None, 32))
            s.reorder(thread, step)
            s.bind(thread, "threadIdx.x")
        s.bind("total_i", "blockIdx.x")

    with pytest.raises(
        mirlo.MirloError, match="'result' uses elements that other threads write before it, for which all"
    ):
        mirlo.compile(mirrored_model, NVVM, schedules={"mirrored": words}, cache=False)


def test_reductions_in_memory_are_not_clamped() -> None:
    def words(s: Schedule) -> None:
        s.split("total_j", (None, 40))
        s.clamp("total")

    with pytest.raises(mirlo.MirloError, match=r"clamp: 'total' is a reduction whose results are not in registers"):
        mirlo.compile(centered_model, NVVM, schedules={"centered": words}, cache=False)


@pytest.mark.parametrize("shape", ["2, 7, 33", "1, 3, 64, 1", "1, 8, 32, 32"])
@pytest.mark.parametrize("target", TARGETS)
def test_normalizations_of_one_group(target: str, shape: str) -> None:
    """Loops over the one group do not separate what a thread computes of a row from the loops over its elements."""
    sizes = [int(size) for size in shape.split(",")]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[{shape}] x, float[{sizes[1]}] s, float[{sizes[1]}] b) => '
        f"(float[{shape}] y) {{ y = GroupNormalization <num_groups = 1> (x, s, b) }}"
    )
    (kernel,) = explain_model(model, target=target, tune=False).kernels
    assert kernel.schedule is not None and kernel.schedule.rule.name != "threads", kernel.schedule
    compiled = mirlo.compile(model, target, cache=False, tune=False)
    x = np.random.default_rng(0).integers(-4, 5, sizes).astype(np.float32)
    s, b = np.full(sizes[1], 2, np.float32), np.ones(sizes[1], np.float32)
    with emulated("sm_80", races=True):
        found = compiled(x, s, b)
    axes = tuple(range(1, len(sizes)))
    wanted = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * 2 + 1
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_of_a_dynamic_length(target: str) -> None:
    """A block of threads has no more rows than there are, so that each thread has the result of its row."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1, n] x) => (bool[1] y) '
        "<int64[1] one = {1}, float zero = {0}> { s = ReduceSum <keepdims = 0> (x, one)  y = Greater (s, zero) }"
    )
    (kernel,) = explain_model(model, target=target, tune=False).kernels
    assert kernel.schedule is not None and kernel.schedule.rule.name != "threads", kernel.schedule
    compiled = mirlo.compile(model, target, cache=False, tune=False)
    for count, wanted in ((5, True), (300, True), (301, False)):
        x = np.full((1, count), 1 if wanted else -1, np.float32)
        with emulated("sm_80", races=True):
            assert compiled(x).tolist() == [wanted]
