"""The pattern language for subgraphs.

conv = is_op("relax.conv")(wildcard(), is_const()).named("conv")
pattern = is_op("relax.relu")(conv) | is_op("relax.add")(conv, is_const())

Patterns are values: methods return new ones. A part with a label, `named("x")`, is found in the match by it. Parts
with equal labels must match the same value, which expresses diamonds. An object that occurs twice without a label is
an error: it would be ambiguous whether both places must match the same value.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeGuard, TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.passes.byoc.graph import BlockGraph, BlockValue
from mirlo.passes.byoc.predicates import value_has_dtype, value_has_rank, value_has_shape
from mirlo.passes.byoc.search import MAX_MATCHES, Match, PatternError, Predicate, Search, State
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.rules import Decline, NoMatch, RuleFunction
from mirlo.runtime.callbacks import Expected, checked
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

P = TypeVar("P", bound="Pattern")


class MatchSource(Protocol):
    """The interface of a rule's builder that patterns are matched in."""

    explains: bool
    """Whether patterns report why they do not match."""

    @property
    def operand_graph(self) -> BlockGraph:
        """Return the operator and what it is computed from as a graph."""

    def block_graph(self) -> BlockGraph:
        """Return the block of the operator as a graph, for patterns of several outputs."""

    def gather(self, match: Match) -> None:
        """Prepare the replacement of several outputs of a match: their readers come after all of its operators."""


