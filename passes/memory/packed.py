"""Calls of packed functions in a planned function.

`relax.call_dps_packed` becomes a call of a declared function that takes the pointers of all packed functions, the
call record, and the buffers; it returns whether the function failed. The target provides its body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from mirlo.dialects.bindings import func, ir
from mirlo.runtime.records import dataclass

CALL = "relax.call_dps_packed"
PACKED = "relax.packed"
"""Names of the packed functions that a function calls; on a declaration, the one it stands for."""
TYPES = "relax.types"
"""On a declaration: the tensor types of the buffers passed to the packed function."""
WRITTEN = "relax.written"
"""On a declaration: how many of the buffers, the last ones, the packed function writes."""
FUNCTIONS, RECORD = "relax.functions", "relax.record"
"""Arguments of a planned function: the pointers of the packed functions, and the call record."""
RECORD_WORDS = 2
PASSES_RECORD = "passes_record"
"""Metadata of an artifact: whether the call record follows the tensors that a packed function is called with.

The run time of libraries finds the state of a call by it, which the function itself takes no argument for.
"""


@dataclass
class PackedCalls:
    """The packed functions that one function calls, and the declarations for its calls."""

    module: ir.OpView
    names: list[str]
    record_words: int = RECORD_WORDS
    declared: dict[tuple[str, ...], str] = field(default_factory=dict)

    def argument_types(self) -> list[ir.MemRefType]:
        """Return the types of the pointers, if functions are called, and of the record, if it is used."""
        i64 = ir.IntegerType.get_signless(64)
        pointers = [ir.MemRefType.get([len(self.names)], i64)] if self.names else []
        has_record = bool(self.names) or self.record_words > RECORD_WORDS
        return pointers + ([ir.MemRefType.get([self.record_words], i64)] if has_record else [])

    def call(self, name: str, tensor_types: Sequence[ir.Type], arguments: Sequence[ir.Value], written: int) -> None:
        """Emit the call; `arguments` are the pointers, the record, the buffers, then the values of all dynamic dims."""
        i1 = ir.IntegerType.get_signless(1)
        key = (name, str(written), *map(str, tensor_types), *(str(v.type) for v in arguments))
        if key not in self.declared:
            self.declared[key] = self._declare(name, tensor_types, [v.type for v in arguments], written)
        func.CallOp([i1], ir.FlatSymbolRefAttr.get(self.declared[key]), list(arguments))

    def _declare(self, name: str, tensor_types: Sequence[ir.Type], types: Sequence[ir.Type], written: int) -> str:
        i1 = ir.IntegerType.get_signless(1)
        kind = ir.FunctionType.get(list(types), [i1])
        symbols = ir.SymbolTable(self.module.operation)  # a table created later would take the new name for known
        function = func.FuncOp("packed_" + re.sub(r"\W", "_", name), kind, visibility="private", ip=False)
        self.module.regions[0].blocks[0].append(function.operation)
        symbol = ir.StringAttr(symbols.insert(function.operation)).value
        function.operation.attributes[PACKED] = ir.ArrayAttr.get([ir.StringAttr.get(name)])
        function.operation.attributes[TYPES] = ir.ArrayAttr.get([ir.TypeAttr.get(t) for t in tensor_types])
        function.operation.attributes[WRITTEN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), written)
        return symbol


def packed_names(steps: Sequence[ir.Operation]) -> list[str]:
    """Return the packed functions that these operations call, without duplicates."""
    return list(dict.fromkeys(op.opview.function for op in steps if op.name == CALL))


def names_called(main: ir.Operation) -> list[str]:
    """Return the packed functions that the entry function calls, in the order of their pointers."""
    if PACKED not in main.attributes:
        return []
    return [ir.StringAttr(name).value for name in ir.ArrayAttr(main.attributes[PACKED])]
