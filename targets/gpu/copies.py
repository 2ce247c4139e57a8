"""Loops of a prim function that copy a whole buffer: the device copies it at once, without a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mirlo.dialects.bindings import arith, ir, memref
from mirlo.dialects.core.value import integer_of
from mirlo.passes.schedule.loops import for_loop


def is_copy(op: ir.Operation) -> bool:
    """Return whether an operation copies a whole buffer."""
    return op.name == "memref.copy" or _match_copy_loops(op) is not None


def flatten_copy(op: ir.Operation) -> None:
    """Replace loops that copy a whole buffer with a copy, or with one loop if the size is dynamic."""
    loops = _match_copy_loops(op)
    if loops is None:
        return
    source, target, extents = loops
    with ir.InsertionPoint(op), op.location:
        if [integer_of(extent) for extent in extents] == list(source.type.shape):
            memref.CopyOp(source, target)
        else:
            total = extents[0]
            for extent in extents[1:]:
                total = arith.MulIOp(total, extent).result
            for_loop(0, total, 1, partial(_copy_element, source, target))
    op.erase()


def expand_copies(copies: Iterable[ir.Operation]) -> None:
    """Replace copies of buffers of static shapes, in code of threads, with loops."""
    for op in list(copies):
        source, target = op.operands
        with ir.InsertionPoint(op), op.location:
            _copy_elements(source, target, list(source.type.shape), [])
        op.erase()


def _copy_elements(source: ir.Value, target: ir.Value, extents: list[int], at: list[ir.Value]) -> None:
    if len(at) == len(extents):
        memref.StoreOp(memref.LoadOp(source, at), target, at)
        return
    for_loop(0, extents[len(at)], 1, lambda i: _copy_elements(source, target, extents, [*at, i]))


def _copy_element(source: ir.Value, target: ir.Value, i: ir.Value) -> None:
    memref.StoreOp(memref.LoadOp(source, [i]), target, [i])


def _match_copy_loops(op: ir.Operation | ir.OpView) -> tuple[ir.Value, ir.Value, list[ir.Value]] | None:
    """Return source, target and extents of loops that copy one buffer elementwise to another, else None."""
    extents: list[ir.Value] = []
    places: list[ir.Value] = []
    while op.name == "scf.for" and not len(op.results):
        low, high, step = list(op.operands)[:3]
        if integer_of(low) != 0 or integer_of(step) != 1:
            return None
        extents.append(high)
        body = op.regions[0].blocks[0]
        places.append(body.arguments[0])
        inner = [o.operation for o in list(body.operations)[:-1] if not o.operation.name.startswith("arith.")]
        if [o.name for o in inner] == ["memref.load", "memref.store"]:
            return _ends(inner[0], inner[1], places, extents)
        if len(inner) != 1:
            return None
        op = inner[0]
    return None


def _ends(
    load: ir.Operation, store: ir.Operation, places: list[ir.Value], extents: list[ir.Value]
) -> tuple[ir.Value, ir.Value, list[ir.Value]] | None:
    source, target = load.operands[0], store.operands[1]
    read, written = list(load.operands)[1:], list(store.operands)[2:]
    if store.operands[0] != load.results[0] or read != written or source.type != target.type or source == target:
        return None
    if any(_is_private(buffer) for buffer in (source, target)):
        return None
    if read == places:
        whole = [integer_of(extent) for extent in extents] == list(source.type.shape)
        return (source, target, extents) if whole or len(places) == 1 else None
    if len(read) == 1 and _is_row_major(read[0], places, extents):
        return source, target, extents
    return None


def _is_private(buffer: ir.Value) -> bool:
    """Return whether a buffer is a thread's own, which the device cannot copy."""
    return not isinstance(buffer.owner, ir.Block) and buffer.owner.name == "memref.alloca"


def _is_row_major(position: ir.Value, places: list[ir.Value], extents: list[ir.Value]) -> bool:
    """Return whether a position is the row-major index in a tensor of these extents."""
    if len(places) == 1:
        return bool(position == places[0])
    for rest, place in _operands(position, "arith.addi"):
        if place == places[-1]:
            for before, extent in _operands(rest, "arith.muli"):
                if _same(extent, extents[-1]) and _is_row_major(before, places[:-1], extents[:-1]):
                    return True
    return False


def _operands(value: ir.Value, name: str) -> list[tuple[ir.Value, ir.Value]]:
    """Return the operands of a value's defining operation, in both orders, if it has this name."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != name:
        return []
    left, right = owner.operands
    return [(left, right), (right, left)]


def _same(a: ir.Value, b: ir.Value) -> bool:
    return bool(a == b) or (integer_of(a) is not None and integer_of(a) == integer_of(b))
