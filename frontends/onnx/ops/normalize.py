"""Normalizations."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.frontends.library import normalizations as library
from mirlo.frontends.onnx.dtypes import FLOAT_CODE, onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import DECLINED, Converted
from mirlo.frontends.sizes import divisible
from mirlo.frontends.tensor import Tensor


@converter("LayerNormalization")
def layer_normalization(node: Node) -> Converted:
    if node.has_output(1) or node.has_output(2):
        return DECLINED  # mean and deviation are wanted too: the function body computes them
    _require_f32_stash(node)
    axis, epsilon = node.attr.int("axis", -1), node.attr.float("epsilon", 1e-5)
    return library.layer_norm(node[0], node[1], node.optional(2), axis, epsilon)


@converter("RMSNormalization")
def rms_normalization(node: Node) -> Converted:
    _require_f32_stash(node)
    return library.rms_norm(node[0], node[1], node.attr.int("axis", -1), node.attr.float("epsilon", 1e-5))


def _require_f32_stash(node: Node) -> None:
    """Check that 'stash_type' is FLOAT: sums are accumulated in f32 or better."""
    code = node.attr.int("stash_type", FLOAT_CODE)
    if onnx_dtype(code, "attribute 'stash_type'").name not in ("FLOAT", node.type(0).dtype.name.upper()):
        raise NodeError(f"attribute 'stash_type' must be 1 (FLOAT), got {code}")


@converter("BatchNormalization")
def batch_normalization(node: Node) -> Converted:
    """Normalize with the model's statistics; in training, with those of the batch."""
    if node.opset >= 14 and node.attr.bool("training_mode", 0):
        return _batch_statistics(node)
    if node.attr.bool("training_mode", 0) or any(node.has_output(i) for i in range(1, 5)):
        raise NodeError("training is not supported, and the statistics of the batch are outputs: export for inference")
    if not node.attr.bool("spatial", 1):
        raise NodeError("attribute 'spatial' must be 1, got 0")
    node.attr.ignore("momentum", "is_test")  # they concern the update of running statistics in training
    return library.batch_norm(node[0], node[1], node[2], node[3], node[4], node.attr.float("epsilon", 1e-5))


def _batch_statistics(node: Node) -> list[Tensor]:
    """Normalize with mean and variance of the batch, and update the running ones."""
    x, epsilon, share = node[0], node.attr.float("epsilon", 1e-5), 1 - node.attr.float("momentum", 0.9)
    result, mean, variance = library.batch_norm_of_batch(x, node[1], node[2], epsilon)
    return [result, library.moved(node[3], mean, share), library.moved(node[4], variance, share)]


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Converted:
    return node.emit("instance_norm", node[0], node[1], node[2], epsilon=node.attr.float("epsilon", 1e-5))


@converter("GroupNormalization", since=18)
def group_normalization_per_group(node: Node) -> Converted:
    """Convert opset 18 to 20: one scale and bias per group, repeated for its channels."""
    groups, channels = _groups(node)
    scale, bias = (
        node[i].reshape((groups, 1)).expand((groups, channels // groups)).reshape((channels,)) for i in (1, 2)
    )
    return library.group_norm(node[0], scale, bias, groups, node.attr.float("epsilon", 1e-5))


@converter("GroupNormalization", since=21)
def group_normalization(node: Node) -> Converted:
    groups, _ = _groups(node)
    _require_f32_stash(node)
    epsilon = node.attr.float("epsilon", 1e-5)
    return library.group_norm(node[0], node[1], node[2], groups, epsilon)


def _groups(node: Node) -> tuple[int, Dim]:
    groups, x = node.attr.int("num_groups"), node.type(0)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups != 0:
        text = f"attribute 'num_groups' is {groups}, which does not divide the channels of {x}"
        if x.rank < 2 or groups < 1:
            raise NodeError(text)
        raise DimsDiffer(text, *divisible(x.shape[1], groups))
    return groups, x.shape[1]


@converter("LRN")
def lrn(node: Node) -> Converted:
    return node.emit(
        "lrn",
        node[0],
        size=node.attr.int("size"),
        alpha=node.attr.float("alpha", 1e-4),
        beta=node.attr.float("beta", 0.75),
        bias=node.attr.float("bias", 1.0),
    )


@converter("LpNormalization")
def lp_normalization(node: Node) -> Converted:
    return node.emit("lp_normalize", node[0], axis=node.attr.int("axis", -1), p=node.attr.int("p", 2))


@converter("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Converted:
    """Convert to (x - mean) / (deviation + 1e-9), with ONNX's constant."""
    statistics = library.moments(node[0], node.attr.ints("axes", [0, 2, 3]))
    return statistics.centred / (statistics.variance.sqrt() + 1e-9)
