"""Rules that are schedules of primitives, for a whole prim function or for some of its blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.buffers import ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.trace import APPLIED, Trace
from mirlo.passes.schedule.primitives.tree import ScheduleError, output_names
from mirlo.runtime.names import unique_names
from mirlo.runtime.records import dataclass


class GroupView(PrimView):
    """Some blocks of a prim function as if they were the whole: values that other blocks read are its results.

    Blocks and buffers have the names that they have in schedules of the whole function.
    """

    def __init__(self, group: BlockGroup[LaneModel]) -> None:
        function = group.blocks[0].op.parent
        assert function is not None, "a block is in a function"
        super().__init__(function, group.siblings)
        is_whole = len(group.blocks) == len(self.blocks)
        all_blocks, self.blocks = self.blocks, list(group.blocks)
        self._names: dict[ir.Operation, str] = {}
        self._buffers: dict[ir.Value, str] = {}
        if is_whole:
            return
        unique = unique_names([block.name for block in all_blocks])
        self._names = {block.op: name for name, block in zip(unique, all_blocks, strict=True)}
        computed = group.made
        for name, block in zip(unique, all_blocks, strict=True):
            buffers = zip(output_names(name, block), block.outputs, strict=True)
            self._buffers.update({output.value: buffer for buffer, output in buffers if output.value not in computed})
        read = [operand.value for block in group.blocks for operand in block.inputs]
        self.arguments = list(dict.fromkeys([*self.arguments, *(value for value in read if value not in computed)]))
        self.returned = [value for value in computed if value in group.kept]

    def name_of(self, block: BlockView) -> str:
        """Return the name of a block in schedules of the whole function."""
        return self._names.get(block.op, block.name)

    @property
    def names(self) -> dict[ir.Value, str]:
        """Return the author's names of buffers; those of other blocks are named as in the whole function."""
        return {**self._buffers, **super().names}


def schedule_of(group: BlockGroup[LaneModel]) -> Schedule:
    """Return a schedule of the loops of some blocks, for a rule to arrange."""
    return Schedule(GroupView(group))


@dataclass(frozen=True)
class PrimitivesPlan:
    """The loops of some blocks, which a rule has arranged by primitives."""

    group: BlockGroup[LaneModel]
    arranged: Schedule
    rule: str
    chosen: ChoiceValues
    facts: ScheduleFacts = field(default_factory=dict)
    """What `mirlo explain` prints of the loops."""

    @cached_property
    def name(self) -> str:
        """Return the name of the rule."""
        return self.rule

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""
        return len(self.group.blocks)

    @cached_property
    def block_names(self) -> list[str]:
        """Return the names of the blocks in schedules of the whole function."""
        view = GroupView(self.group)
        return [view.name_of(block) for block in self.group.blocks]

    def choices(self) -> ChoiceValues:
        """Return the choices with which the loops are made again."""
        return self.chosen

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""
        self.arranged.emit_part(memory)

    def schedule(self) -> func.FuncOp:
        """Replace a prim function, of which these are all blocks, by the loops."""
        return self.arranged.emit({"rule": self.rule, **self.facts}, self.chosen)


def trace_of_stages(stages: Sequence[object]) -> Trace | None:
    """Return the primitives of all stages of a function as one trace; None if a stage has no primitives.

    Each stage has nests of its own, so a schedule of the whole function makes the same of its primitives.
    """
    plans = [stage for stage in stages if isinstance(stage, PrimitivesPlan)]
    if not plans or len(plans) < len(stages):
        return None
    trace = Trace([call for plan in plans for call in plan.arranged.trace])
    names = [name for plan in plans for name in plan.block_names]
    may_clash = any(
        other.startswith(f"{name}_") and other[len(name) + 1].isalpha() for name in names for other in names
    )
    return trace if len(plans) == 1 or not may_clash or _has_same_names(plans, trace) else None


def _has_same_names(plans: Sequence[PrimitivesPlan], trace: Trace) -> bool:
    """Return whether loops of each stage have the same names in the whole function.

    Loops of one block may have names there that those of another one have.
    """
    function = plans[0].group.blocks[0].op.parent
    assert function is not None, "a block is in a function"
    try:
        whole = Schedule(function).replay(trace)
    except ScheduleError:
        return False
    return all(whole.loops(block) == plan.arranged.loops(block) for plan in plans for block in plan.arranged.blocks())


def record_trace(function: ir.OpView | ir.Operation, trace: Trace) -> None:
    """Record the primitives that a rule applied as an attribute of its result."""
    function.attributes[APPLIED] = ir.StringAttr.get(json.dumps(trace.as_json()))
