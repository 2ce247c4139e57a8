"""Where threads of a block wait for one another, and which statements one thread executes for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of
from mirlo.dialects.core.walk import walk
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.bound_loops import Axis, find_axis
from mirlo.targets.gpu.exchanges import LOOPS, Elements, accesses_of, element_of, is_exchanged, merge_elements
from mirlo.targets.gpu.launches import accesses
from mirlo.targets.gpu.schedule.launch import barrier


@dataclass
class UniformStatements:
    """Guards and barriers for statements that a launch has outside of loops over some of its axes.

    The statement runs once. So one thread executes statements that write memory that threads share, and the others wait
    for it. All threads execute statements that compute values, or write memory of their own.
    """

    is_full: Callable[[ir.Operation], bool]
    """Whether all threads, or blocks, of its axis execute a bound loop."""
    is_first: Callable[[Axis], ir.Value]
    """Emit whether a thread is the first one along an axis."""
    written: Set[ir.Value]
    """The memory that threads share and that the launch writes."""
    threads: Set[Axis]
    """The axes along which blocks have several threads."""
    is_checked: bool = False
    """Whether threads use in no loop over threads what others write in it: words check that."""
    synchronizes: bool = False
    """Whether threads wait for one another anywhere."""

    def visit(self, operations: Sequence[ir.Operation], axes: Set[Axis], end: ir.Operation, reached: bool) -> bool:
        """Guard statements of a block that no loop over `axes` is around; all threads that `reached` it can wait.

        A barrier is due between what one thread writes and what others read or write. Return whether the one at the
        end of the block is left to the caller.
        """
        threads = {axis for axis in axes if axis[0] == "thread"}
        due = _Due(self, threads, reached)
        for op in operations:
            elements = {} if self.is_checked or self.threads <= axes else self._elements(op)
            if self._has_loops(op, axes):
                due.synchronize(op, is_exchanged(due.in_loops, elements, threads))
                due.is_alone = self._descend(op, axes, reached)
                due.note_loops(elements)
                continue
            used = accesses(op)
            shared = {buffer: is_written for buffer, is_written in used.items() if buffer in self.written}
            if shared:
                due.synchronize(op, is_exchanged(due.in_loops, elements, threads, has_own=False), is_needed=False)
                self._visit_statement(op, used, shared, axes, due)
                due.note_statement(elements)
        is_repeated = end.block.owner.name in LOOPS and find_axis(end.block.owner.operation) is None
        return due.finish(end, is_repeated)

    def _visit_statement(
        self, op: ir.Operation, used: dict[ir.Value, bool], shared: dict[ir.Value, bool], axes: Set[Axis], due: _Due
    ) -> None:
        """Guard a statement that accesses memory which threads share."""
        guarded = self._guarding(op, shared, axes)
        if not any(shared.values()) or not guarded:
            if due.is_alone:
                due.synchronize(op)
                due.is_mixed = True
            due.is_shared = True
            return
        if _is_mixed(op, used, shared):
            due.synchronize(op)
            due.is_alone = self._descend(op, axes, due.reached)
            return
        if due.is_shared:
            due.synchronize(op)
            due.is_mixed = True
        due.is_alone = due.is_alone or not due.threads.isdisjoint(guarded)
        self._guard(op, guarded)

    def _elements(self, op: ir.Operation) -> Elements:
        """Return the elements that an operation accesses among those that the launch writes."""
        elements: Elements = {}
        for inner, buffer, is_written in accesses_of([op], self.written):
            merge_elements(elements, {buffer: (is_written, {element_of(inner, buffer)})})
        return elements

    def _has_loops(self, op: ir.Operation, axes: Set[Axis]) -> bool:
        """Return whether an operation has loops over these axes, or over one thread: a barrier follows it too."""
        is_looping = False

        def look(inner: ir.Operation) -> ir.WalkResult:
            nonlocal is_looping
            axis = find_axis(inner)
            is_looping = (
                is_looping or axis in axes or (axis is not None and axis[0] == "thread" and axis not in self.threads)
            )
            return ir.WalkResult.INTERRUPT if is_looping else ir.WalkResult.ADVANCE

        walk(op, look, ir.WalkOrder.PRE_ORDER)
        return is_looping

    def _descend(self, op: ir.Operation, axes: Set[Axis], reached: bool) -> bool:
        """Visit the blocks of an operation; return whether the barrier after it is left to the caller.

        In a loop over threads, conditions and extents may differ between threads.
        """
        axis = find_axis(op)
        is_outermost = axis is not None and axis[0] == "thread" and self.threads <= axes
        if axis is not None:
            axes = axes - {axis}
            reached = reached and (axis[0] == "block" or self.is_full(op))
        elif not self.threads <= axes:
            reached = reached and op.name in LOOPS and all(integer_of(value) is not None for value in op.operands)
        if not axes:
            return False
        is_left = False
        for region in op.regions:
            for block in region.blocks:
                body = [o.operation for o in block.operations]
                is_left |= self.visit(body[:-1], axes, body[-1], reached)
        self.synchronizes |= is_left
        return is_left and not (is_outermost and not op.opview.nowait)

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
    """Return whether all threads need a value of an operation that also writes memory for all of them."""
    own = any(is_written and buffer not in shared for buffer, is_written in used.items())
    return (own or bool(op.results)) and bool(op.regions)


@dataclass
class _Due:
    """The accesses in a block of operations since the last barrier."""

    statements: UniformStatements
    threads: Set[Axis]
    """The axes of threads that no loop is around."""
    reached: bool
    """Whether all threads execute the block."""
    is_alone: bool = False
    """Whether one thread has accessed memory for all."""
    is_shared: bool = False
    """Whether all threads have."""
    is_mixed: bool = False
    """Whether both have, one after the other, at any time."""
    in_loops: Elements = field(default_factory=dict)
    """What loops over threads have accessed, if all are in one."""
    first_in_loops: Elements = field(default_factory=dict)
    """What loops over threads access before the first barrier of the block."""
    first_in_statements: Elements = field(default_factory=dict)
    """What statements access there."""
    has_waited: bool = False
    """Whether there was a barrier in the block."""

    def note_loops(self, elements: Elements) -> None:
        """Record the accesses of loops over threads."""
        merge_elements(self.in_loops, elements)
        if not self.has_waited:
            merge_elements(self.first_in_loops, elements)

    def note_statement(self, elements: Elements) -> None:
        """Record the accesses of a statement that is in no loop over threads."""
        if not self.has_waited:
            merge_elements(self.first_in_statements, elements)

    def synchronize(self, before: ir.Operation, is_exchanged: bool = False, is_needed: bool = True) -> None:
        """Insert a barrier if one thread has accessed memory for all, or if threads exchange elements.

        Only an exchange counts if it is not `is_needed` otherwise.
        """
        if not is_needed and not is_exchanged:
            return
        if self.threads and (self.is_alone or self.is_shared or is_exchanged):
            if not self.reached:
                raise PassError(_UNREACHED, before.location)
            with ir.InsertionPoint(before), before.location:
                barrier()
            self.statements.synchronizes = self.has_waited = True
            self.in_loops.clear()
        self.is_alone = self.is_shared = False

    def finish(self, end: ir.Operation, is_repeated: bool) -> bool:
        """Synchronize at the end of the block; return whether that is left to the caller.

        Where the block is repeated, its beginning follows its end: threads exchange elements there too.
        """
        if is_repeated:
            follows = is_exchanged(self.in_loops, self.first_in_loops, self.threads) or is_exchanged(
                self.in_loops, self.first_in_statements, self.threads, has_own=False
            )
            self.synchronize(end, follows, is_needed=False)
        if self.threads and not self.reached and not self.is_mixed:
            # The thread that executes all of it need not wait for itself.
            return self.is_alone or self.is_shared
        self.synchronize(end)
        return False


_UNREACHED = (
    "threads would wait here for what one of them writes, but not all threads of the block execute this loop: let "
    "loops over one axis have the same extent, or write the statement in a loop of its own"
)
