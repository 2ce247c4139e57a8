"""Packed weights: operators that move whole rows come before the weights are unpacked."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.gather")
def packed_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Gather rows of a packed table, and unpack only those."""
    unpack = defining(op.x, "relax.unpack")
    if unpack is None or op.axis % kind_of(op.x).rank == kind_of(op.x).rank - 1:
        return decline("the table is not packed along an axis that stays whole")
    rows = b.emit(OPS["gather"], unpack.x, op.indices, **op.attribute_values())
    return b.emit(OPS["unpack"], rows, dtype=unpack.dtype)
