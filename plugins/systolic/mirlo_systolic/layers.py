"""Layers as commands: tiles of rows that fit the scratchpads, two of them in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from mirlo_systolic.commands import (
    ACCUMULATOR_ROWS,
    DATA_ROWS,
    PARAMETER_ROWS,
    RESULT_ROWS,
    SIZE,
    WEIGHT_ROWS,
    Memory,
    Mode,
    Program,
    Queue,
    Rows,
)

CONTEXTS = 2
AHEAD = 3
"""Chunks of weights that are loaded or in use."""
SLOT = 2 * SIZE
"""Rows of the parameters of a block of columns."""
SLOTS = PARAMETER_ROWS // SLOT - 1
"""Blocks whose parameters are loaded. Weights are `AHEAD` chunks ahead at most, so that no slot is in use still."""
TABLE = SLOTS * SLOT
"""Where a table is loaded: behind the slots."""
SHIFTS = 62
"""The largest shift."""


@dataclass(frozen=True)
class Image:
    """An operand in main memory, channels last, as windows read it."""

    address: int
    height: int
    width: int
    channels: int
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rows and columns of `fill` above, to the left, below, to the right."""
    fill: int = 0
    step: int = 0
    """Bytes between the columns, where these are not next to each other."""
    line: int = 0
    """Bytes between the rows, where these are not next to each other."""

    @property
    def steps(self) -> tuple[int, int]:
        """Return the bytes between columns and between rows."""
        return self.step or self.channels, self.line or self.width * self.channels

    @property
    def padded_width(self) -> int:
        return self.width + self.padding[1] + self.padding[3]


@dataclass(frozen=True)
class Product:
    """A tap of a window: 16 channels of an operand times weights, for 16 columns."""

    operand: int
    tap: tuple[int, int]
    block: int
    """Which 16 channels."""
    weights: int
    """Which weights, by their number."""
    region: int = 0
    """0 or 1: where the sums are."""
    mode: Mode = Mode.ADD


@dataclass(frozen=True)
class Block:
    """16 columns of the result."""

    index: int
    products: tuple[Product, ...]


@dataclass(frozen=True)
class Tiling:
    """What a schedule chooses; 0 is as much as fits."""

    rows: int = 0
    """Rows of the result in a tile."""
    chunk: int = 64
    """Products whose weights are loaded together."""
    linked: bool = True
    """Whether the last product of a chunk announces the weights of the first behind it, for which it then waits."""


