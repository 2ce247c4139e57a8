"""Sums of products of a definition as matrix products of 64-bit floats, which are exact.

Residues are moved to the integers around zero. The larger factor is read in panels, which stay in the processor's
cache; the smaller one is split into as many numbers of fewer bits as sums need that 64-bit floats have exactly. Loops
take ten times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count, product
from typing import Any, Protocol

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.exact.definition import depends
from mirlo.passes.exact.memory import Array, GuardedBuffer, NumberBuffer, number_of
from mirlo.passes.exact.primes import RESIDUE, VALUES, Plane
from mirlo.passes.exact.residue_products import in_few_dims, multiply
from mirlo.passes.exact.strided import Ranges, StridedOperand
from mirlo.passes.exact.values import is_float
from mirlo.runtime.processes import one_blas_thread
from mirlo.runtime.records import dataclass

EXACT_SUM = 1 << 52
"""The greatest sum of a row: with a residue, and with a rounded quotient times the modulus, floats have it exactly."""
LEAST_POINTS = 1 << 20
"""The points of a block from which matrices take less time than loops."""
LEAST_WIDTH = 4
"""The least rows and columns of a matrix."""
MOST_DEPTH = 1 << 20
"""The most products of a sum, of which parts of numbers have few enough bits."""
SIGN = 31
"""The bit of a difference of residues that is set where it is negative."""
MOST_ELEMENTS = 1 << 18
"""The most elements of a panel, and of the sums of it, which the processor's cache has."""


