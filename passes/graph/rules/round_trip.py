"""Integers that are dequantized, moved or compared, and quantized with the same scale."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, only_use
from mirlo.passes.rules import Decline, combine, decline

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-100, 2.0**100
"""Scales whose products with integers of 8 bits are normal in f32: dividing by them restores the integers."""


@combine("relax.quantize")
def round_trip(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Move integers, or take their maxima, where they are dequantized and quantized with the same scale."""
    moves, value = [], op.x
    while (move := _move(value)) is not None:
        moves.append(move)
        value = move.x
    source = defining(value, "relax.dequantize")
    if source is None or not moves:
        return decline("it is not the quantization of dequantized values in another shape or order, or of their maxima")
    if kind_of(source.x).dtype is not op.dtype or op.dtype.bits > 8 or op.block or source.block:
        return decline("the integers have another type", dequantized=str(kind_of(source.x)), quantized=str(op.dtype))
    is_byte = op.dtype.is_integer and op.dtype.bits == 8
    if not is_byte and any(move.operation.name == "relax.max_pool" for move in moves):
        return decline("maxima are taken of int8 only", quantized=str(op.dtype))
    first, second = _scaling(op, b), _scaling(source, b)
    if first is None or second is None:
        return decline("the scale or zero point is computed at run time, or differs along an axis")
    if first != second or not SMALLEST_SCALE <= first[0] <= LARGEST_SCALE:
        return decline("the scales or zero points differ", quantized=first, dequantized=second)
    result: ir.Value = source.x
    for move in reversed(moves):
        if move.operation.name == "relax.reshape":
            result = b.emit(OPS["reshape"], result, shape=kind_of(move.operation.results[0]).shape)
        else:
            result = b.emit(OPS[move.operation.name.removeprefix("relax.")], result, **move.attribute_values())
    return result


def _move(value: ir.Value) -> ir.OpView | None:
    """Return the operator, if there is one, that moved or selected values without a change.

    The largest value of a window is that of the largest integer: scales are positive.
    """
    pool = defining(value, "relax.max_pool")
    if pool is not None:
        return pool if only_use(value) else None
    return defining(value, "relax.reshape") or defining(value, "relax.permute")


def _scaling(op: ir.OpView, b: Rewriter) -> tuple[float, int] | None:
    """Return the scale and the zero point of an operator; None if they are not single constants."""
    scale, zero = b.array(op.scale), np.zeros(1, np.int64) if op.zero_point is None else b.array(op.zero_point)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
