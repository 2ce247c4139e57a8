"""Ranges of iterations: which of a loop's iterations do work, how often it is emitted, and what is hoisted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.dialects.core.value import Value, create
from mirlo.dialects.tir.buffers import STORED_TO
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lanes import undecided_guards
from mirlo.passes.schedule.primitives.regions import split_by
from mirlo.passes.schedule.primitives.threads import is_around_exchange, is_thread
from mirlo.passes.schedule.primitives.tree import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    BlockLeaf,
    Guard,
    Loop,
    around,
    extents_of,
    leaves_of,
    loops_of,
)

Bound = Dim | ir.Value
Range = tuple[Bound, Bound, frozenset[Guard]]
"""Iterations of a loop, and the guards that all of them pass."""


def ranges_of(loop: Loop, values: LoopValues, assumed: frozenset[Guard]) -> list[Range]:
    """Return the ranges of a loop that are emitted, and the guards that all iterations of each pass."""
    if is_around_exchange(loop):
        return [(0, loop.extent, frozenset())]
    if not loop.is_peeled or loop.kind not in (SERIAL, PARALLEL):
        return [reached(loop, values, assumed) if loop.kind == SERIAL else (0, loop.extent, frozenset())]
    whole: list[Range] = [(0, loop.extent, frozenset())]
    ends: dict[Guard, Bound] = {}
    for leaf in leaves_of(loop):
        for guard, known in undecided_guards(leaf, values, assumed) or ():
            end = complete_iterations(known, leaf, loop, values)
            if end is not None:
                ends[guard] = end
    if not ends:
        return whole
    static = [end for end in ends.values() if isinstance(end, int)]
    if isinstance(loop.extent, int) and len(static) == len(ends):
        cut = max(0, min(loop.extent, *static))
        return [(0, cut, frozenset(ends)), (cut, loop.extent, frozenset())]
    end = least_end([loop.extent, *ends.values()], values)
    return [(0, end, frozenset(ends)), (end, loop.extent, frozenset())]


def reached(loop: Loop, values: LoopValues, assumed: frozenset[Guard]) -> Range:
    """Return the range of a loop whose iterations do work, and the guards that all of them pass."""
    leaves, whole = leaves_of(loop), (0, loop.extent, frozenset[Guard]())
    if is_around_exchange(loop) or not isinstance(loop.extent, int) or len(leaves) != 1 or not leaves[0].guards:
        return whole
    (leaf,), is_rest = leaves, any(other.is_peeled for other in around(loop))
    inside = {other.name for other in loops_of(loop)}
    ends: dict[Guard, Bound] = {}
    for guard, known in undecided_guards(leaf, values, assumed) or ():
        if not guard[0].variables() & inside and (is_rest or known[0].variables() <= {loop.name}):
            end = complete_iterations(known, leaf, loop, values)
            if end is not None:
                ends[guard] = end
    if not ends:
        return whole
    if all(isinstance(end, int) for end in ends.values()):
        return 0, max(0, min(loop.extent, *(end for end in ends.values() if isinstance(end, int)))), frozenset(ends)
    return 0, least_end([loop.extent, *ends.values()], values), frozenset(ends)


def least_end(ends: Sequence[Bound], values: LoopValues) -> ir.Value:
    """Emit the smallest of some ends, not below zero."""
    first, *others = (emit_bound(end, values) for end in ends)
    for other in others:
        first = Value(first).minimum(other)
    return Value(first).maximum(0)


def elements_of_thread(
    loop: Loop, values: LoopValues, assumed: frozenset[Guard]
) -> tuple[Guard, IndexExpr, Dim, int] | None:
    """Return which elements a thread computes in a loop: the guard that ends it, the first one, the end and the step.

    None if the iterations are not elements of a thread whose number one guard decides.
    """
    threads = {other.name for other in around(loop) if is_thread(other)}
    if not threads or loop.kind != SERIAL or loop.extent == 1 or loop.is_peeled or is_around_exchange(loop):
        return None
    first, *others = leaves_of(loop)
    for guard, (index, bound) in undecided_guards(first, values, assumed) or ():
        start, step = index.replace({loop.name: number(0)}), index.coefficient(loop.name)
        if not isinstance(step, int) or step < 1 or not start.terms or not start.variables() <= threads:
            continue
        is_end = D.is_certain(partial(_covers, loop.extent * step, bound))
        if is_end and start.constant == 0 and all(guard in other.guards for other in others):
            return guard, start, bound, step
    return None


def _covers(iterations: Dim, bound: Dim) -> bool:
    return bool(iterations >= bound)


def steps_of(loop: Loop) -> Loop | None:
    """Return the unrolled loop of a reduction, split from this one, that may as well be around those between them."""
    leaf, *others = leaves_of(loop)
    reduced = leaf.reduce_loops()
    if others or loop.name not in reduced:
        return None
    inside = [other for other in loops_of(loop) if other.name in reduced]
    return inside[0] if len(inside) == 1 and inside[0].kind == UNROLLED else None


def hoist(loop: ir.Operation) -> None:
    """Move computations and loads that all iterations share before a loop that stores to arrays on the stack only."""
    (block,) = loop.regions[0].blocks
    ops = [op.operation for op in block.operations][:-1]
    written = [op.operands[1] for op in ops if op.name == "memref.store"]
    if any(len(op.regions) for op in ops) or not all(_is_on_stack(value) for value in written):
        return
    varying: set[ir.Value] = {*block.arguments}
    for op in ops:
        is_load = op.name == "memref.load" and op.operands[0] not in written
        if (is_load or op.name.startswith(("arith.", "tir.size"))) and varying.isdisjoint(op.operands):
            op.move_before(loop)
        else:
            varying.update(op.results)


def hoist_loads(loop: ir.Operation) -> None:
    """Move loads that all iterations share, and computations on them, before a loop of vectors.

    LLVM does not, as the results may alias the loaded memory. Parameters of which one is stored to do not alias; where
    an operand is replaced by the result, each element is only read where it is written.
    """
    (block,) = loop.regions[0].blocks
    ops = [op.operation for op in block.operations][:-1]
    written = {_whole(buffer) for op in ops for buffer in _written(op)}
    varying: set[ir.Value] = {*block.arguments}
    for op in ops:
        if _is_common(op, varying, written):
            op.move_before(loop)
        else:
            varying.update(op.results)


def _written(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the buffers that an operation stores to."""
    if op.name in STORED_TO:
        yield op.operands[STORED_TO[op.name]]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _written(inner.operation)


