"""Records of placement decisions, as plain data: each pattern tried at each node, its match depth and why it failed.

A run of `fuse-by-pattern` or `partition` appends one `Placement` to the session's notes. Node ids are valid within
it; names of the user's model come from locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field

from mirlo.runtime.records import dataclass

MAX_NAMED = 4
"""The number of expected alternatives that a reason lists."""


@dataclass(frozen=True)
class NodeRecord:
    """An operator of the graph before placement."""

    id: int
    function: str
    operator: str
    names: tuple[str, ...]
    """The enclosing names in the user's model (of ONNX nodes, say), outermost first."""
    place: str
    """The source location: `file:line:column`, names, or 'unknown location'."""
    operands: tuple[str, ...]
    """The types of its operands."""
    results: tuple[str, ...]
    reads: tuple[int, ...]
    """The nodes whose results it reads."""
    flops: int | None
    """Its operation count; None if a dim is dynamic."""
    bytes: int | None
    """The bytes that it reads and writes, including constants."""


@dataclass(frozen=True)
class AttemptRecord:
    """An attempt to match a pattern with one node as its root (the last of its operators)."""

    target: str
    pattern: str
    root: int
    accepted: bool
    nodes: tuple[int, ...]
    """The nodes of the match, partial if it failed."""
    depth: int
    """The number of nodes matched before the failure, or in all."""
    reason: str = ""
    """The reason of the failure, one sentence."""
    at: int | None = None
    """The node that did not match; None if the value has no node."""
    predicate: str = ""
    """The predicate that failed, if any."""
    lost_to: str = ""
    """The `target.pattern` that took a node before, if that is the reason."""


@dataclass(frozen=True)
class PatternRecord:
    """A pattern that was tried."""

    target: str
    name: str
    operators: tuple[str, ...]
    """The operators that it names."""
    ends: tuple[str, ...]
    """The operators that can be its root; empty for any."""


@dataclass(frozen=True)
class CompositeRecord:
    """A composite that was made."""

    target: str
    pattern: str
    function: str
    """The composite's function."""
    nodes: tuple[int, ...]


@dataclass
class RegionRecord:
    """Composites of one target that became one region."""

    target: str
    function: str
    composites: tuple[str, ...]
    nodes: tuple[int, ...] = ()
    flops: int | None = None
    bytes_in: int | None = None
    """Bytes of the operands of a call that are not constants of its composites."""
    bytes_out: int | None = None
    tensors: int = 0
    """The number of operands and results of a call."""
    outlined: str = ""
    """The function of the target's nested module that it became, `mine::mine_0`."""
    microseconds: float | None = None
    """The time of a call, if the code generator estimates it."""
    kept: bool = True
    reason: str = ""
    """Why the region was inlined again, if it was."""


@dataclass(frozen=True)
class MergeRecord:
    """Two adjacent composites of one target that did not become one region."""

    target: str
    producer: str
    consumer: str
    reason: str


@dataclass
class Placement:
    """All records of one run."""

    targets: tuple[str, ...]
    nodes: list[NodeRecord] = field(default_factory=list)
    attempts: list[AttemptRecord] = field(default_factory=list)
    taken: list[CompositeRecord] = field(default_factory=list)
    regions: list[RegionRecord] = field(default_factory=list)
    unmerged: list[MergeRecord] = field(default_factory=list)
    patterns: list[PatternRecord] = field(default_factory=list)
    operators: dict[str, list[str]] = field(default_factory=dict)
    """The operators named by each target's patterns; it cannot take any other."""

    def rename(self, outlined: str, fresh: str) -> None:
        """Record that the function of an outlined region has another name."""
        for region in self.regions:
            if region.outlined == outlined:
                region.outlined = fresh

    def set_time(self, outlined: str, microseconds: float) -> None:
        """Record what a call of an outlined region takes."""
        for region in self.regions:
            if region.kept and region.outlined == outlined:
                region.microseconds = microseconds

    def drop(self, outlined: str, reason: str) -> None:
        """Record that an outlined region went back to the graph."""
        for region in self.regions:
            if region.kept and region.outlined == outlined:
                region.kept, region.reason = False, reason
                gone = set(region.composites)
                self.taken = [taken for taken in self.taken if taken.function not in gone]

    def owner(self, node: int) -> CompositeRecord | None:
        """Return the composite that contains a node."""
        return next((taken for taken in self.taken if node in taken.nodes), None)

    def about(self, node: int) -> list[AttemptRecord]:
        """Return the attempts that involve a node: as root, as member, or as the mismatch."""
        return [a for a in self.attempts if node == a.root or node == a.at or node in a.nodes]

    def why_not(self, node: int, target: str) -> str:
        """Return one sentence why a target did not take a node; empty if it did."""
        owner = self.owner(node)
        if owner is not None and owner.target == target:
            return ""
        if owner is not None:
            return f"taken by {owner.target}.{owner.pattern}"
        operator = self.nodes[node].operator
        if operator not in self.operators.get(target, []):
            return f"no pattern of {target} has the operator {operator}"
        tried = [a for a in self.about(node) if a.target == target and not a.accepted]
        if not tried:
            return self._what_does_not_follow(operator, target)
        # Attempts that include the node explain more than those that failed at it; among equally deep ones, a failed
        # check explains more than a mismatch.
        ranks = [(node == a.root or node in a.nodes, a.depth, bool(a.predicate), a.root == node) for a in tried]
        alike: dict[str, dict[str, None]] = {}
        for attempt, rank in zip(tried, ranks, strict=True):
            if rank == max(ranks):
                reason = f"matched {attempt.depth} deep: {attempt.reason}"
                alike.setdefault(reason, {})[f"{attempt.target}.{attempt.pattern}"] = None
        return "; ".join(f"{_listed(list(names))} {reason}" for reason, names in list(alike.items())[:3])

    def _what_does_not_follow(self, operator: str, target: str) -> str:
        selected = [p for p in self.patterns if p.target == target and operator in p.operators]
        listed = [f"{target}.{p.name} has it only before {join_alternatives(p.ends)}" for p in selected[:3]]
        return f"{'; '.join(listed)}, and none that is free follows"

    def to_json(self) -> dict[str, object]:
        """Return dictionaries, lists, strings and numbers only."""
        return asdict(self)


def _listed(names: Sequence[str]) -> str:
    """Return the text `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def join_alternatives(alternatives: Sequence[str]) -> str:
    """Return the text `a or b`; of many alternatives only the first ones and a count of the others."""
    names = list(dict.fromkeys(name for text in alternatives for name in text.split(" or ")))
    if len(names) <= MAX_NAMED:
        return " or ".join(names)
    return f"{', '.join(names[:MAX_NAMED])} or {len(names) - MAX_NAMED} others"
