"""Graph patterns: several outputs, and nodes related by their users.

conv, left, right = is_op("relax.conv"), is_op("relax.relu"), is_op("relax.tanh")
several(conv.used_by(left), conv.used_by(right))      # a fork; `conv ^ left` is equivalent
several(conv >> relu >> add)                          # a chain in which each has no other user
several(is_op("relax.relu")(x), is_op("relax.tanh")(x))   # two outputs that share `x = wildcard().named("x")`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from mirlo.passes.byoc.graph import BlockValue
from mirlo.passes.byoc.pattern import Link, Links, Pattern
from mirlo.passes.byoc.search import PatternError, Search, State


class Several(Pattern):
    """Vertices of a graph, each with a pattern, and the links between them; made by `several`."""

    def __init__(self, points: Sequence[Pattern], links: Sequence[tuple[int, int, Link]]):
        self.points = list(points)
        """The vertices; each has a label under which the search binds it."""
        self.links = list(links)
        """Producer position, consumer position and link."""

    @property
    def anchor(self) -> Pattern:
        """Return the output at which the search starts."""
        sources = {producer for producer, _, _ in self.links}
        return next(point for i, point in enumerate(self.points) if i not in sources)

    def roots(self) -> frozenset[str] | None:
        return self.anchor.roots()

    def parts(self) -> list[Pattern]:
        return list(self.points)

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return self._with(points=[_labelled(part, i) for i, part in enumerate(parts)])

    def dup(self) -> NoReturn:
        raise PatternError("a pattern of several outputs stands for itself: it cannot be a part of another one")

    def matches(self, value: BlockValue, state: State, search: Search) -> Iterator[State]:
        start = self.points.index(self.anchor)
        for solution in self.anchor.solve(value, state, search):
            yield from self._extend(solution, frozenset([start]), search)

    def _extend(self, state: State, bound: frozenset[int], search: Search) -> Iterator[State]:
        if len(bound) == len(self.points):
            if self._linked(state, search) and search.holds(self.predicates, None, state, self._value(0, state)):
                yield state
            return
        position, candidates = self._next(state, bound)
        taken = {id(self._value(i, state)) for i in bound}
        open_values = [value for value in candidates if id(value) not in taken]
        if not open_values:
            at = self._value(self.points.index(self.anchor), state)
            search.fail(state, at, f"nothing beside {at.name} can be {self.points[position]}")
        for value in open_values:
            for solution in self.points[position].solve(value, state, search):
                yield from self._extend(solution, bound | {position}, search)

    def _next(self, state: State, bound: frozenset[int]) -> tuple[int, list[BlockValue]]:
        """Return an unbound vertex next to a bound one, and its candidate values."""
        for producer, consumer, link in self.links:
            if consumer in bound and producer not in bound:
                node = self._value(consumer, state).node
                return producer, [] if node is None else link.operands(node.operands)
            if producer in bound and consumer not in bound:
                return consumer, [r for user in self._value(producer, state).users for r in user.results]
        position = next(i for i in range(len(self.points)) if i not in bound)
        shared = [state.labels[label] for label in self.points[position].labels if label in state.labels]
        return position, _above(shared, height(self.points[position]))

    def _linked(self, state: State, search: Search) -> bool:
        for producer, consumer, link in self.links:
            value, reader = self._value(producer, state), self._value(consumer, state)
            if reader.node is None or not any(operand is value for operand in link.operands(reader.node.operands)):
                where = "" if link.index < 0 else f" as operand {link.index}"
                search.fail(state, reader, f"{reader.name} does not read {value.name}{where}")
                return False
            if link.only and len(value.users) != 1:
                other = next(user for user in value.users if user is not reader.node)
                search.fail(state, value, f"{value.name} is also used by {other.name}")
                return False
        return True

    def _value(self, position: int, state: State) -> BlockValue:
        return state.labels[str(self.points[position].label)]

    def __str__(self) -> str:
        links = (f"{p}{'>>' if link.only else '^'}{c}" for p, c, link in self.links)
        return f"several({', '.join([*map(str, self.points), *links])})"


def several(*parts: Pattern | Links) -> Pattern:
    """Return a pattern of several outputs: patterns that share labelled parts, or links between patterns.

    Patterns that no other part reads are outputs, and may be used outside the match.
    """
    points: list[Pattern] = []
    links: list[tuple[int, int, Link]] = []

    def position(pattern: Pattern) -> int:
        for i, known in enumerate(points):
            if known is pattern:
                return i
        points.append(pattern)
        return len(points) - 1

    for part in parts:
        if isinstance(part, Links):
            links += [(position(link.producer), position(link.consumer), link) for link in part.links]
        elif isinstance(part, Pattern):
            position(part)
        else:
            raise PatternError(f"several takes patterns and links such as a.used_by(b), got {part!r}")
    if len(points) < 2:
        raise PatternError("several takes at least two patterns, or a link between two")
    sources = {producer for producer, _, _ in links}
    if len(sources) == len(points):
        raise PatternError("the links of a pattern form a cycle: no part of it is an output")
    labelled = [_labelled(p if i in sources else p.output(), i) for i, p in enumerate(points)]
    _require_connected(labelled, links)
    return Several(labelled, links)


def _labelled(pattern: Pattern, position: int) -> Pattern:
    return pattern if pattern.label is not None else pattern.named(f"#{position}")


def _require_connected(points: list[Pattern], links: list[tuple[int, int, Link]]) -> None:
    joined, grows = {0}, True
    labels = [set(point.labels) for point in points]
    while grows:
        fresh = {i for p, c, _ in links for i in (p, c) if p in joined or c in joined}
        fresh |= {i for i in range(len(points)) if any(labels[i] & labels[j] for j in joined)}
        grows = not fresh <= joined
        joined |= fresh
    for i, point in enumerate(points):
        if i not in joined:
            raise PatternError(f"the parts of a pattern are not connected: {point} shares no labelled part and no link")


def height(pattern: Pattern) -> int:
    """Return the largest number of operations on a path through a pattern."""
    known: dict[int, int] = {}

    def of(part: Pattern) -> int:
        if id(part) not in known:
            known[id(part)] = 1 + max(map(of, part.parts()), default=0)
        return known[id(part)]

    return of(pattern)


def _above(values: list[BlockValue], levels: int) -> list[BlockValue]:
    """Return the results of direct and indirect users of these values, in program order."""
    above: dict[int, list[BlockValue]] = {}
    edge = values
    for _ in range(levels):
        readers = {user.index: user for value in edge for user in value.users if user.index not in above}
        above.update({index: user.results for index, user in readers.items()})
        edge = [result for user in readers.values() for result in user.results]
    return [result for index in sorted(above) for result in above[index]]
