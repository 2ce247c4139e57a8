"""The pass `view-rows`: a slice of a constant at a position that is known at run time stays where it is.

    %1 = relax.constant {param = "w"} : tensor<8x4x2xf32>
    %2 = relax.gather(%1, %0) : (tensor<8x4x2xf32>, tensor<i64>) -> tensor<4x2xf32>
becomes
    %2 = relax.view_row(%1, %0) : (tensor<8x4x2xf32>, tensor<i64>) -> tensor<4x2xf32>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, replace_op
from mirlo.dialects.relax.calls import ViewRow
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.locations import names_of
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import PassDecision
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class ViewRows(Pass):
    """Replace `gather` at one position along the first dim of a parameter by a view of that slice.

    So the weights of an expert are read where they are, and packed as those of a product that always reads the same.
    """

    name = "view-rows"
    keeps_layers = True
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        for block in blocks(op):
            for operation in [each.operation for each in block.operations if each.operation.name == "relax.gather"]:
                outcome = _view(operation)
                if isinstance(outcome, Decline):
                    nodes = tuple(names_of(operation.location))
                    session.notes.append(PassDecision(self.name, outcome, nodes))


def _view(op: ir.Operation) -> Decline | None:
    """Replace a `gather` at one position of a parameter by a view; None for others, and if it was replaced."""
    gather = op.opview
    if gather.indices.type.shape or is_constant(gather.indices) or not is_constant(gather.x):
        return None
    if gather.x.owner.opview.param is None:
        return decline("the constant is in the code")
    if gather.axis % len(gather.x.type.shape):
        return decline("the slice is not contiguous", axis=gather.axis)
    if gather.x.type.shape[0] == 0:
        return decline("there are no slices")
    with ir.InsertionPoint(op), op.location:
        view = ViewRow.make(gather.x, gather.indices)
    replace_op(op, [view])
    return None
