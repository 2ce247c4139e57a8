"""ai.onnx.ml: from scores to what is asked for: transforms of scores, labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import select_strings, select_values
from mirlo.frontends.onnx.values import Output
from mirlo.frontends.tensor import Tensor

PROBIT_A, PROBIT_B = 0.147, 2 / (np.pi * 0.147)
"""Winitzki's approximation of the inverse of erf."""


def transformed(node: Node, scores: Tensor, transform: str) -> Tensor:
    """Transform the scores [N, targets]."""
    if transform == "NONE":
        return scores
    if transform == "SOFTMAX":
        return node.emit("softmax", scores, axis=-1)
    if transform == "LOGISTIC":
        return node.emit("sigmoid", scores)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(node, scores)
    return _probit(node, scores)


def _softmax_zero(node: Node, scores: Tensor) -> Tensor:
    """Return the softmax of the scores that are not 0; where all are 0, there is none: NaN, as in ONNX Runtime."""
    kind = scores.type
    largest = node.emit("reduce_max", scores, axes=[-1], keepdims=True)
    is_zero = node.emit("abs", scores) <= 1e-7
    powers = node.emit("exp", scores - largest)
    zero = node.constant(0, kind)
    total = node.emit("reduce_sum", node.emit("where", is_zero, zero, powers), axes=[-1], keepdims=True)
    kept = scores * node.emit("exp", -largest)
    return node.emit("where", is_zero, kept, powers) / total


def _probit(node: Node, scores: Tensor) -> Tensor:
    x = scores * 2 - 1
    log = node.emit("log", 1 - node.emit("square", x))
    half = log * 0.5 + PROBIT_B
    root = node.emit("sqrt", node.emit("square", half) - log / PROBIT_A)
    size = node.emit("sqrt", root - half)
    return node.emit("sign", x) * size * float(np.sqrt(2))


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
        best = node.emit("cast", scores > threshold, dtype="i64")
        indices = node.emit("reshape", best, shape=(tensor_type.shape[0],))
        return labelled(node, indices, labels), _two(
            node, scores, transform, threshold == 0 if mirrored is None else mirrored
        )
    if count != len(labels):
        raise NodeError(f"there are {len(labels)} labels for {count} scores")
    indices = node.emit("argmax", scores, axis=1, keepdims=False)
    return labelled(node, indices, labels), transformed(node, scores, transform)


def _two(node: Node, scores: Tensor, transform: str, mirrored: bool) -> Tensor:
    if transform == "PROBIT":
        return _probit(node, scores)
    if transform == "LOGISTIC":
        second = node.emit("sigmoid", scores)
        return node.emit("concat", [1 - second, second], axis=1)
    first = -scores if mirrored else 1 - scores
    return node.emit("concat", [first, scores], axis=1)  # which other transforms leave as it is


def labelled(node: Node, places: Tensor, labels: Sequence[int | str]) -> Output:
    """Return the labels of the classes at these places."""
    if isinstance(labels[0], str):
        return select_strings(node, places, list(map(str, labels)), None)[0]
    return select_values(node, places, np.array(labels, np.int64), labels[0])
