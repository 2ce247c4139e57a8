"""Cases of patches, regions, boxes, determinants, n-grams and random numbers."""

from __future__ import annotations

import numpy as np

from mirlo.tools.conformance.case import ANY, FLOATS, INTS, Draw, OperatorCase, case, operator, wide
from mirlo.tools.conformance.networks import convolved


def patches_to_image(x: np.ndarray) -> np.ndarray:
    """Return [N, C * 6, 3 * 5] of adjacent windows of 2 by 3, at steps of 1 and 1, as images of 4 by 7."""
    image = np.zeros((len(x), x.shape[1] // 6, 4, 7), x.dtype)
    blocks = x.reshape(len(x), -1, 2, 3, 3, 5)
    for i in range(2):
        for j in range(3):
            image[:, :, i : i + 3, j : j + 5] += blocks[:, :, i, j]
    return image


@operator("col2im")
def _col2im(draw: Draw) -> OperatorCase:
    x = draw.array(2, 18, 15)
    return case(x, None, image=[4, 7], window=[2, 3], expected=patches_to_image(wide(x)))


@operator("col2im")
def _col2im_of_sizes(draw: Draw) -> OperatorCase:
    x = draw.array(2, 18, 15)
    return case(x, np.array([2, 3]), image=[4, 7], channels=3, expected=patches_to_image(wide(x)))


@operator("roi_align", kinds=("f32", "f64"))
def _roi_align(draw: Draw) -> OperatorCase:
    """Return regions whose bins are sampled at pixel centers."""
    x = draw.array(2, 3, 6, 6)
    rois = np.array([[1, 0, 3, 4], [0, 2, 4, 4]], x.dtype)
    w = wide(x)
    tall = w[1, :, :4, 1:3].reshape(3, 2, 2, 2, 1).mean((2, 4))
    broad = w[0, :, 2:4, :4].reshape(3, 2, 1, 2, 2).mean((2, 4))
    expected = np.stack([tall, broad])
    return case(x, rois, np.array([1, 0]), height=2, width=2, expected=expected)


@operator("max_roi_pool", kinds=("f32", "f64"))
def _max_roi_pool(draw: Draw) -> OperatorCase:
    """Return regions of whole pixels, which bins divide evenly, and one outside of its image."""
    x = draw.array(2, 3, 6, 6)
    rois = np.array([[2, 0, 4, 6], [0, 4, 6, 10], [20, 20, 22, 22]], x.dtype)
    w = wide(x)
    tall = w[1, :, :4, 1:3].reshape(3, 2, 2, 2, 1).max((2, 4))
    broad = w[0, :, 2:6, :4].reshape(3, 2, 2, 2, 2).max((2, 4))
    expected = np.stack([tall, broad, np.zeros_like(tall)])
    return case(x, rois, np.array([1, 0, 1]), height=2, width=2, scale=0.5, expected=expected)


@operator("deform_conv", kinds=("f32", "f64"))
def _deform_conv(draw: Draw) -> OperatorCase:
    """Return a deformable convolution with offsets by whole pixels, the same everywhere: one of a shifted image."""
    x, weight, bias = draw.array(2, 4, 6, 7), draw.array(5, 4, 3, 3), draw.array(5)
    offset = np.zeros((2, 9, 2, 4, 5), x.dtype)
    offset[:, :, 1] = 1
    mask = np.full((2, 9, 4, 5), 0.5, x.dtype)
    moved = np.pad(wide(x)[..., 1:], [(0, 0)] * 3 + [(0, 1)])
    expected = convolved(moved, wide(weight), 1, 0) * 0.5 + wide(bias)[:, None, None]
    return case(x, weight, offset.reshape(2, 18, 4, 5), bias, mask, expected=expected)


@operator("non_max_suppression", kinds=("f32", "f64"))
def _non_max_suppression(draw: Draw) -> OperatorCase:
    """Return boxes next to each other, the second over the first."""
    rows = [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 3, 1, 4], [0, 6, 1, 7]]
    boxes, scores = np.array([rows], draw.kind.to_numpy()), np.array([[[0.5, 0.75, 1, 0.25]]], draw.kind.to_numpy())
    overlap, threshold = (np.array(number, boxes.dtype) for number in (0.5, 0.3))
    selected = np.array([[0, 0, 2], [0, 0, 1], [0, 0, 0]])
    selected[2] = 0
    return case(boxes, scores, np.array(3), overlap, threshold, most=[3], expected=(selected, np.array(2)))


@operator("det", kinds=("f32", "f64"))
def _det(draw: Draw) -> OperatorCase:
    x = draw.array(3, 4, 4)
    return case(x, expected=np.linalg.det(wide(x)))


@operator("inverse", kinds=("f32", "f64"))
def _inverse(draw: Draw) -> OperatorCase:
    x = draw.array(3, 4, 4) + 5 * np.eye(4, dtype=draw.kind.to_numpy())
    return case(x, expected=np.linalg.inv(wide(x)))


@operator("cholesky", kinds=("f32", "f64"))
def _cholesky(draw: Draw) -> OperatorCase:
    x = draw.array(3, 4, 4)
    x = x @ x.swapaxes(1, 2) + 5 * np.eye(4, dtype=x.dtype)
    return case(x, expected=np.linalg.cholesky(wide(x)))


@operator("triangular_solve", kinds=("f32", "f64"))
def _triangular_solve(draw: Draw) -> OperatorCase:
    x, right = draw.array(3, 4, 4) + 5 * np.eye(4, dtype=draw.kind.to_numpy()), draw.array(3, 4, 2)
    return case(x, right, lower=False, expected=np.linalg.solve(np.triu(wide(x)), wide(right)))


@operator("lu", kinds=("f32", "f64"))
def _lu(draw: Draw) -> OperatorCase:
    """Return products of factors with rows exchanged, such that the elimination exchanges them back."""
    lower = np.tril(draw.array(3, 4, 4, low=-0.5, high=0.5), -1) + np.eye(4)
    upper = np.triu(draw.array(3, 4, 4), 1) + 5 * np.eye(4)
    x = (lower @ upper)[:, [1, 0, 3, 2]].astype(draw.kind.to_numpy())
    pivots = np.broadcast_to(np.array([1, 1, 3, 3]), (3, 4))
    return case(x, expected=(lower + upper - np.eye(4), pivots))


@operator("count_ngrams", kinds=INTS)
def _count_ngrams(draw: Draw) -> OperatorCase:
    x = draw.array(2, 30, low=0, high=2)
    grams = np.array([[0, 1], [2, 2]], x.dtype)
    pairs = [(x[:, : 30 - d, None] == grams[:, 0]) & (x[:, d:, None] == grams[:, 1]) for d in (1, 2)]
    return case(x, grams, skips=1, expected=sum(matches.sum(1) for matches in pairs))


@operator("random_uniform", kinds=FLOATS)
def _random_uniform(draw: Draw) -> OperatorCase:
    expected = np.random.RandomState(17).uniform(-2, 3, (30, 40))
    return case(np.array(17), shape=[30, 40], low=-2.0, high=3.0, dtype=draw.kind.name, expected=expected)


@operator("random_normal", kinds=FLOATS)
def _random_normal(draw: Draw) -> OperatorCase:
    expected = np.random.RandomState(17).normal(1, 2, (30, 40))
    return case(np.array(17), shape=[30, 40], mean=1.0, scale=2.0, dtype=draw.kind.name, expected=expected)


@operator("find_sorted", kinds=(*FLOATS, *INTS))
def _find_sorted(draw: Draw) -> OperatorCase:
    x, keys = draw.array(20, 5, low=0, high=9), np.array([1, 2, 5, 7, 9], draw.kind.to_numpy())
    if draw.is_float:
        x = np.round(x.astype(np.float64)).astype(x.dtype)
    places = np.searchsorted(wide(keys), wide(x)).clip(max=4)
    return case(x, keys, expected=np.where(wide(keys)[places] == wide(x), places, -1))


@operator("argsort_rows", kinds=ANY)
def _argsort_rows(draw: Draw) -> OperatorCase:
    x = draw.array(30, 3, low=0, high=2)
    x = np.round(x.astype(np.float64)).astype(x.dtype) if draw.is_float else x
    return case(x, expected=np.lexsort(wide(x).T[::-1]))


@operator("tree_ensemble", kinds=("f32", "f64"))
def _tree_ensemble(draw: Draw) -> OperatorCase:
    """Return two trees: x0 <= 0 and then x1 > 1, and a single leaf."""
    x, thresholds = draw.array(20, 2), np.array([0, 1], draw.kind.to_numpy())
    nodes, roots = np.array([[0, 0, 1, -1], [1, 3, -2, -3]]), np.array([0, -4])
    first = np.where(x[:, 0] > 0, 0, np.where(x[:, 1] > 1, 1, 2))
    weights = draw.array(4, 3)
    return case(x, thresholds, nodes, roots, weights, expected=wide(weights)[first] + wide(weights)[3])
