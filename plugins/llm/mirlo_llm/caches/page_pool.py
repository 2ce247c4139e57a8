"""Caches in pages that sequences share, for models that find the rows of a sequence by a table of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import InputError, OutOfPagesError, UpdatingCall, empty_together, make_lock, numpy_dtype
from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.caches.page_counts import PageCounts
from mirlo_llm.caches.paged_inputs import TableInputs, cache_specs, find_tables, fixed_pages, table_inputs
from mirlo_llm.caches.paged_sequence import PagedSequence
from mirlo_llm.caches.state import UpdatingModel

__all__ = ["PagePool", "PagedSequence", "TableInputs", "find_tables"]
NO_CONSTANTS: Mapping[str, np.ndarray] = {}


class PagePool:
    """Pages of rows, each used by any number of sequences; a page is copied before a sequence changes rows of others.

    `caches.pages` makes one. Full pages are never copied: sequences that begin alike share their rows in memory.
    The pool grows when no page is free. Any thread may use it; calls wait for each other.
    """

    def __init__(
        self,
        model: UpdatingModel,
        pairs: Mapping[str, str] | None,
        names: TableInputs,
        count: int,
        limit: int | None,
        rows: int | None = None,
    ) -> None:
        """Create pages for the caches of a model, outputs by inputs in `pairs`: `count`, which grow up to `limit`."""
        self._model, self._names = model, names
        self._pairs = names.pairs(model.aliases) if pairs is None else dict(pairs)
        self._specs, self.page_rows = cache_specs(model, self._pairs, rows)
        self._tables = table_inputs(model, names)
        if count < 1 or (limit is not None and limit < count):
            raise InputError(f"pages: expected 1 page or more, and no more than the limit, found {count} and {limit}")
        self._fixed = fixed_pages(self._specs)
        self.limit = min((most for most in (self._fixed, limit) if most is not None), default=None)
        """Most pages; None without a limit."""
        self.arrays: dict[str, np.ndarray] = {}
        """The pages of each cache, by the names of the inputs; to read."""
        self.lock = make_lock()
        """Held by calls, and while pages change hands."""
        self.reclaim: Callable[[], bool] = lambda: False
        """Free pages that could be computed again, if there are any; return whether there were."""
        self.counts = PageCounts(self.page_rows)
        self._grow(count if self._fixed is None or self.limit is None else self.limit)
        self._calls: dict[int, tuple[UpdatingCall | None, Mapping[str, np.ndarray]]] = {}
        """Prepared calls on these arrays, by the identity of the constants."""

    @property
    def used(self) -> int:
        """Return the number of pages that sequences use, each counted once."""
        with self.lock, self.counts:
            return self.counts.used

    @property
    def page_bytes(self) -> int:
        """Return the size in bytes of a page of all caches."""
        return sum(array[:1].nbytes for array in self.arrays.values())

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names of the inputs that the pool computes."""
        return tuple(self._tables)

    def sequence(self) -> PagedSequence:
        """Return an empty sequence."""
        return PagedSequence(self, [], 0)

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[PagedSequence],
        tokens: int | Sequence[int],
        constants: Mapping[str, np.ndarray] = NO_CONSTANTS,
    ) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for this many new tokens of each sequence; return its other outputs.

        `constants` are inputs that stay the same: calls are prepared for each object that is given.
        """
        tokens = [tokens] * len(sequences) if isinstance(tokens, int) else tokens
        if not sequences or len(sequences) != len(tokens) or len({id(each) for each in sequences}) != len(sequences):
            raise InputError(f"pages: expected different sequences, each with new tokens, found {len(sequences)}")
        if any(each.pool is not self for each in sequences) or min(tokens) < 0 or not any(tokens):
            raise InputError(f"pages: expected sequences of this pool and 1 token or more, found {list(tokens)}")
        with self.lock, self.counts:
            self._make_room(sequences, tokens)
            for sequence, count in zip(sequences, tokens, strict=True):
                self._write(sequence, count)
            arguments = {**inputs, **self._names.arrays(self._tables, sequences, tokens)}
            results = self._run(arguments, constants)
            for sequence, count in zip(sequences, tokens, strict=True):
                sequence.extend(count)
        return results

    def reserve(self, sequence: PagedSequence, tokens: int, spare: int = 0) -> bool:
        """Reserve pages for new tokens of a sequence if `spare` pages remain free; return whether it did."""
        with self.lock, self.counts:
            try:
                self._make_room([sequence], [tokens], spare)
            except OutOfPagesError:
                return False
        return True

    def rows(self, sequence: PagedSequence) -> Rows:
        """Return a copy of the rows [tokens, heads, size] of a sequence, by the names of the inputs."""
        pages = list(sequence.pages)
        copies = {}
        with self.lock, self.counts:
            for name, array in self.arrays.items():
                _, rows, *size = array.shape
                copies[name] = array[pages].reshape(len(pages) * rows, *size)[: sequence.length]
        return copies

    def _run(self, arguments: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        key = id(constants)
        if key not in self._calls:
            self._calls[key] = self._model.updating(self.arrays, self._pairs, constants), constants
        call, _ = self._calls[key]
        if call is not None:
            return call.run(arguments)
        out = {output: self.arrays[name] for name, output in self._pairs.items()}
        results = self._model.run({**arguments, **constants, **self.arrays}, out=out)
        return {name: array for name, array in results.items() if name not in out}

    def _make_room(self, sequences: Sequence[PagedSequence], tokens: Sequence[int], spare: int = 0) -> None:
        """Reserve pages that each sequence may write; change nothing if there are too few."""
        while True:  # what is let go of may have shared pages, which then need not be copied
            writers, copied, added = self._wanted(sequences, tokens)
            missing = len(copied) + sum(added) + spare - self.counts.free
            if missing <= 0:
                break
            self._let_go_or_grow(missing)
        for page, sequence in writers.items():
            self.counts.claim(page, sequence.number)
        for sequence in copied:
            self._copy_last(sequence)
        for sequence, count in zip(sequences, added, strict=True):
            sequence.add([self.counts.take() for _ in range(count)])

    def _wanted(
        self, sequences: Sequence[PagedSequence], tokens: Sequence[int]
    ) -> tuple[dict[int, PagedSequence], list[PagedSequence], list[int]]:
        """Return the sequences that must copy their last page, and the number of new pages of each sequence."""
        writers, copied, added = dict[int, PagedSequence](), list[PagedSequence](), list[int]()
        for sequence, count in zip(sequences, tokens, strict=True):
            whole, row = divmod(sequence.length, self.page_rows)
            if count and row:
                page = sequence.pages[whole]
                if page not in writers and self.counts.may_write(page, row, sequence.number):
                    writers[page] = sequence
                else:
                    copied.append(sequence)
            added.append(max(0, -(-(sequence.length + count) // self.page_rows) - sequence.page_count))
        return writers, copied, added

    def _write(self, sequence: PagedSequence, tokens: int) -> None:
        """Record which rows of its pages a sequence is about to write."""
        at, end, pages = sequence.length, sequence.length + tokens, sequence.pages
        while at < end:
            first = at - at % self.page_rows
            stop = min(first + self.page_rows, end)
            self.counts.note_rows(pages[at // self.page_rows], stop - first, sequence.number)
            at = stop

    def _copy_last(self, sequence: PagedSequence) -> None:
        """Replace a shared last page of a sequence by a copy."""
        whole, rows = divmod(sequence.length, self.page_rows)
        page, own = sequence.pages[whole], self.counts.take()
        self.counts.claim(own, sequence.number)
        for array in self.arrays.values():
            array[own, :rows] = array[page, :rows]
        sequence.replace(whole, own)
        self.counts.release([page], sequence.number)

    def _let_go_or_grow(self, missing: int) -> None:
        """Free pages: grow, or drop kept rows that can be computed again."""
        total = self.counts.total + missing
        if self.limit is None or total <= self.limit:
            self._grow(total)
        elif not self.reclaim():
            raise OutOfPagesError(
                f"pages: {total} pages of {self.page_rows} tokens are needed, there may be {self.limit}: "
                "free or rewind sequences"
            )

    def _grow(self, count: int) -> None:
        """Grow to this number of pages, at least twice as many as before."""
        before = self.counts.total
        total = max(count, 2 * before)
        total = total if self.limit is None else min(total, self.limit)
        shape = (self._fixed or total, self.page_rows)
        kinds = [(numpy_dtype(spec.dtype), (*shape, *map(int, spec.shape[2:]))) for spec in self._specs]
        arrays = dict(zip((spec.name for spec in self._specs), empty_together(kinds), strict=True))
        for name, array in arrays.items():
            array[:before] = self.arrays[name][:before] if before else 0
            array[before:] = 0  # rows that are not valid are hidden, which NaN would survive
        self._calls = {}
        self.arrays = arrays
        self.counts.add(total - before)
