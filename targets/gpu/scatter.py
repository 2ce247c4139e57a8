"""Scatter on a GPU: a thread has the elements that only its updates can write, and makes these in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import minimum, product
from mirlo.dialects.tir.compute import LoopBuilder, is_within
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import fixed, shape_of
from mirlo.passes.legalize.rules.index import COMBINE, target_position, update_element
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.scatter_elements", target="gpu")
def scatter_elements(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Scatter with a thread per row along the axis."""
    rank = len(shape_of(op.x))
    axis = op.axis % rank
    if rank == 1:
        return decline("any update may write any element", rank=rank)

    def body(loops: LoopBuilder, x: Buffer, indices: Buffer, updates: Buffer, output: Buffer) -> None:
        loops.start_from(x, output)
        length = indices.shape[axis]
        first, *others = [*indices.shape[:axis], *indices.shape[axis + 1 :]]
        # No threads for rows without elements: there may be 2^60 of them.
        for row in loops.nest([product([first, minimum(1, length)]), *others], parallel=True):
            for i in loops.range(length):
                at = [*row[:axis], i, *row[axis:]]
                update_element(loops, at, axis, COMBINE[op.reduction], indices, updates, output)

    return b.call_loops(body, op.x, op.indices, op.updates)


@legalize("relax.scatter_nd", target="gpu")
def scatter_nd(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Scatter with a thread per element of a slice."""
    shape, combine = shape_of(op.x), COMBINE[op.reduction]
    points, depth = shape_of(op.indices)[:-1], fixed(shape_of(op.indices)[-1])
    if depth == len(shape):
        return decline("any update may write any element", depth=depth)

    def body(loops: LoopBuilder, x: Buffer, indices: Buffer, updates: Buffer, output: Buffer) -> None:
        loops.start_from(x, output)
        first, *others = shape[depth:]
        for rest in loops.nest([product([first, minimum(1, product(points))]), *others], parallel=True):
            for at in loops.nest(points):
                position = target_position(loops, at, depth, indices, shape)
                with loops.if_(is_within(position, shape)):
                    to = [*position, *rest]
                    output[to] = combine(output[to], updates[[*at, *rest]])

    return b.call_loops(body, op.x, op.indices, op.updates)
