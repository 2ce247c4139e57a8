"""Nondeterministic automata of regular expressions: Thompson's construction, with sets of states as bits."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from mirlo.runtime.regex.charset import WORD, Ranges
from mirlo.runtime.regex.syntax import (
    BOUNDARY,
    LINE_END,
    LINE_START,
    NO_BOUNDARY,
    TEXT_END,
    TEXT_START,
    Alternation,
    Assertion,
    CharacterSet,
    Concatenation,
    Node,
    RegexError,
    Repetition,
)

MAX_STATES = 20_000
"""States of an automaton; each letter of a text takes up to this many steps where no letters before were like it."""
PIECE = 1 << 16
"""Characters whose classes are looked up at once."""
OTHER, IN_WORD, NEWLINE, NOTHING = range(4)
"""What is beside a place in a text, as assertions ask for it."""
KINDS = 4


class Nfa:
    """States with edges: by a character of a set, by an assertion, or by nothing.

    Characters of a text are represented by the numbers of classes: characters that no set of the expression divides.
    """

    def __init__(self, node: Node) -> None:
        self.sets: list[Ranges] = []
        """By state, the characters of its edge; empty where it has none."""
        self.targets: list[int] = []
        """By state, where the edge of its characters leads."""
        self.edges: list[list[tuple[int, int]]] = []
        """By state, edges by nothing, or by an assertion: its flag, or 0, and where it leads."""
        self.accept = self._new()
        self.start = self._compiled(node, self.accept)
        self.has_assertions = any(flag for edges in self.edges for flag, _ in edges)
        self._number_classes()

    def _new(self, ranges: Ranges = (), target: int = 0) -> int:
        if len(self.sets) >= MAX_STATES:
            raise RegexError("pattern too large: its repetitions have too many parts together")
        self.sets.append(ranges)
        self.targets.append(target)
        self.edges.append([])
        return len(self.sets) - 1

    def _compiled(self, node: Node, target: int) -> int:
        """Return the state at the beginning of a part that leads to a state."""
        if isinstance(node, CharacterSet):
            return self._new(node.ranges, target)
        if isinstance(node, Concatenation):
            for part in reversed(node.parts):
                target = self._compiled(part, target)
            return target
        state = self._new()
        if isinstance(node, Assertion):
            self.edges[state] = [(node.flag, target)]
        elif isinstance(node, Alternation):
            self.edges[state] = [(0, self._compiled(part, target)) for part in node.parts]
        else:
            self.edges[state] = [(0, self._repeated(node, target))]
        return state

    def _repeated(self, node: Repetition, target: int) -> int:
        if node.most is None:
            state = self._new()
            self.edges[state] = [(0, self._compiled(node.part, state)), (0, target)]
            least = node.least
        else:
            state, least = target, node.least
            for _ in range(node.most - node.least):
                inner = self._compiled(node.part, state)
                state = self._new()
                self.edges[state] = [(0, inner), (0, target)]
        for _ in range(least):
            state = self._compiled(node.part, state)
        return state

    def _number_classes(self) -> None:
        distinct = set(self.sets)
        starts = {0}
        beside: tuple[Ranges, ...] = (WORD, ((10, 10),)) if self.has_assertions else ()
        for ranges in (*distinct, *beside):
            for low, high in ranges:
                starts |= {low, high + 1}
        self._starts = sorted(starts)
        self._numbers = np.array(self._starts, np.uint32)
        count = len(self._starts)
        states_of = dict.fromkeys(distinct, 0)
        for state, ranges in enumerate(self.sets):
            states_of[ranges] |= 1 << state
        self.by_class = [0] * (count + 1)
        """By class of characters, the states with an edge by it; none for the end of a text."""
        for ranges, states in states_of.items():
            for number in self._classes_of(ranges):
                self.by_class[number] |= states
        self.kinds = [self._kind(start) for start in self._starts] + [NOTHING if self.has_assertions else OTHER]
        """By class, what assertions ask for; of the end of a text last."""
        self.end = count

    def _classes_of(self, ranges: Ranges) -> list[int]:
        numbers: list[int] = []
        for low, high in ranges:
            numbers += range(bisect_right(self._starts, low) - 1, bisect_right(self._starts, high))
        return numbers

    def _kind(self, code: int) -> int:
        if not self.has_assertions:
            return OTHER
        if code == 10:
            return NEWLINE
        return IN_WORD if any(low <= code <= high for low, high in WORD) else OTHER

    def classes(self, text: str) -> array[int]:
        """Return the class of each character."""
        numbers = array("I")
        for at in range(0, len(text), PIECE):  # each piece holds Python's lock
            codes = np.frombuffer(text[at : at + PIECE].encode("utf-32-le", "surrogatepass"), np.uint32)
            numbers.frombytes((np.searchsorted(self._numbers, codes, side="right") - 1).astype(np.uint32).tobytes())
        return numbers


def place_flags(before: int, behind: int) -> int:
    """Return the flags of a place between two kinds of characters."""
    flags = BOUNDARY if (before == IN_WORD) != (behind == IN_WORD) else NO_BOUNDARY
    if before == NOTHING:
        flags |= TEXT_START | LINE_START
    elif before == NEWLINE:
        flags |= LINE_START
    if behind == NOTHING:
        flags |= TEXT_END | LINE_END
    elif behind == NEWLINE:
        flags |= LINE_END
    return flags


class Reach:
    """The states that others reach by edges without characters, where some flags are true of the place."""

    def __init__(self, edges: Sequence[Sequence[tuple[int, int]]]) -> None:
        self._edges = edges
        self._known: dict[tuple[int, int], int] = {}

    def of(self, states: int, flags: int) -> int:
        """Return these states and those that they reach."""
        result = 0
        for state in bits(states):
            if not result >> state & 1:
                result |= self._from(state, flags)
        return result

    def _from(self, state: int, flags: int) -> int:
        if not self._edges[state]:
            return 1 << state
        known = self._known.get((state, flags))
        if known is None:
            seen, waiting = {state}, [state]
            while waiting:
                for flag, target in self._edges[waiting.pop()]:
                    if (not flag or flag & flags) and target not in seen:
                        seen.add(target)
                        waiting.append(target)
            known = self._known[state, flags] = sum(1 << each for each in seen)
        return known


def reversed_edges(edges: Sequence[Sequence[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
    """Return the same edges by where they lead."""
    result: list[list[tuple[int, int]]] = [[] for _ in edges]
    for state, leaving in enumerate(edges):
        for flag, target in leaving:
            result[target].append((flag, state))
    return result


def bits(number: int) -> list[int]:
    """Return the places of the bits that are set."""
    places: list[int] = []
    while number:
        low = number & -number
        places.append(low.bit_length() - 1)
        number ^= low
    return places
