"""The planned function: its arguments are parameters, outputs, weights and the arena; its body calls prim functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field

import numpy as np

from mirlo.dialects.bindings import arith, func, ir, memref, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import contiguous_strides
from mirlo.dialects.core.symbols import is_entry, mark_entry, symbol_name
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.core.value import compare, index
from mirlo.dialects.relax.shape import VIEW_TEXT
from mirlo.dialects.tir.buffers import buffer_type, element_bytes, workspace_of, workspace_type
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.sizes import SizeEmitter, symbols_of_function
from mirlo.passes.entry import PLANNED
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.locations import names_of
from mirlo.passes.memory import control, packed, runtime_calls
from mirlo.passes.memory.control import emit_scalars
from mirlo.passes.memory.extents import FloatSizes, NonnegativeDim, SizeProduct, emit_excess
from mirlo.passes.memory.inplace import inplace_of, with_checked_start, without_start
from mirlo.passes.memory.layout import Interval
from mirlo.passes.memory.names import ALIAS, GUARD, PAGES, WINDOW
from mirlo.passes.memory.runtime_calls import Slots
from mirlo.passes.memory.storage_assignment import (
    BINDS,
    ERASE,
    MATCH,
    PART,
    REQUIRE,
    ROW,
    VIEWS,
    StorageAssignment,
    TensorStorage,
    bytes_of,
    has_erased_dims,
    storage_memref,
    with_dims,
)
from mirlo.passes.memory.symbols import FunctionSymbols, load_word, store_word
from mirlo.passes.memory.timeline import TimelineBlock, TimelineStep, is_tensor
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import for_loop
from mirlo.runtime.records import dataclass


@dataclass
class PlannedFunction:
    """A function that is being rebuilt over buffers."""

    name: str
    function: ir.OpView
    """The function over tensors."""
    module: ir.OpView
    assignment: StorageAssignment
    symbols: FunctionSymbols
    callee: Callable[[ir.Operation], ir.OpView]
    buffers: ChainMap[ir.Value | int, ir.Value] = field(default_factory=ChainMap)
    """Buffers of tensors, and of late intervals by identity; a region adds its own, not visible outside."""
    scalars: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Values other than tensors: from old to new ones."""
    late: dict[int, ir.Value] = field(default_factory=dict)
    """Memory of outputs with data-dependent sizes, by number."""
    loops: int = 0
    """The number of loops around the insertion point."""
    regions: int = 0
    """The number of regions around the insertion point, which a call may not enter."""
    _memrefs: dict[int, ir.Type] = field(default_factory=dict)
    """The buffer types of tensor types, by address."""
    _variants: dict[tuple[str, int | None], str] = field(default_factory=dict)
    """The names of variants of functions that work in place."""

    def build(self, arena: Dim) -> None:
        """Replace the function over tensors by one over buffers."""
        old = self.function.operation
        body = self.assignment.timeline.body
        operations = self.assignment.timeline.operations()
        by_name = _constants_by_name(operations)
        inputs, outputs = body.arguments, list(body.terminator.operands)
        values = [*inputs, *outputs, *(op.results[0] for op in by_name.values())]
        self.packed = packed.PackedCalls(self.module, packed.packed_names(operations), self.symbols.words)
        types = [self.memref(v.type) for v in values] + self.packed.argument_types()
        # A slice of a weight begins at any byte: what views take is memory of bytes.
        self.sliced = {op.opview.x.owner.opview.param for op in operations if op.name == ROW}
        for i, name in enumerate(by_name, len(inputs) + len(outputs)):
            if name in self.sliced:
                types[i] = buffer_type([bytes_of(values[i].type)], i8())
        types.append(buffer_type([arena], i8()))
        with old.location:
            function = func.FuncOp(self.name, ir.FunctionType.get(types, []), ip=ir.InsertionPoint(old))
            block = function.add_entry_block()
        buffers, self.arena = list(block.arguments)[:-1], block.arguments[len(types) - 1]
        self.packed_arguments = buffers[len(values) :]
        self.record = self.packed_arguments[-1] if self.packed_arguments else None
        self.weights = dict(zip(by_name, buffers[len(inputs) + len(outputs) :], strict=False))
        self.results = buffers[len(inputs) :][: len(outputs)]
        self._annotate(function, values, list(by_name))
        self.buffers.update(zip(inputs, buffers, strict=False))
        with ir.InsertionPoint(block):
            with old.location:
                # All sizes known before the call are computed here, for any user.
                self.values = self.symbols.load(self._given_record) if self.symbols.any else {}
                self.early, self.late_sizes = SizeEmitter(dict(self.values)), SizeEmitter(self.values)
                self.anchor = index(0).owner
                self.slots = Slots(self.module, self.record, self.anchor)
                for root in self.assignment.outputs:
                    if all(map(self.symbols.is_early, dims_of(root.type))):
                        self.buffer(root)
            self.emit_body(body)
            with old.location:
                self.emit_moves(body.end)
                func.ReturnOp([])
        self.symbols.annotate(function.operation)
        if self.symbols.any:
            self.symbols.build_function(self.name, old)
        old.erase()

    def _annotate(self, planned: ir.OpView, values: list[ir.Value], params: list[str]) -> None:
        """Annotate each argument with its role, for `emit` and for readers of the IR."""
        old, body = self.function.operation, self.assignment.timeline.body
        inputs, outputs = len(body.arguments), len(body.terminator.operands)
        names = [*argument_names(old, "arg_attrs", inputs), *argument_names(old, "res_attrs", outputs), *params]
        keys = ["relax.name"] * (inputs + outputs) + ["relax.param"] * len(params)
        unit, i64 = ir.UnitAttr.get(), ir.IntegerType.get_signless(64)
        entries: list[dict[str, ir.Attribute]] = [
            {key: ir.StringAttr.get(name), "relax.type": ir.TypeAttr.get(value.type)}
            for key, name, value in zip(keys, names, values, strict=True)
        ]
        for output, source in self.assignment.aliases.items():
            entries[inputs + output][ALIAS] = ir.StringAttr.get(names[source])
        for entry, declared in zip(entries, old.attributes.get("arg_attrs", None) or (), strict=False):
            entry |= {key: declared[key] for key in (WINDOW, PAGES) if key in declared}
        attributes = planned.operation.attributes
        if self.packed.names:
            entries.append({packed.FUNCTIONS: unit})
        if self.record is not None:
            entries.append({packed.RECORD: unit})
        if self.packed.names:
            attributes[packed.PACKED] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in self.packed.names])
        entries.append({"relax.arena": unit})
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])
        attributes[PLANNED] = ir.IntegerAttr.get(i64, inputs)
        if is_entry(old):
            mark_entry(planned)
        attributes["relax.outputs"] = ir.IntegerAttr.get(i64, outputs)

    def emit_body(self, body: TimelineBlock) -> None:
        """Emit the operations of a block at the insertion point."""
        for step in body.steps:
            if step.op.name not in (ERASE, PART):
                with step.op.location:
                    self._emit(step)

    def emit_moves(self, number: int) -> None:
        """Emit the copies after the operation with this number."""
        moves = self.assignment.moves[number]
        sources = []
        for move in moves:
            source, tensor = self.buffer(move.source), move.source.type
            if move.through is not None:
                staged = self._buffer_in(move.through, tensor)
                self.copy(source, staged, tensor)
                source = staged
            sources.append((source, tensor, move.target))
        for source, tensor, target in sources:
            if target.slot is not None:
                dims = dims_of(tensor)
                self.slots.resize(target, self.size(bytes_of(tensor)), [self.size(dims[i]) for i in target.erased])
            self.copy(source, self._buffer_in(target, tensor), tensor)

    def copy(self, source: ir.Value, target: ir.Value, tensor: ir.Type) -> None:
        """Copy all elements of a tensor of this type from one buffer to another."""
        dims = dims_of(tensor)
        if all(isinstance(dim, int) for dim in dims):
            memref.CopyOp(source, target)
            return
        count = self.size(D.product(dims))

        def element(i: ir.Value) -> None:
            memref.StoreOp(memref.LoadOp(source, [i]).result, target, [i])

        for_loop(0, count, 1, element)

    @property
    def _given_record(self) -> ir.Value:
        """Return the record of the call, which is an argument of functions that need it."""
        assert self.record is not None
        return self.record

    def memref(self, tensor: ir.Type) -> ir.Type:
        """Return the buffer type of a tensor type; layers have the same few."""
        address = hash(tensor)
        if address not in self._memrefs:
            self._memrefs[address] = storage_memref(tensor)
        return self._memrefs[address]

    def size(self, dim: Dim) -> ir.Value:
        """Return the value of a dim at the insertion point."""
        if not isinstance(dim, int) and self.symbols.is_early(dim):
            with ir.InsertionPoint(self.anchor):
                return self.early.emit(dim)
        unknown = sorted(D.symbols_of(dim) - set(self.values))
        if unknown:
            raise PassError(f"the size {dim} is needed before '{unknown[0]}' is known")
        return self.late_sizes.emit(dim)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Enter a region: buffers created, and sizes bound and computed here, are not visible outside."""
        self.buffers, outside, known = self.buffers.new_child(), self.late_sizes, set(self.values)
        self.late_sizes = outside.nested()
        self.regions += 1
        try:
            yield
        finally:
            self.regions -= 1
            self.buffers, self.late_sizes = self.buffers.parents, outside
            for name in set(self.values) - known:
                del self.values[name]

    def _emit(self, step: TimelineStep) -> None:
        op = step.op
        if step.bodies:
            for value in filter(is_tensor, op.results):  # destinations of all branches and iterations exist before them
                if not has_erased_dims(value):
                    self.buffer(value)
            self.loops += step.is_loop
            control.emit_control(self, step)
            self.loops -= step.is_loop
        elif op.name == "relax.constant":
            self._place_constant(op)
        elif op.name == ROW:
            self.buffers[op.results[0]] = self._row(op)
        elif op.name == "relax.call_tir":
            self._call(step)
        elif op.name == packed.CALL:
            self._call_packed(op)
        elif op.name == REQUIRE:
            self._require(op.opview)
        elif op.name in BINDS:
            (self._match if op.name == MATCH else self._bind)(op)
        elif op.name == "arith.constant" and is_tensor(op.results[0]):
            self.buffers[op.results[0]] = self._global(op, op.attributes["value"])
        elif op.name in VIEWS:
            self._check_view(op)
        else:
            emit_scalars(self, op)

    def _call(self, step: TimelineStep) -> None:
        """Emit the call of a kernel."""
        op = step.op
        arguments = [self.buffer(v) for v in (*op.operands, *op.results)]
        if step.start in self.assignment.workspaces:
            # A bound of a size may be known here and be used instead; the callee computes the size itself.
            wanted = workspace_type(workspace_of(self.callee(op)))
            arguments.append(self._interval(self.assignment.workspaces[step.start], wanted))
        arguments += [self.size(op.opview.in_caller(dim)) for dim in symbols_of_function(self.callee(op))]
        with self._unless_empty(op):
            func.CallOp([], ir.FlatSymbolRefAttr.get(self._called(op)), arguments)

    def _call_packed(self, op: ir.Operation) -> None:
        values = [*op.operands, *op.results]
        buffers = [self.buffer(v) for v in values]
        dims = [dim for v in values for dim in dims_of(v.type) if not isinstance(dim, int)]
        buffers += [self.size(dim) for dim in dims]
        arguments = [*self.packed_arguments, *buffers]
        self.packed.call(op.opview.function, [v.type for v in values], arguments, len(op.results))

    @contextmanager
    def _unless_empty(self, op: ir.Operation) -> Iterator[None]:
        """Skip the call of a product if its result is empty, which data determine: it reads weights before loops."""
        late = [
            dim for dim in dims_of(op.results[0].type) if not isinstance(dim, int) and not self.symbols.is_early(dim)
        ]
        if len(op.results) != 1 or not late or not _is_product(self.callee(op)):
            yield
            return
        branch = scf.IfOp(compare("gt", self.size(late[0]), index(0)))
        branch.operation.attributes[GUARD] = ir.UnitAttr.get()
        with ir.InsertionPoint(branch.then_block):
            yield
            scf.YieldOp([])

    def _called(self, op: ir.Operation) -> str:
        """Return the name of the called function: a variant if its result aliases an input."""
        callee = self.callee(op)
        own = self.assignment.storage.get(op.results[0]) if len(op.results) == 1 else None
        if own is not None and own.output in self.assignment.aliases:
            return self._variant(callee, len(op.operands))
        roots = (self.assignment.root(op.operands[i]) for i in inplace_of(callee))
        if own is not None and any(self.assignment.storage.get(root) is own for root in roots):
            return self._variant(callee, None)
        return str(op.opview.callee)

    def _variant(self, callee: ir.OpView, inputs: int | None) -> str:
        """Return the name of a variant of a function that works in place; with `inputs`, where memory is one."""
        key = symbol_name(callee), inputs
        if key not in self._variants:
            module = self.module
            variant = without_start(module, callee) if inputs is None else with_checked_start(module, callee, inputs)
            self._variants[key] = variant
        return self._variants[key]

    def _check_view(self, op: ir.Operation) -> None:
        """Check a view at run time if a data-dependent size decides whether the numbers of elements match.

        Sizes known before the call are checked there, unless the call may not come to this view.
        """
        before, after = (D.product(dims_of(value.type)) for value in (op.operands[0], op.results[0]))
        if before == after or (not self.regions and self.symbols.is_early(before) and self.symbols.is_early(after)):
            return
        number = index(self.symbols.text_number(view_text(op, before, after)))
        old, new = self.size(before), self.size(after)
        runtime_calls.check(self.module, self._given_record, new, old, number)
        runtime_calls.check(self.module, self._given_record, old, new, number)

    def buffer(self, value: ir.Value) -> ir.Value:
        """Return the buffer of a tensor, created on first use."""
        result = self.buffers.get(value)
        if result is None:
            wanted, root = self.memref(value.type), self.assignment.root(value)
            if value in self.assignment.parts:
                result = self._part(value, root, wanted)
            elif root != value:
                result = reshaped(self.buffer(root), wanted)
            else:
                result = self._buffer_in(self.assignment.storage[value], value.type)
            self.buffers[value] = result
        return result

    def _part(self, value: ir.Value, root: ir.Value, wanted: ir.Type) -> ir.Value:
        """Return a part of the buffer of a root, which must lie in the arena: other buffers cannot have an offset."""
        storage = self.assignment.storage.get(root)
        if storage is None or storage.output is not None or storage.slot is not None:
            raise PassError(
                f"'{PART}' views memory that the plan does not choose: its operand must be the result of a call that "
                "the function does not return, nor control flow carries",
                value.owner.location,
            )
        start = self.assignment.parts[value] * element_bytes(wanted.element_type)
        return self._interval(storage.interval, wanted, start)

    def _place_constant(self, op: ir.Operation) -> None:
        """Find the buffer of a constant: a weight, or a global of the module; slices find their own."""
        view, result = op.opview, op.results[0]
        if view.param is None:
            self.buffers[result] = self._global(op, view.value)
        elif view.param not in self.sliced:
            self.buffers[result] = self.weights[view.param]
        elif any(use.owner.name != ROW for use in result.uses):
            weight = self.weights[view.param]
            self.buffers[result] = memref.ViewOp(storage_memref(result.type), weight, index(0), []).result

    def _row(self, op: ir.Operation) -> ir.Value:
        """Return the slice of a weight at a position: the nearest one, as of `gather`."""
        view, wanted = op.opview, storage_memref(op.results[0].type)
        last, kind = view.x.type.shape[0] - 1, ir.IndexType.get()
        position: ir.Value = create("arith.index_cast", kind, memref.LoadOp(self.buffer(view.position), []).result)
        from_end = arith.AddIOp(position, index(last + 1)).result
        position = arith.SelectOp(compare("lt", position, index(0)), from_end, position).result
        position = arith.MinSIOp(arith.MaxSIOp(position, index(0)).result, index(last)).result
        start = arith.MulIOp(position, index(bytes_of(op.results[0].type))).result
        return memref.ViewOp(wanted, self.weights[view.x.owner.opview.param], start, []).result

    def _buffer_in(self, storage: TensorStorage, tensor: ir.Type) -> ir.Value:
        wanted = self.memref(tensor)
        if storage.slot is not None:
            return memref.ViewOp(wanted, self.slots.memory(storage), index(0), []).result
        if storage.output is None:
            return self._interval(storage.interval, wanted)
        returned = self.assignment.timeline.body.terminator.operands[storage.output]
        if all(map(self.symbols.is_early, dims_of(returned.type))):
            return reshaped(self.results[storage.output], wanted)
        return reshaped(self._late_output(storage.output, returned), wanted)

    def _interval(self, interval: Interval, wanted: ir.Type, start: Dim = 0) -> ir.Value:
        """Return a part of the arena, or memory of the run time if its size was unknown before the call.

        `start` are the bytes of the interval before the part.
        """
        if interval.is_late:
            buffer = self.buffers.get(id(interval))
            if buffer is None:
                size = self.size(interval.size)
                # A loop's iterations use the same memory; all that is allocated lives until the end of the call.
                buffer = (
                    self.slots.resized(id(interval), size)
                    if self.loops
                    else runtime_calls.allocate(self.module, self._given_record, -1, size)
                )
                self.buffers[id(interval)] = buffer
            return memref.ViewOp(wanted, buffer, self.size(start), []).result
        return memref.ViewOp(wanted, self.arena, self.size(interval.offset + start), []).result

    def _late_output(self, number: int, returned: ir.Value) -> ir.Value:
        """Allocate an output of data-dependent size; this also reports its dims to the run time."""
        if number not in self.late:
            for dim in dims_of(returned.type):
                if not isinstance(dim, int) and not self.symbols.is_early(dim):
                    store_word(self.size(dim), self._given_record, self.symbols.slot(dim))
            bytes_ = self.size(bytes_of(returned.type))
            self.late[number] = runtime_calls.allocate(self.module, self._given_record, number, bytes_)
        return memref.ViewOp(storage_memref(returned.type), self.late[number], index(0), []).result

    def _bind(self, op: ir.Operation) -> None:
        """Bind symbols to elements of a tensor; an invalid value ends the call."""
        view = op.opview
        buffer = self.buffer(op.operands[0])
        for i, name in enumerate(view.symbols):
            value = load_word(buffer, i)
            bound = view.bounds[i] if view.bounds else D.UNKNOWN
            most = None if bound is D.UNKNOWN else self.size(bound)
            runtime_calls.check(
                self.module, self._given_record, value, most, index(self.symbols.text_number(view.what))
            )
            self._set(name, value)
        self._require_late(view.symbols)

    def _require(self, op: ir.OpView) -> None:
        """Check dims; those known before the call are checked there."""
        for low, high in op.limits:
            if not self.symbols.is_checked(low, high, op.what):
                number = index(self.symbols.text_number(op.what))
                value, most = (high, None) if low == 0 else (low, self.size(high))
                runtime_calls.check(self.module, self._given_record, self.size(value), most, number)

    def _match(self, op: ir.Operation) -> None:
        """Bind symbols to the sizes of a tensor's erased dims."""
        root = self.assignment.root(op.operands[0])
        if has_erased_dims(root):
            sizes = self.slots.sizes(self.assignment.storage[root])
        else:
            dims, erased = dims_of(with_dims(op.operands[0]).type), dims_of(op.operands[0].type)
            sizes = [self.size(dim) for dim, left in zip(dims, erased, strict=True) if left is D.UNKNOWN]
        for name, value in zip(op.opview.symbols, sizes, strict=True):
            self._set(name, value)
        self._require_late(op.opview.symbols)

    def _set(self, name: str, value: ir.Value) -> None:
        self.values[name] = value
        if D.symbol(name) in self.symbols.sizes:
            store_word(value, self._given_record, self.symbols.slot(D.symbol(name)))

    def _require_late(self, bound: Collection[str]) -> None:
        """Check requirements on sizes as soon as all of their symbols are bound, and again where one is bound again."""
        known = set(self.values)
        ready = [each for each in self.symbols.late if each.symbols <= known and not each.symbols.isdisjoint(bound)]
        if not ready:
            return
        for each in ready:
            if isinstance(each, NonnegativeDim):
                number = index(self.symbols.text_number(each.text))
                runtime_calls.check(self.module, self._given_record, self.size(each.dim), None, number)
        products = [each for each in ready if isinstance(each, SizeProduct)]
        if products:
            numbers = [self.symbols.text_number(each.text) for each in products]
            sizes, excess = emit_excess(products, numbers, FloatSizes(self.late_sizes))
            runtime_calls.check(self.module, self._given_record, excess, index(0), sizes)

    def _global(self, op: ir.Operation, value: ir.Attribute) -> ir.Value:
        """Emit a small constant as a read-only global of the module."""
        kind = storage_memref(op.results[0].type)
        symbols = ir.SymbolTable(self.module.operation)  # a table created later would take the new name for known
        with ir.InsertionPoint.at_block_begin(self.function.operation.block):
            new_op = ir.Operation.create(
                "memref.global",
                attributes={
                    "sym_name": ir.StringAttr.get(f"{self.name}_constant"),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "type": ir.TypeAttr.get(kind),
                    "initial_value": stored(value, kind),
                    "constant": ir.UnitAttr.get(),
                },
            )
        name = ir.StringAttr(symbols.insert(new_op)).value
        return memref.GetGlobalOp(kind, ir.FlatSymbolRefAttr.get(name)).result


