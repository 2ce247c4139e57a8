"""Locations in messages of passes, whose names are safe to print."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import locations
from mirlo.dialects.core.locations import PARSED_TEXT, SourcePosition, find_source_position, names_of, node_of
from mirlo.dialects.tir.view import is_prim_func
from mirlo.runtime.names import terminal

__all__ = ["PARSED_TEXT", "SourcePosition", "describe", "find_source_position", "names_of", "node_of"]


def describe(location: ir.Location) -> str:
    """Return one line for messages: `file:3:5`, `"node"`, `"node" at file:3:5`, or `unknown location`."""
    return locations.describe(location, terminal)


def kernel_calls(module: ir.Module | ir.Operation) -> Iterator[tuple[str, list[str]]]:
    """Yield the kernels that graph functions call, in bodies of loops and branches too, each with its nodes."""
    for function in module.operation.regions[0].blocks[0].operations:
        if function.operation.name == "func.func" and not is_prim_func(function):
            yield from _calls_in(function.operation)


def kernel_nodes(module: ir.Module) -> dict[str, list[str]]:
    """Return the nodes that each kernel of a module computes."""
    names: dict[str, dict[str, None]] = {}
    for callee, nodes in kernel_calls(module):
        names.setdefault(callee, {}).update(dict.fromkeys(nodes))
    return {callee: list(nodes) for callee, nodes in names.items()}


def node_labels(location: ir.Location) -> list[str]:
    """Return the names in a location, or its positions in files if there are none."""
    names = names_of(location)
    if names:
        return names
    parts = location.locations if isinstance(location, ir.FusedLoc) else [location]
    return list(dict.fromkeys(describe(part) for part in parts))


def _calls_in(op: ir.Operation) -> Iterator[tuple[str, list[str]]]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name in ("func.call", "relax.call_tir"):
                    callee = ir.FlatSymbolRefAttr(inner.operation.attributes["callee"]).value
                    yield callee, node_labels(inner.operation.location)
                yield from _calls_in(inner.operation)
