"""Kernels of the vector unit: functions of elements, and functions of rows such as softmax, with their words and bits.

A kernel goes over the tiles of its operands in passes. SrcA brings tiles to a half of Dst, the vector unit computes
there, and packers write the first tile of the half. What a row has in common, such as its greatest number, stays in a
tile of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.extend.codegen import MemorySpan, QueuedCommand, Semaphore, check_signals, synchronize
from mirlo_tensix import instructions as tensix
from mirlo_tensix import vector
from mirlo_tensix.instructions import FORMATS, TILE, Format, Instructions, Loop, Mark
from mirlo_tensix.products import HALF, MATH, MODEL, PACK, UNPACK, Threads
from mirlo_tensix.unit import Bits, packed, widened
from mirlo_tensix.vector import BINARY, UNARY, Body, Lanes

ROW = HALF - 1
"""The tile of Dst for what rows have in common: part 0 and part 1 are a number for each row."""
PARTS = range(4)
LEAST = -3.3895314e38
"""The least number of bf16."""


@dataclass(frozen=True)
class Pass:
    """A loop over the tiles of a row."""

    operands: tuple[int, ...]
    """The tensors whose tiles are brought to tiles 0, 1, 2 of the half."""
    body: Body
    end: Body | None = None
    """What is computed once after the last tile of a row."""
    packs: bool = True
    """Whether each tile is written, or the one that `end` leaves."""


@dataclass(frozen=True)
class Kernel:
    """The passes of a kernel; `start` is computed before each row of tiles."""

    passes: tuple[Pass, ...]
    start: Body | None = None
    fill: float = 0.0
    """What is around a matrix that ends within a tile."""

    @property
    def is_rowwise(self) -> bool:
        return self.start is not None

    @property
    def bodies(self) -> list[Body]:
        every = [self.start, *(body for each in self.passes for body in (each.body, each.end))]
        return [body for body in every if body is not None]


@dataclass(frozen=True)
class VectorWork:
    """A kernel on matrices of m x n tiles."""

    name: str
    m: int
    n: int
    operands: tuple[bool, ...] = (False,)
    """For each operand, whether it is a row of tiles that all rows use."""
    columns: int = 0
    """How many columns a row has, for functions of rows."""
    epsilon: float = 0.0
    has_scale: bool = False
    has_bias: bool = False
    """Whether there is a bias, or the mask of a softmax."""
    scale: float = 1.0
    """What the numbers of a softmax are multiplied with."""
    format: str = "bf16"
    activation: str | None = None
    """A function of the results of a function of two numbers."""

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]

    @property
    def kernel(self) -> Kernel:
        if self.name in BINARY:
            return binary(self.name, self.activation)
        return kernel_of(self.name, self.columns, self.n, self.epsilon, self.has_scale, self.has_bias, self.scale)

    @property
    def is_reduction(self) -> bool:
        return self.name in REDUCTIONS

    @property
    def tensor_bytes(self) -> tuple[int, ...]:
        """Return the bytes of the operands and of the result."""
        sizes = [(1 if is_row else self.m) * self.n for is_row in self.operands]
        return tuple(size * self.kind.tile_bytes for size in (*sizes, self.m * (1 if self.is_reduction else self.n)))

    @property
    def result_shape(self) -> tuple[int, int]:
        return self.m, 1 if self.is_reduction else self.n

    @property
    def mvmuls(self) -> int:
        return 0

    @property
    def limit(self) -> int:
        """Return how many cycles it may take."""
        return 20_000 + 12_000 * self.m * self.n

    @property
    def estimated_cycles(self) -> int:
        """Return about how many cycles its instructions take, without what they wait for."""
        kernel = self.kernel
        registers, rows = vector.configured(kernel.bodies), 8 if kernel.is_rowwise else 16
        cycles = 100
        for each in kernel.passes:
            once = len(vector.instructions(each.body, registers).repeated)
            cycles += self.m * self.n * (rows * (once + 4) + 10 * len(each.operands))
            if each.end is not None:
                cycles += self.m * 8 * (len(vector.instructions(each.end, registers).repeated) + 4)
        return cycles

    def __str__(self) -> str:
        name = f"{self.activation} of {self.name}" if self.activation else self.name
        return f"{name} of {self.m} x {self.n} tiles"

    def threads(self, places: Sequence[int]) -> Threads:
        return threads(self, places)


def elementwise(function: Callable[..., int], operands: int) -> Kernel:
    """Return the kernel of a function of elements."""
    v = Body()
    for part in (0, 1):
        v.store(function(v, *(v.load(tile, part) for tile in range(operands))), 0, part)
    return Kernel((Pass(tuple(range(operands)), v),))


def across(v: Body, function: Callable[[Body, int, int], int], x: int) -> int:
    """Return what a function makes of all eight columns of a row."""
    for distance in (1, 2, 4):
        other = x
        for _ in range(distance):
            other = v.rotate(other)
        x = function(v, x, other)
    return x


def reduction(function: Callable[[Body, int, int], int], start: float, factor: float = 1.0) -> Kernel:
    """Return the kernel of a reduction of rows."""
    first, v, end = Body(), Body(), Body()
    first.store(first.constant(start), ROW)
    total = v.load(ROW)
    for part in PARTS:
        total = function(v, total, v.load(0, part))
    v.store(total, ROW)
    result = across(end, function, end.load(ROW))
    end.store(end.mul(result, end.constant(factor)) if factor != 1.0 else result, 0)
    return Kernel((Pass((0,), v, end),), first, start)


def softmax(scale: float, has_mask: bool) -> Kernel:
    """Return the softmax of rows, of scaled numbers to which a mask is added."""
    start, most, most_end, total, total_end, result = (Body() for _ in range(6))

    def number(v: Body, part: int) -> int:
        x = v.load(0, part)
        x = v.mul(x, v.constant(scale)) if scale != 1.0 else x
        return v.add(x, v.load(1, part)) if has_mask else x

    start.store(start.constant(LEAST), ROW, 0)
    start.store(start.constant(0), ROW, 1)
    largest = most.load(ROW, 0)
    for part in PARTS:
        largest = most.largest(number(most, part), largest)
    most.store(largest, ROW, 0)
    most_end.store(across(most_end, Body.largest, most_end.load(ROW, 0)), ROW, 0)
    for part in PARTS:
        power = vector.exp(total, total.sub(number(total, part), total.load(ROW, 0)))
        total.store(total.add(total.load(ROW, 1), power), ROW, 1)
    total_end.store(vector.reciprocal(total_end, across(total_end, Body.add, total_end.load(ROW, 1))), ROW, 1)
    for part in PARTS:
        power = vector.exp(result, result.sub(number(result, part), result.load(ROW, 0)))
        result.store(result.mul(power, result.load(ROW, 1)), 0, part)
    x = (0, 1) if has_mask else (0,)
    return Kernel((Pass(x, most, most_end, False), Pass(x, total, total_end, False), Pass(x, result)), start, LEAST)


def layer_norm(columns: int, padding: int, epsilon: float, has_scale: bool, has_bias: bool) -> Kernel:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias of rows, which zeros fill up."""
    start, total, mean, squares, deviation, result = (Body() for _ in range(6))
    for part in (0, 1):
        start.store(start.constant(0), ROW, part)
    value = total.load(ROW, 0)
    for part in PARTS:
        value = total.add(value, total.load(0, part))
    total.store(value, ROW, 0)
    mean.store(mean.mul(across(mean, Body.add, mean.load(ROW, 0)), mean.constant(1 / columns)), ROW, 0)
    value, middle = squares.load(ROW, 1), squares.load(ROW, 0)
    for part in PARTS:
        each = squares.sub(squares.load(0, part), middle)
        value = squares.mad(each, each, value)
    squares.store(value, ROW, 1)
    value, middle = across(deviation, Body.add, deviation.load(ROW, 1)), deviation.load(ROW, 0)
    if padding:  # the zeros around a row are not part of it
        value = deviation.mad(deviation.mul(middle, middle), deviation.constant(-padding), value)
    value = deviation.mad(value, deviation.constant(1 / columns), deviation.constant(epsilon))
    deviation.store(vector.rsqrt(deviation, value), ROW, 1)
    for part in PARTS:
        each = result.sub(result.load(0, part), result.load(ROW, 0))
        each = result.mul(each, result.load(ROW, 1))
        if has_scale:
            each = result.mul(each, result.load(1, part))
        if has_bias:
            each = result.add(each, result.load(1 + has_scale, part))
        result.store(each, 0, part)
    last = Pass(tuple(range(1 + has_scale + has_bias)), result)
    return Kernel((Pass((0,), total, mean, False), Pass((0,), squares, deviation, False), last), start)


