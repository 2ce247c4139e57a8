"""Default rules of pooling: reductions over windows that read a neutral value outside of the operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import channel_axis, data_shape
from mirlo.dialects.tir.compute import Expr, TensorExpr, abs_, all_of, call, constant, identity_of, select, sqrt
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, short_name, wide
from mirlo.passes.legalize.rules.reduce import more_extreme
from mirlo.passes.legalize.windows import SlidingWindows
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

LONG_WINDOW = 32
"""Elements along one dim from which a window of a dynamic dim is worth bounding: its loop stays a loop either way."""


class Pooling:
    """The windows of a pooling operator over a tensor of its prim function."""

    def __init__(self, op: ir.OpView, x: TensorExpr, output: tuple[Dim, ...], layout: str = "NC*"):
        self.x = x
        windows = SlidingWindows.of(op, x.shape, op.kernel, output, layout)
        self.kernel = tuple(_reached(windows, i, size) for i, size in enumerate(op.kernel))
        self.windows = replace(windows, kernel=self.kernel)
        channels = x.shape[channel_axis(layout, x.rank)]
        self.shape = data_shape(layout, x.shape[0], channels, self.windows.counts)

    def read(self, axes: Sequence[Expr], outside: float | int) -> Expr:
        """Return the element at the axes of the output and of the window."""
        n, c, at = self.windows.split(axes[: len(self.shape)])
        source = self.windows.source(at, axes[len(self.shape) :])
        where = self.windows.join(n, c, source)
        return self.x.at(*where, outside=outside if self.windows.leaves else None)


def _reached(windows: SlidingWindows, i: int, size: int) -> Dim:
    """Return how many elements of the padded operand a window contains along a dim.

    With `ceil_mode` a window may be much longer than the operand, as where a model takes the mean of an image in this
    manner.
    """
    inside = D.ceildiv(windows.sizes[i] + windows.begins[i] + windows.ends[i], windows.dilations[i])
    return D.minimum(size, inside) if D.is_static(inside) or size >= LONG_WINDOW else size


@legalize("relax.max_pool")
def max_pool(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        pool = Pooling(op, x, output, op.data_layout)
        least = identity_of("max", x.dtype)
        return p.reduce("max", pool.shape, pool.kernel, lambda *axes: pool.read(axes, least), name="max_pool")

    return b.call_prim(body, op.x)


@legalize("relax.avg_pool")
def avg_pool(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        pool = Pooling(op, x, output, op.data_layout)
        total = p.reduce("add", pool.shape, pool.kernel, lambda *axes: wide(pool.read(axes, 0.0)), name="avg_pool")

        def mean(*axes: Expr) -> Expr:
            _, _, at = pool.windows.split(axes)
            count = pool.windows.occupied(at, padded=op.count_include_pad)
            divisor = count.cast(total.dtype) if isinstance(count, Expr) else count
            return (total.at(*axes) / divisor).cast(x.dtype)

        return p.compute(pool.shape, mean, name="mean")

    return b.call_prim(body, op.x)


@legalize("relax.lp_pool")
def lp_pool(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)

    def power(value: Expr) -> Expr:
        if op.p == 1:
            return abs_(value)
        return value * value if op.p == 2 else call("pow", abs_(value), float(op.p))

    def root(value: Expr) -> Expr:
        if op.p == 1:
            return value
        return sqrt(value) if op.p == 2 else call("pow", value, 1.0 / op.p)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        pool = Pooling(op, x, output, op.data_layout)
        total = p.reduce(
            "add", pool.shape, pool.kernel, lambda *axes: power(wide(pool.read(axes, 0.0))), name="lp_pool"
        )
        return p.compute(pool.shape, lambda *axes: root(total.at(*axes)).cast(x.dtype), name="root")

    return b.call_prim(body, op.x)


@legalize("relax.max_pool_with_indices")
def max_pool_with_indices(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.values)

    def body(p: PrimBuilder, x: TensorExpr) -> tuple[TensorExpr, ...]:
        pool = Pooling(op, x, output, op.data_layout)
        least = identity_of("max", x.dtype)
        rank = len(pool.shape)
        channels = x.shape[channel_axis(op.data_layout, rank)]

        def elements(*axes: Expr) -> list[Expr]:
            n, c, at = pool.windows.split(axes[:rank])
            source = pool.windows.source(at, axes[rank:])
            inside = all_of([(i >= 0) & (i < size) for i, size in zip(source, pool.windows.sizes, strict=True)])
            position = _flat_index(channels, pool.windows.sizes, [n, c, *source], op.storage_order).cast("i64")
            return [pool.read(axes, least), select(inside, position, constant(-1, "i64"))]

        def combine(accumulated: list[Expr], new: list[Expr]) -> list[Expr]:
            better = more_extreme(new[0], accumulated[0], largest=True)
            equal = ~better & ~more_extreme(accumulated[0], new[0], largest=True)
            # A position of -1 is outside of the operand.
            take = (new[1] >= 0) & ((accumulated[1] < 0) | better | (equal & (new[1] < accumulated[1])))
            return [select(take, new[0], accumulated[0]), select(take, new[1], accumulated[1])]

        return tuple(p.reduce_many(pool.shape, pool.kernel, elements, [least, -1], combine, name=short_name(op)))

    return b.call_prim(body, op.x)


def _flat_index(channels: Dim, sizes: tuple[Dim, ...], at: list[Expr], column_major: int) -> Expr:
    """Return the position in the flattened images, channels first; spatial dims may be in column-major order."""
    shape = (1, channels, *sizes)
    order = [0, 1, *(reversed(range(2, len(shape))) if column_major else range(2, len(shape)))]
    linear = at[0]
    for i in order[1:]:
        linear = linear * shape[i] + at[i]
    return linear
