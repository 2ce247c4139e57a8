"""A sequence of tokens whose rows are in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from mirlo.extend.runtime import InputError
from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.caches.page_counts import PageCounts


class Pages(Protocol):
    """The interface of the pool of pages."""

    @property
    def page_rows(self) -> int: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def arrays(self) -> Mapping[str, np.ndarray]: ...

    @property
    def counts(self) -> PageCounts: ...

    @property
    def lock(self) -> AbstractContextManager[bool]: ...


class PagedRows(Mapping[str, np.ndarray]):
    """Rows of some tokens of a page, which other users may share.

    As `Rows` of other caches are, they are arrays [1, heads, rows, size] by the names of inputs.
    """

    def __init__(self, pool: Pages, page: int, start: int, count: int) -> None:
        """Take the rows `start` to `start + count` of a page."""
        self.pool, self.page, self.start, self.count = pool, page, start, count
        with pool.lock, pool.counts:
            pool.counts.register(self, self.pages)

    @property
    def pages(self) -> list[int]:
        """Return the page."""
        return [self.page]

    def __getitem__(self, name: str) -> np.ndarray:
        rows: np.ndarray = self.pool.arrays[name][self.page, self.start : self.start + self.count]
        return np.moveaxis(rows, 0, 1)[None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pool.arrays)

    def __len__(self) -> int:
        return len(self.pool.arrays)

    @property
    def nbytes(self) -> int:
        """Return the rows' share of the page in bytes."""
        return self.pool.page_bytes * self.count // self.pool.page_rows

    def part(self, first: int, last: int) -> PagedRows:
        """Return a part of the rows."""
        return PagedRows(self.pool, self.page, self.start + first, last - first)


class PagedSequence:
    """The tokens of a sequence in a pool of pages; its pages are freed with it."""

    def __init__(self, pool: Pages, pages: list[int], length: int) -> None:
        self._pool, self._pages, self._length = pool, pages, length
        with pool.lock, pool.counts:
            self.number = pool.counts.register(self, pages)
            """The number of the sequence in the page counts."""

    @property
    def pool(self) -> Pages:
        return self._pool

    @property
    def length(self) -> int:
        """Return the number of tokens."""
        return self._length

    @property
    def pages(self) -> tuple[int, ...]:
        """Return the numbers of the pages in the order of the tokens."""
        return tuple(self._pages)

    @property
    def page_count(self) -> int:
        """Return the number of pages, including reserved ones."""
        return len(self._pages)

    def fork(self, length: int | None = None) -> PagedSequence:
        """Return a sequence with the same tokens that continues separately: it shares all pages."""
        kept = self._length if length is None else min(length, self._length)
        count = -(-kept // self._pool.page_rows)  # without pages of a call that failed
        with self._pool.lock, self._pool.counts:
            return PagedSequence(self._pool, self._pages[:count], kept)

    def rewind(self, length: int) -> None:
        """Drop all tokens but the first `length`; a negative number drops that many of the last ones."""
        kept = length + self._length if length < 0 else length
        if not 0 <= kept <= self._length:
            raise InputError(f"pages: cannot go back to {length} tokens: there are {self._length}")
        count = -(-kept // self._pool.page_rows)
        with self._pool.lock, self._pool.counts:
            before, self._length = self._length, kept
            released, self._pages[count:] = self._pages[count:], []
            self._pool.counts.release(released, self.number)
            if kept < before and self._pages:
                self._pool.counts.stop_writing(self._pages[-1], self.number)

    def rows(self, start: int, stop: int) -> PagedRows:
        """Return the rows of some tokens of one page, without copying them."""
        whole, first = divmod(start, self._pool.page_rows)
        if not 0 <= start <= stop <= self._length or first + stop - start > self._pool.page_rows:
            raise InputError(f"pages: expected tokens of one page, of {self._length}, found {start} to {stop}")
        with self._pool.lock, self._pool.counts:
            return PagedRows(self._pool, self._pages[whole], first, stop - start)

    def adopt(self, parts: Sequence[Rows]) -> None:
        """Append tokens with rows in pages, which the sequence uses from now on."""
        rows = self._pool.page_rows
        with self._pool.lock, self._pool.counts:
            for part in parts:
                if not isinstance(part, PagedRows) or part.pool is not self._pool:
                    raise InputError("pages: expected rows in pages of this pool")
                if part.start != self._length % rows:
                    raise InputError(f"pages: rows from {part.start} on cannot follow {self._length} tokens")
                self._pool.counts.hold([part.page])
                at = self._length // rows
                if at < len(self._pages):  # the page has the rows before these too
                    self._pool.counts.release([self._pages[at]], self.number)
                    self._pages[at] = part.page
                else:
                    self._pages.append(part.page)
                self._length += part.count

    def extend(self, tokens: int) -> None:
        """Append this number of tokens, whose rows are in the pages."""
        self._length += tokens

    def add(self, pages: Sequence[int]) -> None:
        """Add pages that only this sequence uses."""
        self._pages += pages

    def replace(self, at: int, page: int) -> None:
        """Replace a page by another one."""
        self._pages[at] = page
