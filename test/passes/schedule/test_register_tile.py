"""`register_tile`, `prefetch`, `pad` and tiles that are shifted, in schedules by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.testing import assert_verified

SHAPES = [(28, 64, 64), (30, 17, 70), (9, 40, 33), (197, 8, 100)]
"""Rows, products and columns."""


def product(m: int | str, k: int, n: int) -> tuple[object, object]:
    """Return a product with an epilogue as a prim function, and a model of it."""
    rows = T.dims("rows") if isinstance(m, str) else m

    @mirlo.prim_func
    def matmul(a: T.Buffer[(rows, k), T.f32], b: T.Buffer[(k, n), T.f32], c: T.Out[(rows, n), T.f32]):
        total = T.alloc((rows, n), T.f32)
        for i, j, x in T.grid(rows, n, k):
            with T.block("matmul"):
                vi, vj, vk = T.axes("SSR", i, j, x)
                with T.init():
                    total[vi, vj] = 0.0
                total[vi, vj] += a[vi, vk] * b[vk, vj]
        for i, j in T.grid(rows, n):
            with T.block("half"):
                vi, vj = T.axes("SS", i, j)
                c[vi, vj] = total[vi, vj] * 0.5

    @mirlo.script
    def model(a: R.Tensor[(m, k), R.f32], b: R.Tensor[(k, n), R.f32]):
        return R.call_tir(matmul, a, b)

    return matmul, model


def tile(s: Schedule, rows: int = 14, vectors: int = 2, tail: str = "mask", rests: tuple[int, ...] = ()) -> str:
    """Arrange a tile around the product, with its epilogue; return the loop over panels."""
    i, j, k = s.loops("matmul")
    panel, vector, lane = s.split(j, (None, vectors, 16))
    tiles, row = s.split(i, (None, rows), tail=tail, rests=rests)
    s.reorder(panel, tiles, k, row, vector, lane)
    s.reverse_compute_inline("half")
    s.register_tile("matmul", (row, vector, lane), (k,))
    return panel


def packed(s: Schedule) -> None:
    """Pack the columns of each panel, and prefetch the next one."""
    panel = tile(s)
    copy = s.cache_read("matmul", "b")
    s.compute_at(copy, panel)
    s.vectorize(s.split(s.loops(copy)[-1], (None, 16))[1])
    s.parallel(panel)


def blocks_of_k(s: Schedule, size: int = 8) -> None:
    """Keep the accumulators in memory between blocks of K."""
    i, j, k = s.loops("matmul")
    panel, vector, lane = s.split(j, (None, 2, 16))
    tiles, row = s.split(i, (None, 6))
    block, step = s.split(k, (None, size))
    s.reorder(block, panel, tiles, step, row, vector, lane)
    s.reverse_compute_inline("half")
    s.register_tile("matmul", (row, vector, lane), (step,), steps=2)


SCHEDULES: dict[str, Callable[[Schedule], object]] = {
    "masked": tile,
    "narrow": lambda s: _narrow(s),
    "packed": packed,
    "blocks of K": blocks_of_k,
    "blocks of K with a rest": lambda s: blocks_of_k(s, 7),
    "shifted": lambda s: tile(s, 8, 1, "shift", (4, 2, 1)),
    "rolled epilogue": lambda s: _rolled(s),
}


def _narrow(s: Schedule) -> None:
    i, j, k = s.loops("matmul")
    vector, lane = s.split(j, (None, 16))
    tiles, row = s.split(i, (None, 4))
    s.reorder(vector, tiles, k, row, lane)
    s.register_tile("matmul", (row, lane), (k,), masked=False, steps=4)
    s.vectorize(s.split(s.loops("half")[1], (None, 16))[1])


def _rolled(s: Schedule) -> None:
    i, j, k = s.loops("matmul")
    panel, vector, lane = s.split(j, (None, 2, 16))
    tiles, row = s.split(i, (None, 6))
    s.reorder(panel, tiles, k, row, vector, lane)
    s.reverse_compute_inline("half")
    s.register_tile("matmul", (row, vector, lane), (k,), epilogue=(4, 2))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_results(shape: tuple[int, int, int], name: str) -> None:
    _, model = product(*shape)
    m, k, n = shape
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 8, each).astype(np.float32) for each in ((m, k), (k, n)))
    f = mirlo.compile(model, schedules={"matmul": SCHEDULES[name]}, cache=False)
    np.testing.assert_array_equal(f(a, b), a @ b * 0.5)


def test_rows_that_only_the_run_time_knows() -> None:
    _, model = product("m", 24, 40)
    f = mirlo.compile(model, schedules={"matmul": lambda s: tile(s, 8, 2, "shift", (4, 2, 1))}, cache=False)
    random = np.random.default_rng(0)
    b = random.integers(-8, 8, (24, 40)).astype(np.float32)
    for rows in (0, 1, 3, 7, 8, 9, 30):
        a = random.integers(-8, 8, (rows, 24)).astype(np.float32)
        np.testing.assert_array_equal(f(a, b), a @ b * 0.5)


def test_a_trace_makes_the_same_tile_again(tmp_path) -> None:
    matmul, model = product(30, 17, 70)
    s = Schedule.of(matmul, TensorType.of((30, 17), "f32"), TensorType.of((17, 70), "f32"))
    panel = tile(s)
    s.prefetch("matmul", "b", loop=panel)
    s.save(tmp_path / "primitives.json")
    assert "fma tile" in str(s)
    again = mirlo.compile(model, schedules={"matmul": str(tmp_path / "primitives.json")}, cache=False)
    a, b = np.ones((30, 17), np.float32), np.ones((17, 70), np.float32)
    np.testing.assert_array_equal(again(a, b), np.full((30, 70), 8.5, np.float32))


@mirlo.prim_func
def windows(x: T.Buffer[(10, 32), T.f32], w: T.Buffer[(3, 32, 16), T.f32], y: T.Out[(10, 16), T.f32]):
    for i, j, k, c in T.grid(10, 16, 3, 32):
        with T.block("conv"):
            vi, vj, vk, vc = T.axes("SSRR", i, j, k, c)
            with T.init():
                y[vi, vj] = 0.0
            y[vi, vj] += x.at(vi + vk - 1, vc, outside=0.0) * w[vk, vc, vj]


def with_border(s: Schedule) -> None:
    """Read a copy with a border: no test of edges is left."""
    s.pad("conv", "x", (0,))
    taps_inside(s)


def taps_inside(s: Schedule) -> None:
    """Leave out the taps beyond the edges: the tile's loop over them runs over those inside."""
    rows, columns, taps, channels = s.loops("conv")
    s.reorder(rows, taps, channels, columns)
    s.register_tile("conv", (columns,), (taps, channels))


