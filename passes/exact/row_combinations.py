"""Random combinations of the rows of products of matrices, with which results are compared in place of all sums.

A kernel's result C is A B. For a random row u, u C is (u A) B, which takes one row of sums; where C is another matrix,
they differ but for a probability of 1 / P (Freivalds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.passes.exact.memory import Array, GuardedBuffer
from mirlo.passes.exact.primes import RESIDUE, VALUES
from mirlo.passes.exact.products import Matrices, SumOfProducts, from_zero
from mirlo.runtime.records import dataclass

LEAST_ROWS = 16
"""The rows from which their sums take more time than their combination."""
_CASTS = ("arith.extf", "arith.truncf")
_BOUNDS = ("arith.maximumf", "arith.minimumf")
"""Operations that pass on an operand that is between their constants, which are the least and the greatest number."""


class RowCombinations:
    """A combination of the rows of each matrix that a kernel returns, up to a sum that is known."""

    def __init__(
        self, product: SumOfProducts, left: GuardedBuffer, right: GuardedBuffer, addend: Array | None,
        sizes: Mapping[str, int], rng: np.random.Generator,
    ):  # fmt: skip
        """Draw a combination; `addend` is what the kernel adds to the sums."""
        self._matrices = Matrices(product, sizes)
        self._left, self._right, self._addend = left, right, addend
        batch, count = (
            math.prod(product.block.domain[axis] for axis in axes) for axes in (product.batch, product.rows)
        )
        self._numbers = rng.integers(0, VALUES.modulus, (batch, 1, count)).astype(RESIDUE)

    @property
    def nbytes(self) -> int:
        return 0 if self._addend is None else int(self._addend.nbytes)

    @cached_property
    def _expected(self) -> Array:
        """Return the combinations of rows of the definition."""
        combined = self._matrices.combined_rows(self._numbers, self._left, VALUES)
        return self._matrices.times_columns(combined, self._right, VALUES)

    def are_those_of(self, result: Array) -> bool:
        """Return whether the elements of a result have the combinations of the definition."""
        if result.view(np.uint32).max(initial=0) >= VALUES.modulus:
            return False  # equal modulo the prime is not equal
        total = self._matrices.combined_results(self._numbers, result, VALUES)
        if self._addend is not None:
            total = from_zero(total - self._matrices.combined_results(self._numbers, self._addend, VALUES), VALUES)
        return bool((total == self._expected).all())


@dataclass(frozen=True)
class CombinedProduct:
    """A product whose sums are the only result of a kernel, or a term of it."""

    product: SumOfProducts
    least: float | None = None
    """The constant of which the result is the maximum: it is such a term where this number is the least one."""
    greatest: float | None = None
    """The same of minima, and the greatest number."""

    @property
    def bounds(self) -> tuple[float, ...]:
        """Return the constants that have to be at the ends of the order."""
        return tuple(each for each in (self.least, self.greatest) if each is not None)


def product_in_result(view: PrimView, products: Mapping[ir.Operation, SumOfProducts]) -> CombinedProduct | None:
    """Return the product whose sums are the only result, or a term of it; None if there is none of many rows."""
    if len(view.returned) != 1:
        return None
    for op, product in products.items():
        rows = math.prod(product.block.domain[axis] for axis in product.rows)
        bounds = _bounds(view, op.results[0]) if rows >= LEAST_ROWS else None
        if bounds is not None and all(len(values) <= 1 for values in bounds.values()):
            least, greatest = (next(iter(bounds[name]), None) for name in _BOUNDS)
            if least is None or least != greatest:
                return CombinedProduct(product, least, greatest)
    return None


def _bounds(view: PrimView, sums: ir.Value) -> dict[str, set[float]] | None:
    """Return the constants of maxima and minima in a result; None if it is no value plus numbers between them."""
    terms, bounds = {sums}, {name: set[float]() for name in _BOUNDS}
    for block in view.blocks:
        readers = [i for i, operand in enumerate(block.inputs) if operand.value in terms]
        if readers:
            if len(readers) > 1 or not _passes_on(block, readers[0], bounds):
                return None
            terms.add(block.outputs[0].value)
    return bounds if view.returned[0] in terms else None


def _passes_on(block: BlockView, position: int, bounds: Mapping[str, set[float]]) -> bool:
    """Return whether a block adds numbers to the elements of an operand, or takes maxima and minima of constants.

    The constants are added to `bounds`.
    """
    operand = block.inputs[position]
    if block.is_reduction or len(block.outputs) != 1 or operand.is_opaque or not _is_elementwise(block, operand):
        return False
    terms = {block.input_arguments[position]}
    for op in block.body_ops:
        used = [i for i, value in enumerate(op.operands) if value in terms]
        if not used:
            continue
        is_sum = op.name == "arith.addf" and len(used) == 1
        is_difference = op.name == "arith.subf" and used == [0]
        if op.name in bounds and len(used) == 1:
            bound = _constant(op.operands[1 - used[0]])
            if bound is None:
                return False
            bounds[op.name].add(bound)
        elif not (is_sum or is_difference or op.name in _CASTS):
            return False
        terms.add(op.results[0])
    return block.yielded[0] in terms


def _is_elementwise(block: BlockView, operand: OperandView) -> bool:
    """Return whether an operand is read where the result is written: dims of one element have one index only."""
    result = block.outputs[0]
    if operand.outside is not None or tuple(operand.shape) != tuple(result.shape):
        return False
    pairs = zip(operand.map.results, result.map.results, operand.shape, strict=True)
    return all(size == 1 or read == written for read, written, size in pairs)


def _constant(value: ir.Value) -> float | None:
    """Return the finite number that a value is, None for others."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    number = float(ir.FloatAttr(owner.attributes["value"]).value)
    return number if math.isfinite(number) else None
