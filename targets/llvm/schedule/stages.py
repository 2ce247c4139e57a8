"""Prim functions that need several loop nests: their blocks in stages, each by a plan that fits, through memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, RuleChoice, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.choices import (
    WANTED_PARTS,
    ChoiceError,
    ChoiceValues,
    RulePart,
    check_choices,
    check_used,
    parts_of,
    set_parts,
)
from mirlo.passes.schedule.nest import emit_block
from mirlo.passes.schedule.schedule import Kernel, ScheduleContext
from mirlo.passes.schedule.words.tree import unique_names
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction import VectorContractionPlan, plan_contraction
from mirlo.targets.llvm.schedule.elementwise import ElementwisePlan, plan_elementwise
from mirlo.targets.llvm.schedule.group import function_group
from mirlo.targets.llvm.schedule.rows import VectorRowsPlan, plan_rows
from mirlo.targets.llvm.schedule.window import WindowPlan, plan_window
from mirlo.targets.llvm.tuned_machine import CONTRACTION_CHOICES, ELEMENTWISE_CHOICES, LOOP_CHOICES, with_choices

if TYPE_CHECKING:
    pass

PLANNERS = (plan_elementwise, plan_rows, plan_window)
SCALAR = "scalar_nest"
_LONGEST = 16
"""Most blocks that are tried as one stage."""


@dataclass(frozen=True)
class Scalar:
    """A block that no plan accepts."""

    block: BlockView
    name = "scalar"

    def choices(self) -> ChoiceValues:
        return {}


Stage = VectorContractionPlan | ElementwisePlan | VectorRowsPlan | WindowPlan | Scalar
_NAMES = {
    VectorContractionPlan: "contraction",
    ElementwisePlan: "elementwise",
    VectorRowsPlan: "rows",
    WindowPlan: "window",
    Scalar: "scalar",
}


ChosenStage = VectorContractionPlan | ElementwisePlan | VectorRowsPlan | WindowPlan
RULES: dict[str, tuple[Callable[[BlockGroup[Machine]], ChosenStage | Decline], tuple[RuleChoice, ...]]] = {
    "contraction": (plan_contraction, CONTRACTION_CHOICES),
    "elementwise": (plan_elementwise, ELEMENTWISE_CHOICES),
    "rows": (plan_rows, LOOP_CHOICES),
    "window": (plan_window, LOOP_CHOICES),
}
"""The rules that schedule parts of a function: their planners, and what a caller may choose."""


def plan_stages(view: PrimView, group: BlockGroup[Machine]) -> list[Stage]:
    """Plan the blocks in order, as many at a time as one plan accepts."""
    stages: list[Stage] = []
    at = 0
    while at < len(group.blocks):
        for end in range(min(len(group.blocks), at + _LONGEST), at, -1):
            plan = _plan(_subgroup(view, group, at, end))
            if plan is not None:
                stages.append(plan)
                at = end
                break
        else:
            stages.append(Scalar(group.blocks[at]))
            at += 1
    return stages


def plan_parts(view: PrimView, group: BlockGroup[Machine], parts: Sequence[RulePart]) -> list[Stage] | Decline:
    """Plan the blocks in the parts that a caller names, by the rules that it names."""
    named = [name for part in parts for name in part.blocks]
    names = unique_names([block.name for block in group.blocks])
    if named != names:
        raise ChoiceError(f"apply_rule: expected all blocks in order, {', '.join(names)}; found {', '.join(named)}")
    stages: list[Stage] = []
    at = 0
    for part in parts:
        end = at + len(part.blocks)
        inside = _subgroup(view, group, at, end)
        at = end
        if part.rule == SCALAR:
            stages += [Scalar(block) for block in inside.blocks]
            continue
        if part.rule not in RULES:
            listed = ", ".join((*RULES, SCALAR))
            raise ChoiceError(f"rule '{part.rule}' does not schedule parts of a function; these do: {listed}")
        planner, declared = RULES[part.rule]
        check_choices(part.rule, declared, part.choices)
        plan = planner(replace(inside, machine=with_choices(group.machine, part.choices)))
        if isinstance(plan, Decline):
            return decline(f"'{part.rule}' declines blocks {', '.join(part.blocks)}: {plan}")
        check_used(part.rule, part.choices, plan.choices())
        stages.append(plan)
    return stages


def _parts_of(stages: Sequence[Stage], names: Sequence[str]) -> list[RulePart]:
    """Return the parts that stages are, with their choices."""
    found: list[RulePart] = []
    at = 0
    for stage in stages:
        count = _count(stage)
        rule = SCALAR if isinstance(stage, Scalar) else _NAMES[type(stage)]
        found.append(RulePart(rule, tuple(names[at : at + count]), stage.choices()))
        at += count
    return found


def _count(stage: Stage) -> int:
    """Return the number of blocks that a stage computes."""
    if isinstance(stage, Scalar):
        return 1
    if isinstance(stage, VectorContractionPlan):
        return 1 + len(stage.plan.contraction.stages)
    return len(stage.group.blocks)


def _plan(part: BlockGroup[Machine]) -> Stage | None:
    plan_of_product = plan_contraction(part)
    if not isinstance(plan_of_product, Decline):
        return plan_of_product
    if len(part.blocks) > 1 and any(is_product(block) for block in part.blocks):
        return None  # the contraction gets a register tile of its own
    for planner in PLANNERS:
        plan = planner(part)
        if not isinstance(plan, Decline):
            return plan
    return None


def _subgroup(view: PrimView, group: BlockGroup[Machine], start: int, end: int) -> BlockGroup[Machine]:
    inside = group.blocks[start:end]
    read_elsewhere = {o.value for b in (*group.blocks[:start], *group.blocks[end:]) for o in b.inputs}
    made = {output.value for block in inside for output in block.outputs}
    return BlockGroup(inside, frozenset(made & (read_elsewhere | set(view.returned))), group.machine)


def emit_stages(stages: Sequence[Stage], buffers: BufferFunction) -> None:
    memory = TensorBuffers(buffers)
    for stage in stages:
        if isinstance(stage, Scalar):
            emit_block(stage.block, buffers)
        else:
            stage.emit(memory)


@schedule("any", target="llvm", priority=90)
def staged_contractions(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule a contraction among other computations, one after the other."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    if not any(is_product(block) for block in group.blocks):
        return decline("no block is a product of two tensors")
    return stages(kernel, context)


@schedule("any", target="llvm", priority=20)
def stages(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule blocks that need different loops, one after the other."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    if len(group.blocks) == 1 and WANTED_PARTS not in kernel.view.op.attributes:
        return decline("there is one block only, and no plan takes it")
    parts = parts_of(kernel.view.op, WANTED_PARTS)
    planned = plan_parts(kernel.view, group, parts) if parts else plan_stages(kernel.view, group)
    if isinstance(planned, Decline):
        return planned
    found = planned
    if not parts and all(isinstance(stage, Scalar) for stage in found):
        return decline("no plan takes any of the blocks", blocks=len(found))
    buffers = BufferFunction(kernel.view)
    names = ", ".join(_NAMES[type(stage)] for stage in found)
    set_parts(kernel.view.op, _parts_of(found, unique_names([block.name for block in group.blocks])))
    return buffers.build(lambda: emit_stages(found, buffers), {"rule": "stages", "stages": names})
