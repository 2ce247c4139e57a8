"""Schedule of contractions: matrix products and convolutions of every kind, in register tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import compare, index
from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, TensorAccess
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import CYCLES, BufferFunction, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.parts import planned_by
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles
from mirlo.targets.llvm.schedule.contraction.matrix_unit import plan_on_matrix_unit
from mirlo.targets.llvm.schedule.contraction.plan import plan_of, plan_register_tile
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import prefetch_bytes
from mirlo.targets.llvm.schedule.contraction.tiled import plan_of_primitives
from mirlo.targets.llvm.schedule.part_rules import function_group

if TYPE_CHECKING:
    from mirlo.targets.llvm.schedule.contraction.copies import OperandCopies


def plan_one_row(plan: RegisterTilePlan) -> RegisterTilePlan | None:
    """Plan calls with one row apart, or return None if the same kernel suits them.

    Many rows share a panel whose elements a copy has converted. One row reads it once: its tile converts elements
    where it loads them, and writes no copy.
    """
    side = plan.columns
    is_converted = side.needs_cast(plan.contraction.product.accumulate_type)
    is_contiguous = side.form.stride(plan.lane_axis) == 1
    if plan.packing is None or plan.group is not None or not (is_converted and is_contiguous):
        return None
    rows = rows_of(plan)
    if not rows or any(isinstance(axis.extent, int) for axis in rows):
        return None
    chosen = plan.choices
    choices = ContractionChoices(
        lead_bytes=chosen.lead_bytes, is_packed=chosen.is_packed, has_small_pairs=chosen.has_small_pairs
    )
    single = plan_register_tile(_without(plan.contraction, {axis.id for axis in rows}), plan.machine, choices=choices)
    return None if isinstance(single, Decline) or single.packing is not None else single


def rows_of(plan: RegisterTilePlan) -> list[LoopAxis]:
    """Return the axes of the output that the column operand does not depend on."""
    indexed = {axis for dim in plan.columns.access.dims for axis in dim.terms}
    return [axis for axis in plan.contraction.spatial if axis.id not in indexed]


def _without(contraction: Contraction, axes: Collection[int]) -> Contraction:
    """Return a contraction without axes that have one iteration."""

    def first(dims: Sequence[IndexExpr]) -> list[IndexExpr]:
        return [
            IndexExpr({axis: step for axis, step in dim.terms.items() if axis not in axes}, dim.constant)
            for dim in dims
        ]

    def access(each: TensorAccess) -> TensorAccess:
        return replace(each, dims=first(each.dims))

    stages = [
        replace(
            stage,
            indices=first(stage.indices),
            reads=[None if read is None else access(read) for read in stage.reads],
        )
        for stage in contraction.stages
    ]
    return replace(
        contraction,
        lhs=access(contraction.lhs),
        rhs=access(contraction.rhs),
        axes=[axis for axis in contraction.axes if axis.id not in axes],
        stages=stages,
        sources={axis: source for axis, source in contraction.sources.items() if axis not in axes},
        writes=[(value, access(each)) for value, each in contraction.writes],
    )


@dataclass
class VectorContractionPlan:
    """A contraction and its epilogue, planned."""

    group: BlockGroup[Machine]
    plan: RegisterTilePlan
    one_row: RegisterTilePlan | None = None
    """The plan of calls with one row, if it is another one."""
    name = "contraction"

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""
        return 1 + len(self.plan.contraction.stages)

    @cached_property
    def by_primitives(self) -> PrimitivesPlan | Decline:
        """Return the loops as a schedule of primitives."""
        if self.one_row is not None:
            return decline("calls with one row have a kernel of their own")
        on_unit = plan_on_matrix_unit(self.group, self.plan)
        if not isinstance(on_unit, Decline):
            return on_unit
        return plan_of_primitives(self.group, self.plan, self.choices(), self.describe())

    @cached_property
    def copies(self) -> OperandCopies | Decline:
        """Return the copies of operands, where the loops are no schedule of primitives."""
        from mirlo.targets.llvm.schedule.contraction.copies import plan_copies  # primitives take most contractions

        return plan_copies(self.group, self.plan)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the kernel at the insertion point."""
        if not isinstance(self.by_primitives, Decline):
            self.by_primitives.emit(memory)
            return
        assert not isinstance(self.copies, Decline), "plan_contraction requires them"
        # Imported here: primitives take most contractions, and the loops of the others are ten modules.
        from mirlo.targets.llvm.schedule.contraction.copies import plan_copies
        from mirlo.targets.llvm.schedule.contraction.kernel import ContractionEmitter

        copies = self.copies.emit(memory)
        emitter = ContractionEmitter(self.plan, memory, copies)
        if self.one_row is None:
            emitter.emit()
            return
        own = plan_copies(self.group, self.one_row)
        assert not isinstance(own, Decline), "it copies no other operands than the plan of all rows"
        is_shared = self.plan.rows.is_converted and self.one_row.rows.is_converted
        of_row = {id(self.one_row.rows): copies[id(self.plan.rows)]} if is_shared else own.emit(memory)
        one_row = ContractionEmitter(self.one_row, memory, of_row)
        one_row.prepare()
        emitter.prepare()
        count = index(D.product([axis.extent for axis in rows_of(self.plan)]))
        either(compare("eq", count, index(1)), one_row.emit_loops, emitter.emit_loops)

    def describe(self) -> dict[str, int | list[int] | str]:
        one_row = self.one_row
        apart = {} if one_row is None else {"one_row": [one_row.tile_rows, one_row.tile_columns]}
        return {**_summary(self.plan), **apart}

    def choices(self) -> ChoiceValues:
        """Return the tile and the order of the loops, with which they are made again."""
        return choice_values(_resolved_choices(self.plan))


