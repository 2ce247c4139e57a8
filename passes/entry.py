"""The function of a module that is the model: the one with the attribute `relax.entry`.

Importers mark it. In a module without a mark it is `@main`, or the only function that no other calls, and is marked by
the first request. No other file looks for the model by its name or its place.
"""

from __future__ import annotations

from itertools import count

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY, ENTRY_NAME, is_entry, mark_entry, rename_symbol, symbol_name
from mirlo.passes.byoc.outline import callee_of, functions_of
from mirlo.passes.graph.inline_calls import calls_in, is_graph
from mirlo.passes.registry import PassError

PLANNED = "relax.inputs"
"""The attribute of a function whose memory is planned."""


class EntryError(PassError, ValueError):
    """A module with several functions, none of which is known to be the model, or with none."""

    error_code = "MIR0412"
    remedy = "Mark the model's function with `relax.entry`, or name it `main`."


def find_entry(module: ir.Module | ir.OpView | ir.Operation) -> ir.Operation:
    """Return the function of the model, marked; raise an error if the module has none, or if it is not known which."""
    graphs = _graphs(module)
    marked = [function for function in graphs.values() if is_entry(function)]
    if len(marked) > 1:
        listed = ", ".join(f"@{symbol_name(function)}" for function in marked)
        raise EntryError(
            f"several functions are marked as the model: {listed}; expected '{ENTRY}' on one of them",
            marked[1].location,
        )
    if marked:
        return marked[0]
    entry = graphs[_unmarked(graphs)]
    mark_entry(entry)
    return entry


def entry_or_none(module: ir.Module | ir.OpView | ir.Operation) -> ir.Operation | None:
    """Return the function of the model, marked, or None if the module has none or it is not known which."""
    try:
        return find_entry(module)
    except EntryError:
        return None


def is_model(function: ir.OpView | ir.Operation) -> bool:
    """Return whether a function is the model of the module that it stands in."""
    parent = function.operation.parent
    entry = None if parent is None else entry_or_none(parent)
    return entry is not None and function.operation == entry


def select_entry(module: ir.Module) -> None:
    """Mark the function of the model and call it `@main`; others become private, and are erased if it calls none.

    A module of prim functions only stays as it is. In a planned module, the function is marked.
    """
    graphs = _graphs(module)
    if not graphs:
        return
    entry = find_entry(module)
    if any(PLANNED in function.attributes for function in graphs.values()):
        return
    drop_other_graphs(module, entry)
    name_entry(module, entry)


def drop_other_graphs(module: ir.Module | ir.OpView, entry: ir.Operation) -> None:
    """Erase the graphs that the model does not call, and make the others private."""
    graphs = _graphs(module)
    reached, waiting = set(), [symbol_name(entry)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [callee_of(op) or "" for op in calls_in(graphs[name], graphs)]
    symbols = ir.SymbolTable(module.operation)
    for name, function in graphs.items():
        if name not in reached:
            symbols.erase(function)
        elif function != entry:
            function.attributes["sym_visibility"] = ir.StringAttr.get("private", function.context)


def name_entry(module: ir.Module | ir.OpView, entry: ir.Operation) -> None:
    """Name the model's function `@main`, and rename another function that has the name."""
    if symbol_name(entry) == ENTRY_NAME:
        return
    symbols = ir.SymbolTable(module.operation)
    if ENTRY_NAME in symbols:
        free = next(name for i in count() if (name := f"{ENTRY_NAME}_{i}") not in symbols)
        ir.SymbolTable.replace_all_symbol_uses(ENTRY_NAME, free, module.operation)
        rename_symbol(symbols[ENTRY_NAME], free)
    rename_symbol(entry, ENTRY_NAME)


def _graphs(module: ir.Module | ir.OpView | ir.Operation) -> dict[str, ir.Operation]:
    return {name: function for name, function in functions_of(module.operation).items() if is_graph(function)}


def _unmarked(graphs: dict[str, ir.Operation]) -> str:
    """Return the name of the model's function where none is marked."""
    if ENTRY_NAME in graphs:
        return ENTRY_NAME
    callees = {callee_of(op) for function in graphs.values() for op in calls_in(function, graphs)}
    roots = [name for name in graphs if name not in callees] or list(graphs)
    if not roots:
        raise EntryError("the module has no function to compile: expected a graph with a body, such as @main")
    if len(roots) > 1:
        listed = ", ".join(f"@{name}" for name in roots)
        raise EntryError(
            f"the module has several functions that no other calls, and none is called @main: {listed}; expected one "
            f"function that is the model: call it @main, or give it the attribute '{ENTRY}'"
        )
    return roots[0]