class ProductBlock(Protocol):
    """What sums of products are of a block."""

    @property
    def op(self) -> ir.Operation: ...

    @property
    def domain(self) -> Sequence[int]: ...

    @property
    def rank(self) -> int: ...

    @property
    def spatial(self) -> tuple[int, ...]: ...

    @property
    def reduce(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> Sequence[OperandView]: ...


@dataclass(frozen=True)
class SumOfProducts:
    """A block that sums the products of two operands, as products of matrices."""

    block: ProductBlock
    left: OperandView
    right: OperandView
    """The operand of more elements, which are read in panels of columns."""
    batch: tuple[int, ...]
    """The axes of both operands and of the result."""
    rows: tuple[int, ...]
    """The axes of the left operand and of the result."""
    columns: tuple[int, ...]
    """The axes of the right operand and of the result."""

    @staticmethod
    def of(block: BlockView) -> SumOfProducts | None:
        """Return a block of constant size as a product of large matrices; None if it is none."""
        if not is_large(block):
            return None
        factors = _factors(block)
        if factors is None or not all(has_matrix(each) for each in factors):
            return None
        return SumOfProducts.between(block, *factors)

    @staticmethod
    def between(block: ProductBlock, left: OperandView, right: OperandView) -> SumOfProducts | None:
        """Return the sums of products of two operands of a block; None if they are none of matrices."""
        reads = [(reads_axis(left, axis), reads_axis(right, axis)) for axis in range(block.rank)]
        for axis in [axis for axis, dim in enumerate(block.domain) if dim == 1]:
            reads[axis] = (True, axis in block.reduce)
        if any(reads[axis] != (True, True) for axis in block.reduce):
            return None
        if math.prod(block.domain[axis] for axis in block.reduce) > MOST_DEPTH:
            return None
        batch, rows, columns = (
            tuple(axis for axis in block.spatial if reads[axis] == which)
            for which in ((True, True), (True, False), (False, True))
        )
        if len(batch) + len(rows) + len(columns) != len(block.spatial):
            return None
        widths = [math.prod(block.domain[axis] for axis in axes) for axes in (rows, columns)]
        if min(widths) < LEAST_WIDTH:
            return None
        if widths[0] > widths[1]:
            return SumOfProducts(block, right, left, batch, columns, rows)
        return SumOfProducts(block, left, right, batch, rows, columns)

    @property
    def transposed(self) -> SumOfProducts:
        """Return the same sums with the operands in the other order."""
        return SumOfProducts(self.block, self.right, self.left, self.batch, self.columns, self.rows)

    def write(
        self, left: GuardedBuffer, right: GuardedBuffer, result: GuardedBuffer, moduli: Sequence[Plane],
        sizes: Mapping[str, int], compute: Sums | None = None,
    ) -> bool:  # fmt: skip
        """Write the sums for some moduli; return False if there is an infinity or NaN among the factors.

        `compute` yields the sums of factors of a special form.
        """
        compute = compute or Matrices.sums
        if any(_has_special(each, moduli) for each in (left, right)):
            return False
        matrices = Matrices(self, sizes)
        with one_blas_thread():
            for plane in moduli:
                to = result.planes[plane.index]
                for panel, sums in compute(matrices, left, right, plane):
                    matrices.results.write(to, panel, sums)
        return True

    def write_floats(
        self, left: GuardedBuffer, right: GuardedBuffer, result: GuardedBuffer, sizes: Mapping[str, int]
    ) -> None:
        """Write the sums of 64-bit floats, which are rounded."""
        matrices = Matrices(self, sizes)
        with one_blas_thread():
            for panel, sums in matrices.float_sums(left, right):
                matrices.results.write(result.planes[0], panel, sums)


class Matrices:
    """The factors and the result of a sum of products, as matrices of which panels are read."""

    def __init__(self, product: SumOfProducts, sizes: Mapping[str, int]):
        block, self._batch, self._columns = product.block, product.batch, product.columns
        (output,) = block.outputs
        self._domain = block.domain
        self._depth = math.prod(block.domain[axis] for axis in block.reduce)
        self._height = math.prod(block.domain[axis] for axis in product.rows)
        self._rows = _Matrix(product, product.left, (product.batch, product.rows, block.reduce), sizes)
        self._others = _Matrix(product, product.right, (product.batch, product.columns, block.reduce), sizes)
        self.results = _Matrix(product, output, (product.batch, product.rows, product.columns), sizes)
        self.panels = list(self._parts())

    def sums(self, left: GuardedBuffer, right: GuardedBuffer, plane: Plane) -> Iterator[tuple[Ranges, Array]]:
        """Yield each panel of columns, and the sums of products."""
        shift, most = plane.modulus >> 1, (plane.modulus >> 1) + 1
        if isinstance(right, NumberBuffer):
            shift, most = 0, int(np.abs(right.numbers).max(initial=1.0))
        rows = around_zero(self._rows.read(self._rows.elements(left, plane), self.all)[0], plane)
        split = SplitFactor(rows, most * self._depth, shift, plane)
        elements = self._others.elements(right, plane)
        for panel in self.panels:
            part, is_transposed = self._others.read(elements, panel, transposes=True)
            part -= shift
            yield panel, split.times(part if is_transposed else part.swapaxes(1, 2), self.batch_part(panel))

    @property
    def all(self) -> Ranges:
        """Return all indices."""
        return {axis: range(dim) for axis, dim in enumerate(self._domain)}

    def rows_at(self, left: GuardedBuffer, plane: Plane, firsts: Collection[int]) -> Array:
        """Return the rows of the left factor at index 0 of the axes `firsts`, as residues."""
        ranges = {axis: range(1) if axis in firsts else each for axis, each in self.all.items()}
        return self._rows.residues(self._rows.padded(left.planes[plane.index]), ranges)

    def combined_rows(self, numbers: Array, left: GuardedBuffer, plane: Plane) -> Array:
        """Return the products of few rows of residues by the left factor."""
        elements = self._rows.padded(left.planes[plane.index])
        return multiply(numbers, self._rows.in_place(elements, self.all), plane)

    def times_columns(self, rows: Array, right: GuardedBuffer, plane: Plane) -> Array:
        """Return the products of few rows of residues by the columns of the right factor."""
        elements = self._others.padded(right.planes[plane.index])
        return multiply(rows, self._others.in_place(elements, self.all, is_transposed=True), plane)

    def combined_results(self, numbers: Array, results: Array, plane: Plane) -> Array:
        """Return the products of few rows of residues by results."""
        return multiply(numbers, self.results.in_place(results, self.all), plane)

    def float_sums(self, left: GuardedBuffer, right: GuardedBuffer) -> Iterator[tuple[Ranges, Array]]:
        """Yield each panel of columns, and the sums of products of 64-bit floats."""
        rows = self._rows.read(self._rows.elements(left, VALUES), self.all)[0]
        elements = self._others.elements(right, VALUES)
        for panel in self.panels:
            part, is_transposed = self._others.read(elements, panel, transposes=True)
            yield panel, rows[self.batch_part(panel)] @ (part if is_transposed else part.swapaxes(1, 2))

    def batch_part(self, panel: Ranges) -> Any:
        """Return the positions of the matrices of a panel."""
        extents = [self._domain[axis] for axis in self._batch]
        positions = np.arange(math.prod(extents)).reshape(extents)
        chosen = positions[tuple(slice(panel[axis].start, panel[axis].stop) for axis in self._batch)].reshape(-1)
        is_range = len(chosen) > 0 and chosen[-1] - chosen[0] + 1 == len(chosen)
        return slice(chosen[0], chosen[-1] + 1) if is_range else chosen

    def _parts(self) -> Iterator[Ranges]:
        """Yield the indices of panels: parts of the columns of one matrix, or all columns of some."""
        axes = (*self._batch, *self._columns)
        left = max(1, MOST_ELEMENTS // max(1, self._depth, self._height))
        parts: list[list[range]] = []
        for axis in reversed(axes):
            extent = self._domain[axis]
            multiple = math.lcm(self._others.divisor(axis), self.results.divisor(axis))
            step = max(1, extent if extent <= left else max(multiple, left // multiple * multiple))
            left = max(1, left // extent) if extent <= left else 1
            parts.append([range(start, min(start + step, extent)) for start in range(0, extent, step)])
        for chosen in product(*reversed(parts)):
            yield {**self.all, **dict(zip(axes, chosen, strict=True))}


Sums = Callable[[Matrices, GuardedBuffer, GuardedBuffer, Plane], Iterator[tuple[Ranges, Array]]]
"""Yields the sums of products for each panel of columns."""


class SplitFactor:
    """The smaller factor of products, as a sum of numbers of few bits times powers of two, one below the other."""

    def __init__(self, factor: Array, most: int, shift: int, plane: Plane):
        """Split integers around zero so that sums of products by numbers are exact.

        `most` is the greatest number that the other factor has, times the length of a row; all of its numbers are
        less by `shift` than they are.
        """
        self._plane = plane
        greatest = int(np.abs(factor).max(initial=0))
        width = greatest.bit_length() + 1
        self._count, self._bits = next(
            (parts, bits)
            for parts, bits in ((parts, -(-width // parts)) for parts in count(1))
            if most * (greatest if parts == 1 else _greatest_part(greatest, parts, bits)) < EXACT_SUM
        )
        self._rows = factor.shape[1]
        self._lost = self._times_shift(factor, shift)
        stacked = np.empty((factor.shape[0], self._count * self._rows, factor.shape[2]))
        for part in reversed(range(self._count)):  # the lowest part is the last one
            to = stacked[:, part * self._rows : (part + 1) * self._rows]
            if part == 0:
                to[:] = factor
                break
            higher = np.rint(factor * 2.0**-self._bits)
            np.subtract(factor, higher * 2.0**self._bits, out=to)
            factor = higher
        self._stacked = stacked

    def _times_shift(self, factor: Array, shift: int) -> Array:
        """Return what products lack: the sum of each row times what was subtracted."""
        sums = factor.sum(axis=2, keepdims=True).astype(np.int64) % self._plane.modulus
        lost: Array = (sums * shift % self._plane.modulus).astype(np.float64)
        return lost

    def times(self, other: Array, matrices: Any) -> Array:
        """Return residues of the products of some of the matrices by others."""
        parts, rows, plane = self._stacked[matrices] @ other, self._rows, self._plane
        total = parts[:, :rows]
        for part in range(1, self._count):
            total = _reduced(total, plane)
            total *= 2.0**self._bits
            total += parts[:, part * rows : (part + 1) * rows]
        total += self._lost[matrices]
        return from_zero(_reduced(total, plane).astype(RESIDUE), plane)


def _greatest_part(greatest: int, parts: int, bits: int) -> int:
    """Return the greatest of the numbers that integers are split into."""
    return max(1 << bits - 1, (greatest >> bits * (parts - 1)) + 1)


def around_zero(numbers: Array, plane: Plane) -> Array:
    """Return residues as 64-bit floats around zero, in place; an index of truth values takes three times as long."""
    numbers -= (numbers > plane.modulus >> 1) * float(plane.modulus)
    return numbers


def from_zero(differences: Array, plane: Plane) -> Array:
    """Return differences of residues as residues, in place; a sum with products of truth values would be wider."""
    differences += (differences >> SIGN) & plane.modulus
    return differences


class _Matrix:
    """An operand as matrices, whose dims are groups of axes."""

    def __init__(
        self, product: SumOfProducts, operand: OperandView, groups: Sequence[tuple[int, ...]], sizes: Mapping[str, int]
    ):  # fmt: skip
        self._operand, self._groups = operand, groups
        self._axes = [axis for group in groups for axis in group]
        self._ones = [axis for axis, dim in enumerate(product.block.domain) if dim == 1]
        self._shape = [number_of(dim, sizes) for dim in operand.shape]
        self._strided = StridedOperand.of(operand.map, self._shape, product.block.domain, operand.outside is not None)

    def divisor(self, axis: int) -> int:
        """Return the number of which panels of an axis are multiples."""
        return 1 if self._strided is None else self._strided.divisor(axis)

    def elements(self, buffer: GuardedBuffer, plane: Plane) -> Array:
        """Return the elements in memory, with zeros beyond the edges where they are read in strides."""
        return self.padded(buffer.numbers if isinstance(buffer, NumberBuffer) else buffer.planes[plane.index])

    def padded(self, numbers: Array) -> Array:
        """Return elements with zeros beyond the edges where they are read in strides."""
        return numbers if self._strided is None else self._strided.padded(numbers)

    def residues(self, elements: Array, ranges: Ranges) -> Array:
        """Return matrices of elements, which are those in memory where they are matrices there."""
        if self._strided is None:
            return self._gathered(elements, self._indices(ranges))
        matrices = self._strided.without_surplus(self._strided.view(elements, self._axes, ranges), self._axes, ranges)
        return matrices.reshape([math.prod(len(ranges[axis]) for axis in group) for group in self._groups])

    def read(self, elements: Array, ranges: Ranges, transposes: bool = False) -> tuple[Array, bool]:
        """Return matrices of elements as 64-bit floats, and whether the last two dims are transposed.

        With `transposes` they are where elements are in memory so.
        """
        if self._strided is None:
            return self._gathered(elements, self._indices(ranges)).astype(np.float64), False
        groups = list(self._groups)
        is_transposed = transposes and self._is_contiguous(groups[1])
        if is_transposed:
            groups[1:] = reversed(groups[1:])
        axes = [axis for group in groups for axis in group]
        copy = self._strided.view(elements, axes, ranges).astype(np.float64, order="C")
        counts = [math.prod(len(ranges[axis]) for axis in group) for group in groups]
        return self._strided.without_surplus(copy, axes, ranges).reshape(counts), is_transposed

    def in_place(self, elements: Array, ranges: Ranges, is_transposed: bool = False) -> Array:
        """Return matrices of elements where they are in memory, as `multiply` reads them."""
        if self._strided is None or not self._strided.is_whole(self._axes, ranges):
            matrices = self.residues(elements, ranges)
            return matrices.swapaxes(1, 2) if is_transposed else matrices
        groups, first = [], 0
        for group in self._groups:  # an axis with a divisor has two dims
            count = sum(1 + (self._strided.divisor(axis) > 1) for axis in group)
            groups.append(range(first, first + count))
            first += count
        if is_transposed:
            groups[1:] = reversed(groups[1:])
        return in_few_dims(self._strided.view(elements, self._axes, ranges), groups)

    def write(self, elements: Array, ranges: Ranges, numbers: Array) -> None:
        """Write matrices of numbers."""
        if self._strided is None or not self._strided.is_whole(self._axes, ranges):
            elements[flat_index(self._operand.map.results, self._indices(ranges), self._shape)] = numbers
            return
        view = self._strided.view(elements, self._axes, ranges)
        view[...] = numbers.reshape(view.shape)

    def is_contiguous(self, group: int) -> bool:
        """Return whether elements along a dim of matrices are consecutive in memory."""
        return self._is_contiguous(self._groups[group])

    def _is_contiguous(self, axes: Sequence[int]) -> bool:
        return self._strided is not None and any(self._strided.is_contiguous(axis) for axis in axes)

    def _indices(self, ranges: Ranges) -> dict[int, Array]:
        """Return the indices of axes, each group of which is a dim of matrices."""
        zero: Array = np.zeros((1, 1, 1), np.int64)
        at = dict.fromkeys(self._ones, zero)
        for position, axes in enumerate(self._groups):
            shape = [1] * len(self._groups)
            shape[position] = -1
            indices = np.meshgrid(*(np.array(ranges[axis], np.int64) for axis in axes), indexing="ij")
            at.update({axis: each.reshape(shape) for axis, each in zip(axes, indices, strict=True)})
        return at

    def _gathered(self, numbers: Array, at: Mapping[int, Array]) -> Array:
        if self._operand.outside is None:
            return np.asarray(numbers[flat_index(self._operand.map.results, at, self._shape)])
        inside: Array = np.ones((1, 1, 1), bool)
        indices = []
        for expression, size in zip(self._operand.map.results, self._shape, strict=True):
            index = evaluated(expression, at)
            is_inside = (index >= 0) & (index < size)
            inside = inside & is_inside
            indices.append(np.where(is_inside, index, 0))
        flat = _summed(indices, self._shape)
        return np.where(inside, numbers[flat], 0)


def is_large(block: BlockView) -> bool:
    """Return whether a block is of constant size, and of more points than products of matrices need to be faster."""
    return all(isinstance(dim, int) for dim in block.domain) and math.prod(block.domain) >= LEAST_POINTS


def _factors(block: BlockView) -> tuple[OperandView, OperandView] | None:
    """Return the operands whose products a block sums; None if it computes anything else."""
    values, arguments = multiplied_values(block), list(block.input_arguments)
    if values is None or values[0] == values[1] or not all(value in arguments for value in values):
        return None
    left, right = (block.inputs[arguments.index(value)] for value in values)
    return left, right


def multiplied_values(block: BlockView) -> list[ir.Value] | None:
    """Return the two values whose products a block sums; None if it computes anything else."""
    if not block.is_reduction or len(block.outputs) != 1 or len(block.accumulators) != 1:
        return None
    (start,), (total,) = block.init, block.yielded
    if start is None or not is_float(block.outputs[0].element_type) or ir.FloatAttr(start).value != 0.0:
        return None
    addition = total.owner
    if isinstance(addition, ir.Block) or addition.name != "arith.addf":
        return None
    products = [value for value in addition.operands if value != block.accumulators[0]]
    if len(products) != 1 or isinstance(products[0].owner, ir.Block) or products[0].owner.name != "arith.mulf":
        return None
    return [_without_casts(value) for value in products[0].owner.operands]


def _without_casts(value: ir.Value) -> ir.Value:
    while not isinstance(value.owner, ir.Block) and value.owner.name == "arith.extf":
        value = value.owner.operands[0]
    return value


def has_matrix(operand: OperandView) -> bool:
    """Return whether elements of an operand are read by a map, and are zero beyond its edges."""
    if operand.is_opaque or not is_float(operand.element_type):
        return False
    return operand.outside is None or ir.FloatAttr(operand.outside).value == 0.0


def reads_axis(operand: OperandView, axis: int) -> bool:
    """Return whether the map of an operand depends on the index of an axis."""
    return any(depends(expression, axis) for expression in operand.map.results)


def _has_special(buffer: GuardedBuffer, moduli: Sequence[Plane]) -> bool:
    if isinstance(buffer, NumberBuffer):
        return False
    return bool(buffer.planes[0].view(np.uint32).max(initial=0) >= moduli[0].modulus)


def flat_index(expressions: Sequence[ir.AffineExpr], at: Mapping[int, Array], shape: Sequence[int]) -> Array:
    """Return the positions in memory of elements at affine expressions of the indices of axes."""
    return _summed([evaluated(expression, at) for expression in expressions], shape)


def _summed(indices: Sequence[Array], shape: Sequence[int]) -> Array:
    """Return the positions of elements in memory; indices of few elements are added first."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    terms = sorted((index * stride for index, stride in zip(indices, strides, strict=True)), key=np.size)
    return sum(terms, np.zeros((1, 1, 1), np.int64))


def evaluated(expression: ir.AffineExpr, at: Mapping[int, Array]) -> Array:
    """Return an affine expression of the indices of axes."""
    if isinstance(expression, ir.AffineDimExpr):
        return at[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return np.full((1, 1, 1), expression.value, np.int64)
    left, right = evaluated(expression.lhs, at), evaluated(expression.rhs, at)
    if isinstance(expression, ir.AffineAddExpr):
        return left + right
    if isinstance(expression, ir.AffineMulExpr):
        return left * right
    return left // right if isinstance(expression, ir.AffineFloorDivExpr) else left % right


def _reduced(numbers: Array, plane: Plane) -> Array:
    """Return integers modulo a prime, around zero, in place: large arrays cost more to allocate than to compute."""
    quotients = numbers * (1 / plane.modulus)
    np.rint(quotients, out=quotients)
    quotients *= plane.modulus
    numbers -= quotients
    return numbers
