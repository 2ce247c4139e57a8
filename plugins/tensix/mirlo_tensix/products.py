"""Products of matrices: their schedule in tiles, and the words of the three threads that execute it.

A product is loops over tiles of 32 x 32. Its commands are in the order of these loops; `synchronize` finds which thread
waits for which: the banks of SrcA and SrcB are handed over by the hardware, the halves of Dst by a semaphore.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mirlo
from mirlo import T
from mirlo.extend.codegen import (
    Banks,
    MemorySpan,
    QueuedCommand,
    QueueModel,
    QueueStep,
    Semaphore,
    check_signals,
    synchronize,
)
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import Schedule, TileCommand, command_intrin
from mirlo_tensix import instructions as tensix
from mirlo_tensix import vector
from mirlo_tensix.instructions import FORMATS, TILE, Format, Instructions, Loop, Mark, Riscv
from mirlo_tensix.riscv import SEMAPHORES, store, wait_for
from mirlo_tensix.vector import UNARY, Body

FACE = (2, 2, 16, 16)
"""The dims of a tile: faces of 16 x 16."""
SRC_A, SRC_B, DST = "tensix.srca", "tensix.srcb", "tensix.dst"
TILE_BYTES = FORMATS["bf16"].tile_bytes
"""Bytes of a tile in schedules, which are those of bf16 for all formats."""
SUMS_BYTES = 2 * TILE_BYTES
"""Bytes of a tile of fp32 in Dst."""
HALF = 4
"""Tiles of fp32 in a half of Dst."""
CAPACITY = {SRC_A: 2 * TILE_BYTES, SRC_B: 2 * TILE_BYTES, DST: 2 * HALF * SUMS_BYTES}
BLOCKS = ((2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))
"""Tiles of the result, down and right, that are summed together: those that take the fewest loads first."""
JOINT_RATE, PACK_RATE = 80, 64
"""Bytes a cycle that both unpackers read together, and that the packers write."""

BUFFERS = 3
"""Panels in L1: one is multiplied, the next one is there, and one is read."""
ROWS, PANELS, FREE = 0x50, 0x60, 0x70
"""Where in L1 it is counted which rows and panels have arrived, and which panels are unpacked."""
UNPACK, MATH, PACK = range(3)
"""The threads, which are the queues of commands."""
MODEL = QueueModel(
    {"a": 2, "b": 2, "sums": 2},
    [Banks("a", UNPACK, MATH, 2), Banks("b", UNPACK, MATH, 2), Semaphore("sums", MATH, PACK, 2)],
)


@mirlo.prim_func
def unpack(x: T.Buffer[FACE, T.bf16], y: T.Out[FACE, T.bf16]):
    for p, q, i, j in T.grid(2, 2, 16, 16):
        y[p, q, i, j] = x[p, q, i, j]


@mirlo.prim_func
def multiply(x: T.Buffer[FACE, T.bf16], w: T.Buffer[FACE, T.bf16], sums: T.Out[FACE, T.f32]):
    for p, q, i, j, r, k in T.grid(2, 2, 16, 16, 2, 16):
        with T.block("multiply"):
            vp, vq, vi, vj, vr, vk = T.axes("SSSSRR", p, q, i, j, r, k)
            with T.init():
                sums[vp, vq, vi, vj] = 0.0
            sums[vp, vq, vi, vj] += x[vp, vr, vi, vk].cast("f32") * w[vr, vq, vk, vj].cast("f32")


@mirlo.prim_func
def pack(x: T.Buffer[FACE, T.f32], y: T.Out[FACE, T.bf16]):
    for p, q, i, j in T.grid(2, 2, 16, 16):
        y[p, q, i, j] = x[p, q, i, j].cast("bf16")


command_intrin("tensix.unpack_a", unpack, {"x": "", "y": SRC_A})
command_intrin("tensix.unpack_b", unpack, {"x": "", "y": SRC_B})
command_intrin("tensix.multiply", multiply, {"x": SRC_B, "w": SRC_A, "sums": DST})
command_intrin("tensix.pack", pack, {"x": DST, "y": ""})


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
class Windows:
    """A left operand of planes: rows of 16 channels, of which a tile reads 32 rows of two planes from any row on."""

    rows: int
    """The rows of a plane."""
    planes: int
    tiles: tuple[tuple[int, int], ...]
    """For each step of the reduction, the first plane and the row at which the result's first row reads."""

    def row(self, row: int, depth: int) -> int:
        """Return the row of 16 channels at which a tile begins."""
        plane, shift = self.tiles[depth]
        return plane * self.rows + TILE * row + shift


