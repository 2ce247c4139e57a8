"""Inputs that are products of two factors, of which sums of products take few steps.

A factor A of a sum of products is f(r) g(i, s), where r are axes of the sum by which no other index of A moves: the
depth of a matrix, the channels of a convolution. Then the sum of A B is the sum over s of g times that of f B over r.
A sum of terms c A B which is not zero for all A is not zero for all f and g: each of them has a term f g B of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from mirlo.passes.exact.definition import depends
from mirlo.passes.exact.memory import CHUNK, Array, GuardedBuffer, copy_of_guards, guard_of
from mirlo.passes.exact.primes import RESIDUE, Plane
from mirlo.passes.exact.products import Matrices, SumOfProducts, evaluated, flat_index
from mirlo.passes.exact.residue_products import multiply
from mirlo.passes.exact.strided import Ranges
from mirlo.runtime.records import dataclass

LEAST_SHARED = 4
"""The least number of indices of the first factor."""


class SeparableBuffer(GuardedBuffer):
    """A buffer whose elements are products of an element of each of two factors."""

    def __init__(self, wholes: list[Array], count: int, firsts: list[Array]):
        super().__init__(wholes, count)
        self.firsts = firsts
        """The first factor of each plane by its dims, one at index 0: there, elements are those of the second."""


@dataclass(frozen=True)
class SeparableFactor:
    """The left factor of a sum of products, by the axes that its first factor has."""

    product: SumOfProducts
    axes: frozenset[int]
    """The axes of the sum that index the first factor."""
    dims: tuple[int, ...]
    """The dims of the operand by which they do."""

    @staticmethod
    def of(product: SumOfProducts) -> SeparableFactor | None:
        """Return the axes of a factor, None if there are few."""
        block, operand = product.block, product.left
        expressions = list(operand.map.results)
        reads = [{axis for axis in range(block.rank) if depends(each, axis)} for each in expressions]
        axes = {axis for axis in block.reduce if any(axis in each for each in reads)}
        while mixed := [each for each in reads if each & axes and not each <= axes]:
            axes = axes.difference(*mixed)
        dims = tuple(i for i, each in enumerate(reads) if each & axes)
        if math.prod(block.domain[axis] for axis in axes) < LEAST_SHARED:
            return None
        if not all(isinstance(dim, int) for dim in operand.shape):
            return None
        factor = SeparableFactor(product, frozenset(axes), dims)
        indices = [evaluated(expressions[dim], factor._at()) for dim in dims]
        is_inside = all(
            index.min() >= 0 and index.max() < operand.shape[dim] for dim, index in zip(dims, indices, strict=True)
        )
        begins = all(index.reshape(-1)[0] == 0 for index in indices)
        return factor if is_inside and begins else None

    def separated(self, buffer: GuardedBuffer, moduli: Sequence[Plane], rng: np.random.Generator) -> SeparableBuffer:
        """Return products of a random factor and the elements of a buffer at index 0 of it, between its guards."""
        shape = list(self.product.left.shape)
        across = tuple(slice(0, 1) if dim in self.dims else slice(None) for dim in range(len(shape)))
        axis = next((i for i, size in enumerate(shape) if size > 1), 0)
        step = max(1, CHUNK // math.prod(shape[axis + 1 :]))
        firsts, wholes = [], []
        for whole, elements, plane in zip(buffer.wholes, buffer.planes, moduli, strict=True):
            first = rng.integers(0, plane.modulus, [shape[dim] for dim in self.dims])
            first.reshape(-1)[0] = 1
            firsts.append(first)
            spread = first.reshape([size if dim in self.dims else 1 for dim, size in enumerate(shape)])
            second = elements.reshape(shape)[across].astype(np.int64)
            copy = copy_of_guards(whole, buffer.count)
            products = copy[guard_of(copy) : guard_of(copy) + buffer.count].reshape(shape)
            for start in range(0, shape[axis], step):
                part = (*[slice(None)] * axis, slice(start, start + step))
                x, y = (each[part] if each.shape[axis] > 1 else each for each in (second, spread))
                products[part] = plane.reduced(x * y)
            wholes.append(copy)
        return SeparableBuffer(wholes, buffer.count, firsts)

    def sums(
        self, matrices: Matrices, left: GuardedBuffer, right: GuardedBuffer, plane: Plane
    ) -> Iterator[tuple[Ranges, Array]]:
        """Yield each panel of columns, and the sums of products, of which those over the first axes come first."""
        assert isinstance(left, SeparableBuffer)
        rows = self._rows(left, plane)
        second = matrices.rows_at(left, plane, self.axes)
        sums = matrices.times_columns(np.broadcast_to(rows, (len(second), *rows.shape)), right, plane)
        if matrices.results.is_contiguous(1):
            yield matrices.all, multiply(sums.swapaxes(1, 2), second.swapaxes(1, 2), plane).swapaxes(1, 2)
        else:
            yield matrices.all, multiply(second, sums, plane)

    def _rows(self, buffer: SeparableBuffer, plane: Plane) -> Array:
        """Return the factors of a sum over the first axes: a row for each index of the others, zero elsewhere."""
        reduce, domain = self.product.block.reduce, self.product.block.domain
        first = buffer.firsts[plane.index]
        map_ = self.product.left.map
        at = flat_index([map_.results[dim] for dim in self.dims], self._at(), first.shape).reshape(-1)
        others = [axis for axis in reduce if axis not in self.axes]
        extents = [domain[axis] for axis in others]
        indices = self._at()
        row = sum((indices[axis] * math.prod(extents[i + 1 :]) for i, axis in enumerate(others)), np.zeros(1, np.int64))
        depth = math.prod(domain[axis] for axis in reduce)
        rows: Array = np.zeros((math.prod(extents), depth), RESIDUE)
        rows[np.broadcast_to(row.reshape(-1), depth), np.arange(depth)] = first.reshape(-1)[at]
        return rows

    def _at(self) -> dict[int, Array]:
        """Return the index of each axis of the sum at each of its terms."""
        reduce, domain = self.product.block.reduce, self.product.block.domain
        grids = np.meshgrid(*(np.arange(domain[axis]) for axis in reduce), indexing="ij")
        return {axis: grid.reshape(1, 1, -1) for axis, grid in zip(reduce, grids, strict=True)}
