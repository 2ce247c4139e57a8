"""Tables of constants: a part is read before it is unpacked or converted."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.fold_constant import FOLDED_GROWTH
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, remade
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.gather")
def packed_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Gather rows of a packed table, and unpack only those."""
    unpack = defining(op.x, "relax.unpack")
    if unpack is None or op.axis % kind_of(op.x).rank == kind_of(op.x).rank - 1:
        return decline("the table is not packed along an axis that stays whole")
    rows = b.emit(OPS["gather"], unpack.x, op.indices, **op.attribute_values())
    return b.emit(OPS["unpack"], rows, dtype=unpack.dtype)


@simplify(Trait.SUBSET)
def converted_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Convert only what is read of a constant that is too large to be stored converted."""
    table, *others = op.operation.operands
    cast = defining(table, "relax.cast")
    if cast is None or not is_constant(cast.x):
        return decline("the table is not a converted constant")
    growth = kind_of(table).bytes - kind_of(cast.x).bytes
    if growth <= FOLDED_GROWTH:
        return decline("constant folding converts the table", growth=growth)
    return remade(cast, [remade(op, [cast.x, *others], b)], b)
