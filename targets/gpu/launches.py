"""The launches of a prim function's body.

Threads of different blocks wait for one another only where a launch ends. So each loop of the body is a launch of its
own, unless it uses memory of threads, or a value, that another operation of the body uses too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.copies import flatten_copy, is_copy

ALLOCA, LAUNCH = "memref.alloca", "gpu.launch"
VIEWS = ("memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast", "memref.cast")
"""Operations that view the same memory differently."""
OUTSIDE = ("memref.view", "arith.constant", *VIEWS)
"""Operations that the host executes, besides arithmetic on sizes."""
_ARITHMETIC = ("arith.", "vector.from_elements", "vector.extract")
"""How the names of operations begin that access no buffers, most of all."""
_COPY = "memref.copy"
_READS = ("memref.load", "vector.load", "vector.maskedload", "vector.transfer_read", "vector.gather", _COPY)
"""Operations that only read their first operand, where it is a buffer."""


@dataclass(eq=False)
class Statement:
    """An operation of a function's body that does not run on the host, and the memory that it uses."""

    op: ir.Operation
    position: int
    accessed: dict[ir.Value, bool] = field(default_factory=dict)
    """The parameters, scratch buffers and arrays that it accesses, and whether it writes them."""
    buffers: dict[ir.Value, bool] = field(default_factory=dict)
    """The buffers in main memory that it accesses, and whether it writes them."""
    tied: set[ir.Value] = field(default_factory=set)
    """The memory of threads that it uses, and the values of its own and of other statements."""
    has_launches: bool = False

    def conflict(self, other: Statement) -> ir.Value | None:
        """Return a buffer in main memory that one of two statements writes and the other one uses."""
        for buffer, is_written in self.buffers.items():
            if buffer in other.buffers and (is_written or other.buffers[buffer]):
                return buffer
        return None


@dataclass(eq=False)
class Launch:
    """Consecutive statements that run in one launch, or a statement that the host executes."""

    statements: list[Statement]
    arrays: list[ir.Operation] = field(default_factory=list)
    """The allocations of memory of its threads, and of their blocks, and views of these."""

    @property
    def is_on_host(self) -> bool:
        """Return whether there is nothing to launch: rules of the target have scheduled it, or the device copies."""
        statements = self.statements
        return any(s.has_launches for s in statements) or all(is_copy(s.op) and not s.tied for s in statements)

    @property
    def operations(self) -> list[ir.Operation]:
        return [*self.arrays, *(statement.op for statement in self.statements)]

    def exchanged(self) -> ir.Value | None:
        """Return a buffer in main memory through which a statement depends on another one."""
        pairs = ((a, b) for i, a in enumerate(self.statements) for b in self.statements[i + 1 :])
        return next((buffer for a, b in pairs if (buffer := a.conflict(b)) is not None), None)


def find_launches(function: ir.Operation) -> list[Launch]:
    """Return the launches of a function's body, in an order in which they can run one after the other."""
    listed = _device_operations(function)
    arrays, operations = ([op for op in listed if _is_array(op) is wanted] for wanted in (True, False))
    memory, produced = {array.results[0] for array in arrays}, {value for op in operations for value in op.results}
    statements = [_statement(op, i, memory | produced) for i, op in enumerate(operations)]
    launches = _in_order(_connected(statements))
    for array in arrays:
        user = next((each for each in launches if any(array.results[0] in s.tied for s in each.statements)), None)
        if user is not None:
            user.arrays.append(array)
    return launches


def _is_array(op: ir.Operation) -> bool:
    """Return whether an operation allocates memory of threads, or views such memory."""
    if op.name not in VIEWS:
        return op.name == ALLOCA
    owner = _viewed(op.operands[0]).owner
    return not isinstance(owner, ir.Block) and owner.name == ALLOCA


def _device_operations(function: ir.Operation) -> list[ir.Operation]:
    """Return the operations of a body but views of parameters and arithmetic on sizes; loops that copy are copies."""
    block = function.regions[0].blocks[0]
    for op in [o.operation for o in block.operations]:
        flatten_copy(op)
    result: list[ir.Operation] = []
    computed: set[ir.Value] = set()
    """Values that the device computes."""
    for op in [o.operation for o in block.operations][:-1]:
        if _is_array(op) or (op.name not in OUTSIDE and not (_is_size(op) and computed.isdisjoint(op.operands))):
            result.append(op)
            computed.update(op.results)
    return result


