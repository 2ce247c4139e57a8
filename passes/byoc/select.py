"""Selection of non-overlapping matches in a block, by priority of the patterns."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import field

from mirlo.dialects.core.values import OPERAND_RUNS, RESULT_RUNS
from mirlo.passes.byoc.graph import BlockGraph, BlockNode, BlockValue, QuotientGraph
from mirlo.passes.byoc.record import Recorder
from mirlo.passes.byoc.search import MAX_MATCHES, Match, Predicate, Search, State
from mirlo.passes.byoc.tables import PatternEntry, check_failure
from mirlo.passes.rules import Decline
from mirlo.runtime.records import dataclass


@dataclass(frozen=True, eq=False)
class SelectedMatch:
    """A selected match."""

    entry: PatternEntry
    match: Match


Decide = Callable[[PatternEntry, Match, tuple[int, ...]], object]
"""Decides whether a match, with the placement's ids of its nodes, is selected: True, or a reason."""


@dataclass
class Selector:
    """A selector of matches in one block, for one target after another."""

    graph: BlockGraph
    recorder: Recorder
    decide: Decide | None = None
    """Called last for a match that could be selected; placement by cost rejects matches here."""
    choices: list[SelectedMatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owners: list[str | None] = [None] * len(self.graph.nodes)
        self.quotient = QuotientGraph(self.graph)
        self.any_inner_results = False
        """Whether some match has several outputs: only those can form a cycle with others."""

    def select(self, entries: list[PatternEntry]) -> list[SelectedMatch]:
        """Select matches of the patterns in order of priority; returns those selected."""
        taken: list[SelectedMatch] = []
        for entry in entries:
            taken += self._take(entry)
        self.choices += taken
        return taken

    def _take(self, entry: PatternEntry) -> list[SelectedMatch]:
        """Select matches of one pattern in program order; a later one may contain an earlier one but not cut it."""
        own: dict[int, SelectedMatch] = {}
        roots = entry.pattern.roots()
        for node in self.graph.nodes:
            if node.is_terminator or not node.results or (roots is not None and node.name not in roots):
                continue
            match, search = self._match(entry, node, own)
            if match is None:
                self.recorder.failed(entry, node, search.explanation())
                continue
            for old in dict.fromkeys(own[n.index] for n in match.nodes if n.index in own):
                self._drop(old, own)
            choice = SelectedMatch(entry, match)
            own.update(dict.fromkeys((n.index for n in match.nodes), choice))
            self._join(match)
        taken = sorted(dict.fromkeys(own.values()), key=lambda choice: choice.match.root.index)
        for choice in taken:
            for node in choice.match.nodes:
                self.owners[node.index] = entry.full_name
            self.recorder.matched(entry, choice.match)
        return taken

    def _match(
        self, entry: PatternEntry, node: BlockNode, own: dict[int, SelectedMatch]
    ) -> tuple[Match | None, Search]:
        search = Search(self.graph, lambda wanted: self.owners[wanted.index])
        states = (state for value in node.results for state in entry.pattern.solve(value, State(), search))
        for state in itertools.islice(states, MAX_MATCHES):
            match = Match.of(self.graph, node, state)
            failure = self._rejection(entry, match, own)
            if failure is None:
                return match, search
            reason, predicate, at = failure
            search.fail(state, at.results[0] if at is not None else None, reason, predicate=predicate)
        return None, search

    def _rejection(
        self, entry: PatternEntry, match: Match, own: dict[int, SelectedMatch]
    ) -> tuple[Decline | str, str, BlockNode | None] | None:
        """Return why a match cannot be selected: the reason, the predicate, the node concerned."""
        problem = unfit(match)
        if problem is not None:
            return problem[0], "", problem[1]
        for node in match.nodes:
            old = own.get(node.index)
            if old is not None and old.match.mask & ~match.mask:
                return f"{node.name} belongs to an earlier match of this pattern", "", node
        between = self._path_back(match, own)
        if between is not None:
            return f"it is not convex: {between.name} depends on a part of it, and a part depends on that", "", between
        failure = check_failure(entry, match)
        if failure is None and self.decide is not None:
            decision = Predicate.of(self.decide)
            reason = decision.declines(entry, match, self.recorder.numbers(match.mask))
            failure = None if reason is None else (reason, decision.name)
        return None if failure is None else (*failure, match.root)

    def _path_back(self, match: Match, own: dict[int, SelectedMatch]) -> BlockNode | None:
        """Return a node on a path that leaves and re-enters a match; a closed tree has none."""
        if not (self.any_inner_results or match.has_inner_results):
            return None
        inside = dict.fromkeys(own[n.index] for n in match.nodes if n.index in own)
        for old in inside:
            self.quotient.leave(old.match.mask)
        result = self.quotient.path_back(match.mask)
        for old in inside:
            self.quotient.join(old.match.mask)
        return result

    def _join(self, match: Match) -> None:
        self.quotient.join(match.mask)
        self.any_inner_results = self.any_inner_results or match.has_inner_results

    def _drop(self, old: SelectedMatch, own: dict[int, SelectedMatch]) -> None:
        self.quotient.leave(old.match.mask)
        for node in old.match.nodes:
            own.pop(node.index, None)


def _is_read_outside(value: BlockValue, match: Match) -> bool:
    return any(not match.mask >> user.index & 1 for user in value.users)


def unfit(match: Match) -> tuple[str, BlockNode] | None:
    """Return why a match cannot become a function, and the node concerned, or None."""
    if not match.mask:
        return "the pattern has no operator: nothing would be in the composite", match.root
    for node in match.nodes:
        if node.op.regions:
            return f"{node.name} has control flow inside", node
        if not node.is_pure:
            return f"{node.name} has effects", node
    inputs = {str(v.mlir.type) for v in match.inputs() if not v.is_constant}
    outputs = {str(v.mlir.type) for node in match.nodes for v in node.results if _is_read_outside(v, match)}
    if len(inputs) > OPERAND_RUNS or len(outputs) > RESULT_RUNS:
        message = f"the match has inputs of {len(inputs)} types and results of {len(outputs)}"
        return f"{message}; a call holds {OPERAND_RUNS} and {RESULT_RUNS}", match.root
    leak = match.leak()
    if leak is not None:
        node, user = leak
        return f"the result of {node.name} is also used outside the match, by {user.name}", node
    return None