@pytest.mark.parametrize("schedule", [with_border, taps_inside])
def test_windows(schedule: Callable[[Schedule], None]) -> None:
    @mirlo.script
    def model(x: R.Tensor[(10, 32), R.f32], w: R.Tensor[(3, 32, 16), R.f32]):
        return R.call_tir(windows, x, w)

    random = np.random.default_rng(0)
    x, w = (random.integers(-8, 8, shape).astype(np.float32) for shape in ((10, 32), (3, 32, 16)))
    found = mirlo.compile(model, schedules={"windows": schedule}, cache=False)(x, w)
    bordered = np.pad(x, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(found, sum(bordered[k : k + 10] @ w[k] for k in range(3)))


@mirlo.prim_func
def windows_of_ones(x: T.Buffer[(10, 32), T.f32], w: T.Buffer[(3, 32, 16), T.f32], y: T.Out[(10, 16), T.f32]):
    for i, j, k, c in T.grid(10, 16, 3, 32):
        with T.block("conv"):
            vi, vj, vk, vc = T.axes("SSRR", i, j, k, c)
            with T.init():
                y[vi, vj] = 0.0
            y[vi, vj] += x.at(vi + vk - 1, vc, outside=1.0) * w[vk, vc, vj]


def test_taps_beyond_edges_that_are_no_zeros() -> None:
    kinds = [TensorType.of(shape, "f32") for shape in ((10, 32), (3, 32, 16))]
    with pytest.raises(ScheduleError, match="'x' is 1.0.* beyond its edges, where a tile leaves products out: pad it"):
        taps_inside(Schedule.of(windows_of_ones, *kinds))
    with_border(Schedule.of(windows_of_ones, *kinds))


def test_the_border_of_a_copy_is_a_part_of_its_loops() -> None:
    s = Schedule.of(windows, *(TensorType.of(shape, "f32") for shape in ((10, 32), (3, 32, 16))))
    rows, columns = s.loops(s.pad("conv", "x", (0,)))
    assert (s.change_points(rows), s.change_points(columns)) == ([1, 11], [])


@mirlo.prim_func
def images(x: T.Buffer[(8, 9, 4), T.f32], w: T.Buffer[(3, 3, 4, 16), T.f32], y: T.Out[(8, 7, 16), T.f32]):
    for h, i, j, kh, kw, c in T.grid(8, 7, 16, 3, 3, 4):
        with T.block("conv"):
            vh, vi, vj, vkh, vkw, vc = T.axes("SSSRRR", h, i, j, kh, kw, c)
            with T.init():
                y[vh, vi, vj] = 0.0
            y[vh, vi, vj] += x.at(vh + vkh - 1, vi + vkw, vc, outside=0.0) * w[vkh, vkw, vc, vj]


def test_loops_along_dims_without_a_border_are_one() -> None:
    """Lines of images are read beyond their edges, pixels of a line are not."""
    s = Schedule.of(images, *(TensorType.of(shape, "f32") for shape in ((8, 9, 4), (3, 3, 4, 16))))
    lines, pixels, columns, *taps = s.loops("conv")
    s.reorder(lines, pixels, columns, *taps)
    assert s.contiguous_loops("conv", taps[-1]) == taps[1:]


def test_a_border_beside_a_dim_of_any_length() -> None:
    count = T.dims("count")

    @mirlo.prim_func
    def batches(x: T.Buffer[(count, 9, 4), T.f32], w: T.Buffer[(3, 4, 16), T.f32], y: T.Out[(count, 9, 16), T.f32]):
        for b, i, j, k, c in T.grid(count, 9, 16, 3, 4):
            with T.block("conv"):
                vb, vi, vj, vk, vc = T.axes("SSSRR", b, i, j, k, c)
                with T.init():
                    y[vb, vi, vj] = 0.0
                y[vb, vi, vj] += x.at(vb, vi + vk - 1, vc, outside=0.0) * w[vk, vc, vj]

    s = Schedule.of(batches, TensorType.of(("n", 9, 4), "f32"), TensorType.of((3, 4, 16), "f32"))
    s.pad("conv", "x", (1,))
    assert s.beyond_edges("conv") == {}


@mirlo.prim_func
def own_rows(x: T.Buffer[(10, 40), T.f32], w: T.Buffer[(3, 40), T.f32], y: T.Out[(10, 40), T.f32]):
    for i, j, k in T.grid(10, 40, 3):
        with T.block("conv"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                y[vi, vj] = 0.0
            y[vi, vj] += x.at(vi + vk - 1, vj, outside=0.0) * w[vk, vj]


@mirlo.script
def own_rows_model(x: R.Tensor[(10, 40), R.f32], w: R.Tensor[(3, 40), R.f32]):
    return R.call_tir(own_rows, x, w)


def _arrange_own_rows(s: Schedule) -> str:
    """Put unrolled taps around the rows of a tile, whose columns have rows of their own; return the loop over tiles."""
    rows, columns, taps = s.loops("conv")
    panel, vector, lane = s.split(columns, (None, 2, 8))
    tiles, row = s.split(rows, (None, 4))
    s.reorder(panel, tiles, taps, row, vector, lane)
    s.unroll(taps)
    return tiles


def _tiles_at_edges(s: Schedule) -> None:
    for part in s.partition(_arrange_own_rows(s), [1, 2]):
        (block,) = s.blocks(part)
        *_, taps, row, vector, lane = s.loops(block)
        s.register_tile(block, (row, vector, lane), (taps,))


def _padded_own_rows(s: Schedule) -> None:
    s.pad("conv", "x", (0,))
    _arrange_own_rows(s)
    *_, taps, row, vector, lane = s.loops("conv")
    s.register_tile("conv", (row, vector, lane), (taps,))


@pytest.mark.parametrize("arrange", [_tiles_at_edges, _padded_own_rows])
def test_columns_with_rows_of_their_own(arrange: Callable[[Schedule], None]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.integers(-8, 8, shape).astype(np.float32) for shape in ((10, 40), (3, 40)))
    padded = np.pad(x, [(1, 1), (0, 0)])
    f = mirlo.compile(own_rows_model, schedules={"own_rows": arrange}, cache=False)
    np.testing.assert_array_equal(f(x, w), sum(padded[k : k + 10] * w[k] for k in range(3)))


@mirlo.prim_func
def bytes_product(a: T.Buffer[(12, 20), T.i8], b: T.Buffer[(20, 24), T.i8], c: T.Out[(12, 24), T.i32]):
    for i, j, x in T.grid(12, 24, 20):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, x)
            with T.init():
                c[vi, vj] = 0
            c[vi, vj] += a[vi, vk].cast("i32") * b[vk, vj].cast("i32")


@mirlo.script
def bytes_model(a: R.Tensor[(12, 20), R.i8], b: R.Tensor[(20, 24), R.i8]):
    return R.call_tir(bytes_product, a, b)


@pytest.mark.parametrize("converted", [(), ("a",), ("b",), ("a", "b")])
def test_elements_that_are_converted_in_copies(converted: tuple[str, ...]) -> None:
    def arrange(s: Schedule) -> None:
        i, j, k = s.loops("matmul")
        panel, vector, lane = s.split(j, (None, 2, 8))
        tiles, row = s.split(i, (None, 4))
        s.reorder(panel, tiles, k, row, vector, lane)
        copies = [s.cache_read("matmul", name) for name in converted]
        for copy, name in zip(copies, converted, strict=True):
            if name == "b":
                s.compute_at(copy, panel)
        s.register_tile("matmul", (row, vector, lane), (k,))
        for copy in copies:
            s.convert(copy)

    random = np.random.default_rng(0)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((12, 20), (20, 24)))
    f = mirlo.compile(bytes_model, schedules={"bytes_product": arrange}, cache=False)
    np.testing.assert_array_equal(f(a, b), a.astype(np.int32) @ b.astype(np.int32))


