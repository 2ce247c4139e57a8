"""Layers: their computation, the schedule of their loops, and the resulting commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import Schedule, TileCommand, TileCommands
from mirlo_systolic.commands import (
    ACCUMULATOR_ROWS,
    DATA_ROWS,
    PARAMETER_ROWS,
    RESULT_ROWS,
    SIZE,
    WEIGHT_ROWS,
    Command,
    Memory,
    Mode,
    Rows,
    fill_rows,
    load_rows,
    load_table,
    multiply_rows,
    requantize_rows,
    store_rows,
)
from mirlo_systolic.functions import (
    ACCUMULATORS,
    DATA,
    PARAMETERS,
    RESULTS,
    WEIGHTS,
    Shape,
    sum_of_two,
    window_products,
)

IN_FLIGHT = 2
"""Double buffers of data, accumulators and results: one is computed while the other one is copied."""
AHEAD = 3
"""Chunks of weights in flight or in use."""
SLOT = 2 * SIZE
"""Rows of the parameters of a block of columns."""
SLOTS = PARAMETER_ROWS // SLOT - 1
"""Number of blocks whose parameters are loaded."""
TABLE = SLOTS * SLOT
"""The row of a table, after the parameter slots."""
SHIFTS = 62
"""The largest shift."""
ROW, SUMS = SIZE, 4 * SIZE
"""Bytes of a row of a scratchpad, and of one of accumulators."""
CAPACITY = {
    DATA: DATA_ROWS * ROW, WEIGHTS: WEIGHT_ROWS * ROW, PARAMETERS: TABLE * ROW, ACCUMULATORS: ACCUMULATOR_ROWS * SUMS,
    RESULTS: RESULT_ROWS * ROW,
}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """An operand in main memory, channels last."""

    address: int
    step: int
    """Bytes between the columns."""
    line: int
    """Bytes between the rows."""


@dataclass(frozen=True)
class Tiling:
    """The parameters of a schedule; 0 means as much as fits."""

    rows: int = 0
    """Rows of the result in a tile."""
    chunk: int = 64
    """Products whose weights are loaded together."""
    linked: bool = True
    """Whether the last product of a chunk announces the first weights of the next chunk, for which it then waits."""


@dataclass(frozen=True)
class Layer:
    """A convolution, a product of matrices, a sum or a pool, with its requantization."""

    function: Callable[[Shape], Any]
    """What it computes: `window_products`, `window_maxima` or `sum_of_two`."""
    shape: Shape
    operands: tuple[Image, ...]
    weights: int
    """The address of the weights, 256 bytes per product."""
    parameters: int
    """The address of the parameters, 512 bytes for each block of columns."""
    output: int
    tiling: Tiling = field(default_factory=Tiling)
    table: int | None = None
    """The address of the table of 256 results, if there is one."""

    @property
    def chunk(self) -> int:
        """Return the number of products whose weights are loaded together."""
        return min(self.tiling.chunk, self.shape.taps)

    def tile_rows(self) -> int:
        """Return the number of rows of a tile, 0 if not even one fits."""
        height, width, _ = self.shape.size
        most = min(height, ACCUMULATOR_ROWS // IN_FLIGHT // len(self.operands) // width)
        wanted = min(most, self.tiling.rows) if self.tiling.rows else most
        while wanted and self._data_rows(wanted) > DATA_ROWS // IN_FLIGHT:
            wanted -= 1
        if wanted and not self.tiling.rows:
            tiles = -(-height // wanted)
            wanted = -(-height // tiles)
        return wanted

    def _data_rows(self, rows: int) -> int:
        """Return the number of scratchpad rows that a tile takes."""
        read = (rows - 1) * self.shape.strides[0] + self.shape.reach[0]
        return read * self.shape.padded[1] * self.shape.blocks[1] * len(self.operands)

    def schedule(self) -> Schedule:
        """Return the function with its loops arranged for the unit."""
        return scheduled(self.function, self.shape, self.tile_rows(), self.chunk)

    def commands(self) -> Iterator[Command]:
        """Yield the commands of the layer, in the order of its loops."""
        if self.table is not None:
            yield load_table(self.table, TABLE)
            yield Command.table(TABLE)
        for command in tile_commands(self.function, self.shape, self.tile_rows(), self.chunk):
            yield from EMITTERS[command.name](self, command)


@functools.lru_cache(maxsize=128)
def tile_commands(function: Callable[[Shape], Any], shape: Shape, rows: int, chunk: int) -> TileCommands:
    """Return the instructions of a layer, independent of the addresses of its tensors."""
    return scheduled(function, shape, rows, chunk).commands(CAPACITY)


def scheduled(function: Callable[[Shape], Any], shape: Shape, rows: int, chunk: int) -> Schedule:
    """Return a function with its loops arranged in tiles of rows, with weights in chunks."""
    _, _, columns = shape.blocks
    is_product, is_sum = function is window_products, function is sum_of_two
    matrices = (1, 1) if shape.is_shared else (columns, shape.taps)
    images = [TensorType.of(shape.image, "i8")] * (2 if is_sum else 1)
    weights = TensorType.of((*(matrices if is_product else (1,)), SIZE, SIZE), "i8")
    s = Schedule.of(function(shape), *images, weights, TensorType.of((columns, SIZE, 4), "i64"))
    if is_sum:
        arrange_sum(s, rows)
    else:
        arrange_windows(s, shape, rows, chunk, is_product)
    return s


def arrange_windows(s: Schedule, shape: Shape, tile_rows: int, chunk: int, is_product: bool) -> None:
    """Arrange tiles of rows, and blocks of 16 columns in them; blocks are outermost if each reads separate channels."""
    weights = s.cache_read("products", "w", WEIGHTS)
    n, i, j, m, *taps = s.loops("products")
    tiles, rows = s.split(i, (None, tile_rows))
    outer = (tiles, n) if shape.is_deep else (n, tiles)
    # A product is of all taps but the channels of one; the largest is that of one tap and the accumulators.
    outside, inside = (taps[:3], taps[3:]) if is_product else (taps, [])
    s.reorder(*outer, *outside, rows, j, m, *inside)
    chunks, tap = s.split(s.fuse(*outside), (None, chunk if is_product else 1))
    if not is_product:
        s.reorder(rows, j, m, tap)
    s.compute_at("load", tiles)
    if not shape.is_shared:
        s.compute_at(weights, chunks)
        s.double_buffer(weights, AHEAD)
    for buffer, scope in (("window", DATA), ("sums", ACCUMULATORS)):
        s.set_scope(buffer, scope)
        s.double_buffer(buffer, IN_FLIGHT)
    finish(s, outer[1])
    s.tensorize(s.loops("load")[-3], "systolic.load")
    s.tensorize(rows, "systolic.multiply" if is_product else "systolic.largest")
    s.tensorize(s.loops(weights)[-3], "systolic.load_weights")


def arrange_sum(s: Schedule, tile_rows: int) -> None:
    """Arrange tiles of rows of both operands."""
    weights = s.cache_read(["products", "other_products"], "w", WEIGHTS)
    tiles, rows = s.split(s.loops("requantize")[0], (None, tile_rows))
    for block in ("other_products", "products", "load_other", "load"):
        s.compute_at(block, tiles)
    for buffer, scope in (("window", DATA), ("other_window", DATA), ("sums", ACCUMULATORS), ("others", ACCUMULATORS)):
        s.set_scope(buffer, scope)
        s.double_buffer(buffer, IN_FLIGHT)
    finish(s, tiles, is_sum=True)
    for block in ("load", "load_other"):
        s.tensorize(s.loops(block)[-3], "systolic.load")
    for block in ("products", "other_products"):
        s.tensorize(s.loops(block)[-4], "systolic.multiply")
    s.tensorize(s.loops(weights)[-3], "systolic.load_weights")


def finish(s: Schedule, loop: str, is_sum: bool = False) -> None:
    """Requantize and store in a loop after the products."""
    if not is_sum:
        s.reverse_compute_at("requantize", loop)
    constants = s.cache_read("requantize", "p", PARAMETERS)
    results = s.cache_write("requantize", RESULTS)
    s.reverse_compute_at(results, loop)
    s.compute_at(constants, loop)
    s.storage_align(constants, 1, 4)
    s.double_buffer(constants, SLOTS)
    s.double_buffer(s.buffers()[-1], IN_FLIGHT)
    for block in ("requantize", results):
        rows, columns, blocks, lanes = s.loops(block)[-4:]
        s.reorder(blocks, rows, columns, lanes)
    s.tensorize(s.loops("requantize")[-3], "systolic.requantize_both" if is_sum else "systolic.requantize")
    s.tensorize(s.loops(results)[-3], "systolic.store")
    s.tensorize(s.loops(constants)[-2], "systolic.load_parameters")


# Commands of tiles


def _load(layer: Layer, command: TileCommand) -> Iterator[Command]:
    """Load 16 channels of the rows that a tile reads, with the padding around them."""
    (source,), (target,) = command.reads, command.writes
    image = layer.operands[0 if source.buffer in ("x", "a") else 1]
    rows, columns, _ = command.extents
    place, width = target.address // ROW, target.strides[0] // ROW
    inside = source.inside(command.extents)
    down, right, lanes = inside if all(inside) else (range(0), range(0), range(0))
    left = columns - right.stop
    for at, inner, outer in (
        (0, columns, down.start if down else rows), (down.stop * width, columns, rows - down.stop if down else 0),
        (down.start * width, right.start, len(down)), (down.start * width + right.stop, left, len(down)),
    ):  # fmt: skip
        if inner and outer > 0:
            yield fill_rows(place + at, inner, outer, width, int(source.outside or 0))
    if down and right:
        (top, first, channel), steps = source.indices, (image.line, image.step, 1)
        begin = (top + down.start, first + right.start, channel + lanes.start)
        address = image.address + sum(index * step for index, step in zip(begin, steps, strict=True))
        rows_read = Rows(address, len(lanes), len(right), len(down), image.step, image.line)
        yield load_rows(rows_read, place + down.start * width + right.start, Memory.DATA, width)


def _load_weights(layer: Layer, command: TileCommand) -> Iterator[Command]:
    (source,), (target,) = command.reads, command.writes
    rows = Rows(layer.weights + source.address, SIZE, command.extents[0] * SIZE)
    yield load_rows(rows, target.address // ROW, Memory.WEIGHTS)


def _load_parameters(layer: Layer, command: TileCommand) -> Iterator[Command]:
    (source,), (target,) = command.reads, command.writes
    yield load_rows(Rows(layer.parameters + source.address, SIZE, SLOT), target.address // ROW, Memory.PARAMETERS)


def _multiply(layer: Layer, command: TileCommand) -> Iterator[Command]:
    data, weights = command.reads
    (sums,) = command.writes
    rows, columns = command.extents[:2]
    mode = Mode.STORE if command.is_first else Mode.MAXIMUM if command.name == "systolic.largest" else Mode.ADD
    yield multiply_rows(
        data.address // ROW, sums.address // SUMS, (columns, rows), (data.strides[1] // ROW, data.strides[0] // ROW),
        mode, weights.address // ROW, layer.tiling.linked,
    )  # fmt: skip


def _requantize(layer: Layer, command: TileCommand) -> Iterator[Command]:
    sums = [tile for tile in command.reads if tile.scope == ACCUMULATORS]
    constants = next(tile for tile in command.reads if tile.scope == PARAMETERS)
    (results,) = command.writes
    numbers = command.numbers
    yield requantize_rows(
        sums[0].address // SUMS, sums[1].address // SUMS if len(sums) > 1 else None, _count(command),
        constants.address // ROW, results.address // ROW,
        (int(numbers["zero"]), int(numbers["low"]), int(numbers["high"])), layer.table is not None,
    )  # fmt: skip


def _store(layer: Layer, command: TileCommand) -> Iterator[Command]:
    (results,), (target,) = command.reads, command.writes
    row, column, block, _ = target.indices
    _, columns, channels = layer.shape.size
    address = layer.output + (row * columns + column) * channels + block * SIZE
    size = min(SIZE, channels - block * SIZE)
    yield store_rows(Rows(address, size, _count(command), 1, channels), results.address // ROW)


def _count(command: TileCommand) -> int:
    return command.extents[0] * command.extents[1]


EMITTERS: dict[str, Callable[[Layer, TileCommand], Iterator[Command]]] = {
    "systolic.load": _load, "systolic.load_weights": _load_weights, "systolic.load_parameters": _load_parameters,
    "systolic.multiply": _multiply, "systolic.largest": _multiply, "systolic.requantize": _requantize,
    "systolic.requantize_both": _requantize, "systolic.store": _store,
}  # fmt: skip
"""The commands of each instruction."""


def parameters(first: np.ndarray, addend: np.ndarray, second: np.ndarray | None = None) -> bytes:
    """Return the requantization of a layer's columns: acc * first + acc' * second + addend, as integers and shifts.

    The larger multiplier has 31 bits.
    """
    columns = -(-len(first) // SIZE) * SIZE
    rows = np.zeros((columns, SLOT), np.uint8)
    for column, (multiplier, constant) in enumerate(zip(first, addend, strict=True)):
        other = 0.0 if second is None else float(second[column])
        largest = max(abs(float(multiplier)), abs(other))
        shift = int(np.clip(31 - np.frexp(largest)[1], 0, SHIFTS)) if largest else 0
        row = rows[column]
        row[:8].view(np.int32)[:] = [min(round(each * 2.0**shift), 2**31 - 1) for each in (float(multiplier), other)]
        row[8] = shift
        row[16:24].view(np.int64)[0] = round(float(constant) * 2.0**shift)
    return rows.tobytes()
