"""What operators mean in numpy that are computed by loops: running sums, sorting, scattering, matrices, trees.

Elements may be of any kind that numpy adds, multiplies and compares: also exact numbers, in arrays of objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.relax.meanings import Array, widened

COMBINED: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
TESTS: tuple[Callable[[Any, Any], bool], ...] = (
    lambda x, y: x <= y, lambda x, y: x < y, lambda x, y: x >= y, lambda x, y: x > y, lambda x, y: x == y,
    lambda x, y: x != y,
)  # fmt: skip
"""The comparisons of the nodes of trees."""
NAN_IS_TRUE = 8
"""Added to the comparison of a node."""


def running(combine: np.ufunc) -> Callable[..., Array]:
    """Return the meaning of a running sum or product."""

    def meaning(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
        ordered = np.flip(x, axis) if reverse else x
        total = combine.accumulate(widened(ordered), axis)
        if exclusive and total.shape[axis]:
            first = np.full_like(np.take(total, [0], axis), combine.identity)
            total = np.concatenate([first, np.take(total, range(total.shape[axis] - 1), axis)], axis)
        return np.flip(total, axis) if reverse else total

    return meaning


def argsort(x: Array, *, axis: int, descending: bool) -> Array:
    """Return the places of the elements in order, equal ones in their own order."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def sort(x: Array, *, axis: int, descending: bool) -> Array:
    return np.take_along_axis(x, argsort(x, axis=axis, descending=descending), axis)


def argsort_rows(x: Array) -> Array:
    order = np.arange(len(x))
    for column in reversed(range(x.shape[1])):
        order = order[np.argsort(x[order, column], kind="stable")]
    return order


def topk(x: Array, *, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    places = np.take(argsort(x, axis=axis, descending=largest), range(k), axis)
    return np.take_along_axis(x, places, axis), places


def nonzero(x: Array, *, count: Sequence[int]) -> Array:
    return np.array(np.nonzero(x))


def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    size, axis = x.shape[axis], axis % x.ndim
    places = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + size, indices)
    return _scattered(x, places, (places[axis] >= 0) & (places[axis] < size), updates, reduction)


def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    places, is_inside = [], np.ones(indices.shape[:-1], bool)
    for at, size in zip(np.moveaxis(indices, -1, 0), x.shape, strict=False):
        places.append(np.where(at < 0, at + size, at))
        is_inside &= (places[-1] >= 0) & (places[-1] < size)
    return _scattered(x, places, is_inside, updates, reduction)


def _scattered(x: Array, places: Sequence[Array], is_inside: Array, updates: Array, reduction: str) -> Array:
    """Write or combine updates one after the other at places in the first dims of x."""
    result, to = x.copy(), tuple(place[is_inside] for place in places)
    if reduction in COMBINED:
        COMBINED[reduction].at(result, to, updates[is_inside])
    else:
        result[to] = updates[is_inside]
    return result


def cache_write(cache: Array, new: Array, positions: Array, *, shape: Sequence[int]) -> Array:
    result = np.zeros((*cache.shape[:2], shape[2], cache.shape[3]), cache.dtype)
    result[:, :, : cache.shape[2]] = cache
    for batch, rows in enumerate(positions):
        for number, row in enumerate(rows):
            if 0 <= row < shape[2]:
                result[batch, :, row] = new[batch, :, number]
    return result


LONGEST_STEP = 1 << 61
"""Steps of slices beyond any size are clamped: sums with them overflow."""


def slice_bounds(shape: Array, starts: Array, ends: Array, axes: Array | None, steps: Array | None) -> Array:
    """Return begins, lengths and steps; a wrong axis, or a step of 0, makes the first length -1, which is none."""
    sizes = [int(size) for size in shape]
    rank = len(sizes)
    bounds = np.array([[0] * rank, sizes, [1] * rank], np.int64)
    for i in range(len(starts)):
        axis = i if axes is None else int(axes[i])
        axis += rank if axis < 0 else 0
        step = 1 if steps is None else min(max(int(steps[i]), -LONGEST_STEP), LONGEST_STEP)
        if not 0 <= axis < rank or step == 0:
            bounds[1, 0] = -1
            continue
        size, first, last = sizes[axis], int(starts[i]), int(ends[i])
        low, high = (0, size) if step > 0 else (-1, size - 1)
        start = min(max(first if first >= 0 else max(first, -size) + size, 0), high)
        stop = min(max(last if last >= 0 else max(last, -size - 1) + size, low), high)
        length = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step
        bounds[:, axis] = start, max(length, 0), step
    return bounds


