"""Regions and composites put back where they are called: what `inline-external` and the limits of `partition` do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, callee_of, free_name, functions_of, inline_call, symbol_name
from mirlo.passes.registry import PassError


@dataclass
class Inliner:
    """Inlines calls of regions and composites in the functions of one module."""

    module: Any
    symbols: Any = None
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    """Functions of nested modules that were copied to the top: the module and their name, their new name."""

    def __post_init__(self) -> None:
        self.symbols = ir.SymbolTable(self.module)

    def put_back(self, call: Any, region: Any, owner: Any) -> None:
        """Inline a call of a region, and the composites that it calls; `owner` is the module that the region is in."""
        members = functions_of(owner)
        pending = inline_call(call, _one_block(region))
        while pending:
            op = pending.pop()
            callee = members.get(callee_of(op) or "")
            if callee is not None and COMPOSITE in callee.attributes:
                pending += inline_call(op, _one_block(callee))
            elif owner != self.module:
                self._bring_symbols(op, owner)

    def _bring_symbols(self, op: Any, owner: Any) -> None:
        """Let an operation that came from a nested module name copies of the functions that it named there."""
        names = {
            symbol_name(m): m.operation for m in owner.regions[0].blocks[0].operations if "sym_name" in m.attributes
        }

        def visit(inner: Any) -> Any:
            for name, attribute in _symbol_attributes(inner):
                member = names.get(attribute.value)
                if member is not None:
                    inner.attributes[name] = ir.FlatSymbolRefAttr.get(self._brought(member, owner))
            return ir.WalkResult.ADVANCE

        op.walk(visit, ir.WalkOrder.PRE_ORDER)

    def _brought(self, member: Any, owner: Any) -> str:
        key = symbol_name(owner), symbol_name(member)
        if key not in self.moved:
            copy = member.clone(ip=ir.InsertionPoint(self.module.regions[0].blocks[0]))
            name = key[1] if key[1] not in self.symbols else free_name(key[1], self.symbols)
            copy.attributes["sym_name"] = ir.StringAttr.get(name)
            copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
            self.symbols.insert(copy)
            self.moved[key] = symbol_name(copy)
            self._bring_symbols(copy, owner)
        return self.moved[key]

    def drop_unused(self) -> None:
        """Erase regions and composites of this module that nothing calls any more."""
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


def all_operations(function: Any) -> list[Any]:
    """The operations of a function, those nested in its control flow included."""
    return [op.operation for block in blocks(function) for op in block.operations]


def _one_block(function: Any) -> Any:
    if len(function.regions[0].blocks) != 1:
        raise PassError(f"'@{symbol_name(function)}' has branches, it cannot be put back", function.location)
    return function


def _symbol_attributes(op: Any) -> list[tuple[str, Any]]:
    found = [(op.attributes[i].name, op.attributes[i].attr) for i in range(len(op.attributes))]
    return [(name, attribute) for name, attribute in found if isinstance(attribute, ir.FlatSymbolRefAttr)]
