"""Writes of parallel loops to memory that their iterations share, which must be to different places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import ancestors
from mirlo.dialects.tir.buffers import STORED_TO

_WRITTEN_TO = {**STORED_TO, "memref.copy": 1}
"""Operations that write, and the position of the memory among their operands; indices follow it."""
_BEHIND_INDICES = {"vector.maskedstore": 2, "vector.scatter": 2}
"""Operands after the indices: a mask and what is written."""
_COUNTERS = ("memref.atomic_rmw", "memref.generic_atomic_rmw")
"""Operations that give each iteration another value."""
_RESHAPES = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.subview", "memref.reinterpret_cast")


def find_shared_write(
    loops: Sequence[ir.Operation], writes: Sequence[ir.Operation], private: Collection[ir.Value]
) -> ir.Operation | None:
    """Return a write in nested loops that is to the same place in all iterations of one of them, or None.

    Memory that is allocated inside, or that each thread has for itself, is not shared. A write in a branch that depends
    on the iteration may not be executed in all iterations.
    """
    shared = [op for op in writes if not _is_own(_memory(op.operands[_WRITTEN_TO[op.name]]), loops[0], private)]
    for loop in loops if shared else ():
        iteration = _Iteration(loop)
        for op in shared:
            if not any(map(iteration.decides, _indices(op))) and not iteration.decides_whether(op):
                return op
    return None


def is_write(op: ir.Operation) -> bool:
    """Return whether an operation writes to memory at indices."""
    return op.name in _WRITTEN_TO


def _indices(write: ir.Operation) -> list[ir.Value]:
    """Return the indices of a write, and those of the views of its memory."""
    operands, position = [*write.operands], _WRITTEN_TO[write.name]
    indices = operands[position + 1 : len(operands) - _BEHIND_INDICES.get(write.name, 0)]
    return indices + [index for view in _views(operands[position]) for index in [*view.operands][1:]]


def _memory(buffer: ir.Value) -> ir.Value:
    views = _views(buffer)
    return views[-1].operands[0] if views else buffer


def _views(buffer: ir.Value) -> list[ir.Operation]:
    """Return the operations by which a buffer is a view of memory, the last one first."""
    views: list[ir.Operation] = []
    while isinstance(buffer, ir.OpResult) and buffer.owner.name in _RESHAPES:
        views.append(buffer.owner.operation)
        buffer = views[-1].operands[0]
    return views


def _is_own(memory: ir.Value, loop: ir.Operation, private: Collection[ir.Value]) -> bool:
    return memory in private or (isinstance(memory, ir.OpResult) and loop in ancestors(memory.owner))


class _Iteration:
    """The values that depend on the iteration of a loop, except for those that are read from memory."""

    def __init__(self, loop: ir.Operation) -> None:
        self.loop = loop
        self._same: set[ir.Value] = set()
        self._differs: set[ir.Value] = set()

    def decides(self, value: ir.Value) -> bool:
        """Return whether a value may differ between iterations."""
        waiting = [value]
        user: dict[ir.Value, ir.Value | None] = {value: None}
        while waiting:
            current = waiting.pop()
            sources = None if current in self._differs else self._sources(current)
            if sources is None:
                following: ir.Value | None = current
                while following is not None:
                    self._differs.add(following)
                    following = user[following]
                return True
            for source in sources:
                if source not in user and source not in self._same:
                    user[source] = current
                    waiting.append(source)
        self._same.update(user)
        return False

    def decides_whether(self, op: ir.Operation) -> bool:
        """Return whether an operation inside of the loop may not be executed in some iterations."""
        for around in ancestors(op):
            if around == self.loop:
                return False
            if any(map(self.decides, around.operands)):
                return True
        return False

    def _sources(self, value: ir.Value) -> Sequence[ir.Value] | None:
        """Return the values that a value is computed from; None for one that each iteration has for itself."""
        if isinstance(value, ir.OpResult):
            op = value.owner.operation
            if op.name in _COUNTERS:
                return None
            return [*op.operands, *_ends(op)]
        assert isinstance(value, ir.BlockArgument)
        op = value.owner.owner.operation
        if op == self.loop:
            return None
        if op.name == "func.func":
            return ()
        if op.name == "scf.for":
            carried = value.arg_number - 1  # after the index, which its bounds decide on
            return list(op.operands)[:3] if carried < 0 else [op.operands[3 + carried], list(_ends(op))[carried]]
        return [*op.operands, *_ends(op)]


def _ends(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the operands at the ends of an operation's blocks, which are its results and arguments of its blocks."""
    for region in op.regions:
        for block in region.blocks:
            *_, last = block.operations
            yield from last.operation.operands
