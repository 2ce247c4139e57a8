"""Rules that are schedules of words, for a whole prim function or for some of its blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from mirlo.dialects.bindings import func
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.words.schedule import Schedule


class GroupView(PrimView):
    """Some blocks of a prim function, as if they were all of it: what others read are its results."""

    def __init__(self, group: BlockGroup[LaneModel]) -> None:
        function = group.blocks[0].op.parent
        assert function is not None, "a block is in a function"
        super().__init__(function)
        is_whole = len(group.blocks) == len(self.blocks)
        self.blocks: list[BlockView] = list(group.blocks)
        if is_whole:
            return
        made = group.made
        read = [operand.value for block in group.blocks for operand in block.inputs]
        self.arguments = list(dict.fromkeys([*self.arguments, *(value for value in read if value not in made)]))
        self.returned = [value for value in made if value in group.kept]


def words_of(group: BlockGroup[LaneModel]) -> Schedule:
    """Return a schedule of the loops of some blocks, for a rule to arrange."""
    return Schedule(GroupView(group))


@dataclass(frozen=True)
class WordsPlan:
    """The loops of some blocks, which a rule has arranged with words."""

    group: BlockGroup[LaneModel]
    words: Schedule
    rule: str
    chosen: ChoiceValues
    facts: ScheduleFacts = field(default_factory=dict)
    """What `mirlo explain` prints of the loops."""

    @cached_property
    def name(self) -> str:
        """Return the name of the rule."""
        return self.rule

    def choices(self) -> ChoiceValues:
        """Return the choices with which the loops are made again."""
        return self.chosen

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""
        self.words.emit_part(memory.buffers)

    def schedule(self) -> func.FuncOp:
        """Replace a prim function, of which these are all blocks, by the loops."""
        return self.words.emit({"rule": self.rule, **self.facts}, self.chosen)
