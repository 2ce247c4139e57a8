"""Regions: adjacent composites of one target in one function, without cycles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.values import OPERAND_RUNS, RESULT_RUNS
from mirlo.passes.byoc.graph import BlockGraph, BlockNode, QuotientGraph
from mirlo.passes.byoc.outline import (
    COMPOSITE,
    EXTERNAL,
    TARGET,
    GroupOutliner,
    callee_of,
    functions_of,
    string_fact,
)
from mirlo.passes.byoc.records import MergeRecord, Placement, RegionRecord
from mirlo.passes.byoc.work import total
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

FACTS = (COMPOSITE, EXTERNAL, "relax.primitive")
"""Attributes of functions whose calls are pure: their bodies are pieces of the graph."""


def pure_calls(functions: dict[str, ir.Operation]) -> Callable[[ir.Operation], bool]:
    """Return a purity predicate of operations that treats calls of composites and regions as pure."""
    known = {name for name, f in functions.items() if any(fact in f.attributes for fact in FACTS)}
    return lambda op: is_pure_relax(op) or callee_of(op) in known


def targets_of(module: ir.Operation) -> list[str]:
    """Return the targets of the composites in a module, in program order."""
    targets = (string_fact(function, TARGET) for function in functions_of(module).values())
    return list(dict.fromkeys(target for target in targets if target is not None))


def has_collectives(function: ir.Operation) -> bool:
    """Return whether a function exchanges tensors with other ranks."""
    return any(Trait.COLLECTIVE in traits_of(op.operation) for block in blocks(function) for op in block.operations)


@dataclass
class Merger:
    """A merger of one target's composites into regions."""

    module: ir.Operation
    target: str
    placement: Placement
    max_nodes: int = 0
    """The largest number of operators in a region; 0 for no limit."""
    alone: bool = False
    """Whether each composite becomes a region of its own."""

    def run(self, session: Session) -> list[ir.OpView]:
        """Merge composites; returns the functions of the regions."""
        functions = functions_of(self.module)
        symbols = ir.SymbolTable(self.module)
        self.sizes = {
            name: len(function.regions[0].blocks[0].operations) - 1 - _constants(function)
            for name, function in functions.items()
            if string_fact(function, TARGET) == self.target and COMPOSITE in function.attributes
        }
        result = []
        self.exchanging = {name for name in self.sizes if has_collectives(functions[name])}
        for function in functions.values():
            if any(fact in function.attributes for fact in FACTS):
                continue
            for block in blocks(function):
                graph = BlockGraph(block, session, pure_calls(functions))
                masks = self._groups(graph)
                outliner = GroupOutliner(graph, self.module.regions[0].blocks[0], symbols)
                outliner.prepare(masks)
                result += [self._outline(mask, graph, outliner, symbols) for mask in masks]
        return result

    def _is_composite(self, node: BlockNode) -> bool:
        return callee_of(node.op) in self.sizes

    def _groups(self, graph: BlockGraph) -> list[int]:
        """Return the masks of the regions of a block."""
        quotient = QuotientGraph(graph)
        composites = [node for node in graph.nodes if self._is_composite(node)]
        for node in composites if not self.alone else ():
            parents = (value.node for value in node.operands if value.node is not None)
            for parent in dict.fromkeys(parents):
                if self._is_composite(parent) and not quotient.mask_of[parent.index] >> node.index & 1:
                    self._join(parent, node, quotient)
        return list(dict.fromkeys(quotient.mask_of[node.index] for node in composites))

    def _join(self, parent: BlockNode, node: BlockNode, quotient: QuotientGraph) -> None:
        mask = quotient.closure(1 << parent.index | 1 << node.index)
        reason = self._rejection(mask, quotient)
        if reason is None:
            quotient.join(mask)
            return
        names = callee_of(parent.op), callee_of(node.op)
        self.placement.unmerged.append(MergeRecord(self.target, str(names[0]), str(names[1]), reason))

    def _rejection(self, mask: int, quotient: QuotientGraph) -> str | None:
        graph = quotient.graph
        if any(callee_of(node.op) in self.exchanging for node in graph.members(mask)):
            return "ranks have the same regions of collectives, whatever each has between these: one region for each"
        back = quotient.path_back(mask)
        if back is not None:
            what = callee_of(back.op) or back.name
            return f"it would make a cycle: {what} depends on one part of the region, and another part depends on it"
        members = graph.members(mask)
        count = sum(self.sizes[str(callee_of(node.op))] for node in members)
        if self.max_nodes and count > self.max_nodes:
            return f"the region would have {count} operators, {self.max_nodes} are allowed"
        inputs = {
            str(v.mlir.type) for n in members for v in n.operands if v.node is None or not _is_member(v.node, mask)
        }
        outputs = {
            str(v.mlir.type) for n in members for v in n.results if any(not _is_member(u, mask) for u in v.users)
        }
        if len(inputs) > OPERAND_RUNS or len(outputs) > RESULT_RUNS:
            return (
                f"the region would have inputs of {len(inputs)} types and results of {len(outputs)}; a call holds "
                f"{OPERAND_RUNS} and {RESULT_RUNS}"
            )
        return None

    def _outline(self, mask: int, graph: BlockGraph, outliner: GroupOutliner, symbols: ir.SymbolTable) -> ir.OpView:
        composites = tuple(str(callee_of(node.op)) for node in graph.members(mask))
        facts = {EXTERNAL: ir.StringAttr.get(self.target)}
        call = outliner.outline(mask, f"{self.target}_region", facts, bind_constants=False)
        function = symbols[str(callee_of(call))]
        moved = [total([_bytes(value) for value in values]) for values in (call.operands, call.results)]
        tensors = len(call.operands) + len(call.results)
        record = RegionRecord(
            self.target, symbol_name(function), composites, bytes_in=moved[0], bytes_out=moved[1], tensors=tensors
        )
        self.placement.regions.append(record)
        return function


def _bytes(value: ir.Value) -> int | None:
    kind = TensorType.from_mlir(value.type)
    return kind.bytes if kind is not None and kind.is_static else None


def _is_member(node: BlockNode, mask: int) -> bool:
    return bool(mask >> node.index & 1)


def _constants(function: ir.Operation) -> int:
    return sum(op.operation.name == "relax.constant" for op in function.regions[0].blocks[0].operations)


def single_regions(module: ir.Operation, target: str, placement: Placement, session: Session) -> None:
    """Make each composite of a target that the graph calls a region of its own."""
    Merger(module, target, placement, alone=True).run(session)
