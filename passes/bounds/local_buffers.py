"""Integers that a kernel keeps in buffers on its stack: counters, positions of a maximum, permutations.

All stores to such a buffer are known. Its elements are within bounds that each stored value is within, provided that
the values loaded from it are; and the buffer is filled before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of

RESHAPES = ("memref.collapse_shape", "memref.expand_shape", "memref.cast")
"""Operations whose result is the memory of their operand."""


@dataclass(frozen=True)
class Merged:
    """What is in a buffer behind a branch: one of two."""

    condition: ir.Value
    yes: Reaching
    no: Reaching


Reaching = Union["ir.Value", Merged]
"""What a load returns: what was stored, what an earlier load returned, or one of two such values."""


def reaching_value(load: ir.Operation) -> Reaching | None:
    """Return what a load from a buffer of one element returns, if that is the same in each execution."""
    buffer = load.operands[0]
    users = [use.owner.operation for use in buffer.uses]
    return _reaching(buffer, users, load.block, load)


def _reaching(
    buffer: ir.Value, users: Sequence[ir.Operation], block: ir.Block, end: ir.Operation | None
) -> Reaching | None:
    """Return what is in a buffer before an operation of a block, or at the end of the block."""
    last: ir.Operation | None = None
    for user in users:
        top = _top_in(user, block)
        if top is None or (end is not None and not top.is_before_in_block(end)):
            continue
        if (top == user or _stores_in(top, users)) and (last is None or last.is_before_in_block(top)):
            last = top
    if last is None:
        return _reaching_block(buffer, users, block)
    if last.name == "memref.store":
        return last.operands[0]
    if last.name == "memref.load":
        return last.results[0]
    if last.name != "scf.if":
        return None
    ends = [_reaching(buffer, users, inner, None) for region in last.regions for inner in region.blocks]
    if len(ends) == 1:
        ends.append(_reaching(buffer, users, block, last))
    return None if ends[0] is None or ends[1] is None else Merged(last.operands[0], ends[0], ends[1])


def _reaching_block(buffer: ir.Value, users: Sequence[ir.Operation], block: ir.Block) -> Reaching | None:
    """Return what is in a buffer at the start of a block."""
    op = block.owner.operation
    if op.name in ("func.func", "builtin.module") or block == buffer.owner.operation.block:
        return None
    if op.name == "scf.while" and block == op.regions[1].blocks[0]:
        return _reaching(buffer, users, op.regions[0].blocks[0], None)
    if op.name in ("scf.for", "scf.while") and _stores_in(op, users):
        return None
    return _reaching(buffer, users, op.block, op)


def _stores_in(op: ir.Operation, users: Sequence[ir.Operation]) -> bool:
    return any(user.name != "memref.load" and _is_inside(user, op) for user in users)


def stores_of(buffer: ir.Value) -> list[ir.Operation] | None:
    """Return the stores to a buffer on the stack; None if that is not known, or it may be read before."""
    users = [use.owner.operation for use in buffer.uses]
    stores = [user for user in users if user.name == "memref.store" and user.operands[1] == buffer]
    if not stores or any(user.name != "memref.load" and user not in stores for user in users):
        return None
    first = _first_of(buffer.owner.operation.block, users)
    while first is not None and not _fills(first, buffer):
        # What is only used in one loop or branch may be filled there, each time.
        blocks = [block for region in first.regions for block in region.blocks]
        inside = [block for block in blocks if all(_top_in(user, block) is not None for user in users)]
        first = _first_of(inside[0], users) if inside and first.name in ("scf.for", "scf.if", "scf.while") else None
    if first is None:
        return None
    return stores


def _first_of(block: ir.Block, users: Sequence[ir.Operation]) -> ir.Operation | None:
    """Return the first operation of a block that uses a buffer, or has such uses inside."""
    first: ir.Operation | None = None
    for user in users:
        top = _top_in(user, block)
        if top is None:
            return None
        if first is None or (top != first and top.is_before_in_block(first)):
            first = top
    return first


def _top_in(op: ir.Operation, block: ir.Block) -> ir.Operation | None:
    """Return the operation of a block that another one is, or is inside of."""
    top: ir.Operation | None = op
    while top is not None:
        if top.name == "func.func":
            return None
        if top.block == block:
            return top
        top = _parent(top)
    return None


def _parent(op: ir.Operation) -> ir.Operation | None:
    parent = op.parent
    return None if parent is None else parent.operation


def _is_inside(op: ir.Operation, outer: ir.Operation) -> bool:
    inner: ir.Operation | None = op
    while inner is not None and inner != outer:
        inner = _parent(inner)
    return inner is not None


def _fills(op: ir.Operation, buffer: ir.Value) -> bool:
    """Return whether an operation stores every element of a buffer before it reads any: loops over its dims."""
    loops: list[ir.Value] = []
    for size in ir.MemRefType(buffer.type).shape:
        if op.name != "scf.for" or [integer_of(value) for value in list(op.operands)[:3]] != [0, size, 1]:
            return False
        block = op.regions[0].blocks[0]
        loops.append(block.arguments[0])
        inner = [member.operation for member in block.operations if _uses(member.operation, buffer)]
        if not inner:
            return False
        op = inner[0]
    return op.name == "memref.store" and op.operands[1] == buffer and list(op.operands)[2:] == loops


def _uses(op: ir.Operation, buffer: ir.Value) -> bool:
    """Return whether an operation, or one inside of it, has a buffer as an operand."""
    found = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or any(operand == buffer for operand in inner.operands)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
