"""Tables of constants: rows are selected before they are unpacked or converted."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.fold_constant import FOLDED_GROWTH
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, remade
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.gather", producers=["relax.unpack"])
def packed_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Gather rows of a packed table, and unpack only those."""
    unpack = defining(op.x, "relax.unpack")
    if unpack is None or op.axis % kind_of(op.x).rank == kind_of(op.x).rank - 1:
        return decline("the table is not packed along an axis that stays whole")
    rows = b.emit(OPS["gather"], unpack.x, op.indices, **op.attribute_values())
    return b.emit(OPS["unpack"], rows, dtype=unpack.dtype)


@simplify(Trait.SUBSET, producers=["relax.cast"])
def converted_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Convert only the rows that are read of a constant that is too large to be stored converted."""
    table, *others = op.operation.operands
    cast = defining(table, "relax.cast")
    if cast is None or not is_constant(cast.x):
        return decline("the table is not a converted constant")
    growth = kind_of(table).bytes - kind_of(cast.x).bytes
    if growth <= FOLDED_GROWTH:
        return decline("constant folding converts the table", growth=growth)
    return remade(cast, [remade(op, [cast.x, *others], b)], b)


@simplify("relax.gather")
def computed_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Compute only the rows that are read of a table that is computed from constants, such as codes times scales."""
    owner = op.x.owner
    if isinstance(owner, ir.Block) or Trait.ELEMENTWISE not in traits_of(owner.opview):
        return decline("no elementwise operator computes the table")
    table, operands = kind_of(op.x), list(owner.operands)
    if not table.is_static or len(operands) < 2 or not all(map(_is_of_constants, operands)):
        return decline("the table is not computed from several constants")
    axis = op.axis % table.rank
    growth = table.bytes - sum(kind_of(value).bytes for value in operands if is_constant(value))
    if growth <= FOLDED_GROWTH:
        return decline("constant folding computes the table", growth=growth)
    if table.static_shape[axis] == 1:
        return decline("the table has one row")
    rows: list[ir.Value] = []
    for value in operands:
        kind = kind_of(value)
        missing = table.rank - kind.rank
        along = 1 if axis < missing else kind.static_shape[axis - missing]
        if along != 1:
            if missing:
                return decline("an operand has fewer dims than the table", operand=str(kind))
            value = b.emit(OPS["gather"], value, op.indices, axis=axis)
        elif any(dim != 1 for dim in kind.static_shape[: max(axis - missing, 0)]):
            return decline("an operand has dims before the axis, and not the axis", operand=str(kind), axis=axis)
        rows.append(value)
    return remade(owner.opview, rows, b)


@simplify("relax.gather", producers=["relax.dequantize"])
def dequantized_table(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Dequantize only the rows that are read of a quantized table, whose scales are not those of rows."""
    dequantize = defining(op.x, "relax.dequantize")
    if dequantize is None or not is_constant(dequantize.x):
        return decline("the table is not a quantized constant")
    table, scale = kind_of(op.x), kind_of(dequantize.scale)
    growth = table.bytes - kind_of(dequantize.x).bytes
    if growth <= FOLDED_GROWTH:
        return decline("constant folding dequantizes the table", growth=growth)
    axis, scaled = op.axis % table.rank, dequantize.axis % table.rank
    is_whole = scale.static_shape in ((), (1,))
    if dequantize.block or (scaled == axis and not is_whole):
        return decline("its rows have scales of their own, or there are blocks", axis=axis, block=dequantize.block)
    rows = b.emit(OPS["gather"], dequantize.x, op.indices, **op.attribute_values())
    behind = kind_of(op.indices).rank - 1 if scaled > axis else 0
    values = [rows, *list(dequantize.operation.operands)[1:]]
    return remade(dequantize, values, b, axis=0 if is_whole else scaled + behind)


def _is_of_constants(value: ir.Value) -> bool:
    """Return whether a value is a constant, or computed from constants element by element."""
    if is_constant(value):
        return True
    if isinstance(value.owner, ir.Block) or not kind_of(value).is_static:
        return False
    owner = value.owner.opview
    is_computed = Trait.ELEMENTWISE in traits_of(owner) or defining(value, "relax.cast") is not None
    return is_computed and all(map(_is_of_constants, value.owner.operands))
