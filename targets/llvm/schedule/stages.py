"""Prim functions that need several loop nests: their blocks in stages, each by a plan that fits, through memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.nest import emit_block
from mirlo.passes.schedule.schedule import Kernel, ScheduleContext
from mirlo.targets.llvm.schedule.contraction import VectorContractionPlan, plan_contraction
from mirlo.targets.llvm.schedule.elementwise import ElementwisePlan, plan_elementwise
from mirlo.targets.llvm.schedule.group import function_group
from mirlo.targets.llvm.schedule.rows import VectorRowsPlan, plan_rows
from mirlo.targets.llvm.schedule.window import WindowPlan, plan_window

PLANNERS = (plan_elementwise, plan_rows, plan_window)
_LONGEST = 16
"""Most blocks that are tried as one stage."""


@dataclass(frozen=True)
class Scalar:
    """A block that no plan accepts."""

    block: BlockView
    name = "scalar"


Stage = VectorContractionPlan | ElementwisePlan | VectorRowsPlan | WindowPlan | Scalar
_NAMES = {
    VectorContractionPlan: "contraction",
    ElementwisePlan: "elementwise",
    VectorRowsPlan: "rows",
    WindowPlan: "window",
    Scalar: "scalar",
}


def plan_stages(view: PrimView, group: BlockGroup) -> list[Stage]:
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


def _plan(part: BlockGroup) -> Stage | None:
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


def _subgroup(view: PrimView, group: BlockGroup, start: int, end: int) -> BlockGroup:
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
    if len(group.blocks) == 1:
        return decline("there is one block only, and no plan takes it")
    found = plan_stages(kernel.view, group)
    if all(isinstance(stage, Scalar) for stage in found):
        return decline("no plan takes any of the blocks", blocks=len(found))
    buffers = BufferFunction(kernel.view)
    names = ", ".join(_NAMES[type(stage)] for stage in found)
    return buffers.build(lambda: emit_stages(found, buffers), {"rule": "stages", "stages": names})
