"""Coefficients of sums that depend on indices only, as those of Winograd's transforms, as matrices.

A definition computes each of them once, and sums of products of elements by them as products of matrices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, OperandView
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.memory import Array, GuardedBuffer
from mirlo.passes.exact.named_numbers import named
from mirlo.passes.exact.primes import RESIDUE, Plane
from mirlo.passes.exact.products import SumOfProducts, has_matrix, is_large, multiplied_values
from mirlo.runtime.records import dataclass


def _compare_unsigned(compare: Callable[[Any, Any], Any], x: Array, y: Array) -> Any:
    return compare(np.asarray(x, np.int64).view(np.uint64), np.asarray(y, np.int64).view(np.uint64))


_TILE, _PLACE = "tile", "place"
"""What an operation computes of an index: the tile that it is in, or its place in the tile."""
_INTEGERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul, "arith.andi": operator.and_,
    "arith.ori": operator.or_, "arith.floordivsi": operator.floordiv,
}  # fmt: skip
_ORDER = operator.lt, operator.le, operator.gt, operator.ge
_COMPARISONS: Sequence[Callable[[Any, Any], Any]] = (
    operator.eq, operator.ne, *_ORDER, *(partial(_compare_unsigned, each) for each in _ORDER)
)  # fmt: skip
"""By the number of a predicate."""
_KNOWN = {*_INTEGERS, "arith.constant", "arith.cmpi", "arith.select", "arith.mulf"}


@dataclass(frozen=True)
class CoefficientView(OperandView):
    """A factor that a block computes, by the axes that it depends on."""

    extents: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.extents


@dataclass(frozen=True)
class TiledBlock:
    """A block whose tiled axes are two each: that of tiles, and that of places in a tile."""

    op: ir.Operation
    domain: Sequence[int]
    spatial: tuple[int, ...]
    reduce: tuple[int, ...]
    outputs: Sequence[OperandView]

    @property
    def rank(self) -> int:
        return len(self.domain)


@dataclass(frozen=True)
class Coefficient:
    """A value by which a block multiplies the elements that it sums, which depends on indices only."""

    product: SumOfProducts
    """The sum of products of the elements and the values."""
    value: ir.Value
    ops: Sequence[ir.Operation]
    """The operations that compute the value of indices."""
    axes: Mapping[ir.Value, int]
    """The axis of the product that each index is of, which they read."""
    extents: tuple[int, ...]
    """The sizes of these axes."""

    @staticmethod
    def of(block: BlockView) -> Coefficient | None:
        """Return the coefficient of a block that is a product of large matrices by it, None if there is none."""
        values = multiplied_values(block) if is_large(block) else None
        if values is None or len(block.inputs) != 1 or not has_matrix(block.inputs[0]):
            return None
        (elements,), others = block.inputs, [value for value in values if value != block.input_arguments[0]]
        if len(others) != 1:
            return None
        tiles = _TiledAxes(block, _tile_sizes(block))
        needed = _needed_for(others[0], block, tiles)
        if needed is None:
            return None
        ops, axes = needed
        read = sorted({*axes.values(), *(tiles.first(axis) for axis in block.reduce)})
        extents = tuple(tiles.domain[axis] for axis in read)
        map_ = ir.AffineMap.get(len(tiles.domain), 0, [ir.AffineDimExpr.get(axis) for axis in read])
        product = SumOfProducts.between(
            tiles.block(block), OperandView(elements.value, tiles.map(elements.map), elements.outside),
            CoefficientView(others[0], map_, extents=extents),
        )  # fmt: skip
        if product is None:
            return None
        positions = {index: read.index(axis) for index, axis in axes.items()}
        return Coefficient(product, others[0], ops, positions, extents)

    def buffer(self, arithmetic: Arithmetic) -> GuardedBuffer:
        """Return the coefficients as numbers of an arithmetic."""
        if not isinstance(arithmetic, FieldArithmetic):
            return GuardedBuffer.of([self._evaluated(float, operator.mul).astype(np.float64)])
        planes = []
        for plane in arithmetic.moduli:
            number = partial(_residue, plane, arithmetic.has_named_numbers)
            planes.append(self._evaluated(number, partial(_product, plane)).astype(RESIDUE))
        return GuardedBuffer.of(planes)

    def _evaluated(self, number: Callable[[float], Any], multiply: Callable[[Any, Any], Any]) -> Array:
        """Return the values at all indices."""
        known: dict[ir.Value, Any] = {}
        for index, position in self.axes.items():
            shape = [-1 if i == position else 1 for i in range(len(self.extents))]
            known[index] = np.arange(self.extents[position]).reshape(shape)
        for op in self.ops:
            operands = [known[value] for value in op.operands]
            known[op.results[0]] = _result(op, operands, number, multiply)
        return np.broadcast_to(known[self.value], self.extents).reshape(-1)


def _residue(plane: Plane, has_named_numbers: bool, value: float) -> int:
    return plane.residue(named(value) if has_named_numbers else Fraction(value))


def _product(plane: Plane, x: Array, y: Array) -> Array:
    return plane.reduced(x * y)


def _result(
    op: ir.Operation, operands: Sequence[Any], number: Callable[[float], Any], multiply: Callable[[Any, Any], Any]
) -> Any:
    """Return the result of an operation on arrays."""
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return np.asarray(number(attribute.value) if isinstance(attribute, ir.FloatAttr) else int(attribute.value))
    if op.name == "arith.cmpi":
        return _COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value](*operands)
    if op.name == "arith.select":
        return np.where(*operands)
    return multiply(*operands) if op.name == "arith.mulf" else _INTEGERS[op.name](*operands)


def _needed_for(
    value: ir.Value, block: BlockView, tiles: _TiledAxes
) -> tuple[list[ir.Operation], dict[ir.Value, int]] | None:
    """Return the operations that compute a value, and the axes of the indices that they read.

    None if it depends on elements, or on operations without a meaning here.
    """
    reached, ops, axes = {value}, [], dict[ir.Value, int]()
    for op in reversed(block.body_ops):
        if not any(result in reached for result in op.results):
            continue
        axis = tiles.values.get(op.results[0])
        if axis is not None:
            axes[op.results[0]] = axis
        elif not _is_known(op):
            return None
        else:
            ops.append(op)
            reached.update(op.operands)
    arguments = {each for each in reached if isinstance(each.owner, ir.Block)}
    indices = {each: tiles.first(axis) for axis, each in enumerate(block.index_arguments) if each in arguments}
    return (ops[::-1], axes | indices) if len(indices) == len(arguments) else None


def _is_known(op: ir.Operation) -> bool:
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return not isinstance(attribute, ir.FloatAttr) or math.isfinite(attribute.value)
    return op.name in _KNOWN


class _TiledAxes:
    """The axes of a block, of which tiled ones become two."""

    def __init__(self, block: BlockView, sizes: Mapping[int, int]):
        self.sizes = sizes
        """The elements of a tile, by axis."""
        self.domain: list[int] = []
        for axis, extent in enumerate(block.domain):
            size = sizes.get(axis)
            self.domain += [extent] if size is None else [extent // size, size]
        self.values: dict[ir.Value, int] = {}
        """The new axes that values of the body are indices of."""
        for axis, size in sizes.items():
            argument = block.index_arguments[axis]
            for op in (use.owner.operation for use in argument.uses):
                is_place = _tile_value(op, argument, size) == _PLACE
                self.values[op.results[0]] = self.first(axis) + is_place

    def first(self, axis: int) -> int:
        """Return the first of the new axes of an axis."""
        return axis + sum(1 for each in self.sizes if each < axis)

    def block(self, block: BlockView) -> TiledBlock:
        reduce = tuple(self.first(axis) for axis in block.reduce)
        spatial = tuple(axis for axis in range(len(self.domain)) if axis not in reduce)
        outputs = [OperandView(each.value, self.map(each.map)) for each in block.outputs]
        return TiledBlock(block.op, tuple(self.domain), spatial, reduce, outputs)

    def map(self, old: ir.AffineMap) -> ir.AffineMap:
        """Return a map from the new axes."""
        return ir.AffineMap.get(len(self.domain), 0, [self._expression(each) for each in old.results])

    def _expression(self, expression: ir.AffineExpr) -> ir.AffineExpr:
        if isinstance(expression, ir.AffineDimExpr):
            first = ir.AffineDimExpr.get(self.first(expression.position))
            size = self.sizes.get(expression.position)
            return first if size is None else first * size + ir.AffineDimExpr.get(first.position + 1)
        if isinstance(expression, (ir.AffineConstantExpr, ir.AffineSymbolExpr)):
            return expression
        is_tile = isinstance(expression, ir.AffineFloorDivExpr) and isinstance(expression.lhs, ir.AffineDimExpr)
        if is_tile and expression.lhs.position in self.sizes:
            return ir.AffineDimExpr.get(self.first(expression.lhs.position))
        kind: Any = type(expression)
        result: ir.AffineExpr = kind.get(self._expression(expression.lhs), self._expression(expression.rhs))
        return result


def _tile_sizes(block: BlockView) -> dict[int, int]:
    """Return the sizes of tiles by axis, where a block reads which tile an element is in, and its place in it."""
    chosen = {}
    for axis in block.spatial:
        argument = block.index_arguments[axis]
        sizes = {size for each in block.inputs[0].map.results for size in _sizes_in(each, axis)}
        size = sizes.pop() if len(sizes) == 1 else 0
        if size > 1 and block.domain[axis] % size == 0:
            users = [use.owner.operation for use in argument.uses]
            if users and all(_tile_value(each, argument, size) for each in users):
                chosen[axis] = size
    return chosen


def _tile_value(op: ir.Operation, index: ir.Value, size: int) -> str | None:
    """Return what an operation on an index is: the tile, the place in it, or None for anything else."""
    if op.name == "arith.floordivsi" and op.operands[0] == index and _integer(op.operands[1]) == size:
        return _TILE
    if op.name != "arith.subi" or op.operands[0] != index or isinstance(op.operands[1].owner, ir.Block):
        return None
    product = op.operands[1].owner.operation
    if product.name != "arith.muli" or _integer(product.operands[1]) != size:
        return None
    first = product.operands[0].owner
    is_place = not isinstance(first, ir.Block) and _tile_value(first.operation, index, size) == _TILE
    return _PLACE if is_place else None


def _integer(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    attribute = owner.operation.attributes["value"]
    return int(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None


def _sizes_in(expression: ir.AffineExpr, axis: int) -> list[int]:
    """Return the sizes of the tiles of an axis in an index; 0 where it is read otherwise."""
    if isinstance(expression, ir.AffineDimExpr):
        return [0] if expression.position == axis else []
    if isinstance(expression, (ir.AffineConstantExpr, ir.AffineSymbolExpr)):
        return []
    left, right = expression.lhs, expression.rhs
    is_tile = isinstance(expression, ir.AffineFloorDivExpr) and isinstance(right, ir.AffineConstantExpr)
    if is_tile and isinstance(left, ir.AffineDimExpr) and left.position == axis:
        return [right.value]
    return [*_sizes_in(left, axis), *_sizes_in(right, axis)]
