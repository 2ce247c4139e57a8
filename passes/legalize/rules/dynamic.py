"""Default rules of operators with data-dependent sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import (
    INDEX,
    Expr,
    TensorExpr,
    clamp,
    constant,
    is_within,
    maximum,
    minimum,
    select,
    within,
)
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder
from mirlo.passes.legalize.helpers import dims_vector, fixed, shape_of
from mirlo.passes.legalize.rules.slice import inside
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

BEGIN, STEP = 0, 2


@legalize("relax.dims_tensor")
def dims_tensor(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    return b.call_prim(lambda p: dims_vector(p, op.dims))


@legalize("relax.steps")
def steps(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def body(p: PrimBuilder, start: TensorExpr, delta: TensorExpr) -> TensorExpr:
        wide = "f32" if start.dtype.is_float and start.dtype.bits < 32 else start.dtype

        def element(i: Expr) -> Expr:
            return (start.at().cast(wide) + i.cast(wide) * delta.at().cast(wide)).cast(start.dtype)

        return p.compute(shape, element, name="steps")

    return b.call_prim(body, op.start, op.delta)


@legalize("relax.nonzero")
def nonzero(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        count = loops.variable(0, "index")
        for at in loops.nest(shape):
            with loops.if_(x[at].cast("bool")):
                position = loops.let(count.get())
                # As many as were counted before, unless another thread of the caller writes to x in between.
                with loops.if_(position < output.shape[1]):
                    for axis, index in enumerate(at):
                        output[axis, position] = index.cast("i64")
                    count.set(position + 1)

    return b.call_loops(body, op.x)


_LONGEST_STEP = 1 << 61


@legalize("relax.slice_bounds")
def slice_bounds(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    rank, count = fixed(shape_of(op.shape)[0]), fixed(shape_of(op.starts)[0])

    def body(
        loops: LoopBuilder,
        shape: Buffer,
        starts: Buffer,
        ends: Buffer,
        axes: Buffer | None,
        steps: Buffer | None,
        output: Buffer,
    ) -> None:
        for i in range(rank):
            output[BEGIN, i] = constant(0, "i64")
            output[1, i] = shape[i]
            output[STEP, i] = constant(1, "i64")
        for i in range(count):
            named = constant(i, "i64") if axes is None else axes[i]
            axis = loops.let(select(named < 0, named + rank, named).cast(INDEX))
            # Steps beyond any size are clamped: sums with them overflow.
            step = loops.let(constant(1, "i64") if steps is None else clamp(steps[i], -_LONGEST_STEP, _LONGEST_STEP))
            with loops.if_(is_within([axis], [rank]) & step.differs(0)):
                size = loops.let(shape[axis])
                forwards = step > 0
                first, last = starts[i], ends[i]
                start = select(first < 0, maximum(first, -size) + size, first)
                stop = select(last < 0, maximum(last, -size - 1) + size, last)
                # Forwards from 0 to the size; backwards from the last element to before the first.
                low, high = select(forwards, constant(0, "i64"), -1), select(forwards, size, size - 1)
                start = minimum(maximum(start, select(forwards, constant(0, "i64"), 0)), high)
                stop = minimum(maximum(stop, low), high)
                length = select(forwards, (stop - start + step - 1) // step, (start - stop - step - 1) // -step)
                output[BEGIN, axis] = start
                output[1, axis] = maximum(length, 0)
                output[STEP, axis] = step
            with loops.else_():
                output[1, 0] = constant(-1, "i64")  # an impossible length: the operator that binds it reports the error

    return b.call_loops(body, op.shape, op.starts, op.ends, op.axes, op.steps)


@legalize("relax.slice_at")
def slice_at(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def body(p: PrimBuilder, x: TensorExpr, bounds: TensorExpr) -> TensorExpr:
        def place(axis: int, at: Expr) -> Expr:
            position = bounds[BEGIN, axis].cast(INDEX) + at * bounds[STEP, axis].cast(INDEX)
            return within(position, x.shape[axis])

        return p.compute(shape, lambda *axes: x.at(*(place(i, at) for i, at in enumerate(axes))), name="slice")

    return b.call_prim(body, op.x, op.bounds)


@legalize("relax.slice_dims")
def slice_dims(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def place(axis: int, at: Expr) -> Expr:
            stride, begin = op.strides[axis], op.begin[axis]
            scaled = at if stride == 1 else at * stride
            return scaled if begin == 0 else scaled + begin

        return p.compute(shape, lambda *axes: x.at(*(place(i, at) for i, at in enumerate(axes))), name="slice")

    return b.call_prim(body, op.x)


@legalize("relax.pad_at")
def pad_at(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def body(p: PrimBuilder, x: TensorExpr, begins: TensorExpr, value: TensorExpr | None) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            at = [axis - begins[i].cast(INDEX) for i, axis in enumerate(axes)]
            if op.mode != "constant":
                return x.at(*(inside(i, size, op.mode) for i, size in zip(at, x.shape, strict=True)), outside=0)
            beyond, is_inside = constant(0, x.dtype) if value is None else value.at(), is_within(at, x.shape)
            return select(is_inside, x.nearest(at, is_inside), beyond)

        return p.compute(shape, element, name="pad")

    return b.call_prim(body, op.x, op.begins, op.value)


@legalize("relax.spread_axes")
def spread_axes(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)
    rank = len(shape) // 2

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            return x.at(*(axes[i] + axes[rank + i] for i in range(rank)))

        return p.compute(shape, element, name="spread_axes")

    return b.call_prim(body, op.x)
