"""Caches of `GroupQueryAttention` that hold a window of rows: the newest ones.

`WindowCache` has them in order, from row 0 on, as ONNX Runtime defines it: a sequence of T tokens has L rows in a cache
of C rows for windows of W tokens: T as long as they fit. Then old rows are dropped G = C - W + 1 at a time: L = T - G *
ceil((T - C) / G). `frontends/library/rings.py` has each at its position modulo the rows, so that a step moves none.
"""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.tensor import Tensor, concat, maximum, minimum, where


class WindowCache:
    """The rows of a cache before and after a step, by sequence: all values are i64 [batch, ...]."""

    def __init__(self, node: Node, rows: Dim, new: Dim, last: Tensor) -> None:
        """Compute the layouts; `last` [batch, 1] is the last position of each sequence after the step."""
        window = node.attr.int("local_window_size", -1)
        if window < 1 or not isinstance(rows, int) or rows < window:
            raise NodeError(
                "a cache of a window needs attribute 'local_window_size' and at least as many rows, "
                f"got {window} and {rows} rows"
            )
        self.node, self.rows, self.new, self.group = node, rows, new, rows - window + 1
        self.total = last + 1
        self.before = self.total - node.size(new)

    def _resident(self, tokens: Tensor) -> Tensor:
        """Return how many rows a sequence of this many tokens has."""
        group = self.group
        beyond = tokens - (self.rows - self.group + 1)
        groups = beyond // group
        dropped = maximum(groups, 0) * group
        return tokens - dropped

    def key_positions(self) -> Tensor:
        """Return the position of each key [batch, rows + new]: of rows that are not used, one that no token sees."""
        node = self.node
        position = self.before - self._resident(self.before) + self._row()
        old = where(self._is_used(), position, int(np.iinfo(np.int64).max // 2))
        step = node.index_vector(self.new)
        return concat([old, self.before + step], axis=1)

    def _row(self) -> Tensor:
        return self.node.index_vector(self.rows).reshape((1, self.rows))

    def _is_used(self) -> Tensor:
        """Return which rows the sequences used before the step."""
        return self._row() < self._resident(self.before)

    def keys(self, past: Tensor, new: Tensor) -> Tensor:
        """Return the rows of the cache followed by the new ones; rows that are not used may hold anything: zeros."""
        used = self._is_used().expand_dims(1, 3)
        known = where(used, past, self.node.constant(0, past.type))
        return concat([known, new], axis=2)

    def stored(self, keys: Tensor) -> Tensor:
        """Return the cache after the step, from `keys`."""
        node = self.node
        batch, heads, count, size = keys.type.shape
        position = self.total - self._resident(self.total) + self._row()
        first = self.before - self._resident(self.before)
        of_past = position - first
        of_new = position - self.before + self.rows
        source = where(position < self.before, of_past, of_new)
        source = maximum(source, 0)
        source = minimum(source, node.size(count - 1))
        column = source.reshape((batch, 1, self.rows, 1))
        indices = column.expand((batch, heads, self.rows, size))
        return keys.gather_elements(indices, 2)
