"""ai.onnx.ml: results computed from scores: transformed scores, labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import select_strings, select_values
from mirlo.frontends.onnx.values import Output
from mirlo.frontends.tensor import Tensor, concat, where

PROBIT_A, PROBIT_B = 0.147, 2 / (np.pi * 0.147)
"""Winitzki's approximation of the inverse of erf."""


def transformed(node: Node, scores: Tensor, transform: str) -> Tensor:
    """Transform the scores [N, targets]."""
    if transform == "NONE":
        return scores
    if transform == "SOFTMAX":
        return scores.softmax(-1)
    if transform == "LOGISTIC":
        return scores.sigmoid()
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(node, scores)
    return _probit(node, scores)


def _softmax_zero(node: Node, scores: Tensor) -> Tensor:
    """Return the softmax of the scores that are not 0; where all are 0, there is none: NaN, as in ONNX Runtime."""
    kind = scores.type
    largest = scores.max(-1, keepdims=True)
    is_zero = abs(scores) <= 1e-7
    powers = (scores - largest).exp()
    zero = node.constant(0, kind)
    total = where(is_zero, zero, powers).sum(-1, keepdims=True)
    kept = scores * (-largest).exp()
    return where(is_zero, kept, powers) / total


def _probit(node: Node, scores: Tensor) -> Tensor:
    x = scores * 2 - 1
    log = (1 - x.square()).log()
    half = log * 0.5 + PROBIT_B
    root = (half.square() - log / PROBIT_A).sqrt()
    size = (root - half).sqrt()
    return x.sign() * size * float(np.sqrt(2))


def classified(
    node: Node,
    scores: Tensor,
    labels: Sequence[int | str],
    transform: str,
    threshold: float,
    mirrored: bool | None = None,
) -> tuple[Output, Tensor]:
    """Return the label of the best class and the scores of all classes.

    If there is one score for two classes, a score above the threshold selects the second class. The first one's score
    is 1 - score, or -score if `mirrored` (by default: if the threshold is 0).
    """
    tensor_type = scores.type
    count = tensor_type.shape[1]
    if count == 1 and len(labels) == 2:
        best = (scores > threshold).cast("i64")
        indices = best.reshape((tensor_type.shape[0],))
        return labelled(node, indices, labels), _two(
            node, scores, transform, threshold == 0 if mirrored is None else mirrored
        )
    if count != len(labels):
        raise NodeError(f"there are {len(labels)} labels for {count} scores")
    indices = scores.argmax(1)
    return labelled(node, indices, labels), transformed(node, scores, transform)


def _two(node: Node, scores: Tensor, transform: str, mirrored: bool) -> Tensor:
    if transform == "PROBIT":
        return _probit(node, scores)
    if transform == "LOGISTIC":
        second = scores.sigmoid()
        return concat([1 - second, second], axis=1)
    first = -scores if mirrored else 1 - scores
    return concat([first, scores], axis=1)  # which other transforms leave as it is


def labelled(node: Node, places: Tensor, labels: Sequence[int | str]) -> Output:
    """Return the labels of the classes at these places."""
    if isinstance(labels[0], str):
        return select_strings(places, list(map(str, labels)))
    return select_values(node, places, np.array(labels, np.int64), labels[0])
