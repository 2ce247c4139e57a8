"""Row operations in vectors: softmax, normalizations, reductions along the innermost axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, schedule
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.blocks.rows import RowGroup, Walk, find_rows
from mirlo.passes.schedule.loops import every
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.group import schedule_group
from mirlo.targets.llvm.schedule.priorities import PRIORITIES
from mirlo.targets.llvm.schedule.sweep import Sweep, choose_vectors, describe_vectors

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@dataclass
class VectorRowsPlan(RowGroup):
    """Row operations planned in vectors."""

    chosen: LoopChoices = NO_LOOP_CHOICES

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all rows at the insertion point."""
        stored = self.prepare(memory)
        every(self.rows, lambda indices: self.emit_row(memory, stored, *indices), parallel=True)

    def emit_row(
        self, memory: TensorBuffers, stored: set[ir.Value], *indices: ir.Value, limit: ir.Value | None = None
    ) -> None:
        """Emit the row at these indices.

        With `limit`, a multiple of `steps` or the end, emit only the elements before it.
        """
        held: dict[ir.Value, ir.Value] = {}
        for number, walk in enumerate(self.walks):
            sweep = self._sweep(number, memory, stored, held)
            held.update(sweep.emit(indices, parallel=not self.rows, limit=limit if walk.own else None))

    def steps(self, memory: TensorBuffers) -> list[int]:
        """Return the elements that each loop computes at a time."""
        return [self._sweep(i, memory, set(), {}).step for i, walk in enumerate(self.walks) if walk.own]

    def _sweep(
        self, number: int, memory: TensorBuffers, stored: set[ir.Value], held: dict[ir.Value, ir.Value]
    ) -> Sweep:
        walk = self.walks[number]
        return Sweep(
            walk.space, len(self.rows), memory, stored, self.group.machine, walk.reductions, held,
            loop=self._loop(number), chosen=self.chosen,
        )  # fmt: skip

    def _loop(self, number: int) -> int:
        """Return the number by which the vectors of a walk may be chosen: its position among those with a loop."""
        return sum(self._has_loop(walk) for walk in self.walks[:number])

    def _has_loop(self, walk: Walk) -> bool:
        return len(walk.space.extents) > len(self.rows)

    def choices(self) -> ChoiceValues:
        """Return the vectors of the loops, with which they are made again."""
        return describe_vectors(
            [
                choose_vectors(walk.space, self.group.machine, self.chosen, self._loop(i), bool(walk.reductions))
                for i, walk in enumerate(self.walks)
                if self._has_loop(walk)
            ]
        )

    def describe(self) -> dict[str, int | list[int]]:
        return {"rows": list(self.rows), "walks": len(self.walks)}


def plan_rows(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> VectorRowsPlan | Decline:
    """Plan how to compute these blocks row by row."""
    rows = find_rows(group)
    return rows if isinstance(rows, Decline) else VectorRowsPlan(rows.group, rows.rows, rows.walks, choices)


@schedule(target="llvm", priority=PRIORITIES["rows"])
def rows(kernel: Kernel, context: ScheduleContext, choices: LoopChoices = NO_LOOP_CHOICES) -> ir.OpView | Decline:
    """Schedule softmax, normalizations and reductions along the innermost axis row by row, in vectors."""
    return schedule_group(kernel, context, "rows", lambda group: plan_rows(group, choices))
