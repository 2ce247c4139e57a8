"""The pass `inline-calls`: functions of a graph that call each other become one, before memory is planned."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, TARGET, callee_of, functions_of, inline_call
from mirlo.passes.registry import Pass, PassError, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

CALL = "func.call"


@register_pass
@dataclass(frozen=True)
class InlineCalls(Pass):
    """Inline the functions of a graph that others call; private ones go when nothing calls them any more.

    Prim functions, and the composites and regions of code generators, stay as they are. Recursion is an error.
    """

    name = "inline-calls"
    trusted = True
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        inline_calls(op.operation)


def inline_calls(module: ir.Operation, but: Collection[str] = ()) -> None:
    """Inline all calls between functions of the graph, except those of the functions in `but`."""
    graphs = {name: function for name, function in functions_of(module).items() if is_graph(function)}
    functions = {name: function for name, function in graphs.items() if name not in but}
    called = {name: [callee_of(op) for op in calls_in(function, functions)] for name, function in functions.items()}
    if not any(called.values()):
        return
    done: set[str] = set()
    for name in functions:
        _inline_into(name, functions, (), done)
    left = {callee_of(op) for function in functions_of(module).values() for op in calls_in(function, functions)}
    symbols = ir.SymbolTable(module)
    for name in {callee for callees in called.values() for callee in callees if callee is not None}:
        if name not in left and _is_private(functions[name]):
            symbols.erase(functions[name])


def _inline_into(name: str, functions: dict[str, ir.Operation], callers: tuple[str, ...], done: set[str]) -> None:
    """Inline all calls in a function, those of its callees first."""
    if name in done:
        return
    for call in calls_in(functions[name], functions):
        callee = callee_of(call) or ""
        if callee in (*callers, name):
            way = " → ".join(f"@{each}" for each in (*callers, name, callee))
            raise PassError(f"functions call each other without end: {way}", call.location)
        _inline_into(callee, functions, (*callers, name), done)
        if len(functions[callee].regions[0].blocks) != 1:
            raise PassError(f"'@{symbol_name(functions[callee])}' has branches, it cannot be inlined", call.location)
        inline_call(call, functions[callee])
    done.add(name)


def calls_in(function: ir.Operation, functions: dict[str, ir.Operation]) -> list[ir.Operation]:
    """Return the calls of functions of the graph in a function."""
    operations = [op.operation for block in blocks(function) for op in block.operations]
    return [op for op in operations if op.name == CALL and callee_of(op) in functions]


def is_graph(function: ir.Operation) -> bool:
    """Return whether a function is part of a model's graph: not a prim function, composite or region."""
    marked = any(name in function.attributes for name in (COMPOSITE, TARGET, EXTERNAL))
    return not marked and not is_prim_func(function) and bool(len(function.regions[0].blocks))


def _is_private(function: ir.Operation) -> bool:
    name = "sym_visibility"
    return name in function.attributes and ir.StringAttr(function.attributes[name]).value == "private"
