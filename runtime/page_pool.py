"""Caches in pages that sequences share, for models that find the rows of a sequence by a table of blocks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.runtime.artifact import CACHE_RANK, TensorSpec
from mirlo.runtime.cache_arrays import Rows
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import InputError
from mirlo.runtime.huge_pages import empty_together
from mirlo.runtime.state import UpdatingModel
from mirlo.runtime.update import UpdatingCall


@dataclass(frozen=True)
class TableInputs:
    """The names of the inputs that say where the rows of the sequences are."""

    ends: str
    """The ends of the sequences among the new tokens, behind a 0: integers [sequences + 1]."""
    past: str
    """The tokens of each sequence before the call: integers [sequences]."""
    table: str
    """The pages of each sequence: integers [sequences, pages]."""


class PagedSequence:
    """The tokens of a sequence in a pool of pages. What nothing refers to any more gives its pages back."""

    def __init__(self, pool: PagePool, pages: list[int], length: int) -> None:
        self._pool = pool
        self._pages = pages
        self._length = length
        pool.hold(pages)
        weakref.finalize(self, pool.release, pages)

    @property
    def pool(self) -> PagePool:
        return self._pool

    @property
    def length(self) -> int:
        """Return how many tokens the sequence has."""
        return self._length

    @property
    def pages(self) -> tuple[int, ...]:
        """Return the numbers of the pages with the rows of the tokens, in their order."""
        return tuple(self._pages)

    def fork(self) -> PagedSequence:
        """Return a sequence that begins with the same tokens and continues on its own: it shares all pages."""
        count = -(-self._length // self._pool.page_rows)  # without pages of a call that failed
        return PagedSequence(self._pool, self._pages[:count], self._length)

    def rewind(self, length: int) -> None:
        """Forget all tokens but the first `length`; a negative number forgets that many of the last ones."""
        kept = length + self._length if length < 0 else length
        if not 0 <= kept <= self._length:
            raise InputError(f"pages: cannot go back to {length} tokens: there are {self._length}")
        count = -(-kept // self._pool.page_rows)
        self._pool.release(self._pages[count:])
        del self._pages[count:]
        self._length = kept

    def _extend(self, tokens: int) -> None:
        """Let the sequence have so many more tokens, whose rows the pages hold."""
        self._length += tokens

    def _add(self, pages: Sequence[int]) -> None:
        """Add pages that only this sequence uses."""
        self._pages += pages

    def _replace(self, at: int, page: int) -> None:
        """Use another page in place of one."""
        self._pages[at] = page


class PagePool:
    """Pages of rows, each used by any number of sequences; a page is copied before a sequence writes to it alone.

    `Executable.pages` makes one. Full pages are never copied: sequences that begin alike share their rows in memory.
    The pool grows when no page is free. It belongs to one call at a time.
    """

    def __init__(
        self, model: UpdatingModel, pairs: Mapping[str, str] | None, names: TableInputs, count: int, limit: int | None
    ) -> None:
        """Create pages for the caches of a model, outputs by inputs in `pairs`: `count`, which grow up to `limit`."""
        self._model, self._names = model, names
        self._pairs = {source: output for output, source in model.aliases.items()} if pairs is None else dict(pairs)
        self._specs = _cache_specs(model, self._pairs)
        self._kinds = _table_kinds(model, names)
        if count < 1 or (limit is not None and limit < count):
            raise InputError(f"pages: expected 1 page or more, and no more than the limit, found {count} and {limit}")
        self.page_rows = int(self._specs[0].shape[1])
        """Tokens of a page."""
        fixed = [spec.shape[0] for spec in self._specs if isinstance(spec.shape[0], int)]
        self._limit = min([*fixed, *([] if limit is None else [limit])], default=None)
        self.arrays: dict[str, np.ndarray] = {}
        """The pages of each cache, by the names of the inputs; to read."""
        self._uses: list[int] = []
        self._free: list[int] = []
        self._grow(min([*fixed, count]))
        self._call: UpdatingCall | None = None
        self._prepared: Mapping[str, np.ndarray] | None = None
        """The arrays that the calls are prepared for."""

    @property
    def used(self) -> int:
        """Return how many pages sequences use, each counted once."""
        return len(self._uses) - len(self._free)

    @property
    def page_bytes(self) -> int:
        """Return the bytes of a page of all caches."""
        return sum(array[0].nbytes for array in self.arrays.values())

    def sequence(self) -> PagedSequence:
        """Return a sequence without tokens."""
        return PagedSequence(self, [], 0)

    def run(
        self, inputs: Mapping[str, np.ndarray], sequences: Sequence[PagedSequence], tokens: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for so many new tokens of each sequence; return its other outputs."""
        if not sequences or len(sequences) != len(tokens) or len({id(each) for each in sequences}) != len(sequences):
            raise InputError(f"pages: expected different sequences, each with new tokens, found {len(sequences)}")
        if any(each.pool is not self for each in sequences) or min(tokens) < 0 or not any(tokens):
            raise InputError(f"pages: expected sequences of this pool and 1 token or more, found {list(tokens)}")
        self._make_room(sequences, tokens)
        given = {**inputs, **self._tables(sequences, tokens)}
        if self._prepared is not self.arrays:
            self._call = self._model.updating(self.arrays, self._pairs)
            self._prepared = self.arrays
        if self._call is not None:
            results = self._call.run(given)
        else:
            out = {output: self.arrays[name] for name, output in self._pairs.items()}
            found = self._model.run({**given, **self.arrays}, out=out)
            results = {name: array for name, array in found.items() if name not in out}
        for sequence, count in zip(sequences, tokens, strict=True):
            sequence._extend(count)
        return results

    def rows(self, sequence: PagedSequence) -> Rows:
        """Return a copy of the rows [tokens, heads, size] of a sequence, by the names of the inputs."""
        pages = list(sequence.pages)
        made = {}
        for name, array in self.arrays.items():
            _, rows, *size = array.shape
            made[name] = array[pages].reshape(len(pages) * rows, *size)[: sequence.length]
        return made

    def hold(self, pages: Sequence[int]) -> None:
        """Note that one more sequence uses these pages."""
        for page in pages:
            self._uses[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Note that a sequence does not use these pages any more."""
        for page in pages:
            self._uses[page] -= 1
            if not self._uses[page]:
                self._free.append(page)

    def _make_room(self, sequences: Sequence[PagedSequence], tokens: Sequence[int]) -> None:
        """Let each sequence have pages of its own for its new tokens; nothing changes if there are too few."""
        copied: list[PagedSequence] = []
        added: list[int] = []
        for sequence, count in zip(sequences, tokens, strict=True):
            begun = sequence.length % self.page_rows != 0
            if count and begun and self._uses[sequence.pages[sequence.length // self.page_rows]] > 1:
                copied.append(sequence)
            added.append(max(0, -(-(sequence.length + count) // self.page_rows) - len(sequence.pages)))
        # Of sequences that share a page, the last one could keep it; that one page more is asked for does no harm.
        needed = len(copied) + sum(added)
        if needed > len(self._free):
            self._grow(len(self._uses) + needed - len(self._free))
        for sequence in copied:
            self._copy_last(sequence)
        for sequence, count in zip(sequences, added, strict=True):
            sequence._add([self._take() for _ in range(count)])

    def _copy_last(self, sequence: PagedSequence) -> None:
        """Give a sequence a page of its own in place of one that others use, with its rows."""
        at = sequence.length // self.page_rows
        page = sequence.pages[at]
        if self._uses[page] > 1:
            own, rows = self._take(), sequence.length % self.page_rows
            for array in self.arrays.values():
                array[own, :rows] = array[page, :rows]
            sequence._replace(at, own)
            self.release([page])

    def _take(self) -> int:
        """Return a free page, which one sequence uses then."""
        page = self._free.pop()
        self._uses[page] = 1
        return page

    def _grow(self, count: int) -> None:
        """Let there be so many pages, or twice as many as before."""
        before = len(self._uses)
        if self._limit is not None and count > self._limit:
            raise InputError(
                f"pages: {count} pages of {self.page_rows} tokens are needed, there may be {self._limit}: "
                "let sequences go, or rewind them"
            )
        total = max(count, 2 * before)
        total = total if self._limit is None else min(total, self._limit)
        kinds = [(numpy_dtype(spec.dtype), (total, *map(int, spec.shape[1:]))) for spec in self._specs]
        made = dict(zip((spec.name for spec in self._specs), empty_together(kinds), strict=True))
        for name, array in made.items():
            array[:before] = self.arrays[name] if before else 0
            array[before:] = 0  # rows that are not valid are hidden, which NaN would survive
        self.arrays = made
        self._uses += [0] * (total - before)
        self._free += reversed(range(before, total))

    def _tables(self, sequences: Sequence[PagedSequence], tokens: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the inputs that say where the rows of the sequences are."""
        most = max(len(sequence.pages) for sequence in sequences)
        table = np.zeros((len(sequences), most), np.int64)
        for row, sequence in zip(table, sequences, strict=True):
            row[: len(sequence.pages)] = sequence.pages
        values = {
            self._names.ends: np.cumsum([0, *tokens]),
            self._names.past: np.array([sequence.length for sequence in sequences]),
            self._names.table: table,
        }
        return {name: value.astype(self._kinds[name]) for name, value in values.items()}


def _cache_specs(model: UpdatingModel, pairs: Mapping[str, str]) -> list[TensorSpec]:
    """Return the inputs that are caches in pages, after a check of their types."""
    inputs = {spec.name: spec for spec in model.inputs}
    wrong = sorted(name for name, output in pairs.items() if model.aliases.get(output) != name or name not in inputs)
    if wrong or not pairs:
        known = ", ".join(sorted(model.aliases.values())) or "none"
        raise InputError(
            f"pages: calls do not update {wrong or 'any input'} in place, but {known}: name caches in pairs"
        )
    specs = [inputs[name] for name in pairs]
    for spec in specs:
        if len(spec.shape) != CACHE_RANK or not all(isinstance(dim, int) for dim in spec.shape[1:]):
            raise InputError(f"pages: expected caches [pages, rows, heads, size], found {spec}")
        if spec.shape[1] != specs[0].shape[1]:
            raise InputError(f"pages: expected pages of as many rows in all caches, found {specs[0]} and {spec}")
    return specs


def _table_kinds(model: UpdatingModel, names: TableInputs) -> dict[str, np.dtype]:
    """Return the types of the inputs that say where rows are."""
    inputs = {spec.name: spec for spec in model.inputs}
    made = {}
    for name, rank in ((names.ends, 1), (names.past, 1), (names.table, 2)):
        if name not in inputs or len(inputs[name].shape) != rank or numpy_dtype(inputs[name].dtype).kind != "i":
            known = ", ".join(map(str, model.inputs))
            raise InputError(f"pages: expected an input '{name}' of integers with {rank} dims, found {known}")
        made[name] = numpy_dtype(inputs[name].dtype)
    return made