def test_tiles_that_differ_at_edges_are_partitioned() -> None:
    s = Schedule.of(own_rows, TensorType.of((10, 40), "f32"), TensorType.of((3, 40), "f32"))
    _arrange_own_rows(s)
    *_, taps, row, vector, lane = s.loops("conv")
    with pytest.raises(ScheduleError, match="partition the loop over tiles, or pad it"):
        s.register_tile("conv", (row, vector, lane), (taps,))


@pytest.mark.parametrize("rows", [1, 3, 9, 13, 14, 30])
def test_smaller_tiles_share_a_long_epilogue(rows: int) -> None:
    """Each of the seven sizes has its loop over K, and one loop over rows has the epilogue of all of them."""
    random = np.random.default_rng(0)
    w, m = random.standard_normal((300, 45)).astype(np.float32), "m"

    @mirlo.script
    def model(x: R.Tensor[(m, 300), R.f32]):
        return R.gelu(R.matmul(x, R.const(w)))

    @mirlo.script
    def static(x: R.Tensor[(rows, 300), R.f32]):
        return R.gelu(R.matmul(x, R.const(w)))

    x = random.standard_normal((rows, 300)).astype(np.float32)
    found, want = (mirlo.compile(each, cache=False)(x) for each in (model, static))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def _loops(s: Schedule) -> tuple[str, str, str]:
    i, j, k = s.loops("matmul")
    return i, j, k


