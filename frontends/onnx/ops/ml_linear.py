"""ai.onnx.ml: linear models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN, as_float
from mirlo.frontends.onnx.ops.ml_scores import classified, transformed
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def rows_of(node: Node) -> Tensor:
    """Return input X as f32 [N, features]."""
    tensor_type = node.type(0)
    if tensor_type.rank not in (1, 2) or not isinstance(tensor_type.shape[-1], int):
        raise NodeError(f"input 'X' must be [N, features], got {tensor_type}")
    x = as_float(node)
    return x if tensor_type.rank == 2 else x.reshape((1, tensor_type.shape[0]))


def linear_scores(
    node: Node, x: Tensor, coefficients: Sequence[float], intercepts: Sequence[float], targets: int
) -> Tensor:
    """Return the scores of rows, [N, targets]."""
    features = x.type.shape[1]
    assert isinstance(features, int)
    if len(coefficients) != targets * features:
        raise NodeError(
            f"attribute 'coefficients' must have {targets * features} numbers, for {targets} targets and {features} "
            f"features, got {len(coefficients)}"
        )
    matrix = node.constant(np.array(coefficients).reshape(targets, features), "f32")
    product = x.matmul(matrix, transpose_rhs=True)
    if not intercepts:
        return product
    if len(intercepts) != targets:
        raise NodeError(f"attribute 'intercepts' must have {targets} numbers, got {len(intercepts)}")
    return product + node.constant(intercepts, "f32")


@converter("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node) -> Converted:
    targets = node.attr.int("targets", 1)
    scores = linear_scores(
        node, rows_of(node), node.attr.floats("coefficients"), node.attr.floats("intercepts", []), targets
    )
    return transformed(node, scores, node.attr.choice("post_transform", "NONE", TRANSFORMS))


@converter("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: Node) -> Converted:
    node.attr.ignore("multi_class")  # says how the model was trained
    labels = labels_of(node)
    coefficients, x = node.attr.floats("coefficients"), rows_of(node)
    features = x.type.shape[1]
    assert isinstance(features, int)
    targets = max(len(coefficients) // max(features, 1), 1)
    scores = linear_scores(node, x, coefficients, node.attr.floats("intercepts", []), targets)
    return classified(node, scores, labels, node.attr.choice("post_transform", "NONE", TRANSFORMS), 0.0, mirrored=False)


def labels_of(node: Node) -> Sequence[int | str]:
    """Return the labels of the classes: strings or integers."""
    words, numbers = node.attr.strs("classlabels_strings", None), node.attr.ints("classlabels_ints", None)
    labels = words or numbers
    if not labels:
        raise NodeError("attribute 'classlabels_strings' or 'classlabels_ints' must be given")
    return labels
