"""The prefix cache: rows of common beginnings of sequences, kept to avoid recomputation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from mirlo.extend.runtime import make_lock
from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.caches.paged_sequence import PagedRows

PAGE = 64
"""Most tokens of a page."""
DEFAULT_BYTES = 64 << 20
"""Default size of the prefix cache in bytes."""


@dataclass(eq=False)
class CachePage:
    """The rows of some tokens, which follow those of its parent; pages are immutable."""

    tokens: tuple[int, ...]
    parent: CachePage | None
    rows: Rows
    """Rows [1, heads, tokens, size] of each cache, by input name: copies, or references to shared pages."""
    states: Rows | None
    """States of a fixed size after the tokens, if they are known there."""
    children: dict[int, list[CachePage]] = field(default_factory=dict)
    """The pages that continue this one, by their first tokens."""

    @property
    def nbytes(self) -> int:
        return _bytes(self.rows) + (0 if self.states is None else _bytes(self.states))

    @property
    def path(self) -> list[CachePage]:
        """Return the pages from the first one to this one."""
        pages: list[CachePage] = []
        page: CachePage | None = self
        while page is not None and page.parent is not None:
            pages.append(page)
            page = page.parent
        return pages[::-1]


@dataclass(frozen=True)
class KnownPrefix:
    """The first tokens of a sequence, with their rows."""

    length: int
    pages: tuple[CachePage, ...]
    states: Rows
    """States of a fixed size after these tokens."""

    def rows_from(self, start: int) -> list[Rows]:
        """Return the rows of the tokens from `start` on, in parts."""
        rows: list[Rows] = []
        at = 0
        for page in self.pages:
            first, last = max(start - at, 0), min(len(page.tokens), self.length - at)
            if first < last:
                rows.append(_part(page.rows, first, last))
            at += len(page.tokens)
        return rows


class PrefixCache:
    """Pages of tokens with their rows: a tree whose paths are beginnings of sequences.

    Sequences copy rows from pages to caches of their own, so pages stay as they are, and a page from whose middle
    another sequence continues is shared up to there. Where caches are in pages, these are shared with no copy: pages of
    this tree then refer to a part of one, up to all of it. Pages that were not used for longest make room for new ones.
    Any thread may use it.
    """

    def __init__(
        self, limit: int = DEFAULT_BYTES, page: int = PAGE, lock: AbstractContextManager[bool] | None = None
    ) -> None:
        """Store the limit in bytes and the page size in tokens; `lock` protects the tree."""
        self._limit, self._page = limit, page
        self._roots: dict[str | None, CachePage] = {}
        """Trees by adapter: the same tokens have other rows with another one."""
        self._used: OrderedDict[CachePage, None] = OrderedDict()
        """All pages, those that were not used for longest first: a page comes before its parent."""
        self._lock = make_lock() if lock is None else lock
        self.nbytes = 0
        """Bytes of all pages."""

    def __enter__(self) -> None:
        """Lock the tree for a change."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:  # what is known may be there in part
            self._roots, self._used, self.nbytes = {}, OrderedDict(), 0

    def __len__(self) -> int:
        return len(self._used)

    def find(self, adapter: str | None, tokens: Sequence[int], most: int, with_states: bool) -> KnownPrefix | None:
        """Return the longest known beginning of a sequence, of `most` tokens at most; None if there is none.

        With states of a fixed size it ends where these are known.
        """
        with self._lock, self:
            root = self._roots.get(adapter)
            if root is None:
                return None
            known = _matches(root, tokens, most)
            if with_states:
                known = (match for match in known if match.is_whole and match.page.states is not None)
            best = max(known, key=lambda match: match.length, default=None)
            if best is None:
                return None
            pages = best.page.path
            self._touch(pages)
            return KnownPrefix(best.length, tuple(pages), (best.page.states or {}) if with_states else {})

    def add(
        self,
        adapter: str | None,
        tokens: Sequence[int],
        rows: Callable[[int, int], Rows | None],
        states: Callable[[], Rows] | None = None,
    ) -> None:
        """Keep the rows of a sequence, as far as there is room.

        `rows` returns those of a range of tokens, or None if they are not there any more; `states` the states after
        the last token.
        """
        if self._limit <= 0 or not tokens:
            return
        with self._lock, self:
            root, size = self._roots.setdefault(adapter, CachePage((), None, {}, None)), len(tokens)
            whole = (match for match in _matches(root, tokens, size) if match.is_whole)
            start = max(whole, key=lambda match: match.length, default=_Match(root, 0, True))
            page, at = start.page, start.length
            self._touch(page.path)
            while at < size:
                stop = min(at - at % self._page + self._page, size)
                known = rows(at, stop)
                if known is None:
                    return
                new_page = CachePage(tuple(tokens[at:stop]), page, known, states() if states and stop == size else None)
                if not self._make_room(new_page.nbytes, page.path):
                    return
                page.children.setdefault(new_page.tokens[0], []).append(new_page)
                self.nbytes += new_page.nbytes
                self._touch(new_page.path)
                page, at = new_page, stop
            if states is not None and page.states is None and page.parent is not None:
                known = states()
                if self._make_room(_bytes(known), page.path):
                    page.states = known
                    self.nbytes += _bytes(known)

    def shrink(self) -> bool:
        """Drop the least recently used page; return whether there was one."""
        with self._lock, self:
            page = next(iter(self._used), None)
            if page is not None:
                self._remove(page)
            return page is not None

    def clear(self) -> None:
        """Drop all pages."""
        with self._lock, self:
            while self._used:  # one by one: pages and their parents refer to each other
                self._remove(next(iter(self._used)))
            self._roots.clear()

    def _touch(self, path: Sequence[CachePage]) -> None:
        """Mark pages as used, the last one of the path first, so that a page is evicted before its parent."""
        for page in reversed(path):
            self._used[page] = None
            self._used.move_to_end(page)

    def _make_room(self, nbytes: int, path: Sequence[CachePage]) -> bool:
        """Drop pages, except those of a path, until these bytes fit; return whether they do."""
        kept = set(path)
        while self.nbytes + nbytes > self._limit:
            page = next(iter(self._used), None)
            if page is None or page in kept:
                return False
            self._remove(page)
        return True

    def _remove(self, page: CachePage) -> None:
        """Remove a page without successors."""
        assert page.parent is not None and not page.children
        del self._used[page]
        siblings = page.parent.children[page.tokens[0]]
        siblings.remove(page)
        if not siblings:
            del page.parent.children[page.tokens[0]]
        self.nbytes -= page.nbytes


