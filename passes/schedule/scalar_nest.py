"""The rule of the last target: loops over scalars. It applies to every prim function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import schedule

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
    from mirlo.passes.schedule.primitives.schedule import Schedule

SCALAR_NEST = "scalar_nest"
"""The name of the rule."""


@schedule(name=SCALAR_NEST)
def scalar_nest(kernel: Kernel, context: ScheduleContext) -> ir.OpView:
    """Schedule loops in the order of the axes, one element at a time."""
    from mirlo.passes.schedule.primitives.schedule import Schedule

    s = Schedule(kernel.view)
    arrange_scalars(s)
    return s.emit({"rule": SCALAR_NEST})


def arrange_scalars(s: Schedule) -> None:
    """Sum up each result of a reduction in a register, in the innermost loops."""
    for block in s.blocks():
        kinds = s.kinds(block)
        over = [loop for loop, kind in kinds.items() if kind == "reduce"]
        if not over:
            continue
        order = [*(loop for loop in kinds if loop not in over), *over]
        if order != [*kinds]:
            s.reorder(*order)
        s.accumulate(block, over[0])
