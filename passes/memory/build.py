"""The planned function: parameters, outputs, weights and the arena are its arguments, its body calls prim functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import func, ir, memref
from mirlo.dialects.core.dense import array_of
from mirlo.dialects.core.types import TensorType
from mirlo.passes.memory import packed
from mirlo.passes.memory.places import Places, storage_memref
from mirlo.passes.schedule.loops import index


@dataclass
class Planned:
    """A function while it is built anew over buffers."""

    name: str
    function: Any
    """The function over tensors."""
    module: Any
    places: Places

    def build(self, arena: int) -> None:
        """Put the function over buffers in place of the one over tensors."""
        old = self.function.operation
        i8 = ir.IntegerType.get_signless(8)
        by_name: dict[str, Any] = {}
        for op in self.places.steps:
            if op.name == "relax.constant" and op.opview.param is not None:
                by_name.setdefault(op.opview.param, op)
        inputs, outputs = self.places.arguments, self.places.returned
        values = [*inputs, *outputs, *(op.results[0] for op in by_name.values())]
        self.packed = packed.PackedCalls(self.module, packed.packed_names(self.places.steps))
        types = [storage_memref(v.type) for v in values] + self.packed.argument_types()
        types.append(ir.MemRefType.get([arena], i8))
        with old.location:
            made = func.FuncOp(self.name, ir.FunctionType.get(types, []), ip=ir.InsertionPoint(old))
            block = made.add_entry_block()
        buffers, self.arena = list(block.arguments)[:-1], block.arguments[len(types) - 1]
        self.packed_arguments = buffers[len(values) :]
        weights = dict(zip(by_name, buffers[len(inputs) + len(outputs) :], strict=False))
        results = buffers[len(inputs) :][: len(outputs)]
        self._annotate(made, values, list(by_name))
        for value, buffer in zip(inputs, buffers, strict=False):
            self.places.of[value].buffer = buffer
        with ir.InsertionPoint(block):
            with old.location:
                for root, position in self.places.outputs.items():
                    self.places.of[root].buffer = reshaped(results[position], storage_memref(root.type))
            for step, op in enumerate(self.places.steps):
                with op.location:
                    self._emit(step, op, weights)
            with old.location:
                self._copy_out(results)
                func.ReturnOp([])
        old.erase()

    def _annotate(self, made: Any, values: list[Any], params: list[str]) -> None:
        """What each argument is: for `emit`, and for whoever reads the IR."""
        old, inputs, outputs = self.function.operation, len(self.places.arguments), len(self.places.returned)
        names = [*argument_names(old, "arg_attrs", inputs), *argument_names(old, "res_attrs", outputs), *params]
        keys = ["relax.name"] * (inputs + outputs) + ["relax.param"] * len(params)
        unit, i64 = ir.UnitAttr.get(), ir.IntegerType.get_signless(64)
        entries: list[dict[str, Any]] = [
            {key: ir.StringAttr.get(name), "relax.type": ir.TypeAttr.get(value.type)}
            for key, name, value in zip(keys, names, values, strict=True)
        ]
        attributes = made.operation.attributes
        if self.packed.names:
            entries += [{packed.FUNCTIONS: unit}, {packed.RECORD: unit}]
            attributes[packed.PACKED] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in self.packed.names])
        entries.append({"relax.arena": unit})
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])
        attributes["relax.inputs"] = ir.IntegerAttr.get(i64, inputs)
        attributes["relax.outputs"] = ir.IntegerAttr.get(i64, outputs)

    def _emit(self, step: int, op: Any, weights: dict[str, Any]) -> None:
        if op.name == "relax.constant":
            view = op.opview
            self.places.of[op.results[0]].buffer = (
                weights[view.param] if view.param is not None else self._global(op, view.value)
            )
        elif op.name == "relax.call_tir":
            arguments = [self._buffer(v) for v in (*op.operands, *op.results)]
            if step in self.places.workspaces:
                i8 = ir.IntegerType.get_signless(8)
                workspace = self.places.workspaces[step]
                kind = ir.MemRefType.get([workspace.size], i8)
                arguments.append(memref.ViewOp(kind, self.arena, index(workspace.offset), []).result)
            func.CallOp([], ir.FlatSymbolRefAttr.get(op.opview.callee), arguments)
        elif op.name == packed.CALL:
            tensors = [*op.operands, *op.results]
            buffers = [self._buffer(v) for v in tensors]
            self.packed.call(op.opview.function, [v.type for v in tensors], [*self.packed_arguments, *buffers])

    def _buffer(self, value: Any) -> Any:
        """The buffer of a value, made where it is first asked for."""
        found = self.places.of[value]
        if found.buffer is None:
            wanted = storage_memref(value.type)
            if found.root != value:
                found.buffer = reshaped(self._buffer(found.root), wanted)
            else:
                assert found.interval is not None, value
                found.buffer = memref.ViewOp(wanted, self.arena, index(found.interval.offset), []).result
        return found.buffer

    def _global(self, op: Any, value: Any) -> Any:
        """A small constant as a read-only global of the module."""
        kind = storage_memref(op.results[0].type)
        symbols = ir.SymbolTable(self.module.operation)  # a table made later would take the new name for known
        with ir.InsertionPoint.at_block_begin(self.function.operation.block):
            made = ir.Operation.create(
                "memref.global",
                attributes={
                    "sym_name": ir.StringAttr.get(f"{self.name}_constant"),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "type": ir.TypeAttr.get(kind),
                    "initial_value": stored(value, kind),
                    "constant": ir.UnitAttr.get(),
                },
            )
        name = ir.StringAttr(symbols.insert(made)).value
        return memref.GetGlobalOp(kind, ir.FlatSymbolRefAttr.get(name)).result

    def _copy_out(self, outputs: list[Any]) -> None:
        """What is returned but lives elsewhere: inputs, constants, values returned twice."""
        for i, value in enumerate(self.places.returned):
            if self.places.outputs.get(self.places.root(value)) != i:
                memref.CopyOp(self._buffer(value), outputs[i])


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


def argument_names(op: Any, attribute: str, count: int) -> list[str]:
    """The user's names of arguments or results; numbered ones where there are none."""
    prefix = "input" if attribute == "arg_attrs" else "output"
    names = [f"{prefix}_{i}" for i in range(count)]
    if attribute in op.attributes:
        for i, entry in enumerate(ir.ArrayAttr(op.attributes[attribute])):
            found = ir.DictAttr(entry)
            if "relax.name" in found:
                names[i] = ir.StringAttr(found["relax.name"]).value
    return names
