"""ai.onnx.ml: support vector machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN
from mirlo.frontends.onnx.ops.ml_linear import TRANSFORMS, labels_of, linear_scores, rows_of
from mirlo.frontends.onnx.ops.ml_probabilities import class_probabilities, pair_probabilities
from mirlo.frontends.onnx.ops.ml_scores import labelled, transformed
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, concat, where

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _kernel(node: Node, x: Tensor, vectors: np.ndarray) -> Tensor:
    """Compute the kernel function of each row and each support vector: [N, vectors]."""
    name = node.attr.choice("kernel_type", "LINEAR", _KERNELS)
    gamma, shift, degree = (node.attr.floats("kernel_params", None) or [0.0, 0.0, 0.0])[:3]
    if name == "RBF":
        apart = x.expand_dims(1) - node.constant(vectors[None], "f32")
        distance = node.emit("reduce_sum_square", apart, axes=[2])
        return (distance * -gamma).exp()
    product = x.matmul(node.constant(vectors, "f32"), transpose_rhs=True)
    if name == "LINEAR":
        return product
    scaled = product * gamma + shift
    return scaled ** node.constant(degree, "f32") if name == "POLY" else scaled.tanh()


def _vectors(node: Node, count: int, features: Dim) -> np.ndarray:
    vectors = np.array(node.attr.floats("support_vectors"), np.float32)
    if len(vectors) != count * features:
        raise NodeError(f"attribute 'support_vectors' must have {count} x {features} numbers, got {len(vectors)}")
    return vectors.reshape(count, -1)


@converter("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: Node) -> Converted:
    x, count = rows_of(node), node.attr.int("n_supports", 0)
    rho = node.attr.floats("rho", [0.0])
    coefficients = node.attr.floats("coefficients")
    if count:
        near = _kernel(node, x, _vectors(node, count, x.type.shape[1]))
    else:
        node.attr.ignore("support_vectors", "kernel_type", "kernel_params")
        near = x
    matrix = node.constant(np.array(coefficients).reshape(-1, 1), "f32")
    scores = (near @ matrix) + node.constant(rho[:1], "f32")
    if node.attr.bool("one_class", 0):
        is_inside = scores > 0
        scores = where(is_inside, node.constant(1, "f32"), node.constant(-1, "f32"))
    return transformed(node, scores, node.attr.choice("post_transform", "NONE", TRANSFORMS))


@converter("SVMClassifier", domain=DOMAIN)
def svm_classifier(node: Node) -> Converted:
    """Compare each two classes; each comparison is a vote, the most votes win, and of equals the first.

    With `prob_a` the scores are probabilities of the classes, else those of the comparisons. Without support vectors
    each class has a linear score.
    """
    labels, x = labels_of(node), rows_of(node)
    sizes, transform = node.attr.ints("vectors_per_class", []), node.attr.choice("post_transform", "NONE", TRANSFORMS)
    a, b = node.attr.floats("prob_a", []), node.attr.floats("prob_b", [])
    if len(a) != len(b):
        raise NodeError(f"attributes 'prob_a' and 'prob_b' must be of one length, got {len(a)} and {len(b)}")
    if not sum(sizes):
        return _linear_classes(node, x, labels, transform, is_probability=bool(a))
    if len(sizes) != len(labels) or min(sizes) < 0:
        raise NodeError(f"attribute 'vectors_per_class' must have {len(labels)} sizes, got {list(sizes)}")
    if len(labels) < 2:
        raise NodeError("with support vectors there must be two classes or more, got 1")
    count = len(labels) * (len(labels) - 1) // 2  # not listed before the model has a number for each
    for name, length in (("prob_a", len(a) or count), ("rho", len(node.attr.floats("rho")))):
        if length != count:
            raise NodeError(f"attribute '{name}' must have {count} numbers, one for two classes each, got {length}")
    require_table("the classes by pairs of them", count, len(labels), element_bytes=4, source_bytes=4 * count)
    pairs = list(combinations(range(len(labels)), 2))
    scores = _pair_scores(node, x, sizes, pairs)
    chosen = labelled(node, _vote(node, scores, pairs, len(labels)), labels)
    if a:
        wins = pair_probabilities(node, scores, a, b)
        return chosen, transformed(node, class_probabilities(node, wins, len(labels)), transform)
    if len(labels) > 2:
        return chosen, transformed(node, scores, transform)
    if transform == "PROBIT":
        raise NodeError("attribute 'post_transform' = 'PROBIT' needs probabilities, or more than two classes")
    # Of two classes only one has a score. ONNX Runtime makes that of the other one, and leaves out the softmax.
    is_softmax = transform in ("SOFTMAX", "SOFTMAX_ZERO")
    other = _complement(node, scores) if is_softmax else -scores
    both = concat([other, scores], axis=1)
    return chosen, both if is_softmax else transformed(node, both, transform)


def _complement(node: Node, value: Tensor) -> Tensor:
    return 1 - value


def _linear_classes(
    node: Node, x: Tensor, labels: Sequence[int | str], transform: str, is_probability: bool
) -> Converted:
    """Return labels and scores of a model without support vectors: one linear score per class."""
    node.attr.ignore("support_vectors", "kernel_type", "kernel_params")  # it is linear whatever they are
    coefficients, rho = node.attr.floats("coefficients"), node.attr.floats("rho")
    if not rho:
        raise NodeError("attribute 'rho' must have a number")
    scores = linear_scores(node, x, coefficients, [rho[0]] * len(labels), len(labels))
    best = scores.argmax(1)
    if len(labels) == 2 and not is_probability:
        # A score above the threshold is for the second class, whichever of the two has it.
        threshold = 0.5 if min(coefficients) >= 0 else 0.0
        compare = "greater_equal" if threshold else "greater"
        is_second = node.emit(compare, scores.max(1), node.constant(threshold, "f32"))
        best = where(is_second, node.constant(1, "i64"), best)
    is_one = len(labels) == 1 and transform != "PROBIT"  # a single score is not transformed
    return labelled(node, best, labels), scores if is_one else transformed(node, scores, transform)


def _pair_scores(node: Node, x: Tensor, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return the score of the first class in each comparison of two classes: [N, pairs]."""
    count, classes = sum(sizes), len(sizes)
    near = _kernel(node, x, _vectors(node, count, x.type.shape[1]))
    table = np.array(node.attr.floats("coefficients"), np.float32)
    if len(table) != count * (classes - 1):
        raise NodeError(f"attribute 'coefficients' must have {count * (classes - 1)} numbers, got {len(table)}")
    require_table("the vectors by pairs of classes", count, len(pairs), element_bytes=4, source_bytes=table.nbytes)
    matrix = _pair_coefficients(table.reshape(classes - 1, count), sizes, pairs)
    return (near @ node.constant(matrix)) + node.constant(node.attr.floats("rho"), "f32")


def _vote(node: Node, scores: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """Return the index of the class that wins most comparisons."""
    firsts, seconds = (np.eye(classes, dtype=np.float32)[[pair[i] for pair in pairs]] for i in range(2))
    won = (scores > 0).cast("f32")
    votes = (won @ node.constant(firsts)) + (_complement(node, won) @ node.constant(seconds))
    return votes.argmax(1)


def _pair_coefficients(table: np.ndarray, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the coefficients [vectors, pairs]: row c of the table is of a class against its c-th other one."""
    starts = np.cumsum([0, *sizes])
    matrix = np.zeros((starts[-1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        matrix[starts[i] : starts[i + 1], column] = table[j - 1, starts[i] : starts[i + 1]]
        matrix[starts[j] : starts[j + 1], column] = table[i, starts[j] : starts[j + 1]]
    return matrix
