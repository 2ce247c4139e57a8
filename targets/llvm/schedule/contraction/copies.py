"""Copies of operands with a border, or converted to what a tile multiplies, as loops of the tree."""

from __future__ import annotations

from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import widened
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.primitives.convert import CopyConversion
from mirlo.passes.schedule.primitives.group_plan import schedule_of
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.grouped import prepared_rows
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiled import arrange_copy, padded_dims


@dataclass(frozen=True)
class OperandCopies:
    """The copies that a plan reads in place of operands."""

    arranged: Schedule
    copies: dict[int, str]
    """The blocks that copy, by the identity of their operands."""
    conversions: dict[str, CopyConversion]
    """What copies have in place of the elements of operands."""

    def emit(self, memory: TensorBuffers) -> dict[int, ir.Value]:
        """Emit the copies; return their memory by the identity of their operands."""
        if not self.copies:
            return {}
        converted = {copy: self.conversions.get(copy) for copy in self.copies.values()}
        buffers = self.arranged.emit_copies(converted, memory)
        return dict(zip(self.copies, buffers, strict=True))


def plan_copies(group: BlockGroup[Machine], plan: RegisterTilePlan) -> OperandCopies | Decline:
    """Arrange the copies of the operands of a plan."""
    s = schedule_of(group)
    copies: dict[int, str] = {}
    conversions: dict[str, CopyConversion] = {}
    block = s.blocks()[0]
    try:
        for side in (plan.rows, plan.columns):
            if side.padded_shape is None and not side.is_converted:
                continue
            buffer = s.reads(block)[side.factor.position]
            copy = s.cache_read(block, buffer) if side.padded_shape is None else s.pad(block, buffer, padded_dims(side))
            arrange_copy(s, copy, plan.lanes * (1 if plan.group is None else plan.group.size))
            if side.is_converted:
                conversions[copy] = _conversion(plan, side)
            copies[id(side)] = copy
    except ScheduleError as error:
        return decline("a copy of an operand has no loops", found=str(error))
    return OperandCopies(s, copies, conversions)


def _conversion(plan: RegisterTilePlan, side: ContractionOperand) -> CopyConversion:
    """Return the type of the elements of a copy, and what emits one."""
    group = plan.group
    if group is None:
        kind = plan.contraction.product.accumulate_type
        return CopyConversion(kind, lambda element: widened(side.factor.emit(element, 1), kind))
    kind = ir.IntegerType.get_signless(16) if group.widens else side.access.element_type
    return CopyConversion(kind, partial(prepared_rows, group))