class Pattern:
    """A pattern of a value and of the operations that compute it."""

    label: str | None = None
    is_output: bool = False
    predicates: tuple[Predicate, ...] = ()

    # ------------------------------------------------------------------------------------------------------ writing

    def named(self: P, label: str) -> P:
        """Label this part: the match is indexed by labels, and parts with equal labels match the same value."""
        return self._with(label=label)

    def output(self: P) -> P:
        """Allow uses of the value outside the match: the composite then returns it as well."""
        return self._with(is_output=True)

    def where(self: P, predicate: Callable[..., object], name: str = "") -> P:
        """Require a predicate, which returns True, or a reason as text or `decline(...)`.

        It receives the operation if the pattern is of an operator, else the `Value`.
        """
        return self._with(predicates=(*self.predicates, Predicate.of(predicate, name)))

    def has_dtype(self: P, *names: str) -> P:
        """Require one of these element types."""
        for name in names:
            if name not in DTYPES:
                raise PatternError(f"has_dtype: '{name}' is no element type{nearest(name, DTYPES)}")
        return self._on_value(value_has_dtype(names), "has_dtype")

    def has_shape(self: P, shape: Sequence[int | str | None]) -> P:
        """Require a shape: integers, symbolic dims as text, None for any, or predicates of a dim."""
        return self._on_value(value_has_shape(tuple(shape)), "has_shape")

    def has_rank(self: P, *ranks: int) -> P:
        """Require one of these ranks."""
        return self._on_value(value_has_rank(ranks), "has_rank")

    def dup(self) -> Pattern:
        """Return a copy that may match another value: its parts lose their labels."""
        known: dict[int, Pattern] = {}

        def copied(part: Pattern) -> Pattern:
            if id(part) not in known:
                clone = part.with_parts([copied(inner) for inner in part.parts()])
                known[id(part)] = clone._with(label=None)
            return known[id(part)]

        return copied(self)

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """Match this, or this wrapped in more: `conv.optional(lambda x: is_op("relax.relu")(x))`."""
        return wrapped_by(wrap, self, "optional") | self

    def used_by(self, consumer: Pattern, index: int = -1) -> Links:
        """Return a link for `several`: this is an operand of another part, at `index` or any; also `a ^ b`."""
        return Links([Link(self, consumer, index)])

    def only_used_by(self, consumer: Pattern, index: int = -1) -> Links:
        """Return a link that allows no other users; also `a >> b`."""
        return Links([Link(self, consumer, index, only=True)])

    def fork_to(self, *consumers: Pattern) -> Links:
        """Return links to several users."""
        return Links([Link(self, consumer) for consumer in consumers])

    def __xor__(self, other: Pattern) -> Links:
        return self.used_by(other)

    def __rshift__(self, other: Pattern) -> Links:
        return self.only_used_by(other)

    def __or__(self, other: Pattern) -> Alternatives:
        return Alternatives([self, other])

    def __and__(self, other: Pattern) -> Both:
        return Both(self, other)

    def __invert__(self) -> Not:
        return Not(self)

    # ----------------------------------------------------------------------------------------------------- matching

    def solve(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        """Yield all matches of a value as successor states."""
        if self.label is not None and self.label in state.labels:
            if state.labels[self.label] is value:
                yield state
            else:
                search.fail(state, value, f"it must be the value that '{self.label}' is elsewhere in the pattern")
            return
        if search.muted and self._is_other_operator(value):
            return
        key = self._memo_key(value, state)
        if key in search.hopeless or not search.goes_on(state, value):
            return
        any_found = False
        for solution in self.matches(value, state, search):
            any_found = True
            yield solution.with_label(self.label, value)
        if not any_found:
            search.hopeless.add(key)

    def _is_other_operator(self, value: BlockValue) -> bool:
        """Return whether the operator that defines a value excludes a match, which is known without a search."""
        known = vars(self)
        if "_root_names" not in known:
            known["_root_names"] = self.roots()
        roots: frozenset[str] | None = known["_root_names"]
        return roots is not None and (value.node is None or value.node.name not in roots)

    def excludes(self, value: ir.Value) -> bool:
        """Return whether the operators that a value is computed by exclude a match: no graph is read for that."""
        if self.label is not None:
            return False  # another part of this label may be matched first, and decides then
        known = vars(self)
        if "_root_names" not in known:
            known["_root_names"] = self.roots()
        roots: frozenset[str] | None = known["_root_names"]
        if roots is not None and (not isinstance(value, ir.OpResult) or value.owner.name not in roots):
            return True
        return self._parts_exclude(value)

    def _parts_exclude(self, value: ir.Value) -> bool:
        """Return whether the parts of a pattern exclude a match of a value."""
        return False

    def producers(self, root: str) -> frozenset[str] | None:
        """Return operators one of which computes an operand of each match at this operator; None if any may."""
        return None

    def _memo_key(self, value: BlockValue, state: State) -> tuple[int, int, tuple[tuple[str, int], ...]]:
        """Return the key of a memoized `solve`: chains with alternatives reach the same subproblem many times."""
        bound = tuple((name, id(state.labels[name])) for name in self.labels if name in state.labels)
        return id(self), id(value), bound

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of this pattern and its parts, sorted."""
        known = vars(self).get("_labels")
        if known is None:
            own = {self.label} if self.label is not None else set()
            known = vars(self)["_labels"] = tuple(sorted(own.union(*(part.labels for part in self.parts()))))
        return known

    def rule(self, replacement: RuleFunction) -> RuleFunction:
        """Return a rule of an operator, `rule(op, builder)`, that calls `replacement(match, builder)` for matches.

        The first match wins for which the replacement does not decline.
        """
        check_pattern(self)
        has_outputs = self.has_outputs

        @functools.wraps(replacement)
        def matched(op: ir.OpView, b: MatchSource) -> object:
            if not b.explains and all(map(self.excludes, op.operation.results)):
                return NoMatch("the pattern does not match")
            graph = b.block_graph() if has_outputs else b.operand_graph
            node = graph.node_of(op.operation)
            search = Search(graph, muted=not b.explains)
            states = (state for value in node.results for state in self.solve(value, State(), search))
            declined: Decline | None = None
            for state in itertools.islice(states, MAX_MATCHES):
                match = Match.of(graph, node, state)
                if has_outputs:
                    b.gather(match)
                outcome = replacement(match, b)
                if isinstance(outcome, Mapping):
                    return {match[label].mlir: value for label, value in outcome.items()}
                if not isinstance(outcome, Decline):
                    return outcome
                declined = outcome
            if declined is not None:
                return declined
            failure = search.explanation()
            return NoMatch("the pattern does not match" if failure is None else str(failure.reason))

        return matched

    @property
    def has_outputs(self) -> bool:
        """Return whether values other than the root's may be used outside of a match."""
        return self.is_output or any(part.has_outputs for part in self.parts())

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        raise NotImplementedError

    def roots(self) -> frozenset[str] | None:
        """Return the operators that can define the value; None for any."""
        return None

    def parts(self) -> list[Pattern]:
        """Return the patterns inside this one."""
        return []

    def check_names(self) -> None:
        """Raise `PatternError` for a name that no operator has."""

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        """Return the same pattern with other parts."""
        return copy.copy(self)

    def _with(self: P, **changes: object) -> P:
        clone = copy.copy(self)
        vars(clone).update(changes)
        for derived in ("_labels", "_root_names"):
            vars(clone).pop(derived, None)
        return clone

    def _on_value(self: P, function: Callable[[BlockValue], bool | Decline], name: str) -> P:
        return self._with(predicates=(*self.predicates, Predicate(name, function)))


_PATTERN = Expected("a pattern", lambda value: isinstance(value, Pattern))


def wrapped_by(wrap: Callable[[Pattern], Pattern], pattern: Pattern, owner: str) -> Pattern:
    """Return the pattern that a user's function makes of a pattern; errors name the calling method or function."""
    return checked(wrap, _PATTERN, owner, PatternError)(pattern)


@dataclass(frozen=True, eq=False)
class Link:
    """A link: one part of a pattern is an operand of another."""

    producer: Pattern
    consumer: Pattern
    index: int = -1
    """The operand's index, or -1 for any."""
    only: bool = False
    """Whether other users are excluded."""

    def operands(self, operands: Sequence[BlockValue]) -> list[BlockValue]:
        """Return the operands of a node that the link may refer to."""
        return list(operands) if self.index < 0 else list(operands[self.index : self.index + 1])


@dataclass(frozen=True, eq=False)
class Links:
    """Links between parts of a pattern, for `several`; `a >> b >> c` and `a ^ b ^ c` are chains."""

    links: Sequence[Link]

    def _then(self, consumer: Pattern, only: bool) -> Links:
        return Links([*self.links, Link(self.links[-1].consumer, consumer, only=only)])

    def __xor__(self, consumer: Pattern) -> Links:
        return self._then(consumer, False)

    def __rshift__(self, consumer: Pattern) -> Links:
        return self._then(consumer, True)


class LeafPattern(Pattern):
    """A value that stays outside the composite (constants move inside when they are bound)."""

    def __init__(self, fits: Callable[[BlockValue], bool], expected: str, is_constant: bool | None = None):
        self.fits = fits
        self.expected = expected
        self.is_constant = is_constant
        """Whether only constants match, or no constant; None where both do."""
        self.constant: float | None = None
        """What all elements of the constant equal, where that is required."""

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        if not self.fits(value):
            search.unexpected(state, value, self.expected)
        elif search.holds(self.predicates, value, state, value):
            yield state

    def _parts_exclude(self, value: ir.Value) -> bool:
        return self.is_constant is not None and self.is_constant != is_constant(value)

    def __str__(self) -> str:
        return self.expected


class Alternatives(Pattern):
    """Alternatives, tried in order; the next ones are tried when the rest of the pattern fails."""

    def __init__(self, choices: Sequence[Pattern]):
        self.choices: list[Pattern] = [
            c for choice in choices for c in (choice.choices if _is_unlabelled_choice(choice) else [choice])
        ]

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        for choice in self.choices:
            for solution in choice.solve(value, state, search):
                if search.holds(self.predicates, value, solution, value):
                    yield solution

    def roots(self) -> frozenset[str] | None:
        choices = [choice.roots() for choice in self.choices]
        return None if any(names is None for names in choices) else frozenset().union(*choices)  # type: ignore[arg-type]

    def _parts_exclude(self, value: ir.Value) -> bool:
        return all(choice.excludes(value) for choice in self.choices)

    def producers(self, root: str) -> frozenset[str] | None:
        choices = [choice.producers(root) for choice in self.choices]
        return None if any(names is None for names in choices) else frozenset().union(*choices)  # type: ignore[arg-type]

    def parts(self) -> list[Pattern]:
        return list(self.choices)

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return self._with(choices=list(parts))

    def __str__(self) -> str:
        return "(" + " | ".join(map(str, self.choices)) + ")"


def _is_unlabelled_choice(pattern: Pattern) -> TypeGuard[Alternatives]:
    """Return whether this is only a list of alternatives, which can be joined to another."""
    return isinstance(pattern, Alternatives) and pattern.label is None and not pattern.predicates


class Both(Pattern):
    """A conjunction of two patterns."""

    def __init__(self, left: Pattern, right: Pattern):
        self.left, self.right = left, right

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        for first in self.left.solve(value, state, search):
            for solution in self.right.solve(value, first, search):
                if search.holds(self.predicates, value, solution, value):
                    yield solution

    def roots(self) -> frozenset[str] | None:
        left, right = self.left.roots(), self.right.roots()
        return right if left is None else left if right is None else left & right

    def _parts_exclude(self, value: ir.Value) -> bool:
        return self.left.excludes(value) or self.right.excludes(value)

    def producers(self, root: str) -> frozenset[str] | None:
        left = self.left.producers(root)
        return self.right.producers(root) if left is None else left

    def parts(self) -> list[Pattern]:
        return [self.left, self.right]

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return self._with(left=parts[0], right=parts[1])

    def __str__(self) -> str:
        return f"({self.left} & {self.right})"


class Not(Pattern):
    """A negated pattern; its value stays outside."""

    def __init__(self, inner: Pattern):
        self.inner = inner

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        silent = Search(search.graph, muted=True)
        if next(self.inner.solve(value, state, silent), None) is not None:
            search.fail(state, value, f"expected anything but {self.inner}")
        elif search.holds(self.predicates, value, state, value):
            yield state

    def parts(self) -> list[Pattern]:
        return [self.inner]

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return self._with(inner=parts[0])

    def __str__(self) -> str:
        return f"~{self.inner}"


class MaybeAbsent(Pattern):
    """A named operand that the operation may lack; made by `maybe`."""

    def __init__(self, present: Pattern):
        self.present = present

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        yield from self.present.solve(value, state, search)

    def parts(self) -> list[Pattern]:
        return [self.present]

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return self._with(present=parts[0])

    def __str__(self) -> str:
        return f"[{self.present}]"


MatchCheck = Callable[[Match], bool | Decline]
"""Returns True, or a reason to reject a match of a whole pattern."""
PatternTuple = tuple[str, Pattern] | tuple[str, Pattern, MatchCheck]
"""The name of a composite, its pattern, and a check."""


def check_pattern(pattern: Pattern) -> None:
    """Raise `PatternError` for a pattern that could never match or is ambiguous."""
    for part in walk(pattern):
        part.check_names()
    by_id = {id(part): part for part in walk(pattern)}
    for identity, count in _occurrences(pattern, frozenset(), {})[0].items():
        if count > 1:
            raise PatternError(
                f"the same pattern object stands in {count} places of a pattern: {by_id[identity]}; call "
                ".named('x') on it if all must be the same value, use .dup() if they may differ"
            )


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the pattern and all its parts, each once."""
    seen: set[int] = set()
    pending = [pattern]
    while pending:
        part = pending.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            pending += part.parts()


SeenLabels = frozenset[str]
Counted = tuple[Counter[int], SeenLabels]


def _occurrences(pattern: Pattern, seen: SeenLabels, known: dict[tuple[int, SeenLabels], Counted]) -> Counted:
    """Count how often each unlabelled object must be matched at most, and return the labels seen.

    Of several alternatives one counts; a labelled part is matched once.
    """
    key = id(pattern), seen
    if key not in known:
        known[key] = _count(pattern, seen, known)
    return known[key]


def _count(pattern: Pattern, seen: SeenLabels, known: dict[tuple[int, SeenLabels], Counted]) -> Counted:
    if pattern.label is not None:
        if pattern.label in seen:
            return Counter(), seen
        seen |= {pattern.label}
    counts: Counter[int] = Counter() if pattern.label is not None else Counter([id(pattern)])
    if isinstance(pattern, (Alternatives, Both)):
        counted = [_occurrences(part, seen, known) for part in pattern.parts()]
        inside: Counter[int] = Counter()
        for count, _ in counted:
            inside |= count
        return counts + inside, seen.union(*(labels for _, labels in counted))
    for part in pattern.parts():
        count, seen = _occurrences(part, seen, known)
        counts += count
    return counts, seen