def argument_names(op: ir.Operation, attribute: str, count: int) -> list[str]:
    """Return the user's names of arguments or results, or numbered ones."""
    prefix = "input" if attribute == "arg_attrs" else "output"
    names = [f"{prefix}_{i}" for i in range(count)]
    if attribute in op.attributes:
        for i, entry in enumerate(ir.ArrayAttr(op.attributes[attribute])):
            facts = ir.DictAttr(entry)
            if "relax.name" in facts:
                names[i] = ir.StringAttr(facts["relax.name"]).value
    return names


def _constants_by_name(operations: Iterable[ir.Operation]) -> dict[str, ir.Operation]:
    """Return the first constant of each parameter."""
    constants: dict[str, ir.Operation] = {}
    for op in operations:
        if op.name == "relax.constant" and op.opview.param is not None:
            constants.setdefault(op.opview.param, op)
    return constants


def _is_product(function: ir.OpView) -> bool:
    """Return whether a kernel may do work that the size of its result does not bound."""
    attributes = function.operation.attributes
    kinds = FusionKind.CONTRACTION.label, FusionKind.OPAQUE.label
    return KIND in attributes and ir.StringAttr(attributes[KIND]).value in kinds


def i8() -> ir.Type:
    return ir.IntegerType.get_signless(8)


