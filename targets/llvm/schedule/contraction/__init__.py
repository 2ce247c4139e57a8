"""Schedule of contractions: matrix products and convolutions of every kind, in register tiles."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, schedule
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices, panels_of, with_panels
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.kernel import ContractionEmitter, summary
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.resolved import resolved_choices
from mirlo.targets.llvm.schedule.group import schedule_group
from mirlo.targets.llvm.schedule.priorities import PRIORITIES


@dataclass
class VectorContractionPlan:
    """A contraction and its epilogue, planned."""

    plan: RegisterTilePlan

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the kernel at the insertion point."""
        ContractionEmitter(self.plan, memory).emit()

    def describe(self) -> dict[str, int | list[int] | str]:
        return summary(self.plan)

    def choices(self) -> ChoiceValues:
        """Return the tile and the order of the loops, with which they are made again."""
        return choice_values(resolved_choices(self.plan))


def plan_contraction(
    group: BlockGroup[Machine], choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> VectorContractionPlan | Decline:
    """Plan how to compute these blocks, the first of which is the contraction, in register tiles."""
    plan = plan_of(group.blocks, group.kept, group.machine, choices=choices)
    return plan if isinstance(plan, Decline) else VectorContractionPlan(plan)


@schedule(target="llvm", priority=PRIORITIES["contraction"])
def contraction(
    kernel: Kernel, context: ScheduleContext, choices: ContractionChoices = NO_CONTRACTION_CHOICES
) -> ir.OpView | Decline:
    """Schedule a contraction and its epilogue in register tiles."""
    choices = with_panels(choices, panels_of(kernel.view.op))
    return schedule_group(kernel, context, "contraction", lambda group: plan_contraction(group, choices))