def _summary(plan: RegisterTilePlan) -> dict[str, int | list[int] | str]:
    """Return the parameters of the function's schedule attribute."""
    cycles = expected_cycles(plan)
    return {
        "tile": [plan.tile_rows, plan.tile_columns],
        "lanes": plan.lanes,
        "depth": prod(axis.extent for axis in plan.contraction.reduce),
        "dot": plan.dot,
        "packed": plan.packing is not None,
        **_order(plan),
        **({} if plan.group is None else {"instruction": plan.group.instruction}),
        "padded": plan.rows.padded_shape is not None or plan.columns.padded_shape is not None,
        **({} if cycles is None else {CYCLES: round(cycles)}),
    }


def _order(plan: RegisterTilePlan) -> dict[str, int | bool | str]:
    """Return the order of the loops, if it is not the default one."""
    loops = plan.order_of_loops
    result: dict[str, int | bool | str] = {}
    if loops.row_block:
        result["row_block"] = loops.row_block
    if loops.depth_axis is not None:
        result["depth_block"] = loops.depth_block
    if plan.free.swap and loops.rows_outside:
        result["rows_outside"] = True
    if loops.share is not None:
        result["share"] = ("panels", "rows", "both")[loops.share]
    return result


def _resolved_choices(plan: RegisterTilePlan) -> ContractionChoices:
    """Return the choices of a plan, without those that do not apply to it.

    The choice of the loops that threads divide is left out unless it was made: by default it depends on the memory of a
    panel.
    """
    if plan.dot:
        return ContractionChoices(dot=True)
    free, loops = plan.free, plan.order_of_loops
    is_packed = plan.packing is not None if plan.may_pack else None
    return ContractionChoices(
        plan.tile_rows,
        plan.tile_vectors,
        pack=True if plan.choices.is_packed else is_packed,
        dot=False if plan.may_dot else None,
        rows_outside=loops.rows_outside if free.swap else None,
        row_block=loops.row_block // plan.tile_rows if free.block_rows else None,
        depth_block=loops.depth_block if free.depth_axis is not None else None,
        lead_bytes=prefetch_bytes(plan),
        share=loops.share,
    )


def plan_contraction(
    group: BlockGroup[Machine], choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> VectorContractionPlan | Decline:
    """Plan how to compute these blocks, the first of which is the contraction, in register tiles."""
    plan = plan_of(group.blocks, group.kept, group.machine, choices=choices, threads=group.threads)
    if isinstance(plan, Decline):
        return plan
    result = VectorContractionPlan(group, plan, plan_one_row(plan))
    if isinstance(result.by_primitives, Decline) and (other := _for_generator(plan)) is not plan:
        result = VectorContractionPlan(group, other, plan_one_row(plan))
    if plan.rows.edge is not None and isinstance(result.by_primitives, Decline):
        return result.by_primitives
    if isinstance(result.by_primitives, Decline) and isinstance(result.copies, Decline):
        return result.copies
    return result


def _for_generator(plan: RegisterTilePlan) -> RegisterTilePlan:
    """Return a plan without blocks of K and panels of extended integers, which are schedules of primitives only."""
    if plan.order_of_loops.depth_axis is not None:
        plan = replace(plan, order_of_loops=replace(plan.order_of_loops, depth_axis=None, depth_block=0))
    if plan.packing is not None and plan.group is not None and plan.group.is_stored:
        plan = replace(plan, packing=None)
    return plan


def _space(kernel: Kernel, context: ScheduleContext) -> list[dict[str, int]]:
    """Return what is worth a measurement for a contraction, the fastest tiles by the machine model first."""
    from mirlo.targets.llvm.schedule.contraction.space import product_space  # for tuning only

    return product_space(kernel, context)


@schedule(target="llvm", priority=100, space=_space)
@planned_by(plan_contraction)
def contraction(
    kernel: Kernel, context: ScheduleContext, choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> ir.OpView | Decline:
    """Schedule a contraction and its epilogue in register tiles."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    plan = plan_contraction(group, with_panels(choices, panels_of(kernel.view.op)))
    if isinstance(plan, Decline):
        return plan
    if not isinstance(plan.by_primitives, Decline):
        return plan.by_primitives.schedule()
    buffers, facts = BufferFunction(kernel.view), {"rule": "contraction", **plan.describe()}
    return buffers.build(lambda: plan.emit(TensorBuffers(buffers)), facts, plan.choices())
