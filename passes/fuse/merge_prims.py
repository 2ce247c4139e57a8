"""The pass `merge-prims`: prim functions that differ in the names of data-dependent sizes become one.

    relax.call_tir(%a, %w0) {callee = @matmul}    : (tensor<?x8xf32, dims<["rows_0", 8]>>, ...)
    relax.call_tir(%b, %w1) {callee = @matmul_1}  : (tensor<?x8xf32, dims<["rows_1", 8]>>, ...)
becomes
    relax.call_tir(%b, %w1) {callee = @matmul, symbols = ["rows_0"], sizes = ["rows_1"]}

Each expert of a mixture computes a number of rows of its own: its kernels are scheduled and compiled once for all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims, Strs
from mirlo.dialects.core.dim_text import SYMBOL
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.specialize import attributes_of_dims
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.graph.dce import erase_uncalled
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

BINDS = frozenset({"relax.bind_dims", "relax.match_dims"})
"""Operators whose symbols stand for sizes that data determine."""
_QUOTED = re.compile(r'"[^"\n]*"')


@register_pass
@dataclass(frozen=True)
class MergePrims(Pass):
    """Merge prim functions that differ in their names and the names of data-dependent sizes only.

    Calls of a function that goes name the sizes that the symbols of the other one stand for.
    """

    name = "merge-prims"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        members = [each.operation for each in op.operation.regions[0].blocks[0].operations]
        functions = [each for each in members if each.name == "func.func"]
        graphs = [each for each in functions if not is_prim_func(each)]
        bound, calls = _symbols_and_calls(graphs)
        if not bound:
            return
        first: dict[str, tuple[str, list[str]]] = {}
        merged: dict[str, tuple[str, list[str], list[str]]] = {}
        for function in functions:
            if is_prim_func(function) and len(function.regions[0].blocks):
                name = symbol_name(function)
                text, names = canonical_text(function, bound)
                other, symbols = first.setdefault(text, (name, names))
                if other != name:
                    merged[name] = other, symbols, names
        for call in calls:
            other_function = merged.get(call.opview.callee)
            if other_function is not None:
                _call_other(call, *other_function)
        if merged:
            erase_uncalled(op)


def canonical_text(function: ir.Operation, symbols: Collection[str]) -> tuple[str, list[str]]:
    """Return the text of a function with numbers for its name and for these symbols, and the symbols in their order."""
    numbers: dict[str, int] = {}
    symbols = set(symbols) - _words(function)

    def number(match: re.Match[str]) -> str:
        name = match[0]
        return f"\0{numbers.setdefault(name, len(numbers))}\0" if name in symbols else name

    text = function.get_asm(assume_verified=True, use_local_scope=True)
    text = text.replace(f"@{symbol_name(function)}(", "@(", 1)
    return _QUOTED.sub(lambda quoted: SYMBOL.sub(number, quoted[0]), text), list(numbers)


def _words(function: ir.Operation) -> set[str]:
    """Return the names in a function that are not in dims: of operations, and in attributes.

    A symbol may be named like one of them, as a model may name its dims: it is a dim in the text only if no name is.
    """
    words: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        words.add(op.name)
        dims = attributes_of_dims(op)
        for name, attribute in op.attributes.items():
            if name not in dims:
                words.update(*map(SYMBOL.findall, _strings(attribute)))
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return words


def _strings(attribute: ir.Attribute) -> Iterator[str]:
    """Yield the strings in an attribute that are not in a type: types have no other names than those of dims."""
    if isinstance(attribute, ir.StringAttr):
        yield attribute.value
    elif isinstance(attribute, ir.ArrayAttr):
        for each in attribute:
            yield from _strings(each)
    elif isinstance(attribute, ir.DictAttr):
        for i in range(len(attribute)):
            yield from _strings(attribute[i].attr)


def _symbols_and_calls(graphs: list[ir.Operation]) -> tuple[set[str], list[ir.Operation]]:
    """Return the symbols that data determine, and the calls of prim functions."""
    bound: set[str] = set()
    calls: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in BINDS:
            bound.update(op.opview.symbols)
        elif op.name == "relax.call_tir":
            calls.append(op)
        return ir.WalkResult.ADVANCE

    for graph in graphs:
        walk(graph, visit)
    return bound, calls


def _call_other(call: ir.Operation, callee: str, symbols: list[str], names: list[str]) -> None:
    """Call an equal function, whose symbols are those of the called one in the same order."""
    view = call.opview
    assert isinstance(view, CallTir)
    sizes = [view.in_caller(D.symbol(name)) for name in names]
    attributes = call.attributes
    attributes["callee"] = ir.FlatSymbolRefAttr.get(callee)
    if symbols != names:
        attributes["symbols"], attributes["sizes"] = Strs().encode(tuple(symbols)), Dims().encode(tuple(sizes))
