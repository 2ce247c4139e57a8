"""Moving functions between modules: operations copied to another module bring the prim functions they reference."""

from __future__ import annotations

from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import PRIM_FUNC, RULES
from mirlo.passes.byoc.outline import EXTERNAL, free_name, string_fact
from mirlo.passes.lower.intrinsics import has_intrinsics
from mirlo.passes.rules import INTRINSIC
from mirlo.passes.targets import HOST, chain, is_target
from mirlo.runtime.records import dataclass


@dataclass
class Bring:
    """A copier of referenced functions into a module, each once."""

    module: ir.Operation
    symbols: ir.SymbolTable
    moved: dict[tuple[ir.Operation, str], str] = field(default_factory=dict)
    """The new name by source module and name there."""
    _known: dict[ir.Operation, dict[str, ir.Operation]] = field(default_factory=dict)
    _has_rules: dict[str, bool] = field(default_factory=dict)
    """Whether a target has rules for intrinsics that the default host has not."""

    def for_operation(self, op: ir.OpView | ir.Operation, source: ir.Operation) -> None:
        """Redirect the references of an operation from another module to copies of what they named."""
        named = self._members(source)

        def visit(inner: ir.Operation) -> ir.WalkResult:
            for name, attribute in _symbol_attributes(inner):
                member = named.get(attribute.value)
                if member is not None:
                    inner.attributes[name] = ir.FlatSymbolRefAttr.get(self._brought(member, source))
            return ir.WalkResult.ADVANCE

        walk(op, visit, ir.WalkOrder.PRE_ORDER)

    def _members(self, source: ir.Operation) -> dict[str, ir.Operation]:
        if source not in self._known:
            members = (member.operation for member in source.regions[0].blocks[0].operations)
            self._known[source] = {symbol_name(m): m for m in members if symbol_name(m)}
        return self._known[source]

    def _brought(self, member: ir.Operation, source: ir.Operation) -> str:
        key = source, symbol_name(member)
        if key not in self.moved:
            copy = member.clone(ip=ir.InsertionPoint(self.module.regions[0].blocks[0]))
            name = key[1] if key[1] not in self.symbols else free_name(key[1], self.symbols)
            rename_symbol(copy, name)
            copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
            self._mark_rules(copy, source)
            self.symbols.insert(copy)
            self.moved[key] = symbol_name(copy)
            self.for_operation(copy, source)
        return self.moved[key]

    def _mark_rules(self, function: ir.Operation, source: ir.Operation) -> None:
        """Mark the intrinsics of a function from an external module for the rules of its target."""
        target = string_fact(source, EXTERNAL)
        if target is None or RULES in function.attributes or PRIM_FUNC not in function.attributes:
            return
        if target not in self._has_rules:
            own = [name for name in chain(target) if name not in chain(HOST)] if is_target(target) else []
            self._has_rules[target] = any(rule.target in own for rule in INTRINSIC)
        if self._has_rules[target] and has_intrinsics(function):
            function.attributes[RULES] = ir.StringAttr.get(target)


def _symbol_attributes(op: ir.Operation) -> list[tuple[str, ir.FlatSymbolRefAttr]]:
    attributes = [(op.attributes[i].name, op.attributes[i].attr) for i in range(len(op.attributes))]
    return [(name, attribute) for name, attribute in attributes if isinstance(attribute, ir.FlatSymbolRefAttr)]


def drop_unused_prims(module: ir.Operation, names: set[str]) -> None:
    """Erase those of these private functions that nothing in the module references."""
    for name in sorted(names):
        members = [member.operation for member in module.regions[0].blocks[0].operations]
        for member in members:
            if member.name == "func.func" and symbol_name(member) == name and not _is_named(member, members):
                member.erase()
                break


def _is_named(function: ir.Operation, members: list[ir.Operation]) -> bool:
    name, is_named = symbol_name(function), False

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal is_named
        is_named = any(attribute.value == name for _, attribute in _symbol_attributes(op))
        return ir.WalkResult.INTERRUPT if is_named else ir.WalkResult.ADVANCE

    for member in members:
        # A nested module has its own symbols.
        if member.name == "func.func" and member != function:
            walk(member, visit, ir.WalkOrder.PRE_ORDER)
            if is_named:
                return True
    return False
