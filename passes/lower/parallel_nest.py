"""Parallel loops nested in each other as one range of iterations, which threads divide at any iteration.

    scf.for %i = 0 to %n step 1 { %c = affine.apply ...; scf.for %j = 0 to 7 step 1 { body } {parallel} } {parallel}
for the iterations [%first, %end) of %n * 7 becomes
    scf.for %i = %first / 7 to ceil(%end / 7) step 1 {
      %c = affine.apply ...
      scf.for %j = max(%first - %i * 7, 0) to min(%end - %i * 7, 7) step 1 { body }
    }
"""

from __future__ import annotations

from math import prod

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.value import Value, index, integer_of
from mirlo.passes.lower.work import constant_trips
from mirlo.passes.schedule.loops import LOOP_ANNOTATION, PARALLEL
from mirlo.runtime.records import dataclass

_READING = ("affine.apply", "memref.load", "vector.load", "vector.maskedload", "vector.broadcast")
"""Operations that, besides arithmetic, may precede an inner loop: each thread that has a part of it executes them."""
_MAY_TRAP = ("arith.div", "arith.rem", "arith.ceildiv", "arith.floordiv")


@dataclass(frozen=True)
class ParallelNest:
    """Parallel loops, outermost first; each is the whole body of the one before, except for repeatable operations."""

    loops: tuple[ir.Operation, ...]

    @property
    def outer(self) -> ir.Operation:
        return self.loops[0]

    @property
    def body(self) -> ir.Block:
        """Return the body of the innermost loop."""
        return self.loops[-1].regions[0].blocks[0]

    @property
    def trips(self) -> int | None:
        """Return the iterations of the nest; None if they depend on run-time sizes."""
        return _product([constant_trips(loop) for loop in self.loops])

    def emit_trips(self) -> list[Value]:
        """Emit in front of the nest the iterations of each loop with those inside of it, outermost first."""
        with ir.InsertionPoint(self.outer), self.outer.location:
            following: list[Value] = []
            for depth, loop in reversed([*enumerate(self.loops)]):
                certain = _product([constant_trips(inside) for inside in self.loops[depth:]])
                trips = index(certain) if certain is not None else _emit_trips(loop)
                following.append(trips * following[-1] if following and certain is None else trips)
            return following[::-1]

    def emit_range(self, first: ir.Value, end: ir.Value, inner_trips: list[ir.Value]) -> None:
        """Emit the iterations [first, end) at the insertion point, and move the bodies of the nest there.

        `inner_trips` are what `emit_trips` returned, without the first. Operands that were defined in front of the
        nest stay as they are.
        """
        self._emit_level(0, Value(first), Value(end), [Value(trips) for trips in inner_trips])

    def _emit_level(self, depth: int, first: Value, end: Value, inner_trips: list[Value]) -> None:
        loop = self.loops[depth]
        if depth == len(self.loops) - 1:
            begin, stop = first, end
        else:
            # If the inner loops are empty, so is the range.
            inside = _at_least_one(inner_trips[depth])
            begin, stop = first.divide_unsigned(inside), (end + (inside - 1)).divide_unsigned(inside)
        low, step = Value(loop.operands[0]), Value(loop.operands[2])
        new_loop = scf.ForOp(_scaled(begin, low, step), _scaled(stop, low, step), step)
        if LOOP_ANNOTATION in loop.attributes:
            new_loop.operation.attributes[LOOP_ANNOTATION] = loop.attributes[LOOP_ANNOTATION]
        body = loop.regions[0].blocks[0]
        body.arguments[0].replace_all_uses_with(new_loop.induction_variable)
        for op in [op.operation for op in body.operations]:
            if op.name != "scf.yield" and op not in self.loops:
                new_loop.body.append(op)
        with ir.InsertionPoint(new_loop.body):
            if depth < len(self.loops) - 1:
                done = _unscaled(Value(new_loop.induction_variable), low, step) * inside
                self._emit_level(depth + 1, (first - done).maximum(0), (end - done).minimum(inside), inner_trips)
            scf.YieldOp([])


def find_nest(loop: ir.Operation, most: int) -> ParallelNest:
    """Return a loop with the parallel loops inside of it, while fewer than `most` iterations are certain."""
    loops = [loop]
    certain = constant_trips(loop) or 1
    while certain < most and (inner := _only_loop(loops[-1])) is not None:
        trips = constant_trips(inner)
        if (trips is not None and trips < 2) or not _hoist_bounds(inner, loops):
            break
        loops.append(inner)
        certain *= trips or 1
    return ParallelNest(tuple(loops))


def _product(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return prod(known) if len(known) == len(counts) else None


def _emit_trips(loop: ir.Operation) -> Value:
    if (trips := constant_trips(loop)) is not None:
        return index(trips)
    low, high, step = (Value(value) for value in list(loop.operands)[:3])
    length = high if integer_of(low) == 0 else high - low
    size = integer_of(step)
    return (length.maximum(0) + ((size or 1) - 1)).divide_unsigned(step) if size != 1 else length.maximum(0)


def _at_least_one(trips: Value) -> Value | int:
    certain = integer_of(trips)
    return trips.maximum(1) if certain is None else max(1, certain)


def _scaled(position: Value, low: Value, step: Value) -> Value:
    """Emit the index of a loop at an iteration."""
    offset = position if integer_of(step) == 1 else position * step
    return offset if integer_of(low) == 0 else offset + low


def _unscaled(variable: Value, low: Value, step: Value) -> Value:
    """Emit the iteration of a loop with an index."""
    offset = variable if integer_of(low) == 0 else variable - low
    return offset if integer_of(step) == 1 else offset.divide_unsigned(step)


def _only_loop(loop: ir.Operation) -> ir.Operation | None:
    """Return the parallel loop that is the whole body of a loop except for operations that may be repeated."""
    if len(loop.results):
        return None
    operations = [op.operation for op in loop.regions[0].blocks[0].operations]
    if len(operations) < 2:
        return None
    *before, inner, _ = operations
    if inner.name != "scf.for" or PARALLEL not in inner.attributes or len(inner.results):
        return None
    is_plain = all(op.name in _READING or (op.name.startswith("arith.") and not len(op.regions)) for op in before)
    return inner if is_plain else None


def _hoist_bounds(inner: ir.Operation, outer: list[ir.Operation]) -> bool:
    """Move operations that compute the bounds of a loop before the loops around it; return False if impossible."""
    hoisted: dict[ir.Operation, None] = {}
    for bound in list(inner.operands)[:3]:
        if not _collect(bound, outer, hoisted):
            return False
    if integer_of(inner.operands[2]) is None:
        return False
    for op in hoisted:
        op.move_before(outer[0])
    return True


def _collect(value: ir.Value, outer: list[ir.Operation], hoisted: dict[ir.Operation, None]) -> bool:
    """Collect the operations in loops that compute a value, operands first; return False if one has to stay."""
    if isinstance(value.owner, ir.Block):
        return value.owner.owner.operation not in outer
    op = value.owner.operation
    if op.parent is None or op.parent.operation not in outer:
        return True
    is_safe = op.name == "affine.apply" or (op.name.startswith("arith.") and not op.name.startswith(_MAY_TRAP))
    if not is_safe or not all(_collect(operand, outer, hoisted) for operand in op.operands):
        return False
    hoisted[op] = None
    return True
