"""The pass `merge-composites`: merge adjacent composites of one target into regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.regions import Merger, targets_of
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class MergeComposites(Pass):
    """Gather composites of one target that read each other in region functions, with the attribute `relax.external`.

    A composite joins the regions of those that it reads, unless that would make a cycle: a path that leaves the region
    and comes back. A composite with no such neighbour becomes a region of its own. A region returns all that is read
    outside of it.
    """

    name = "merge-composites"
    contained = True
    target: str = option("", "target whose composites are merged; each in turn when none is named")
    max_nodes: int = option(0, "most operators in a region; 0 for any number")

    def run(self, op: ir.OpView, session: Session) -> None:
        targets = (self.target,) if self.target else tuple(targets_of(op.operation))
        placement = Placement(targets)
        for target in targets:
            Merger(op.operation, target, placement, self.max_nodes).run(session)
        session.notes.append(placement)
