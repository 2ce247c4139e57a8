"""Exchange between the threads of a warp by shuffles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import gpu, ir
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.targets.gpu.schedule.exchange import Combine, SharedExchange
from mirlo.targets.gpu.schedule.launch import WARP, split


def of_neighbour(value: ir.Value, distance: int) -> ir.Value:
    """Return the value of the thread whose lane number differs in this bit."""
    i32 = ir.IntegerType.get_signless(32)
    kind = value.type
    if kind == i32 or isinstance(kind, ir.F32Type):
        mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
        shuffle = gpu.ShuffleOp(value, emit_constant(distance, i32), emit_constant(WARP, i32), mode)
        return shuffle.operation.results[0]
    width = kind.width
    bits = ir.IntegerType.get_signless(width)
    number = create("arith.bitcast", bits, value) if isinstance(kind, ir.FloatType) else value
    if width < 32:
        moved = of_neighbour(create("arith.extui", i32, number), distance)
        number = create("arith.trunci", bits, moved)
    else:
        low = of_neighbour(create("arith.trunci", i32, number), distance)
        by = emit_constant(32, bits)
        high = of_neighbour(create("arith.trunci", i32, create("arith.shrui", bits, number, by)), distance)
        high = create("arith.shli", bits, create("arith.extui", bits, high), by)
        number = create("arith.ori", bits, high, create("arith.extui", bits, low))
    return create("arith.bitcast", kind, number) if isinstance(kind, ir.FloatType) else number


def of_warp(value: ir.Value) -> Value:
    """Mark an index as uniform across a warp, for the assembler."""
    i32 = ir.IntegerType.get_signless(32)
    number = create("arith.index_cast", i32, value)
    mode = ir.Attribute.parse("#gpu<shuffle_mode idx>")
    shuffle = gpu.ShuffleOp(number, emit_constant(0, i32), emit_constant(WARP, i32), mode)
    return create("arith.index_cast", value.type, shuffle.operation.results[0])


CombineValues = Callable[[Sequence[ir.Value], Sequence[ir.Value]], list[ir.Value]]
"""Combines two lists of partial results."""


def over_team(values: Sequence[ir.Value], combine: CombineValues, team: int) -> list[ir.Value]:
    """Reduce over a team of consecutive threads of a warp, a power of two; every thread gets the result."""
    result = list(values)
    distance = 1
    while distance < team:
        result = combine(result, [of_neighbour(value, distance) for value in result])
        distance *= 2
    return result


class ShuffleExchange:
    """Reduce within a warp by shuffles, and across warps through shared memory, one value per warp."""

    def __init__(self, team: Value, member: Value, teams: int, members: int, values: int, kind: ir.Type):
        self.inside = min(members, WARP)
        self.outside: SharedExchange | None = None
        if members > WARP:
            warp, lane = split(member, [members // WARP, WARP])
            self.outside = SharedExchange(team, warp, teams, members // WARP, values, kind, lane.equals(0))

    def together(self, values: Sequence[ir.Value], combine: Combine) -> list[ir.Value]:
        """See `Exchange`."""

        def each(a: Sequence[ir.Value], b: Sequence[ir.Value]) -> list[ir.Value]:
            return [combine(x, y) for x, y in zip(a, b, strict=True)]

        combined = over_team(values, each, self.inside)
        return combined if self.outside is None else self.outside.together(combined, combine)
