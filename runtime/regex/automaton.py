"""Matching of regular expressions: deterministic automata whose states are made as texts need them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from mirlo.runtime.regex.nfa import KINDS, NOTHING, Nfa, Reach, bits, place_flags, reversed_edges
from mirlo.runtime.regex.syntax import parse

MAX_BYTES = 16 << 20
"""Memory of the states of an automaton in each direction, before all are made again; RE2 has 8 MiB."""


class _Row(list[Any]):
    """A state: its successor for each class of characters, made when a text first needs it."""

    states: int
    """Of the nondeterministic automaton."""
    kind: int
    """Of the character before, where the expression has assertions."""
    accepts: list[bool | None]
    """By class of the next character, whether a match ends here."""


class Regex:
    """A regular expression with RE2's syntax; of several matches at a place the longest is taken."""

    def __init__(self, pattern: str) -> None:
        """Raise `RegexError` if the pattern is no regular expression."""
        self.pattern = pattern
        self._nfa = nfa = Nfa(parse(pattern))
        self._most = max(16, MAX_BYTES // (8 * KINDS * nfa.end + len(nfa.sets) // 4 + 512))
        self._ahead, self._behind = Reach(nfa.edges), Reach(reversed_edges(nfa.edges))
        self._sources = [0] * len(nfa.sets)
        """By state, those that lead there by a character."""
        for state, ranges in enumerate(nfa.sets):
            if ranges:
                self._sources[nfa.targets[state]] |= 1 << state
        self._entered = sum(1 << state for state, sources in enumerate(self._sources) if sources)
        self._rows: dict[tuple[int, int], _Row] = {}
        self._good_rows: dict[int, list[Any]] = {}

    def matches(self, text: str) -> bool:
        """Return whether a whole text matches."""
        nfa = self._nfa
        row = self._row(1 << nfa.start, self._kind_before(None))
        for number in nfa.classes(text):
            row = row[number] or self._extend(row, number)
            if not row.states:
                return False
        return self._accepts(row, nfa.end)

    def spans(self, text: str) -> _Spans:
        """Return the positions of the matches in a text."""
        return _Spans(self, text)

    def _kind_before(self, number: int | None) -> int:
        """Return the kind of the character before a place, by its class; None at the beginning."""
        if number is None:
            return NOTHING if self._nfa.has_assertions else 0
        return self._nfa.kinds[number]

    def _row(self, states: int, kind: int) -> _Row:
        row = self._rows.get((states, kind))
        if row is None:
            if len(self._rows) >= self._most:
                self._rows.clear()
            row = _Row([None] * (self._nfa.end + 1))
            row.states, row.kind, row.accepts = states, kind, [None] * (self._nfa.end + 1)
            self._rows[states, kind] = row
        return row

    def _extend(self, row: _Row, number: int) -> _Row:
        """Return the successor of a state for a character of a class."""
        nfa = self._nfa
        reached = self._reached(row, number) & nfa.by_class[number]
        states = 0
        for state in bits(reached):
            states |= 1 << nfa.targets[state]
        following = self._row(states, nfa.kinds[number])
        if (row.states, row.kind) in self._rows:  # otherwise the states were made again
            row[number] = following
        return following

    def _reached(self, row: _Row, number: int) -> int:
        return self._ahead.of(row.states, place_flags(row.kind, self._nfa.kinds[number]))

    def _accepts(self, row: _Row, number: int) -> bool:
        """Return whether a match ends before a character of a class."""
        result = row.accepts[number]
        if result is None:
            result = row.accepts[number] = bool(self._reached(row, number) >> self._nfa.accept & 1)
        return result

    def _good(self, classes: array[int]) -> list[int]:
        """Return for each place of a text the states from which a match ends there or after it."""
        nfa = self._nfa
        before = self._kind_before(classes[-1] if classes else None)
        states = self._behind.of(1 << nfa.accept, place_flags(before, nfa.kinds[nfa.end]))
        row = self._good_row(states)
        result = [states]
        for at in range(len(classes) - 1, -1, -1):
            before = self._kind_before(classes[at - 1] if at else None)
            index = classes[at] * KINDS + before
            following = row[index]
            if following is None:
                following = self._extend_good(row, classes[at], before)
            row = following
            result.append(row[-1])
        result.reverse()
        return result

    def _good_row(self, states: int) -> list[Any]:
        row = self._good_rows.get(states)
        if row is None:
            if len(self._good_rows) >= self._most:
                self._good_rows.clear()
            row = self._good_rows[states] = [None] * (self._nfa.end * KINDS) + [states]
        return row

    def _extend_good(self, row: list[Any], number: int, before: int) -> list[Any]:
        nfa, sources = self._nfa, 0
        for state in bits(row[-1] & self._entered):
            sources |= self._sources[state]
        sources = sources & nfa.by_class[number] | 1 << nfa.accept
        states = self._behind.of(sources, place_flags(before, nfa.kinds[number]))
        following = self._good_row(states)
        if row[-1] in self._good_rows:
            row[number * KINDS + before] = following
        return following


class _Spans:
    """The matches in a text; the time to find the next one is proportional to its distance."""

    def __init__(self, regex: Regex, text: str) -> None:
        self._regex, self._classes = regex, regex._nfa.classes(text)
        self._good = regex._good(self._classes)

    def next_from(self, place: int) -> tuple[int, int] | None:
        """Return the beginning and the end of the first match that begins at a place or after it."""
        start_bit, good = self._regex._nfa.start, self._good
        for start in range(place, len(good)):
            if good[start] >> start_bit & 1:
                return start, self._end(start)
        return None

    def _end(self, start: int) -> int:
        """Return where the longest match ends that begins at a place."""
        regex, classes, good = self._regex, self._classes, self._good
        row = regex._row(1 << regex._nfa.start, regex._kind_before(classes[start - 1] if start else None))
        end, at = start, start
        while True:
            is_last = at == len(classes)
            if regex._accepts(row, regex._nfa.end if is_last else classes[at]):
                end = at
            if is_last:
                return end
            row = row[classes[at]] or regex._extend(row, classes[at])
            at += 1
            if not row.states & good[at]:
                return end


@lru_cache(256)
def compiled(pattern: str) -> Regex:
    """Return a regular expression; raise `RegexError` if the pattern is none."""
    return Regex(pattern)


def tokens_of(regex: Regex, text: str, least: int) -> Iterator[str]:
    """Yield the matches in a text with `least` characters or more; after a shorter one the next character is tried."""
    spans, place = regex.spans(text), 0
    while (span := spans.next_from(place)) is not None:
        start, end = span
        if end - start >= least:
            yield text[start:end]
            place = end
        else:
            place = start + 1


def pieces_of(regex: Regex, text: str, least: int) -> Iterator[str]:
    """Yield the parts of `least` characters or more between matches; an empty match separates by its character."""
    spans, place = regex.spans(text), 0
    while place <= len(text) and (span := spans.next_from(place)) is not None:
        start, end = span
        if start - place >= least:
            yield text[place:start]
        place = end if end > start else start + 1
    if len(text) - place >= least:
        yield text[place:]
