"""Stages of a prim function: the plans that compute its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.parts import PartPlan
from mirlo.passes.schedule.primitives.group_plan import record_trace, trace_of_stages
from mirlo.runtime.records import dataclass


class PlannedBlocks(Protocol):
    """Blocks that a plan computes."""

    @property
    def name(self) -> str:
        """Return the plan's name."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches at the insertion point."""


@dataclass(frozen=True)
class Lanes:
    """A machine description for the row analyses; it only decides which rows are too short to share."""

    vector_bytes: int = 32

    def lanes(self, element_bytes: int) -> int:
        """Return the elements of this size that adjacent threads read together."""
        return max(1, self.vector_bytes // element_bytes)


LANES: LaneModel = Lanes()


@dataclass(frozen=True)
class StagePlan:
    """A rule's plan for consecutive blocks: its stages, each of which is a launch or several."""

    group: BlockGroup[LaneModel]
    stages: Sequence[PlannedBlocks]
    facts: ScheduleFacts = field(default_factory=dict)
    """What `mirlo explain` prints beside the names of the stages."""
    chosen: ChoiceValues = field(default_factory=dict)
    """The values with which the rule plans the same again."""

    @property
    def name(self) -> str:
        """Return the names of the stages."""
        return ", ".join(stage.name for stage in self.stages)

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""
        return len(self.group.blocks)

    def choices(self) -> ChoiceValues:
        """Return the values with which the rule makes the same plan again."""
        return self.chosen

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launches at the insertion point, stage by stage."""
        for stage in self.stages:
            stage.emit(memory)

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the launches."""
        trace = trace_of_stages(self.stages)
        result = emit_stages(self.group.function, [self], self.chosen)
        if trace is not None:
            record_trace(result, trace)
        return result


def emit_stages(view: PrimView, plans: Sequence[PartPlan], choices: ChoiceValues | None = None) -> ir.OpView:
    """Build the buffer form of a prim function from the plans of its blocks, in order."""
    buffers = BufferFunction(view, stack_limit=0)
    own = [plan.facts for plan in reversed(plans) if isinstance(plan, StagePlan)]
    facts = {name: value for each in own for name, value in each.items()}

    def emit() -> None:
        memory = TensorBuffers(buffers)
        for plan in plans:
            plan.emit(memory)

    names = ", ".join(plan.name for plan in plans)
    return buffers.build(emit, {"rule": "stages", "stages": names, **facts}, choices)


def decline_dynamic_dims(blocks: Sequence[BlockView]) -> Decline | None:
    """Decline blocks with dynamic sizes, for plans that need static ones."""
    for block in blocks:
        shapes = [block.domain, *(operand.shape for operand in (*block.inputs, *block.outputs))]
        if not all(D.is_static(dim) for shape in shapes for dim in shape):
            return decline("its sizes are known at run time only", block=block.name)
    return None
