"""Schedule of contractions: matrix products and convolutions of every kind, in register tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, schedule
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.parts import planned_by
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.copies import OperandCopies, plan_copies
from mirlo.targets.llvm.schedule.contraction.kernel import ContractionEmitter, summary
from mirlo.targets.llvm.schedule.contraction.matrix_unit import plan_on_matrix_unit
from mirlo.targets.llvm.schedule.contraction.one_row import plan_one_row, rows_of
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.space import product_space
from mirlo.targets.llvm.schedule.contraction.stream import prefetch_bytes
from mirlo.targets.llvm.schedule.contraction.tiled import plan_of_primitives
from mirlo.targets.llvm.schedule.group import function_group


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
        on_unit = plan_on_matrix_unit(self.group, self.plan)
        if not isinstance(on_unit, Decline):
            return on_unit
        return plan_of_primitives(self.group, self.plan, self.choices(), self.describe())

    @cached_property
    def copies(self) -> OperandCopies | Decline:
        """Return the copies of operands, where the loops are no schedule of primitives."""
        return plan_copies(self.group, self.plan)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the kernel at the insertion point."""
        if not isinstance(self.by_primitives, Decline):
            self.by_primitives.emit(memory)
            return
        assert not isinstance(self.copies, Decline), "plan_contraction requires them"
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
        return {**summary(self.plan), **apart}

    def choices(self) -> ChoiceValues:
        """Return the tile and the order of the loops, with which they are made again."""
        return choice_values(_resolved_choices(self.plan))


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


@schedule(target="llvm", priority=100, space=product_space)
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
