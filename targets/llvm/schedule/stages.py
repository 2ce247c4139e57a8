"""Prim functions that need several loop nests: their blocks in stages, each by a plan that fits, through memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceValue, ChoiceValues, bind_choices
from mirlo.passes.rules import DEFAULT, NOTHING_CHOSEN, Decline, Rule, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, plan_in_stages
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.choices import WANTED_PARTS, RulePart, parts_of, set_parts
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.parts import (
    SCALAR_NEST,
    FunctionPlan,
    PartPlan,
    part_rules,
    plan_by,
    plan_parts,
    plan_scalars,
)
from mirlo.passes.schedule.primitives.group_plan import record_trace, trace_of_stages
from mirlo.runtime.names import unique_names
from mirlo.targets.llvm.choices import NO_PANELS, ContractionChoices, StoredPanels, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction import VectorContractionPlan, plan_contraction
from mirlo.targets.llvm.schedule.part_rules import function_group
from mirlo.targets.llvm.schedule.rows import RowsPlan

ContractionPlanner = Callable[[BlockGroup[Machine], ContractionChoices], VectorContractionPlan | Decline]
RULES = ("llvm",)
"""The targets whose rules take runs of blocks."""


def plan_stages(
    group: BlockGroup[Machine],
    chosen: ChoiceValues = NOTHING_CHOSEN,
    panels: StoredPanels = NO_PANELS,
    contraction: ContractionPlanner = plan_contraction,
) -> list[FunctionPlan]:
    """Plan the blocks in order, as many at a time as one plan accepts, with the choices for all of them."""
    plan = partial(_plan, chosen=chosen, panels=panels, contraction=contraction)
    return plan_in_stages(group, plan, plan_scalars)


def _plan_by(
    rule: Rule,
    group: BlockGroup[Machine],
    chosen: ChoiceValues,
    panels: StoredPanels,
    contraction: ContractionPlanner = plan_contraction,
) -> FunctionPlan | Decline:
    """Plan blocks by a rule, with the choices that are the rule's."""
    if rule.planner is plan_contraction:
        return contraction(group, with_panels(bind_choices(ContractionChoices, chosen), panels))
    return plan_by(rule, group, chosen)


def _parts_of(stages: Sequence[FunctionPlan], names: Sequence[str]) -> list[RulePart]:
    """Return the parts that stages are, with their choices."""
    parts: list[RulePart] = []
    at = 0
    for stage in stages:
        parts.append(RulePart(stage.name, tuple(names[at : at + stage.block_count]), stage.choices()))
        at += stage.block_count
    return parts


def _plan(
    part: BlockGroup[Machine], chosen: ChoiceValues, panels: StoredPanels, contraction: ContractionPlanner
) -> FunctionPlan | None:
    for rule in part_rules(RULES):
        plan = _plan_by(rule, part, chosen, panels, contraction)
        if not isinstance(plan, Decline):
            return plan
        if rule.planner is plan_contraction and len(part.blocks) > 1 and any(is_product(b) for b in part.blocks):
            return None  # the contraction gets a register tile of its own
    return None


@schedule(target="llvm", priority=90)
def staged_contractions(kernel: Kernel, context: ScheduleContext, **chosen: ChoiceValue) -> ir.OpView | Decline:
    """Schedule a contraction among other computations, one after the other."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    if not any(is_product(block) for block in group.blocks):
        return decline("no block is a product of two tensors")
    return stages(kernel, context, **chosen)


@schedule(target="llvm", priority=20)
def stages(kernel: Kernel, context: ScheduleContext, **chosen: ChoiceValue) -> Decline | ir.OpView:
    """Schedule blocks that need different loops, one after the other."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    if len(group.blocks) == 1 and WANTED_PARTS not in kernel.view.op.attributes:
        return decline("there is one block only, and no plan takes it")
    wanted = parts_of(kernel.view.op, WANTED_PARTS)
    panels = panels_of(kernel.view.op)
    plans: Sequence[PartPlan]
    if wanted:
        planned = plan_parts(kernel, group, wanted, part_rules((*RULES, DEFAULT)), partial(_plan_by, panels=panels))
        if isinstance(planned, Decline):
            return planned
        plans, parts = planned
    else:
        plans = whole = plan_stages(group, chosen, panels)
        if all(stage.name == SCALAR_NEST for stage in whole):
            return decline("no plan takes any of the blocks", blocks=len(whole))
        parts = _parts_of(whole, unique_names([block.name for block in group.blocks]))
    buffers = BufferFunction(kernel.view)
    memory = TensorBuffers(buffers)
    set_parts(kernel.view.op, parts)
    facts = {"rule": "stages", "stages": ", ".join(stage.name for stage in plans)}
    trace = None if wanted else trace_of_stages([_loops_of(each) for each in plans])
    result = buffers.build(lambda: emit_in_turn(plans, memory), facts)
    if trace is not None:
        record_trace(result, trace)
    return result


def _loops_of(plan: PartPlan) -> object:
    """Return the schedule of primitives of a plan, if it has one."""
    if isinstance(plan, VectorContractionPlan):
        return plan.by_primitives
    return plan.plan if isinstance(plan, RowsPlan) else plan


def emit_in_turn(plans: Sequence[PartPlan], memory: TensorBuffers) -> None:
    """Emit the loops of plans one after the other."""
    for plan in plans:
        plan.emit(memory)