@dataclass(frozen=True)
class _Match:
    """A page whose tokens, or whose first tokens, match those of a sequence."""

    page: CachePage
    length: int
    """The end of the match in the sequence."""
    is_whole: bool


def _matches(root: CachePage, tokens: Sequence[int], most: int) -> Iterator[_Match]:
    """Yield the pages that match the first `most` tokens of a sequence."""
    most = min(most, len(tokens))
    waiting = [_Match(root, 0, True)]
    while waiting:
        at = waiting.pop()
        for child in at.page.children.get(tokens[at.length], ()) if at.length < most else ():
            size = len(child.tokens)
            same = _common(child.tokens, tokens[at.length : min(at.length + size, most)])
            match = _Match(child, at.length + same, same == size)
            yield match
            if match.is_whole:
                waiting.append(match)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of equal first tokens."""
    if tuple(a) == tuple(b):
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _part(rows: Rows, first: int, last: int) -> Rows:
    """Return the rows of some tokens."""
    if isinstance(rows, PagedRows):
        return rows.part(first, last)
    return {name: array[:, :, first:last] for name, array in rows.items()}


def _bytes(arrays: Mapping[str, np.ndarray]) -> int:
    if isinstance(arrays, PagedRows):
        return arrays.nbytes
    return sum(array.nbytes for array in arrays.values())