ROWWISE = ("softmax", "layer_norm", "reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
"""Kernels whose results depend on whole rows."""
REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")


@functools.cache
def binary(name: str, activation: str | None) -> Kernel:
    """Return the kernel of a function of two numbers, and of a function of its results."""
    after = UNARY[activation] if activation else lambda v, x: x
    return elementwise(lambda v, x, y: after(v, BINARY[name](v, x, y)), 2)


@functools.cache
def kernel_of(
    name: str, columns: int, tiles: int, epsilon: float, has_scale: bool, has_bias: bool, scale: float
) -> Kernel:
    """Return a kernel by its name."""
    if name in UNARY:
        return elementwise(UNARY[name], 1)
    match name:
        case "softmax":
            return softmax(scale, has_bias)
        case "layer_norm":
            return layer_norm(columns, tiles * TILE - columns, epsilon, has_scale, has_bias)
        case "reduce_sum":
            return reduction(Body.add, 0.0)
        case "reduce_mean":
            return reduction(Body.add, 0.0, 1 / columns)
        case "reduce_max":
            return reduction(Body.largest, LEAST)
        case "reduce_min":
            return reduction(Body.smallest, -LEAST)
    raise ValueError(f"there is no kernel '{name}'")


def body_words(body: Body, registers: dict[int, int], half: int, is_rowwise: bool) -> Instructions:
    """Return the words that compute a body on all rows of a half of Dst, once the matrix unit is idle."""
    words = vector.instructions(body, registers, lambda tile: tile if tile == ROW else HALF * half + tile)
    once = [*words.repeated, *tensix.advance_rows(4)]
    # A function of rows computes both faces of four rows at once.
    loop = Loop(2, [Loop(4, once), *tensix.advance_rows(16)]) if is_rowwise else Loop(16, once)
    before = tensix.stall(tensix.BLOCK_VECTOR | tensix.BLOCK_MATH, tensix.MATH_BUSY)
    after = tensix.stall(tensix.BLOCK_MATH, tensix.VECTOR_BUSY)
    return [before, tensix.set_counters(), *words.before, loop, after, tensix.set_counters()]


@dataclass(frozen=True)
class _Command:
    """A command with what its words need."""

    queued: QueuedCommand
    kind: str
    """"load", "move", "body" or "pack"."""
    half: int = 0
    tile: int = 0
    operand: int = 0
    body: Body | None = None


def _commands(work: VectorWork) -> Iterator[_Command]:
    """Yield the commands of a kernel in program order."""
    kernel, loads, packs = work.kernel, 0, 0

    def compute(body: Body) -> _Command:
        span = MemorySpan("sums", packs % 2, 1)
        return _Command(QueuedCommand(MATH, (), (span,), "vector unit"), "body", packs % 2, body=body)

    def write(tile: int) -> _Command:
        span = MemorySpan("sums", packs % 2, 1)
        return _Command(QueuedCommand(PACK, (span,), (), f"pack tile {tile}"), "pack", packs % 2, tile)

    for row in range(work.m):
        if kernel.start is not None:
            yield compute(kernel.start)
        for each in kernel.passes:
            for column in range(work.n):
                for slot, operand in enumerate(each.operands):
                    tile = column if work.operands[operand] else row * work.n + column
                    bank, span = MemorySpan("a", loads % 2, 1), MemorySpan("sums", packs % 2, 1)
                    loads += 1
                    load = QueuedCommand(UNPACK, (), (bank,), f"unpack tile {tile} of operand {operand}")
                    yield _Command(load, "load", tile=tile, operand=operand)
                    move = QueuedCommand(MATH, (bank,), (span,), f"move operand {operand} to Dst")
                    yield _Command(move, "move", packs % 2, slot)
                yield compute(each.body)
                if each.packs and each.end is None:
                    yield write(row * work.n + column)
                    packs += 1
            if each.end is not None:
                yield compute(each.end)
                if each.packs:
                    yield write(row)
                    packs += 1


@functools.lru_cache(maxsize=64)
def _synchronized(work: VectorWork) -> list[tuple[_Command, set[str], set[str]]]:
    """Return commands with what they wait for and what they say: memories that semaphores hand over."""
    commands = list(_commands(work))
    steps = synchronize([each.queued for each in commands], MODEL)
    if hazards := check_signals(steps, MODEL):
        raise ValueError(f"commands of {work}: {hazards[0]}")
    ends = [
        [{s.hand_over.memory for s in signals if isinstance(s.hand_over, Semaphore)} for signals in (s.before, s.after)]
        for s in steps
    ]
    return [(each, before, after) for each, (before, after) in zip(commands, ends, strict=True)]


def threads(work: VectorWork, places: Sequence[int]) -> Threads:
    """Return the words of a kernel whose operands and result are at places in L1."""
    registers = vector.configured(work.kernel.bodies)
    kind, size = work.kind, work.kind.tile_bytes
    loading: Instructions = [*tensix.setup_unpackers(kind)]
    computing: Instructions = [*tensix.setup_vector(), *vector.set_constants(registers)]
    packing: Instructions = [*tensix.setup_packers(kind)]
    words_of = functools.cache(
        lambda number, half: body_words(work.kernel.bodies[number], registers, half, work.kernel.is_rowwise)
    )
    for each, before, after in _synchronized(work):
        mark = Mark(each.queued.name)
        if each.kind == "load":
            at = places[each.operand] + each.tile * size
            loading += [mark, *tensix.unpack_from(0, at), tensix.unpack(0)]
            continue
        if each.kind == "pack":
            at = places[-1] + each.tile * size
            packing += [mark, *tensix.pack_when_ready(kind, HALF * each.half, at, "sums" in before, "sums" in after)]
            continue
        computing.append(mark)
        if "sums" in before:
            computing += [tensix.wait_for_half()]
        if each.kind == "move":
            computing += tensix.move_tile(HALF * each.half + each.tile)
        elif each.body is not None:
            computing += words_of(_index(work.kernel.bodies, each.body), each.half)
        if "sums" in after:
            computing += tensix.post_half()
    return Threads((loading, computing, [*packing, tensix.semaphore_post(tensix.DONE)]), kind)


def _index(bodies: Sequence[Body], body: Body) -> int:
    return next(i for i, each in enumerate(bodies) if each is body)


def kernel_bits(work: VectorWork, *operands: Bits) -> Bits:
    """Return what the unit computes of matrices of whole tiles, bit by bit."""
    kernel, rows, narrowed = work.kernel, work.m * TILE, functools.partial(packed, kind=work.kind)
    parts = [_lanes(np.tile(each, (rows // len(each), 1)), work.n) for each in operands]
    result = np.zeros((rows, work.n, 2, 8, 2), np.uint32)
    if not kernel.is_rowwise:
        tiles = {(slot, part): each[..., part] for slot, each in enumerate(parts) for part in (0, 1)}
        vector.evaluate(kernel.passes[0].body, tiles)
        for part in (0, 1):
            result[..., part] = tiles[0, part]
        return narrowed(result.reshape(rows, work.n, 2, 8, 2)).reshape(rows, work.n * TILE)
    tiles = {}
    vector.evaluate(kernel.start or Body(), tiles)
    for each in kernel.passes:
        for column in range(work.n):
            for slot, operand in enumerate(each.operands):
                for part in PARTS:
                    tiles[slot, part] = parts[operand][:, column, part // 2, :, part % 2]
            vector.evaluate(each.body, tiles)
            for part in PARTS:
                result[:, column, part // 2, :, part % 2] = tiles[0, part]
        if each.end is not None:
            vector.evaluate(each.end, tiles)
    if work.is_reduction:
        return narrowed(tiles[0, 0])[:, :1]
    return narrowed(result).reshape(rows, work.n * TILE)


def _lanes(matrix: Bits, tiles: int) -> Lanes:
    """Return a matrix as numbers of fp32 by rows, tiles, faces, lanes, and parts of even and odd columns."""
    return widened(matrix).reshape(len(matrix), tiles, 2, 8, 2)
