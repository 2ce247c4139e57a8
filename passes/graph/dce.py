"""The pass `remove-dead`: dead code elimination of pure operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import is_graph_operation
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import blocks, erase_dead
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


def is_pure_relax(op: ir.Operation | ir.OpView) -> bool:
    """Return whether an operation is a pure operator of graphs, of relax or of a plug-in."""
    name = op.name
    return (name.startswith("relax.") or is_graph_operation(name)) and class_of(op).PURE


@register_pass
@dataclass(frozen=True)
class RemoveDead(Pass):
    """Erase pure relax operators whose results have no users."""

    name = "remove-dead"
    contained = True
    trusted = True
    anchor = "func.func"

    def run(self, op: ir.OpView, session: Session) -> None:
        for block in reversed(blocks(op)):
            erase_dead(block, is_pure_relax)
