"""Schedules as commands of an accelerator: tiles as numbers, executed here on memories of NumPy."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import (
    AffineAddress,
    CommandLoop,
    CommandSite,
    CommandTree,
    ScheduleError,
    TileCommand,
    TileCommands,
    TileOperand,
    command_intrin,
)

SIZE = 8
"""Lanes of the unit."""
ROWS, COLS, TAPS = T.dims("ROWS", "COLS", "TAPS")
fill, high = T.attrs("fill", "high")


@mirlo.prim_func
def load(x: T.Buffer[(ROWS, COLS, SIZE), T.i8], y: T.Out[(ROWS, COLS, SIZE), T.i8]):
    for i, j, k in T.grid(ROWS, COLS, SIZE):
        y[i, j, k] = x.at(i - 1, j, k, outside=0)


@mirlo.prim_func
def copy(x: T.Buffer[(TAPS, SIZE, SIZE), T.i8], y: T.Out[(TAPS, SIZE, SIZE), T.i8]):
    for i, j, k in T.grid(TAPS, SIZE, SIZE):
        y[i, j, k] = x[i, j, k]


@mirlo.prim_func
def multiply(
    x: T.Buffer[(ROWS, COLS, SIZE), T.i8], w: T.Buffer[(SIZE, SIZE), T.i8], acc: T.Out[(ROWS, COLS, SIZE), T.i32]
):
    for i, j, m, k in T.grid(ROWS, COLS, SIZE, SIZE):
        with T.block("multiply"):
            vi, vj, vm, vk = T.axes("SSSR", i, j, m, k)
            with T.init():
                acc[vi, vj, vm] = 0
            acc[vi, vj, vm] += x[vi, vj, vk].cast("i32") * w[vk, vm].cast("i32")


@mirlo.prim_func
def clamp(acc: T.Buffer[(ROWS, COLS, SIZE), T.i32], y: T.Out[(ROWS, COLS, SIZE), T.i8]):
    for i, j, k in T.grid(ROWS, COLS, SIZE):
        y[i, j, k] = max(min(acc[i, j, k], high), -128).cast("i8")


command_intrin("toy.load", load, {"y": "toy.data"})
command_intrin("toy.weights", copy, {"x": "", "y": "toy.weights"})
command_intrin("toy.multiply", multiply, {"x": "toy.data", "w": "toy.weights", "acc": "toy.accumulators"})
command_intrin("toy.clamp", clamp, {"acc": "toy.accumulators", "y": ""})


def _convolution(size: int, channels: int, columns: int, window: int, stride: int, limit: int) -> object:
    deep, wide = -(-channels // SIZE), -(-columns // SIZE)
    result = (size + 2 - window) // stride + 1
    padded = (result - 1) * stride + window

    @mirlo.prim_func
    def convolution(
        x: T.Buffer[(size, size, channels), T.i8],
        w: T.Buffer[(wide, deep * window * window, SIZE, SIZE), T.i8],
        y: T.Out[(result, result, columns), T.i8],
    ):
        xp = T.alloc((deep, padded, padded, SIZE), "i8")
        acc = T.alloc((wide, result, result, SIZE), "i32")
        for b, i, j, k in T.grid(deep, padded, padded, SIZE):
            with T.block("load"):
                vb, vi, vj, vk = T.axes("SSSS", b, i, j, k)
                xp[vb, vi, vj, vk] = x.at(vi - 1, vj - 1, vb * SIZE + vk, outside=0)
        for n, i, j, m, b, h, v, k in T.grid(wide, result, result, SIZE, deep, window, window, SIZE):
            with T.block("multiply"):
                vn, vi, vj, vm, vb, vh, vv, vk = T.axes("SSSSRRRR", n, i, j, m, b, h, v, k)
                with T.init():
                    acc[vn, vi, vj, vm] = 0
                acc[vn, vi, vj, vm] += xp[vb, vi * stride + vh, vj * stride + vv, vk].cast("i32") * w[
                    vn, (vb * window + vh) * window + vv, vk, vm
                ].cast("i32")
        for i, j, n in T.grid(result, result, columns):
            with T.block("clamp"):
                vi, vj, vn = T.axes("SSS", i, j, n)
                y[vi, vj, vn] = max(min(acc[vn // SIZE, vi, vj, vn % SIZE], limit), -128).cast("i8")

    return convolution


def _arrange(s: Schedule, rows: int, chunk: int, copies: int = 2) -> None:
    weights = s.cache_read("multiply", "w", "toy.weights")
    n, i, j, m, b, h, v, k = s.loops("multiply")
    io, ii = s.split(i, (None, rows))
    s.reorder(io, n, b, h, v, ii, j, m, k)
    chunks, _ = s.split(s.fuse(b, h, v), (None, chunk))
    s.compute_at("load", io)
    s.compute_at(weights, chunks)
    last = s.split(s.loops("clamp")[-1], (None, SIZE))[0]
    s.reorder(last, *s.loops("clamp")[:2])
    s.set_scope("xp", "toy.data")
    s.set_scope("acc", "toy.accumulators")
    s.double_buffer("xp", copies)
    s.double_buffer(weights, copies)
    s.tensorize(s.loops("load")[-3], "toy.load")
    s.tensorize(s.loops(weights)[-3], "toy.weights")
    s.tensorize(ii, "toy.multiply")
    s.tensorize(s.loops("clamp")[-3], "toy.clamp")


class Unit:
    """Memories, and what commands do to them."""

    def __init__(self, commands: TileCommands, arrays: dict[str, np.ndarray]) -> None:
        self.memory = {scope: np.full(size, 77, np.uint8) for scope, size in commands.bytes.items()}
        self.arrays = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
        for command in commands:
            getattr(self, command.name.removeprefix("toy."))(command)

    def _view(self, tile: TileOperand, extents: Sequence[int], dtype: type) -> np.ndarray:
        memory = self.memory[tile.scope] if tile.scope else self.arrays[tile.buffer]
        offsets = sum(
            np.arange(extent).reshape([-1 if i == axis else 1 for i in range(len(extents))]) * stride
            for axis, (extent, stride) in enumerate(zip(extents, tile.strides, strict=True))
        )
        places = tile.address + offsets
        assert places.min() >= 0 and places.max() < memory.size, tile
        return memory.view(dtype), places // np.dtype(dtype).itemsize

    def load(self, command: TileCommand) -> None:
        (source,), (target,) = command.reads, command.writes
        memory, places = self._view(target, command.extents, np.int8)
        memory[places] = source.outside or 0
        inside = source.inside(command.extents)
        if not all(inside):
            return
        part = tuple(slice(each.start, each.stop) for each in inside)
        begin = sum(each.start * stride for each, stride in zip(inside, source.strides, strict=True))
        moved = TileOperand(source.buffer, "", source.address + begin, source.strides, (), (), ())
        values, at = self._view(moved, [len(each) for each in inside], np.int8)
        memory[places[part]] = values[at]

    def weights(self, command: TileCommand) -> None:
        values, at = self._view(command.reads[0], command.extents, np.int8)
        memory, places = self._view(command.writes[0], command.extents, np.int8)
        memory[places] = values[at]

    def multiply(self, command: TileCommand) -> None:
        rows, cols, columns, depth = command.extents
        x, at_x = self._view(command.reads[0], command.extents, np.int8)
        w, at_w = self._view(command.reads[1], command.extents, np.int8)
        acc, at = self._view(command.writes[0], command.extents, np.int32)
        products = np.broadcast_to(x[at_x].astype(np.int32) * w[at_w], command.extents).sum(-1)
        places = np.broadcast_to(at, command.extents)[..., 0]
        acc[places] = products if command.is_first else acc[places] + products

    def clamp(self, command: TileCommand) -> None:
        acc, at = self._view(command.reads[0], command.extents, np.int32)
        y, places = self._view(command.writes[0], command.extents, np.int8)
        y[places] = np.clip(acc[at], -128, command.numbers["high"]).astype(np.int8)


def _cases() -> list[tuple[int, ...]]:
    rng = random.Random(7)
    return [
        (rng.randint(3, 9), rng.choice([3, 8, 11, 20]), rng.choice([5, 8, 19]), rng.choice([1, 2, 3]),
         rng.choice([1, 2]), rng.randint(20, 120), rng.randint(1, 5), rng.randint(1, 7), rng.randint(1, 3))
        for _ in range(12)
    ]  # fmt: skip


def _expected(x: np.ndarray, w: np.ndarray, case: tuple[int, ...]) -> np.ndarray:
    size, channels, columns, window, stride, limit = case[:6]
    deep = -(-channels // SIZE)
    padded = np.pad(x.astype(np.int64), ((1, 1), (1, 1), (0, deep * SIZE - channels)))
    kernel = w.reshape(-1, deep, window, window, SIZE, SIZE).transpose(2, 3, 1, 4, 0, 5)
    kernel = kernel.reshape(window, window, deep * SIZE, -1).astype(np.int64)
    result = (size + 2 - window) // stride + 1
    total = sum(
        padded[h : h + (result - 1) * stride + 1 : stride, v : v + (result - 1) * stride + 1 : stride] @ kernel[h, v]
        for h in range(window)
        for v in range(window)
    )
    return np.clip(total[..., :columns], -128, limit).astype(np.int8)


@pytest.mark.parametrize("case", _cases(), ids=lambda case: "-".join(map(str, case)))
def test_commands_compute_what_the_function_means(case: tuple[int, ...]) -> None:
    size, channels, columns, window, stride, limit, rows, chunk, copies = case
    function = _convolution(size, channels, columns, window, stride, limit)
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 6, (size, size, channels)).astype(np.int8)
    deep, wide = -(-channels // SIZE), -(-columns // SIZE)
    w = rng.integers(-5, 6, (wide, deep * window * window, SIZE, SIZE)).astype(np.int8)
    s = Schedule.of(function, TensorType.of(x.shape, "i8"), TensorType.of(w.shape, "i8"))
    _arrange(s, rows, chunk, copies)
    commands = s.commands()
    y = np.zeros_like(_expected(x, w, case))
    Unit(commands, {"x": x, "w": w, "y": y})
    np.testing.assert_array_equal(y, _expected(x, w, case))
    assert {command.numbers["high"] for command in commands if command.name == "toy.clamp"} == {limit}


def _scheduled(rows: int = 2) -> Schedule:
    function = _convolution(6, 8, 8, 3, 1, 100)
    s = Schedule.of(function, TensorType.of((6, 6, 8), "i8"), TensorType.of((1, 9, SIZE, SIZE), "i8"))
    _arrange(s, rows, 4)
    return s


def test_loops_of_instructions_are_loops_where_they_are_emitted() -> None:
    function = _convolution(6, 11, 19, 3, 1, 100)
    rng = np.random.default_rng(1)
    x, w = rng.integers(-5, 6, (6, 6, 11)).astype(np.int8), rng.integers(-5, 6, (3, 18, SIZE, SIZE)).astype(np.int8)

    @mirlo.script
    def model(x: R.Tensor[(6, 6, 11), R.i8], w: R.Tensor[(3, 18, SIZE, SIZE), R.i8]):
        return R.call_tir(function, x, w)

    def arrange(s: Schedule) -> None:
        _arrange(s, 2, 4)

    found = mirlo.compile(model, schedules={"convolution": arrange}, cache=False)(x, w)
    np.testing.assert_array_equal(found, _expected(x, w, (6, 11, 19, 3, 1, 100)))


def test_reductions_begin_and_end_once_for_each_tile() -> None:
    products = [command for command in _scheduled().commands() if command.name == "toy.multiply"]
    assert len(products) == 3 * 9
    assert [command.is_first for command in products] == 3 * [True, *[False] * 8]
    assert [command.is_last for command in products] == 3 * [*[False] * 8, True]


def test_copies_take_turns() -> None:
    s = _scheduled()
    assert "2 x xp[1, 8, 8, 8] toy.data" in str(s)
    loads = [command.writes[0].address for command in s.commands() if command.name == "toy.load"]
    assert loads == [0, 320, 0]
    s.double_buffer("xp", 1)
    assert {command.writes[0].address for command in s.commands() if command.name == "toy.load"} == {0}
    replayed = Schedule.of(
        _convolution(6, 8, 8, 3, 1, 100), TensorType.of((6, 6, 8), "i8"), TensorType.of((1, 9, SIZE, SIZE), "i8")
    ).replay(s)
    assert list(replayed.commands()) == list(s.commands())


def test_what_does_not_fit_is_an_error() -> None:
    assert _scheduled().commands({"toy.data": 640}).bytes["toy.data"] == 640
    with pytest.raises(
        ScheduleError, match=r"buffers take 640 bytes of 'toy.data', which has 600: 'xp' 2 x 320; split loops"
    ):
        _scheduled().commands({"toy.data": 600})


@mirlo.prim_func
def _product(a: T.Buffer[(12, 16), T.i8], b: T.Buffer[(16, SIZE), T.i8], c: T.Out[(12, SIZE), T.i32]):
    for i, j, k in T.grid(12, SIZE, 16):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0
            c[vi, vj] += a[vi, vk].cast("i32") * b[vk, vj].cast("i32")


@mirlo.prim_func
def rows_of_product(x: T.Buffer[(4, SIZE), T.i8], w: T.Buffer[(SIZE, SIZE), T.i8], y: T.Out[(4, SIZE), T.i32]):
    for i, j, k in T.grid(4, SIZE, SIZE):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                y[vi, vj] = 0
            y[vi, vj] += x[vi, vk].cast("i32") * w[vk, vj].cast("i32")


command_intrin("toy.rows", rows_of_product)


def _blocks(rows: int, depth: int = SIZE) -> tuple[Schedule, str]:
    s = Schedule.of(_product, TensorType.of((12, 16), "i8"), TensorType.of((16, SIZE), "i8"))
    i, j, k = s.loops("product")
    outer_i, outer_k, ii, ki = s.tile((i, k), (rows, depth))
    s.reorder(outer_i, outer_k, ii, j, ki)
    return s, ii


def test_an_instruction_has_limits() -> None:
    s, loop = _blocks(4)
    s.tensorize(loop, "toy.rows")
    assert [command.extents for command in s.commands()] == [(4, SIZE, SIZE)] * 6
    s, loop = _blocks(5)
    with pytest.raises(ScheduleError, match=r"the loops are \[5, 8, 8\], 'toy.rows' takes at most \[4, 8, 8\]"):
        s.tensorize(loop, "toy.rows")


def test_refused_commands() -> None:
    s, loop = _blocks(4)
    with pytest.raises(ScheduleError, match=r"'product' is in no instruction: replace one of its loops by one"):
        s.commands()
    with pytest.raises(ScheduleError, match="'a' is in 'main' memory, 'toy.flat' has 'x' in 'toy.data'"):
        command_intrin("toy.flat", rows_of_product, {"x": "toy.data"})
        s.tensorize(loop, "toy.flat")
    with pytest.raises(ScheduleError, match="'product' does not compute what 'toy.clamp' means"):
        s.tensorize(s.loops("product")[-3], "toy.clamp")
    with pytest.raises(ScheduleError, match=r"double_buffer: 'c' is a parameter"):
        s.double_buffer("c")
    with pytest.raises(ScheduleError, match="double_buffer: expected 1 to 256 copies"):
        s.double_buffer(s.cache_read("product", "a", "toy.data"), 0)
    with pytest.raises(ScheduleError, match=r"command intrinsic 'toy.odd': .* found no parameter 'z' in rows"):
        command_intrin("toy.odd", rows_of_product, {"z": "toy.data"})
    with pytest.raises(ScheduleError, match="there is a tensor intrinsic 'toy.rows' already"):
        command_intrin("toy.rows", clamp)


def test_operands_move_along_the_same_loops() -> None:
    s = Schedule.of(_product, TensorType.of((12, 16), "i8"), TensorType.of((16, SIZE), "i8"))
    i, j, k = s.loops("product")
    io, ii = s.split(i, (None, 4))
    ko, ki = s.split(k, (None, SIZE))
    s.reorder(io, ko, j, ii, ki)
    with pytest.raises(ScheduleError, match="'a' moves along other loops of 'toy.rows' than 'x'|the loops are"):
        s.tensorize(j, "toy.rows")


def test_sizes_are_known() -> None:
    n = T.dims("n")

    @mirlo.prim_func
    def dynamic(x: T.Buffer[(n, SIZE), T.i8], y: T.Out[(n, SIZE), T.i8]):
        for i, j in T.grid(n, SIZE):
            y[i, j] = x[i, j]

    s = Schedule.of(dynamic, TensorType.of(("n", SIZE), "i8"))
    with pytest.raises(ScheduleError, match="a size that only the run time knows"):
        s.commands()


def test_a_tile_of_an_edge_in_two_loops_is_an_error() -> None:
    """12 rows in tiles of 2 x 4 rows leave 4: that is one iteration of the outer loop of the instruction."""

    @mirlo.prim_func
    def two_loops(x: T.Buffer[(ROWS, COLS), T.i8], y: T.Out[(ROWS, COLS), T.i8]):
        for i, j in T.grid(ROWS, COLS):
            y[i, j] = x[i, j]

    @mirlo.prim_func
    def line(x: T.Buffer[(14,), T.i8], y: T.Out[(14,), T.i8]):
        for i in T.grid(14):
            y[i] = x[i]

    intrin = command_intrin("toy.two_loops", two_loops)
    assert intrin.name == "toy.two_loops"
    s = Schedule.of(line, TensorType.of((14,), "i8"))
    _, rows, _ = s.split(s.loops("y")[0], (None, 2, 4))
    s.tensorize(rows, "toy.two_loops")
    with pytest.raises(ScheduleError, match="ends at an edge within several loops of 'toy.two_loops'"):
        s.commands()


def _shape_of(tree: CommandTree) -> list[str]:
    """Return the loops and instructions of a tree, each once, in order."""

    def listed(body: Sequence[CommandLoop | CommandSite], depth: int) -> list[str]:
        lines: list[str] = []
        for node in body:
            if isinstance(node, CommandSite):
                lines.append("  " * depth + node.name)
            else:
                lines += ["  " * depth + f"{node.extent} times", *listed(node.body, depth + 1)]
        return lines

    return listed(tree.body, 0)


def test_a_tree_keeps_the_loops_outside_of_instructions() -> None:
    tree = _scheduled().command_tree()
    assert _shape_of(tree.only(lambda site: site.name in ("toy.weights", "toy.multiply"))) == [
        "3 times", "  1 times", "    3 times", "      1 times", "        toy.weights", "      4 times",
        "        toy.multiply",
    ]  # fmt: skip
    assert _shape_of(tree.only(lambda site: False)) == []
    assert len(list(tree.sites())) == 4, "a program's size does not depend on how often its loops run"
    assert len(tree.unrolled()) == 3 + 9 + 27 + 1


@pytest.mark.parametrize("name", ["toy.load", "toy.weights", "toy.multiply", "toy.clamp"])
def test_the_tree_of_one_instruction_has_its_commands(name: str) -> None:
    """A queue that executes its own loops issues the commands of the unrolled list, in the same order."""
    s = _scheduled()
    alone = s.command_tree().only(lambda site: site.name == name)
    assert list(alone.unrolled()) == [command for command in s.commands() if command.name == name]


def test_addresses_are_functions_of_loops() -> None:
    (site,) = _scheduled().command_tree().only(lambda site: site.name == "toy.load").sites()
    (target,) = site.writes
    assert (target.address.loops, target.copies, target.copy_bytes) == (frozenset(), 2, 320)
    function = AffineAddress(3, (("i", 2),), ((AffineAddress(1, (("i", 1), ("j", 1))), 4, 10),))
    for i in range(6):
        for j in range(6):
            values = {"i": i, "j": j}
            assert function.at(values) == 3 + 2 * i + (1 + i + j) // 4 * 10
            assert function.times(3).plus(-2).at(values) == 3 * function.at(values) - 2
    assert function.loops == {"i", "j"}
