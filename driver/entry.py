"""Which function of a module is the model: `@main`, or the only one that no other function calls."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import rename_symbol
from mirlo.passes.byoc.outline import callee_of, functions_of
from mirlo.passes.graph.inline_calls import calls_in, is_graph
from mirlo.runtime.errors import MirloError

ENTRY = "main"
PLANNED = "relax.inputs"
"""Marks the function of a model whose memory is planned."""


class EntryError(MirloError, ValueError):
    """A module with several functions, none of which is known to be the model."""


def select_entry(module: ir.Module) -> None:
    """Make the function of the model `@main`, and the others private; those that it does not call are erased.

    A planned module, and one of prim functions only, stays as it is.
    """
    functions = functions_of(module.operation)
    graphs = {name: function for name, function in functions.items() if is_graph(function)}
    if not graphs or any(PLANNED in function.attributes for function in functions.values()):
        return
    called = {name: [callee_of(op) or "" for op in calls_in(function, graphs)] for name, function in graphs.items()}
    entry = _entry(graphs, called)
    reached, waiting = set(), [entry]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += called[name]
    symbols = ir.SymbolTable(module.operation)
    for name, function in graphs.items():
        if name not in reached:
            symbols.erase(function)
        elif name != entry:
            function.attributes["sym_visibility"] = ir.StringAttr.get("private", function.context)
    if entry != ENTRY:
        rename_symbol(graphs[entry], ENTRY)


def _entry(graphs: dict[str, ir.Operation], called: dict[str, list[str]]) -> str:
    """Return the name of the model's function."""
    if ENTRY in graphs:
        return ENTRY
    callees = {callee for callees in called.values() for callee in callees}
    roots = [name for name in graphs if name not in callees] or list(graphs)
    if len(roots) > 1:
        listed = ", ".join(f"@{name}" for name in roots)
        raise EntryError(
            f"the module has several functions that no other calls, and none is called @main: {listed}; expected one "
            "function that is the model: call it @main"
        )
    return roots[0]
