"""Default rules of resampling.

`resize` knows all its coordinates at compile time: an axis is read either at positions that are affine in its index,
or through a small constant table of indices and weights. Axes are interpolated one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import (
    BOOL,
    INDEX,
    Expr,
    ExprLike,
    TensorExpr,
    abs_,
    constant,
    floor,
    lift,
    roundeven,
    select,
    within,
    wrapped,
)
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.numpy_functions import as_scalar_function
from mirlo.passes.legalize.builder import tensor_of
from mirlo.passes.legalize.helpers import shape_of, stored_saturated, sum_of, weighted, wide
from mirlo.passes.legalize.interpolation import AxisTable, axis_table, is_affordable, keys_far, keys_near
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.resize")
def resize(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    shape, output = shape_of(op.x), shape_of(op.output)
    if 0 in shape:
        return decline("an empty tensor has nothing to interpolate", shape=shape)
    sizes, counts = ([dim for dim in dims if isinstance(dim, int)] for dims in (shape, output))
    if len(sizes) + len(counts) < len(shape) + len(output):
        return decline("the tables need sizes that are numbers", x=shape, output=output)
    if not is_affordable(op, sizes, counts):
        return decline("its tables are larger than what may be computed while compiling", to=output)
    tables = {i: axis_table(op, i, sizes[i], counts[i]) for i in range(len(sizes)) if counts[i] > 0}
    tables = {i: table for i, table in tables.items() if not table.is_identity}
    # Axes that shrink come first: less work remains for the later ones.
    order = sorted(tables, key=lambda i: counts[i] / sizes[i])
    constants = [c for i in order for c in _constants(b, tables[i])]

    def body(p: PrimBuilder, x: TensorExpr, *table_values: TensorExpr) -> TensorExpr:
        rest = iter(table_values)
        readers = {i: TableReader(i, tables[i], rest) for i in order}
        interpolated = x
        several = [i for i in order if tables[i].taps > 1]
        for i in several:
            interpolated = readers[i].interpolated(p, interpolated)
        single = [readers[i] for i in order if i not in several]

        def element(*axes: Expr) -> Expr:
            at: list[ExprLike] = list(axes)
            for reader in single:
                at[reader.axis] = reader.index(axes[reader.axis], 0)
            value = interpolated.at(*at)
            for reader in readers.values():
                if reader.outside is not None:
                    out = reader.outside.at(axes[reader.axis])
                    value = select(out, constant(op.extrapolation, value.dtype), value)
            # The weights of cubic kernels are negative in part: sums leave the range of the elements.
            return stored_saturated(value, x.dtype) if op.mode == "cubic" else value.cast(x.dtype)

        return p.compute(output, element, name="resize")

    return b.call_prim(body, op.x, *constants)


def _constants(b: LegalizeBuilder, table: AxisTable) -> list[ir.Value]:
    """Return the values of a table that a prim function reads."""
    tensors = [] if table.affine else [tensor_of(b, table.indices, "i32")]
    tensors += [tensor_of(b, table.weights, "f32")] if table.taps > 1 else []
    return tensors + ([tensor_of(b, table.outside, "bool")] if table.outside.any() else [])


MOST_UNROLLED = 4
"""Taps that are added without a loop."""


class TableReader:
    """A table inside a prim function, with its constants as parameters."""

    def __init__(self, axis: int, table: AxisTable, tables: Iterator[TensorExpr]):
        self.axis = axis
        self.table = table
        self.affine = table.affine
        self.indices = None if self.affine else next(tables)
        self.weights = next(tables) if table.taps > 1 else None
        self.outside = next(tables) if table.outside.any() else None

    def index(self, i: Expr, tap: Expr | int) -> Expr:
        if self.affine is None:
            # The compiler computed the table: its indices are inside.
            assert self.indices is not None
            return self.indices.listed(i, tap).cast(INDEX)
        factor, offset, divisor = self.affine
        scaled = i * factor + offset
        return scaled // divisor if divisor > 1 else scaled

    def interpolated(self, p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        """Return x with this axis resized."""
        shape, weights = list(x.shape), self.weights
        assert weights is not None, "several elements have weights"
        shape[self.axis] = len(self.table.indices)

        def term(axes: Sequence[Expr], tap: Expr | int) -> Expr:
            i = axes[self.axis]
            value = x.at(*axes[: self.axis], self.index(i, tap), *axes[self.axis + 1 :])
            return weighted(value, weights.at(i, tap))

        taps, rank = self.table.taps, x.rank
        if taps > MOST_UNROLLED:
            return p.reduce("add", shape, (taps,), lambda *at: term(at[:rank], at[rank]), name="interpolate")
        return p.compute(shape, lambda *at: sum_of([term(at, tap) for tap in range(taps)]), name="interpolate")


LIMIT = float(1 << 30)
"""Positions are limited to this magnitude, so that they have an index."""
CUBIC = -0.75
_near, _far = as_scalar_function(keys_near), as_scalar_function(keys_far)


@legalize("relax.grid_sample")
def grid_sample(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    shape, output = shape_of(op.x), shape_of(op.output)
    spatial = shape[2:]
    if 0 in shape:
        return decline("an empty tensor has nothing to sample", shape=shape)

    def coordinate(value: Expr, size: Dim) -> Expr:
        unit = (value + 1.0) * 0.5
        position = unit * lift(size - 1, unit.dtype) if op.align_corners else unit * lift(size, unit.dtype) - 0.5
        if op.padding_mode == "zeros" or op.mode == "cubic":
            return position
        # As in PyTorch, what is no number is at 0, and so is what is infinite where it is reflected.
        if op.padding_mode == "reflection":
            return _limited(position, 0.0)
        return select(position > 0.0, select(position < LIMIT, position, LIMIT), constant(0, position.dtype))

    def body(p: PrimBuilder, x: TensorExpr, grid: TensorExpr) -> TensorExpr:
        def element(n: Expr, c: Expr, *at: Expr) -> Expr:
            # The last dim comes first in the grid.
            indices = [wide(grid.at(n, *at, len(spatial) - 1 - i)) for i in range(len(spatial))]
            taps = [_taps(coordinate(v, size), op) for v, size in zip(indices, spatial, strict=True)]
            terms = []
            for chosen in product(*taps):
                value = _read(x, n, c, [index for index, _ in chosen], op)
                for _, weight in chosen:
                    value = value if weight is None else value * weight.cast(value.dtype)
                terms.append(value)
            return sum_of(terms).cast(x.dtype)

        return p.compute(output, element, name="grid_sample")

    return b.call_prim(body, op.x, op.grid)


def _taps(place: Expr, op: ir.OpView) -> list[tuple[Expr, Expr | None]]:
    """Return the indices that are read along a dim, and their weights: NaN where a position is not finite."""
    low = roundeven(place) if op.mode == "nearest" else floor(place)
    first = low
    if op.padding_mode == "zeros":
        first = _limited(low, -LIMIT)
    elif op.mode == "cubic":
        first = select(low < LIMIT, select(low > -LIMIT, low, constant(-LIMIT, low.dtype)), LIMIT)
    first = first.cast(INDEX)
    if op.mode == "nearest":
        return [(first, None)]
    fraction = place - low
    if op.mode == "linear":
        return [(first, 1.0 - fraction), (first + 1, fraction)]
    kernels = (_far, _near, _near, _far)
    return [(first + k, kernel(abs_(fraction - float(k)), a=CUBIC)) for k, kernel in enumerate(kernels, start=-1)]


def _limited(position: Expr, otherwise: float) -> Expr:
    """Return a position, or another one where it has no index: too large, infinite or NaN."""
    return select(abs_(position) < LIMIT, position, constant(otherwise, position.dtype))


def _read(x: TensorExpr, n: Expr, c: Expr, indices: Sequence[Expr], op: ir.OpView) -> Expr:
    """Read the element at indices that may be outside, by the padding mode."""
    sizes = x.shape[2:]
    if op.padding_mode == "reflection":
        indices = [_reflected(i, size, op.align_corners) for i, size in zip(indices, sizes, strict=True)]
    near = [within(i, size) for i, size in zip(indices, sizes, strict=True)]
    value = wide(x.at(n, c, *near))
    if op.padding_mode != "zeros":
        return value
    inside = constant(True, BOOL)
    for i, clamped in zip(indices, near, strict=True):
        inside = inside & i.equals(clamped)
    return select(inside, value, constant(0, value.dtype))


def _reflected(index: Expr, size: Dim, align_corners: bool) -> Expr:
    """Reflect an index between the centers of the outermost elements, or between their outer edges."""
    if size == 1:
        return constant(0, INDEX)
    if align_corners:
        period = 2 * (size - 1)
        position = wrapped(index, period)
        return select(position < size, position, period - position)
    position = wrapped(index, 2 * size)
    return select(position < size, position, (2 * size - 1) - position)
