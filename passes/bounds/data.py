"""Which values of a kernel depend on elements of buffers: on data, and not on loops and sizes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from mirlo.dialects.bindings import ir
from mirlo.passes.bounds.accesses import ACCESSES, Access, is_index, scan_accesses
from mirlo.passes.bounds.local_buffers import LocalBuffers

STACK, COUNT = "memref.alloca", "memref.atomic_rmw"
LAUNCH = "gpu.launch"
_ARITHMETIC = ("arith.", "math.", "affine.apply")
"""Names of operations on values alone."""
_LOOPS = ("scf.for", "scf.while")


class DataDependence:
    """The values of one kernel that depend on data, computed backwards from the queried values.

    A value depends on data if it is computed from an element of a buffer, in a loop whose bounds depend on data, or if
    a condition on data selects it from several values. Values that a kernel stores on its stack are followed to where
    they are stored. Operations that are not understood count as data.
    """

    def __init__(self) -> None:
        self._known: dict[ir.Value, bool] = {}
        self._buffers: dict[ir.Value, bool] = {}
        self.local_buffers = LocalBuffers()
        self._origins_of_content: dict[ir.Value, list[ir.Value] | None] = {}

    def is_from_data(self, value: ir.Value) -> bool:
        """Return whether a value depends on data."""
        known = self._known.get(value)
        if known is not None:
            return known
        users: dict[ir.Value, ir.Value | None] = {value: None}
        waiting = [value]
        while waiting:
            each = waiting.pop()
            origins = None if self._known.get(each) else self._origins(each)
            if origins is None:
                self._note_users_of_data(each, users)
                return True
            for origin in origins:
                if origin not in users and self._known.get(origin) is not False:
                    users[origin] = each
                    waiting.append(origin)
        self._known.update(dict.fromkeys(users, False))
        return False

    def _note_users_of_data(self, value: ir.Value, users: dict[ir.Value, ir.Value | None]) -> None:
        """Record that a value is data, and so is each value on the path from it to the queried one."""
        user: ir.Value | None = value
        while user is not None:
            self._known[user] = True
            user = users[user]

    def is_access_by_data(self, access: Access) -> bool:
        """Return whether data decide which element an access reads or writes."""
        positions = [*access.indices, *([] if access.offsets is None else [access.offsets])]
        return any(map(self.is_from_data, positions)) or self._is_view_by_data(access.buffer)

    def is_unknown_access_by_data(self, op: ir.Operation) -> bool:
        """Return whether an operation on buffers has an index that depends on data, or buffers at such an index."""
        return any(
            self._is_view_by_data(value)
            if isinstance(value.type, ir.MemRefType)
            else is_index(value.type) and self.is_from_data(value)
            for value in op.operands
        )

    def _is_view_by_data(self, buffer: ir.Value) -> bool:
        """Return whether data decide where in its buffer a view begins."""
        known = self._buffers.get(buffer)
        if known is None:
            known = self._buffers[buffer] = any(map(self.is_from_data, _view_operands(buffer)))
        return known

    def _origins(self, value: ir.Value) -> Iterable[ir.Value] | None:
        """Return the values on which a value depends; None for an element of a buffer, or an unknown operation."""
        owner = value.owner
        if isinstance(owner, ir.Block):
            return _origins_of_argument(ir.BlockArgument(value), owner)
        op = owner.operation
        if op.name == "memref.load":
            return self._origins_of_load(op)
        if op.name == COUNT:
            return self._origins_of_count(op)
        if op.name == "memref.dim":
            return ()
        if op.name == "scf.if":
            position = ir.OpResult(value).result_number
            return [op.operands[0], *(_end_of(region.blocks[0]).operands[position] for region in op.regions)]
        if op.name in _LOOPS:
            return _origins_in_loop(op, ir.OpResult(value).result_number)
        is_arithmetic = op.name.startswith(_ARITHMETIC)
        if not is_arithmetic and (len(op.regions) or any(map(_is_buffer, op.operands))):
            return None
        return list(op.operands)

    def _origins_of_load(self, op: ir.Operation) -> Iterable[ir.Value] | None:
        """Return the values on which an element of a buffer on the stack depends; None for another buffer."""
        buffer, *positions = op.operands
        if buffer not in self._origins_of_content:
            self._origins_of_content[buffer] = self._find_origins_of_content(buffer)
        origins = self._origins_of_content[buffer]
        return None if origins is None else [*positions, *origins]

    def _find_origins_of_content(self, buffer: ir.Value) -> list[ir.Value] | None:
        """Return the values on which the elements of a buffer on the stack depend."""
        owner = buffer.owner
        if isinstance(owner, ir.Block) or owner.operation.name != STACK:
            return None
        stores = self.local_buffers.stores_of(buffer)
        if stores is None:
            return None  # it may hold anything
        origins: list[ir.Value] = []
        for store in stores:
            origins += [store.operands[0], *list(store.operands)[2:]]
            origins += self._conditions_around(store, owner.operation.block)
        return list(dict.fromkeys(origins))

    def _origins_of_count(self, op: ir.Operation) -> Iterable[ir.Value] | None:
        """Return the values on which a counter of threads, such as that of a task, on the stack depends."""
        _, buffer, *positions = op.operands
        users = self.local_buffers.users_of(buffer)
        is_stored = all(user.name in ("memref.store", COUNT) and user.operands[1] == buffer for user in users)
        if isinstance(buffer.owner, ir.Block) or buffer.owner.operation.name != STACK or not is_stored:
            return None
        origins = list(positions)
        for user in users:
            origins += [user.operands[0], *list(user.operands)[2:]]
            origins += self._conditions_around(user, buffer.owner.operation.block)
        return origins

    def _conditions_around(self, op: ir.Operation, outermost: ir.Block) -> Iterator[ir.Value]:
        """Yield the values that decide whether, and how often, an operation is executed."""
        inside = list(takewhile(lambda each: each[0] != outermost, self.local_buffers.around(op)))
        # The operation itself is no condition; the one in the outermost block is.
        for _, around in self.local_buffers.around(op)[1 : len(inside) + 1]:
            if around.name == "scf.if":
                yield around.operands[0]
            elif around.name == "scf.for":
                yield from list(around.operands)[:3]
            elif around.name == "scf.while":
                yield from _end_of(around.regions[0].blocks[0]).operands
            else:
                yield from around.operands


def _view_operands(buffer: ir.Value) -> Iterator[ir.Value]:
    """Yield the positions of the views that a buffer is made of."""
    while not isinstance(buffer.owner, ir.Block):
        operands = list(buffer.owner.operation.operands)
        if not operands or not isinstance(operands[0].type, (ir.MemRefType, ir.UnrankedMemRefType)):
            return
        yield from operands[1:]
        buffer = operands[0]


def _origins_of_argument(argument: ir.BlockArgument, block: ir.Block) -> Iterable[ir.Value] | None:
    op = block.owner.operation
    position = argument.arg_number
    if op.name in ("func.func", "gpu.func"):
        return ()  # sizes, which callers check
    if op.name == "scf.for":
        return list(op.operands)[:3] if position == 0 else _origins_in_loop(op, position - 1)
    if op.name == "scf.while":
        return _origins_in_loop(op, position)
    if op.name == LAUNCH:
        return launch_sizes(op)
    if op.name in ("scf.parallel", "scf.forall"):
        return list(op.operands)
    return None


def launch_sizes(op: ir.Operation) -> list[ir.Value]:
    """Return the sizes of a launch: blocks along three axes, threads of a block along three axes."""
    first = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0]  # after what it waits for
    return list(op.operands)[first : first + 6]


def _origins_in_loop(op: ir.Operation, position: int) -> Iterable[ir.Value]:
    """Return the values on which a loop-carried value depends, among them the bounds of the loop."""
    if op.name == "scf.for":
        end = _end_of(op.regions[0].blocks[0])
        return [*list(op.operands)[:3], op.operands[3 + position], end.operands[position]]
    condition, end = (_end_of(region.blocks[0]) for region in op.regions)
    # The regions may pass on different values: all of them count.
    return [*op.operands, *condition.operands, *end.operands]


def _is_buffer(value: ir.Value) -> bool:
    return isinstance(value.type, ir.MemRefType)


def _end_of(block: ir.Block) -> ir.Operation:
    *_, last = block.operations
    return last.operation


class KernelAccesses:
    """The accesses of a kernel, and which of them depend on data."""

    def __init__(self, function: ir.Operation) -> None:
        self.data = DataDependence()
        scanned = scan_accesses(function)
        self.count = sum(op.name in ACCESSES for op in scanned.operations)
        self.by_data: list[ir.Operation] = []
        if scanned.makes_indices:
            self.by_data = [op for op in scanned.operations if self._is_by_data(op)]

    def _is_by_data(self, op: ir.Operation) -> bool:
        find = ACCESSES.get(op.name)
        return self.data.is_unknown_access_by_data(op) if find is None else self.data.is_access_by_data(find(op))

    def operations_by_data(self) -> dict[ir.Block, list[ir.Operation]]:
        """Return the operations of the accesses by data, and those around them, by their block, in order."""
        by_block: dict[ir.Block, list[ir.Operation]] = {}
        for access in self.by_data:
            for block, op in reversed(self.data.local_buffers.around(access)):
                members = by_block.setdefault(block, [])
                if not members or members[-1] != op:
                    members.append(op)
        return by_block