def col2im(
    x: Array, sizes: Array | None, *, image: Sequence[int], window: Sequence[int], channels: int,
    strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int],
) -> Array:  # fmt: skip
    """Add each element of each window to its pixel, one after the other."""
    count = len(image)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    padding = padding or (0,) * (2 * count)
    window = window if sizes is None else [max(int(size), 1) for size in sizes]
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=True)]
    spans = [image[i] + padding[i] + padding[count + i] - reach[i] for i in range(count)]
    windows = [max(span // stride + 1, 1) for span, stride in zip(spans, strides, strict=True)]
    channels = channels or x.shape[1] // math.prod(window)
    added = widened(x)
    result = np.zeros((x.shape[0], channels, *image), added.dtype)
    rest, other = np.indices(x.shape[1:])
    place: list[Array] = []
    for i in reversed(range(count)):
        place.insert(0, other % windows[i] * strides[i] - padding[i] + rest % window[i] * dilations[i])
        rest, other = rest // window[i], other // windows[i]
    place.insert(0, rest)
    limits = zip(place, (channels, *image), strict=True)
    inside = np.logical_and.reduce([(at >= 0) & (at < size) for at, size in limits])
    to = tuple(at[inside] for at in place)
    for images, elements in zip(result, added, strict=True):
        np.add.at(images, to, elements[inside])
    return result.astype(x.dtype)


def det(x: Array) -> Array:
    """Return the product of the pivots of an elimination, of all matrices at once."""
    *batch, size, _ = x.shape
    rows = widened(x).reshape(math.prod(batch), size, size).copy()
    result = np.ones(len(rows), rows.dtype)
    for k in range(size):
        is_exchanged = _exchange_pivots(rows, k) != k
        pivots = rows[:, k, k].copy()
        result = np.where(is_exchanged, -result, result) * pivots
        divisors = np.where(pivots == 0, np.ones_like(pivots), pivots)  # the rows below are not needed after a 0
        factors = rows[:, k + 1 :, k] / divisors[:, None]
        rows[:, k + 1 :] = rows[:, k + 1 :] - factors[:, :, None] * rows[:, k, None]
    return result.astype(x.dtype).reshape(batch)


def inverse(x: Array) -> Array:
    """Eliminate above and below the diagonal of all matrices at once, each column replaced by one of the inverse."""
    *batch, size, _ = x.shape
    rows = widened(x).reshape(math.prod(batch), size, size).copy()
    columns = np.tile(np.arange(size), (len(rows), 1))
    every = np.arange(len(rows))
    for k in range(size):
        pivots = _exchange_pivots(rows, k)
        columns[every, k], columns[every, pivots] = columns[every, pivots], columns[every, k].copy()
        divisors = rows[:, k, k].copy()
        rows[:, k, k] = 1
        rows[:, k] = rows[:, k] / divisors[:, None]
        others = [i for i in range(size) if i != k]
        factors = rows[:, others, k]
        rows[:, others, k] = 0
        rows[:, others] = rows[:, others] - factors[:, :, None] * rows[:, k, None]
    result = np.empty_like(rows)
    for k in range(size):  # the inverse of exchanged rows has exchanged columns
        result[every, :, columns[:, k]] = rows[:, :, k]
    return result.astype(x.dtype).reshape(x.shape)


def _exchange_pivots(rows: Array, k: int) -> Array:
    """Exchange row k of each matrix with the one below it whose element k is the largest; return which it was."""
    every = np.arange(len(rows))
    pivots = k + np.argmax(np.abs(rows[:, k:, k]), axis=1)
    rows[every, k], rows[every, pivots] = rows[every, pivots], rows[every, k].copy()
    return pivots


def non_max_suppression(
    boxes: Array, scores: Array, limit: Array, overlap: Array, threshold: Array | None, *, most: Sequence[int],
    center: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Return rows of image, class and box, the best boxes of a class first, and how many rows there are."""
    bound, rows = min(int(limit), most[0]), []
    for image, classes in enumerate(scores):
        corners = [_corners(box, center) for box in widened(boxes[image])]
        for number, row in enumerate(classes):
            kept: list[int] = []
            for box in map(int, argsort(row, axis=0, descending=True)):
                is_candidate = len(kept) < bound and (threshold is None or row[box] > threshold[()])
                if is_candidate and not any(_overlaps(corners[i], corners[box], overlap[()]) for i in kept):
                    kept.append(box)
            rows += [(image, number, box) for box in kept]
    selected = np.zeros((scores.shape[0] * scores.shape[1] * most[0], 3), np.int64)
    selected[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
    return selected, np.array(len(rows))


def _corners(box: Array, center: bool) -> list[Any]:
    """Return the ends of a box along each of two axes."""
    pairs = [(box[i], box[i + 2]) for i in range(2)]
    if center:
        return [end for at, size in pairs for end in (at - size / 2.0, at + size / 2.0)]
    return [end for a, b in pairs for end in (np.minimum(a, b), np.maximum(a, b))]


def _overlaps(a: Sequence[Any], b: Sequence[Any], most: Any) -> bool:
    """Return whether the intersection of two boxes over their union is more than `most`."""
    sides = [np.minimum(a[i + 1], b[i + 1]) - np.maximum(a[i], b[i]) for i in (0, 2)]
    common = sides[0] * sides[1]
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (a, b)]
    return bool(all(side > 0 for side in sides) and common > 0 and common / (areas[0] + areas[1] - common) > most)


def tree_ensemble(
    x: Array,
    thresholds: Array,
    nodes: Array,
    roots: Array,
    weights: Array,
    *,
    mode: int,
    aggregate: str,
    depth: int = 0,
) -> Array:
    """Combine the leaves that each row reaches, tree by tree."""
    limit = depth or len(nodes)
    start = {"sum": 0, "min": np.inf, "max": -np.inf}[aggregate]
    combine = COMBINED["add" if aggregate == "sum" else aggregate]
    result = np.full((len(x), weights.shape[1]), start, weights.dtype)
    for row, features in enumerate(x):
        for root in roots:
            leaf = -1 - _leaf(features, thresholds, nodes, int(root), limit)
            result[row] = combine(result[row], weights[leaf])
    return result


def _leaf(features: Array, thresholds: Array, nodes: Array, node: int, limit: int) -> int:
    """Return the negative number of the leaf that is reached from a node; of leaf 0 if it is not within a limit."""
    for _ in range(limit):
        if node < 0:
            break
        feature, test, if_true, if_false = map(int, nodes[node])
        value = features[feature]
        holds = TESTS[test % NAN_IS_TRUE](value, thresholds[node]) or (test & NAN_IS_TRUE and value != value)  # noqa: PLR0124
        node = if_true if holds else if_false
    return min(node, -1)
