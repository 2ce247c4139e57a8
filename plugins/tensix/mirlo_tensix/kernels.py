"""Kernels of the vector unit: functions of elements, and functions of rows such as softmax, with their words and bits.

A kernel goes over the tiles of its operands in passes. SrcA brings tiles to a half of Dst, the vector unit computes
there, and packers write the first tile of the half. What a row has in common, such as its greatest number, stays in a
tile of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mirlo.extend.codegen import MemorySpan, QueuedCommand
from mirlo_tensix import instructions as tensix
from mirlo_tensix import vector
from mirlo_tensix.instructions import FORMATS, TILE, Instructions, Loop
from mirlo_tensix.vector import BINARY, Body, unary
from mirlo_tensix.work import HALF, MATH, Command, Work, load, pack

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
    def bodies(self) -> list[Body]:
        every = [self.start, *(body for each in self.passes for body in (each.body, each.end))]
        return [body for body in every if body is not None]


@dataclass(frozen=True)
class VectorWork(Work):
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
    activation: str | None = None
    """A function of the results of a function of two numbers."""

    @property
    def kernel(self) -> Kernel:
        return kernel_of(self)

    @property
    def result_columns(self) -> int:
        return 1 if self.name in REDUCTIONS else self.n

    @property
    def tensor_bytes(self) -> tuple[int, ...]:
        sizes = [(1 if is_row else self.m) * self.n for is_row in self.operands]
        return tuple(size * self.kind.tile_bytes for size in (*sizes, self.m * self.result_columns))

    @property
    def limit(self) -> int:
        return 20_000 + 12_000 * self.m * self.n

    def __str__(self) -> str:
        name = f"{self.activation} of {self.name}" if self.activation else self.name
        return f"{name} of {self.m} x {self.n} tiles"

    def setups(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        constants = vector.set_constants(vector.configured(self.kernel.bodies))
        math = [*tensix.setup_vector(), *constants]
        return tensix.setup_unpackers(self.kind), math, tensix.setup_packers(self.kind)

    def commands(self) -> Iterator[Command]:
        kernel, loads, packs, number = self.kernel, 0, 0, 0
        for row in range(self.m):
            number = 0
            if kernel.start is not None:
                yield _compute(packs, number)
            for each in kernel.passes:
                number += kernel.start is not None or each is not kernel.passes[0]
                for column in range(self.n):
                    for slot, operand in enumerate(each.operands):
                        yield load(operand, column if self.operands[operand] else row * self.n + column, "a", loads)
                        yield move(loads, packs, slot, operand)
                        loads += 1
                    yield _compute(packs, number)
                    if each.packs and each.end is None:
                        yield pack(row * self.n + column, HALF * (packs % 2))
                        packs += 1
                if each.end is not None:
                    number += 1
                    yield _compute(packs, number)
                    if each.packs:
                        yield pack(row, HALF * (packs % 2))
                        packs += 1

    def words(self, command: Command, places: Sequence[int], waits: set[str], gives: set[str]) -> Instructions:
        size, tile = self.kind.tile_bytes, command.tile
        match command.kind:
            case "load":
                return list(tensix.unpack(0, places[command.operand] + command.place * size))
            case "move":
                return list(tensix.move_tile(tile))
            case "pack":
                return list(tensix.pack_tile(self.kind, tile, places[-1] + command.place * size))
        return list(_body_words(self, command.body, tile // HALF))


@dataclass(frozen=True)
class Move(Work):
    """A permutation of tiles, each optionally transposed in SrcA."""

    sources: tuple[int, ...]
    """The tile of the operand that each tile of the result is."""
    transposes: bool = False

    @property
    def tensor_bytes(self) -> tuple[int, ...]:
        return (len(self.sources) * self.kind.tile_bytes,) * 2

    @property
    def limit(self) -> int:
        return 20_000 + 500 * len(self.sources)

    def __str__(self) -> str:
        return f"{'transposes' if self.transposes else 'copies'} of {len(self.sources)} tiles"

    def setups(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        kind = FORMATS["bf16"] if self.kind.bytes == 2 else self.kind  # bits are moved as they are
        unpackers = tensix.setup_unpackers(kind, transposes=self.transposes)
        return unpackers, tensix.setup_vector(), tensix.setup_packers(kind, transposes=self.transposes)

    def commands(self) -> Iterator[Command]:
        for number, source in enumerate(self.sources):
            yield load(0, source, "a", number)
            yield move(number, number, 0, 0)
            yield pack(number, HALF * (number % 2))

    words = VectorWork.words  # type: ignore[assignment]


def move(loads: int, packs: int, slot: int, operand: int) -> Command:
    """Return the command that moves an operand from SrcA to a tile of a half of Dst."""
    bank, half = MemorySpan("a", loads % 2, 1), MemorySpan("sums", packs % 2, 1)
    queued = QueuedCommand(MATH, (bank,), (half,), f"move operand {operand} to Dst")
    return Command(queued, "move", tile=HALF * (packs % 2) + slot)


def _compute(packs: int, number: int) -> Command:
    queued = QueuedCommand(MATH, (), (MemorySpan("sums", packs % 2, 1),), "vector unit")
    return Command(queued, "body", tile=HALF * (packs % 2), body=number)


def elementwise(function: Callable[..., int], operands: int) -> Kernel:
    """Return the kernel of a function of elements."""
    v = Body()
    for part in (0, 1):
        v.store(function(v, *(v.load(tile, part) for tile in range(operands))), 0, part)
    return Kernel((Pass(tuple(range(operands)), v),))


def across(v: Body, function: Callable[[Body, int, int], int], x: int) -> int:
    """Return the reduction of the eight columns of a row by a function."""
    for distance in (1, 2, 4):
        other = x
        for _ in range(distance):
            other = v.apply("rotate", other)
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


def scaled(kernel: Kernel, power: int) -> Kernel:
    """Return a kernel that multiplies what SrcA brings by a power of two."""

    def of(body: Body) -> Body:
        v, values = Body(), list[int]()
        for each in body.operations:
            operands = [values[i] for i in each.operands]
            value = v.apply(each.kind, *operands, place=each.place, number=each.number)
            is_brought = each.kind == "load" and each.place[0] != ROW
            values.append(v.mul(value, v.constant(2.0**power)) if is_brought else value)
        return v

    return replace(kernel, passes=tuple(replace(each, body=of(each.body)) for each in kernel.passes))


@functools.lru_cache(maxsize=256)
def kernel_of(work: VectorWork) -> Kernel:
    """Return the kernel of a piece of work."""
    found = _kernel(work)
    return scaled(found, work.kind.scale) if work.kind.scale else found


def _kernel(work: VectorWork) -> Kernel:
    name, columns = work.name, work.columns
    if name in BINARY:
        first, after = BINARY[name], unary(work.activation) if work.activation else None
        return elementwise(lambda v, *x: after(v, first(v, *x)) if after else first(v, *x), 2)
    if (function := unary(name)) is not None:
        return elementwise(function, 1)
    match name:
        case "softmax":
            return softmax(work.scale, work.has_bias)
        case "layer_norm":
            return layer_norm(columns, work.n * TILE - columns, work.epsilon, work.has_scale, work.has_bias)
    reductions = {
        "reduce_sum": (Body.add, 0.0), "reduce_mean": (Body.add, 0.0, 1 / columns),
        "reduce_max": (Body.largest, LEAST), "reduce_min": (Body.smallest, -LEAST),
    }  # fmt: skip
    return reduction(*reductions[name])


@functools.lru_cache(maxsize=64)
def _body_words(work: VectorWork, number: int, half: int) -> Instructions:
    """Return the words that compute a body on all rows of a half of Dst, once the matrix unit is idle."""
    kernel = work.kernel
    registers = vector.configured(kernel.bodies)
    words = vector.instructions(
        kernel.bodies[number], registers, lambda tile: tile if tile == ROW else HALF * half + tile
    )
    once = (*words.repeated, *tensix.advance_rows(4))
    # A function of rows computes both faces of four rows at once.
    loop = Loop(2, (Loop(4, once), *tensix.advance_rows(16))) if kernel.start is not None else Loop(16, once)
    before = tensix.stall(tensix.BLOCK_VECTOR | tensix.BLOCK_MATH, tensix.MATH_BUSY)
    after = tensix.stall(tensix.BLOCK_MATH, tensix.VECTOR_BUSY)
    return [before, tensix.SET_ROWS, *words.before, loop, after, tensix.SET_ROWS]
