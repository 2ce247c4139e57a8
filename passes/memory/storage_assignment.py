"""Memory assignment of the tensors of a function: a parameter, an output, or an interval of the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.relax import DIALECT
from mirlo.dialects.tir.buffers import buffer_type, tensor_bytes, workspace_of
from mirlo.passes.memory import packed
from mirlo.passes.memory.inplace import inplace_of
from mirlo.passes.memory.layout import Interval
from mirlo.passes.memory.timeline import Timeline, TimelineBlock, TimelineStep, is_tensor, tensors
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass

VIEWS = frozenset(name for name, op in DIALECT.operations.items() if Trait.VIEW in op.TRAITS)
"""Operators that only view a buffer in another shape."""
PART = "relax.view_part"
"""The operator that views a part of a buffer."""
ROW = "relax.view_row"
"""The operator that views a slice of a weight."""
ALIASES = VIEWS | {PART}
"""Operators whose result lies in the memory of their operand."""
CALLS = frozenset({"relax.call_tir", packed.CALL})
"""Operators that write their results to buffers passed to them."""
BIND = "relax.bind_dims"
ERASE, MATCH = "relax.erase_dims", "relax.match_dims"
REQUIRE = "relax.require_dims"
BINDS = frozenset({BIND, MATCH})
"""Operators that bind symbols."""
SELECT, FROM_ELEMENTS = "arith.select", "tensor.from_elements"


def storage_memref(tensor_type: ir.Type) -> ir.Type:
    """Return the buffer type of a relax tensor."""
    element = dtype_of_mlir(tensor_type.element_type)
    if element is None:
        raise PassError(f"no buffer can hold {tensor_type}")
    return buffer_type(dims_of(tensor_type), ir.Type.parse(element.storage))


@dataclass(eq=False)
class TensorStorage:
    """Memory that several tensors use one after another: an output, or an interval of the arena."""

    interval: Interval
    output: int | None = None
    members: int = 0
    free_after: int = 0
    """The step until which the current content is read; a tensor defined later may be computed here."""
    slot: int | None = None
    """The number of the slot, for a tensor with erased dims: memory of its own, which grows when it is written."""
    erased: tuple[int, ...] = ()
    """The axes of erased dims, whose sizes are stored beside the slot."""

    def cover(self, first: int, last: int) -> None:
        self.interval.first = min(self.interval.first, first)
        self.interval.last = max(self.interval.last, last)


@dataclass(frozen=True)
class TensorCopy:
    """A required copy of a tensor, through temporary memory if its source is overwritten first."""

    source: ir.Value
    target: TensorStorage
    through: TensorStorage | None = None


class StorageAssignment:
    """The memory assignment of all tensors of a function.

    The values that an `scf.if` yields are computed directly in the memory of its results where possible, and else
    copied. A loop has one storage for each tensor that it carries: before the loop, in every iteration, and after
    it. A yielded value is computed directly there if the value of the previous iteration is not read any more. A tensor
    with erased dims has a slot, to which it is copied.
    """

    def __init__(
        self, timeline: Timeline, callee: Callable[[ir.Operation], ir.OpView], takes_aliases: bool = False
    ) -> None:
        self.timeline = timeline
        self.callee = callee
        self.takes_aliases = takes_aliases
        self.in_place = 0
        """How many calls overwrite an input."""
        self.storage: dict[ir.Value, TensorStorage] = {}
        """Storage by root tensor."""
        self.slots = 0
        """The number of slots."""
        self.workspaces: dict[int, Interval] = {}
        """Scratch memory of the calls, by number."""
        self.moves: dict[int, list[TensorCopy]] = {}
        """Copies, by the number of the terminator or loop before which they happen."""
        self.parts: dict[ir.Value, Dim] = {}
        """The positions at which views of a part of their root begin, in elements."""
        self._roots: dict[ir.Value, ir.Value] = {}
        self._made: dict[ir.Value, TimelineStep] = {}
        self._find_roots()
        self.last = timeline.last_uses(self.root)
        self._requests: list[tuple[int, list[ir.Value], list[TensorStorage]]] = []
        body = timeline.body
        returned = list(body.terminator.operands)
        outputs = self._outputs(returned)
        pairs = zip(returned, outputs, strict=True)
        self.aliases: dict[int, int] = {}
        """Inputs, by the outputs that may have their memory: the last use of such an input is the call that overwrites
        it. Sizes are equal where both have one memory, as the run time checks."""
        self.outputs: list[ir.Value] = [self.root(value) for value, output in pairs if self._claim(value, output, body)]
        """Roots that are computed directly in an output."""
        self._request(body.end, returned, outputs)
        self._assign_body(body)
        self._cover()
        for step in timeline.steps():
            if step.op.name == "relax.call_tir":
                self._assign_call(step)
        for number, values, targets in self._requests:
            self.moves[number] = self._moves(number, values, targets)

    def _find_roots(self) -> None:
        """Find the tensor in whose memory each view lies, and the step that computes each other one."""
        for step in self.timeline.steps():
            for value in step.op.results:
                if step.op.name in ALIASES or step.op.name in (ERASE, MATCH):
                    source = step.op.operands[0]
                    self._roots[value] = self.root(source)
                    if step.op.name == PART:
                        self.parts[value] = self.parts.get(source, 0) + step.op.opview.offset[0]
                    elif source in self.parts:
                        self.parts[value] = self.parts[source]
                elif step.bodies or step.op.name in (*CALLS, SELECT, FROM_ELEMENTS):
                    self._made[value] = step

    def _outputs(self, returned: list[ir.Value]) -> list[TensorStorage]:
        """Return the storage of the outputs.

        No value is computed directly in an output before the output's dims are known.
        """
        end, steps = self.timeline.body.end, self.timeline.steps()
        bound_at = {name: step.start for step in steps if step.op.name in BINDS for name in step.op.opview.symbols}
        return [
            TensorStorage(Interval(bytes_of(value.type), end, end), output=i, free_after=_binding_step(value, bound_at))
            for i, value in enumerate(returned)
        ]

    def root(self, value: ir.Value) -> ir.Value:
        return self._roots.get(value, value)

    def intervals(self) -> list[Interval]:
        """Return all intervals of the arena."""
        staged = [move.through for moves in self.moves.values() for move in moves if move.through is not None]
        by_storage = {
            id(s): s.interval for s in (*self.storage.values(), *staged) if s.output is None and s.slot is None
        }
        return [*by_storage.values(), *self.workspaces.values()]

    # Values that are computed directly in their destination. Steps are visited backwards: later ones determine it.

    def _assign_body(self, body: TimelineBlock) -> None:
        for step in reversed(body.steps):
            results = [value for value in tensors(step.op.results) if value in self._made]
            targets = [self._storage_of(value) for value in results]
            if step.op.name == "scf.if":
                for branch in step.bodies:
                    self._yield(branch, tensors(branch.terminator.operands), targets)
            elif step.op.name == "scf.for":
                (inside,) = step.bodies
                self._enter(step, tensors(step.op.operands), tensors(inside.arguments), targets, body)
                self._yield(inside, tensors(inside.terminator.operands), targets)
            elif step.op.name == "scf.while":
                self._assign_while(step, targets, body)

    def _assign_while(self, step: TimelineStep, targets: list[TensorStorage], body: TimelineBlock) -> None:
        """Assign what the condition passes on, the iteration's input and the result, one storage if equal."""
        before, after = step.bodies
        arguments, forwarded = tensors(before.arguments), tensors(before.terminator.operands)
        for argument, target in zip(tensors(after.arguments), targets, strict=True):
            self._put(argument, target)
        carried: dict[ir.Value, TensorStorage] = {}
        for value, target in zip(forwarded, targets, strict=True):
            root = self.root(value)
            if root in arguments and value not in self.parts:
                carried.setdefault(root, target)
        storages = [carried.get(each) or self._new_storage(each, step) for each in arguments]
        self._enter(step, tensors(step.op.operands), arguments, storages, body)
        for storage in storages:
            storage.cover(step.start, step.end)
        self._yield(after, tensors(after.terminator.operands), storages, tensors(after.arguments))
        self._yield(before, forwarded, targets, [])

    def _enter(
        self,
        step: TimelineStep,
        inits: list[ir.Value],
        arguments: list[ir.Value],
        places: list[TensorStorage],
        body: TimelineBlock,
    ) -> None:
        """Compute the initial values of a loop in its carried storage if nothing else reads them."""
        for init, argument, storage in zip(inits, arguments, places, strict=True):
            self._put(argument, storage)
            if self.last[self.root(init)] == step.start:
                self._claim(init, storage, body)
        self._request(step.start, inits, places)

    def _yield(
        self,
        body: TimelineBlock,
        values: list[ir.Value],
        targets: list[TensorStorage],
        readers: Sequence[ir.Value] | None = None,
    ) -> None:
        """Compute the yielded values in the targets, which the body's tensors (arguments, else `readers`) are."""
        readers = tensors(body.arguments) if readers is None else readers
        kept = [(storage, storage.free_after) for storage in (*targets, *(self.storage[reader] for reader in readers))]
        for reader in readers:
            storage = self.storage[reader]
            storage.free_after = max(storage.free_after, self.last.get(reader, 0))
        for value, storage in zip(values, targets, strict=True):
            self._claim(value, storage, body, [r for r in readers if self.storage[r] is storage])
        self._request(body.end, values, targets)
        self._assign_body(body)
        for storage, before in kept:
            storage.free_after = before

    def _claim(
        self, value: ir.Value, storage: TensorStorage, body: TimelineBlock, readers: Sequence[ir.Value] = ()
    ) -> bool:
        """Assign a value to a storage, if this body computes it and the old content is dead."""
        root = self.root(value)
        step = self._made.get(root)
        if storage.slot is not None or has_erased_dims(root) or value in self.parts:
            return False
        if step is None or root in self.storage or not any(step is each for each in body.steps):
            return False
        ends_here = step.start == storage.free_after and any(
            self.last.get(reader) == step.start and self._may_overwrite(step.op, reader) for reader in readers
        )
        if step.start <= storage.free_after and not ends_here:
            return False
        self.in_place += ends_here
        self._put(root, storage)
        return True

    def _storage_of(self, value: ir.Value) -> TensorStorage:
        if value not in self.storage:
            step = self._made[value]
            self._put(value, self._new_storage(value, step))
        return self.storage[value]

    def _new_storage(self, value: ir.Value, step: TimelineStep) -> TensorStorage:
        """Return memory for a tensor: a slot if dims are erased."""
        if not has_erased_dims(value):
            return TensorStorage(Interval(bytes_of(value.type), step.start, step.end))
        self.slots += 1
        erased = tuple(axis for axis, dim in enumerate(dims_of(value.type)) if dim is D.UNKNOWN)
        return TensorStorage(Interval(0, step.start, step.end), slot=self.slots - 1, erased=erased)

    def _put(self, value: ir.Value, storage: TensorStorage) -> None:
        self.storage[value] = storage
        storage.members += 1

    def _cover(self) -> None:
        """Compute the live range of each storage: from its first tensor to the last use of any."""
        for value, storage in self.storage.items():
            step = self._made.get(value)
            if step is not None:
                storage.cover(step.start, max(step.end, self.last.get(value, 0)))

    # Kernels that overwrite an input

    def _assign_call(self, step: TimelineStep) -> None:
        op = step.op
        size = op.opview.in_caller(workspace_of(self.callee(op)))
        if size != 0:
            self.workspaces[step.start] = Interval(size, step.start, step.start)
        if len(op.results) != 1:
            return
        value = op.results[0]
        own = self.storage[value]
        if own.output is not None:
            self._assign_alias(step, own)
        if own.members > 1 or own.output is not None:
            return
        for position in sorted(inplace_of(self.callee(op))):
            root = self.root(op.operands[position])
            storage = self.storage.get(root)
            if storage is None or storage.output is not None or storage.slot is not None:
                continue
            if storage.interval.last != step.start:
                continue
            if self._may_overwrite(op, root):
                storage.cover(step.start, own.interval.last)
                self._put(value, storage)
                self.in_place += 1
                return

    def _assign_alias(self, step: TimelineStep, own: TensorStorage) -> None:
        """Assign an output to the memory of an input whose last reader is the call that computes it."""
        body, op = self.timeline.body, step.op
        if (
            not self.takes_aliases
            or own.output is None
            or own.members > 1
            or not any(step is each for each in body.steps)
        ):
            return
        for position in sorted(inplace_of(self.callee(op))):
            root, result = self.root(op.operands[position]), body.terminator.operands[own.output].type
            if root not in body.arguments or self.last[root] != step.start or not self._reads_before(op, root):
                continue
            if root.type.element_type == result.element_type and len(root.type.shape) == len(result.shape):
                self.aliases[own.output] = body.arguments.index(root)
                return

    def _may_overwrite(self, op: ir.Operation, root: ir.Value) -> bool:
        """Return whether a call may write its result over this input, which has its size."""
        return self._reads_before(op, root) and bytes_of(op.results[0].type) == bytes_of(root.type)

    def _reads_before(self, op: ir.Operation, root: ir.Value) -> bool:
        """Return whether a call reads each element of an input before it writes that element of its only result."""
        if op.name != "relax.call_tir" or len(op.results) != 1:
            return False
        allowed = set(inplace_of(self.callee(op)))
        positions = [i for i, other in enumerate(op.operands) if self.root(other) == root]
        return bool(positions) and all(i in allowed and op.operands[i] not in self.parts for i in positions)

    # Copies

    def _request(self, number: int, values: list[ir.Value], targets: list[TensorStorage]) -> None:
        self._requests.append((number, values, targets))

    def _moves(self, number: int, values: list[ir.Value], targets: list[TensorStorage]) -> list[TensorCopy]:
        """Return the copies that move values to their targets as if all happened at once."""
        wanted = [
            (value, self.storage.get(self.root(value)), target) for value, target in zip(values, targets, strict=True)
        ]
        wanted = [(with_dims(value), source, target) for value, source, target in wanted if source is not target]
        written = {target for _, _, target in wanted}
        return [
            TensorCopy(
                value,
                target,
                TensorStorage(Interval(bytes_of(value.type), number, number)) if source in written else None,
            )
            for value, source, target in wanted
        ]


def has_erased_dims(value: ir.Value) -> bool:
    """Return whether a tensor's type does not have all of its dims: each iteration may give it another shape."""
    return is_tensor(value) and D.UNKNOWN in dims_of(value.type)


def with_dims(value: ir.Value) -> ir.Value:
    """Return a tensor as it was before its dims were erased."""
    while isinstance(value, ir.OpResult) and value.owner.name == ERASE:
        value = value.owner.operands[0]
    if has_erased_dims(value):
        raise PassError(
            f"a value of type {value.type} is passed on: name its dims with '{MATCH}' first", value.location
        )
    return value


def _binding_step(value: ir.Value, bound_at: Mapping[str, int]) -> int:
    """Return the number of the step that binds the last of a tensor's dims; 0 if all are known before."""
    dims = dims_of(value.type) if is_tensor(value) else ()
    return max((bound_at.get(name, 0) for dim in dims for name in D.symbols_of(dim)), default=0)


def bytes_of(kind: ir.Type) -> Dim:
    """Return the bytes of a tensor of this type; 0 for other types."""
    if not isinstance(kind, ir.RankedTensorType):
        return 0
    return tensor_bytes(dims_of(kind), storage_memref(kind).element_type)
