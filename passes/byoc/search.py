"""The search for a match: current bindings, and the deepest failure with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import UndecidedDim
from mirlo.passes.byoc.graph import BlockGraph, BlockNode, BlockValue
from mirlo.passes.byoc.records import join_alternatives
from mirlo.passes.rules import Decline, decline_undecided
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

MAX_STEPS = 100_000
"""Upper bound of search steps for one pattern at one node."""
MAX_MATCHES = 64
"""The largest number of matches tried per pattern and node when checks reject them."""


class PatternError(MirloError, ValueError):
    """A malformed pattern, or a predicate that misbehaves."""

    error_code = "MIR0410"
    remedy = "Correct the pattern of the code generator, as the message says."


@dataclass(frozen=True)
class State:
    """A partial match. States are immutable: each step makes a new one, so backtracking needs no undo."""

    mask: int = 0
    """The matched nodes."""
    outputs: int = 0
    """The matched nodes whose results may be used outside the match."""
    labels: Mapping[str, BlockValue] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return self.mask.bit_count()

    def with_node(self, node: BlockNode, is_output: bool) -> State:
        bit = 1 << node.index
        return State(self.mask | bit, self.outputs | bit if is_output else self.outputs, self.labels)

    def with_label(self, label: str | None, value: BlockValue) -> State:
        return self if label is None else State(self.mask, self.outputs, {**self.labels, label: value})


@dataclass(frozen=True)
class Failure:
    """A failed attempt: the matched nodes, the value that did not match, and the reason."""

    depth: int
    at: BlockValue | None
    reason: Decline
    expected: str = ""
    """What was expected at that value, if the reason is a mismatch."""
    predicate: str = ""
    """The predicate that failed, if any."""
    mask: int = 0
    """The matched nodes."""
    lost_to: str = ""
    """The pattern that has taken the node already, if that is the reason."""


@dataclass(frozen=True)
class Predicate:
    """A user's condition: true, or a reason."""

    name: str
    function: Callable[..., object]

    @staticmethod
    def of(function: Callable[..., object], name: str = "") -> Predicate:
        return Predicate(name or getattr(function, "__name__", "").replace("<lambda>", "") or "a predicate", function)

    def declines(self, *arguments: object) -> Decline | None:
        """Return the reason of a failed predicate, or None."""
        try:
            answer = self.function(*arguments)
        except MirloError:
            raise
        except UndecidedDim as undecided:
            return decline_undecided(undecided)
        except Exception as error:
            raise PatternError(f"{self._where()} raised {type(error).__name__}: {error}") from error
        if answer is True:
            return None
        if answer is False:
            return Decline(f"{self.name} returned False")
        if isinstance(answer, Decline):
            return answer
        if isinstance(answer, str) and answer:
            return Decline(answer)
        raise PatternError(f"{self._where()} must return True or a reason (text, or decline(...)), got {answer!r}")

    def _where(self) -> str:
        code = getattr(self.function, "__code__", None)
        at = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
        return f"predicate '{self.name}'{at}"


