"""Default rules of cumulative sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import lift
from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder
from mirlo.passes.legalize.helpers import shape_of, short_name, wide_dtype
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.cumsum", "relax.cumprod")
def cumulative(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    is_sum = short_name(op) == "cumsum"

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        running_type = wide_dtype(x.dtype)
        for at in loops.nest([*shape[:axis], *shape[axis + 1 :]], parallel=True):
            running = loops.variable(lift(0 if is_sum else 1, running_type), running_type)
            for i in loops.range(shape[axis]):
                position = (shape[axis] - 1) - i if op.reverse else i
                element = [*at[:axis], position, *at[axis:]]
                value = x[element].cast(running_type)
                following = loops.let(running.get() + value if is_sum else running.get() * value)
                output[element] = (running.get() if op.exclusive else following).cast(x.dtype)
                running.set(following)

    return b.call_loops(body, op.x)