def _transposed(m: int, k: int, n: int) -> tuple[object, object]:
    """Return the product with a transposed matrix as a prim function, and a model of it."""

    @mirlo.prim_func
    def scores(a: T.Buffer[(m, k), T.f32], b: T.Buffer[(n, k), T.f32], c: T.Out[(m, n), T.f32]):
        total = T.alloc((m, n), T.f32)
        for i, j, x in T.grid(m, n, k):
            with T.block("scores"):
                vi, vj, vk = T.axes("SSR", i, j, x)
                with T.init():
                    total[vi, vj] = 0.0
                total[vi, vj] += a[vi, vk] * b[vj, vk]
        for i, j in T.grid(m, n):
            with T.block("half"):
                vi, vj = T.axes("SS", i, j)
                c[vi, vj] = total[vi, vj] * 0.5

    @mirlo.script
    def model(a: R.Tensor[(m, k), R.f32], b: R.Tensor[(n, k), R.f32]):
        return R.call_tir(scores, a, b)

    return scores, model


def along_sum(
    s: Schedule, columns: int = 4, masked: bool = True, is_unrolled: bool = False, partial_sums: bool = False
) -> None:
    """Arrange a tile with 8 lanes along the reduction."""
    i, j, k = s.loops("scores")
    panel, column = s.split(j, (None, columns))
    tiles, row = s.split(i, (None, 2))
    step, lane = s.split(k, (None, 8))
    s.reorder(panel, tiles, step, row, column, lane)
    s.reverse_compute_inline("half")
    if is_unrolled:
        s.unroll(step)
    s.register_tile("scores", (row, column, lane), (step,), masked=masked, partial_sums=partial_sums)


