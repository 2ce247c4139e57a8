"""A drawing of a graph in layers: the positions of its boxes and edges.

Boxes stand in the layer after the last box that they read. An edge that skips layers gets a point in each of them;
edges of one box share these points while they are parallel. Boxes of a layer are ordered by the positions of their
neighbours; then each moves as close to them as the boxes beside it permit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from mirlo.runtime.records import dataclass

GAP = 22.0
"""Between boxes of a layer."""
LAYER = 34.0
"""Between layers."""
SWEEPS = 8
WINDOW = 12
"""Layers before and after one that determine the positions in it."""
MAX_POINTS = 40_000
"""Points of long edges in all; edges beyond that are drawn straight."""


@dataclass
class Box:
    """A box to place, of a size; x is its centre, y its top."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Drawing:
    """The positions of all boxes and edges."""

    boxes: list[Box]
    edges: list[tuple[int, int, list[tuple[float, float]]]]
    """From, to, and the points in between where an edge passes layers: the middle of its passage."""
    width: float = 0.0
    height: float = 0.0


def draw(boxes: list[Box], reads: Sequence[Sequence[int]]) -> Drawing:
    """Place boxes; `reads` are for each box those that it reads, which come before it in some order."""
    plan = _Plan(boxes, [list(dict.fromkeys(sources)) for sources in reads])
    plan.rank()
    plan.connect()
    plan.order()
    plan.place()
    return plan.drawing()


@dataclass
class _Plan:
    """The layers of a drawing. Boxes and points are numbered together: boxes first."""

    boxes: list[Box]
    reads: list[list[int]]
    layer: list[int] = field(default_factory=list)
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)
    layers: list[list[int]] = field(default_factory=list)
    ways: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """The points of an edge."""
    x: list[float] = field(default_factory=list)

    def rank(self) -> None:
        """Assign a layer to each box."""
        count = len(self.boxes)
        users: list[list[int]] = [[] for _ in range(count)]
        waiting = [len(sources) for sources in self.reads]
        for box, reads in enumerate(self.reads):
            for other in reads:
                users[other].append(box)
        self.layer = [0] * count
        ready = [box for box in range(count) if not waiting[box]]
        for box in ready:
            for user in users[box]:
                self.layer[user] = max(self.layer[user], self.layer[box] + 1)
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        # What reads nothing stands just before its first reader, not at the top.
        for box in range(count):
            if not self.reads[box] and users[box]:
                self.layer[box] = min(self.layer[user] for user in users[box]) - 1

    def connect(self) -> None:
        """Connect neighbours in adjacent layers, with points where edges pass."""
        self.layers = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for box, layer in enumerate(self.layer):
            self.layers[layer].append(box)
        self.above, self.below = [[] for _ in self.boxes], [[] for _ in self.boxes]
        passages: dict[tuple[int, int], int] = {}
        for box, reads in enumerate(self.reads):
            for other in reads:
                self._connect(other, box, passages)

    def _connect(self, first: int, last: int, passages: dict[tuple[int, int], int]) -> None:
        span = range(self.layer[first] + 1, self.layer[last])
        new = sum((first, layer) not in passages for layer in span)
        if len(passages) + new > MAX_POINTS:
            self.ways[first, last] = []
            return
        way = []
        before = first
        for layer in span:
            point = passages.get((first, layer))
            if point is None:
                point = passages[first, layer] = len(self.above)
                self.above.append([before])
                self.below.append([])
                self.below[before].append(point)
                self.layer.append(layer)
                self.layers[layer].append(point)
            way.append(point)
            before = point
        self.above[last].append(before)
        self.below[before].append(last)
        self.ways[first, last] = way

    def order(self) -> None:
        """Order each layer by the mean position of neighbours, down and up."""
        position = [0.0] * len(self.above)
        for layer in self.layers:
            _assign_positions(layer, position)
        for sweep in range(SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for layer in reversed(self.layers) if sweep % 2 else self.layers:
                wanted = {i: _mean([position[n] for n in neighbours[i]], position[i]) for i in layer}
                layer.sort(key=lambda i: wanted[i])
                _assign_positions(layer, position)

    def place(self) -> None:
        """Assign coordinates: near to neighbours, in order, with gaps."""
        self.x = [0.0] * len(self.above)
        for layer in self.layers:
            at = -sum(self._width(i) + GAP for i in layer) / 2
            for i in layer:
                self.x[i] = at + self._width(i) / 2
                at += self._width(i) + GAP
        for sweep in range(4 * SWEEPS):
            both = sweep >= SWEEPS
            for layer in reversed(self.layers) if sweep % 2 else self.layers:
                self._settle(layer, sweep % 2 == 1, both)
        self._straighten()

    def _settle(self, layer: list[int], upwards: bool, both: bool) -> None:
        wanted, weights, offsets = [], [], []
        at = 0.0
        for previous, i in zip([None, *layer], layer, strict=False):
            if previous is not None:
                at += (self._width(previous) + self._width(i)) / 2 + GAP
            offsets.append(at)
            near = [*self.above[i], *self.below[i]] if both else self.below[i] if upwards else self.above[i]
            wanted.append(_mean([self.x[n] for n in near], self.x[i]) - at)
            # Long edges are to be straight.
            weights.append(4.0 if i >= len(self.boxes) else 1.0 + len(near))
        for i, offset, x in zip(layer, offsets, _monotone(wanted, weights), strict=True):
            self.x[i] = x + offset

    def _straighten(self) -> None:
        """Remove the slow drift that accumulates over layers: each moves by the mean place of those around."""
        centres = [_mean([self.x[i] for i in layer if i < len(self.boxes)], 0.0) for layer in self.layers]
        for number, layer in enumerate(self.layers):
            near = centres[max(0, number - WINDOW) : number + WINDOW + 1]
            shift = _mean(near, 0.0)
            for i in layer:
                self.x[i] -= shift

    def _width(self, i: int) -> float:
        return self.boxes[i].width if i < len(self.boxes) else 2.0

    def drawing(self) -> Drawing:
        """Assign the tops of layers, and move everything to the origin."""
        tops, at = [], GAP
        heights = [
            max((self.boxes[i].height for i in layer if i < len(self.boxes)), default=8.0) for layer in self.layers
        ]
        for height in heights:
            tops.append(at)
            at += height + LAYER
        left = min((self.x[i] - self._width(i) / 2 for i in range(len(self.x))), default=0.0) - GAP
        right = max((self.x[i] + self._width(i) / 2 for i in range(len(self.x))), default=0.0)
        for i, box in enumerate(self.boxes):
            box.x, box.y = self.x[i] - left, tops[self.layer[i]]
        edges = [
            (first, last, [(self.x[p] - left, tops[self.layer[p]] + heights[self.layer[p]] / 2) for p in way])
            for (first, last), way in self.ways.items()
        ]
        return Drawing(self.boxes, edges, right - left + GAP, at)


def _assign_positions(layer: Sequence[int], position: list[float]) -> None:
    """Assign positions in a layer around its middle, so that layers of different sizes compare."""
    middle = (len(layer) - 1) / 2
    for place, i in enumerate(layer):
        position[i] = place - middle


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _monotone(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing numbers closest to those wanted (pool adjacent violators)."""
    pools: list[list[float]] = []
    for value, weight in zip(wanted, weights, strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            later, earlier = pools.pop(), pools.pop()
            mass = earlier[1] + later[1]
            mean = (earlier[0] * earlier[1] + later[0] * later[1]) / mass
            pools.append([mean, mass, earlier[2] + later[2]])
    return [value for value, _, count in pools for _ in range(int(count))]
