"""Conversion from tensor form to buffer form: parameters, scratch memory and results of a prim function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

from mirlo.dialects.bindings import func, ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim, UndecidedDim
from mirlo.dialects.core.index_expr import contiguous_strides
from mirlo.dialects.core.types import dim_attributes, dims_of
from mirlo.dialects.core.value import compare, index, is_constant
from mirlo.dialects.tir.buffers import (
    ALIGNMENT,
    SHARED,
    STACK_LIMIT,
    UNBOUNDED,
    WORKSPACE,
    aligned,
    buffer_type,
    tensor_bytes,
    workspace_attribute,
    workspace_type,
)
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.sizes import EXTENTS, add_extents, bind_symbols, extents_of
from mirlo.dialects.tir.view import PRIM_FUNC, PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.schedule.choices import CHOSEN, choices_attribute
from mirlo.passes.schedule.loops import for_loop, load, store
from mirlo.passes.schedule.stored import STORED
from mirlo.passes.schedule.vectors import flat
from mirlo.runtime.records import dataclass

SCHEDULE = "tir.schedule"
"""Attribute: the rule that scheduled the function, and its parameters."""
CYCLES = "cycles"
"""Name of a parameter of a schedule: the cycles of a core that the target's cost model expects of the kernel."""
TARGET = "tir.target"
"""Attribute of a prim function until it is scheduled: the target whose rules schedule it."""
ScheduleFacts = Mapping[str, str | Dim | Sequence[Dim]]
"""What a schedule did, which `mirlo explain` prints."""


def memref_of(tensor_type: ir.Type) -> ir.Type:
    return buffer_type(dims_of(tensor_type), tensor_type.element_type)


