"""The default rule of collectives, which declines with a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax.collectives import COLLECTIVES
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize(*(operator.OPERATION_NAME for operator in COLLECTIVES))
def refer_to_transports(op: ir.OpView, b: LegalizeBuilder) -> Decline:
    """Decline: prim functions of one rank do not reach the others."""
    return decline("a code generator exchanges tensors between ranks: compile for 'collectives,llvm', or with ranks")


@legalize("relax.to_parts", "relax.from_parts")
def refer_to_ranks(op: ir.OpView, b: LegalizeBuilder) -> Decline:
    """Decline: the pass `shard` divides the model."""
    return decline("the model is divided among ranks: compile it with ranks", ranks=op.ranks)
