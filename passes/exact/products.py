"""Sums of products of a definition as matrix products of 64-bit floats, which are exact.

Residues are moved to the integers around zero. Where the sum of a row might exceed the integers that floats have, one
factor is split into two numbers of half the bits, and rows are summed in parts. Loops take ten times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.exact.definition import depends
from mirlo.passes.exact.memory import Array, GuardedBuffer, NumberBuffer, number_of
from mirlo.passes.exact.primes import Plane
from mirlo.passes.exact.values import is_float
from mirlo.runtime.processes import one_blas_thread
from mirlo.runtime.records import dataclass

EXACT_SUM = (1 << 53) - (1 << 32)
"""The greatest sum of a row: rounded quotients of it times the modulus are integers that floats have, too."""
HALF_BITS = 15
"""The bits of the lower part of a number that is split."""
LEAST_POINTS = 1 << 20
"""The points of a block from which matrices take less time than loops."""
LEAST_WIDTH = 4
"""The least rows and columns of a matrix."""
MOST_ELEMENTS = 1 << 22
"""The most elements of a part of the columns."""


@dataclass(frozen=True)
class SumOfProducts:
    """A block that sums the products of two operands, as products of matrices."""

    block: BlockView
    left: OperandView
    right: OperandView
    batch: tuple[int, ...]
    """The axes of both operands and of the result."""
    rows: tuple[int, ...]
    """The axes of the left operand and of the result."""
    columns: tuple[int, ...]
    """The axes of the right operand and of the result."""

    @staticmethod
    def of(block: BlockView) -> SumOfProducts | None:
        """Return a block of constant size as a product of large matrices; None if it is none."""
        if not all(isinstance(dim, int) for dim in block.domain) or math.prod(block.domain) < LEAST_POINTS:
            return None
        factors = _factors(block)
        if factors is None or not all(_has_matrix(each) for each in factors):
            return None
        left, right = factors
        reads = [(_reads(left, axis), _reads(right, axis)) for axis in range(block.rank)]
        for axis in [axis for axis, dim in enumerate(block.domain) if dim == 1]:
            reads[axis] = (True, axis in block.reduce)
        if any(reads[axis] != (True, True) for axis in block.reduce):
            return None
        batch, rows, columns = (
            tuple(axis for axis in block.spatial if reads[axis] == which)
            for which in ((True, True), (True, False), (False, True))
        )
        if len(batch) + len(rows) + len(columns) != len(block.spatial):
            return None
        result = SumOfProducts(block, left, right, batch, rows, columns)
        return result if min(result._count(rows), result._count(columns)) >= LEAST_WIDTH else None

    def _count(self, axes: Sequence[int]) -> int:
        return math.prod(self.block.domain[axis] for axis in axes)

    def write(
        self, left: GuardedBuffer, right: GuardedBuffer, result: GuardedBuffer, moduli: Sequence[Plane],
        sizes: Mapping[str, int],
    ) -> bool:  # fmt: skip
        """Write the sums; return False if there is an infinity or NaN among the factors, without writing."""
        if any(_has_special(each, moduli) for each in (left, right)):
            return False
        (output,) = self.block.outputs
        factors = _Matrix(self, self.left, self.rows, sizes), _Matrix(self, self.right, self.columns, sizes)
        shape = [number_of(dim, sizes) for dim in output.shape]
        step = max(1, MOST_ELEMENTS // self._count((*self.batch, *self.block.reduce)))
        with one_blas_thread():
            for plane, to in zip(moduli, result.planes, strict=True):
                rows = factors[0].read(left, plane, slice(None))
                for start in range(0, self._count(self.columns), step):
                    part = slice(start, start + step)
                    products = _products(rows, factors[1].read(right, plane, part).swapaxes(1, 2), plane)
                    at = self._places((self.batch, self.rows, self.columns), (slice(None), slice(None), part))
                    to[_flat_index(output.map, at, shape)] = products
        return True

    def _places(self, groups: Sequence[Sequence[int]], parts: Sequence[slice]) -> dict[int, Array]:
        """Return the indices of axes, each group of which is a dim of matrices, of which parts are taken."""
        zero: Array = np.zeros((1, 1, 1), np.int64)
        at = {axis: zero for axis, dim in enumerate(self.block.domain) if dim == 1}
        for position, (axes, part) in enumerate(zip(groups, parts, strict=True)):
            shape = [1] * len(groups)
            shape[position] = -1
            extents = [self.block.domain[axis] for axis in axes]
            indices = np.unravel_index(np.arange(self._count(axes))[part], extents) if axes else ()
            at.update({axis: each.reshape(shape) for axis, each in zip(axes, indices, strict=True)})
        return at


class _Matrix:
    """A factor as matrices: the elements of its batch, its rows or columns, and those of the sums."""

    def __init__(self, product: SumOfProducts, operand: OperandView, axes: tuple[int, ...], sizes: Mapping[str, int]):
        self._product, self._operand, self._axes = product, operand, axes
        self._shape = [number_of(dim, sizes) for dim in operand.shape]
        self._groups = product.batch, axes, product.block.reduce

    def read(self, buffer: GuardedBuffer, plane: Plane, part: slice) -> Array:
        """Return integers around zero, as 64-bit floats."""
        numbers = buffer.numbers if isinstance(buffer, NumberBuffer) else buffer.planes[plane.index]
        matrix = self._transposed(numbers, part)
        if matrix is None:
            at = self._product._places(self._groups, (slice(None), part, slice(None)))
            matrix = self._gathered(numbers, at)
        if isinstance(buffer, NumberBuffer):
            return matrix.astype(np.float64)
        result: Array = matrix.astype(np.float64)
        np.subtract(result, plane.modulus, out=result, where=result > plane.modulus >> 1)
        return result

    def _transposed(self, numbers: Array, part: slice) -> Array | None:
        """Return a view where each dim of the operand is an axis; None elsewhere."""
        wide = [(each, size) for each, size in zip(self._operand.map.results, self._shape, strict=True) if size != 1]
        if self._operand.outside is not None or not all(isinstance(each, ir.AffineDimExpr) for each, _ in wide):
            return None
        axes, shape = [each.position for each, _ in wide], [size for _, size in wide]
        domain = self._product.block.domain
        if len({*axes}) != len(axes) or [domain[axis] for axis in axes] != shape:
            return None
        order = [axes.index(axis) for group in self._groups for axis in group if domain[axis] != 1]
        counts = [self._product._count(group) for group in self._groups]
        return np.asarray(numbers.reshape(shape).transpose(order).reshape(counts)[:, part])

    def _gathered(self, numbers: Array, at: Mapping[int, Array]) -> Array:
        if self._operand.outside is None:
            return numbers[_flat_index(self._operand.map, at, self._shape)]
        inside: Array = np.ones((1, 1, 1), bool)
        indices = []
        for expression, size in zip(self._operand.map.results, self._shape, strict=True):
            index = _evaluated(expression, at)
            is_inside = (index >= 0) & (index < size)
            inside = inside & is_inside
            indices.append(np.where(is_inside, index, 0))
        flat = _summed(indices, self._shape)
        return np.where(inside, numbers[flat], 0)


def _factors(block: BlockView) -> tuple[OperandView, OperandView] | None:
    """Return the operands whose products a block sums; None if it computes anything else."""
    if not block.is_reduction or len(block.outputs) != 1 or len(block.accumulators) != 1:
        return None
    (start,), (total,) = block.init, block.yielded
    names = [op.name for op in block.body_ops]
    if start is None or not is_float(block.outputs[0].element_type) or ir.FloatAttr(start).value != 0.0:
        return None
    if sorted(each for each in names if each != "arith.extf") != ["arith.addf", "arith.mulf"]:
        return None
    addition = total.owner
    if isinstance(addition, ir.Block) or addition.name != "arith.addf":
        return None
    products = [value for value in addition.operands if value != block.accumulators[0]]
    if len(products) != 1 or isinstance(products[0].owner, ir.Block) or products[0].owner.name != "arith.mulf":
        return None
    arguments = list(block.input_arguments)
    operands = [_without_casts(value) for value in products[0].owner.operands]
    if operands[0] == operands[1] or not all(value in arguments for value in operands):
        return None
    left, right = (block.inputs[arguments.index(value)] for value in operands)
    return left, right


def _without_casts(value: ir.Value) -> ir.Value:
    while not isinstance(value.owner, ir.Block) and value.owner.name == "arith.extf":
        value = value.owner.operands[0]
    return value


def _has_matrix(operand: OperandView) -> bool:
    """Return whether elements of an operand are read by a map, and are zero beyond its edges."""
    if operand.is_opaque or not is_float(operand.element_type):
        return False
    return operand.outside is None or ir.FloatAttr(operand.outside).value == 0.0


def _reads(operand: OperandView, axis: int) -> bool:
    return any(depends(expression, axis) for expression in operand.map.results)


def _has_special(buffer: GuardedBuffer, moduli: Sequence[Plane]) -> bool:
    if isinstance(buffer, NumberBuffer):
        return False
    return bool((buffer.planes[0].view(np.uint64) >= moduli[0].modulus).any())


def _flat_index(map_: Any, at: Mapping[int, Array], shape: Sequence[int]) -> Array:
    return _summed([_evaluated(expression, at) for expression in map_.results], shape)


def _summed(indices: Sequence[Array], shape: Sequence[int]) -> Array:
    """Return the positions of elements in memory; indices of few elements are added first."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    terms = sorted((index * stride for index, stride in zip(indices, strides, strict=True)), key=np.size)
    return sum(terms, np.zeros((1, 1, 1), np.int64))


