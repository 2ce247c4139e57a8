"""The loops of a contraction's schedule by role: over panels, columns, rows, and the reduction."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    ContractionRoles,
    TiledContraction,
)


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction by role, outermost first."""

    units: list[str]
    """Those of one iteration."""
    panels: list[str]
    """Those that the columns depend on, other than the columns of a panel."""
    lane: str
    """Over the columns of a panel."""
    rows: list[str]
    over: list[str]
    """Those of the reduction, in the order of the rows in memory."""
    row_operand: int
    column_operand: int


def loops_of_contraction(s: Schedule, block: str, roles: ContractionRoles) -> ContractionLoops:
    """Sort the loops of a contraction by role; loops over columns stored as panels are split."""
    own = s.loops(block)
    while divisors := s.divisors(block, uneven=True):  # n // 32, n % 32
        for loop, divisor in divisors.items():
            s.split(loop, (None, divisor))
    kinds = s.kinds(block)
    units = [loop for loop in kinds if s.extent(loop) == 1]
    others = [loop for loop in s.memory_order(block) if kinds[loop] == "spatial" and loop not in units]
    # Results of an epilogue may be in another order than those of the block.
    axis = roles.contraction.sources.get(roles.lane_axis.id)
    lane = own[axis] if axis is not None and own[axis] in others else others[-1] if others else s.add_unit_loop(block)
    others = [loop for loop in others if loop != lane]
    steps = s.steps(block)
    sides = (0, len(steps[lane]) - 1)  # one operand may be both factors
    moved = [sum(not is_zero(steps[loop][side]) for loop in others) for side in sides]
    along = [not is_zero(steps[lane][side]) for side in sides]
    w, x = sides if not along[1] or along[0] and moved[1] > moved[0] else sides[::-1]
    over = [loop for loop in kinds if kinds[loop] == "reduce" and loop not in units]
    if not over:
        over = [loop for loop in units if kinds[loop] == "reduce"][-1:]
        units = [loop for loop in units if loop not in over]
    over.sort(key=lambda loop: -abs(D.estimate_dim(0 if (step := steps[loop][x]) is None else step)))
    rows = [loop for loop in others if is_zero(steps[loop][w])]
    return ContractionLoops(units, [loop for loop in others if loop not in rows], lane, rows, over, x, w)


def is_zero(step: Dim | None) -> bool:
    """Return whether an access stays where it is along a loop; a step that only the run time knows moves it."""
    return isinstance(step, int) and step == 0


def take_row_loop(s: Schedule, block: str, loops: ContractionLoops, plan: TiledContraction) -> str:
    """Take the loop over the rows of tiles out of those over rows, or over panels where rows have own columns.

    Loops are fused as far as the plan's are: where an epilogue needs the index of one of them, they are not.
    """
    if plan.tile.row_axis is None:
        loops.rows[:] = fuse_contiguous(s, block, loops.rows)
        return s.add_unit_loop(block)
    row = _loop_of_rows(s, block, loops, plan)
    for group in (loops.rows, loops.panels):
        if row is None:
            group[:] = fuse_contiguous(s, block, group)
            row = _loop_of_rows(s, block, loops, plan)
    if row is None:
        raise ScheduleError(f"no loop over {plan.tile.row_axis.extent} rows moves along the rows of a tile")
    (loops.rows if row in loops.rows else loops.panels).remove(row)
    loops.rows[:] = fuse_contiguous(s, block, loops.rows)
    return row


def _loop_of_rows(s: Schedule, block: str, loops: ContractionLoops, plan: TiledContraction) -> str | None:
    """Return the innermost loop over rows, or else over panels, that moves along the rows of a tile."""
    axis, steps = plan.tile.row_axis, s.steps(block)
    assert axis is not None
    for loop in (*reversed(loops.rows), *reversed(loops.panels)):
        if s.extent(loop) == axis.extent and steps[loop][loops.row_operand] == plan.roles.rows.form.stride(axis):
            return loop
    return None


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
