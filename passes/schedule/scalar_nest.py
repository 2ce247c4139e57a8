"""The rule of the last target: loops over scalars. It applies to every prim function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import schedule
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.parts import planned_by
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.schedule import Schedule

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext

SCALAR_NEST = "scalar_nest"
"""The name of the rule."""


def plan_scalars(group: BlockGroup[Any]) -> PrimitivesPlan:
    """Plan loops over scalars for any blocks."""
    s = schedule_of(group)
    arrange_scalars(s)
    return PrimitivesPlan(group, s, SCALAR_NEST, {})


@schedule(name=SCALAR_NEST)
@planned_by(plan_scalars)
def scalar_nest(kernel: Kernel, context: ScheduleContext) -> ir.OpView:
    """Schedule loops in the order of the axes, one element at a time."""
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
