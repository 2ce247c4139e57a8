"""ai.onnx.ml: probabilities of classes from comparisons of each two of them, as libsvm couples them.

The method is that of T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise
Coupling" (2004), algorithm 2, with the tolerance and the number of rounds of libsvm and ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.values import AnyValue, LoopIteration
from mirlo.frontends.tensor import Tensor, concat, where

_MAX_ITERATIONS = 100
_TOLERANCE = 0.005
"""Divided by the number of classes: the residual at which a row is done."""
_MIN_PROBABILITY = 1e-7
"""No comparison is more certain than 1 less this."""


def pair_probabilities(node: Node, scores: Tensor, a: Sequence[float], b: Sequence[float]) -> Tensor:
    """Return the probability that the first class of each pair wins, [N, pairs], from the scores of the pairs."""
    shifted = scores * node.constant(a, "f32") + node.constant(b, "f32")
    probability = (-shifted).sigmoid()
    return probability.clip(_MIN_PROBABILITY, float(np.float32(1) - np.float32(_MIN_PROBABILITY)))


def class_probabilities(node: Node, wins: Tensor, classes: int) -> Tensor:
    """Return the probabilities of the classes, [N, classes], that fit those of the pairs best."""
    matrix = _matrix(node, wins, classes)
    rows = wins.type.shape[0]
    start = node.emit("full", shape=(rows, classes), value=1 / classes, dtype="f32")
    tolerance = node.constant(np.float32(_TOLERANCE) / np.float32(classes), "f32")

    def make(number: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        p = node.ssa(values[0])
        product = (matrix * p.expand_dims(1)).sum(2)
        form = (p * product).sum(1, keepdims=True)
        residual = abs(product - form)
        is_open = residual.max(1, keepdims=True) >= tolerance
        swept = _sweep(node, matrix, classes, p, product, form)
        opened = is_open.cast("i64").sum([0, 1])
        goes_on = opened > 0
        return goes_on, [where(is_open, swept, p)], []

    limit = node.constant(_MAX_ITERATIONS, "i64")
    (probabilities,) = node.builder.loop(LoopIteration(make), limit, None, [start])
    return node.ssa(probabilities)


def _matrix(node: Node, wins: Tensor, classes: int) -> Tensor:
    """Return Q of the quadratic form that is made least, [N, classes, classes]."""
    rows, pairs = wins.type.shape
    assert isinstance(pairs, int)
    index = np.full((classes, classes), 2 * pairs)  # the diagonal: the column of zeros at the end
    for at, (i, j) in enumerate(combinations(range(classes), 2)):
        index[i, j], index[j, i] = at, pairs + at
    losses = 1 - wins
    zeros = node.emit("full", shape=(rows, 1), value=0.0, dtype="f32")
    columns = concat([wins, losses, zeros], axis=1)
    won = columns.gather(node.constant(index, "i64"), 1)
    lost = columns.gather(node.constant(index.T, "i64"), 1)
    diagonal = node.emit("reduce_sum_square", lost, axes=[2], keepdims=True)
    outside = -(lost * won)
    return outside + diagonal * node.constant(np.eye(classes), "f32")


def _sweep(node: Node, matrix: Tensor, classes: int, p: Tensor, product: Tensor, form: Tensor) -> Tensor:
    """Return the probabilities after a step for each class in turn; `product` is Q p and `form` is p Q p."""
    numbers = node.constant(np.arange(classes), "i64")

    def make(number: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        p, product, form = map(node.ssa, values)
        at = node.ssa(number)
        row = matrix.gather(at, 1)
        is_own = numbers.equals(at).cast("f32")
        own, pivot = (x.gather(at, 1).expand_dims(1) for x in (product, row))
        step = (form - own) / pivot
        scale = step + 1
        change = step * pivot + own * 2
        form = form + step * change
        form = form / scale / scale
        product = (product + step * row) / scale
        p = (p + step * is_own) / scale
        return going, [p, product, form], []

    limit = node.constant(classes, "i64")
    states = node.builder.loop(LoopIteration(make), limit, None, [p, product, form])
    return node.ssa(states[0])
