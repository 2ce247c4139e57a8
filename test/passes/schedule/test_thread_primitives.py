"""Invalid uses of loops bound to threads: each error states the expected use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import needs_vulkan
from schedules import scheduled

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.testing.ptx.driver import emulated

ROWS, COLUMNS = 8, 64


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
            total[vi] += halves[vi, vj] + a.at(vi - 1, vj, outside=0.0)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = halves[vi, COLUMNS - 1 - vj] - total[vi]


@mirlo.prim_func
def alternating(a: T.Buffer[(COLUMNS,), T.f32], c: T.Out[(1,), T.f32]):
    for i, j in T.grid(1, COLUMNS):
        with T.block("last"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                c[vi] = 0.0
            c[vi] = a[vj] - c[vi]


@mirlo.prim_func
def doubled(a: T.Buffer[(ROWS, COLUMNS), T.f32], c: T.Out[(ROWS, COLUMNS), T.f32]):
    halves = T.alloc((ROWS, COLUMNS), T.f32)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("halves"):
            vi, vj = T.axes("SS", i, j)
            halves[vi, vj] = a[vi, vj] * 0.5
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = halves[vi, vj] * 2.0


@mirlo.script
def doubled_model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(doubled, a)


@mirlo.script
def model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(centered, a)


def fresh() -> Schedule:
    return Schedule.of(centered, TensorType.of((ROWS, COLUMNS), "f32"))


def in_rows(s: Schedule, result: int = 32, total: int = 32, blocks: str = "total halves") -> None:
    """Compute a row in a block of threads; the results of each block are in memory that the primitives do not name."""
    row = s.loops("result")[0]
    for block in blocks.split():
        s.compute_at(block, row)
    for block, threads in (("halves", 32), ("total", total), ("result", result)):
        s.bind(s.split(s.loops(block)[-1], (None, threads))[1], "threadIdx.x")
    s.bind(row, "blockIdx.x")


def share(s: Schedule) -> None:
    """Share halves and sums among threads."""
    s.set_scope("halves", "shared")
    s.set_scope("total", "local")


def test_threads_share_what_others_write() -> None:
    s = fresh()
    in_rows(s)
    share(s)
    a = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    compiled = mirlo.compile(model, "nvvm{chip=sm_80}", schedules={"centered": s}, cache=False)
    with emulated("sm_80", races=True):
        found = compiled(a)
    halves = a / 2
    total = halves.sum(1, keepdims=True)
    total[1:] += a.sum(1, keepdims=True)[:-1]
    np.testing.assert_array_equal(found, halves[:, ::-1] - total)


def test_vectors_of_shared_memory() -> None:
    """Views of shared memory have its type."""

    def primitives(s: Schedule) -> None:
        s.compute_at("halves", "result_i")
        s.set_scope("halves", "shared")
        s.bind("halves_j", "threadIdx.x")
        s.bind(s.split("result_j", (None, 16, 4))[1], "threadIdx.x")
        s.vectorize("result_j_2")
        s.bind("result_i", "blockIdx.x")

    a = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    with emulated("sm_80", races=True):
        found = mirlo.compile(doubled_model, "nvvm{chip=sm_80}", schedules={"doubled": primitives}, cache=False)(a)
    np.testing.assert_array_equal(found, a)


@pytest.mark.sample(2)
@pytest.mark.parametrize("scope", ["local", "shared"])
@pytest.mark.parametrize("kind", ["unroll", "vectorize"])
def test_one_thread_computes_an_unrolled_loop(scope: str, kind: str) -> None:
    """The first thread stores in each iteration; views of shared memory have its type."""

    def primitives(s: Schedule) -> None:
        s.compute_inline("halves")
        s.compute_at("total", "result_i")
        s.set_scope("total", scope)
        s.bind(s.split("total_j", (None, 32))[1], "threadIdx.x")
        s.bind("result_i", "blockIdx.x")
        getattr(s, kind)("result_j")

    a = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    total = (a / 2).sum(1, keepdims=True)
    total[1:] += a.sum(1, keepdims=True)[:-1]
    with emulated("sm_80", races=True):
        found = mirlo.compile(model, "nvvm{chip=sm_80}", schedules={"centered": primitives}, cache=False)(a)
    np.testing.assert_array_equal(found, a[:, ::-1] / 2 - total)


AT_ONCE: dict[str, Callable[[Schedule], object]] = {
    "'total_j' is a loop of the reduction 'total', whose iterations depend on one another": lambda s: (
        s.bind("total_j", "blockIdx.x")
    ),
    "bind: 'total' is decomposed; across threads, a reduction starts from its initial value once": lambda s: (
        s.decompose_reduction("total", "total_j"), s.bind("total_j", "threadIdx.x"),
    ),
    "decompose_reduction: 'total' is reduced across the threads of 'total_j'": lambda s: (
        s.bind("total_j", "threadIdx.x"), s.decompose_reduction("total", "total_j"),
    ),
    "cache_read: expected blocks in their order, found 'result' first": lambda s: (
        s.cache_read(["result", "total"], "halves")
    ),
    "cache_read: expected a block": lambda s: s.cache_read([], "halves"),
    "set_scope: 'c' is a parameter; set the scope of a copy of it": lambda s: s.set_scope("c", "local"),
}  # fmt: skip


@pytest.mark.parametrize("message", AT_ONCE)
def test_a_primitive_that_cannot_be_applied_says_why(message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        AT_ONCE[message](fresh())
    assert message in str(caught.value)


def test_results_that_cannot_be_combined_have_one_thread() -> None:
    s = Schedule.of(alternating, TensorType.of((COLUMNS,), "f32"))
    with pytest.raises(ScheduleError, match="bind: 'last' does not end with one operation on its former result"):
        s.bind("last_j", "threadIdx.x")


WHEN_EMITTED: dict[str, Callable[[Schedule], object]] = {
    "bind: 'result_j' and 'result_i' around it are both bound to 'threadIdx.x'": lambda s: (
        s.bind("result_i", "threadIdx.x"), s.bind("result_j", "threadIdx.x"),
    ),
    "bind: 'total' is in 'result_i', but not in 'result_j', which is bound to 'blockIdx.x'": lambda s: (
        s.compute_at("total", "result_i"), s.bind("result_j", "blockIdx.x"),
    ),
    "'total' is 'local' memory of the kernel of 'total', and 'result' uses it in another one": lambda s: (
        s.set_scope("total", "local"), s.bind("total_i", "blockIdx.x"), s.bind("result_i", "blockIdx.x"),
    ),
    "bind: 'total' is reduced across threads, all of which must take part: 'total_j_1' has 16 iterations": lambda s: (
        in_rows(s, total=16), share(s),
    ),
    "no loop around it is bound to 'threadIdx.y', as 'result_j_1' is: bind a loop around both": lambda s: (
        s.compute_at("total", "result_i"), s.bind(s.split("total_j", (None, 32))[1], "threadIdx.x"),
        s.split("result_j", (None, 8)), s.bind("result_j_1", "threadIdx.y"), s.bind("result_i", "blockIdx.x"),
    ),
    "'halves' is 'shared' memory of the kernel of 'halves', and 'total' uses it in another one": lambda s: (
        s.set_scope("halves", "shared"), s.cache_read(["total", "result"], "halves", "local"),
        s.compute_inline("halves_local"),
        *(s.bind(f"{block}_i", "blockIdx.x") for block in ("halves", "total", "result")),
    ),
    "unswitch: 'total' in 'total_j_0' is reduced across threads, which wait for one another": lambda s: (
        s.bind(s.split("total_j", (None, 32))[1], "threadIdx.x"), s.unswitch("total_j_0"),
    ),
    "'total' adds up elements of 'total' that several iterations of 'result_j', which is bound": lambda s: (
        s.compute_at("total", "result_j"), s.bind("result_j", "threadIdx.x"), s.bind("result_i", "blockIdx.x"),
    ),
    "'result' uses elements of 'halves' that other threads write in 'halves': let them share it": lambda s: (
        in_rows(s), s.set_scope("total", "local"),
    ),
    "'result' uses elements of 'total' that other threads write in 'total': let them share it": lambda s: (
        in_rows(s), s.set_scope("halves", "shared"),
    ),
    "'total' uses what other threads write to 'halves' in 'halves', in the same iteration of 'result_i_1'": lambda s: (
        s.split("result_i", (None, 4)), s.compute_at("total", "result_i_1"), s.compute_at("halves", "result_i_1"),
        s.bind(s.loops("halves")[-1], "threadIdx.x"), s.bind("result_j", "threadIdx.x"), share(s),
        s.bind("result_i_1", "threadIdx.y"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", WHEN_EMITTED)
def test_a_schedule_that_cannot_be_emitted_says_why(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(model, "spirv", schedules={"centered": lambda s: WHEN_EMITTED[message](s) and None}, cache=False)
    assert message in str(caught.value)


CPU_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "bind: 'total_j' is bound to 'threadIdx.x', which target '{}' does not have": lambda s: (
        s.bind("total_j", "threadIdx.x")
    ),
    "bind: 'result_i' is bound to 'blockIdx.x', which target '{}' does not have": lambda s: (
        s.bind("result_i", "blockIdx.x")
    ),
    "set_scope: 'halves' is given 'shared' memory, which target '{}' does not have": lambda s: (
        s.set_scope("halves", "shared")
    ),
    "cache_read: 'a' is given 'shared' memory, which target '{}' does not have": lambda s: (
        s.cache_read("halves", "a", "shared")
    ),
    "cache_write: 'total' is given 'shared' memory, which target '{}' does not have": lambda s: (
        s.cache_write("total", "shared")
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("message", CPU_ERRORS)
def test_cpus_have_no_such_threads(target: str, message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(model, target, schedules={"centered": lambda s: CPU_ERRORS[message](s) and None}, cache=False)
    assert f"the schedule given for '@centered': {message.format(target)}" in str(caught.value)


GPU_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "bind: there is no hardware axis 'threadIdx.w' for 'total_j'; did you mean 'threadIdx.z'?; there are": lambda s: (
        s.bind("total_j", "threadIdx.w")
    ),
    "set_scope: 'halves' is given 'far' memory, which target '{}' does not have: expected 'local'": lambda s: (
        s.set_scope("halves", "far")
    ),
    "bind: no loop of 'result' is bound to an axis of target '{}', and one thread would run all iterations of "
    "'result_i': bind its loops to 'blockIdx.x' and 'threadIdx.x', make one parallel": lambda s: (
        s.vectorize(s.split("result_j", (None, 24))[1])
    ),
    "bind: no loop of 'total', 'result' is bound": lambda s: s.compute_at("total", "result_i"),
    "bind: no loop of 'a_local' is bound": lambda s: s.cache_read("halves", "a", "local"),
    "parallel: 'result_i' is in the kernel of 'result_j', whose threads are those of bound loops": lambda s: (
        s.reorder("result_j", "result_i"), s.bind("result_j", "blockIdx.x"), s.parallel("result_i"),
    ),
    "parallel: 'total' is in 'result_i', but not in 'result_j', whose iterations are threads of": lambda s: (
        s.compute_at("total", "result_i"), s.parallel("result_j"),
    ),
    "bind: 'result_i_1' has 80 iterations, and 'threadIdx.z' of target '{}' at most 64: split it": lambda s: (
        s.bind(s.split("result_i", (None, 80))[1], "threadIdx.z")
    ),
    "bind: 'result_i_0' has blocks of 2048 threads (64 on 'threadIdx.x', 32 on 'threadIdx.y'), and": lambda s: (
        s.bind(s.split("result_j", (None, 64))[1], "threadIdx.x"),
        s.bind(s.split("result_i", (1, 32))[1], "threadIdx.y"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["nvvm", "spirv"])
@pytest.mark.parametrize("message", GPU_ERRORS)
def test_what_threads_of_a_target_are_not(target: str, message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(model, target, schedules={"centered": lambda s: GPU_ERRORS[message](s) and None}, cache=False)
    assert f"the schedule given for '@centered': {message.format(target)}" in str(caught.value)


def test_a_block_may_have_as_many_threads_as_a_target_has() -> None:
    def schedule(s: Schedule) -> None:
        s.bind("total_i", "blockIdx.x")
        s.bind(s.split("result_i", (None, 1))[1], "threadIdx.y")
        s.bind(s.split("result_j", (1, 1024))[1], "threadIdx.x")

    mirlo.compile(model, "nvvm", schedules={"centered": schedule}, cache=False)


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", ["f32", "f16", "i8", "i64"])
@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 12, 16, 20, 32])
@pytest.mark.parametrize("target", ["nvvm", pytest.param("spirv", marks=needs_vulkan())])
def test_vectors_that_a_target_does_not_have(target: str, lanes: int, kind: str) -> None:
    """A vectorized loop of any length is vectors of those lengths that the target has; so are its sums."""
    dtype = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i64": np.int64}[kind]
    element, tensor_element = getattr(T, kind), getattr(R, kind)

    @mirlo.prim_func
    def doubled(a: T.Buffer[(5, 96), element], c: T.Out[(5, 96), element], d: T.Out[(5,), element]):
        for i, j in T.grid(5, 96):
            with T.block("twice"):
                vi, vj = T.axes("SS", i, j)
                c[vi, vj] = a[vi, vj] + a[vi, vj]
        for i, j in T.grid(5, 96):
            with T.block("total"):
                vi, vj = T.axes("SR", i, j)
                with T.init():
                    d[vi] = element(0)
                d[vi] += a[vi, vj]

    @mirlo.script
    def program(a: R.Tensor[(5, 96), tensor_element]):
        return R.call_tir(doubled, a)

    def primitives(s: Schedule) -> None:
        for block in ("twice", "total"):
            outer, lane = s.split(f"{block}_j", (None, lanes))
            s.vectorize(lane)
            s.bind(f"{block}_i", "blockIdx.x")
        s.accumulate("total", "total_j_0")

    a = np.random.default_rng(lanes).integers(-1, 2, (5, 96)).astype(dtype)
    with emulated("sm_80"):
        c, d = mirlo.compile(program, target, schedules={"doubled": primitives}, cache=False)(a)
    np.testing.assert_array_equal(c, 2 * a)
    np.testing.assert_array_equal(d, a.sum(1, dtype=dtype))


M, N = 70, 100


@mirlo.prim_func
def transpose(a: T.Buffer[(N, M), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("transposed"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vj, vi] * 2.0


@mirlo.script
def transpose_model(a: R.Tensor[(N, M), R.f32]):
    return R.call_tir(transpose, a)


@pytest.mark.sample(2)
@pytest.mark.parametrize("offset", [0, 1, 31])
@pytest.mark.parametrize("target", ["nvvm", pytest.param("spirv", marks=needs_vulkan())])
def test_tiles_in_shared_memory_have_padded_rows(target: str, offset: int) -> None:
    def primitives(s: Schedule) -> None:
        rows, columns, row, column = s.tile(s.loops("transposed"), (16, 16))
        copy = s.cache_read("transposed", "a", "shared")
        s.compute_at(copy, columns)
        s.storage_align(copy, 0, 32, offset)
        for line, lane in ((row, column), s.loops(copy)[-2:]):
            step, thread = s.split(line, (None, 4))
            s.unroll(step)
            s.bind(thread, "threadIdx.y")
            s.bind(lane, "threadIdx.x")
        s.bind(rows, "blockIdx.y")
        s.bind(columns, "blockIdx.x")

    a = np.random.default_rng(offset).standard_normal((N, M)).astype(np.float32)
    with emulated("sm_80", races=True):
        compiled = mirlo.compile(transpose_model, target, schedules={"transpose": primitives}, cache=False)
        np.testing.assert_array_equal(compiled(a), 2 * a.T)
    if target == "nvvm":
        # Between writes and reads: no loop around them writes the tile again, and unrolled iterations write apart.
        assert compiled.artifact.code.count(b"bar.sync") == 1
    code, _ = scheduled(transpose_model, {"transpose": primitives}, target)
    assert f'memref<16x{(16 - offset + 31) // 32 * 32 + offset}xf32, "shared">' in code


def test_unrolled_iterations_that_depend_on_one_another_wait() -> None:
    """Each of them fills the same tile, after threads have read what the one before it left there."""

    def primitives(s: Schedule) -> None:
        rows, columns, row, column = s.tile(s.loops("transposed"), (16, 16))
        columns, step = s.split(columns, (None, 2))
        copy = s.cache_read("transposed", "a", "shared")
        s.compute_at(copy, step)
        s.unroll(step)
        for outer, inner in ((row, column), s.loops(copy)[-2:]):
            s.bind(outer, "threadIdx.y")
            s.bind(inner, "threadIdx.x")
        s.bind(rows, "blockIdx.y")
        s.bind(columns, "blockIdx.x")

    a = np.random.default_rng(0).standard_normal((N, M)).astype(np.float32)
    with emulated("sm_80", races=True):
        compiled = mirlo.compile(transpose_model, "nvvm", schedules={"transpose": primitives}, cache=False)
        np.testing.assert_array_equal(compiled(a), 2 * a.T)
    assert compiled.artifact.code.count(b"bar.sync") == 3  # nothing follows the last loop over threads