@dataclass(frozen=True)
class Layer:
    """A convolution, a product of matrices, a sum or a pool, with its requantization."""

    operands: tuple[Image, ...]
    groups: tuple[tuple[Block, ...], ...]
    """Blocks that share what they read are a group."""
    weights: int
    """The address of the weights, 256 bytes each."""
    parameters: int
    """The address of the parameters, 512 bytes for each block."""
    output: int
    size: tuple[int, int, int]
    """Rows, columns and channels of the result."""
    strides: tuple[int, int]
    window: tuple[int, int]
    """Rows and columns of the window, with what dilations leave out."""
    limits: tuple[int, int, int]
    regions: int = 1
    tiling: Tiling = field(default_factory=Tiling)
    table: int | None = None
    """The address of what replaces each of the 256 results, if there is a table."""

    def rows_read(self, rows: int) -> int:
        """Return the rows of an operand that a tile reads."""
        return (rows - 1) * self.strides[0] + self.window[0]

    def tile_rows(self) -> int:
        """Return the rows of a tile, 0 if not even one fits."""
        height, width, _ = self.size
        most = min(height, ACCUMULATOR_ROWS // CONTEXTS // self.regions // width)
        wanted = min(most, self.tiling.rows) if self.tiling.rows else most
        while wanted and self.data_rows(wanted) > DATA_ROWS // CONTEXTS:
            wanted -= 1
        if wanted and not self.tiling.rows:
            tiles = -(-height // wanted)
            wanted = -(-height // tiles)
        return wanted

    def data_rows(self, rows: int) -> int:
        """Return the rows of the scratchpad that a tile takes."""
        return max(
            sum(self.rows_read(rows) * self.operands[i].padded_width for i, _ in _parts(group)) for group in self.groups
        )


def _parts(group: Sequence[Block]) -> list[tuple[int, int]]:
    return sorted({(product.operand, product.block) for block in group for product in block.products})


@dataclass
class Emitter:
    """The layers of a region, one behind the other."""

    program: Program = field(default_factory=Program)
    chunks: list[int] = field(default_factory=list)
    """For each chunk of weights: how many tokens the array has given to loads when it no longer reads it."""
    _tiles: list[int] = field(default_factory=list)
    _accumulators: list[int] = field(default_factory=list)
    _tile_count: int = 0
    _block_count: int = 0
    _chunk_count: int = 0
    _has_table: bool = False
    _held: list[Callable[[int | None], None]] = field(default_factory=list)
    """The last product of a chunk and what follows it, until the weights behind it are known."""

    def barrier(self) -> None:
        """Let the unit finish all layers so far, and record the cycle."""
        self._release(None)
        self.program.barrier()

    def layer(self, layer: Layer) -> None:
        """Emit a layer."""
        rows = layer.tile_rows()
        if layer.table is not None:
            self.program.load(Rows(layer.table, SIZE, SIZE), TABLE, Memory.PARAMETERS)
        self._has_table = False
        for group in layer.groups:
            for first in range(0, layer.size[0], rows):
                self._tile(layer, group, first, min(rows, layer.size[0] - first))

    def _tile(self, layer: Layer, group: Sequence[Block], first: int, rows: int) -> None:
        program, number = self.program, self._tile_count
        self._tile_count += 1
        base = number % CONTEXTS * (DATA_ROWS // CONTEXTS)
        places: dict[tuple[int, int], int] = {}
        if number >= CONTEXTS:
            program.wait(Queue.LOAD, Queue.ARRAY, self._tiles[number - CONTEXTS])
        for part in _parts(group):
            places[part] = base
            base += layer.rows_read(rows) * layer.operands[part[0]].padded_width
        loaded: set[tuple[int, int]] = set()
        for block in group:
            self._block(layer, block, first, rows, places, loaded)
        self._held.append(lambda following: self._tiles.append(program.given.get((Queue.ARRAY, Queue.LOAD), 0)))
        if not layer.tiling.linked:
            self._release(None)

    def _release(self, following: int | None) -> None:
        """Emit what was held; `following` is the row of the weights of the product behind."""
        held, self._held = self._held, []
        for emit in held:
            emit(following)

    def _block(
        self, layer: Layer, block: Block, first: int, rows: int, places: dict[tuple[int, int], int],
        loaded: set[tuple[int, int]],
    ) -> None:  # fmt: skip
        program, number = self.program, self._block_count
        context, slot = number % CONTEXTS, number % SLOTS * SLOT
        self._block_count += 1
        count = rows * layer.size[1]
        targets = [
            (context * layer.regions + region) * (ACCUMULATOR_ROWS // CONTEXTS // layer.regions) for region in (0, 1)
        ]
        parameters = Rows(layer.parameters + block.index * SLOT * SIZE, SIZE, SLOT)
        program.load(parameters, slot, Memory.PARAMETERS)
        chunks = list(_chunks(block.products, layer.tiling.chunk))
        for index, chunk in enumerate(chunks):
            is_last = index == len(chunks) - 1
            for product in chunk:
                part = product.operand, product.block
                if part not in loaded:
                    loaded.add(part)
                    self._load(layer, part, first, rows, places[part])
            weights = self._weights(layer, chunk)
            if index == 0 and number >= CONTEXTS:
                program.wait(Queue.ARRAY, Queue.REQUANTIZE, self._accumulators[number - CONTEXTS])

            kept = [i > 0 and product.weights == chunk[i - 1].weights for i, product in enumerate(chunk)]

            def multiply(
                product: Product, keep: bool, following: int | None, to: Sequence[Queue] = (),
            ) -> None:  # fmt: skip
                width = layer.operands[product.operand].padded_width
                program.multiply(
                    places[product.operand, product.block] + product.tap[0] * width + product.tap[1],
                    targets[product.region], (layer.size[1], rows),
                    (layer.strides[1], layer.strides[0] * width), product.mode, following, to, keep,
                )  # fmt: skip

            following = weights
            for product, keep, is_next_kept in zip(chunk, kept, kept[1:], strict=False):
                following += 0 if is_next_kept else SIZE
                multiply(product, keep, None if is_next_kept else following)

            def end(
                following: int | None, last: Product = chunk[-1], keep: bool = kept[-1], is_last: bool = is_last
            ) -> None:
                multiply(last, keep, following, [Queue.LOAD, Queue.REQUANTIZE] if is_last else [Queue.LOAD])
                self.chunks.append(program.given[Queue.ARRAY, Queue.LOAD])

            self._held.append(end)
            if not layer.tiling.linked:
                self._release(None)
        self._held.append(lambda following: self._requantize(layer, block, first, count, number, targets))
        if not layer.tiling.linked:
            self._release(None)

    def _requantize(
        self, layer: Layer, block: Block, first: int, count: int, number: int, targets: Sequence[int]
    ) -> None:
        program, slot = self.program, number % SLOTS * SLOT
        result = number % CONTEXTS * (RESULT_ROWS // CONTEXTS)
        program.wait(Queue.REQUANTIZE, Queue.ARRAY, program.given[Queue.ARRAY, Queue.REQUANTIZE])
        if number >= CONTEXTS:
            program.wait(Queue.REQUANTIZE, Queue.STORE, number - CONTEXTS + 1)
        second, is_tabled = targets[1] if layer.regions == 2 else None, layer.table is not None
        if is_tabled and not self._has_table:
            program.table(TABLE)
            self._has_table = True
        program.requantize(
            targets[0], second, count, slot, result, layer.limits, is_tabled, [Queue.ARRAY, Queue.STORE]
        )  # fmt: skip
        self._accumulators.append(program.given[Queue.REQUANTIZE, Queue.ARRAY])
        program.wait(Queue.STORE, Queue.REQUANTIZE, program.given[Queue.REQUANTIZE, Queue.STORE])
        channels = layer.size[2]
        size = min(SIZE, channels - block.index * SIZE)
        address = layer.output + first * layer.size[1] * channels + block.index * SIZE
        program.store(Rows(address, size, count, 1, channels), result, [Queue.REQUANTIZE])

    def _weights(self, layer: Layer, chunk: Sequence[Product]) -> int:
        """Load the weights of a chunk, and let the array take the first; return the row where they are."""
        program, number = self.program, self._chunk_count
        self._chunk_count += 1
        capacity = WEIGHT_ROWS // SIZE // layer.tiling.chunk
        row = number % capacity * layer.tiling.chunk * SIZE
        ahead = min(capacity, AHEAD)
        if number >= ahead:
            program.wait(Queue.LOAD, Queue.ARRAY, self.chunks[number - ahead])
        place = row
        numbers = [number for number, _ in groupby(product.weights for product in chunk)]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            same = [number for _, number in run]
            rows = Rows(layer.weights + same[0] * SIZE * SIZE, SIZE, len(same) * SIZE)
            place += len(same) * SIZE
            is_last = place == row + len(numbers) * SIZE
            program.load(rows, place - len(same) * SIZE, Memory.WEIGHTS, to=[Queue.ARRAY] if is_last else [])
        program.wait(Queue.ARRAY, Queue.LOAD, program.given[Queue.LOAD, Queue.ARRAY])
        if self._held:
            self._release(row)
        else:
            program.weights(row)
        return row

    def _load(self, layer: Layer, part: tuple[int, int], first: int, rows: int, place: int) -> None:
        """Load 16 channels of the rows that a tile reads, with what surrounds the image."""
        image, channel = layer.operands[part[0]], part[1] * SIZE
        top, left, _, right = image.padding
        begin = first * layer.strides[0] - top
        height, width = layer.rows_read(rows), image.padded_width
        above, below = max(0, -begin), max(0, begin + height - image.height)
        inside = height - above - below
        size = min(SIZE, image.channels - channel)
        for at, inner, outer in (
            (0, width, above), (height - below, width, below),
            (above, left, inside if left else 0),
        ):  # fmt: skip
            if inner and outer > 0:
                self.program.fill(place + at * width, inner, outer, width, image.fill)
        if right and inside > 0:
            self.program.fill(place + above * width + width - right, right, inside, width, image.fill)
        if inside > 0:
            step, line = image.steps
            address = image.address + (begin + above) * line + channel
            source = Rows(address, size, image.width, inside, step, line)
            self.program.load(source, place + above * width + left, line=width)


def _chunks(products: Sequence[Product], size: int) -> Iterator[Sequence[Product]]:
    for first in range(0, len(products), size):
        yield products[first : first + size]


def parameters(first: np.ndarray, addend: np.ndarray, second: np.ndarray | None = None) -> bytes:
    """Return what requantizes the columns of a layer: acc * first + acc' * second + addend, as integers and shifts.

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