@dataclass
class Search:
    """One attempt to match a pattern in a graph."""

    graph: BlockGraph
    owner: Callable[[BlockNode], str | None] = lambda node: None
    """Returns the pattern that has taken a node, if any: matches cannot use such a node."""
    failures: list[Failure] = field(default_factory=list)
    """The deepest failures."""
    muted: bool = False
    """Whether failures are ignored, as inside a negated pattern."""
    hopeless: set[tuple[int, int, tuple[tuple[str, int], ...]]] = field(default_factory=set)
    """Parts of patterns that cannot match a value under the bound labels."""
    steps: int = 0
    answers: dict[object, Sequence[int] | Decline] = field(default_factory=dict)
    """Facts about nodes computed in this search, for patterns that use them more than once."""

    def goes_on(self, state: State, value: BlockValue) -> bool:
        """Return whether the search may take another step; patterns with too many matches are given up."""
        self.steps += 1
        if self.steps == MAX_STEPS:
            self.failures.clear()
            self.fail(state, value, f"the pattern fits in too many ways, given up after {MAX_STEPS} steps")
            self.muted = True
        return self.steps < MAX_STEPS

    def fail(
        self,
        state: State,
        value: BlockValue | None,
        reason: Decline | str,
        expected: str = "",
        predicate: str = "",
        lost_to: str = "",
    ) -> None:
        """Record a failure, unless a deeper one is known."""
        if self.muted:
            return
        deepest = self.failures[0].depth if self.failures else -1
        if state.depth < deepest:
            return
        if state.depth > deepest:
            self.failures.clear()
        declined = Decline(reason) if isinstance(reason, str) else reason
        self.failures.append(Failure(state.depth, value, declined, expected, predicate, state.mask, lost_to))

    def unexpected(self, state: State, value: BlockValue, expected: str) -> None:
        """Record a mismatch with an expected value."""
        if self.muted:
            return
        self.fail(state, value, f"expected {expected}, found {value.node or value.name}", expected)

    def holds(
        self, predicates: Iterable[Predicate], argument: ir.OpView | BlockValue | None, state: State, value: BlockValue
    ) -> bool:
        for predicate in predicates:
            reason = predicate.declines(argument)
            if reason is not None:
                self.fail(state, value, reason, predicate=predicate.name)
                return False
        return True

    def explanation(self) -> Failure | None:
        """Return the deepest failures as one, joining the alternatives expected at the same value."""
        if not self.failures:
            return None
        first = self.failures[0]
        if not first.expected:
            return first
        alike = [f.expected for f in self.failures if f.at is first.at and f.expected]
        expected = join_alternatives(alike)
        position = "nothing" if first.at is None else f"{first.at.node.name if first.at.node else first.at.name}"
        return replace(first, reason=Decline(f"expected {expected}, found {position}"), expected=expected)


@dataclass(frozen=True)
class Match:
    """A match of a pattern: its nodes, and the values of its labels."""

    graph: BlockGraph
    root: BlockNode
    mask: int
    outputs: int
    """The nodes whose results may be used outside: the root, and those that the pattern marks as outputs."""
    labels: Mapping[str, BlockValue]

    @staticmethod
    def of(graph: BlockGraph, root: BlockNode, state: State) -> Match:
        """Return the match of a search state."""
        return Match(graph, root, state.mask, state.outputs | 1 << root.index, state.labels)

    @property
    def has_inner_results(self) -> bool:
        """Return whether nodes other than the root are read outside."""
        return any(
            not self.mask >> user.index & 1 for node in self.nodes if node is not self.root for user in node.users
        )

    @property
    def nodes(self) -> list[BlockNode]:
        """Return the matched nodes in program order."""
        return self.graph.members(self.mask)

    def __getitem__(self, label: str) -> BlockValue:
        """Return the value of a part labelled with `named`."""
        result = self.labels.get(label)
        if result is None:
            known = ", ".join(f"'{name}'" for name in self.labels) or "none"
            raise PatternError(f"the match has no part '{label}'; it has: {known}")
        return result

    def __contains__(self, label: str) -> bool:
        """Return whether an optional part, or one of several alternatives, was matched."""
        return label in self.labels

    def get(self, label: str) -> BlockValue | None:
        return self.labels.get(label)

    def op(self, label: str) -> ir.OpView:
        """Return the operation that defines a labelled part."""
        value = self[label]
        if value.node is None:
            raise PatternError(f"part '{label}' of the match is {value.name}, not made by an operation")
        return value.node.op.opview

    def inputs(self) -> list[BlockValue]:
        """Return the operands of the nodes that no node of the match defines, constants included.

        They are in order of first use.
        """
        read = (value for node in self.nodes for value in node.operands)
        return [v for v in dict.fromkeys(read) if v.node is None or not self.mask >> v.node.index & 1]

    def leak(self) -> tuple[BlockNode, BlockNode] | None:
        """Return a node that is not an output but is read from outside, and its reader."""
        for node in self.nodes:
            if not self.outputs >> node.index & 1:
                for user in node.users:
                    if not self.mask >> user.index & 1:
                        return node, user
        return None
