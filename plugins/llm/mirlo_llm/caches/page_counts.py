"""The number of users of each page of a pool, and which of them may write to it."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

NO_WRITER = 0
"""The number that stands for "no sequence writes to this page"."""
_NUMBERS = itertools.count(1)


class PageUser(Protocol):
    """A user of pages: a sequence, or rows kept for reuse; a page that it lists twice counts twice."""

    @property
    def pages(self) -> Sequence[int]: ...


class PageCounts:
    """The uses of pages, and the sequence that may write after their rows.

    Rows that several sequences have are never written again. After them, one sequence may write to a page that others
    use as well: the first one to do so. Changes need the lock of the pool, and are made `with` the counts: if one is
    interrupted, the uses are counted again.
    """

    def __init__(self, page_rows: int) -> None:
        self._page_rows = page_rows
        self._uses: list[int] = []
        self._filled: list[int] = []
        """Rows of each page that were written, of any sequence."""
        self._writers: list[int] = []
        """The number of the sequence that writes after them; `NO_WRITER` if any may begin to."""
        self._free: list[int] = []
        self._users: dict[int, weakref.ref[PageUser]] = {}
        """By number, what uses pages."""
        self._gone: deque[tuple[Sequence[int], int]] = deque()
        """Pages of users that nothing refers to any more, which the garbage collector may find at any time."""

    def __enter__(self) -> None:
        """Begin a change."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._count_again()

    @property
    def total(self) -> int:
        """Return the number of pages."""
        return len(self._uses)

    @property
    def free(self) -> int:
        """Return the number of unused pages."""
        self._settle()
        return len(self._free)

    @property
    def used(self) -> int:
        """Return the number of used pages, each counted once."""
        return self.total - self.free

    def add(self, count: int) -> None:
        """Add this number of pages."""
        first = self.total
        for values in (self._uses, self._filled, self._writers):
            values += [0] * count
        self._free += reversed(range(first, first + count))

    def take(self) -> int:
        """Return a free page, which then has one user."""
        page = self._free.pop()
        self._uses[page], self._filled[page], self._writers[page] = 1, 0, NO_WRITER
        return page

    def register(self, user: PageUser, pages: Sequence[int]) -> int:
        """Record that an object uses these pages as long as it lives; return its number."""
        number = next(_NUMBERS)
        weakref.finalize(user, self._gone.append, (pages, number))
        self._users[number] = weakref.ref(user)
        self.hold(pages)
        return number

    def hold(self, pages: Sequence[int]) -> None:
        """Add a user to these pages."""
        for page in pages:
            self._uses[page] += 1

    def release(self, pages: Sequence[int], number: int) -> None:
        """Remove a user of these pages."""
        for page in pages:
            self.stop_writing(page, number)
            self._uses[page] -= 1
            if not self._uses[page]:
                self._free.append(page)

    def is_shared(self, page: int) -> bool:
        """Return whether several sequences use a page."""
        self._settle()
        return self._uses[page] > 1

    def may_write(self, page: int, row: int, number: int) -> bool:
        """Return whether a sequence that has the rows of a page before `row` may write the following ones."""
        if not self.is_shared(page) or self._writers[page] == number:
            return True
        return self._writers[page] == NO_WRITER and self._filled[page] == row

    def claim(self, page: int, number: int) -> None:
        """Make a sequence the only one that may write to a page."""
        self._writers[page] = number

    def note_rows(self, page: int, rows: int, number: int) -> None:
        """Record that the first rows of a page belong to a sequence, which then writes the rows after them."""
        self._filled[page], self._writers[page] = rows, number

    def stop_writing(self, page: int, number: int) -> None:
        """Record that a sequence went back within a page, so that any sequence may write there."""
        if self._writers[page] == number:
            self._writers[page] = NO_WRITER

    def _settle(self) -> None:
        while self._gone:
            pages, number = self._gone.popleft()
            if self._users.pop(number, None) is not None:
                self.release(pages, number)

    def _count_again(self) -> None:
        """Recount the users of all pages, after an interrupted change."""
        users = {number: user for number, ref in list(self._users.items()) if (user := ref()) is not None}
        total = len(self._uses)
        self._users = {number: weakref.ref(user) for number, user in users.items()}
        self._uses = [0] * total
        for user in users.values():
            self.hold(user.pages)
        self._filled = (self._filled + [0] * total)[:total]
        self._writers = [writer if writer in users else NO_WRITER for writer in (self._writers + [0] * total)[:total]]
        self._free = [page for page in reversed(range(total)) if not self._uses[page]]
