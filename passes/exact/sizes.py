"""The sizes at which a kernel of dynamic shapes is compared: more are added until no loop or branch has a new case."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from mirlo.dialects.core.dims import Dim, substitute
from mirlo.passes.exact.memory import MOST_BUFFER_ELEMENTS, Array
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.valid_sizes import Sizes, ValidSizes

TRIED = (
    3, 1, 2, 5, 8, 17, 16, 33, 64, 4, 7, 9, 15, 31, 32, 47, 48, 49, 63, 65, 95, 96, 97, 127, 128, 129, 191, 193, 255,
    257, 511, 513,
)  # fmt: skip
"""Sizes of one symbol: small ones, then those around the ends of tiles."""
SMALL = (3, 1, 8, 17)
"""Sizes of the other symbols."""
MOST_SIZES = 60
PATIENCE = 10
"""How many sizes in a row may show nothing new."""
MOST_ELEMENTS = 1 << 22
"""The most elements of the parameters of a kernel."""
LEAST_SIZES = 2
"""How many sizes of a kernel are compared that has more elements at all of them: those with the fewest, if there is
memory for each of its parameters."""
MOST_POINTS, GROWTH = 1 << 24, 171
"""The most points that a kernel computes at a size, or how many times as many as at the first one, if that is more:
all sizes of a symbol that its points are proportional to."""
CASES = 3
"""The cases of a loop: no iteration, one, more; of a branch: not taken, taken."""
MOST_REQUESTED = 1000
"""The most sizes that one request may stand for."""


def parse_sizes(text: str) -> list[Sizes]:
    """Return the sizes that a text such as `batch=1,2;seq=1..64` stands for: all combinations."""
    values: dict[str, list[int]] = {}
    for part in filter(None, text.split(";")):
        name, equals, listed = part.partition("=")
        try:
            numbers = [number for each in listed.split(",") for number in _range_of(each)]
        except ValueError:
            numbers = []
        if not equals or not name.strip() or not numbers or min(numbers) < 0:
            raise ValueError(f"expected sizes such as 'seq=1..64' or 'batch=1,8', found '{part}'")
        values[name.strip()] = numbers
    count = math.prod(map(len, values.values()))
    if count > MOST_REQUESTED:
        raise ValueError(f"'{text}' stands for {count} sizes: expected at most {MOST_REQUESTED}")
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())] if values else []


def _range_of(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last if dots else first) + 1)


class SizeSearch:
    """Iterator of sizes, which stops when no loop or branch of the kernel has new cases.

    They are sizes at which the kernel may be called: those of parameters are not negative, nor the dims that one of its
    callers checks.
    """

    def __init__(
        self, symbols: Sequence[str], parameters: Sequence[tuple[str, tuple[Dim, ...]]], requested: Sequence[Sizes],
        places: Sequence[str], calls: Sequence[Sequence[Dim]] = ((),),
        points: Callable[[Sizes], int] = lambda sizes: 0,
    ):  # fmt: skip
        """Make a search; `calls` has for each call the dims that are not negative.

        `points` returns how many points the kernel computes at sizes.
        """
        self._points, self._most_points = points, 0
        self.symbols, self.requested, self.places = symbols, requested, places
        self.compared: list[Sizes] = []
        """The sizes that were compared."""
        self._dims = [dims for _, dims in parameters]
        own = [dim for dims in self._dims for dim in dims if not isinstance(dim, int)]
        self._calls = [ValidSizes(symbols, [*own, *facts]) for facts in calls]
        self._seen: Array = np.zeros(CASES * len(places), np.int64)

    def __iter__(self) -> Iterator[Sizes]:
        if not self.symbols:
            yield {}
            return
        idle = 0
        large: list[Sizes] = []
        for sizes in self._requested() or self._proposed():
            if not (self._is_small(sizes) or self.requested):
                large.append(sizes)
                continue
            before = int(self._seen.sum())
            self.compared.append(sizes)
            yield sizes
            idle = 0 if int(self._seen.sum()) > before else idle + 1
            if not self.requested and (idle >= PATIENCE or len(self.compared) >= MOST_SIZES):
                break
        if not self.compared:
            fitting = [sizes for sizes in large if self._largest(sizes) <= MOST_BUFFER_ELEMENTS]
            for sizes in sorted(fitting or large, key=self._elements)[:LEAST_SIZES]:
                self.compared.append(sizes)
                yield sizes
        if not self.compared:
            raise OutsideError(f"sizes of {', '.join(self.symbols)}: none of those that were tried is possible")

    def note(self, cases: Array) -> None:
        """Record the cases of a run."""
        self._seen |= cases

    @property
    def unreached(self) -> list[str]:
        """Return the cases that no size reached: loops that never had an iteration, sides of branches."""
        never: Counter[str] = Counter()
        for number, place in enumerate(self.places):
            none, one, several = self._seen[CASES * number : CASES * (number + 1)]
            if place == "loop":
                never["loops without an iteration"] += not one and not several
            else:
                never["branches that are never taken"] += not one
                never["branches that are always taken"] += bool(one) and not none
        return [f"{count} {what}" for what, count in never.items() if count]

    def _requested(self) -> list[Sizes]:
        """Return the requested sizes for the symbols of this kernel, each once; other symbols are small."""
        kept = [sizes for each in self.requested for sizes in self._valid(each, each)]
        return list({tuple(each.items()): each for each in kept}.values())

    def _proposed(self) -> Iterator[Sizes]:
        """Yield sizes: first equal for all symbols, then one symbol after the other with small sizes of the others."""
        yielded = set()
        for size in TRIED:
            for proposed in self._around(size):
                for sizes in self._valid(proposed, ()):
                    key = tuple(sizes.values())
                    if key not in yielded:
                        yielded.add(key)
                        yield sizes

    def _around(self, size: int) -> Iterator[Sizes]:
        yield dict.fromkeys(self.symbols, size)
        if len(self.symbols) > 1:
            for symbol in self.symbols:
                for small in SMALL[:2]:
                    yield {**dict.fromkeys(self.symbols, small), symbol: size}

    def _valid(self, proposed: Sizes, fixed: Collection[str]) -> Iterator[Sizes]:
        """Yield sizes near proposed ones at which the kernel may be called, for each kind of call."""
        for call in self._calls:
            sizes = call.nearest({name: SMALL[0] for name in self.symbols} | proposed, TRIED, fixed)
            if sizes is not None:
                yield {name: sizes[name] for name in self.symbols}

    def _is_small(self, sizes: Mapping[str, int]) -> bool:
        if self._elements(sizes) > MOST_ELEMENTS:
            return False
        points = self._points(dict(sizes))
        self._most_points = self._most_points or max(MOST_POINTS, GROWTH * points)
        return points <= self._most_points

    def _elements(self, sizes: Mapping[str, int]) -> int:
        """Return how many elements the parameters of the kernel have."""
        return sum(self._counts(sizes))

    def _largest(self, sizes: Mapping[str, int]) -> int:
        """Return how many elements the largest parameter has."""
        return max(self._counts(sizes), default=0)

    def _counts(self, sizes: Mapping[str, int]) -> list[int]:
        numbers = [[substitute(dim, sizes) for dim in dims] for dims in self._dims]
        return [math.prod(each for each in dims if isinstance(each, int)) for dims in numbers]
