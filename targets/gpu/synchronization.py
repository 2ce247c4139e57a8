"""Where threads of a block wait for one another, and what one of them executes for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import when
from mirlo.targets.gpu.launches import accesses, own_accesses
from mirlo.targets.gpu.schedule.launch import barrier

Axis = tuple[str, int]
"""`block` or `thread`, and the number of the dim."""
AxisOf = Callable[[ir.Operation], Axis | None]
Position = Axis | int | ir.Value


@dataclass
class UniformStatements:
    """What threads do with statements that a launch has outside of loops over some of its axes.

    The statement runs once. So one thread executes what writes memory that threads share, and the others wait for it.
    All threads execute what computes values, or writes memory of their own.
    """

    axis_of: AxisOf
    """The axis of a bound loop; None for other operations."""
    is_full: Callable[[ir.Operation], bool]
    """Whether all threads, or blocks, of its axis execute a bound loop."""
    is_first: Callable[[Axis], ir.Value]
    """Emit whether a thread is the first one along an axis."""
    written: Set[ir.Value]
    """The memory that threads share and that the launch writes."""
    threads: Set[Axis]
    """The axes along which blocks have several threads."""
    synchronizes: bool = False
    """Whether threads wait for one another anywhere."""

    def visit(self, operations: Sequence[ir.Operation], axes: Set[Axis], end: ir.Operation, reached: bool) -> None:
        """Guard statements of a block that no loop over `axes` is around; all threads that `reached` it can wait.

        A barrier is due between what one thread writes and what others read or write.
        """
        threads = {axis for axis in axes if axis[0] == "thread"}
        is_alone = is_shared = False  # what has been accessed since the last barrier: by one thread, by all

        def synchronize(before: ir.Operation) -> None:
            nonlocal is_alone, is_shared
            if threads and (is_alone or is_shared):
                if not reached:
                    raise PassError(_UNREACHED, before.location)
                with ir.InsertionPoint(before), before.location:
                    barrier()
                self.synchronizes = True
            is_alone = is_shared = False

        for op in operations:
            if self._has_loops(op, axes):
                synchronize(op)
                self._descend(op, axes, reached)
                continue
            used = accesses(op)
            shared = {buffer: is_written for buffer, is_written in used.items() if buffer in self.written}
            if not shared:
                continue
            guarded = self._guarding(op, shared, axes)
            if not any(shared.values()) or not guarded:
                if is_alone:
                    synchronize(op)
                is_shared = True
                continue
            if _is_mixed(op, used, shared):
                synchronize(op)
                self._descend(op, axes, reached)
                continue
            if is_shared:
                synchronize(op)
            is_alone = is_alone or not threads.isdisjoint(guarded)
            self._guard(op, guarded)
        synchronize(end)

    def _has_loops(self, op: ir.Operation, axes: Set[Axis]) -> bool:
        found = False

        def look(inner: ir.Operation) -> ir.WalkResult:
            nonlocal found
            found = found or self.axis_of(inner) in axes
            return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

        op.walk(look, ir.WalkOrder.PRE_ORDER)
        return found

    def _descend(self, op: ir.Operation, axes: Set[Axis], reached: bool) -> None:
        """Visit the blocks of an operation.

        In a loop over threads, conditions and extents may differ between threads.
        """
        axis = self.axis_of(op)
        if axis is not None:
            axes = axes - {axis}
            reached = reached and (axis[0] == "block" or self.is_full(op))
        elif not self.threads <= axes:
            reached = reached and op.name in _LOOPS and all(integer_of(value) is not None for value in op.operands)
        if not axes:
            return
        for region in op.regions:
            for block in region.blocks:
                inside = [o.operation for o in block.operations]
                self.visit(inside[:-1], axes, inside[-1], reached)

    @staticmethod
    def _guarding(op: ir.Operation, shared: dict[ir.Value, bool], axes: Set[Axis]) -> set[Axis]:
        """Return the axes along which only the first executes it: each block has shared memory of its own."""
        is_in_main = any(is_written and buffer.type.memory_space is None for buffer, is_written in shared.items())
        return {axis for axis in axes if axis[0] == "thread" or is_in_main}

    def _guard(self, op: ir.Operation, axes: Set[Axis]) -> None:
        def move() -> None:
            with ir.Location.unknown():
                anchor = ir.Operation.create("tir.yield")
            op.move_before(anchor)
            anchor.erase()

        def nested(left: Sequence[Axis]) -> None:
            if not left:
                move()
                return
            when(self.is_first(left[0]), lambda: nested(left[1:]))

        with ir.InsertionPoint(op), op.location:
            nested(sorted(axes))


def _is_mixed(op: ir.Operation, used: dict[ir.Value, bool], shared: dict[ir.Value, bool]) -> bool:
    """Return whether all threads need what an operation computes besides what it writes for all of them."""
    own = any(is_written and buffer not in shared for buffer, is_written in used.items())
    return (own or bool(op.results)) and bool(op.regions)


def exchange_in_main_memory(
    loops: Sequence[ir.Operation], axis_of: AxisOf, shared: Set[ir.Value], threads: Set[Axis]
) -> bool:
    """Return whether a thread may use an element in main memory that another thread writes in another one of the loops.

    It does not if each thread has elements of its own: their positions are the same in all loops, and name all axes.
    """
    users: dict[ir.Value, list[tuple[ir.Operation, tuple[Position, ...] | None, bool]]] = {}
    for loop in loops:
        for op in _inside(loop):
            for buffer, is_written in own_accesses(op).items():
                if buffer in shared and buffer.type.memory_space is None:
                    users.setdefault(buffer, []).append((loop, _positions(op, buffer, axis_of), is_written))
    for uses in users.values():
        repeated = len({loop for loop, _, _ in uses}) > 1 or any(_is_repeated(loop, axis_of) for loop, _, _ in uses)
        if not repeated or not any(is_written for _, _, is_written in uses):
            continue
        first = uses[0][1]
        if first is None or not threads <= set(first) or any(positions != first for _, positions, _ in uses):
            return True
    return False


def _inside(op: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _positions(op: ir.Operation, buffer: ir.Value, axis_of: AxisOf) -> tuple[Position, ...] | None:
    """Return the indices with which an operation accesses a buffer; None if it accesses more than one element."""
    if op.name not in ("memref.load", "memref.store"):
        return None
    at = 0 if op.name == "memref.load" else 1
    if op.operands[at] != buffer:
        return None
    return tuple(_position(value, axis_of) for value in list(op.operands)[at + 1 :])


def _position(value: ir.Value, axis_of: AxisOf) -> Position:
    if isinstance(value.owner, ir.Block):
        return axis_of(value.owner.owner.operation) or value
    number = integer_of(value)
    return value if number is None else number


def _is_repeated(loop: ir.Operation, axis_of: AxisOf) -> bool:
    """Return whether a loop that is bound to no axis is around."""
    parent = loop.parent
    while parent is not None and parent.name != "gpu.launch":
        if parent.name in _LOOPS and axis_of(parent.operation) is None:
            return True
        parent = parent.operation.parent
    return False


_LOOPS = ("tir.for", "scf.for")
_UNREACHED = (
    "threads would wait here for what one of them writes, but not all threads of the block execute this loop: let "
    "loops over one axis have the same extent, or write the statement in a loop of its own"
)
