"""The pass `fuse-by-pattern`: move matches of a target's patterns to composites, private functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, erase_dead
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.byoc.graph import CONSTANT, BlockGraph
from mirlo.passes.byoc.outline import COMPOSITE, EXTERNAL, TARGET, GroupOutliner, functions_of
from mirlo.passes.byoc.record import Recorder, pattern_record
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.regions import single_regions
from mirlo.passes.byoc.select import Decide, SelectedMatch, Selector
from mirlo.passes.byoc.tables import PatternEntry, entries_of
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class FuseByPattern(Pass):
    """Move what a target's patterns match to functions with the attribute `relax.composite`.

    The target's patterns are tried in their order, each over all functions that are not composites themselves; a node
    that is taken is not taken again. With `bind-constants` the constants that a match reads move into the composite.
    With `annotate` each composite becomes a region of its own, for targets that want one external function per
    pattern; otherwise `merge-composites` makes regions.
    """

    name = "fuse-by-pattern"
    contained = True
    target: str = option("", "target whose patterns are matched")
    target_options: str = option("", "options of its code generator")
    bind_constants: bool = option(True, "move the constants that a match reads into the composite")
    annotate: bool = option(False, "make each composite a region of its own")
    functions: tuple[str, ...] = option((), "functions to look at; all when none is named")
    explain: bool = option(False, "print for each operator in patterns why no pattern matched it")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not self.target:
            raise PassError("'fuse-by-pattern' needs the option 'target': whose patterns to match")
        placement = Placement((self.target,))
        tables = {self.target: entries_of(self.target, self.target_options)}
        locations = fuse(op.operation, tables, session, placement, self.bind_constants, self.functions)
        if self.annotate:
            single_regions(op.operation, self.target, placement, session)
        session.notes.append(placement)
        if self.explain:
            explain(placement, locations, session)


def explain(placement: Placement, locations: Sequence[ir.Location], session: Session) -> None:
    """Emit a remark for every node that a target's patterns name but the target did not take."""
    for node, location in zip(placement.nodes, locations, strict=True):
        for target in placement.targets:
            if node.operator in placement.operators[target]:
                why = placement.why_not(node.id, target)
                if why:
                    session.remark(f"{node.operator} is not on {target}: {why}", location)


def fuse(
    module: ir.Operation,
    tables: dict[str, list[PatternEntry]],
    session: Session,
    placement: Placement,
    bind_constants: bool = True,
    only: tuple[str, ...] = (),
    decide: Decide | None = None,
) -> list[ir.Location]:
    """Make composites for the patterns of targets in order of priority; returns the locations of nodes."""
    locations: list[ir.Location] = []
    symbols = ir.SymbolTable(module)
    for target, entries in tables.items():
        placement.operators[target] = sorted(set().union(*(entry.operators for entry in entries)))
        placement.patterns += [pattern_record(entry) for entry in entries]
    for function in graph_functions(module, only):
        for block in blocks(function):
            erase_dead(block, is_pure_relax)
            graph = BlockGraph(block, session)
            locations += [node.op.location for node in graph.nodes if not node.is_terminator]
            recorder = Recorder(placement, graph, symbol_name(function))
            selector = Selector(graph, recorder, decide)
            for entries in tables.values():
                selector.select(entries)
            _outline(selector.choices, graph, module, symbols, recorder, bind_constants)
    return locations


def graph_functions(module: ir.Operation, only: tuple[str, ...] = ()) -> list[ir.Operation]:
    """Return the graph functions: no prim functions, composites or regions; only those named, or all."""
    functions = functions_of(module)
    for name in only:
        if name not in functions:
            raise PassError(f"there is no function '@{name}' with a body; there are: {', '.join(functions) or 'none'}")
    facts = (COMPOSITE, EXTERNAL, "relax.primitive")
    return [
        function
        for name, function in functions.items()
        if (not only or name in only)
        and not is_prim_func(function)
        and not any(fact in function.attributes for fact in facts)
    ]


def _outline(
    choices: list[SelectedMatch],
    graph: BlockGraph,
    module: ir.Operation,
    symbols: ir.SymbolTable,
    recorder: Recorder,
    bind_constants: bool,
) -> None:
    outliner = GroupOutliner(graph, module.regions[0].blocks[0], symbols)
    outliner.prepare([choice.match.mask for choice in choices])
    for choice in choices:
        entry = choice.entry
        facts = {COMPOSITE: ir.StringAttr.get(entry.full_name), TARGET: ir.StringAttr.get(entry.target)}
        call = outliner.outline(choice.match.mask, f"{entry.target}_{entry.name}", facts, bind_constants)
        recorder.made(entry, choice.match, symbols[ir.FlatSymbolRefAttr(call.attributes["callee"]).value])
    erase_dead(graph.block, lambda op: op.name == CONSTANT)