def _is_common(op: ir.Operation, varying: set[ir.Value], written: set[ir.Value]) -> bool:
    """Return whether all iterations of a loop have an operation in common."""
    if not varying.isdisjoint(op.operands):
        return False
    if op.name == "memref.load":
        buffer = _whole(op.operands[0])
        return isinstance(buffer.owner, ir.Block) and buffer not in written
    if op.name == "scf.if":
        inside = [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
        return all(inner.name == "scf.yield" or _is_common(inner, varying, written) for inner in inside)
    return op.name.startswith("arith.") or op.name == "tir.size"


def _whole(buffer: ir.Value) -> ir.Value:
    """Return the buffer of which this is a view."""
    while not isinstance(buffer.owner, ir.Block) and buffer.owner.operation.name == "memref.collapse_shape":
        buffer = buffer.owner.operation.operands[0]
    return buffer


def _is_on_stack(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "memref.alloca"


def emit_bound(bound: Bound, values: LoopValues) -> ir.Value:
    return bound if isinstance(bound, ir.Value) else values.emit(bound)


def complete_iterations(guard: Guard, leaf: BlockLeaf, loop: Loop, values: LoopValues) -> Bound | None:
    """Return how many iterations of a loop, from the first on, pass a guard whatever the loops inside are at.

    None if the guard does not grow evenly along the loop.
    """
    expression, bound = guard
    step = expression.coefficient(loop.name)
    if step is None or not D.is_certain(lambda: step > 0):
        return None
    parts = split_by(expression.replace({loop.name: number(0)}), {other.name for other in around(loop)})
    if parts is None:
        return None
    before, rest = parts
    try:
        highest = rest.range(extents_of(loops_of(loop)))[1]
    except UndecidedDim:
        return None
    # The last complete iteration i: before + step * i + highest < bound.
    limit = bound - highest - 1 + step
    if not before.terms:
        complete: Dim = limit // step
        return complete
    left = values.emit(limit) - values.emit(before)
    return create("arith.floordivsi", left.type, left, values.emit(step))
