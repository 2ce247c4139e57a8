"""ai.onnx.ml: linear models and support vector machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.ml import DOMAIN, as_float, chosen_numbers, chosen_strings
from mirlo.frontends.onnx.ops.ml_scores import classified, transformed
from mirlo.frontends.onnx.registry import converter

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _rows(node: Node) -> Any:
    found = node.type(0)
    if found.rank not in (1, 2) or not isinstance(found.shape[-1], int):
        raise NodeError(f"input 'X' must be [N, features], got {found}")
    x = as_float(node)
    return x if found.rank == 2 else node.emit("reshape", x, shape=(1, found.shape[0]))


def _linear(node: Node, x: Any, coefficients: Sequence[float], intercepts: Sequence[float], targets: int) -> Any:
    features = type_of(x).shape[1]
    assert isinstance(features, int)
    if len(coefficients) != targets * features:
        raise NodeError(
            f"attribute 'coefficients' must have {targets * features} numbers, for {targets} targets and {features} "
            f"features, got {len(coefficients)}"
        )
    matrix = node.constant(np.array(coefficients).reshape(targets, features), "f32")
    product = node.emit("matmul", x, matrix, transpose_rhs=True)
    if not intercepts:
        return product
    if len(intercepts) != targets:
        raise NodeError(f"attribute 'intercepts' must have {targets} numbers, got {len(intercepts)}")
    return node.emit("add", product, node.constant(intercepts, "f32"))


@converter("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node) -> Any:
    targets = node.attr.int("targets", 1)
    scores = _linear(node, _rows(node), node.attr.floats("coefficients"), node.attr.floats("intercepts", []), targets)
    return transformed(node, scores, node.attr.choice("post_transform", "NONE", _TRANSFORMS))


@converter("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: Node) -> Any:
    node.attr.ignore("multi_class")  # says how the model was trained
    labels = _labels(node)
    coefficients, x = node.attr.floats("coefficients"), _rows(node)
    features = type_of(x).shape[1]
    assert isinstance(features, int)
    targets = max(len(coefficients) // max(features, 1), 1)
    scores = _linear(node, x, coefficients, node.attr.floats("intercepts", []), targets)
    return classified(
        node, scores, labels, node.attr.choice("post_transform", "NONE", _TRANSFORMS), 0.0, mirrored=False
    )


def _labels(node: Node) -> Sequence[Any]:
    words, numbers = node.attr.strs("classlabels_strings", None), node.attr.ints("classlabels_ints", None)
    labels = words or numbers
    if not labels:
        raise NodeError("attribute 'classlabels_strings' or 'classlabels_ints' must be given")
    return labels


def _kernel(node: Node, x: Any, vectors: np.ndarray) -> Any:
    """How near each row is to each support vector: [N, vectors]."""
    name = node.attr.choice("kernel_type", "LINEAR", _KERNELS)
    gamma, shift, degree = (node.attr.floats("kernel_params", None) or [0.0, 0.0, 0.0])[:3]

    def number(value: float) -> Any:
        return node.constant(value, "f32")

    if name == "RBF":
        apart = node.emit("subtract", node.emit("expand_dims", x, axes=[1]), node.constant(vectors[None], "f32"))
        distance = node.emit("reduce_sum_square", apart, axes=[2])
        return node.emit("exp", node.emit("multiply", distance, number(-gamma)))
    product = node.emit("matmul", x, node.constant(vectors, "f32"), transpose_rhs=True)
    if name == "LINEAR":
        return product
    scaled = node.emit("add", node.emit("multiply", product, number(gamma)), number(shift))
    return node.emit("power", scaled, number(degree)) if name == "POLY" else node.emit("tanh", scaled)


def _vectors(node: Node, count: int, features: Any) -> np.ndarray:
    vectors = np.array(node.attr.floats("support_vectors"), np.float32)
    if len(vectors) != count * features:
        raise NodeError(f"attribute 'support_vectors' must have {count} x {features} numbers, got {len(vectors)}")
    return vectors.reshape(count, -1)


@converter("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: Node) -> Any:
    x, count = _rows(node), node.attr.int("n_supports", 0)
    rho = node.attr.floats("rho", [0.0])
    coefficients = node.attr.floats("coefficients")
    if count:
        near = _kernel(node, x, _vectors(node, count, type_of(x).shape[1]))
    else:
        node.attr.ignore("support_vectors", "kernel_type", "kernel_params")
        near = x
    matrix = node.constant(np.array(coefficients).reshape(-1, 1), "f32")
    scores = node.emit("add", node.emit("matmul", near, matrix), node.constant(rho[:1], "f32"))
    if node.attr.bool("one_class", 0):
        is_inside = node.emit("greater", scores, node.constant(0, "f32"))
        scores = node.emit("where", is_inside, node.constant(1, "f32"), node.constant(-1, "f32"))
    return transformed(node, scores, node.attr.choice("post_transform", "NONE", _TRANSFORMS))


@converter("SVMClassifier", domain=DOMAIN)
def svm_classifier(node: Node) -> Any:
    """Each two classes are compared, and each comparison is a vote; the most votes win, and of equals the first."""
    labels, x = _labels(node), _rows(node)
    sizes, transform = node.attr.ints("vectors_per_class", []), node.attr.choice("post_transform", "NONE", _TRANSFORMS)
    if not sizes:
        raise NodeError("a linear model without support vectors is not supported: use LinearClassifier")
    if node.attr.floats("prob_a", None):
        raise NodeError("attribute 'prob_a', for probabilities, is not supported: only scores are")
    node.attr.ignore("prob_b")
    if len(sizes) != len(labels):
        raise NodeError(f"attribute 'vectors_per_class' must have {len(labels)} numbers, got {len(sizes)}")
    count = sum(sizes)
    near = _kernel(node, x, _vectors(node, count, type_of(x).shape[1]))
    pairs = list(combinations(range(len(labels)), 2))
    table = np.array(node.attr.floats("coefficients"), np.float32)
    if len(table) != count * (len(labels) - 1):
        raise NodeError(f"attribute 'coefficients' must have {count * (len(labels) - 1)} numbers, got {len(table)}")
    rho = node.attr.floats("rho")
    if len(rho) != len(pairs):
        raise NodeError(f"attribute 'rho' must have {len(pairs)} numbers, one for two classes each, got {len(rho)}")
    matrix = _pair_coefficients(table.reshape(len(labels) - 1, count), sizes, pairs)
    scores = node.emit("add", node.emit("matmul", near, node.constant(matrix)), node.constant(rho, "f32"))
    is_first = node.emit("greater", scores, node.constant(0, "f32"))
    firsts, seconds = (np.eye(len(labels), dtype=np.float32)[[pair[i] for pair in pairs]] for i in range(2))
    won = node.emit("cast", is_first, dtype="f32")
    lost = node.emit("subtract", node.constant(1, "f32"), won)
    votes = node.emit(
        "add", node.emit("matmul", won, node.constant(firsts)), node.emit("matmul", lost, node.constant(seconds))
    )
    places = node.emit("argmax", votes, axis=1, keepdims=False)
    if isinstance(labels[0], str):
        chosen = chosen_strings(node, places, labels, None)[0]
    else:
        chosen = chosen_numbers(node, places, np.array(labels, np.int64), labels[0])
    if len(labels) == 2:
        scores = node.emit("concat", [node.emit("negative", scores), scores], axis=1)
    return chosen, transformed(node, scores, transform)


def _pair_coefficients(table: np.ndarray, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """[vectors, pairs]: row c of the table is of a class against its c-th other one."""
    starts = np.cumsum([0, *sizes])
    matrix = np.zeros((starts[-1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        matrix[starts[i] : starts[i + 1], column] = table[j - 1, starts[i] : starts[i + 1]]
        matrix[starts[j] : starts[j + 1], column] = table[i, starts[j] : starts[j + 1]]
    return matrix
