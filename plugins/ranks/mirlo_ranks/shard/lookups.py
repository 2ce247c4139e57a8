"""Lookups in tables divided by rows: a rank's result is zero for rows of other ranks."""

from __future__ import annotations

import numpy as np

from mirlo.extend.passes import OPS, WHOLE, Dim, ShardingRule, TensorType, emit_constant, ir, rebuilt
from mirlo_ranks.shard.constants import AxisRange
from mirlo_ranks.shard.values import RankValues


def look_up(op: ir.Operation, rule: ShardingRule, values: RankValues, part: AxisRange) -> ir.Value:
    """Return a partial sum: the rows that this rank has, and zeros for others."""
    assert rule.looked_up is not None
    number, axis = rule.looked_up
    table, positions = op.operands[number], values.convert(op.operands[rule.positions], WHOLE)
    kind, places = TensorType.from_mlir(table.type), TensorType.from_mlir(positions.type)
    assert kind is not None and places is not None
    session = values.constants.session

    def number_of(value: int) -> ir.Value:
        scalar = TensorType.of((), places.dtype)
        return emit_constant(np.array(value, places.dtype.to_numpy()), scalar, session, "rows")

    if places.dtype.kind == "int":  # a negative position counts from the end
        behind = OPS["add"].make(positions, number_of(kind.static_shape[axis]))
        positions = OPS["where"].make(OPS["less"].make(positions, number_of(0)), behind, positions)
    first, last = number_of(part.begin), number_of(part.begin + part.count - 1)
    is_own = OPS["logical_and"].make(
        OPS["greater_equal"].make(positions, first), OPS["less_equal"].make(positions, last)
    )
    near = OPS["minimum"].make(OPS["maximum"].make(positions, first), last)
    operands = list(op.operands)
    operands[number] = values.constants.take(table, part)
    operands[rule.positions] = OPS["subtract"].make(near, first)
    (rows,) = rebuilt(op, operands, rule)
    result = TensorType.from_mlir(rows.type)
    assert result is not None
    shape: tuple[Dim, ...] = (*[1] * axis, *places.shape, *[1] * (kind.rank - axis - 1))
    zero = emit_constant(np.zeros((), result.dtype.to_numpy()), TensorType.of((), result.dtype), session, "zero")
    chosen: ir.Value = OPS["where"].make(OPS["reshape"].make(is_own, shape=shape), rows, zero)
    return chosen
