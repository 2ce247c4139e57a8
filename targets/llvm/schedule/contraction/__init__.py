"""Schedule of contractions: matrix products and convolutions of every kind, in register tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, deciding, decline, schedule
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.blocks.group import BlockGroup, whole_group
from mirlo.passes.schedule.buffers import CYCLES, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles
from mirlo.targets.llvm.schedule.contraction.matrix_unit import plan_on_matrix_unit
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.tile_leaf import prefetch_bytes
from mirlo.targets.llvm.schedule.contraction.tiled import arrange_contraction
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import ContractionRoles, LoopsAround, TiledContraction
from mirlo.targets.llvm.schedule.part_rules import function_group


def may_have_own_row(plan: TiledContraction) -> bool:
    """Return whether loops of their own may be faster for calls with one row.

    Many rows share a panel whose elements a copy has converted. One row reads it once: its tile converts elements
    where it loads them, and writes no copy.
    """
    side = plan.roles.columns
    is_converted = side.needs_cast(plan.roles.contraction.product.accumulate_type)
    is_contiguous = side.form.stride(plan.roles.lane_axis) == 1
    rows = rows_of(plan.roles)
    is_copied = plan.packing.packs_panels and plan.tile.group is None and is_converted and is_contiguous
    return is_copied and bool(rows) and all(_is_symbol(axis.extent) for axis in rows)


def _is_symbol(extent: Dim) -> bool:
    return D.symbols_of(extent) == {str(extent)}


def rows_of(roles: ContractionRoles) -> list[BlockAxis]:
    """Return the axes of the output that the column operand does not depend on."""
    indexed = {axis for dim in roles.columns.access.dims for axis in dim.terms}
    return [axis for axis in roles.contraction.spatial if axis.id not in indexed]


def arrange_one_row(s: Schedule, plan: TiledContraction, threads: int) -> bool:
    """Arrange loops of their own for one row in the schedule of a function; return whether they are without a copy."""
    count = len(s.trace.calls)
    one = s.specialize([str(axis.extent) for axis in rows_of(plan.roles)], 1)
    group = whole_group(one.view, plan.machine, threads)
    single = plan_tiles(group, _without_tile(plan.choices))
    if not isinstance(single, Decline) and not single.plan.packing.packs_panels:
        try:
            arrange_contraction(one, one.blocks(), single.plan)
            return True
        except ScheduleError:  # no register tile, which `plan_tiles` does not require
            pass
    s.undo(count)
    return False


@dataclass
class VectorContractionPlan:
    """A contraction and its epilogue, planned."""

    group: BlockGroup[Machine]
    plan: TiledContraction
    name = "contraction"

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""
        return 1 + len(self.plan.roles.contraction.stages)

    @cached_property
    def by_primitives(self) -> PrimitivesPlan | Decline:
        """Return the loops as a schedule of primitives."""
        on_unit = plan_on_matrix_unit(self.group, self.plan)
        if not isinstance(on_unit, Decline):
            return on_unit
        return self._arranged()

    @deciding
    def _arranged(self) -> PrimitivesPlan | Decline:
        s = schedule_of(self.group)
        try:
            arrange_contraction(s, s.blocks(), self.plan)
        except ScheduleError as error:
            return decline("its loops make no register tile", found=str(error))
        return PrimitivesPlan(self.group, s, self.name, self.choices(), self.describe())

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the kernel at the insertion point."""
        assert not isinstance(self.by_primitives, Decline), "plan_contraction requires them"
        self.by_primitives.emit(memory)

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the loops; one row may have some of its own."""
        loops = self.by_primitives
        assert not isinstance(loops, Decline), "plan_contraction requires them"
        if may_have_own_row(self.plan) and arrange_one_row(loops.arranged, self.plan, self.group.threads):
            loops = replace(loops, facts={**loops.facts, "one_row": True})
        return loops.schedule()

    def describe(self) -> dict[str, int | list[int] | str]:
        return _summary(self.plan)

    def choices(self) -> ChoiceValues:
        """Return the tile and the order of the loops, with which they are made again."""
        return choice_values(_resolved_choices(self.plan))


def _summary(plan: TiledContraction) -> dict[str, int | list[int] | str]:
    """Return the parameters of the function's schedule attribute."""
    cycles = expected_cycles(plan)
    return {
        "tile": [plan.tile.rows, plan.tile.columns],
        "lanes": plan.tile.lanes,
        "depth": prod(axis.extent for axis in plan.roles.contraction.reduce),
        "dot": plan.tile.dot,
        **({"partial_sums": True} if plan.tile.has_partial_sums else {}),
        "packed": plan.packing.packs_panels,
        **_order(plan.loops),
        **({} if plan.tile.group is None else {"instruction": plan.tile.group.instruction}),
        "padded": plan.roles.rows.padded_shape is not None or plan.roles.columns.padded_shape is not None,
        **({} if cycles is None else {CYCLES: round(cycles)}),
    }


