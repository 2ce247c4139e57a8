"""Default rules of slices, padding, concatenation and splitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_distinct_axes
from mirlo.dialects.relax.slice import slice_start
from mirlo.dialects.tir.compute import (
    INDEX,
    Expr,
    ExprLike,
    TensorExpr,
    abs_,
    constant,
    lift,
    maximum,
    minimum,
    select,
    within,
    wrapped,
)
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.legalize.rules.shape import moved
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

MAX_SELECT_OPERANDS = 4
"""Most operands that are joined by selects in one block, which fuses; more are copied one after the other."""


@legalize("relax.strided_slice")
def strided_slice(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    axes = require_distinct_axes(op.axes, len(shape))
    starts = {
        axis: (slice_start(shape[axis], begin, stride), stride)
        for axis, begin, stride in zip(axes, op.begin, op.strides, strict=True)
    }

    def where(_: tuple[Dim, ...], at: Sequence[Expr]) -> list[ExprLike]:
        result: list[ExprLike] = list(at)
        for axis, (start, stride) in starts.items():
            scaled = at[axis] * stride if stride != 1 else at[axis]
            result[axis] = scaled if start == 0 else scaled + start
        return result

    return moved(op, b, where)


@legalize("relax.pad")
def pad(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape, output = shape_of(op.x), shape_of(op.output)
    begins, ends = op.pads[: len(shape)], op.pads[len(shape) :]
    widens = any(amount > 0 for amount in op.pads)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        value = (op.value if x.dtype.is_float else int(op.value)) if widens else None

        def element(*axes: Expr) -> Expr:
            at = [axis - begin if begin else axis for axis, begin in zip(axes, begins, strict=True)]
            if op.mode == "constant":
                return x.at(*at, outside=value)
            rows = zip(at, shape, begins, ends, strict=True)
            return x.at(
                *(inside(i, n, op.mode, max(low, high)) if max(low, high) > 0 else i for i, n, low, high in rows),
                outside=None if all(isinstance(n, int) for n in shape) else 0,
            )

        return p.compute(output, element, name="pad")

    return b.call_prim(body, op.x)


def inside(index: Expr, size: Dim, mode: str, most: int | None = None) -> Expr:
    """Return the position that padding repeats for one that may be outside.

    `most` is how far a position may be outside, if that is known: if it is less than the size, the reflection needs no
    remainder. Otherwise it is repeated, as in numpy. The result is inside of an axis that is not empty, whatever the
    index is.
    """
    if mode == "edge":
        return within(index, size)
    if mode == "wrap":
        return wrapped(index, size)
    if most is not None and isinstance(size, int) and most < size:
        last = constant(size - 1, INDEX)
        return last - abs_(last - abs_(index))
    period = (size - 1) * 2
    position = wrapped(index, period)
    return maximum(minimum(position, lift(period, INDEX) - position), 0)


@legalize("relax.concat")
def concat(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)
    axis = op.axis % len(output)
    xs = [x for x in op.xs if shape_of(x)[axis] != 0] or op.xs[:1]

    def body(p: PrimBuilder, *tensors: TensorExpr) -> TensorExpr:
        starts = _starts([t.shape[axis] for t in tensors])

        def element(*axes: Expr) -> Expr:
            values = []
            for tensor, start in zip(tensors, starts, strict=True):
                at: list[ExprLike] = list(axes)
                at[axis] = axes[axis] - start if start != 0 else axes[axis]
                values.append(tensor.at(*at, outside=0 if len(tensors) > 1 else None))
            return _choose(axes[axis], starts, values)

        return p.compute(output, element, name="concat")

    if len(xs) <= MAX_SELECT_OPERANDS:
        return b.call_prim(body, *xs)
    return _copied(op, b, xs, axis, _starts([shape_of(x)[axis] for x in xs]))


@legalize("relax.stack")
def stack(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)
    axis = op.axis % len(output)
    xs = list(op.xs)

    def body(p: PrimBuilder, *tensors: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            values = [t.at(*axes[:axis], *axes[axis + 1 :]) for t in tensors]
            return _choose(axes[axis], range(len(tensors)), values)

        return p.compute(output, element, name="stack")

    if len(xs) <= MAX_SELECT_OPERANDS:
        return b.call_prim(body, *xs)
    return _copied(op, b, xs, axis, range(len(xs)), new_axis=True)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _choose(position: Expr, starts: Sequence[int], values: Sequence[Expr]) -> Expr:
    """Return the value of the last start that is not after the position."""
    chosen = values[-1]
    for value, following in reversed(list(zip(values[:-1], starts[1:], strict=True))):
        chosen = select(position < following, value, chosen)
    return chosen


def _copied(
    op: ir.OpView, b: LegalizeBuilder, xs: Sequence[ir.Value], axis: int, starts: Sequence[int], new_axis: bool = False
) -> ir.Value:
    """Copy the operands to their positions in the result, one after the other."""

    def body(loops: LoopBuilder, *buffers: Buffer) -> None:
        *sources, target = buffers
        for source, start in zip(sources, starts, strict=True):
            for at in loops.nest(source.shape):
                to: list[ExprLike] = [*at[:axis], start if new_axis else at[axis] + start]
                to += at[axis if new_axis else axis + 1 :]
                target[to] = source[at]

    return b.call_loops(body, *xs)


@legalize("relax.split")
def split(op: ir.OpView, b: LegalizeBuilder) -> tuple[ir.Value, ...]:
    """Emit one prim function per slice, so that each can be fused with its users."""
    axis = op.axis % len(shape_of(op.x))
    shapes = [shape_of(output) for output in op.outputs]

    def piece(shape: tuple[Dim, ...], start: int) -> ir.Value:
        def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
            def element(*axes: Expr) -> Expr:
                return x.at(*axes[:axis], axes[axis] + start, *axes[axis + 1 :])

            return p.compute(shape, element, name="split")

        return b.call_prim(body, op.x)

    starts = _starts([shape[axis] for shape in shapes])
    return tuple(piece(shape, start) for shape, start in zip(shapes, starts, strict=True))
