"""Slots: memory of a planned function that grows while it runs, for tensors whose sizes change in each iteration.

A slot is two words on the stack, the address of its memory and the number of bytes there, and a word for each size of
the tensor in it that its type does not have.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from mirlo.dialects.bindings import arith, ir, memref
from mirlo.dialects.core.value import index
from mirlo.passes.memory import runtime_calls
from mirlo.passes.memory.storage_assignment import TensorStorage
from mirlo.passes.memory.symbols import load_word, store_word


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
        return runtime_calls.grow(self._module, self._record, self._slot(key), size)

    def resize(self, storage: TensorStorage, size: ir.Value, dims: Sequence[ir.Value]) -> None:
        """Make room in the slot of a storage, and set the sizes of what is to be written there."""
        self.resized(storage.slot, size)
        for i, dim in enumerate(dims):
            store_word(dim, self._sizes_of(storage), i)

    def memory(self, storage: TensorStorage) -> ir.Value:
        """Return the current memory of a storage with a slot."""
        return runtime_calls.slot_memory(self._module, self._slot(storage.slot))

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