@dataclass(frozen=True)
class Product:
    """A product of m x k and k x n tiles."""

    m: int
    n: int
    k: int
    phases: int = 2
    activation: str | None = None
    """A function of the sums."""
    block: tuple[int, int] | None = None
    """Tiles of the result that are summed together; None chooses."""
    windows: Windows | None = None
    """How the left operand is read, if it is no matrix of tiles."""
    format: str = "bf16"
    has_panels: bool = False
    """Whether the right operand comes in panels, to buffers in turn: columns that are summed together."""

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]

    def blocks(self) -> list[tuple[int, int]]:
        """Return the blocks that divide the result, the best first."""
        return [each for each in BLOCKS if self.m % each[0] == 0 and self.n % each[1] == 0]

    @property
    def mvmuls(self) -> int:
        """Return the cycles that the matrix unit needs."""
        return 16 * self.m * self.n * self.k * self.phases

    @property
    def panel_bytes(self) -> int:
        return self.k * (self.block or self.blocks()[0])[1] * self.kind.tile_bytes

    @property
    def tensor_bytes(self) -> tuple[int, int, int]:
        """Return the bytes in L1 of both operands and of the result."""
        left, right, result = self.operand_bytes
        return left, BUFFERS * self.panel_bytes if self.has_panels else right, result

    @property
    def operand_bytes(self) -> tuple[int, int, int]:
        """Return the bytes of both operands and of the result."""
        tile, windows = self.kind.tile_bytes, self.windows
        left = self.m * self.k * tile if windows is None else 16 * self.kind.bytes * windows.rows * windows.planes
        return left, self.k * self.n * tile, self.m * self.n * tile

    @property
    def result_shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def limit(self) -> int:
        """Return how many cycles it may take."""
        return 20_000 + 40 * self.mvmuls + (4_000 * self.m * self.n if self.activation else 0)

    @property
    def activation_cycles(self) -> int:
        """Return the cycles of the function of the sums."""
        if self.activation is None:
            return 0
        body = activation_body(self.activation)
        return self.m * self.n * 16 * (len(vector.instructions(body, vector.configured([body])).repeated) + 4)

    def __str__(self) -> str:
        return f"a product of {self.m} x {self.k} and {self.k} x {self.n} tiles"

    def threads(self, places: Sequence[int]) -> Threads:
        return threads(self, places)

    def schedule(self) -> Schedule:
        """Return the loops of the product, arranged for the units."""
        shapes = ((self.m, self.k), (self.k, self.n))
        s = Schedule.of(
            tiled_product(self.m, self.n, self.k),
            *(TensorType.of((*each, *FACE), "bf16") for each in shapes),
        )
        rows, columns = self.block or self.blocks()[0]
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


