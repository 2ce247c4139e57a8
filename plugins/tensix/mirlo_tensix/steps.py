"""Steps of regions: what an artifact says of each operator, and how it becomes work of the core."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirlo_tensix.cores import SharedProduct, shared
from mirlo_tensix.instructions import FORMATS, TILE, Format
from mirlo_tensix.kernels import REDUCTIONS, VectorWork
from mirlo_tensix.products import JOINT_RATE, Product, Windows, tiles_of
from mirlo_tensix.simulator import L1_TENSORS, Work, why_too_large
from mirlo_tensix.unit import KEPT, Bits, from_bits, from_tiles, to_bits, to_tiles

Array = NDArray[np.float32]
Run = Callable[..., Bits]
"""Runs a piece of work on tiles, and records its cycles."""
BIAS_ROWS = 3
"""Rows of weights that hold a bias: it is the sum of three numbers, which the unit adds as products by one."""
FILL_CYCLES = 320
"""Cycles of a piece of work beside those of its units: configuration, the first tiles, and the last."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that a step reads: a value of the region, or a constant."""

    name: str
    is_constant: bool
    shape: tuple[int, ...]

    def read(self, values: Mapping[str, Array], params: Mapping[str, Array]) -> Array:
        tensor = params[self.name] if self.is_constant else values[self.name]
        return np.asarray(tensor, np.float32).reshape(self.shape)


@dataclass(frozen=True)
class Numbers:
    """How a step's numbers become operands: those of a product keep the bits that its phases multiply."""

    format: str
    phases: int

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]

    @property
    def one(self) -> int:
        return int(self.of(np.ones(1, np.float32))[0])

    def of(self, values: Array) -> Bits:
        return to_bits(values, self.kind)

    def left(self, values: Array) -> Bits:
        return to_bits(values, self.kind, KEPT[self.phases][0])

    def right(self, values: Array) -> Bits:
        return to_bits(values, self.kind, KEPT[self.phases][1])

    def bias_rows(self, bias: Array) -> Bits:
        """Return rows whose sum is a bias."""
        rest, rows = bias.reshape(-1), list[Bits]()
        for _ in range(BIAS_ROWS):
            rows.append(self.right(rest))
            rest = rest - from_bits(rows[-1])
        return np.stack(rows)


@dataclass(frozen=True)
class ProductStep:
    """Products of matrices with a bias and a function of the sums."""

    name: str
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    y: str
    batch: int
    """How many products of matrices there are."""
    rows: int
    columns: int
    depth: int
    numbers: Numbers
    activation: str | None
    block: tuple[int, int] | None = None
    cores: int = 1

    def product(self) -> Product | SharedProduct:
        """Return one of the products in tiles, with the rows of the bias; several cores share its rows."""
        depth = self.depth + (BIAS_ROWS if self.bias else 0)
        sizes = (tiles_of(size) for size in (self.rows, self.columns, depth))
        numbers = self.numbers
        product = Product(*sizes, numbers.phases, self.activation, self.block, format=numbers.format)
        return shared(product, self.cores)

    def works(self) -> list[Work]:
        return [self.product()] * self.batch

    def constants(self, params: Mapping[str, Array]) -> Bits | None:
        """Return the tiles of constant weights, with rows whose sum is the bias."""
        return to_tiles(self._weights(self.weight.read({}, params), params)) if self.weight.is_constant else None

    def _weights(self, weight: Array, params: Mapping[str, Array]) -> Bits:
        bits = self.numbers.right(weight)
        if self.bias is None:
            return bits
        return np.concatenate([bits, self.numbers.bias_rows(self.bias.read({}, params))])

    def run(self, values: Mapping[str, Array], params: Mapping[str, Array], tiles: Bits | None, run: Run) -> Array:
        x = self.x.read(values, params).reshape(self.batch, self.rows, self.depth)
        if tiles is None:
            right = self.weight.read(values, params).reshape(self.batch, self.depth, self.columns)
        y = np.empty((self.batch, self.rows, self.columns), np.float32)
        product = self.product()
        for i in range(self.batch):
            left = self.numbers.left(x[i])
            if self.bias is not None:  # ones multiply the rows of the bias
                left = np.concatenate([left, np.full((len(left), BIAS_ROWS), self.numbers.one, left.dtype)], 1)
            left = np.pad(left, ((0, TILE * product.m - len(left)), (0, 0)))  # cores have the same number of rows
            both = to_tiles(left), to_tiles(self.numbers.right(right[i])) if tiles is None else tiles
            y[i] = from_bits(from_tiles(run(product, *both), self.rows, self.columns))
        return y