class BufferFunction:
    """The buffer form of a prim function while a schedule builds it.

    `buffer(value)` returns the memref of a tensor value: a parameter, an output, or scratch memory allocated on
    demand.
    """

    def __init__(self, view: PrimView, stack_limit: int = STACK_LIMIT):
        self.view = view
        self.stack_limit = stack_limit
        """Most bytes of scratch memory on the stack; zero if kernels cannot use the stack."""
        self.location = view.op.location
        inputs = [memref_of(v.type) for v in view.arguments]
        outputs = [memref_of(v.type) for v in view.returned]
        self.workspace_bytes: Dim = 0
        self.stack_bytes = 0
        with self.location:
            self.function = func.FuncOp(
                view.name,
                ir.FunctionType.get(inputs + outputs, []),
                visibility="private",
                ip=ir.InsertionPoint(view.op),
            )
            self.entry = self.function.add_entry_block()
        arguments = list(self.entry.arguments)
        self.buffers: dict[ir.Value, ir.Value] = dict(zip(view.arguments, arguments[: len(inputs)], strict=True))
        self.copies: list[tuple[ir.Value, ir.Value]] = []
        for value, buffer in zip(view.returned, arguments[len(inputs) :], strict=True):
            if value in self.buffers:
                self.copies.append((value, buffer))
            else:
                self.buffers[value] = buffer
        self._views: list[tuple[ir.Value, int]] = []

    def buffer(self, value: ir.Value) -> ir.Value:
        """Return the buffer of a tensor value; scratch memory if it is neither a parameter nor returned."""
        if value not in self.buffers:
            self.buffers[value] = self.scratch(dims_of(value.type), value.type.element_type)
        return self.buffers[value]

    def scratch(self, shape: Sequence[Dim], element_type: ir.Type) -> ir.Value:
        """Allocate scratch memory at the start of the function: small buffers on the stack, others in the workspace."""
        kind = buffer_type(shape, element_type)
        size = tensor_bytes(shape, element_type)
        with ir.InsertionPoint.at_block_begin(self.entry), self.location:
            if isinstance(size, int) and self.stack_bytes + size <= self.stack_limit:
                self.stack_bytes += size
                alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
                return memref.AllocaOp(kind, [], [], alignment=alignment).result
            if self.workspace_bytes == 0:
                self._add_workspace()
            offset = self.workspace_bytes
            self.workspace_bytes = self.workspace_bytes + aligned(size)
            return memref.ViewOp(kind, self.workspace, index(offset), []).result

    def shared_scratch(self, elements: Dim, element_type: ir.Type) -> ir.Value:
        """Allocate scratch memory that all threads of a loop share."""
        buffer = self.scratch([elements], element_type)
        buffer.owner.attributes[SHARED] = ir.UnitAttr.get()
        return buffer

    def _add_workspace(self) -> None:
        dynamic = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        self.workspace = self.entry.add_argument(dynamic, self.location)

    def build(
        self, body: Callable[[], None], schedule: ScheduleFacts, choices: ChoiceValues | None = None
    ) -> func.FuncOp:
        """Run `body` at the insertion point of the function, finish it, and replace the tensor form by it.

        `schedule` describes the schedule; `choices` are the values with which the rule makes it again.
        """
        with ir.InsertionPoint(self.entry), self.location:
            try:
                body()
            except UndecidedDim:
                self.function.operation.erase()  # the next rule builds another one
                raise
            self._skip_empty_results()
            for value, target in self.copies:
                self._copy(value, target)
            func.ReturnOp([])
        if self.workspace_bytes != 0:
            self._fix_workspace()
        op, old = self.function.operation, self.view.op
        add_extents(op, extents_of(old))
        bind_symbols(self.function)
        types = [argument.type for argument in self.entry.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        for i in range(len(old.attributes)):
            named = old.attributes[i]
            if "." in named.name and named.name not in (EXTENTS, CHOSEN, TARGET, STORED):
                op.attributes[named.name] = named.attr
        op.attributes[PRIM_FUNC] = ir.UnitAttr.get()
        op.attributes[SCHEDULE] = schedule_attribute(schedule)
        if choices:
            op.attributes[CHOSEN] = choices_attribute(choices)
        old.erase()
        return self.function

    def _skip_empty_results(self) -> None:
        """Give outermost loops no iterations where all results are empty: another dim may be as long as 2^60."""
        shapes = [[dim for dim in dims_of(value.type) if dim != 1] for value in self.view.returned]
        if all(len(shape) < 2 for shape in shapes) or any(all(isinstance(d, int) for d in shape) for shape in shapes):
            return
        results = [(op.operation, loop) for op in self.entry.operations for loop in _outermost_loops(op.operation)]
        results = [(op, loop) for op, loop in results if not is_constant(loop.operands[1])]
        if not results:
            return
        loops = [loop for _, loop in results]
        i1 = ir.IntegerType.get_signless(1)
        with ir.InsertionPoint(results[0][0]):
            full = []
            for shape in shapes:
                dims = [compare("gt", index(d), index(0)) for d in shape]
                full.append(reduce(partial(create, "arith.andi", i1), dims))
            is_full = reduce(partial(create, "arith.ori", i1), full)
        for loop in loops:
            lower, upper = loop.operands[0], loop.operands[1]
            with ir.InsertionPoint(loop):
                loop.operands[1] = create("arith.select", upper.type, is_full, upper, lower)

    def _copy(self, value: ir.Value, target: ir.Value) -> None:
        source = self.buffer(value)
        if list(target.type.shape) != [UNBOUNDED]:
            memref.CopyOp(source, target)
            return
        shape = [D.product(dims_of(value.type))]
        for_loop(0, shape[0], 1, lambda i: store(load(source, shape, [i]), target, shape, [i]))

    def _fix_workspace(self) -> None:
        self.workspace.set_type(workspace_type(self.workspace_bytes))
        self.function.operation.attributes[WORKSPACE] = workspace_attribute(self.workspace_bytes)


@dataclass(frozen=True)
class BufferSlot:
    """Where a tensor is stored: a one-dimensional buffer, and the stride of each dim."""

    buffer: ir.Value
    strides: tuple[Dim, ...]


class TensorBuffers:
    """The buffers of tensor values, each flattened at its first use outside of all loops."""

    def __init__(self, buffers: BufferFunction):
        self.buffers = buffers
        self._slots: dict[Hashable, BufferSlot] = {}
        self._instead: dict[ir.Value, ir.Value] = {}
        self._placed: dict[Hashable, ir.Value] = {}

    def share(self, value: ir.Value, other: ir.Value) -> None:
        """Store a value in the buffer of another value with the same shape and type."""
        self._instead[value] = other

    def place(self, value: Hashable, buffer: ir.Value) -> None:
        """Store a part of a value, that of a block, in a separate buffer; positions are relative to the part."""
        self._placed[value] = buffer

    def buffer(self, value: Any) -> ir.Value:
        """Return the buffer of a value: that of the function, or where the value is placed."""
        target = self._instead.get(value, value)
        return self._placed[target] if target in self._placed else self.buffers.buffer(target)

    def slot(self, value: Any) -> BufferSlot:
        if value not in self._slots:
            self._slots[value] = BufferSlot(flat(self.buffer(value)), contiguous_strides(dims_of(value.type)))
        return self._slots[value]


def _outermost_loops(op: ir.Operation) -> list[ir.Operation]:
    """Return an operation that is a loop, or the outermost loops of a choice between variants."""
    if op.name in ("scf.for", "tir.for"):
        return [op]
    if op.name != "scf.if":
        return []
    blocks = [region.blocks[0] for region in op.regions if len(region.blocks)]
    return [loop for block in blocks for inner in block.operations for loop in _outermost_loops(inner.operation)]


def schedule_attribute(schedule: ScheduleFacts) -> ir.Attribute:
    """Return a dictionary attribute of strings, integers and lists of integers."""

    def encode(value: str | Dim | Sequence[Dim]) -> ir.Attribute:
        if isinstance(value, str):
            return ir.StringAttr.get(value)
        if isinstance(value, bool):
            return ir.BoolAttr.get(value)
        if isinstance(value, (int, SymbolicDim)):
            return dim_attributes((value,))[0]
        if all(isinstance(item, int) for item in value):
            return ir.DenseI64ArrayAttr.get([item for item in value if isinstance(item, int)])
        return dim_attributes(tuple(value))

    return ir.DictAttr.get({name: encode(value) for name, value in schedule.items()})
