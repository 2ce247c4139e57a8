"""The transforms as prim functions, which the schedules of this folder recognize."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import Expr, PrimBuilder, TensorExpr, constant, select
from mirlo.dialects.tir.view import BlockView
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.winograd import GRADIENT_BLOCK, INPUT_BLOCK, OUTPUT_BLOCK
from mirlo.targets.llvm.winograd.matrices import INPUT, INTEGER_INPUT, INTEGER_OUTPUT, OUTPUT, Matrix, transposed

IMAGE = 224
"""Assumed height and width of an image with dynamic size."""


@dataclass(frozen=True)
class Tiling:
    """A convolution divided into tiles of m by m results."""

    m: int
    batch: Dim
    size: tuple[Dim, Dim]
    """Height and width of the image."""
    pad: tuple[int, int]
    """Padding at the top, and on the left."""
    out: tuple[Dim, Dim]
    channels: int
    out_channels: int
    image: str = "f32"
    """The element type of the image: f32, i8 or u8."""

    @property
    def is_integer(self) -> bool:
        return self.image != "f32"

    @property
    def transformed_dtype(self) -> str:
        """Return the element type of transformed tiles and windows."""
        return "i16" if self.is_integer else "f32"

    @property
    def transformed_bytes(self) -> int:
        """Return the bytes of an element of transformed tiles and windows."""
        return 2 if self.is_integer else 4

    @property
    def product_dtype(self) -> str:
        """Return the element type of products of tiles, and of their sums."""
        return "i32" if self.is_integer else "f32"

    @property
    def input_matrix(self) -> Matrix:
        """Return the matrix that transforms tiles of the image."""
        return (INTEGER_INPUT if self.is_integer else INPUT)[self.m]

    @property
    def output_matrix(self) -> Matrix:
        """Return the matrix that transforms products of tiles to results."""
        return (INTEGER_OUTPUT if self.is_integer else OUTPUT)[self.m]

    @property
    def alpha(self) -> int:
        """Return the elements of a tile along each side, before and after its transform."""
        return self.m + 2

    @property
    def tiles(self) -> tuple[Dim, Dim, Dim]:
        """Return the images, and the tiles of each along height and width."""
        return self.batch, D.ceildiv(self.out[0], self.m), D.ceildiv(self.out[1], self.m)

    @property
    def count(self) -> Dim:
        return D.product(list(self.tiles))

    @property
    def likely(self) -> Tiling:
        """Return an estimate with static sizes: one image, of the assumed size if it is dynamic."""
        size, out = ((_likely(height), _likely(width)) for height, width in (self.size, self.out))
        return replace(self, batch=self.batch if isinstance(self.batch, int) else 1, size=size, out=out)

    @property
    def of_input(self) -> Tiling:
        """Return what the input transform depends on: convolutions of the same image share it."""
        return replace(self, out_channels=0)

    @property
    def of_output(self) -> Tiling:
        """Return what the output transform, and that of gradients, depends on."""
        return replace(self, channels=0, size=(0, 0), pad=(0, 0))

    def transformed(self, channels: int) -> tuple[Dim, ...]:
        """Return the shape of all transformed tiles."""
        return (self.alpha, self.alpha, *self.tiles, channels)


def _likely(dim: Dim) -> Dim:
    return dim if isinstance(dim, int) else D.maximum(1, D.substitute(dim, dict.fromkeys(dim.symbols(), IMAGE)))


def input_function(tiling: Tiling, loc: ir.Location) -> ir.OpView:
    """Build the input transform: [batch, height, width, channels] to the transformed tiles."""
    x_type = TensorType.of((tiling.batch, *tiling.size, tiling.channels), tiling.image)
    p = PrimBuilder(INPUT_BLOCK, [x_type], loc)
    return p.finish(input_block(p, p.inputs[0], tiling))


def input_block(p: PrimBuilder, x: TensorExpr, tiling: Tiling) -> TensorExpr:
    m, matrix = tiling.m, tiling.input_matrix

    def element(i: Expr, j: Expr, n: Expr, th: Expr, tw: Expr, c: Expr, r: Expr, s: Expr) -> Expr:
        outside = 0 if tiling.is_integer else 0.0
        read = x.at(n, th * m + r - tiling.pad[0], tw * m + s - tiling.pad[1], c, outside=outside)
        dtype = tiling.transformed_dtype
        return read.cast(dtype) * (_entry(matrix, i, r, dtype) * _entry(matrix, j, s, dtype))

    shape = tiling.transformed(tiling.channels)
    return p.reduce("add", shape, (tiling.alpha, tiling.alpha), element, name=INPUT_BLOCK)


def gradient_function(tiling: Tiling, loc: ir.Location) -> ir.OpView:
    """Build the transposed output transform: gradients of [batch, height, width, channels] to the transformed tiles."""
    p = PrimBuilder(GRADIENT_BLOCK, [TensorType.of((tiling.batch, *tiling.out, tiling.out_channels), "f32")], loc)
    gradient, m, matrix = p.inputs[0], tiling.m, transposed(OUTPUT[tiling.m])

    def element(i: Expr, j: Expr, n: Expr, th: Expr, tw: Expr, c: Expr, r: Expr, s: Expr) -> Expr:
        read = gradient.at(n, th * m + r, tw * m + s, c, outside=0.0)
        return read * (_entry(matrix, i, r, "f32") * _entry(matrix, j, s, "f32"))

    shape = tiling.transformed(tiling.out_channels)
    return p.finish(p.reduce("add", shape, (m, m), element, name=GRADIENT_BLOCK))


def output_function(tiling: Tiling, loc: ir.Location) -> ir.OpView:
    """Build the output transform: the products of tiles to [batch, height, width, channels]."""
    p = PrimBuilder(OUTPUT_BLOCK, [TensorType.of(tiling.transformed(tiling.out_channels), tiling.product_dtype)], loc)
    return p.finish(output_block(p, p.inputs[0], tiling))


def output_block(p: PrimBuilder, products: TensorExpr, tiling: Tiling) -> TensorExpr:
    m, matrix = tiling.m, tiling.output_matrix

    def element(n: Expr, h: Expr, w: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        read = products.at(i, j, n, h // m, w // m, c)
        dtype = tiling.product_dtype
        return read * (_entry(matrix, h % m, i, dtype) * _entry(matrix, w % m, j, dtype))

    shape = (tiling.batch, *tiling.out, tiling.out_channels)
    return p.reduce("add", shape, (tiling.alpha, tiling.alpha), element, name=OUTPUT_BLOCK)


def _entry(matrix: Matrix, row: Expr, column: Expr, dtype: str) -> Expr:
    """Return an element of the matrix at run-time indices."""
    result = constant(0, dtype)
    for i, line in enumerate(matrix):
        for j, number in enumerate(line):
            if number:
                result = select(row.equals(i) & column.equals(j), constant(number, dtype), result)
    return result


def computes(block: BlockView, wanted: ir.OpView, rows: int) -> bool:
    """Return whether a block computes the same as the first block of a prim function made here.

    Its body, which other passes may have rewritten, is evaluated for each pair of one of the matrix's `rows` and a
    column, along one dim and along the other; the pair along the fixed dim is (0, 0), where the entry is nonzero.
    """
    other = next(BlockView(op) for op in wanted.operation.regions[0].blocks[0].operations)
    if (block.axes, block.domain) != (other.axes, other.domain) or len(block.inputs) != 1:
        return False
    operands = zip((*block.inputs, *block.outputs), (*other.inputs, *other.outputs), strict=True)
    if any(str(a.map) != str(b.map) or str(a.outside) != str(b.outside) for a, b in operands):
        return False
    places = list(np.array(list(_samples(block, rows))).T)
    actual, expected = evaluate(block, places), evaluate(other, places)
    return actual is not None and expected is not None and np.array_equal(actual, expected)


def _samples(block: BlockView, rows: int) -> Iterator[list[int]]:
    """Yield indices of all axes: in any block, the first two axes longer than one are the rows of the matrices."""
    columns = block.domain[block.reduce[0]]
    first, second = (1, 2) if block.name == OUTPUT_BLOCK else (0, 1)
    for fixed, moved in ((first, second), (second, first)):
        at = [0] * block.rank
        extent = block.domain[moved]
        for row in range(min(rows, extent) if isinstance(extent, int) else rows):
            for column in range(columns):
                at[moved], at[block.reduce[moved == second]] = row, column
                at[fixed] = 0
                yield list(at)


Comparison = Callable[[np.ndarray, np.ndarray], np.ndarray]


def evaluate(block: BlockView, indices: Sequence[np.ndarray]) -> np.ndarray | None:
    """Evaluate what a body adds to its accumulator at these indices if each operand is 1; None if unknown."""
    env: dict[ir.Value, np.ndarray] = dict(zip(block.index_arguments, indices, strict=True))
    env.update({argument: np.array(1.0) for argument in block.input_arguments})
    env.update({argument: np.array(0.0) for argument in block.accumulators})
    for op in block.body_ops:
        if op.name == "arith.constant":
            env[op.results[0]] = np.array(op.attributes["value"].value)
        elif op.name in _MEANING:
            value = _MEANING[op.name](*(env[v] for v in op.operands))
            env[op.results[0]] = value
        elif op.name == "arith.cmpi":
            compare = _COMPARISONS[op.attributes["predicate"].value]
            env[op.results[0]] = compare(*(env[v] for v in op.operands))
        else:
            return None
    return np.broadcast_to(np.asarray(env[block.yielded[0]], np.float64), indices[0].shape)


def _unsigned(compare: Comparison) -> Comparison:
    return lambda a, b: compare(np.asarray(a).astype(np.uint64), np.asarray(b).astype(np.uint64))


_COMPARISONS: tuple[Comparison, ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    *(_unsigned(compare) for compare in (operator.lt, operator.le, operator.gt, operator.ge)),
)  # fmt: skip
_MEANING: dict[str, Callable[..., np.ndarray]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.mulf": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.select": np.where,
    "arith.remsi": lambda a, b: a % b,
    "arith.remui": lambda a, b: a % b,
    "arith.divui": lambda a, b: a // b,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.muli": lambda a, b: a * b,
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.index_cast": lambda a: a,
    "arith.extsi": lambda a: a,
    "arith.extui": lambda a: a,
}
"""Operations on arrays; dividends are never negative."""
