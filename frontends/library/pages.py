"""Packed tokens of sequences whose rows are in pages: where each is written, and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.errors import OpError
from mirlo.frontends.library.attention import join_heads, swap_heads
from mirlo.frontends.tensor import ONE_TENSOR, TWO_DIMS, Tensor, TensorBuilder, concat, maximum, number, where
from mirlo.runtime.callbacks import checked

BindSizes = Callable[[Tensor, str, Sequence[Dim]], tuple[Dim, ...]]
"""Binds the elements of a vector to symbols; the text describes them in errors, the dims bound them."""
Indices = Callable[[Dim], Tensor]
"""Returns 0, 1, 2, ... as an i64 vector."""


class PackedSequences:
    """The new tokens of several sequences, one sequence after the other, whose rows are in pages of common caches."""

    def __init__(
        self, builder: TensorBuilder, bind: BindSizes, indices: Indices, count: Dim, ends: Tensor, past: Tensor,
        table: Tensor, rows: Dim,
    ) -> None:  # fmt: skip
        """Describe `count` new tokens, of which those of a sequence end before `ends` [sequences + 1], the first is 0.

        `past` are the tokens of each sequence in the caches, `table` [sequences, pages] its pages of `rows` rows.
        """
        bind = checked(bind, TWO_DIMS, "PackedSequences", OpError)
        self._indices = checked(indices, ONE_TENSOR, "PackedSequences", OpError)
        self.builder, self.count, self.rows, self.table = builder, count, rows, table
        self.batch = ends.type.shape[0] - 1
        self.begins, after = (ends.slice(0, at, self.batch) for at in (0, 1))
        """The first token of each sequence: i64[batch]."""
        self.past = past.gather(self._indices(self.batch))
        """The tokens of each sequence in the caches: i64[batch]."""
        index = self._indices(count)
        column = index.expand_dims(1)
        is_behind = after.expand_dims(0) <= column
        self.sequence = is_behind.cast("i64").sum(1)
        """The sequence of each token: i64[tokens]; `batch` for tokens after the last one."""
        self.place = index - self.begins.gather(self.sequence)
        """The number of the token among the new ones of its sequence: i64[tokens]."""
        self.position = self.place + self.past.gather(self.sequence)
        """The number of the token in its sequence: i64[tokens]."""
        new = after - self.begins
        self.totals = self.past + new
        """The tokens of each sequence afterwards: i64[batch]."""
        last = self.totals - 1
        pages = last // self._size(rows) + 1
        # At least one, so that nothing is computed of no elements.
        sizes = [maximum(each.max(0, keepdims=True), 1) for each in (new, pages)]
        what = "the most new tokens of a sequence, and the most blocks"
        self.longest, self.pages = bind(concat(sizes, axis=0), what, [D.maximum(count, 1), table.type.shape[1]])
        """The most new tokens of a sequence, and the most pages."""

    def slots(self) -> Tensor:
        """Return where each token is written, as a row of all pages: i64[tokens], -1 for nowhere."""
        nowhere = self.builder.constant(-1, "i64")
        (sequences, columns) = self.table.type.shape
        rows, most = (self._size(dim) for dim in (self.rows, columns))
        column = self.position // rows
        flat = self.table.cast("i64").reshape((sequences * columns,))
        position = self.sequence * most + column
        start = flat.gather(position) * rows
        offset = self.position - column * rows
        holds = (column < most) & (column >= 0)
        is_token = self.sequence < self._size(self.batch)
        holds = holds & is_token
        return where(holds, start + offset, nowhere)

    def written(self, cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
        """Return a cache [pages, rows, heads, size] with rows [1, heads, tokens, size] in their slots."""
        pages, page_rows, heads, size = cache.type.shape
        # Slots are the rows of one cache with one head.
        room = (1, 1, pages * page_rows, heads * size)
        flat = cache.reshape(room)
        new = join_heads(rows).expand_dims(0)
        result: Tensor = self.builder.emit("cache_write", flat, new, slots.expand_dims(0), shape=room)
        return result.reshape((pages, page_rows, heads, size))

    def used_table(self) -> Tensor:
        """Return the pages of each sequence: i64[batch, most pages]."""
        table = self.table.cast("i64")
        shape = (table.type.shape[0], self.pages)
        table = table.part((0, 0), shape)
        return table.gather(self._indices(self.batch))

    def by_sequence(self, query: Tensor) -> Tensor:
        """Return queries [1, heads, tokens, size] as [batch, heads, longest, size]."""
        index = self.begins.expand_dims(1) + self._indices(self.longest)
        _, heads, count, size = query.type.shape
        rows = swap_heads(query).reshape((count, heads, size))
        return swap_heads(rows.gather(index))

    def seen(self, is_causal: bool, window: int) -> Tensor:
        """Return which rows each token sees: [batch, 1, longest, rows]; a window of 0 or less is one of all tokens."""
        key = self._indices(self.pages * self.rows)
        past, totals = (each.expand_dims(1, 2, 3) for each in (self.past, self.totals))
        own = past + self._indices(self.longest).expand_dims(0, 1, 3)
        seen = key < totals
        if is_causal:
            seen = seen & (key <= own)
        if window > 0:
            start = own - window
            seen = seen & (key > start)
        return seen

    def packed(self, result: Tensor) -> Tensor:
        """Return results [batch, heads, longest, size] by token: [tokens, heads * size]."""
        batch, heads, longest, size = result.type.shape
        flat = swap_heads(result).reshape((batch * longest, heads * size))
        start = self.sequence * self._size(longest)
        return flat.gather(start + self.place)

    def _size(self, dim: Dim) -> Tensor:
        """Return a dim as an i64 without dims."""
        return number(self.builder, dim, DTYPES["i64"])
