"""Coalescing of nested parallel loops into one, so that threads share more and smaller chunks.

    scf.for %i = 0 to 5 step 1 { %c = affine.apply ...; scf.for %j = 0 to 7 step 1 { body } {parallel} } {parallel}
becomes
    scf.for %u = 0 to 35 step 1 { %i = %u / 7; %j = %u mod 7; %c = affine.apply ...; body } {tir.parallel}
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.value import index, integer_of
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import PARALLEL

_READING = ("affine.apply", "memref.load", "vector.load", "vector.maskedload", "vector.broadcast")
"""Operations that, besides arithmetic, may precede the inner loop: they are repeated in each of its iterations."""


def coalesce(loop: ir.Operation | ir.OpView, most: int) -> ir.Operation | ir.OpView:
    """Coalesce a loop with the parallel loops inside of it while it has fewer than `most` iterations."""
    while True:
        inner = _only_loop(loop)
        sizes = None if inner is None else (constant_range(loop), constant_range(inner))
        if inner is None or sizes is None or None in sizes:
            return loop
        outer_range, inner_range = sizes
        if outer_range is None or inner_range is None or len(outer_range) >= most or len(inner_range) < 2:
            return loop
        loop = _fuse_loops(loop, inner, outer_range, inner_range)


def constant_range(loop: ir.Operation | ir.OpView) -> range | None:
    """Return the values that a loop's index takes if its bounds are constants."""
    low, high, step = (integer_of(value) for value in list(loop.operands)[:3])
    return None if low is None or high is None or step is None else range(low, high, step)


def _only_loop(loop: ir.Operation | ir.OpView) -> ir.Operation | None:
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


def _fuse_loops(
    outer: ir.Operation | ir.OpView, inner: ir.Operation, outer_range: range, inner_range: range
) -> ir.Operation:
    kind = ir.IndexType.get()
    with ir.InsertionPoint(outer), outer.location:
        new_loop = scf.ForOp(index(0), index(len(outer_range) * len(inner_range)), index(1))
        new_loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
    with ir.InsertionPoint(new_loop.body), outer.location:
        count = index(len(inner_range))
        for loop, steps, part in (
            (outer, outer_range, create("arith.divui", kind, new_loop.induction_variable, count)),
            (inner, inner_range, create("arith.remui", kind, new_loop.induction_variable, count)),
        ):
            position = part * index(steps.step) + index(steps.start)
            loop.regions[0].blocks[0].arguments[0].replace_all_uses_with(position)
    for loop in (outer, inner):
        for op in [op.operation for op in loop.regions[0].blocks[0].operations]:
            if op.name != "scf.yield" and op != inner:
                new_loop.body.append(op)
    with ir.InsertionPoint(new_loop.body), outer.location:
        scf.YieldOp([])
    outer.erase()
    return new_loop.operation
