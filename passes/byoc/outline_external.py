"""The pass `outline-external`: regions move to one nested module per target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, replace_op
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.relax.calls import CallExternal
from mirlo.passes.byoc.bring import Bring, drop_unused_prims
from mirlo.passes.byoc.outline import (
    COMPOSITE,
    EXTERNAL,
    TARGET,
    callee_of,
    free_name,
    functions_of,
    require_target,
    string_fact,
)
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.regions import single_regions
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class OutlineExternal(Pass):
    """Move the regions of each target, with their composites, to a nested module with the attribute `relax.external`.

    The functions there are public and called `T_0`, `T_1`, ...; a call becomes `relax.call_external @T::@T_0`. A
    composite that was never merged becomes a region of its own first. A second run adds to the modules that are there.
    """

    name = "outline-external"
    contained = True
    target: str = option("", "target whose regions are moved; all when none is named")

    def run(self, op: ir.OpView, session: Session) -> None:
        module = op.operation
        require_target(module, self.target)
        for target in (self.target,) if self.target else _targets(module):
            single_regions(module, target, Placement((target,)), session)
            regions = {n: f for n, f in functions_of(module).items() if string_fact(f, EXTERNAL) == target}
            if regions:
                names = _Mover(module, target).move(regions)
                for placement in session.notes:
                    for region in placement.regions if isinstance(placement, Placement) else ():
                        if region.kept and region.target == target and region.function in names:
                            region.outlined = names[region.function]


def _targets(module: ir.Operation) -> list[str]:
    """Return the targets of composites and regions in program order."""
    targets = (string_fact(f, EXTERNAL) or string_fact(f, TARGET) for f in functions_of(module).values())
    return list(dict.fromkeys(target for target in targets if target is not None))


def external_modules(module: ir.Operation) -> dict[str, ir.Operation]:
    """Return the nested modules of code generators by name."""
    members = [op.operation for op in module.regions[0].blocks[0].operations]
    return {symbol_name(op): op for op in members if op.name == "builtin.module" and EXTERNAL in op.attributes}


@dataclass
class _Mover:
    """A helper that moves regions of a target to its nested module."""

    module: ir.Operation
    target: str

    def move(self, regions: dict[str, ir.Operation]) -> dict[str, str]:
        """Move regions; return where each one is, by its name before."""
        nested = self._nested()
        inner = nested.regions[0].blocks[0]
        functions = functions_of(self.module)
        symbols = ir.SymbolTable(nested)
        bring = Bring(nested, symbols)
        names: dict[str, str] = {}
        for old, region in regions.items():
            called = dict.fromkeys(name for op in _operations(region) if (name := callee_of(op)) is not None)
            env = {name: self._copied(functions, name, old, inner, symbols, bring) for name in called}
            _detach(region, inner)
            _rename(region, free_name(self.target, symbols))
            symbols.insert(region)
            del region.attributes[EXTERNAL]
            region.attributes["sym_visibility"] = ir.StringAttr.get("public")
            _call_functions(region, env)
            names[old] = f"{symbol_name(nested)}::{symbol_name(region)}"
        self._redirect(functions, names)
        self._drop_unused()
        drop_unused_prims(self.module, {name for _, name in bring.moved})
        return names

    def _nested(self) -> ir.Operation:
        for external in external_modules(self.module).values():
            if string_fact(external, EXTERNAL) == self.target:
                return external
        module = ir.Module.create(self.module.location)
        nested = module.operation
        rename_symbol(nested, self.target)
        nested.attributes[EXTERNAL] = ir.StringAttr.get(self.target)
        copy = nested.clone(ip=ir.InsertionPoint(self.module.regions[0].blocks[0]))
        table = ir.SymbolTable(self.module)
        if self.target in table and table[self.target].operation != copy:
            rename_symbol(copy, free_name(self.target, table))
        return copy

    def _copied(
        self,
        functions: dict[str, ir.Operation],
        name: str,
        region: str,
        inner: ir.Block,
        symbols: ir.SymbolTable,
        bring: Bring,
    ) -> str:
        """Copy a composite to the nested module; several regions may call the same one."""
        composite = functions[name]
        if COMPOSITE not in composite.attributes:
            raise PassError(f"region '@{region}' calls '@{name}', which is not a composite", composite.location)
        copy = composite.clone(ip=ir.InsertionPoint(inner))
        if name in symbols:
            _rename(copy, free_name(name, symbols))
        symbols.insert(copy)
        bring.for_operation(copy, self.module)
        return symbol_name(copy)

    def _redirect(self, functions: dict[str, ir.Operation], names: dict[str, str]) -> None:
        """Redirect calls of moved functions."""
        for name, function in functions.items():
            if name in names:
                continue
            for block in blocks(function):
                for op in [o.operation for o in block.operations]:
                    symbol = names.get(callee_of(op) or "")
                    if symbol is not None:
                        with ir.InsertionPoint(op), op.location:
                            types = [r.type for r in op.results]
                            call = CallExternal.build(list(op.operands), callee=symbol, result_types=types)
                        replace_op(op, list(call.operation.results))

    def _drop_unused(self) -> None:
        """Erase composites without calls."""
        functions = functions_of(self.module)
        called = {callee_of(op) for f in functions.values() for op in _operations(f)}
        for name, function in functions.items():
            if string_fact(function, TARGET) == self.target and name not in called:
                function.erase()


def _operations(function: ir.Operation) -> list[ir.Operation]:
    return [op.operation for block in blocks(function) for op in block.operations]


def _detach(function: ir.Operation, block: ir.Block) -> None:
    function.detach_from_parent()
    block.append(function)


def _rename(function: ir.Operation, name: str) -> None:
    rename_symbol(function, name)


def _call_functions(region: ir.Operation, names: dict[str, str]) -> None:
    for op in _operations(region):
        name = callee_of(op)
        if name is not None:
            op.attributes["callee"] = ir.FlatSymbolRefAttr.get(names[name])
