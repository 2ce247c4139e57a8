"""Random numbers, and dropout in training.

With the attribute 'seed' the numbers are those of `numpy.random.RandomState(seed)`, the same in every run. Without it
each run draws other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallDpsPacked
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, minimum, where

SEEDS = "mirlo.random_seed"
"""The packed function that returns another seed in each run."""


@converter("RandomUniform", "RandomNormal")
def random(node: Node) -> Converted:
    return _random(node, node.attr.ints("shape"), _dtype(node))


@converter("RandomUniformLike", "RandomNormalLike")
def random_like(node: Node) -> Converted:
    x = node.type(0)
    return _random(node, x.shape, _dtype(node) if "dtype" in node.attr else x.dtype)


def _dtype(node: Node) -> DType:
    result = onnx_dtype(node.attr.int("dtype", 1), "attribute 'dtype'").dtype
    if not result.is_float:
        raise NodeError(f"attribute 'dtype' must be a floating point type, got {result}")
    return result


def _random(node: Node, shape: Sequence[Dim], dtype: DType) -> Tensor:
    if not dtype.is_float:
        raise NodeError(f"random numbers must be of a floating point type: set attribute 'dtype', got {dtype}")
    if "Uniform" in node.operator:
        limits = {"low": node.attr.float("low", 0.0), "high": node.attr.float("high", 1.0)}
        return node.emit("random_uniform", seed(node), shape=shape, dtype=dtype, **limits)
    spread = {"mean": node.attr.float("mean", 0.0), "scale": node.attr.float("scale", 1.0)}
    return node.emit("random_normal", seed(node), shape=shape, dtype=dtype, **spread)


def seed(node: Node) -> Tensor:
    """Return the seed of a node as a value: the attribute, or one from the run time."""
    if "seed" in node.attr:
        number = node.attr.plain("seed")
        if not isinstance(number, (int, float)) or number != number:
            raise NodeError(f"attribute 'seed' must be a number, got {number}")
        return node.constant(np.int64(int(number) & 0xFFFFFFFF))
    # Its name makes the calls of two nodes differ, which would otherwise be merged as equal.
    name = node.constant(np.frombuffer(node.outputs[0].encode(), np.uint8))
    kind = TensorType((), onnx_dtype(7, "").dtype)
    return node.emit(CallDpsPacked, [name], result_types=[kind], function=SEEDS)


@converter("Multinomial")
def multinomial(node: Node) -> Converted:
    """Draw classes by their unnormalized log probabilities: find a uniform number among the cumulative sums."""
    x, count = node.type(0), node.attr.int("sample_size", 1)
    wanted = onnx_dtype(node.attr.int("dtype", 6), "attribute 'dtype'").dtype
    if x.rank != 2 or count < 1:
        raise NodeError(f"expected [batch, classes] and a positive 'sample_size', got {x} and {count}")
    batch, classes = x.shape
    logits = node[0] if x.dtype.bits >= 32 else node[0].cast("f32")
    sums = logits.softmax(-1).cumsum(1)
    element = sums.type.dtype
    drawn = node.emit("random_uniform", seed(node), shape=(batch, count), dtype=element)
    is_past = drawn.expand_dims(2) >= sums.expand_dims(1)
    passed = is_past.cast("i64").sum(2)
    if not isinstance(classes, int):
        raise NodeError(f"the number of classes must be known, got {x}; fix the shapes of the model's inputs")
    most = node.constant(np.int64(classes - 1))
    # Cumulative sums that end below 1 due to rounding leave room after the last class.
    return minimum(passed, most).cast(wanted)


@converter("Bernoulli")
def bernoulli(node: Node) -> Converted:
    """Draw ones with the probabilities that the input holds; the function body of the specification draws the zeros."""
    x = node.type(0)
    wanted = onnx_dtype(node.attr.int("dtype"), "attribute 'dtype'").dtype if "dtype" in node.attr else x.dtype
    drawn = node.emit("random_uniform", seed(node), shape=x.shape, dtype="f64")
    return (drawn < node[0].cast("f64")).cast(wanted)


@converter("Dropout", since=12)
def dropout(node: Node) -> Converted:
    """Convert Dropout: identity in inference; in training, zero random elements and scale the others."""
    x = node.type(0)
    mode = node.value(2) if node.has(2) else None
    if mode is None or (mode.array is not None and not node.scalar(2)):
        node.attr.ignore("seed")
        node.ignore(1)
        everything = node.emit("full", shape=x.shape, value=1, dtype="bool") if node.has_output(1) else None
        return node.value(0), everything
    ratio = node[1].reshape(()) if node.has(1) else node.constant(0.5, "f32")
    drawn = node.emit("random_uniform", seed(node), shape=x.shape, dtype="f64")
    kept = drawn >= ratio.cast("f64")
    grown = 1 / (1 - ratio.cast("f64"))
    if x.dtype.name == "f64":
        factor, data = grown, node[0]
    else:
        factor, data = grown.cast("f32"), node[0].cast("f32")
    dropped = (data * factor).cast(x.dtype)
    result = where(kept, dropped, node.constant(0, x))
    if mode.array is not None:
        return result, kept
    is_training = node[2].reshape(())
    everything = kept | ~is_training
    return where(is_training, result, node[0]), everything
