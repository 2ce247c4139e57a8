"""The pass `plan-memory`: the graph function from tensors to buffers, all intermediates in one arena.

    func.func @main(%x: tensor<..> {relax.name = "x"}) -> (tensor<..> {relax.name = "y"})
becomes
    func.func @main(%x: memref<..> {..}, %y: memref<..> {..}, %w: memref<..> {relax.param = "w"},
                    %arena: memref<Nxi8> {relax.arena})

whose body is calls of prim functions on parameters and views of the arena. Liveness is by program order.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import func, ir, memref
from mirlo.dialects.core.dense import array_of
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import WORKSPACE, buffer_bytes, buffer_type
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.memory import packed
from mirlo.passes.memory.layout import Interval, lower_bound, place
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.passes.schedule.loops import index

VIEWS = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze"})
"""Operators that only look at a buffer in another shape."""
CALLS = frozenset({"relax.call_tir", packed.CALL})
"""Operators that write their results to buffers that they are given."""


@dataclass(frozen=True)
class MemoryRecord:
    """What the plan came to: bytes of the arena, and the least that any plan needs."""

    function: str
    arena: int
    bound: int


@register_pass
@dataclass(frozen=True)
class PlanMemory(Pass):
    """Give every tensor of the graph a place: a parameter, an output, or a part of one arena.

    Needs scheduled prim functions. Tensors that are alive at different times share memory.
    """

    name = "plan-memory"

    def run(self, op: Any, session: Any) -> None:
        functions = {ir.StringAttr(f.operation.attributes["sym_name"]).value: f for f in _functions(op)}
        for name, function in functions.items():
            if not is_prim_func(function) and function.operation.regions[0].blocks:
                session.notes.append(_Planner(name, function, functions, op).run())


def _functions(module: Any) -> list[Any]:
    return [f for f in module.regions[0].blocks[0].operations if f.operation.name == "func.func"]


def storage_memref(tensor_type: Any) -> Any:
    """The buffer type of a relax tensor."""
    element = dtype_of_mlir(tensor_type.element_type)
    if element is None:
        raise PassError(f"no buffer can hold {tensor_type}")
    return buffer_type(tensor_type.shape, ir.Type.parse(element.storage))


@dataclass
class _Place:
    """Where a tensor lives: `buffer` once it is made; `root` for a view; an interval if it is in the arena."""

    root: Any
    interval: Interval | None = None
    buffer: Any = None


@dataclass
class _Planner:
    name: str
    function: Any
    functions: dict[str, Any]
    module: Any
    places: dict[Any, _Place] = field(default_factory=dict)
    workspaces: dict[int, Interval] = field(default_factory=dict)

    def run(self) -> MemoryRecord:
        entry = self.function.operation.regions[0].blocks[0]
        operations = [op.operation for op in entry.operations]
        self.steps, self.end = operations[:-1], operations[-1]
        self.check()
        returned = list(self.end.operands)
        self._assign_places(entry, returned)
        intervals = [p.interval for p in self.places.values() if p.interval] + list(self.workspaces.values())
        arena = place(intervals)
        self._build(entry, returned, arena)
        return MemoryRecord(self.name, arena, lower_bound(intervals))

    def check(self) -> None:
        """Only what the plan understands may be there, with known sizes."""
        for op in self.steps:
            if op.name == "relax.call_packed":
                raise PassError(
                    f"'relax.call_packed' of '{op.opview.function}' allocates what it returns, which compiled models "
                    "cannot take: use relax.call_dps_packed, whose outputs the caller allocates",
                    op.location,
                )
        allowed = {"relax.constant", *CALLS, *VIEWS}
        for op in self.steps:
            if op.name not in allowed:
                raise PassError(f"'{op.name}' is left in '@{self.name}': run legalize before plan-memory", op.location)
            for value in op.results:
                found = TensorType.from_mlir(value.type)
                if found is None or not found.is_static:
                    raise PassError(f"'{op.name}' makes {value.type}, whose size is not known", op.location)
            if op.name == "relax.call_tir":
                self._callee(op)

    def _callee(self, op: Any) -> Any:
        name = op.opview.callee
        callee = self.functions.get(name)
        if callee is None:
            near = difflib.get_close_matches(name, self.functions, n=1)
            hint = f"; did you mean '@{near[0]}'?" if near else ""
            raise PassError(f"there is no function '@{name}'{hint}", op.location)
        if not is_prim_func(callee) or is_tensor_form(callee):
            raise PassError(f"'@{name}' is not a scheduled prim function: run schedule before plan-memory", op.location)
        return callee

    def _assign_places(self, entry: Any, returned: list[Any]) -> None:
        for argument in entry.arguments:
            self.places[argument] = _Place(argument)
        for step, op in enumerate(self.steps):
            for operand in op.operands:
                root = self.places[operand].root
                interval = self.places[root].interval
                if interval is not None:
                    interval.last = max(interval.last, step)
            self._place_results(op, step)
        last = len(self.steps)
        taken: set[Any] = set()
        for value in returned:
            root = self.places[value].root
            found = self.places[root]
            if found.interval is not None and root not in taken:
                # Lives in the caller's output, not in the arena.
                found.interval = None
                taken.add(root)
            elif found.interval is not None:
                found.interval.last = last
        self.in_outputs = taken

    def _place_results(self, op: Any, step: int) -> None:
        if op.name in VIEWS:
            self.places[op.results[0]] = _Place(self.places[op.operands[0]].root)
            return
        for value in op.results:
            made = _Place(value)
            if op.name in CALLS:
                made.interval = Interval(buffer_bytes(storage_memref(value.type)), step, step)
            self.places[value] = made
        if op.name == "relax.call_tir":
            callee = self._callee(op)
            if WORKSPACE in callee.operation.attributes:
                size = ir.IntegerAttr(callee.operation.attributes[WORKSPACE]).value
                self.workspaces[step] = Interval(size, step, step)

    def _build(self, entry: Any, returned: list[Any], arena: int) -> None:
        old = self.function.operation
        i8 = ir.IntegerType.get_signless(8)
        params = [op for op in self.steps if op.name == "relax.constant" and op.opview.param is not None]
        by_name: dict[str, Any] = {}
        for op in params:
            by_name.setdefault(op.opview.param, op)
        types = [storage_memref(v.type) for v in entry.arguments]
        types += [storage_memref(v.type) for v in returned]
        types += [storage_memref(op.results[0].type) for op in by_name.values()]
        self.packed = packed.PackedCalls(self.module, packed.packed_names(self.steps))
        types += self.packed.argument_types()
        types.append(ir.MemRefType.get([arena], i8))
        with old.location:
            made = func.FuncOp(self.name, ir.FunctionType.get(types, []), ip=ir.InsertionPoint(old))
            block = made.add_entry_block()
        arguments = list(block.arguments)
        inputs = arguments[: len(entry.arguments)]
        outputs = arguments[len(inputs) : len(inputs) + len(returned)]
        weights = dict(zip(by_name, arguments[len(inputs) + len(returned) :], strict=False))
        self.packed_arguments = arguments[len(types) - 1 - len(self.packed.argument_types()) : -1]
        self.arena = arguments[-1]
        self._annotate(made, old, list(by_name), len(inputs), len(returned))
        for value, buffer in zip(entry.arguments, inputs, strict=True):
            self.places[value].buffer = buffer
        for value, buffer in zip(returned, outputs, strict=True):
            root = self.places[value].root
            if root in self.in_outputs and self.places[root].buffer is None:
                self.output_view(root, value, buffer, block)
        with ir.InsertionPoint(block):
            for step, op in enumerate(self.steps):
                with op.location:
                    self._emit(step, op, weights)
            with old.location:
                self._copy_out(returned, outputs)
                func.ReturnOp([])
        old.erase()

    def output_view(self, root: Any, value: Any, buffer: Any, block: Any) -> None:
        """The root of a returned value is written right into the output."""
        wanted = storage_memref(root.type)
        if wanted != buffer.type:
            with ir.InsertionPoint.at_block_begin(block), self.function.operation.location:
                buffer = reshaped(buffer, wanted)
        self.places[root].buffer = buffer
        del value

    def _annotate(self, made: Any, old: Any, params: list[str], inputs: int, outputs: int) -> None:
        names = _names(old, "arg_attrs", inputs), _names(old, "res_attrs", outputs)
        attributes = [{"relax.name": ir.StringAttr.get(n)} for n in (*names[0], *names[1])]
        kinds = [v.type for v in old.regions[0].blocks[0].arguments] + [v.type for v in self.end.operands]
        for entry, kind in zip(attributes, kinds, strict=True):
            entry["relax.type"] = ir.TypeAttr.get(kind)
        attributes += [{"relax.param": ir.StringAttr.get(name)} for name in params]
        constants = {op.opview.param: op for op in self.steps if op.name == "relax.constant" and op.opview.param}
        for entry, name in zip(attributes[inputs + outputs :], params, strict=True):
            entry["relax.type"] = ir.TypeAttr.get(constants[name].results[0].type)
        if self.packed.names:
            attributes += [{packed.FUNCTIONS: ir.UnitAttr.get()}, {packed.RECORD: ir.UnitAttr.get()}]
        attributes.append({"relax.arena": ir.UnitAttr.get()})
        op = made.operation
        op.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in attributes])
        i64 = ir.IntegerType.get_signless(64)
        if self.packed.names:
            op.attributes[packed.PACKED] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in self.packed.names])
        op.attributes["relax.inputs"] = ir.IntegerAttr.get(i64, inputs)
        op.attributes["relax.outputs"] = ir.IntegerAttr.get(i64, outputs)

    def _emit(self, step: int, op: Any, weights: dict[str, Any]) -> None:
        if op.name == "relax.constant":
            view = op.opview
            self.places[op.results[0]].buffer = (
                weights[view.param] if view.param is not None else self._global(op, view.value)
            )
        elif op.name == "relax.call_tir":
            arguments = [self._buffer(v) for v in (*op.operands, *op.results)]
            if step in self.workspaces:
                i8 = ir.IntegerType.get_signless(8)
                workspace = self.workspaces[step]
                kind = ir.MemRefType.get([workspace.size], i8)
                arguments.append(memref.ViewOp(kind, self.arena, index(workspace.offset), []).result)
            func.CallOp([], ir.FlatSymbolRefAttr.get(op.opview.callee), arguments)
        elif op.name == packed.CALL:
            tensors = [*op.operands, *op.results]
            buffers = [self._buffer(v) for v in tensors]
            self.packed.call(op.opview.function, [v.type for v in tensors], [*self.packed_arguments, *buffers])

    def _buffer(self, value: Any) -> Any:
        """The buffer of a value, made where it is first asked for."""
        found = self.places[value]
        if found.buffer is None:
            wanted = storage_memref(value.type)
            if found.root is value or found.root == value:
                if found.interval is None:
                    raise PassError(f"a tensor of '@{self.name}' has no place: {value}")
                found.buffer = memref.ViewOp(wanted, self.arena, index(found.interval.offset), []).result
            else:
                found.buffer = reshaped(self._buffer(found.root), wanted)
        return found.buffer

    def _global(self, op: Any, value: Any) -> Any:
        """A small constant as a read-only global of the module."""
        kind = storage_memref(op.results[0].type)
        number = sum(o.operation.name == "memref.global" for o in self.module.regions[0].blocks[0].operations)
        name = f"{self.name}_constant_{number}"
        with ir.InsertionPoint.at_block_begin(self.module.regions[0].blocks[0]):
            ir.Operation.create(
                "memref.global",
                attributes={
                    "sym_name": ir.StringAttr.get(name),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "type": ir.TypeAttr.get(kind),
                    "initial_value": stored(value, kind),
                    "constant": ir.UnitAttr.get(),
                },
            )
        return memref.GetGlobalOp(kind, ir.FlatSymbolRefAttr.get(name)).result

    def _copy_out(self, returned: list[Any], outputs: list[Any]) -> None:
        """What is returned but lives elsewhere: inputs, constants, values returned twice."""
        for value, output in zip(returned, outputs, strict=True):
            root = self.places[value].root
            if self.places[root].buffer is output or self._is_output(root, output):
                continue
            memref.CopyOp(self._buffer(value), output)

    def _is_output(self, root: Any, output: Any) -> bool:
        buffer = self.places[root].buffer
        if buffer is None or root not in self.in_outputs:
            return False
        if buffer == output:
            return True
        return isinstance(buffer, ir.OpResult) and buffer.owner.operands[0] == output


def reshaped(buffer: Any, wanted: Any) -> Any:
    """A contiguous buffer looked at in another shape."""
    if buffer.type == wanted:
        return buffer
    strides: list[int] = []
    size = 1
    for dim in reversed(list(wanted.shape)):
        strides.insert(0, size)
        size *= dim
    return memref.ReinterpretCastOp(wanted, buffer, [], [], [], [0], list(wanted.shape), strides).result


def stored(value: Any, kind: Any) -> Any:
    """A dense attribute of a relax tensor as what a buffer of this type holds."""
    tensor = ir.RankedTensorType.get(kind.shape, kind.element_type)
    if value.type == tensor:
        return value
    import numpy as np

    declared = TensorType.from_mlir(value.type)
    assert declared is not None
    raw = array_of(value, declared)
    bits = np.ascontiguousarray(raw).view(f"u{raw.dtype.itemsize}").reshape(kind.shape)
    return ir.DenseElementsAttr.get(bits, type=tensor)


def _names(op: Any, attribute: str, count: int) -> list[str]:
    """The user's names of arguments or results; numbered ones where there are none."""
    prefix = "input" if attribute == "arg_attrs" else "output"
    names = [f"{prefix}_{i}" for i in range(count)]
    if attribute in op.attributes:
        for i, entry in enumerate(ir.ArrayAttr(op.attributes[attribute])):
            found = ir.DictAttr(entry)
            if "relax.name" in found:
                names[i] = ir.StringAttr(found["relax.name"]).value
    return names
