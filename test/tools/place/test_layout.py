"""The drawing of graphs: nothing overlaps, edges go down, and thousands of boxes take seconds."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from mirlo.tools.place.layout import Box, Drawing, _monotone, draw


def _random_graph(count: int, seed: int) -> tuple[list[Box], list[list[int]]]:
    rng = random.Random(seed)
    boxes = [Box(rng.uniform(60, 200), 38) for _ in range(count)]
    reads: list[list[int]] = [[]]
    for i in range(1, count):
        near = {max(0, i - rng.randint(1, 6)) for _ in range(rng.randint(0, 3))}
        far = {rng.randrange(i)} if rng.random() < 0.05 else set()
        reads.append(sorted(near | far))
    return boxes, reads


def _check(drawing: Drawing, reads: list[list[int]]) -> None:
    layers: dict[float, list[Box]] = {}
    for box in drawing.boxes:
        layers.setdefault(box.y, []).append(box)
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= drawing.width
        assert box.y >= 0 and box.y + box.height <= drawing.height
    for layer in layers.values():
        layer.sort(key=lambda box: box.x)
        assert all(a.x + a.width / 2 < b.x - b.width / 2 for a, b in pairwise(layer))
    assert {(a, b) for a, b, _ in drawing.edges} == {(a, b) for b, found in enumerate(reads) for a in found}
    for first, last, points in drawing.edges:
        ys = [drawing.boxes[first].y, *(y for _, y in points), drawing.boxes[last].y]
        assert ys == sorted(ys) and len(set(ys)) == len(ys)


@pytest.mark.sample(0)
def test_random_graphs() -> None:
    for seed in range(40):
        boxes, reads = _random_graph(1 + seed * 3, seed)
        _check(draw(boxes, reads), reads)


def test_a_chain_is_a_straight_line() -> None:
    drawing = draw([Box(80 + 10 * (i % 5), 38) for i in range(50)], [[i - 1] if i else [] for i in range(50)])
    assert max(box.x for box in drawing.boxes) - min(box.x for box in drawing.boxes) < 1


def test_edges_past_layers_are_shared() -> None:
    reads = [[], [0], [1], [0, 2], [0, 3]]
    drawing = draw([Box(60, 38) for _ in reads], reads)
    passes = {(first, last): points for first, last, points in drawing.edges}
    assert passes[0, 4][:2] == passes[0, 3] and len(passes[0, 4]) == 3


@pytest.mark.sample(0)
def test_thousands_of_boxes() -> None:
    boxes, reads = _random_graph(4000, 1)
    start = time.perf_counter()
    _check(draw(boxes, reads), reads)
    assert time.perf_counter() - start < 60


def test_nothing() -> None:
    assert draw([], []).boxes == []


def test_places_in_order_are_the_closest_ones() -> None:
    """No other non-decreasing numbers are closer to those wanted, by weighted squares."""
    rng = random.Random(3)
    for _ in range(30):
        wanted = [rng.uniform(-5, 5) for _ in range(6)]
        weights = [rng.uniform(0.5, 4) for _ in range(6)]
        found = _monotone(wanted, weights)
        assert found == sorted(found)

        def distance(places: list[float], wanted: list[float] = wanted, weights: list[float] = weights) -> float:
            return sum(w * (x - y) ** 2 for x, y, w in zip(places, wanted, weights, strict=True))

        near = [sorted(x + rng.gauss(0, 0.3) for x in found) for _ in range(200)]
        assert all(distance(found) <= distance(places) + 1e-9 for places in near)
