"""The rules: the blocks of a prim function in stages, each a launch by the plan that fits, through memory."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.targets.gpu.schedule.contraction import ContractionPlan, plan_contraction
from mirlo.targets.gpu.schedule.points import BlockPlan, PointsPlan, plan_points
from mirlo.targets.gpu.schedule.rows import RowsPlan
from mirlo.targets.gpu.schedule.rows import plan as plan_rows
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.analysis import is_product
from mirlo.targets.llvm.schedule.evaluate import Memory
from mirlo.targets.llvm.schedule.group import Group, unfit

LANES = Machine("gpu", vector_bytes=32, vector_registers=32, masked=True)
"""What the analyses of rows and elements ask of a machine; they only decide what is too short to share."""
PLANNERS = (plan_points, plan_rows)
_LONGEST = 16
"""Most blocks that are tried as one stage."""

Stage = ContractionPlan | PointsPlan | RowsPlan | BlockPlan
_NAMES: dict[type, str] = {ContractionPlan: "contraction", PointsPlan: "points", RowsPlan: "rows", BlockPlan: "block"}


def plan_stages(view: PrimView) -> list[Stage]:
    """The blocks from the first on, as many at a time as one plan takes."""
    stages: list[Stage] = []
    at = 0
    while at < len(view.blocks):
        for end in range(min(len(view.blocks), at + _LONGEST), at, -1):
            plan = _plan(_part(view, at, end))
            if plan is not None:
                stages.append(plan)
                at = end
                break
        else:
            stages.append(BlockPlan(view.blocks[at]))
            at += 1
    return stages


def _plan(part: Group) -> Stage | None:
    product = plan_contraction(part)
    if not isinstance(product, Decline):
        return product
    if len(part.blocks) > 1 and any(is_product(block) for block in part.blocks):
        return None  # the product gets tiles of its own
    for planner in PLANNERS:
        plan = planner(part)
        if not isinstance(plan, Decline):
            return plan
    return None


def _part(view: PrimView, start: int, end: int) -> Group:
    inside = view.blocks[start:end]
    read_elsewhere = {o.value for b in (*view.blocks[:start], *view.blocks[end:]) for o in b.inputs}
    made = {output.value for block in inside for output in block.outputs}
    return Group(tuple(inside), frozenset(made & (read_elsewhere | set(view.returned))), LANES)


def _build(kernel: Any, stages: list[Stage]) -> Any:
    buffers = BufferFunction(kernel.view, stack_limit=0)

    def emit() -> None:
        memory = Memory(buffers)
        for stage in stages:
            stage.emit(memory)

    names = ", ".join(_NAMES[type(stage)] for stage in stages)
    return buffers.build(emit, {"rule": "stages", "stages": names})


@schedule("any", target="gpu", priority=50)
def stages(kernel: Any, context: Any) -> Any:
    """Blocks by the plans of this folder: a launch for each stage."""
    refusal = unfit(kernel.view)
    if refusal is not None:
        return refusal
    return _build(kernel, plan_stages(kernel.view))


@schedule("any", target="gpu")
def threads(kernel: Any, context: Any) -> Any:
    """Any blocks: a launch for each, a thread for each element."""
    if kernel.view.others:
        return decline("has operations beside blocks", first=kernel.view.others[0].operation.name)
    return _build(kernel, [BlockPlan(block) for block in kernel.view.blocks if 0 not in _outputs(block)])


def _outputs(block: Any) -> list[int]:
    return [block.domain[axis] for axis in block.spatial]
