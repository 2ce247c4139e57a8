"""Layouts of tensors in L1 (matrices of tiles, planes of pixels, weights) and the items of a region in an artifact.

A layout turns arrays into bits of L1 (`bits`), and bits into numbers of a tensor in DRAM (`store`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirlo_tensix.cores import SharedProduct
from mirlo_tensix.instructions import TILE, Format
from mirlo_tensix.kernels import LEAST, Move, VectorWork
from mirlo_tensix.products import BIAS_ROWS, Planes, Product
from mirlo_tensix.unit import Bits, from_bits, from_tiles, to_bits, to_tiles

Array = NDArray[np.float32]
Part = tuple[int, int, int, int, int, int]
"""The first matrix, row and column of a part, each with how many there are."""


def tiles_of(size: int) -> int:
    """Return the number of tiles of a dim."""
    return -(-size // TILE)


@dataclass(frozen=True)
class Tensor:
    """A tensor of a region: a value, or a constant."""

    name: str
    shape: tuple[int, ...]
    is_constant: bool = False

    @property
    def key(self) -> str:
        """Return the key of the tensor in a planner: constants and values may have equal names."""
        return f"constant {self.name}" if self.is_constant else self.name


@dataclass(frozen=True)
class Matrix:
    """A tensor, broadcast to a shape, as matrices of tiles, one after the other."""

    shape: tuple[int, ...]
    groups: int
    rows: int
    columns: int
    kept: int = 24
    """Bits of the significand that remain."""
    fill: float = 0.0
    """What is around a matrix that ends within a tile."""
    transposed: bool = False
    part: Part | None = None
    causal: int | None = None
    """The diagonal after which there are no numbers, but the least one."""

    @property
    def window(self) -> Part:
        return self.part or (0, self.groups, 0, self.rows, 0, self.columns)

    @property
    def tiles(self) -> int:
        _, groups, _, rows, _, columns = self.window
        return groups * tiles_of(rows) * tiles_of(columns)

    @property
    def elements(self) -> int:
        return self.groups * self.rows * self.columns

    def size(self, kind: Format) -> int:
        return self.tiles * kind.tile_bytes

    def bits(self, kind: Format, *arrays: Array) -> Bits:
        array = arrays[0] if arrays else np.zeros((), np.float32)
        is_whole = array.size == math.prod(self.shape)
        if not is_whole:  # a row may have more dims
            array = array.reshape(array.shape[max(0, array.ndim - len(self.shape)) :])
        flat = (array if is_whole else np.broadcast_to(array, self.shape)).reshape(-1)
        fill = to_bits(np.full(1, self.fill, np.float32), kind)[0]
        whole = np.pad(flat, (0, self.elements - flat.size)).reshape(self.groups, self.rows, self.columns)
        if self.causal is not None:
            whole = np.where(np.tri(self.rows, self.columns, self.causal, bool), whole, np.float32(LEAST))
        matrices = to_bits(self._of(whole), kind, self.kept)
        return np.stack([to_tiles(each.T if self.transposed else each, fill) for each in matrices])

    def store(self, bits: Bits, buffer: Array) -> None:
        _, groups, _, rows, _, columns = self.window
        target = self._of(buffer[: self.elements].reshape(self.groups, self.rows, self.columns))
        for matrix, tiles in zip(target, bits.reshape(groups, -1), strict=True):
            matrix[...] = from_bits(from_tiles(tiles, rows, columns))

    def _of(self, whole: Array) -> Array:
        group, groups, row, rows, column, columns = self.window
        return whole[group : group + groups, row : row + rows, column : column + columns]


@dataclass(frozen=True)
class Image:
    """Images as planes of 16 channels of all padded pixels; with strides, one for each remainder of the positions."""

    shape: tuple[int, int, int, int]
    plane: tuple[int, int]
    """The height and width of a plane."""
    above: int
    left: int
    rows: int
    """The pixels that a plane has room for."""
    strides: tuple[int, int] = (1, 1)
    kept: int = 24
    first: int = 0
    """The row of padded pixels, of each remainder, that the planes begin with."""

    @property
    def planes(self) -> int:
        return 2 * tiles_of(self.shape[1]) * math.prod(self.strides)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def size(self, kind: Format) -> int:
        """Return the bytes of all images, each of whole tiles."""
        return self.shape[0] * self.image_tiles * kind.tile_bytes

    @property
    def image_tiles(self) -> int:
        return -(-16 * self.planes * self.rows // TILE**2)

    def bits(self, kind: Format, array: Array) -> Bits:
        (rows, width), (down, right), (count, channels) = self.plane, self.strides, self.shape[:2]
        height = self.first + rows
        used = array.reshape(self.shape)[:, :, : height * down - self.above, : width * right - self.left]
        padded = np.zeros((count, TILE * tiles_of(channels), height * down, width * right), np.float32)
        padded[:, :channels, self.above : self.above + used.shape[2], self.left : self.left + used.shape[3]] = used
        split = padded.reshape(count, -1, 16, height, down, width, right)[:, :, :, self.first :]
        pixels = split.transpose(0, 4, 6, 1, 3, 5, 2).reshape(count, self.planes, rows * width, 16)[:, :, : self.rows]
        result = np.zeros((count, self.image_tiles * TILE**2), np.float32)
        planes = result[:, : self.planes * self.rows * 16].reshape(count, self.planes, self.rows, 16)
        planes[:, :, : pixels.shape[2]] = pixels
        return to_bits(result, kind, self.kept)

    def store(self, bits: Bits, buffer: Array) -> None:
        count, channels, _, width = self.shape
        target = buffer[: self.elements].reshape(self.shape)[:, :, self.first : self.first + self.plane[0] - self.above]
        height = target.shape[2]
        flat = bits.reshape(count, -1)[:, : self.planes * self.rows * 16].reshape(count, self.planes, self.rows, 16)
        first = self.above * self.plane[1] + self.left
        pixels = np.pad(flat[:, :, first:], ((0, 0), (0, 0), (0, self.plane[1]), (0, 0)))[
            :, :, : height * self.plane[1]
        ]
        found = pixels.reshape(count, self.planes, height, self.plane[1], 16)[:, :, :, :width].transpose(0, 1, 4, 2, 3)
        target[...] = from_bits(found.reshape(count, -1, height, width)[:, :channels])


@dataclass(frozen=True)
class Weights:
    """Constant weights as tiles of a matrix, with rows whose sum is the bias; those of a kernel are by its places."""

    first: int
    columns: int
    kept: int
    groups: int = 1
    channel: int = 0
    """The first channel that the columns read; others than those of a column's group are multiplied by zero."""
    channels: int = 0
    """How many they read, whole tiles."""

    def bits(self, kind: Format, weight: Array, bias: Array | None = None) -> Bits:
        chosen = slice(self.first, self.first + self.columns)
        if weight.ndim == 4:
            outputs, depth, *window = weight.shape
            columns = np.arange(self.columns)
            groups = (self.first + columns) // (outputs // self.groups)
            rows = (groups * depth - self.channel)[:, None] + np.arange(depth)
            padded = np.zeros((*window, self.channels, self.columns), np.float32)
            padded[:, :, rows, columns[:, None]] = weight[chosen].transpose(2, 3, 0, 1)
            matrix = padded.reshape(-1, self.columns)
        else:
            matrix = weight[:, chosen]
        tiles = [to_tiles(to_bits(matrix, kind, self.kept))]
        if bias is not None:
            rest, rows = bias.reshape(-1)[chosen], list[Bits]()
            for _ in range(BIAS_ROWS):
                rows.append(to_bits(rest, kind, self.kept))
                rest = rest - from_bits(rows[-1])
            tiles.append(to_tiles(np.stack(rows)))
        return np.concatenate(tiles)