def _order(loops: LoopsAround) -> dict[str, int | bool | str]:
    """Return the order of the loops, if it is not the default one."""
    order, result = loops.order, dict[str, int | bool | str]()
    if order.row_block:
        result["row_block"] = order.row_block
    if order.depth_axis is not None:
        result["depth_block"] = order.depth_block
    if loops.free.swap and order.rows_outside:
        result["rows_outside"] = True
    if order.share is not None:
        result["share"] = ("panels", "rows", "both")[order.share]
    return result


def _resolved_choices(plan: TiledContraction) -> ContractionChoices:
    """Return the choices of a plan, without those that do not apply to it.

    The choice of the loops that threads divide is left out unless it was made: by default it depends on the memory of a
    panel.
    """
    if plan.tile.dot:
        return ContractionChoices(dot=True)
    free, loops = plan.loops.free, plan.loops.order
    is_packed = plan.packing.packs_panels if plan.packing.is_optional else None
    return ContractionChoices(
        plan.tile.rows,
        plan.tile.vectors,
        pack=True if plan.choices.is_packed else is_packed,
        dot=False if plan.tile.may_dot else None,
        rows_outside=loops.rows_outside if free.swap else None,
        row_block=loops.row_block // plan.tile.rows if free.block_rows else None,
        depth_block=loops.depth_block if free.depth_axis is not None else None,
        lead_bytes=prefetch_bytes(plan),
        share=loops.share,
    )


def plan_contraction(
    group: BlockGroup[Machine], choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> VectorContractionPlan | Decline:
    """Plan how to compute these blocks, the first of which is the contraction, in register tiles."""
    result = plan_tiles(group, choices)
    if isinstance(result, Decline):
        return result
    plan, loops = result.plan, result.by_primitives
    if not isinstance(loops, Decline):
        return result
    if not plan.packing.packs_panels or plan.tile.group is not None:
        return loops
    # Windows that skip elements, of which panels have no copies: tiles read them where they are.
    in_place = VectorContractionPlan(group, replace(plan, packing=replace(plan.packing, packs_panels=False)))
    return loops if isinstance(in_place.by_primitives, Decline) else in_place


def plan_tiles(
    group: BlockGroup[Machine], choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> VectorContractionPlan | Decline:
    """Choose the tiles of a contraction, whose loops are arranged when they are needed."""
    plan = plan_of(group.blocks, group.kept, group.machine, choices=choices, threads=group.threads)
    return plan if isinstance(plan, Decline) else VectorContractionPlan(group, plan)


def _without_tile(chosen: ContractionChoices) -> ContractionChoices:
    """Return the choices that do not depend on the number of rows."""
    return ContractionChoices(
        lead_bytes=chosen.lead_bytes, is_packed=chosen.is_packed, has_small_pairs=chosen.has_small_pairs
    )


def _space(kernel: Kernel, context: ScheduleContext) -> list[dict[str, int]]:
    """Return what is worth a measurement for a contraction, the fastest tiles by the machine model first."""
    from mirlo.targets.llvm.schedule.contraction.space import product_space  # for tuning only

    return product_space(kernel, context)


@schedule(target="llvm", priority=100, space=_space, planner=plan_contraction)
def contraction(
    kernel: Kernel, context: ScheduleContext, choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> ir.OpView | Decline:
    """Schedule a contraction and its epilogue in register tiles."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    plan = plan_contraction(group, with_panels(choices, panels_of(kernel.view.op)))
    return plan if isinstance(plan, Decline) else plan.schedule()
