"""Prim functions that need several loop nests: their blocks in stages, each by a plan that fits, through memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceError, ChoiceValue, ChoiceValues, bind_choices
from mirlo.passes.rules import NOTHING_CHOSEN, Decline, Rule, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, plan_in_stages
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.choices import WANTED_PARTS, RulePart, check_choices, check_used, parts_of, set_parts
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.rule_parts import PRIMITIVES_RULE, LoopPrimitives, find_blocks
from mirlo.passes.schedule.scalar_nest import SCALAR_NEST, arrange_scalars
from mirlo.runtime.names import unique_names
from mirlo.targets.llvm.choices import NO_PANELS, ContractionChoices, StoredPanels, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction import plan_contraction
from mirlo.targets.llvm.schedule.group import function_group
from mirlo.targets.llvm.schedule.part_rules import BlocksPlan, Planner, part_rules

Stage = BlocksPlan | LoopPrimitives


def plan_stages(
    group: BlockGroup[Machine], chosen: ChoiceValues = NOTHING_CHOSEN, panels: StoredPanels = NO_PANELS
) -> list[BlocksPlan]:
    """Plan the blocks in order, as many at a time as one plan accepts, with what is chosen for all of them."""
    plan = partial(_plan, chosen=chosen, panels=panels)
    return plan_in_stages(group, plan, _plan_scalars)


def _plan_scalars(group: BlockGroup[Machine]) -> PrimitivesPlan:
    """Plan loops over scalars for blocks that no rule takes."""
    s = schedule_of(group)
    arrange_scalars(s)
    return PrimitivesPlan(group, s, SCALAR_NEST, {})


def _plan_by(
    rule: Rule, planner: Planner, group: BlockGroup[Machine], chosen: ChoiceValues, panels: StoredPanels
) -> BlocksPlan | Decline:
    """Plan blocks by a rule, with its own of the choices."""
    if planner is plan_contraction:
        return plan_contraction(group, with_panels(bind_choices(ContractionChoices, chosen), panels))
    return planner(group, **rule.arguments.bind(chosen))


def plan_parts(
    kernel: Kernel, group: BlockGroup[Machine], parts: Sequence[RulePart]
) -> tuple[list[Stage], list[RulePart]] | Decline:
    """Plan the blocks in the parts that a caller names, by the rules that it names; return these with their choices."""
    stages: list[Stage] = []
    rule_parts: list[RulePart] = []
    rules = part_rules()
    for position, part in enumerate(parts):
        if part.rule == PRIMITIVES_RULE:
            assert kernel.parts is not None
            stages.append(LoopPrimitives(kernel.parts, position))
            rule_parts.append(part)
            continue
        inside = group.part(*find_blocks(kernel.view, part.blocks))
        if part.rule == SCALAR_NEST:
            stages.append(_plan_scalars(inside))
            rule_parts.append(part)
            continue
        if part.rule not in rules:
            listed = ", ".join((*rules, SCALAR_NEST))
            raise ChoiceError(f"rule '{part.rule}' does not schedule parts of a function; these do: {listed}")
        rule, planner = rules[part.rule]
        check_choices(rule.name, rule.choices, part.choices)
        plan = _plan_by(rule, planner, inside, part.choices, panels=panels_of(kernel.view.op))
        if isinstance(plan, Decline):
            return decline(f"'{part.rule}' declines blocks {', '.join(part.blocks)}: {plan}")
        check_used(part.rule, rule.choices, part.choices, plan.choices())
        stages.append(plan)
        rule_parts.append(replace(part, choices=plan.choices()))
    return stages, rule_parts


def _parts_of(stages: Sequence[BlocksPlan], names: Sequence[str]) -> list[RulePart]:
    """Return the parts that stages are, with their choices."""
    parts: list[RulePart] = []
    at = 0
    for stage in stages:
        parts.append(RulePart(stage.name, tuple(names[at : at + stage.block_count]), stage.choices()))
        at += stage.block_count
    return parts


def _plan(part: BlockGroup[Machine], chosen: ChoiceValues, panels: StoredPanels) -> BlocksPlan | None:
    for rule, planner in part_rules().values():
        plan = _plan_by(rule, planner, part, chosen, panels)
        if not isinstance(plan, Decline):
            return plan
        if planner is plan_contraction and len(part.blocks) > 1 and any(is_product(b) for b in part.blocks):
            return None  # the contraction gets a register tile of its own
    return None


def emit_stages(stages: Sequence[Stage], buffers: BufferFunction) -> None:
    memory = TensorBuffers(buffers)
    for stage in stages:
        stage.emit(memory)


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
    planned_stages: list[Stage]
    if wanted:
        planned = plan_parts(kernel, group, wanted)
        if isinstance(planned, Decline):
            return planned
        planned_stages, parts = planned
    else:
        whole = plan_stages(group, chosen, panels=panels_of(kernel.view.op))
        if all(stage.name == SCALAR_NEST for stage in whole):
            return decline("no plan takes any of the blocks", blocks=len(whole))
        planned_stages, parts = [*whole], _parts_of(whole, unique_names([block.name for block in group.blocks]))
    buffers = BufferFunction(kernel.view)
    names = ", ".join(stage.name for stage in planned_stages)
    set_parts(kernel.view.op, parts)
    return buffers.build(lambda: emit_stages(planned_stages, buffers), {"rule": "stages", "stages": names})
