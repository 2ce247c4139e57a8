"""Graph rewriting with the pattern language, to a fixed point with a bound; and the pass `rewrite`.

@rewriter(is_op("relax.add")(x, is_op("relax.negative")(y)))
def subtract(match, b):
    return b.emit(OPS["subtract"], match["x"].mlir, match["y"].mlir)

rewrite(subtract, function)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.surgery import blocks, enclosing, erase_dead
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.view import PrimTemplate
from mirlo.passes.byoc.graph import BlockGraph, BlockValue
from mirlo.passes.byoc.outline import GroupOutliner
from mirlo.passes.byoc.pattern import Pattern, check_pattern
from mirlo.passes.byoc.search import Match, PatternError
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.rewrite import Operand, Rewriter, Rewritten, kind_of, plain_value, rewrite_by
from mirlo.passes.legalize.builder import PrimFunctions
from mirlo.passes.registry import ROOT_ANCHOR, Pass, PassError, option, register_pass
from mirlo.passes.rules import DEFAULT, Rule, RuleFunction, same_place
from mirlo.passes.session import Session
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

MAX_REWRITES = 10_000


Replacement = Callable[[Match, "MatchBuilder"], object]


@dataclass(frozen=True)
class Rewrite:
    """A pattern and its replacement: `replacement(match, builder)` returns a value, or `decline('why')`.

    For a match of several outputs it returns a dictionary from each output's label to its value.
    """

    pattern: Pattern
    replacement: Replacement
    name: str = ""

    @cached_property
    def function(self) -> RuleFunction:
        """Return the rule of an operator that this is; an error for a pattern that could never match."""
        return self.pattern.rule(self.replacement)

    def __or__(self, other: Rewrite | Sequence[Rewrite]) -> list[Rewrite]:
        return [self, *([other] if isinstance(other, Rewrite) else other)]

    def __ror__(self, others: Sequence[Rewrite]) -> list[Rewrite]:
        return [*others, self]


REWRITES: dict[str, Rewrite] = {}
"""The named rewrites, for the pass `rewrite`."""


def rewriter(pattern: Pattern, name: str = "") -> Callable[[Replacement], Rewrite]:
    """Make a `Rewrite` of the decorated function; with a name, it is registered for the pass `rewrite`."""
    check_pattern(pattern)

    def make(function: Replacement) -> Rewrite:
        result = Rewrite(pattern, function, name or getattr(function, "__name__", "a rewrite"))
        if name:
            if name in REWRITES and not same_place(REWRITES[name].replacement, function):
                raise PatternError(f"rewrite '{name}' is registered twice")
            REWRITES[name] = result
        return result

    return make


def forget_rewrites(module: str) -> None:
    """Remove the named rewrites that are functions of a module."""
    for name in [name for name, known in REWRITES.items() if known.replacement.__module__ == module]:
        del REWRITES[name]


def rewrite(
    rules: Rewrite | Sequence[Rewrite], function: ir.OpView, session: Session | None = None, limit: int = MAX_REWRITES
) -> Rewritten:
    """Replace matches of the patterns until none is left, or `limit` replacements were made.

    Rules are tried in order at each operation. An inner node of a match that is used elsewhere stays.
    """
    session = session if session is not None else Session()
    rewrites = [rules] if isinstance(rules, Rewrite) else list(rules)

    def rules_of(name: str) -> list[Rule]:
        return [
            Rule("rewrite", name, DEFAULT, each.function, name=each.name)
            for each in rewrites
            if (roots := each.pattern.roots()) is None or name in roots
        ]

    for block in blocks(function):
        erase_dead(block, is_pure_relax)
    graphs = BlockGraphs(session)
    done = rewrite_by(function, rules_of, lambda op, at: MatchBuilder(op, session, at, graphs), limit)
    if not done.converged:
        names = ", ".join(f"'{each.name}'" for each in rewrites)
        session.warning(f"rewriting by {names} stopped after {done.count} replacements: they still match")
    return done


@dataclass
class BlockGraphs:
    """The graph of the block that is rewritten, read again after each replacement."""

    session: Session
    graph: BlockGraph | None = None

    def of(self, block: ir.Block) -> BlockGraph:
        if self.graph is None or self.graph.block != block:
            self.graph = BlockGraph(block, self.session)
        return self.graph


class MatchBuilder(Rewriter):
    """A builder of operators, constants and calls after the root of a match, whose value they may read."""

    def __init__(self, root: ir.Operation, session: Session, at: ir.InsertionPoint, graphs: BlockGraphs):
        super().__init__(root, session, at=at)
        self._graphs = graphs

    def block_graph(self) -> BlockGraph:
        return self._graphs.of(self.op.block)

    def forget_block_graph(self) -> None:
        self._graphs.graph = None

    def gather(self, match: Match) -> None:
        if match.has_inner_results and match.outputs & ~(1 << match.root.index):
            body = _module_of(match.root.op).regions[0].blocks[0]
            GroupOutliner(match.graph, body, None).prepare([match.mask])
            self.at = ir.InsertionPoint.after(match.nodes[-1].op)
            self.forget_block_graph()

    def _emit(self, operator: type[DialectOp], values: Iterable[Operand], attributes: dict[str, Any]) -> list[ir.Value]:
        self.forget_block_graph()
        return super()._emit(operator, values, attributes)

    def call_prim_func(
        self,
        template: PrimTemplate,
        *values: ir.Value | BlockValue,
        results: Sequence[TensorType] | None = None,
        name: str | None = None,
        **attributes: float,
    ) -> ir.Value:
        """Call a hand-written prim function (`@mirlo.prim_func`) for these values and attributes.

        Its symbols are bound to the dims of the values and of the results: those of the match's root unless `results`
        lists others.
        """
        operands = plain_value(values)
        outputs = [kind_of(result) for result in self.op.results] if results is None else list(results)
        with self.op.location:
            function, types = template.specialize(
                [kind_of(value) for value in operands], outputs, name or template.name, attributes
            )
        symbol = PrimFunctions(_module_of(self.op)).insert(function)
        return self.emit(CallTir, operands, result_types=types, callee=symbol)


def _module_of(op: ir.Operation | ir.OpView) -> ir.OpView:
    """Return the module that an operation is in."""
    return enclosing(op, ROOT_ANCHOR).opview


def next_operation(op: ir.Operation) -> ir.Operation:
    """Return the operation after one that is not the last of its block."""
    operations = [other.operation for other in op.block.operations]
    return operations[operations.index(op) + 1]


@register_pass
@dataclass(frozen=True)
class RewriteByPattern(Pass):
    """Replace subgraphs by rules that were registered with `@rewriter(pattern, name="...")`, to a fixed point."""

    name = "rewrite"
    contained = True
    anchor = "func.func"
    rules: tuple[str, ...] = option((), "names of the rules, in the order in which they are tried")
    limit: int = option(MAX_REWRITES, "most replacements in a function")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not self.rules:
            raise PassError("'rewrite' needs the option 'rules': names of rules")
        rewrites = []
        for name in self.rules:
            if name not in REWRITES:
                raise PassError(f"there is no rewrite '{name}'{nearest(name, REWRITES)}")
            rewrites.append(REWRITES[name])
        rewrite(rewrites, op, session, self.limit)
