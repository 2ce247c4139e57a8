"""Graph rewriting with the pattern language, to a fixed point with a bound; and the pass `rewrite`.

@rewriter(is_op("relax.add")(x, is_op("relax.negative")(y)))
def subtract(match, b):
    return b.emit(OPS["subtract"], match["x"].mlir, match["y"].mlir)

rewrite(subtract, function)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import DialectOp, values_of
from mirlo.dialects.core.surgery import blocks, enclosing, erase_dead
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.template import PrimTemplate
from mirlo.passes.byoc.graph import BlockGraph, BlockNode, BlockValue
from mirlo.passes.byoc.outline import GroupOutliner
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.search import Match, PatternError, Search, State
from mirlo.passes.byoc.select import MAX_MATCHES, has_inner_results, match_of
from mirlo.passes.byoc.structure import check_pattern
from mirlo.passes.graph.constants import emit_constant
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.legalize.builder import PrimFunctions
from mirlo.passes.registry import ROOT_ANCHOR, Pass, PassError, option, register_pass
from mirlo.passes.rules import DEFAULT, Decline, Rule, run_rule, same_place
from mirlo.passes.session import Session
from mirlo.runtime.nearest import nearest

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

    def __or__(self, other: Rewrite | Sequence[Rewrite]) -> list[Rewrite]:
        return [self, *([other] if isinstance(other, Rewrite) else other)]

    def __ror__(self, others: Sequence[Rewrite]) -> list[Rewrite]:
        return [*others, self]


@dataclass
class Rewritten:
    """The result of a call of `rewrite`."""

    count: int = 0
    rounds: int = 0
    converged: bool = True
    """Whether a fixed point was reached within the bound."""
    declined: list[tuple[str, Decline]] = field(default_factory=list)
    """The replacements that declined a match, with their reasons."""


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
    given = [rules] if isinstance(rules, Rewrite) else list(rules)
    done = Rewritten()
    changed = True
    while changed and done.count < limit:
        done.rounds += 1
        done.declined.clear()
        changed = False
        for block in blocks(function):
            erase_dead(block, is_pure_relax)
            changed |= _Iteration(BlockGraph(block, session), given, done, limit, session).run()
            erase_dead(block, is_pure_relax)
    done.converged = not changed
    if changed:
        names = ", ".join(f"'{rule.name}'" for rule in given)
        session.warning(f"rewriting by {names} stopped after {done.count} replacements: they still match")
    return done


class MatchBuilder(Rewriter):
    """A builder of operators and constants behind the root of a match, whose value they may read."""

    def __init__(self, root: ir.Operation, session: Session):
        super().__init__(root, session)
        self.behind = next_operation(root)
        self.made: list[ir.Operation] = []

    def emit(self, operator: type[DialectOp], *values: Any, **attributes: Any) -> ir.Value:
        with ir.InsertionPoint(self.behind), self.op.location:
            built = operator.build(*map(_plain, values), **attributes).operation
        self.made.append(built)
        result: ir.Value = values_of(built)
        return result

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
        given = [_plain(value) for value in values]
        outputs = [kind_of(result) for result in self.op.results] if results is None else list(results)
        with self.op.location:
            function, types = template.specialize(
                [kind_of(value) for value in given], outputs, name or template.name, attributes
            )
        symbol = PrimFunctions(_module_of(self.op)).insert(function)
        return self.emit(CallTir, given, result_types=types, callee=symbol)

    def constant(self, array: np.ndarray, kind: TensorType, name: str = "constant") -> ir.Value:
        with ir.InsertionPoint(self.behind), self.op.location:
            return emit_constant(array, kind, self.session, name)


def _plain(value: object) -> Any:
    """Return the value in MLIR of what a match is asked for by label; other operands as they are."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.mlir if isinstance(value, BlockValue) else value


def _module_of(op: ir.Operation | ir.OpView) -> ir.OpView:
    """Return the module that an operation is in."""
    return enclosing(op, ROOT_ANCHOR).opview


def next_operation(op: ir.Operation) -> ir.Operation:
    """Return the operation behind one that is not the last of its block."""
    operations = [other.operation for other in op.block.operations]
    return operations[operations.index(op) + 1]


@dataclass
class _Iteration:
    """One iteration over a block. Replaced operations and their operands are revisited in the next iteration only."""

    graph: BlockGraph
    rules: list[Rewrite]
    done: Rewritten
    limit: int
    session: Session
    touched: set[int] = field(default_factory=set)

    def run(self) -> bool:
        before = self.done.count
        for node in self.graph.nodes:
            if node.is_terminator or not node.results:
                continue
            for rule in self.rules:
                if self.done.count < self.limit and self._apply(rule, node):
                    break
        return self.done.count > before

    def _apply(self, rule: Rewrite, node: BlockNode) -> bool:
        roots = rule.pattern.roots()
        if roots is not None and node.name not in roots:
            return False
        search = Search(self.graph, muted=True)
        states = (state for value in node.results for state in rule.pattern.solve(value, State(), search))
        for state in itertools.islice(states, MAX_MATCHES):
            match = match_of(self.graph, node, state)
            if not self.touched & self._values(match) and self._replace(rule, match):
                return True
        return False

    def _values(self, match: Match) -> set[int]:
        read = (v for node in match.nodes for v in (*node.operands, *node.results))
        return {id(v) for v in itertools.chain(read, match.labels.values()) if not v.is_constant}

    def _replace(self, rule: Rewrite, match: Match) -> bool:
        if has_inner_results(match) and match.outputs & ~(1 << match.root.index):
            GroupOutliner(self.graph, _module_of(match.root.op).regions[0].blocks[0], None).prepare([match.mask])
        builder = MatchBuilder(match.root.op, self.session)
        known = Rule("rewrite", match.root.name, DEFAULT, rule.replacement, name=rule.name)
        replacement = run_rule(known, match, builder)
        if isinstance(replacement, Decline):
            self.done.declined.append((rule.name, replacement))
            return False
        for old, new in _pairs(rule, match, replacement):
            if old.type != new.type:
                raise PatternError(f"rewrite '{rule.name}': {new.type} cannot take the place of {old.type}")
            old.replace_all_uses_except(new, builder.made)
        self.touched |= self._values(match)
        self.done.count += 1
        return True


def _pairs(rule: Rewrite, match: Match, made: object) -> Iterable[tuple[ir.Value, ir.Value]]:
    """Return pairs of old and new values."""
    if isinstance(made, dict):
        return [(match[label].mlir, _plain(value)) for label, value in made.items()]
    values = [_plain(value) for value in (made if isinstance(made, (tuple, list)) else [made])]
    if len(values) != len(match.root.results) or not all(isinstance(value, ir.Value) for value in values):
        raise PatternError(
            f"rewrite '{rule.name}' must return {len(match.root.results)} values for {match.root.name}, got {made!r}"
        )
    return zip((result.mlir for result in match.root.results), values, strict=True)


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
            rewrites.append(replace(REWRITES[name]))
        rewrite(rewrites, op, session, self.limit)
