"""Products of matrices: their schedule in tiles, and the words of the three threads that execute it.

A product is loops over tiles of 32 x 32. Its commands are in the order of these loops; a block of the result is summed
in a half of Dst while the other half is packed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mirlo
from mirlo import T
from mirlo.extend.codegen import MemorySpan, QueuedCommand
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import Schedule, TileCommand, command_intrin
from mirlo_tensix import instructions as tensix
from mirlo_tensix import riscv, vector
from mirlo_tensix.instructions import DST_ROWS, FORMATS, TILE, Instructions, Loop, Mark, Riscv, Variable, op
from mirlo_tensix.vector import Body, unary
from mirlo_tensix.work import HALF, MATH, Command, Work, load, pack, zero

FACE = (2, 2, 16, 16)
"""The dims of a tile: faces of 16 x 16."""
SRC_A, SRC_B, DST = "tensix.srca", "tensix.srcb", "tensix.dst"
TILE_BYTES = FORMATS["bf16"].tile_bytes
"""Bytes of a tile in schedules, which are those of bf16 for all formats."""
SUMS_BYTES = 2 * TILE_BYTES
"""Bytes of a tile of fp32 in Dst."""
CAPACITY = {SRC_A: 2 * TILE_BYTES, SRC_B: 2 * TILE_BYTES, DST: 2 * HALF * SUMS_BYTES}
BLOCKS = ((2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))
"""Tiles of the result, down and right, that are summed together: those that take the fewest loads first."""
BIAS_ROWS = 3
"""Rows of weights that hold a bias: it is the sum of three numbers, which the unit adds as products by one."""
BUFFERS = 3
"""Panels in L1: one is multiplied, the next one is there, and one is read."""
ROWS, PANELS, FREE = 0x50, 0x60, 0x70
"""Where in L1 it is counted which rows and panels have arrived, and which panels are unpacked."""


@mirlo.prim_func
def unpack_tile(x: T.Buffer[FACE, T.bf16], y: T.Out[FACE, T.bf16]):
    for p, q, i, j in T.grid(2, 2, 16, 16):
        y[p, q, i, j] = x[p, q, i, j]


@mirlo.prim_func
def multiply_tiles(x: T.Buffer[FACE, T.bf16], w: T.Buffer[FACE, T.bf16], sums: T.Out[FACE, T.f32]):
    for p, q, i, j, r, k in T.grid(2, 2, 16, 16, 2, 16):
        with T.block("multiply"):
            vp, vq, vi, vj, vr, vk = T.axes("SSSSRR", p, q, i, j, r, k)
            with T.init():
                sums[vp, vq, vi, vj] = 0.0
            sums[vp, vq, vi, vj] += x[vp, vr, vi, vk].cast("f32") * w[vr, vq, vk, vj].cast("f32")


@mirlo.prim_func
def pack_tile(x: T.Buffer[FACE, T.f32], y: T.Out[FACE, T.bf16]):
    for p, q, i, j in T.grid(2, 2, 16, 16):
        y[p, q, i, j] = x[p, q, i, j].cast("bf16")


command_intrin("tensix.unpack_a", unpack_tile, {"x": "", "y": SRC_A})
command_intrin("tensix.unpack_b", unpack_tile, {"x": "", "y": SRC_B})
command_intrin("tensix.multiply", multiply_tiles, {"x": SRC_B, "w": SRC_A, "sums": DST})
command_intrin("tensix.pack", pack_tile, {"x": DST, "y": ""})


def tiled_product(m: int, n: int, k: int) -> Any:
    """Return the product of m x k and k x n tiles as a prim function."""

    @mirlo.prim_func
    def product(
        a: T.Buffer[(m, k, *FACE), T.bf16], b: T.Buffer[(k, n, *FACE), T.bf16], c: T.Out[(m, n, *FACE), T.bf16]
    ):
        sums = T.alloc((m, n, *FACE), "f32")
        for i, j, p, q, x, y, z, r, e in T.grid(m, n, 2, 2, 16, 16, k, 2, 16):
            with T.block("products"):
                vi, vj, vp, vq, vx, vy, vz, vr, ve = T.axes("SSSSSSRRR", i, j, p, q, x, y, z, r, e)
                with T.init():
                    sums[vi, vj, vp, vq, vx, vy] = 0.0
                sums[vi, vj, vp, vq, vx, vy] += a[vi, vz, vp, vr, vx, ve].cast("f32") * b[vz, vj, vr, vq, ve, vy].cast(
                    "f32"
                )
        for i, j, p, q, x, y in T.grid(m, n, 2, 2, 16, 16):
            with T.block("pack"):
                vi, vj, vp, vq, vx, vy = T.axes("SSSSSS", i, j, p, q, x, y)
                c[vi, vj, vp, vq, vx, vy] = sums[vi, vj, vp, vq, vx, vy].cast("bf16")

    return product


@dataclass(frozen=True)
class Planes:
    """Planes of 16 channels in L1; a tile is 32 rows of two planes, from any row on."""

    rows: int
    first: int = 0
    """The row of the first pixel of a result."""
    gaps: tuple[tuple[int, int, int, int], ...] = ()
    """Rows of a result that are no pixels and become zero: first, count, step between such rows, how often."""

    def is_gap(self, row: int) -> bool:
        """Return whether a row is no pixel of a result."""
        return any(
            first <= row < first + step * (times - 1) + count and (times == 1 or (row - first) % step < count)
            for first, count, step, times in self.gaps
        )


@dataclass(frozen=True)
class Product(Work):
    """A product of m x k and k x n tiles; with a bias the weights have one more row of tiles, which ones multiply."""

    m: int
    n: int
    k: int
    phases: int = 2
    activation: str | None = None
    """A function of the sums."""
    block: tuple[int, int] | None = None
    """Tiles of the result that are summed together; None chooses."""
    has_bias: bool = False
    windows: tuple[tuple[int, int], ...] = ()
    """For each step of the reduction, the plane and the row at which the result's first row reads; () for matrices."""
    x: Planes = Planes(0)
    y: Planes | None = None
    """The planes of the left operand, where there are windows, and those of the result; None for tiles."""
    has_panels: bool = False
    """Whether the right operand comes in panels, to buffers in turn: columns that are summed together."""

    @property
    def is_plane(self) -> bool:
        return bool(self.windows)

    @property
    def depth(self) -> int:
        """Return the number of tiles along the reduction: of the operands and of the bias."""
        return self.k + self.has_bias

    def blocks(self) -> list[tuple[int, int]]:
        """Return the blocks that divide the result, the best first."""
        return [each for each in BLOCKS if self.m % each[0] == 0 and self.n % each[1] == 0]

    @property
    def best(self) -> tuple[int, int]:
        return self.block or self.blocks()[0]

    @property
    def mvmuls(self) -> int:
        """Return the cycles that the matrix unit needs."""
        return 16 * self.m * self.n * self.depth * self.phases

    @property
    def panel_bytes(self) -> int:
        return self.depth * self.best[1] * self.kind.tile_bytes

    @property
    def tensor_bytes(self) -> tuple[int, ...]:
        """Return the bytes of the left operand, the right one, ones, and the result."""
        tile, row = self.kind.tile_bytes, 16 * self.kind.bytes
        planes = 2 + max((plane for plane, _ in self.windows), default=0)
        left = planes * row * self.x.rows if self.windows else self.m * self.k * tile
        right = BUFFERS * self.panel_bytes if self.has_panels else self.depth * self.n * tile
        result = self.m * self.n * tile if self.y is None else 2 * self.n * row * self.y.rows
        return left, right, tile if self.has_bias else 0, -(-result // tile) * tile

    @property
    def limit(self) -> int:
        return 20_000 + 40 * self.mvmuls + (4_000 * self.m * self.n if self.activation else 0)

    def __str__(self) -> str:
        return f"a product of {self.m} x {self.k} and {self.k} x {self.n} tiles"

    def schedule(self) -> Schedule:
        """Return the loops of the product, arranged for the units."""
        shapes = ((self.m, self.depth), (self.depth, self.n))
        s = Schedule.of(
            tiled_product(self.m, self.n, self.depth),
            *(TensorType.of((*each, *FACE), "bf16") for each in shapes),
        )
        rows, columns = self.best
        left, right = s.cache_read("products", "a", SRC_B), s.cache_read("products", "b", SRC_A)
        s.set_scope("sums", DST)
        i, j, p, q, x, y, z, r, e = s.loops("products")
        (io, ii), (jo, ji) = s.split(i, (None, rows)), s.split(j, (None, columns))
        s.reorder(*((jo, io) if self.has_panels else (io, jo)), z, ii, ji, p, q, x, y, r, e)
        s.compute_at(left, ii)
        s.compute_at(right, ji)
        s.reverse_compute_at("pack", io if self.has_panels else jo)
        for buffer in (left, right, "sums"):
            s.double_buffer(buffer)
        s.tensorize(s.loops(left)[-4], "tensix.unpack_b")
        s.tensorize(s.loops(right)[-4], "tensix.unpack_a")
        s.tensorize(p, "tensix.multiply")
        s.tensorize(s.loops("pack")[-4], "tensix.pack")
        return s

    def commands(self) -> Iterator[Command]:
        pending, loads, arrived = list[TileCommand](), {"a": 0, "b": 0}, set[tuple[int, int]]()
        packs, size = list[Command](), math.prod(self.best)
        yield from self._margins()
        for command in self.schedule().commands(CAPACITY):
            if command.name == "tensix.pack":
                place = command.writes[0].address // TILE_BYTES
                packs.append(pack(place, _dst_tile(self.best, command.reads[0].address)))
                if len(packs) == size:
                    yield from self._gaps(packs)
                    yield from packs
                    packs = []
                continue
            pending.append(command)
            if sum(each.name == "tensix.multiply" for each in pending) == size:
                yield from (self._arrival(each, arrived) for each in _of_block(pending, loads, self.best))
                pending = []

    def _margins(self) -> Iterator[Command]:
        """Yield the commands that pack zeros before the first pixel of a result and after the last one."""
        y = self.y or Planes(0)
        pixels = [
            min(pixel, y.rows - TILE) - y.first
            for first, count, _, times in y.gaps
            for pixel in range(first, first + count if times == 1 else 0, TILE)
        ]
        places = [(column, pixel) for pixel in pixels for column in range(self.n)]
        for tile, part in ((0, places[::2]), (HALF, places[1::2] or places)):  # halves are filled in turn
            if places:
                yield zero(tile, ())
                yield from (pack(column, tile, pixel) for column, pixel in part)

    def _gaps(self, packs: Sequence[Command]) -> Iterator[Command]:
        """Yield the command that sets to zero what is no pixel in tiles of a result, in the rows of a half of Dst."""
        rows = [
            DST_ROWS * each.tile + 32 * (pixel // 16) + 16 * face + pixel % 16
            for each in packs
            for pixel in range(TILE)
            if self.y is not None and self.y.is_gap(self.y.first + each.place // self.n * TILE + pixel)
            for face in (0, 1)
        ]
        if rows:
            yield zero(packs[0].tile, rows)

    def setups(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        math = tensix.setup_math(self.kind, self.is_plane)
        if self.activation is not None:
            math += vector.set_constants(vector.configured([activation_body(self.activation)]))
        unpackers = tensix.setup_unpackers(self.kind, self.x.rows if self.windows else 0)
        return unpackers, math, tensix.setup_packers(self.kind, self.y.rows if self.y else 0)

    def words(self, command: Command, places: Sequence[int], waits: set[str], gives: set[str]) -> Instructions:
        size, tile = self.kind.tile_bytes, command.tile
        match command.kind, command.operand:
            case "load", 1:
                return [*self._waits(command), *tensix.unpack(0, places[1] + self._right(command.place) * size)]
            case "load", _:
                (row, depth), is_bias = divmod(command.place, self.depth), command.place % self.depth == self.k
                if self.windows:
                    plane, shift = (0, 0) if is_bias else self.windows[depth]
                    at = 0 if is_bias else 16 * self.kind.bytes * (plane * self.x.rows + TILE * row + shift)
                    return [*self._waits(command), *tensix.unpack_planes(places[2 if is_bias else 0] + at, is_bias)]
                at = places[2] if is_bias else places[0] + (row * self.k + depth) * size
                return [*self._waits(command), *tensix.unpack(1, at)]
            case "pack", _:
                row, column = divmod(command.place, self.n)
                at = command.place * size
                if self.y is not None:
                    at = 16 * self.kind.bytes * (2 * column * self.y.rows + self.y.first + TILE * row + command.pixel)
                return list(tensix.pack_tile(self.kind, tile, places[3] + at))
            case "zero", _:
                half = [op("ZEROACC", half=tile // HALF, what=2)] if "sums" in waits else []
                function = _activation_words(self, tile // HALF) if command.rows else []
                rows = [op("ZEROACC", half=row) for row in command.rows]  # which advance the counters of rows
                return [*half, *function, tensix.math_tile(0), *rows, tensix.SET_ROWS]
        zero: Instructions = [op("ZEROACC", half=tile // HALF, what=2)] if "sums" in waits else []
        products = tensix.multiply_tile(self.phases, "a" in gives, "b" in gives)
        after = _activation_words(self, tile // HALF) if "sums" in gives else []
        return [*zero, tensix.math_tile(tile), *products, *after]

    def _right(self, place: int) -> int:
        """Return the tile of the buffers in which a tile of the right operand is."""
        if not self.has_panels:
            return place
        depth, column = divmod(place, self.n)
        panel, rest = divmod(column, self.best[1])
        return (panel % BUFFERS * self.depth + depth) * self.best[1] + rest

    def _arrival(self, command: Command, arrived: set[tuple[int, int]]) -> Command:
        """Return a load with the block of rows, or the panel, that it is the first one to need."""
        if not self.has_panels or command.kind != "load":
            return command
        rows, columns = self.best
        row = 0 if self.windows else command.place // self.depth // rows  # images are there before the first product
        part = command.place % self.n // columns if command.operand else row
        if (command.operand, part) in arrived:
            return command
        arrived.add((command.operand, part))
        return replace(command, arrives=part)

    def _waits(self, command: Command) -> Instructions:
        """Return the commands before a load of panels: a wait, and the signal that the former panel is free."""
        part, semaphore = command.arrives, tensix.PANEL_UNPACKED
        if part is None:
            return []
        waits = Variable("wait", PANELS if command.operand else ROWS, part + 1)
        if command.operand == 0:
            return [waits]
        if part == 0:
            return [op("SEMINIT", semaphores=1 << semaphore, most=15), waits]
        done = [tensix.stall(tensix.BLOCK_SYNC, tensix.UNPACKERS_BUSY), tensix.post(semaphore)]
        unpacked = Riscv(tuple(riscv.wait_for(riscv.SEMAPHORES + 4 * semaphore, 1)))
        return [*done, unpacked, Variable("store", FREE, part), tensix.get(semaphore), waits]


def _of_block(commands: list[TileCommand], loads: dict[str, int], block: tuple[int, int]) -> Iterator[Command]:
    """Yield the loads and products of one step of the reduction of a block, every other row from right to left.

    A tile that is in its bank already is not loaded again: five loads in place of eight for 2 x 2 products.
    """
    rows: dict[int, list[tuple[TileCommand, int, int]]] = {}
    at = {"a": 0, "b": 0}
    for command in commands:
        if command.name == "tensix.multiply":
            rows.setdefault(at["b"], []).append((command, at["a"], at["b"]))
        else:
            at[command.name[-1]] = command.reads[0].address // TILE_BYTES
    current: dict[str, int] = {}
    for number, row in enumerate(rows.values()):
        for command, *wanted in reversed(row) if number % 2 else row:
            for bank, place in zip("ab", wanted, strict=True):
                if current.get(bank) != place:
                    current[bank] = place
                    yield load(int(bank == "a"), place, bank, loads[bank])
                    loads[bank] += 1
            tile = _dst_tile(block, command.writes[0].address)
            banks = (MemorySpan(bank, (loads[bank] - 1) % 2, 1) for bank in "ab")
            queued = QueuedCommand(
                MATH, tuple(banks), (MemorySpan("sums", tile // HALF, 1),), f"multiply onto tile {tile}"
            )
            yield Command(queued, "multiply", tile=tile)


def _dst_tile(block: tuple[int, int], address: int) -> int:
    """Return the tile of Dst at an address of the sums: each copy of a block begins a half."""
    half, tile = divmod(address // SUMS_BYTES, block[0] * block[1])
    return HALF * half + tile


@functools.cache
def activation_body(name: str) -> Body:
    """Return a function of the sums of a tile of Dst."""
    v, function = Body(), unary(name)
    assert function is not None
    for part in (0, 1):
        v.store(function(v, v.load(0, part)), 0, part)
    return v


@functools.lru_cache(maxsize=64)
def _activation_words(product: Product, half: int) -> Instructions:
    """Return the words that replace the sums of a half by a function of them."""
    if product.activation is None:
        return []
    body = activation_body(product.activation)
    once = vector.instructions(body, vector.configured([body]))
    loop = Loop(16, (*once.repeated, *tensix.advance_rows(4)))
    tiles = range(HALF * half, HALF * half + product.best[0] * product.best[1])
    words = [word for tile in tiles for word in (tensix.math_tile(tile), tensix.SET_ROWS, loop)]
    before = tensix.stall(tensix.BLOCK_VECTOR | tensix.BLOCK_MATH, tensix.MATH_BUSY)
    after = tensix.stall(tensix.BLOCK_MATH, tensix.VECTOR_BUSY)
    return [Mark(f"{product.activation} of a half"), before, *once.before, *words, after, tensix.SET_ROWS]
