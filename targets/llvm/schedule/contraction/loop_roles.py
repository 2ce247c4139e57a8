"""The loops of a contraction's schedule, found by the axes of its analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import ContractionRoles


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction, one for each axis; axes of the block that are divided into parts are split."""

    of_axis: Mapping[int, str]
    """The loop of each axis, by its id."""
    units: list[str]
    """Those of one iteration."""
    over: list[str]
    """Those of the reduction, in the order of the rows in memory."""

    def of(self, axes: Sequence[BlockAxis]) -> list[str]:
        """Return the loops that axes consist of, outermost first."""
        return [self.of_axis[part] for axis in axes for part in axis.parts if part in self.of_axis]

    def fuse(self, s: Schedule, axes: Sequence[BlockAxis]) -> list[str]:
        """Return one loop for each axis, fused of those that it consists of."""
        parts = [self.of([axis]) for axis in axes]
        return [s.fuse(*each) if len(each) > 1 else each[0] for each in parts if each]


def loops_of_contraction(s: Schedule, block: str, roles: ContractionRoles) -> ContractionLoops:
    """Return the loops of a contraction; those over columns that are stored as panels are split."""
    loops: dict[int, str] = {}
    for loop, parts in zip(s.loops(block), roles.contraction.parts, strict=True):
        split = s.split(loop, (None, *(part.extent for part in parts[1:]))) if len(parts) > 1 else [loop]
        loops |= {part.id: each for part, each in zip(parts, split, strict=False)}
    units = [loop for loop in s.loops(block) if loop not in loops.values()]
    over = [loops[axis.id] for axis in roles.order]
    if not over:
        over = [loop for loop in units if s.kinds(block)[loop] == "reduce"][-1:]
        units = [loop for loop in units if loop not in over]
    return ContractionLoops(loops, units, over)


def take_groups(
    s: Schedule, block: str, loops: ContractionLoops, group: DotGroup | None
) -> tuple[list[str], list[str]]:
    """Return the loops of the reduction, and that over the elements of a group that one instruction multiplies."""
    if group is None:
        return loops.over, []
    if not group.is_stored:
        *over, inner = loops.over
        return [*over, *s.split(inner, (None, group.size))][:-1], s.loops(block)[-1:]
    *over, element = loops.over
    if s.extent(element) != group.size:
        raise ScheduleError(f"groups of K are not the innermost loop of the columns, of {s.extent(element)} elements")
    over = over or [loop for loop in loops.units if s.kinds(block)[loop] == "reduce"][-1:]
    if not over:
        unit, element = s.split(element, (1, group.size))
        over = [unit]
    return over, [element]