def reshaped(buffer: ir.Value, wanted: ir.Type) -> ir.Value:
    """View a contiguous buffer in another shape."""
    if buffer.type == wanted:
        return buffer
    shape = list(wanted.shape)
    return memref.ReinterpretCastOp(wanted, buffer, [], [], [], [0], shape, list(contiguous_strides(shape))).result


def stored(value: ir.Attribute, kind: ir.Type) -> ir.Attribute:
    """Convert a dense attribute of a relax tensor to the storage types of a buffer."""
    tensor = ir.RankedTensorType.get(kind.shape, kind.element_type)
    if value.type == tensor:
        return value

    declared = TensorType.from_mlir(value.type)
    assert declared is not None
    raw = read_dense(value, declared)
    bits = np.ascontiguousarray(raw).view(f"u{raw.dtype.itemsize}").reshape(kind.shape)
    return ir.DenseElementsAttr.get(bits, type=tensor)


def view_text(op: ir.Operation | ir.OpView, before: Dim, after: Dim, end: str = "") -> str:
    """Return the text of the error: the view's own text, or the numbers of elements."""
    names = ", ".join(names_of(op.location)) or op.name
    if VIEW_TEXT in op.attributes:
        return f"{names}: {ir.StringAttr(op.attributes[VIEW_TEXT]).value}"
    return f"{names}: a tensor of {before} elements is looked at as one of {after}{end}"
