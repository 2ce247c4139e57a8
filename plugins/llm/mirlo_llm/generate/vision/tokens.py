"""Tokens of images: numbers above the vocabulary, unique to each image.

Equal token sequences thus have equal content, so that cached rows may be reused for sequences with images, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.runtime import make_lock
from mirlo_llm.generate.errors import GenerationError

DEFAULT_BYTES = 256 << 20
"""Default bytes of cached rows of images: those of 27 images of LLaVA 7B with 576 rows each."""
MOST_SIZES = 1 << 16
"""Images whose sizes are kept, 10 MB of them; sequences may continue after the rows of their images were evicted."""
MOST = 1 << 31
"""Bound of token numbers, which tokenizers hold in 32 bits."""


class ImageTokens:
    """The rows of recently used images, which replace those of their tokens in the decoder."""

    def __init__(self, first: int, width: int, most_bytes: int = DEFAULT_BYTES) -> None:
        """Store the number of the first image token, and the elements of a row."""
        self.first, self._next, self._width, self._most = first, first, width, most_bytes
        self._begins: OrderedDict[str, int] = OrderedDict()
        """The first token of each image, by its digest; the one that was used last is the last one."""
        self._rows: dict[int, np.ndarray] = {}
        """f32[tokens, width] by the first token."""
        self._sizes: dict[int, tuple[int, int]] = {}
        """The tokens of an image and of a row of it, by the first one: kept for longer than the rows."""
        self._lock = make_lock()

    def add(self, digest: str, compute: Callable[[], tuple[np.ndarray, int]]) -> range:
        """Return the tokens of an image; `compute` returns its rows, and the number of tokens per row of the image."""
        with self._lock:
            if digest in self._begins:
                self._begins.move_to_end(digest)
                begin = self._begins[digest]
                return range(begin, begin + len(self._rows[begin]))
            rows, columns = compute()
            if self._next + len(rows) > MOST:
                raise GenerationError("there are no numbers left for the tokens of images: load the model again")
            begin, self._next = self._next, self._next + len(rows)
            self._begins[digest], self._rows[begin] = begin, rows
            self._sizes[begin] = len(rows), columns
            if len(self._sizes) > MOST_SIZES:
                del self._sizes[next(iter(self._sizes))]
            while len(self._begins) > 1 and sum(each.nbytes for each in self._rows.values()) > self._most:
                _, oldest = self._begins.popitem(last=False)
                del self._rows[oldest]
            return range(begin, begin + len(rows))

    def __contains__(self, token: int) -> bool:
        return any(begin <= token < begin + len(rows) for begin, rows in self._rows.items())

    def place(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Renumber image tokens to indices of the returned rows."""
        wanted = np.unique(tokens[tokens >= self.first])
        rows = np.zeros((max(len(wanted), 1), self._width), np.float32)
        for i, token in enumerate(wanted):
            begin, known = self._image(int(token))
            rows[i] = known[int(token) - begin]
        counted = np.where(tokens < self.first, tokens, self.first + np.searchsorted(wanted, tokens))
        return counted, rows

    def positions(self, tokens: np.ndarray, before: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the positions of tokens after those of `before` by time, row and column, i64[*tokens, 3].

        Tokens of an image share one time; a token after an image has larger positions than its rows and columns.
        """
        rows = (self._positions(np.array([*held, *new])) for held, new in zip(before, tokens, strict=True))
        return np.stack([row[-tokens.shape[1] :] for row in rows])

    def _positions(self, tokens: np.ndarray) -> np.ndarray:
        """Return the positions of a whole sequence."""
        result, at, position = np.empty((len(tokens), 3), np.int64), 0, 0
        ends = np.append(np.flatnonzero(tokens >= self.first), len(tokens))
        while at < len(tokens):
            if tokens[at] < self.first:
                part = np.arange(ends[np.searchsorted(ends, at)] - at)[:, None]
            else:
                part = self._places(tokens[at:])
            result[at : at + len(part)] = position + part
            at, position = at + len(part), position + int(part.max()) + 1
        return result

    def _places(self, tokens: np.ndarray) -> np.ndarray:
        """Return time, row and column of the tokens of the image at the beginning."""
        begin, (count, columns) = self._size(int(tokens[0]))
        places = np.arange(tokens[0] - begin, min(count, tokens[0] - begin + len(tokens)))
        same = tokens[: len(places)] == begin + places
        places = places[: len(places) if same.all() else int(same.argmin())]
        return np.stack([np.zeros_like(places), places // columns, places % columns], 1)

    def _size(self, token: int) -> tuple[int, tuple[int, int]]:
        """Return the first token of an image, and its grid."""
        begins = list(self._sizes)  # which another thread may add to
        begin = begins[bisect_right(begins, token) - 1] if begins else token
        size = self._sizes.get(begin)
        if size is not None and begin <= token < begin + size[0]:
            return begin, size
        raise GenerationError("the size of an image is not in memory any more: make its prompt again")

    def spans(self, tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the positions of the first and the last token of each token's image; 0 and -1 for text."""
        result = np.zeros((*tokens.shape, 2), np.int64)
        result[..., 1] = -1
        for place in np.argwhere(tokens >= self.first):
            token, position = int(tokens[tuple(place)]), int(positions[tuple(place)])
            begin, rows = self._image(token)
            result[tuple(place)] = position - (token - begin), position + begin + len(rows) - 1 - token
        return result

    def whole_images(self, tokens: Sequence[int], most: int) -> int:
        """Return the number of tokens, about `most`, to compute in a call without splitting an image."""
        count = min(most, len(tokens))
        if count == len(tokens) or tokens[count] < self.first:
            return count
        begin, rows = self._image(tokens[count])
        before = count - (tokens[count] - begin)
        return before if before > 0 else min(before + len(rows), len(tokens))

    def _image(self, token: int) -> tuple[int, np.ndarray]:
        """Return the first token and the rows of an image."""
        for begin, rows in list(self._rows.items()):
            if begin <= token < begin + len(rows):
                return begin, rows
        raise GenerationError("the rows of an image are not in memory any more: make its prompt again")