@dataclass(frozen=True)
class ConvStep:
    """A convolution: a product whose left operand is read from planes of pixels, shifted for each place of the window.

    A plane has 16 channels of all padded pixels. With strides there are planes for each remainder of the positions.
    Where a row of the image ends, results are computed that are no pixels; they are left out.
    """

    name: str
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    y: str
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Above, left, below, right."""
    dilations: tuple[int, int]
    numbers: Numbers
    activation: str | None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Return the height and width of the result, and those of a plane."""
        above, left, below, right = self.pads
        padded = self.x.shape[2] + above + below, self.x.shape[3] + left + right
        spans = [d * (size - 1) + 1 for d, size in zip(self.dilations, self.weight.shape[2:], strict=True)]
        result = [(size - span) // s + 1 for size, span, s in zip(padded, spans, self.strides, strict=True)]
        plane = [-(-size // s) for size, s in zip(padded, self.strides, strict=True)]
        return result[0], result[1], plane[0], plane[1]

    def product(self) -> Product:
        """Return the product of one image."""
        height, width, _, across = self.sizes
        channels, (down, right) = tiles_of(self.x.shape[1]), self.strides
        tiles = []
        for i, j in np.ndindex(*self.weight.shape[2:]):
            y, x = i * self.dilations[0], j * self.dilations[1]
            first = 2 * channels * (y % down * right + x % right)
            tiles += [(first + 2 * c, y // down * across + x // right) for c in range(channels)]
        planes = 2 * channels * down * right
        if self.bias is not None:
            tiles.append((planes, 0))
            planes += 2
        rows = tiles_of((height - 1) * across + width)
        last = TILE * rows + max(shift for _, shift in tiles)
        windows = Windows(last, planes, tuple(tiles))
        columns, numbers = tiles_of(self.weight.shape[0]), self.numbers
        return Product(
            rows, columns, len(tiles), numbers.phases, self.activation, windows=windows, format=numbers.format
        )

    def works(self) -> list[Work]:
        return [self.product()] * self.x.shape[0]

    def constants(self, params: Mapping[str, Array]) -> Bits:
        """Return the tiles of the kernel: rows are the places of the window, each with all channels."""
        weight = self.weight.read({}, params)
        outputs, channels = weight.shape[:2]
        padded = np.zeros((*weight.shape[2:], TILE * tiles_of(channels), outputs), np.float32)
        padded[:, :, :channels] = weight.transpose(2, 3, 1, 0)
        rows = [self.numbers.right(padded.reshape(-1, outputs))]
        if self.bias is not None:
            rows.append(self.numbers.bias_rows(self.bias.read({}, params)))
        return to_tiles(np.concatenate(rows))

    def planes(self, image: Array) -> Bits:
        """Return the planes of an image."""
        windows, (down, right) = self.product().windows, self.strides
        assert windows is not None
        _, _, height, width = self.sizes
        above, left, _, _ = self.pads
        channels = TILE * tiles_of(len(image))
        used = self.numbers.left(image[:, : height * down - above, : width * right - left])
        padded = np.zeros((channels, height * down, width * right), used.dtype)
        padded[: len(image), above : above + used.shape[1], left : left + used.shape[2]] = used
        split = padded.reshape(channels // 16, 16, height, down, width, right).transpose(3, 5, 0, 2, 4, 1)
        pixels = split.reshape(-1, height * width, 16)
        result = np.zeros((windows.planes, windows.rows, 16), used.dtype)
        count = min(windows.rows, height * width)
        result[: len(pixels), :count] = pixels[:, :count]
        if self.bias is not None:
            result[-2, :, :BIAS_ROWS] = self.numbers.one
        return result

    def run(self, values: Mapping[str, Array], params: Mapping[str, Array], tiles: Bits | None, run: Run) -> Array:
        x, product = self.x.read(values, params), self.product()
        height, width, _, across = self.sizes
        outputs = self.weight.shape[0]
        y = np.empty((len(x), outputs, height, width), np.float32)
        for image, result in zip(x, y, strict=True):
            found = from_tiles(run(product, self.planes(image), tiles), TILE * product.m, outputs)
            found = np.pad(found, ((0, max(0, height * across - len(found))), (0, 0)))[: height * across]
            result[...] = from_bits(found).reshape(height, across, outputs)[:, :width].transpose(2, 0, 1)
        return y


@dataclass(frozen=True)
class VectorStep:
    """A kernel of the vector unit on matrices."""

    name: str
    kernel: str
    operands: tuple[Tensor, ...]
    are_rows: tuple[bool, ...]
    """For each operand, whether it is one row, which all rows of the others use."""
    y: str
    shape: tuple[int, ...]
    """The shape that operands are broadcast to."""
    rows: int
    columns: int
    numbers: Numbers
    epsilon: float = 0.0
    has_scale: bool = False
    has_bias: bool = False
    activation: str | None = None

    def work(self, rows: int) -> VectorWork:
        return VectorWork(
            self.kernel, tiles_of(rows), tiles_of(self.columns), self.are_rows, self.columns, self.epsilon,
            self.has_scale, self.has_bias, format=self.numbers.format,
            activation=self.activation,
        )  # fmt: skip

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield first and last rows of what fits into L1 at once."""
        fixed, each = self.work(TILE).tensor_bytes, self.work(2 * TILE).tensor_bytes
        per_tile = sum(each) - sum(fixed)
        rows = max(1, (L1_TENSORS - sum(fixed)) // per_tile + 1) * TILE
        for first in range(0, self.rows, rows):
            yield first, min(first + rows, self.rows)

    def works(self) -> list[Work]:
        return [self.work(last - first) for first, last in self.blocks()]

    def constants(self, params: Mapping[str, Array]) -> None:
        return None

    def run(self, values: Mapping[str, Array], params: Mapping[str, Array], tiles: Bits | None, run: Run) -> Array:
        matrices = [
            self._matrix(each.read(values, params), is_row)
            for each, is_row in zip(self.operands, self.are_rows, strict=True)
        ]
        fill = int(self.numbers.of(np.array([self.work(TILE).kernel.fill], np.float32))[0])
        results = []
        for first, last in self.blocks():
            work = self.work(last - first)
            parts = [each if is_row else each[first:last] for each, is_row in zip(matrices, self.are_rows, strict=True)]
            columns = 1 if work.is_reduction else self.columns
            result = run(work, *(to_tiles(each, fill) for each in parts))
            results.append(from_bits(from_tiles(result, last - first, columns)))
        every = np.concatenate(results).reshape(-1)
        return every if self.kernel in REDUCTIONS else every[: math.prod(self.shape)]

    def _matrix(self, array: Array, is_row: bool) -> Bits:
        if is_row:
            return np.repeat(self.numbers.of(array.reshape(1, self.columns)), TILE, 0)
        whole = array.reshape(self.shape) if array.size == math.prod(self.shape) else np.broadcast_to(array, self.shape)
        flat = self.numbers.of(whole).reshape(-1)
        return np.pad(flat, (0, self.rows * self.columns - flat.size)).reshape(self.rows, self.columns)


@dataclass(frozen=True)
class AttentionStep:
    """The attention of each head: a product, a softmax of its rows, and another product."""

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    y: str
    scale: float
    numbers: Numbers

    @property
    def heads(self) -> int:
        return math.prod(self.query.shape[:-2])

    def parts(self) -> tuple[Product, VectorWork, Product]:
        """Return the work of a head."""
        rows, depth, keys, width = map(tiles_of, (*self.query.shape[-2:], self.key.shape[-2], self.value.shape[-1]))
        operands = (False,) if self.mask is None else (False, False)
        softmax = VectorWork(
            "softmax", rows, keys, operands, self.key.shape[-2], has_bias=self.mask is not None, scale=self.scale,
            format=self.numbers.format,
        )  # fmt: skip
        product = partial(Product, phases=self.numbers.phases, format=self.numbers.format)
        return product(rows, keys, depth), softmax, product(rows, width, keys)

    def works(self) -> list[Work]:
        return [*self.parts()] * self.heads

    def constants(self, params: Mapping[str, Array]) -> None:
        return None

    def run(self, values: Mapping[str, Array], params: Mapping[str, Array], tiles: Bits | None, run: Run) -> Array:
        scores, softmax, sums = self.parts()
        numbers = self.numbers
        fill = int(numbers.of(np.array([softmax.kernel.fill], np.float32))[0])
        rows, keys, width = self.query.shape[-2], self.key.shape[-2], self.value.shape[-1]
        ways = ((self.query, numbers.left), (self.key, numbers.right), (self.value, numbers.right))
        query, key, value = (
            bits(each.read(values, params)).reshape(self.heads, *each.shape[-2:]) for each, bits in ways
        )
        if self.mask is not None:
            shape = (*self.query.shape[:-2], rows, keys)
            mask = numbers.of(np.broadcast_to(self.mask.read(values, params), shape)).reshape(-1, rows, keys)
        y = np.empty((self.heads, rows, width), np.float32)
        for i in range(self.heads):
            result = from_tiles(run(scores, to_tiles(query[i]), to_tiles(key[i].T)), rows, keys)
            result = numbers.of(from_bits(result))
            operands = [to_tiles(result, fill)] if self.mask is None else [to_tiles(result, fill), to_tiles(mask[i])]
            weights = numbers.left(from_bits(from_tiles(run(softmax, *operands), rows, keys)))
            y[i] = from_bits(from_tiles(run(sums, to_tiles(weights), to_tiles(value[i])), rows, width))
        return y


Step = ProductStep | ConvStep | VectorStep | AttentionStep
KINDS: dict[str, type[Step]] = {
    "product": ProductStep,
    "conv": ConvStep,
    "vector": VectorStep,
    "attention": AttentionStep,
}


def to_json(step: Step) -> dict[str, Any]:
    (kind,) = (name for name, each in KINDS.items() if isinstance(step, each))
    return {"kind": kind, **asdict(step)}


def from_json(content: Mapping[str, Any]) -> Step:
    """Return a step of an artifact."""
    fields = {name: _field(value) for name, value in content.items() if name != "kind"}
    return KINDS[content["kind"]](**fields)


def _field(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Numbers(**value) if "phases" in value else Tensor(**value | {"shape": tuple(value["shape"])})
    return (
        tuple(_field(each) for each in value) if isinstance(value, Sequence) and not isinstance(value, str) else value
    )


def steps_of(region: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a region of an artifact."""
    return [from_json(each) for each in region["steps"]]


def why_not(step: Step) -> str | None:
    """Return why a step cannot run on the core, None if it can."""
    return next(filter(None, map(why_too_large, step.works())), None)


def estimated_cycles(work: Work) -> int:
    """Return about how many cycles a piece of work takes."""
    if isinstance(work, VectorWork):
        return work.estimated_cycles
    if isinstance(work, SharedProduct):
        return estimated_cycles(work.part) + sum(work.part.operand_bytes[:2]) // 24
    rows, columns = work.block or work.blocks()[0]
    loads = min(rows, columns) * 2 + 1 if min(rows, columns) > 1 else rows + columns
    unpacked = work.m // rows * (work.n // columns) * work.k * loads * work.kind.tile_bytes
    return max(work.mvmuls + work.activation_cycles, unpacked // JOINT_RATE) + FILL_CYCLES
