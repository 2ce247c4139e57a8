"""Caches of windows as rings: the row of a token is its position modulo the rows."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.frontends.tensor import Tensor, TensorBuilder, iota, number


class RingCache:
    """The rows of a ring after a step, of which all that any new token sees are there.

    A call has so few new tokens, S, that windows of W tokens fit into the C rows beside them (W + S - 1 <= C), or all
    tokens of the sequence do: `require_room` makes other calls an error.
    """

    def __init__(self, builder: TensorBuilder, rows: Dim, total: Dim, last: Tensor) -> None:
        """Describe the ring: the longest sequence has `total` tokens after the step, each ends at `last` [batch, 1]."""
        self.builder, self.rows, self.last = builder, rows, last
        self.keys = D.minimum(rows, total)
        """The rows that are read."""
        self._divisor = number(builder, D.maximum(rows, 1), DTYPES["i64"])

    def require_room(self, cache: str, window: int, new: Dim, total: Dim) -> None:
        """Check in the call that this many new tokens overwrite nothing that they see; `cache` is for the error."""
        beside = self.rows - (window - 1)
        if D.is_nonnegative(beside - new):
            return
        largest = D.maximum(beside, self.rows - total + new)
        what = (
            f"{cache} is a ring of {self.rows} rows for a window of {window} tokens, in which {new} new ones overwrite "
            f"what they see: pass at most {beside} in a call, or make the input with more rows"
        )
        RequireDims.build(dims=(new,), bounds=(largest,), what=what, result_types=[])

    def row_of(self, places: Tensor) -> Tensor:
        """Return the rows of tokens at these positions, which are not negative."""
        return places % self._divisor

    def key_positions(self) -> Tensor:
        """Return the position of the newest token of each row [batch, keys]; a negative number for unused rows."""
        row = iota(self.builder, self.keys)
        return row + (self.last - row) // self._divisor * self._divisor
