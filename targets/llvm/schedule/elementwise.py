"""Elementwise blocks: one loop nest over all elements, vectorized along the output's unit stride.

If a condition on an index selects what is read (concatenation, padding), the loops are cut so that it is constant
within each part. An operand whose unit stride is along another loop is transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, deciding, schedule
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, elementwise_space, written_along
from mirlo.passes.schedule.blocks.space import Space, computed_values, merge_all
from mirlo.targets.llvm.choices import NO_ELEMENTWISE_CHOICES, ElementwiseChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import TRANSPOSE_ALIGNMENT
from mirlo.targets.llvm.schedule.group import schedule_group
from mirlo.targets.llvm.schedule.interleaved import InterleavedSweep, is_interleaved
from mirlo.targets.llvm.schedule.movement import TransposedAccess, TransposedSweep, find_transposed
from mirlo.targets.llvm.schedule.priorities import PRIORITIES
from mirlo.targets.llvm.schedule.runs import Runs, RunsSweep, find_runs
from mirlo.targets.llvm.schedule.subspaces import along, split_at_conditions
from mirlo.targets.llvm.schedule.sweep import Sweep, choose_vectors, describe_vectors

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@dataclass(frozen=True)
class VectorLoop:
    """A part of the space that is computed in vectors along the output."""

    space: Space
    loop: int | None
    """The number by which its vectors may be chosen; None for a part too thin for contiguous stores."""


@dataclass
class ElementwisePlan:
    group: BlockGroup[Machine]
    spaces: list[Space]
    """The parts of the iteration space."""
    chosen: ElementwiseChoices = NO_ELEMENTWISE_CHOICES

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all parts at the insertion point."""
        stored, machine = self.stored(), self.group.machine
        memory.touch([instance for space in self.spaces for instance in space.instances], stored)
        for part in self.parts:
            if isinstance(part, VectorLoop):
                lanes = 1 if part.loop is None else None
                sweep = Sweep(part.space, 0, memory, stored, machine, lanes=lanes, loop=part.loop, chosen=self.chosen)
                sweep.emit([], parallel=True)
                continue
            computed = computed_values(part.space.instances)
            if isinstance(part, Runs):
                RunsSweep(part, memory, computed, stored, machine).emit()
                continue
            if is_interleaved(part, stored):
                InterleavedSweep(part, memory, computed, stored, machine, self.chosen).emit()
            else:
                number = self.transposed.index(part)
                TransposedSweep(part, memory, computed, stored, machine, self.chosen, number).emit()

    @cached_property
    def parts(self) -> list[VectorLoop | Runs | TransposedAccess]:
        """Return what is emitted, in order."""
        result: list[VectorLoop | Runs | TransposedAccess] = []
        for space in self.spaces:
            transposed = self._transposed_access(space)
            if transposed is None:
                result.append(self._in_vectors(space, result))
                continue
            # Each tile reads only the operand of a concatenation that it needs, instead of transposing all of them.
            for part in along(transposed.space, len(space.extents) - 1, TRANSPOSE_ALIGNMENT):
                result.append(self._transposed_access(part) or self._in_vectors(part, result))
        return result

    def _transposed_access(self, space: Space) -> TransposedAccess | None:
        transposed = find_transposed(space, set(self.group.made), self.group.machine)
        return None if transposed is None or _storable(transposed.space, self.group) is not None else transposed

    def _in_vectors(self, space: Space, before: Sequence[object]) -> Runs | VectorLoop:
        runs = find_runs(space, set(self.group.made), self.group.machine)
        if runs is not None and _storable(runs.space, self.group) is None:
            return runs
        number = sum(isinstance(part, VectorLoop) and part.loop is not None for part in before)
        # A part too thin for contiguous stores is written element by element.
        return VectorLoop(space, number if space.extents and _storable(space, self.group) is None else None)

    @cached_property
    def transposed(self) -> list[TransposedAccess]:
        """Return the parts that are transposed in tiles."""
        stored = self.stored()
        return [part for part in self.parts if isinstance(part, TransposedAccess) and not is_interleaved(part, stored)]

    def choices(self) -> ChoiceValues:
        """Return the vectors of the loops and the tiles of transposes, with which they are made again."""
        loops = [part for part in self.parts if isinstance(part, VectorLoop) and part.loop is not None]
        machine, stored = self.group.machine, self.stored()
        result = describe_vectors([choose_vectors(part.space, machine, self.chosen, part.loop) for part in loops])
        tiles = [
            TransposedSweep(part, None, {}, stored, machine, self.chosen, i) for i, part in enumerate(self.transposed)
        ]
        others = any(isinstance(part, TransposedAccess) and part not in self.transposed for part in self.parts)
        if others:  # by default, interleaved vectors have two unroll factors
            result = {**choice_values(ElementwiseChoices(unroll=self.chosen.unroll)), **result}
        shapes = ElementwiseChoices(
            transposed_rows=tuple(tile.rows for tile in tiles), transposed_columns=tuple(tile.columns for tile in tiles)
        )
        return {**result, **choice_values(shapes)}

    def describe(self) -> dict[str, int]:
        return {"pieces": len(self.spaces)}

    def stored(self) -> set[ir.Value]:
        return {value for value in self.group.made if value in self.group.kept}


@deciding
def plan_elementwise(
    group: BlockGroup[Machine], choices: ElementwiseChoices = NO_ELEMENTWISE_CHOICES
) -> ElementwisePlan | Decline:
    """Plan how to compute these blocks in one loop nest."""
    space = elementwise_space(group)
    if isinstance(space, Decline):
        return space
    space = _ordered(space, group)
    last = len(space.extents) - 1
    cut = split_at_conditions(space, range(last - 1, -1, -1), last + 1)
    spaces = [merge_all(piece.drop_units(), 0) for piece in cut]
    refusals = [_storable(space, group) for space in spaces]
    if refusals[0] is not None and all(refusals):
        return refusals[0]
    return ElementwisePlan(group, spaces, choices)


def _ordered(space: Space, group: BlockGroup[Machine]) -> Space:
    """Order the loops as the output's memory."""
    written = [(p, o) for p in space.instances for o in p.block.outputs]
    instance, output = next((item for item in written if item[1].value in group.kept), written[-1])
    return space.order_by_stride(instance.flat(output))


def _storable(space: Space, group: BlockGroup[Machine]) -> Decline | None:
    return written_along(space, len(space.extents) - 1, group.kept) if space.extents else None


@schedule(target="llvm", priority=PRIORITIES["elementwise"])
def elementwise(
    kernel: Kernel, context: ScheduleContext, choices: ElementwiseChoices = NO_ELEMENTWISE_CHOICES
) -> Decline | ir.OpView:
    """Schedule elementwise computations, copies and gathers in vectors along the output's unit stride."""
    return schedule_group(kernel, context, "elementwise", lambda group: plan_elementwise(group, choices))