def _evaluated(expression: ir.AffineExpr, at: Mapping[int, Array]) -> Array:
    """Return an affine expression of the indices of axes."""
    if isinstance(expression, ir.AffineDimExpr):
        return at[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return np.full((1, 1, 1), expression.value, np.int64)
    left, right = _evaluated(expression.lhs, at), _evaluated(expression.rhs, at)
    if isinstance(expression, ir.AffineAddExpr):
        return left + right
    if isinstance(expression, ir.AffineMulExpr):
        return left * right
    return left // right if isinstance(expression, ir.AffineFloorDivExpr) else left % right


def _products(left: Array, right: Array, plane: Plane) -> Array:
    """Return products of matrices modulo a prime, of integers as floats."""
    most = [max(float(np.abs(each).max(initial=0)), 1.0) for each in (left, right)]
    depth = left.shape[2]
    if most[0] * most[1] * depth < EXACT_SUM:
        total = left @ right
    elif most[0] >= most[1]:
        total = sum(_parts(left, right, most[1], plane))
    else:
        total = sum(_parts(right.swapaxes(1, 2), left.swapaxes(1, 2), most[0], plane)).swapaxes(1, 2)
    residues: Array = _reduced(total, plane).astype(np.int64)
    np.add(residues, plane.modulus, out=residues, where=residues < 0)
    return residues


def _parts(split: Array, other: Array, most: float, plane: Plane) -> Iterator[Any]:
    """Yield products of parts of rows, of which the left factor is split, reduced modulo a prime."""
    high = split * 2.0**-HALF_BITS
    np.rint(high, out=high)
    low = high * -(2.0**HALF_BITS)
    low += split
    halves = low, high
    width = max(1, int(EXACT_SUM / (most * max(1 << HALF_BITS - 1, float(np.abs(high).max())))))
    for start in range(0, split.shape[2], width):
        least, most_part = (each[:, :, start : start + width] @ other[:, start : start + width] for each in halves)
        total = _reduced(most_part, plane)
        total *= 2.0**HALF_BITS
        total = _reduced(total, plane)
        total += _reduced(least, plane)
        yield total


def _reduced(numbers: Array, plane: Plane) -> Array:
    """Return integers modulo a prime, around zero, in place: large arrays cost more to allocate than to compute."""
    quotients = numbers * (1 / plane.modulus)
    np.rint(quotients, out=quotients)
    quotients *= plane.modulus
    numbers -= quotients
    return numbers