def _is_size(op: ir.Operation) -> bool:
    return op.name.startswith("arith.") and all(str(result.type) in ("index", "i1") for result in op.results)


def _statement(op: ir.Operation, position: int, values: set[ir.Value]) -> Statement:
    """Return a statement with the memory that it uses; `values` are memory of threads, and results of statements."""
    statement = Statement(op, position, tied=set(op.results))

    def visit(inner: ir.Operation) -> ir.WalkResult:
        statement.has_launches |= inner.name == LAUNCH
        if values:
            statement.tied.update(values.intersection(inner.operands))
        _add_accesses(inner, statement.accessed)
        return ir.WalkResult.ADVANCE

    walk(op, visit, ir.WalkOrder.PRE_ORDER)
    statement.tied.update(values.intersection(statement.accessed))
    statement.buffers = {buffer: written for buffer, written in statement.accessed.items() if buffer not in values}
    return statement


def accesses(op: ir.Operation) -> dict[ir.Value, bool]:
    """Return the parameters, scratch buffers and arrays that an operation accesses, and whether it writes them."""
    written: dict[ir.Value, bool] = {}

    def visit(inner: ir.Operation) -> ir.WalkResult:
        _add_accesses(inner, written)
        return ir.WalkResult.ADVANCE

    walk(op, visit, ir.WalkOrder.PRE_ORDER)
    return written


def _add_accesses(op: ir.Operation, written: dict[ir.Value, bool]) -> None:
    for buffer, is_written in own_accesses(op).items():
        written[buffer] = written.get(buffer, False) or is_written


def own_accesses(op: ir.Operation) -> dict[ir.Value, bool]:
    """Return the buffers that an operation accesses itself, not in its regions, and whether it writes them."""
    written: dict[ir.Value, bool] = {}
    if op.name.startswith(_ARITHMETIC):
        return written
    for i, operand in enumerate(op.operands):
        if isinstance(operand.type, ir.MemRefType) and op.name not in OUTSIDE:
            buffer = _viewed(operand)
            written[buffer] = written.get(buffer, False) or i > 0 or op.name not in _READS
    return written


def _viewed(value: ir.Value) -> ir.Value:
    """Return the parameter, the scratch buffer or the array that a buffer is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in VIEWS:
        value = value.owner.operands[0]
    return value


def _connected(statements: Sequence[Statement]) -> list[Launch]:
    """Return statements that use the same memory of threads, or values of one another, together."""
    groups: list[list[Statement]] = []
    for statement in statements:
        joined = [group for group in groups if any(not statement.tied.isdisjoint(other.tied) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), statement])
    return _sorted(Launch(sorted(group, key=lambda s: s.position)) for group in groups)


def _sorted(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda launch: launch.statements[0].position)


def _in_order(launches: list[Launch]) -> list[Launch]:
    """Return launches after those that they depend on; those that depend on one another are one launch."""
    before = {launch: [other for other in launches if _must_precede(other, launch)] for launch in launches}
    reached = {launch: _reach(launch, before) for launch in launches}
    ordered: list[Launch] = []
    done: set[Launch] = set()
    while len(done) < len(launches):
        # All that is before the next launch depends on it in turn.
        first = next(
            launch
            for launch in launches
            if launch not in done and all(other in done or launch in reached[other] for other in reached[launch])
        )
        cycle = [launch for launch in launches if launch is first or launch in reached[first] - done]
        done.update(cycle)
        ordered.append(Launch(sorted((s for each in cycle for s in each.statements), key=lambda s: s.position)))
    return ordered


def _must_precede(launch: Launch, other: Launch) -> bool:
    """Return whether a statement of a launch conflicts with a later one of another launch."""
    if launch is other:
        return False
    pairs = ((a, b) for a in launch.statements for b in other.statements if a.position < b.position)
    return any(a.conflict(b) is not None for a, b in pairs)


def _reach(launch: Launch, before: dict[Launch, list[Launch]]) -> set[Launch]:
    """Return all launches that must be before one."""
    reached: set[Launch] = set()
    left = list(before[launch])
    while left:
        other = left.pop()
        if other not in reached:
            reached.add(other)
            left += before[other]
    return reached