@dataclass(frozen=True)
class Ones:
    """Ones that multiply the rows of a bias: a tile, or 32 pixels of a plane."""

    is_plane: bool

    def size(self, kind: Format) -> int:
        return kind.tile_bytes

    def bits(self, kind: Format) -> Bits:
        ones = np.zeros((TILE, 16 if self.is_plane else TILE), np.float32)
        ones[:, :BIAS_ROWS] = 1
        bits = to_bits(ones, kind)
        return np.concatenate([bits, bits]) if self.is_plane else to_tiles(bits)


@dataclass(frozen=True)
class Load:
    """Converts tensors in DRAM to bits in L1."""

    sources: tuple[Tensor, ...]
    layout: Matrix | Image | Weights | Ones
    at: int


@dataclass(frozen=True)
class Store:
    """Converts bits in L1 to a tensor in DRAM."""

    name: str
    layout: Matrix | Image
    at: int


@dataclass(frozen=True)
class Rearrange:
    """Copies elements of a tensor in DRAM to another one there, which the operator before has stored."""

    source: Tensor
    name: str
    first: int
    """The first element that is read; loops with these sizes and strides read the others."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """Work on tensors in L1, of an operator: its name, and which of the region's it is."""

    step: str
    number: int
    work: Product | VectorWork | Move
    places: tuple[int, ...]


@dataclass(frozen=True)
class RunShared:
    """A product of tensors in DRAM on several cores, each with rows of the left operand and of the result."""

    step: str
    number: int
    work: SharedProduct
    left: tuple[Load, ...]
    right: Load
    results: tuple[Store, ...]


Item = Load | Store | Rearrange | Run | RunShared
CLASSES = (
    Tensor, Matrix, Image, Weights, Ones, Load, Store, Rearrange, Run, RunShared, Product, Planes, VectorWork, Move,
    SharedProduct,
)  # fmt: skip
"""The records of an artifact."""
