"""Integers that a kernel keeps in buffers on its stack: counters, positions of a maximum, permutations.

All stores to such a buffer are known. Its elements are within bounds that each stored value is within, provided that
the values loaded from it are; and the buffer is filled before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of
from mirlo.dialects.core.walk import walk
from mirlo.runtime.records import dataclass

RESHAPES = ("memref.collapse_shape", "memref.expand_shape", "memref.cast")
"""Operations whose result is the memory of their operand."""


@dataclass(frozen=True)
class Merged:
    """The content of a buffer after a branch: one of two."""

    condition: ir.Value
    yes: Reaching
    no: Reaching


Reaching = Union["ir.Value", Merged]
"""What a load returns: what was stored, what an earlier load returned, or one of two such values."""


class LocalBuffers:
    """The buffers on the stack of one kernel. Results are cached, as the kernel does not change meanwhile."""

    def __init__(self) -> None:
        self._users: dict[ir.Value, list[ir.Operation]] = {}
        self._stores: dict[ir.Value, list[ir.Operation] | None] = {}
        self._around: dict[ir.Operation, list[tuple[ir.Block, ir.Operation]]] = {}

    def users_of(self, buffer: ir.Value) -> list[ir.Operation]:
        """Return the operations that have a buffer as an operand."""
        known = self._users.get(buffer)
        if known is None:
            known = self._users[buffer] = [use.owner.operation for use in buffer.uses]
        return known

    def around(self, op: ir.Operation) -> list[tuple[ir.Block, ir.Operation]]:
        """Return an operation and those that it is inside of, innermost first, each with its block."""
        known = self._around.get(op)
        if known is None:
            parent = op.parent
            outer = None if parent is None else parent.operation
            rest = [] if outer is None or outer.name == "func.func" else self.around(outer)
            known = self._around[op] = [(op.block, op), *rest]
        return known

    def reaching_value(self, load: ir.Operation) -> Reaching | None:
        """Return the value that a load from a buffer of one element returns, if it is the same in each execution."""
        return self._reaching(load.operands[0], load.block, load)

    def _reaching(self, buffer: ir.Value, block: ir.Block, end: ir.Operation | None) -> Reaching | None:
        """Return the content of a buffer before an operation of a block, or at the end of the block."""
        last: ir.Operation | None = None
        for user in self.users_of(buffer):
            top = self._top_in(user, block)
            if top is None or (end is not None and not top.is_before_in_block(end)):
                continue
            if (top == user or self._stores_in(top, buffer)) and (last is None or last.is_before_in_block(top)):
                last = top
        if last is None:
            return self._reaching_block(buffer, block)
        if last.name == "memref.store":
            return last.operands[0]
        if last.name == "memref.load":
            return last.results[0]
        if last.name != "scf.if":
            return None
        ends = [self._reaching(buffer, inner, None) for region in last.regions for inner in region.blocks]
        if len(ends) == 1:
            ends.append(self._reaching(buffer, block, last))
        return None if ends[0] is None or ends[1] is None else Merged(last.operands[0], ends[0], ends[1])

    def _reaching_block(self, buffer: ir.Value, block: ir.Block) -> Reaching | None:
        """Return the content of a buffer at the start of a block."""
        op = block.owner.operation
        if op.name in ("func.func", "builtin.module") or block == buffer.owner.operation.block:
            return None
        if op.name == "scf.while" and block == op.regions[1].blocks[0]:
            return self._reaching(buffer, op.regions[0].blocks[0], None)
        if op.name in ("scf.for", "scf.while") and self._stores_in(op, buffer):
            return None
        return self._reaching(buffer, op.block, op)

    def _stores_in(self, op: ir.Operation, buffer: ir.Value) -> bool:
        return any(
            user.name != "memref.load" and any(outer == op for _, outer in self.around(user))
            for user in self.users_of(buffer)
        )

    def stores_of(self, buffer: ir.Value) -> list[ir.Operation] | None:
        """Return the stores to a buffer on the stack; None if they are unknown, or if it may be read first."""
        if buffer not in self._stores:
            self._stores[buffer] = self._find_stores(buffer)
        return self._stores[buffer]

    def _find_stores(self, buffer: ir.Value) -> list[ir.Operation] | None:
        users = self.users_of(buffer)
        stores = [user for user in users if user.name == "memref.store" and user.operands[1] == buffer]
        if not stores or any(user.name != "memref.load" and user not in stores for user in users):
            return None
        first = self._first_of(buffer.owner.operation.block, users)
        while first is not None and not _fills(first, buffer):
            # What is only used in one loop or branch may be filled there, each time.
            blocks = [block for region in first.regions for block in region.blocks]
            inside = [block for block in blocks if all(self._top_in(user, block) is not None for user in users)]
            is_entered = inside and first.name in ("scf.for", "scf.if", "scf.while")
            first = self._first_of(inside[0], users) if is_entered else None
        return None if first is None else stores

    def _first_of(self, block: ir.Block, users: Sequence[ir.Operation]) -> ir.Operation | None:
        """Return the first operation of a block that uses a buffer, or has such uses inside."""
        first: ir.Operation | None = None
        for user in users:
            top = self._top_in(user, block)
            if top is None:
                return None
            if first is None or (top != first and top.is_before_in_block(first)):
                first = top
        return first

    def _top_in(self, op: ir.Operation, block: ir.Block) -> ir.Operation | None:
        """Return the operation of a block that is or contains another one."""
        return next((outer for inner, outer in self.around(op) if inner == block), None)


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
    is_read = False

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal is_read
        is_read = is_read or any(operand == buffer for operand in inner.operands)
        return ir.WalkResult.INTERRUPT if is_read else ir.WalkResult.ADVANCE

    walk(op, visit, ir.WalkOrder.PRE_ORDER)
    return is_read
