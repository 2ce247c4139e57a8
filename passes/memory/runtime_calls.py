"""Calls of the run time in a planned function: allocation of data-dependent sizes, termination with an error.

Both are calls of declared functions, whose bodies the target provides; their caller returns at once if they report a
failure.
"""

from __future__ import annotations

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.tir.buffers import UNBOUNDED
from mirlo.dialects.tir.compute.emit import emit_constant
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, SLOT

UNLIMITED = (1 << 63) - 1


def allocate(module: ir.OpView, record: ir.Value, number: int, size: ir.Value) -> ir.Value:
    """Allocate bytes that live until the call's results are returned; `number` is that of an output, or -1."""
    index = ir.IndexType.get()
    _declare(module, ALLOCATE, [record.type, index, index], [_memory()])
    arguments = [record, emit_constant(number, index), size]
    return func.CallOp([_memory()], ir.FlatSymbolRefAttr.get(ALLOCATE), arguments).results[0]


def grow(module: ir.OpView, record: ir.Value, slot: ir.Value, size: ir.Value) -> ir.Value:
    """Return the memory of a slot, replaced by larger memory if it has fewer bytes; the content is then lost.

    It grows at least twofold, so that all memory that a slot ever had is less than four times the most it needed.
    """
    index = ir.IndexType.get()
    _declare(module, GROW, [record.type, slot.type, index], [_memory()])
    return func.CallOp([_memory()], ir.FlatSymbolRefAttr.get(GROW), [record, slot, size]).results[0]


def slot_memory(module: ir.OpView, slot: ir.Value) -> ir.Value:
    """Return the memory of a slot, which has some."""
    _declare(module, SLOT, [slot.type], [_memory()])
    return func.CallOp([_memory()], ir.FlatSymbolRefAttr.get(SLOT), [slot]).results[0]


def _memory() -> ir.Type:
    return ir.MemRefType.get([UNBOUNDED], ir.IntegerType.get_signless(8))


def check(module: ir.OpView, record: ir.Value, value: ir.Value, most: ir.Value | None, number: ir.Value) -> None:
    """End the call unless 0 <= value <= most; `number` is that of the error text."""
    index, i1 = ir.IndexType.get(), ir.IntegerType.get_signless(1)
    _declare(module, CHECK, [record.type, index, index, index], [i1])
    limit = emit_constant(UNLIMITED, index) if most is None else most
    func.CallOp([i1], ir.FlatSymbolRefAttr.get(CHECK), [record, value, limit, number])


def _declare(module: ir.OpView, name: str, inputs: list[ir.Type], results: list[ir.Type]) -> None:
    if name in ir.SymbolTable(module.operation):
        return
    function = func.FuncOp(name, ir.FunctionType.get(inputs, results), visibility="private", ip=False)
    module.regions[0].blocks[0].append(function.operation)