def in_lanes_of_columns(s: Schedule, rows: int, steps: int = 1, masked: bool = True) -> None:
    """Arrange a tile whose lanes are columns, with the sums of lanes along the reduction."""
    i, j, k = s.loops("scores")
    copy = s.cache_read("scores", "b")
    panel, vector, lane = s.split(j, (None, 2, 8))
    tiles, row = s.split(i, (None, rows))
    step, part = s.split(k, (None, 8))
    s.reorder(panel, tiles, part, step, row, vector, lane)
    s.reverse_compute_inline("half")
    s.compute_at(copy, panel)
    own = [loop for loop in s.loops(copy) if loop not in s.loops("scores")]
    s.pack(s.reads("scores")[1], [1, 0])
    s.reorder(*reversed(own))
    s.register_tile("scores", (row, vector, lane), (part, step), masked=masked, steps=steps, partial_sums=True)


@pytest.mark.sample(8)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("columns", "is_unrolled"), [(4, False), (3, False), (1, False), (8, True)])
@pytest.mark.parametrize("shape", [(1, 64, 64), (2, 5, 3), (3, 37, 21), (5, 16, 8), (1, 9, 1), (2, 8, 30), (4, 71, 17)])
def test_partial_sums(shape: tuple[int, int, int], columns: int, is_unrolled: bool, steps: int, masked: bool) -> None:
    """Lanes along the sum that are added up in their order, and columns in lanes with the same partial sums."""
    m, k, n = shape
    _, model = _transposed(m, k, n)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(each).astype(np.float32) for each in ((m, k), (n, k)))
    schedules: list[Callable[[Schedule], None]] = [
        lambda s: along_sum(s, columns, masked, is_unrolled, partial_sums=True),
        lambda s: in_lanes_of_columns(s, 3, steps, masked),
    ]
    found = [mirlo.compile(model, schedules={"scores": each}, cache=False)(a, b) for each in schedules]
    np.testing.assert_allclose(found[0], a @ b.T * 0.5, rtol=1e-4, atol=1e-4)
    assert found[0].tobytes() == found[1].tobytes()


def test_partial_sums_are_those_of_the_definition() -> None:
    _, model = _transposed(3, 37, 21)
    assert_verified(model, schedules={"scores": lambda s: along_sum(s, partial_sums=True)})
    assert_verified(model, schedules={"scores": lambda s: in_lanes_of_columns(s, 2, 4)})


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("columns", "is_unrolled"), [(4, False), (3, False), (8, True)])
@pytest.mark.parametrize("shape", [(1, 64, 64), (2, 5, 3), (3, 37, 21), (5, 16, 8), (1, 9, 1)])
def test_lanes_along_the_sum(shape: tuple[int, int, int], columns: int, is_unrolled: bool, masked: bool) -> None:
    m, k, n = shape
    _, model = _transposed(m, k, n)
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 8, each).astype(np.float32) for each in ((m, k), (n, k)))
    schedules = {"scores": lambda s: along_sum(s, columns, masked, is_unrolled)}
    f = mirlo.compile(model, schedules=schedules, cache=False)
    np.testing.assert_array_equal(f(a, b), a @ b.T * 0.5)


SUM_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "expected loops over rows, columns and lanes, found": lambda s: (
        s.reorder(step := s.split("scores_k", (None, 8))[0], "scores_j", "scores_k_1"),
        s.register_tile("scores", ("scores_j", "scores_k_1"), (step,)),
    ),
    "'a' is not contiguous along 'scores_k_0'": lambda s: (
        s.split("scores_k", (8, None)),
        s.reorder("scores_k_1", "scores_i", "scores_j", "scores_k_0"),
        s.register_tile("scores", ("scores_i", "scores_j", "scores_k_0"), ("scores_k_1",)),
    ),
    "partial sums take 2 loops in 'over', an instruction without groups, and no blocks of K; found": lambda s: (
        s.reorder("scores_k", "scores_i", "scores_j"),
        s.register_tile("scores", ("scores_i", "scores_j"), ("scores_k",), partial_sums=True),
    ),
    "expected one loop in 'over' if it is unrolled, steps=1, and no blocks of K": lambda s: (
        s.split("scores_k", (None, 8)),
        s.reorder("scores_k_0", "scores_i", "scores_j", "scores_k_1"),
        s.register_tile("scores", ("scores_i", "scores_j", "scores_k_1"), ("scores_k_0",), steps=2),
    ),
}


