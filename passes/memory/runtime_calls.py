"""Calls of the run time in a planned function: allocation of data-dependent sizes, termination with an error.

Both are calls of declared functions, whose bodies the target provides; their caller returns at once if they report a
failure.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from mirlo.dialects.bindings import arith, func, ir, memref
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.buffers import UNBOUNDED
from mirlo.dialects.tir.compute.emit import emit_constant
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, SLOT
from mirlo.passes.memory.storage_assignment import TensorStorage
from mirlo.passes.memory.symbols import load_word, store_word

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


class Slots:
    """The slots of a function, which are created where it begins, after `anchor`."""

    def __init__(self, module: ir.OpView, record: ir.Value | None, anchor: ir.Operation) -> None:
        self._module = module
        self._record = record
        self._anchor = anchor
        self._slots: dict[Hashable, ir.Value] = {}
        self._sizes: dict[Hashable, ir.Value] = {}

    def resized(self, key: Hashable, size: ir.Value) -> ir.Value:
        """Return the memory of a slot, with room for that many bytes; what was in it may be lost."""
        assert self._record is not None, "a function with slots has the record of the call"
        return grow(self._module, self._record, self._slot(key), size)

    def resize(self, storage: TensorStorage, size: ir.Value, dims: Sequence[ir.Value]) -> None:
        """Make room in the slot of a storage, and set the sizes of what is to be written there."""
        self.resized(storage.slot, size)
        for i, dim in enumerate(dims):
            store_word(dim, self._sizes_of(storage), i)

    def memory(self, storage: TensorStorage) -> ir.Value:
        """Return the current memory of a storage with a slot."""
        return slot_memory(self._module, self._slot(storage.slot))

    def sizes(self, storage: TensorStorage) -> list[ir.Value]:
        """Return the sizes of the erased dims of what is in a slot."""
        return [load_word(self._sizes_of(storage), i) for i in range(len(storage.erased))]

    def _slot(self, key: Hashable) -> ir.Value:
        if key not in self._slots:
            self._slots[key] = self._words(2)
        return self._slots[key]

    def _sizes_of(self, storage: TensorStorage) -> ir.Value:
        if storage.slot not in self._sizes:
            self._sizes[storage.slot] = self._words(len(storage.erased))
        return self._sizes[storage.slot]

    def _words(self, count: int) -> ir.Value:
        """Return words of the stack, which are 0 when the function begins."""
        i64 = ir.IntegerType.get_signless(64)
        with ir.InsertionPoint(self._anchor), self._anchor.location:
            words = memref.AllocaOp(ir.MemRefType.get([count], i64), [], []).result
            zero = arith.ConstantOp(i64, 0).result
            for i in range(count):
                memref.StoreOp(zero, words, [index(i)])
        return words
