"""Inlining of regions and composites at their calls, for `inline-external` and the limits of `partition`."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.byoc.bring import Bring
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, callee_of, functions_of, inline_call
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass


@dataclass
class Inliner:
    """An inliner of region and composite calls in the functions of one module."""

    module: ir.Operation

    def __post_init__(self) -> None:
        self.symbols = ir.SymbolTable(self.module)
        self.bring = Bring(self.module, self.symbols)

    def put_back(self, call: ir.Operation, region: ir.Operation, owner: ir.Operation) -> None:
        """Inline a region's call and the composites that it calls; `owner` is the module of the region."""
        members = functions_of(owner)
        pending = inline_call(call, _single_block(region))
        while pending:
            op = pending.pop()
            callee = members.get(callee_of(op) or "")
            if callee is not None and COMPOSITE in callee.attributes:
                pending += inline_call(op, _single_block(callee))
            elif owner != self.module:
                self.bring.for_operation(op, owner)

    def drop_unused(self) -> None:
        """Erase regions and composites of this module that have no calls."""
        while True:
            functions = functions_of(self.module)
            called = {callee_of(op) for f in functions.values() for op in all_operations(f)}
            dead = [
                f for name, f in functions.items()
                if name not in called and (EXTERNAL in f.attributes or COMPOSITE in f.attributes)
            ]  # fmt: skip
            for function in dead:
                self.symbols.erase(function)
            if not dead:
                return


def drop_unused_composites(module: ir.Operation) -> None:
    """Erase composites of a module that no function of it calls, and those that only they call."""
    while True:
        functions = functions_of(module)
        called = {callee_of(op) for function in functions.values() for op in all_operations(function)}
        dead = [f for name, f in functions.items() if COMPOSITE in f.attributes and name not in called]
        if not dead:
            return
        for function in dead:
            function.erase()


def all_operations(function: ir.Operation) -> list[ir.Operation]:
    """Return the operations of a function, including those in its control flow."""
    return [op.operation for block in blocks(function) for op in block.operations]


def _single_block(function: ir.Operation) -> ir.Operation:
    if len(function.regions[0].blocks) != 1:
        raise PassError(f"'@{symbol_name(function)}' has branches, it cannot be put back", function.location)
    return function
