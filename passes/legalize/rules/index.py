"""Default rules of gather and scatter.

A negative index counts from the end. An index that is still outside must not access memory beyond the tensor, for
any data: a gather reads the nearest element inside, a scatter writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr, from_end, is_within, maximum, minimum, select, within
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder
from mirlo.passes.legalize.builder import SplatTensor
from mirlo.passes.legalize.helpers import fixed, shape_of
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.gather")
def gather(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Read at the positions of the indices, or at one constant position."""
    shape, output = shape_of(op.x), shape_of(op.output)
    axis = op.axis % len(shape)

    def body(p: PrimBuilder, x: TensorExpr, indices: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            position: ExprLike | None = _constant_position(indices, shape[axis])
            if position is None:
                index = indices.at(*axes[axis : axis + indices.rank])
                position = within(from_end(index, shape[axis]), shape[axis])
            return x.at(*axes[:axis], position, *axes[axis + indices.rank :])

        return p.compute(output, element, name="gather")

    return b.call_prim(body, op.x, op.indices)


def _constant_position(indices: TensorExpr, size: Dim) -> int | None:
    """Return the constant position of all of these indices, if it is known: the block's map contains it."""
    if not isinstance(indices, SplatTensor) or not isinstance(size, int) or size == 0:
        return None
    index = int(indices.number)
    return min(max(index + size if index < 0 else index, 0), size - 1)


@legalize("relax.gather_elements")
def gather_elements(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape, output = shape_of(op.x), shape_of(op.output)
    axis = op.axis % len(shape)

    def body(p: PrimBuilder, x: TensorExpr, indices: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            return x.at(*axes[:axis], within(from_end(indices.at(*axes), shape[axis]), shape[axis]), *axes[axis + 1 :])

        return p.compute(output, element, name="gather_elements")

    return b.call_prim(body, op.x, op.indices)


@legalize("relax.gather_nd")
def gather_nd(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape, output = shape_of(op.x), shape_of(op.output)
    batch = op.batch_dims

    def body(p: PrimBuilder, x: TensorExpr, indices: TensorExpr) -> TensorExpr:
        points = indices.rank - 1
        depth = fixed(indices.shape[-1])

        def element(*axes: Expr) -> Expr:
            indexed = [(indices.at(*axes[:points], k), shape[batch + k]) for k in range(depth)]
            point = [within(from_end(index, size), size) for index, size in indexed]
            return x.at(*axes[:batch], *point, *axes[points:])

        return p.compute(output, element, name="gather_nd")

    return b.call_prim(body, op.x, op.indices)


@legalize("relax.one_hot")
def one_hot(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    output = shape_of(op.output)
    axis = op.axis % len(output)

    def body(p: PrimBuilder, indices: TensorExpr, values: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            index = indices.at(*axes[:axis], *axes[axis + 1 :])
            index = index.cast("i64") if index.dtype.is_float else index
            return select(axes[axis].equals(from_end(index, op.depth)), values[1], values[0])

        return p.compute(output, element, name="one_hot")

    return b.call_prim(body, op.indices, op.values)


Combine = Callable[[Expr, Expr], Expr]
COMBINE: dict[str, Combine] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": maximum,
    "min": minimum,
}


@legalize("relax.scatter_elements")
def scatter_elements(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    combine = COMBINE[op.reduction]

    def body(loops: LoopBuilder, x: Buffer, indices: Buffer, updates: Buffer, output: Buffer) -> None:
        loops.start_from(x, output)
        for at in loops.nest(indices.shape):
            update_element(loops, at, axis, combine, indices, updates, output)

    return b.call_loops(body, op.x, op.indices, op.updates)


def update_element(
    loops: LoopBuilder, at: list[Expr], axis: int, combine: Combine, indices: Buffer, updates: Buffer, output: Buffer
) -> None:
    """Emit one update of `scatter_elements`."""
    position = loops.let(from_end(indices[at], output.shape[axis]))
    with loops.if_(is_within([position], [output.shape[axis]])):
        to = [*at[:axis], position, *at[axis + 1 :]]
        output[to] = combine(output[to], updates[at])


@legalize("relax.scatter_nd")
def scatter_nd(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    combine = COMBINE[op.reduction]

    def body(loops: LoopBuilder, x: Buffer, indices: Buffer, updates: Buffer, output: Buffer) -> None:
        loops.start_from(x, output)
        points, depth = indices.shape[:-1], fixed(indices.shape[-1])
        for at in loops.nest(points):
            position = target_position(loops, at, depth, indices, shape)
            with loops.if_(is_within(position, shape)):
                for rest in loops.nest(shape[depth:]):
                    to = [*position, *rest]
                    output[to] = combine(output[to], updates[[*at, *rest]])

    return b.call_loops(body, op.x, op.indices, op.updates)


def target_position(
    loops: LoopBuilder, at: list[Expr], depth: int, indices: Buffer, shape: Sequence[Dim]
) -> list[Expr]:
    """Emit the leading indices of the target of an update of `scatter_nd`."""
    return [loops.let(from_end(indices[[*at, k]], shape[k])) for k in range(depth)]
