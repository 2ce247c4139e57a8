"""Schedule rules that divide a prim function into stages, each a launch by the plan that applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rules import Decline, deciding, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, plan_in_stages, unfit, whole_group
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts
from mirlo.passes.schedule.choices import ChoiceValues
from mirlo.targets.gpu.schedule.contraction import ThreadPerElementPlan, plan_contraction
from mirlo.targets.gpu.schedule.contraction.fma import MIN_BLOCKS
from mirlo.targets.gpu.schedule.costs import split_k_if_faster
from mirlo.targets.gpu.schedule.points import BlockPlan, plan_points
from mirlo.targets.gpu.schedule.roles import product_of
from mirlo.targets.gpu.schedule.rows import plan as plan_rows
from mirlo.targets.gpu.schedule.stage import PlannedBlocks

if TYPE_CHECKING:
    from mirlo.passes.schedule.schedule import Kernel, ScheduleContext


@dataclass(frozen=True)
class Lanes:
    """A machine description for the row analyses; it only decides which rows are too short to share."""

    vector_bytes: int = 32

    def lanes(self, element_bytes: int) -> int:
        """Return the elements of this size that adjacent threads read together."""
        return max(1, self.vector_bytes // element_bytes)


LANES: LaneModel = Lanes()


Planner = Callable[[BlockGroup[LaneModel]], PlannedBlocks | Decline]
PLANNERS: tuple[Planner, ...] = (plan_points, plan_rows)


def decline_dynamic_dims(blocks: Sequence[BlockView]) -> Decline | None:
    """Decline blocks with dynamic sizes, for plans that need static ones."""
    for block in blocks:
        shapes = [block.domain, *(operand.shape for operand in (*block.inputs, *block.outputs))]
        if not all(D.is_static(dim) for shape in shapes for dim in shape):
            return decline("its sizes are known at run time only", block=block.name)
    return None


def plan_stages(
    view: PrimView, first: Sequence[Planner] = (), first_open: Sequence[Planner] = ()
) -> list[PlannedBlocks]:
    """Plan stages of as many blocks as one plan accepts; a target's own plans in `first` are tried before others.

    With dynamic sizes `first_open` are tried: the others need static ones.
    """
    return plan_in_stages(whole_group(view, LANES), lambda part: _plan(part, first, first_open), BlockPlan)


def _plan(part: BlockGroup[LaneModel], first: Sequence[Planner], first_open: Sequence[Planner]) -> PlannedBlocks | None:
    for planner in first if decline_dynamic_dims(part.blocks) is None else map(deciding, first_open):
        plan = planner(part)
        if not isinstance(plan, Decline):
            return plan
    roles = deciding(product_of)(part)
    if not isinstance(roles, Decline):
        product = plan_contraction(roles)
        # Few long sums over contiguous elements are better shared by threads.
        rows = deciding(plan_rows)(part) if isinstance(product, ThreadPerElementPlan) else None
        if rows is not None and not isinstance(rows, Decline):
            return rows
        result: PlannedBlocks = product
        if decline_dynamic_dims(part.blocks) is None:
            result = split_k_if_faster(product, roles, MIN_BLOCKS, plan_contraction)
        return result
    if len(part.blocks) > 1 and any(is_product(block) for block in part.blocks):
        return None  # the product gets tiles of its own
    for planner in PLANNERS:
        plan = deciding(planner)(part)
        if not isinstance(plan, Decline):
            return plan
    return None


def build(
    kernel: Kernel,
    stages: Sequence[PlannedBlocks],
    about: ScheduleFacts | None = None,
    choices: ChoiceValues | None = None,
) -> ir.OpView:
    """Build the buffer form of a prim function from its stages; `mirlo explain` prints `about` and `choices`."""
    buffers = BufferFunction(kernel.view, stack_limit=0)

    def emit() -> None:
        memory = TensorBuffers(buffers)
        for stage in stages:
            stage.emit(memory)

    names = ", ".join(stage.name for stage in stages)
    return buffers.build(emit, {"rule": "stages", "stages": names, **(about or {})}, choices)


@schedule("any", target="gpu", priority=50)
def stages(kernel: Kernel, context: ScheduleContext) -> Decline | ir.OpView:
    """Schedule blocks by the plans of this folder, one launch per stage."""
    refusal = unfit(kernel.view)
    if refusal is not None:
        return refusal
    return build(kernel, plan_stages(kernel.view))


@schedule("any", target="gpu")
def threads(kernel: Kernel, context: ScheduleContext) -> ir.OpView | Decline:
    """Schedule any blocks, one launch per block and one thread per element."""
    if kernel.view.others:
        return decline("has operations other than blocks", first=kernel.view.others[0].operation.name)
    return build(kernel, [BlockPlan(block) for block in kernel.view.blocks if 0 not in _outputs(block)])


def _outputs(block: BlockView) -> list[Dim]:
    return [block.domain[axis] for axis in block.spatial]
