"""The order of packed weights in memory: panels of columns, read from the first byte to the last.

A panel is 16 columns. Along K it consists of groups of scale blocks: weights, scales, then zero points,
so that each group starts at a cache line. A block is divided into sub-blocks of at most 32 rows of K; a
sub-block is a few vectors of 64 bytes. Byte `i` of lane `c` in vector `j` of `v` holds, of column `c`, in its field `f`
(the lowest bits first) row `4 * (f * v + j) + i`: four rows of a column are adjacent, as int8 dot products need.
Weights of 8 bits for rows of f32 are by row: byte `c` of quarter `i` in vector `j` holds row `4 * j + i` of column `c`,
so that a load of 16 bytes extends them to lanes.
Weights of 5 and 6 bits, which are those of 8 bits that need no more, fill 30 bits of words: field `f` of word `j` of a
column holds row `j * w + f`, where `w` is 6 or 5. The upper 2 bits of all words of the sub-block hold its last rows.
"""

from __future__ import annotations

import numpy as np

from mirlo.runtime.container import empty_aligned
from mirlo.runtime.records import dataclass

COLUMNS = 16
"""Columns of a panel: lanes of f32 in the widest vector."""
SUB_BLOCK = 32
"""Most rows of K whose products are summed as integers."""
LINE = 64
"""Bytes of a cache line."""
WORD_FIELDS = {5: 6, 6: 5}
"""By bits of weights that do not divide a byte: how many a word of 32 bits holds, in its lower 30 bits."""
SPARE_AT, SPARE_BITS = 30, 2
"""The first of the other bits of a word, and their number."""
TABLES = {"f4e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)}
"""By element type of floats that are integers in kernels: the integer of each code."""


@dataclass(frozen=True)
class PanelLayout:
    """The layout of stored weights [N, K] with scales [N, blocks]."""

    bits: int
    block: int
    """Rows of K with one scale."""
    columns: int
    rows: int
    scale: str
    """Element type of the scales."""
    zero: str = ""
    """Element type of the zero points, relative to the middle of the range; empty if all are in the middle."""
    floats: str = ""
    """Element type of weights that are floats, one of `weights.FLOATS`; empty for integers."""
    codebook: tuple[float, ...] = ()
    """The numbers that codes of 4 bits stand for; empty if they are numbers themselves."""
    is_signed: bool = False
    """Whether weights of 8 bits are stored relative to the middle of the range."""
    is_by_row: bool = False
    """Whether weights of 8 bits of adjacent columns are adjacent, not those of four rows."""
    least: int = 0
    """What the code 0 of weights of 5 and 6 bits stands for."""

    @property
    def sub(self) -> int:
        """Return the rows of K of a sub-block."""
        return min(self.block, SUB_BLOCK)

    @property
    def sub_blocks(self) -> int:
        """Return the number of sub-blocks along K."""
        return -(-self.rows // self.sub)

    @property
    def subs_per_block(self) -> int:
        return self.block // self.sub

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block)

    @property
    def middle(self) -> int:
        """Return the zero point that is part of the kernel."""
        return -min(self.table) if self.table else 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        """Return the largest weight above the least."""
        return self.middle + max(self.table) if self.table else (1 << self.bits) - 1

    @property
    def is_integer(self) -> bool:
        """Return whether the weights are integers in kernels."""
        return bool(self.table) or not (self.codebook or self.floats)

    @property
    def table(self) -> tuple[int, ...]:
        """Return the integers that codes stand for; none if they are numbers themselves, or stand for others."""
        if any(not number.is_integer() or not -128 < number < 128 for number in self.codebook):
            return ()
        return TABLES.get(self.floats, tuple(map(int, self.codebook)))

    @property
    def fields(self) -> int:
        """Return the weights in a byte."""
        return 8 // self.bits

    @property
    def is_by_word(self) -> bool:
        """Return whether weights are in words, as those of 5 and 6 bits."""
        return self.bits in WORD_FIELDS

    @property
    def rows_per_vector(self) -> int:
        """Return the distance in rows of K between the starts of consecutive vectors."""
        return WORD_FIELDS.get(self.bits, 4)

    def spare_rows(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """Return the rows that spare bits of words hold: parts (word, first bit there, first bit of the row, bits)."""
        result: dict[int, list[tuple[int, int, int, int]]] = {}
        for i, row in enumerate(range(self.vectors * self.rows_per_vector, self.sub) if self.is_by_word else ()):
            at, stop = i * self.bits, (i + 1) * self.bits
            parts = result.setdefault(row, [])
            while at < stop:
                word, bit = divmod(at, SPARE_BITS)
                count = min(SPARE_BITS - bit, stop - at)
                parts.append((word, SPARE_AT + bit, self.bits - (stop - at), count))
                at += count
        return result

    @property
    def vectors(self) -> int:
        """Return the vectors of 64 bytes of a sub-block."""
        return self.sub * self.bits // 32

    @property
    def panels(self) -> int:
        """Return the number of panels, which is even: kernels for many rows read two at a time."""
        return -(-self.columns // (2 * COLUMNS)) * 2

    @property
    def block_bytes(self) -> int:
        """Return the bytes of the weights of a block in a panel."""
        return COLUMNS * self.block * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Return the bytes of the scales of a block in a panel."""
        return COLUMNS * (4 if self.scale == "f32" else 2)

    @property
    def zero_bytes(self) -> int:
        """Return the bytes of the zero points of a block in a panel."""
        return {"": 0, "i8": COLUMNS, "f32": 4 * COLUMNS}[self.zero]

    @property
    def group(self) -> int:
        """Return the blocks of a group: the fewest whose scales and zero points fill cache lines."""
        count = 1
        while (count * self.scale_bytes) % LINE or (count * self.zero_bytes) % LINE:
            count *= 2
        return count

    @property
    def group_bytes(self) -> int:
        return self.group * (self.block_bytes + self.scale_bytes + self.zero_bytes)

    @property
    def panel_bytes(self) -> int:
        return -(-self.blocks // self.group) * self.group_bytes

    @property
    def bytes(self) -> int:
        return self.panels * self.panel_bytes

    def pack(self, weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None) -> np.ndarray:
        """Return the panels of weights [N, K], scales and relative zero points [N, blocks]."""
        result = empty_aligned(np.dtype(np.uint8), (self.bytes,))
        result[...] = 0
        groups = -(-self.blocks // self.group)
        view = result.reshape(self.panels, groups, self.group_bytes)
        at = self.group * self.block_bytes
        step = max(1, (1 << 22) // max(1, self.panel_bytes))
        for first in range(0, self.panels, step):
            stop = min(first + step, self.panels)
            view[first:stop, :, :at] = self._bytes_of_weights(weights, first, stop).reshape(stop - first, groups, at)
        end = at + self.group * self.scale_bytes
        view[:, :, at:end] = self._by_panel(scales).reshape(self.panels, groups, -1).view(np.uint8)
        if zeros is not None:
            view[:, :, end:] = self._by_panel(zeros).reshape(self.panels, groups, -1).view(np.uint8)
        return result

    def _bytes_of_weights(self, weights: np.ndarray, first: int, stop: int) -> np.ndarray:
        """Return the bytes of the weights of some panels: [panels, blocks of groups, ...]."""
        part = weights[first * COLUMNS : stop * COLUMNS]
        rows = -(-self.blocks // self.group) * self.group * self.block
        values = np.zeros(((stop - first) * COLUMNS, rows), np.uint8)
        values[: part.shape[0], : part.shape[1]] = part
        if self.is_by_word:
            return self._words(values.reshape(stop - first, COLUMNS, rows // self.sub, self.sub))
        if self.is_signed:
            values ^= self.middle
        split = values.reshape(stop - first, COLUMNS, rows // self.sub, self.fields, self.vectors, 4)
        total: np.ndarray = split[:, :, :, 0]
        for field in range(1, self.fields):
            total = total | split[:, :, :, field] << (field * self.bits)
        order = (0, 2, 3, 4, 1) if self.is_by_row else (0, 2, 3, 1, 4)
        return np.ascontiguousarray(total.transpose(order))

    def _words(self, values: np.ndarray) -> np.ndarray:
        """Return words of codes of 8 bits [panels, columns, sub-blocks, rows]: [panels, sub-blocks, words, columns]."""
        codes = (values - np.uint8(self.least + 128) & np.uint8((1 << self.bits) - 1)).astype("<u4")
        whole = self.vectors * self.rows_per_vector
        fields = codes[..., :whole].reshape(*codes.shape[:-1], self.vectors, self.rows_per_vector)
        words = np.zeros(fields.shape[:-1], "<u4")
        for field in range(self.rows_per_vector):
            words |= fields[..., field] << np.uint32(self.bits * field)
        for row, parts in self.spare_rows().items():
            for word, bit, start, count in parts:
                words[..., word] |= (codes[..., row] >> start & ((1 << count) - 1)) << np.uint32(bit)
        return np.ascontiguousarray(words.transpose(0, 2, 3, 1)).view(np.uint8)

    def _by_panel(self, values: np.ndarray) -> np.ndarray:
        """Return [panels, blocks, columns of a panel], with zeros beyond the last column and block."""
        blocks = -(-self.blocks // self.group) * self.group
        array = np.zeros((self.panels * COLUMNS, blocks), values.dtype)
        array[: values.shape[0], : values.shape[1]] = values
        return np.ascontiguousarray(array.reshape(self.panels, COLUMNS, blocks).transpose(0, 2, 1))
