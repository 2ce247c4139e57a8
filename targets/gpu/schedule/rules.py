"""Rules of GPUs, which schedule a whole function or some of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule import parts
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, whole_group
from mirlo.passes.schedule.choices import RulePart, set_parts
from mirlo.passes.targets import chain
from mirlo.targets.gpu.schedule.stage import LANES, emit_stages

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


def function_group(kernel: Kernel, context: ScheduleContext) -> BlockGroup[LaneModel] | Decline:
    """Return all blocks of a prim function as one group."""
    if kernel.view.others:
        return decline("has operations other than blocks", first=kernel.view.others[0].name)
    return whole_group(kernel.view, LANES, context=context)


def schedule_parts(kernel: Kernel, group: BlockGroup[LaneModel], wanted: Sequence[RulePart]) -> ir.OpView | Decline:
    """Schedule a function in the parts and by the rules that a caller names."""
    own = parts.part_rules(chain(group.context.target)[:-1])
    planned = parts.plan_parts(kernel, group, wanted, own, parts.plan_by)
    if isinstance(planned, Decline):
        return planned
    plans, scheduled = planned
    set_parts(kernel.view.op, scheduled)
    return emit_stages(kernel.view, plans)
