"""What placement did and why, as plain data: every pattern that was tried on every node, how deep it got, what said no.

A run of `fuse-by-pattern` or `partition` appends one `Placement` to the session's notes. Nodes have numbers that hold
within it; names of the user's model come from locations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_NAMED = 4
"""How many alternatives are named that were expected somewhere."""


@dataclass(frozen=True)
class NodeRecord:
    """An operator of the graph before anything was placed."""

    id: int
    function: str
    operator: str
    names: tuple[str, ...]
    """The names around it in the user's model (of ONNX nodes, say), outermost first."""
    place: str
    """Where it stands: `file:line:column`, names, or 'unknown location'."""
    operands: tuple[str, ...]
    """Types of what it reads."""
    results: tuple[str, ...]
    reads: tuple[int, ...]
    """The nodes whose results it reads."""
    flops: int | None
    """Operations that it does; None where a dim is not known."""
    bytes: int | None
    """What it reads and writes, constants included."""


@dataclass(frozen=True)
class AttemptRecord:
    """One pattern tried with one node as its root (the last of its operators)."""

    target: str
    pattern: str
    root: int
    accepted: bool
    nodes: tuple[int, ...]
    """The nodes of the match; of one that failed, those that it had."""
    depth: int
    """How many nodes it matched before it failed, or in all."""
    reason: str = ""
    """Why it failed, one sentence."""
    at: int | None = None
    """The node that did not fit; None where it is no node."""
    predicate: str = ""
    """The predicate that said no, when one did."""
    lost_to: str = ""
    """Who took a node before, `target.pattern`, when that is the reason."""


@dataclass(frozen=True)
class PatternRecord:
    """A pattern that was tried."""

    target: str
    name: str
    operators: tuple[str, ...]
    """Those that it names."""
    ends: tuple[str, ...]
    """Those that a match can end with; none where it may be any."""


@dataclass(frozen=True)
class Taken:
    """A composite that was made."""

    target: str
    pattern: str
    function: str
    """The function that it became."""
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
    """What a call hands in: tensors that are no constants of its composites."""
    bytes_out: int | None = None
    tensors: int = 0
    """How many tensors a call hands in and out."""
    kept: bool = True
    reason: str = ""
    """Why it was given back to the compiler, when it was."""


@dataclass(frozen=True)
class MergeRecord:
    """Two neighbours of one target that did not become one region."""

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
    taken: list[Taken] = field(default_factory=list)
    regions: list[RegionRecord] = field(default_factory=list)
    unmerged: list[MergeRecord] = field(default_factory=list)
    patterns: list[PatternRecord] = field(default_factory=list)
    operators: dict[str, list[str]] = field(default_factory=dict)
    """For each target the operators that its patterns name: others it can never take."""

    def owner(self, node: int) -> Taken | None:
        """The composite that a node is in."""
        return next((taken for taken in self.taken if node in taken.nodes), None)

    def about(self, node: int) -> list[AttemptRecord]:
        """The attempts that a node had a part in: as the root, as a member, or as what did not fit."""
        return [a for a in self.attempts if node == a.root or node == a.at or node in a.nodes]

    def why_not(self, node: int, target: str) -> str:
        """One sentence: why a target did not take a node; empty when it did."""
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
        # Patterns that had the node tell more than those that stumbled over it; of those that got equally far, one
        # whose check said no tells more than one that expected something else.
        ranks = [(node == a.root or node in a.nodes, a.depth, bool(a.predicate), a.root == node) for a in tried]
        alike: dict[str, dict[str, None]] = {}
        for attempt, rank in zip(tried, ranks, strict=True):
            if rank == max(ranks):
                said = f"matched {attempt.depth} deep: {attempt.reason}"
                alike.setdefault(said, {})[f"{attempt.target}.{attempt.pattern}"] = None
        return "; ".join(f"{_listed(list(names))} {said}" for said, names in list(alike.items())[:3])

    def _what_does_not_follow(self, operator: str, target: str) -> str:
        found = [p for p in self.patterns if p.target == target and operator in p.operators]
        listed = [f"{target}.{p.name} has it only before {one_of(p.ends)}" for p in found[:3]]
        return f"{'; '.join(listed)}, and none that is free follows"

    def to_json(self) -> dict[str, Any]:
        """Dictionaries, lists, strings and numbers only."""
        return asdict(self)


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def one_of(alternatives: Sequence[str]) -> str:
    """`a or b`; of many alternatives the first ones, and how many more there are."""
    names = list(dict.fromkeys(name for text in alternatives for name in text.split(" or ")))
    if len(names) <= MAX_NAMED:
        return " or ".join(names)
    return f"{', '.join(names[:MAX_NAMED])} or {len(names) - MAX_NAMED} others"