@pytest.mark.parametrize("message", SUM_ERRORS)
def test_what_cannot_have_lanes_along_the_sum(message: str) -> None:
    scores, _ = _transposed(4, 64, 32)
    s = Schedule.of(scores, TensorType.of((4, 64), "f32"), TensorType.of((32, 64), "f32"))
    with pytest.raises(ScheduleError) as caught:
        SUM_ERRORS[message](s)
    assert message in str(caught.value)


ERRORS: dict[str, Callable[[Schedule], object]] = {
    "'matmul_k' is unrolled: expected the innermost loop of 'over', and steps=1": lambda s: (
        s.reorder("matmul_k", "matmul_i", "matmul_j"),
        s.unroll("matmul_k"),
        s.register_tile("matmul", ("matmul_i", "matmul_j"), ("matmul_k",), steps=2),
    ),
    "unknown instruction 'fmaa'; did you mean 'fma'?": lambda s: s.register_tile(
        "matmul", s.loops("matmul")[:2], s.loops("matmul")[2:], "fmaa"
    ),
    "'half' is not a reduction": lambda s: s.register_tile("half", s.loops("half"), ()),
    "the innermost loops of 'matmul' are matmul_k, matmul_i, matmul_j; found matmul_i, matmul_j, matmul_k": lambda s: (
        s.register_tile("matmul", ("matmul_i", "matmul_j"), ("matmul_k",))
    ),
    "'total' is not contiguous along 'matmul_i'": lambda s: (
        s.reorder("matmul_k", "matmul_j", "matmul_i"),
        s.register_tile("matmul", ("matmul_j", "matmul_i"), ("matmul_k",)),
    ),
    "convert: expected a copy that register tiles read, found": lambda s: s.convert(s.cache_read("matmul", "a")),
    "convert: expected a copy that register tiles read, found 'matmul'": lambda s: (tile(s), s.convert("matmul")),
    "'half' is no register tile": lambda s: s.prefetch("half", "b", distance=64),
    "'c' has not the columns of 'matmul', and its epilogue does not read it": lambda s: (
        tile(s),
        s.prefetch("matmul", "c"),
    ),
    "'a' has not the columns of 'matmul'": lambda s: (tile(s), s.prefetch("matmul", "a", distance=64)),
    "expected a loop, or a distance of 1 element or more": lambda s: (tile(s), s.prefetch("matmul", "b")),
    "'rests' are sizes of tiles of the tail 'shift', found tail='mask'": lambda s: s.split(
        "matmul_i", (None, 8), rests=(4,)
    ),
    "expected rests below 8, from large to small, found [9]": lambda s: s.split(
        "matmul_i", (None, 8), tail="shift", rests=(9,)
    ),
    "a tile of 64 does not fit its 28 iterations: expected a last rest of 1": lambda s: s.split(
        "matmul_i", (None, 64), tail="shift"
    ),
    "tiles overlap, and 'matmul' cannot compute an element twice": lambda s: s.split(
        "matmul_k", (None, 8), tail="shift"
    ),
    "shifted tiles would add to elements twice": lambda s: _shifted_blocks(s),
    "'matmul' does not read 'b' beyond its edges": lambda s: s.pad("matmul", "b", (0,)),
}


def _shifted_blocks(s: Schedule) -> None:
    i, j, k = s.loops("matmul")
    tiles, row = s.split(i, (None, 8), tail="shift", rests=(4,))
    block, step = s.split(k, (None, 32))
    s.reorder(block, tiles, step, row, j)
    s.register_tile("matmul", (row, j), (step,))


@pytest.mark.parametrize("message", ERRORS)
def test_what_cannot_be_a_tile(message: str) -> None:
    matmul, _ = product(28, 64, 64)
    s = Schedule.of(matmul, TensorType.of((28, 64), "f32"), TensorType.of((64, 64), "f32"))
    with pytest.raises(ScheduleError) as caught:
        ERRORS[message](s)
    assert message in str(caught.value)
