"""Elements of memory that threads and blocks of a launch exchange: one writes them, and others use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import integer_of
from mirlo.dialects.core.walk import walk
from mirlo.targets.gpu.bound_loops import Axis, axis_of, find_axis, loops_around
from mirlo.targets.gpu.launches import own_accesses

Position = Axis | int | ir.Value
Elements = dict[ir.Value, tuple[bool, set[object]]]
"""The buffers that are accessed, whether they are written, and the positions of the elements (`element_of`)."""
LOOPS = ("tir.for", "scf.for")
_LINEAR = ("arith.addi", "arith.subi", "arith.muli", "arith.index_cast")


def merge_elements(elements: Elements, others: Elements) -> None:
    """Add the accesses of others to the first ones."""
    for buffer, (is_written, positions) in others.items():
        before = elements.get(buffer, (False, set()))
        elements[buffer] = (before[0] or is_written, before[1] | positions)


def is_exchanged(first: Elements, second: Elements, threads: Set[Axis], has_own: bool = True) -> bool:
    """Return whether a thread may use an element that another one, along these axes, has written.

    If loops over the axes are around both, each thread has elements of its own where their positions name all axes.
    """
    for buffer in first.keys() & second.keys():
        positions = first[buffer][1] | second[buffer][1]
        is_own = has_own and len(positions) == 1 and threads <= _names(next(iter(positions)))
        if (first[buffer][0] or second[buffer][0]) and not is_own:
            return True
    return False


def element_of(op: ir.Operation, buffer: ir.Value) -> object:
    """Return the position of the element that an operation accesses, equal for equal computations of axes."""
    positions = _positions(op, buffer)
    return op if positions is None else tuple(_computation(value) for value in positions)


def _computation(value: Position) -> object:
    """Return the computation of a position: sums and products of axes, numbers, and loops between two numbers."""
    if not isinstance(value, ir.Value):
        return value
    position = _position(value)
    if not isinstance(position, ir.Value):
        return position
    owner = value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner
    is_loop = isinstance(value.owner, ir.Block) and owner.name in LOOPS and value == value.owner.arguments[0]
    if not is_loop and owner.name not in _LINEAR:
        return value
    return (owner.name, *(_computation(operand) for operand in list(owner.operands)[:3]))


def _names(position: object) -> set[object]:
    """Return the names that occur in the computation of a position."""
    if not isinstance(position, tuple):
        return {position}
    return {position}.union(*map(_names, position))


def exchange_between_blocks(
    operations: Sequence[ir.Operation], written: Set[ir.Value], blocks: Set[Axis]
) -> tuple[ir.Value, ir.Operation] | None:
    """Return a buffer in main memory through which blocks exchange elements, and where; None if there is none.

    There is none where each block executes all uses in one iteration of its loops, or has elements of its own.
    """
    users: dict[ir.Value, list[tuple[ir.Operation, bool]]] = {}
    for op, buffer, is_written in accesses_of(operations, written):
        if buffer.type.memory_space is None:
            users.setdefault(buffer, []).append((op, is_written))
    for buffer, uses in users.items():
        loops = {_loop_over_blocks(op, blocks) for op, _ in uses}
        loop = next(iter(loops))
        if len(loops) == 1 and loop is not None and not _is_repeated(loop):
            continue
        positions = {element_of(op, buffer) for op, _ in uses}
        is_own = len(positions) == 1 and blocks <= _names(next(iter(positions)))
        if not is_own and not all(is_written for _, is_written in uses):
            return buffer, uses[-1][0]
    return None


def _loop_over_blocks(op: ir.Operation, blocks: Set[Axis]) -> ir.Operation | None:
    """Return the innermost loop over blocks around an operation; None if not all of these axes are around it."""
    loops = [loop for loop in loops_around(op) if axis_of(loop)[0] == "block"]
    return loops[0] if loops and blocks <= set(map(axis_of, loops)) else None


def exchange_in_main_memory(loops: Sequence[ir.Operation], shared: Set[ir.Value], threads: Set[Axis]) -> bool:
    """Return whether a thread may use an element in main memory that another thread writes in another one of the loops.

    It does not if each thread has elements of its own: their positions are the same in all loops, and name all axes.
    """
    users: dict[ir.Value, list[tuple[ir.Operation, tuple[Position, ...] | None, bool]]] = {}
    for loop in loops:
        for op, buffer, is_written in accesses_of([loop], shared):
            if buffer.type.memory_space is None:
                users.setdefault(buffer, []).append((loop, _positions(op, buffer), is_written))
    for uses in users.values():
        repeated = len({loop for loop, _, _ in uses}) > 1 or any(_is_repeated(loop) for loop, _, _ in uses)
        if not repeated or not any(is_written for _, _, is_written in uses):
            continue
        first = uses[0][1]
        if first is None or not threads <= set(first) or any(positions != first for _, positions, _ in uses):
            return True
    return False


def accesses_of(
    operations: Iterable[ir.Operation], buffers: Set[ir.Value]
) -> Iterator[tuple[ir.Operation, ir.Value, bool]]:
    """Yield the operations in these ones that access some of the buffers, each with whether it writes it."""
    nested: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nested.append(inner)
        return ir.WalkResult.ADVANCE

    for outer in operations:
        walk(outer, visit, ir.WalkOrder.PRE_ORDER)
    for op in nested:
        for buffer, is_written in own_accesses(op).items():
            if buffer in buffers:
                yield op, buffer, is_written


def _positions(op: ir.Operation, buffer: ir.Value) -> tuple[Position, ...] | None:
    """Return the indices with which an operation accesses a buffer; None if it accesses more than one element."""
    if op.name not in ("memref.load", "memref.store"):
        return None
    at = 0 if op.name == "memref.load" else 1
    if op.operands[at] != buffer:
        return None
    return tuple(_position(value) for value in list(op.operands)[at + 1 :])


def _position(value: ir.Value) -> Position:
    if isinstance(value.owner, ir.Block):
        return find_axis(value.owner.owner.operation) or value
    number = integer_of(value)
    return value if number is None else number


def _is_repeated(loop: ir.Operation) -> bool:
    """Return whether a loop that is bound to no axis is around."""
    parent = loop.parent
    while parent is not None and parent.name != "gpu.launch":
        if parent.name in LOOPS and find_axis(parent.operation) is None:
            return True
        parent = parent.operation.parent
    return False


def why_no_exchange_between_loops(buffer: ir.Value, function: str) -> str:
    """Return why blocks of one launch cannot depend on one another through a buffer."""
    return (
        f"'@{function}': one launch runs loops that use the same memory of threads, and one of them uses "
        f"{_described(buffer)} that another one writes: blocks of threads do not wait for one another; write one loop "
        "over blocks around both, or give each memory of threads of its own"
    )


def why_no_exchange_between_blocks(buffer: ir.Value, function: str) -> str:
    """Return why blocks cannot depend on one another in loops that are not all around both uses."""
    return (
        f"'@{function}': blocks of threads use elements of {_described(buffer)} that other blocks write in the same "
        "launch, and do not wait for one another: write one nest of loops over all blocks around both uses, or make "
        "each an outermost loop over blocks, which is a launch of its own"
    )


def _described(buffer: ir.Value) -> str:
    if isinstance(buffer.location, ir.NameLoc):
        return f"'{buffer.location.name_str}'"
    what = f"parameter {buffer.arg_number}" if isinstance(buffer, ir.BlockArgument) else "scratch memory"
    return f"{what} of type {buffer.type}"
