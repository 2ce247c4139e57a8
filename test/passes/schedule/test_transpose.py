"""`transpose`, `rotate`, `stream`, aligned tiles, and `compute_with`: elements that change places in registers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
ROWS, COLUMNS = T.dims("ROWS", "COLUMNS")


@mirlo.prim_func
def transposed(
    x: T.Buffer[(COLUMNS, ROWS), T.f32], b: T.Buffer[(ROWS, COLUMNS), T.f32], y: T.Out[(ROWS, COLUMNS), T.f32]
):
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("turn"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vj, vi] + b[vi, vj]


@mirlo.prim_func
def two(x: T.Buffer[(40, 48), T.f32], y: T.Out[(40, 48), T.f32], z: T.Out[(40, 48), T.f32]):
    for i, j in T.grid(40, 48):
        with T.block("double"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * 2.0
    for i, j in T.grid(40, 48):
        with T.block("square"):
            vi, vj = T.axes("SS", i, j)
            z[vi, vj] = x[vi, vj] * x[vi, vj]


def schedule_of(rows: int, columns: int) -> Schedule:
    return Schedule.of(transposed, TensorType.of((columns, rows), "f32"), TensorType.of((rows, columns), "f32"))


def check(rows: int, columns: int, primitives: Callable[[Schedule], object], offset: int = 0) -> None:
    """Compile a sum with a transposed operand by these primitives, and compare its results."""

    @mirlo.script
    def model(x: R.Tensor[(columns, rows), R.f32], b: R.Tensor[(rows, columns), R.f32]):
        return R.call_tir(transposed, x, b)

    rng = np.random.default_rng(0)
    memory = rng.standard_normal(rows * columns + 64).astype(np.float32)
    start = -memory.ctypes.data % 64 // 4 + offset
    x = memory[start:][: rows * columns].reshape(columns, rows)
    b = rng.standard_normal((rows, columns)).astype(np.float32)
    program = mirlo.compile(model, pipeline=PLAIN, schedules={"transposed": primitives}, cache=False)
    np.testing.assert_array_equal(program(x, b), x.T + b)


def in_tiles(s: Schedule, size: int = 8, align: str = "", lanes: int = 16) -> tuple[str, str]:
    """Transpose tiles; return the loops over them."""
    i, j = s.loops("turn")
    tiles, *lines = s.split(i, (None, size), tail="mask" if align else "peel", align=align)
    columns, lane = s.split(j, (None, lanes), tail="peel")
    s.reorder(tiles, columns, *lines, lane)
    s.vectorize(lane)
    s.transpose(lines[-1])
    return tiles, columns


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (19, 37), (7, 16), (8, 5)])
def test_tiles_of_every_size(rows: int, columns: int) -> None:
    check(rows, columns, in_tiles)


@pytest.mark.parametrize("offset", [0, 1, 5, 15])
@pytest.mark.parametrize("rows", [16, 24, 45])
def test_tiles_that_begin_where_a_line_of_memory_does(rows: int, offset: int) -> None:
    check(rows, 32, lambda s: in_tiles(s, align="x"), offset)
    check(rows, 33, lambda s: in_tiles(s, align="x"), offset)


def test_an_aligned_tile_may_be_as_long_as_its_axis() -> None:
    check(8, 16, lambda s: in_tiles(s, size=8, align="x"))


def test_tiles_that_overlap_do_not_overwrite_what_they_read(tmp_path: Path) -> None:
    """Without overlaps the result may replace the other operand; with them elements are computed twice."""

    @mirlo.script
    def model(x: R.Tensor[(32, 40), R.f32], b: R.Tensor[(40, 32), R.f32]):
        return R.call_tir(transposed, x, b)

    for name, align in (("apart", ""), ("overlapping", "x")):
        schedules = {"transposed": lambda s, align=align: in_tiles(s, align=align)}
        mirlo.compile(model, pipeline=PLAIN, schedules=schedules, cache=False, save_ir=str(tmp_path / name))
        (text,) = [path.read_text() for path in (tmp_path / name).glob("*-schedule.mlir")]
        assert ("tir.inplace" in text) == (not align)


def test_primitives_around_tiles() -> None:
    def inside(s: Schedule) -> None:
        i, j = s.loops("turn")
        tiles, start, line = s.split(i, (None, 8), align="x")
        columns, lane = s.split(j, (None, 16))
        outer, several = s.split(tiles, (None, 2))
        others, aside = s.split(columns, (None, 2))
        s.reorder(outer, others, several, aside, start, line, lane)
        s.rotate(several, aside)
        s.vectorize(lane)
        s.transpose(line)
        s.stream("turn")
        s.parallel(outer)
        text = str(s)
        assert "for turn_i_1 in 8 unrolled transposed:" in text and "past the caches" in text
        assert "for turn_i_start at tile (turn_i_0_1 + turn_j_0_1) % 2 + 2*turn_i_0_0 of 8, aligned to x:" in text
        again = schedule_of(45, 64).replay(s.trace)
        assert str(again) == text

    inside(schedule_of(45, 64))
    for offset in (0, 3):
        check(45, 64, inside, offset)


@pytest.mark.parametrize("parts", [[10], [10, 20]])
def test_partition_copies_where_tiles_begin(parts: list[int]) -> None:
    def primitives(s: Schedule) -> None:
        i, j = s.loops("turn")
        tiles, start, line = s.split(i, (None, 8), align="x")
        s.reorder(j, tiles, start, line)
        for part in s.partition(j, parts):
            s.parallel(part)

    check(21, 32, primitives, 3)


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("pixels", [5, 16, 40])
def test_planes_are_interleaved(channels: int, pixels: int) -> None:
    def primitives(s: Schedule) -> None:
        i, j = s.loops("turn")
        steps, lane = s.split(i, (None, 8), tail="peel")
        s.reorder(steps, j, lane)
        s.vectorize(lane)
        s.transpose(j)

    check(pixels, channels, primitives)


def test_a_tile_of_unknown_size_is_computed_row_by_row() -> None:
    def primitives(s: Schedule) -> None:
        i, j = s.loops("turn")
        tiles, line = s.split(i, (None, 8))
        columns, lane = s.split(j, (None, 16))
        s.reorder(tiles, columns, line, lane)
        s.vectorize(lane)
        s.transpose(line)

    check(21, 40, primitives)


def test_blocks_of_one_nest() -> None:
    @mirlo.script
    def model(x: R.Tensor[(40, 48), R.f32]):
        return R.call_tir(two, x)

    def primitives(s: Schedule) -> None:
        s.compute_with("square", "double")
        assert s.blocks() == ["double"] and "; then square:" in str(s)
        s.vectorize(s.split(s.loops("double")[1], (None, 16))[1])

    x = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    y, z = mirlo.compile(model, pipeline=PLAIN, schedules={"two": primitives}, cache=False)(x)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(z, x * x)


def _vectorized(s: Schedule, lanes: int = 4) -> tuple[str, str]:
    i, j = s.loops("turn")
    tiles, line = s.split(i, (None, 8))
    columns, lane = s.split(j, (None, lanes))
    s.reorder(tiles, columns, line, lane)
    s.vectorize(lane)
    return columns, line


REFUSED: dict[str, Callable[[Schedule], object]] = {
    "reorder: 'turn_i_start' is where a tile of 'turn_i_0' begins, and must be inside of it": lambda s: s.reorder(
        *s.split("turn_i", (None, 8), align="x")[1::-1]
    ),
    "transpose: expected 'turn_i' around a vectorized loop and nothing else": lambda s: s.transpose("turn_i"),
    "transpose: expected 'turn_j_0' around a vectorized loop": lambda s: s.transpose(_vectorized(s)[0]),
    "transpose: a tile of 8 x 4 elements, expected powers of two, and no more of 'turn_i_1' than of 'turn_j_1'": (
        lambda s: s.transpose(_vectorized(s)[1])
    ),
    "rotate: 'turn' in 'turn_i' is in no loop 'turn_i'": lambda s: s.rotate("turn_i", "turn_i"),
    "stream: 'turn' is not alone in a vectorized loop": lambda s: s.stream("turn"),
    "stream: vectors of 'turn' do not begin at multiples of their 4 elements": lambda s: (
        _vectorized(s), s.stream("turn")
    ),
    "stream: expected vectors of a power of two of bytes, found 12 in 'turn'": lambda s: (
        _vectorized(s, 3), s.stream("turn")
    ),
    "split: there is no buffer 'w'": lambda s: s.split("turn_i", (None, 4), align="w"),
    "split of 'turn_i': aligned tiles have factors (None, size), found [4, None]": lambda s: s.split(
        "turn_i", (4, None), align="x"
    ),
    "split of 'turn_i': a tile of 64 does not fit its 19 iterations": lambda s: s.split(
        "turn_i", (None, 64), align="x"
    ),
    "'turn_i_start' is where a tile begins, and has one iteration": lambda s: s.unroll(
        s.split("turn_i", (None, 4), align="x")[1]
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    s = schedule_of(19, 37)
    before = str(s)
    with pytest.raises(ScheduleError) as caught:
        REFUSED[message](s)
    assert message in str(caught.value)
    assert len(s.trace.calls) or str(s) == before


def test_nothing_to_transpose() -> None:
    s = Schedule.of(two, TensorType.of((40, 48), "f32"))
    i, j = s.loops("double")
    tiles, line = s.split(i, (None, 8))
    columns, lane = s.split(j, (None, 16))
    s.reorder(tiles, columns, line, lane)
    s.vectorize(lane)
    message = "transpose: 'double' reads nothing that is contiguous along 'double_i_1' and not along 'double_j_1'"
    with pytest.raises(ScheduleError, match=message):
        s.transpose(line)


def test_refused_blocks_of_one_nest() -> None:
    s = Schedule.of(two, TensorType.of((40, 48), "f32"))
    with pytest.raises(ScheduleError, match="compute_with: 'double' comes before 'square': name them in their order"):
        s.compute_with("double", "square")
    s.split("square_i", (None, 4))
    s.compute_with("square", "double")
    with pytest.raises(ScheduleError, match="there is no block 'square'"):
        s.compute_with("square", "double")


def test_threads_transpose_in_shared_memory() -> None:
    @mirlo.script
    def model(x: R.Tensor[(37, 19), R.f32], b: R.Tensor[(19, 37), R.f32]):
        return R.call_tir(transposed, x, b)

    with pytest.raises(mirlo.MirloError, match="transpose: threads of GPUs have no vectors to transpose"):
        mirlo.compile(model, target="nvvm", schedules={"transposed": in_tiles}, cache=False)


@pytest.mark.parametrize("columns", [1, 7, 8, 13, 16, 40])
def test_lanes_whose_number_the_run_time_knows(columns: int) -> None:
    """Lanes past the end read the last line, and are not stored."""
    n = "n"

    @mirlo.script
    def model(x: R.Tensor[(n, 32), R.f32], b: R.Tensor[(32, n), R.f32]):
        return R.call_tir(transposed, x, b)

    def arrange(s: Schedule) -> None:
        i, j = s.loops("turn")
        tiles, line = s.split(i, (None, 8))
        panel, lane = s.split(j, (None, 8))
        s.reorder(tiles, panel, line, lane)
        s.vectorize(lane)
        s.transpose(line)

    rng = np.random.default_rng(0)
    x, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((columns, 32), (32, columns)))
    program = mirlo.compile(model, pipeline=PLAIN, schedules={"transposed": arrange}, cache=False)
    np.testing.assert_array_equal(program(x, b), x.T + b)