@dataclass(frozen=True)
class Threads:
    """The words of the three threads."""

    words: tuple[Instructions, Instructions, Instructions]
    kind: Format
    is_plane: bool = False
    """Whether SrcB is unpacked in halves."""

    @functools.cached_property
    def busy(self) -> dict[str, int]:
        """Return the cycles in which each unit works, as the documentation has them."""
        counts = sum((tensix.executed(words) for words in self.words), Counter[int]())
        tile = self.kind.tile_bytes
        unpacked = counts[tensix.UNPACK_A] * tile + counts[tensix.UNPACK_B] * tile // (2 if self.is_plane else 1)
        return {
            "matrix": counts[tensix.MULTIPLY],
            "vector": sum(counts[code] for code in tensix.VECTOR),
            "unpackers": -(-unpacked // JOINT_RATE),
            "packers": -(-counts[tensix.PACK] * tile // PACK_RATE),
        }

    @property
    def durations(self) -> tuple[tuple[str, int], ...]:
        """Return the cycles of instructions that the simulator does not report: two, and a tile's bytes by the rate."""
        return ("UNPACR", 2 + self.kind.tile_bytes // 64), ("PACR", self.kind.tile_bytes // PACK_RATE)

    @property
    def floor(self) -> int:
        """Return the cycles that moving bytes takes at least, which the simulator does not charge."""
        return max(self.busy["unpackers"], self.busy["packers"])


@dataclass
class _Loads:
    """The tiles in the current banks of SrcA and SrcB: a tile that is there already is not loaded again."""

    current: dict[str, int | None] = field(default_factory=lambda: {"a": None, "b": None})
    counts: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def bank(self, kind: str) -> MemorySpan:
        return MemorySpan(kind, (self.counts[kind] - 1) % 2, 1)


@dataclass(frozen=True)
class _Work:
    """A command with what its words need."""

    queued: QueuedCommand
    kind: str
    """"a" or "b": a load; "multiply"; "pack"."""
    tile: int = 0
    """The tile of Dst."""
    place: int = 0
    """The tile of its tensor in L1."""


def _snake(commands: list[TileCommand]) -> Iterator[tuple[TileCommand, int, int]]:
    """Yield products of a block with the tiles of their operands, every other row from right to left.

    A tile of SrcA stays where a row ends: five loads in place of eight for 2 x 2 products.
    """
    rows: dict[int, list[tuple[TileCommand, int, int]]] = {}
    offsets = {"a": 0, "b": 0}
    for command in commands:
        if command.name == "tensix.multiply":
            row = rows.setdefault(offsets["b"], [])
            row.append((command, offsets["a"], offsets["b"]))
        else:
            offsets[command.name[-1]] = command.reads[0].address // TILE_BYTES
    for number, row in enumerate(rows.values()):
        yield from reversed(row) if number % 2 else row


def _dst_tile(block: tuple[int, int], address: int) -> int:
    """Return the tile of Dst at an address of the sums: each copy of a block begins a half."""
    half, tile = divmod(address // SUMS_BYTES, block[0] * block[1])
    return HALF * half + tile


def _works(product: Product) -> Iterator[_Work]:
    """Yield the commands of a product in program order."""
    loads, pending = _Loads(), list[TileCommand]()
    block = product.block or product.blocks()[0]
    for command in product.schedule().commands(CAPACITY):
        if command.name.startswith("tensix.pack"):
            tile = _dst_tile(block, command.reads[0].address)
            span = MemorySpan("sums", tile // HALF, 1)
            place = command.writes[0].address // TILE_BYTES
            yield _Work(QueuedCommand(PACK, (span,), (), f"pack tile {place}"), "pack", tile, place)
            continue
        pending.append(command)
        if sum(each.name == "tensix.multiply" for each in pending) == block[0] * block[1]:
            yield from _block_works(pending, loads, block)
            pending = []


def _block_works(commands: list[TileCommand], loads: _Loads, block: tuple[int, int]) -> Iterator[_Work]:
    """Yield the loads and products of one step of the reduction of a block."""
    for command, *offsets in _snake(commands):
        for kind, offset in zip("ab", offsets, strict=True):
            if loads.current[kind] == offset:
                continue
            loads.current[kind] = offset
            loads.counts[kind] += 1
            load = QueuedCommand(UNPACK, (), (loads.bank(kind),), f"unpack tile {offset} of operand {kind}")
            yield _Work(load, kind, place=offset)
        tile = _dst_tile(block, command.writes[0].address)
        spans = (loads.bank("a"), loads.bank("b"))
        half = MemorySpan("sums", tile // HALF, 1)
        yield _Work(QueuedCommand(MATH, spans, (half,), f"multiply onto tile {tile}"), "multiply", tile)
    # The next step begins with other tiles, also where their addresses are those of this one's: banks were given back.
    loads.current = {"a": None, "b": None}


@functools.lru_cache(maxsize=64)
def synchronized(product: Product) -> tuple[tuple[_Work, ...], tuple[QueueStep, ...]]:
    """Return the commands of a product, and their signals; what these do not enforce is an error."""
    works = tuple(_works(product))
    steps = synchronize([work.queued for work in works], MODEL)
    hazards = check_signals(steps, MODEL)
    if hazards:
        raise ValueError(f"commands of {product}: {hazards[0]}")
    return works, tuple(steps)


def threads(product: Product, places: Sequence[int]) -> Threads:
    """Return the words of a product whose operands and result are at places in L1."""
    a_at, b_at, c_at = places
    windows, kind, size = product.windows, product.kind, product.kind.tile_bytes
    loading: Instructions = [*tensix.setup_unpackers(kind, windows.rows if windows else 0)]
    computing: Instructions = [*tensix.setup_math(kind, windows is not None)]
    packing: Instructions = [*tensix.setup_packers(kind)]
    if product.activation is not None:
        computing += vector.set_constants(vector.configured([activation_body(product.activation)]))
    filled, arrivals = -1, _Arrivals(product)
    for work, step in zip(*synchronized(product), strict=True):
        before = {signal.hand_over for signal in step.before}
        after = {signal.hand_over.memory for signal in step.after if isinstance(signal.hand_over, Semaphore)}
        takes_half = any(isinstance(each, Semaphore) and each.memory == "sums" for each in before)
        mark = Mark(work.queued.name)
        if product.has_panels:
            loading += arrivals.before(work)
        if work.kind == "b" and windows is not None:
            at = a_at + 16 * kind.bytes * windows.row(*divmod(work.place, product.k))
            loading += [mark, *tensix.unpack_planes(at)]
        elif work.kind in ("a", "b"):
            unit, base = (0, b_at) if work.kind == "a" else (1, a_at)
            place = arrivals.place(work) if product.has_panels and work.kind == "a" else work.place
            loading += [mark, *tensix.unpack_from(unit, base + place * size), tensix.unpack(unit)]
        elif work.kind == "multiply":
            computing.append(mark)
            if takes_half:
                filled = work.tile // HALF
                computing += [tensix.wait_for_half(), tensix.zero_half(filled)]
            computing += [
                tensix.math_tile(work.tile),
                *tensix.multiply_tile(product.phases, "a" in after, "b" in after),
            ]
            if "sums" in after:
                computing += _activation_words(product, filled)
                computing += tensix.post_half()
        else:
            at = c_at + work.place * size
            packing += [mark, *tensix.pack_when_ready(kind, work.tile, at, takes_half, "sums" in after)]
    return Threads((loading, computing, [*packing, tensix.semaphore_post(tensix.DONE)]), kind, windows is not None)


@dataclass
class _Arrivals:
    """What the first thread's core waits for, and says, where operands arrive while a product is computed."""

    product: Product
    panel: int = -1
    rows: int = -1

    @property
    def block(self) -> tuple[int, int]:
        return self.product.block or self.product.blocks()[0]

    def before(self, work: _Work) -> Instructions:
        """Return what comes before a load: waits for its panel or rows, and the word that the former panel is free."""
        product, (rows, columns) = self.product, self.block
        if work.kind == "b" and self.panel <= 0 and (block := work.place // product.k // rows) > self.rows:
            self.rows = block
            return [Riscv(tuple(wait_for(ROWS, block + 1)))]
        if work.kind != "a" or (panel := work.place % product.n // columns) == self.panel:
            return []
        waits, self.panel = [Riscv(tuple(wait_for(PANELS, panel + 1)))], panel
        if not panel:
            return [tensix.semaphore_init(tensix.PANEL_UNPACKED, 15), *waits]
        unpacked = (*wait_for(SEMAPHORES + 4 * tensix.PANEL_UNPACKED, 1), *store(FREE, panel))
        done = [tensix.stall(tensix.BLOCK_SYNC, tensix.UNPACKERS_BUSY), tensix.semaphore_post(tensix.PANEL_UNPACKED)]
        return [*done, Riscv(unpacked), tensix.semaphore_get(tensix.PANEL_UNPACKED), *waits]

    def place(self, work: _Work) -> int:
        """Return the tile of the buffers in which a tile of the right operand is."""
        depth, column = divmod(work.place, self.product.n)
        panel, rest = divmod(column, self.block[1])
        return (panel % BUFFERS * self.product.k + depth) * self.block[1] + rest


@functools.lru_cache(maxsize=64)
def _activation_words(product: Product, half: int) -> Instructions:
    """Return the words that replace the sums of a half by a function of them."""
    if product.activation is None:
        return []
    rows, columns = product.block or product.blocks()[0]
    body = activation_body(product.activation)
    registers = vector.configured([body])
    once = vector.instructions(body, registers)
    words: Instructions = [
        Mark(f"{product.activation} of a half"),
        tensix.stall(tensix.BLOCK_VECTOR | tensix.BLOCK_MATH, tensix.MATH_BUSY),
        *once.before,
    ]
    for tile in range(HALF * half, HALF * half + rows * columns):
        loop = Loop(16, [*once.repeated, *tensix.advance_rows(4)])
        words += [tensix.math_tile(tile), tensix.set_counters(), loop]
    return [*words, tensix.stall(tensix.BLOCK_MATH, tensix.VECTOR_BUSY), tensix.set_counters()]


@functools.cache
def activation_body(name: str) -> Body:
    """Return a function of the sums of a tile of Dst."""
    v = Body()
    for part in (0, 1):
        v.store(UNARY[name](v, v.load(0, part)), 0, part)
    return v


def tiles_of(size: int) -> int:
    """Return how many tiles a dim takes."""
    return -(-size // TILE)
