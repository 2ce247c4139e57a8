"""ai.onnx.ml: from scores to what is asked for: transforms of scores, labels of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.ml import select_strings, select_values
from mirlo.frontends.onnx.values import Output

PROBIT_A, PROBIT_B = 0.147, 2 / (np.pi * 0.147)
"""Winitzki's approximation of the inverse of erf."""


def transformed(node: Node, scores: ir.Value, transform: str) -> ir.Value:
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


def _softmax_zero(node: Node, scores: ir.Value) -> ir.Value:
    """Return the softmax of the scores that are not 0; where all are 0, there is none: NaN, as in ONNX Runtime."""
    kind = type_of(scores)
    largest = node.emit("reduce_max", scores, axes=[-1], keepdims=True)
    is_zero = node.emit("less_equal", node.emit("abs", scores), node.constant(1e-7, kind))
    powers = node.emit("exp", node.emit("subtract", scores, largest))
    zero = node.constant(0, kind)
    total = node.emit("reduce_sum", node.emit("where", is_zero, zero, powers), axes=[-1], keepdims=True)
    kept = node.emit("multiply", scores, node.emit("exp", node.emit("negative", largest)))
    return node.emit("divide", node.emit("where", is_zero, kept, powers), total)


def _probit(node: Node, scores: ir.Value) -> ir.Value:
    kind = type_of(scores)

    def number(value: float) -> ir.Value:
        return node.constant(value, kind)

    x = node.emit("subtract", node.emit("multiply", scores, number(2)), number(1))
    log = node.emit("log", node.emit("subtract", number(1), node.emit("square", x)))
    half = node.emit("add", node.emit("multiply", log, number(0.5)), number(PROBIT_B))
    root = node.emit(
        "sqrt", node.emit("subtract", node.emit("square", half), node.emit("divide", log, number(PROBIT_A)))
    )
    size = node.emit("sqrt", node.emit("subtract", root, half))
    return node.emit("multiply", node.emit("multiply", node.emit("sign", x), size), number(float(np.sqrt(2))))


def classified(
    node: Node,
    scores: ir.Value,
    labels: Sequence[int | str],
    transform: str,
    threshold: float,
    mirrored: bool | None = None,
) -> tuple[Output, ir.Value]:
    """Return the label of the best class and the scores of all classes.

    If there is one score for two classes, a score above the threshold selects the second class. The first one's score
    is 1 - score, or -score if `mirrored` (by default: if the threshold is 0).
    """
    found = type_of(scores)
    count = found.shape[1]
    if count == 1 and len(labels) == 2:
        best = node.emit("cast", node.emit("greater", scores, node.constant(threshold, found)), dtype="i64")
        places = node.emit("reshape", best, shape=(found.shape[0],))
        return labelled(node, places, labels), _two(
            node, scores, transform, threshold == 0 if mirrored is None else mirrored
        )
    if count != len(labels):
        raise NodeError(f"there are {len(labels)} labels for {count} scores")
    places = node.emit("argmax", scores, axis=1, keepdims=False)
    return labelled(node, places, labels), transformed(node, scores, transform)


def _two(node: Node, scores: ir.Value, transform: str, mirrored: bool) -> ir.Value:
    kind = type_of(scores)
    one = node.constant(1, kind)
    if transform == "PROBIT":
        return _probit(node, scores)
    if transform == "LOGISTIC":
        second = node.emit("sigmoid", scores)
        return node.emit("concat", [node.emit("subtract", one, second), second], axis=1)
    first = node.emit("negative", scores) if mirrored else node.emit("subtract", one, scores)
    return node.emit("concat", [first, scores], axis=1)  # which other transforms leave as it is


def labelled(node: Node, places: ir.Value, labels: Sequence[int | str]) -> Output:
    """Return the labels of the classes at these places."""
    if isinstance(labels[0], str):
        return select_strings(node, places, list(map(str, labels)), None)[0]
    return select_values(node, places, np.array(labels, np.int64), labels[0])
