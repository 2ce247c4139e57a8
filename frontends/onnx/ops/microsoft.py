"""Operators of `com.microsoft` that ONNX Runtime's optimizer and quantizer write into models."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.dtypes import DTYPES
from mirlo.frontends.library.normalizations import layer_norm, rms_norm
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted, Output
from mirlo.frontends.tensor import Tensor, concat

DOMAIN = "com.microsoft"


@converter("Gelu", domain=DOMAIN)
def gelu(node: Node) -> Converted:
    return node.emit("gelu", node[0])


@converter("BiasGelu", domain=DOMAIN)
def bias_gelu(node: Node) -> Converted:
    return node.emit("gelu", node[0] + node[1])


@converter("FastGelu", domain=DOMAIN)
def fast_gelu(node: Node) -> Converted:
    x = node[0] + node[1] if node.has(1) else node[0]
    return node.emit("gelu", x, approximate="tanh")


@converter("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(node: Node) -> Tensor:
    if node.attr.bool("transBatchA", 0) or node.attr.bool("transBatchB", 0):
        raise NodeError("attributes 'transBatchA' and 'transBatchB' must be 0")
    product = node[0].matmul(
        node[1], transpose_lhs=node.attr.bool("transA", 0), transpose_rhs=node.attr.bool("transB", 0)
    )
    alpha = node.attr.float("alpha", 1.0)
    return product if alpha == 1 else product * alpha


@converter("SimplifiedLayerNormalization")
@converter("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_normalization(node: Node) -> Tensor:
    node.attr.ignore("stash_type")  # accumulators are f32 or better
    return rms_norm(node[0], node[1], node.attr.int("axis", -1), node.attr.float("epsilon", 1e-5))


@converter("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(node: Node) -> Converted:
    """Convert input + skip (+ bias), normalized; outputs 1 and 2 exist only in training, output 3 is the sum."""
    total = _skip_sum(node, 4)
    epsilon = node.attr.float("epsilon", 1e-12)
    return _with_sum(node, layer_norm(total, node[2], node.optional(3), -1, epsilon), total)


@converter("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(node: Node) -> Converted:
    total = _skip_sum(node, 3)
    epsilon = node.attr.float("epsilon", 1e-12)
    return _with_sum(node, rms_norm(total, node[2], -1, epsilon), total)


def _skip_sum(node: Node, bias: int) -> Tensor:
    total = node[0] + node[1]
    return total + node[bias] if node.has(bias) else total


def _with_sum(node: Node, result: Tensor, total: Tensor) -> Sequence[Output]:
    if node.has_output(1) or node.has_output(2):
        raise NodeError("training is not supported: mean and deviation are outputs; export the model for inference")
    return result, None, None, total


# Quantized operators, on dequantized values


def real(node: Node, value: int, scale: int, zero_point: int) -> Tensor:
    """Dequantize an input to f32, with a scale and zero point per tensor."""
    zero = scalar_input(node, zero_point) if node.has(zero_point) else None
    return node.emit("dequantize", node[value], scalar_input(node, scale), zero, dtype=node.type(scale).dtype)


def scalar_input(node: Node, index: int) -> Tensor:
    tensor_type = node.type(index)
    if tensor_type.elements != 1:
        raise NodeError(f"input {node.input_name(index)} must have one element, got {tensor_type}")
    return node[index] if tensor_type.rank == 0 else node[index].reshape(())


def quantized(node: Node, value: Tensor, scale: int, zero_point: int, default: str = "u8") -> Tensor:
    dtype = node.type(zero_point).dtype if node.has(zero_point) else DTYPES[default]
    zero = scalar_input(node, zero_point) if node.has(zero_point) else None
    return node.emit("quantize", value, scalar_input(node, scale), zero, dtype=dtype)


@converter("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_binary(node: Node) -> Converted:
    name = "add" if node.operator == "QLinearAdd" else "multiply"
    result = node.emit(name, real(node, 0, 1, 2), real(node, 3, 4, 5))
    return quantized(node, result, 6, 7, node.type(0).dtype.name)


@converter("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def qlinear_unary(node: Node) -> Converted:
    x = real(node, 0, 1, 2)
    if node.operator == "QLinearSigmoid":
        result = x.sigmoid()
    else:
        result = node.emit("leaky_relu", x, alpha=node.attr.float("alpha", 0.01))
    return quantized(node, result, 3, 4, node.type(0).dtype.name)


@converter("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(node: Node) -> Converted:
    rank = node.type(0).rank
    axes = range(1, rank - 1) if node.attr.bool("channels_last", 0) else range(2, rank)
    result = real(node, 0, 1, 2).mean(tuple(axes), keepdims=True)
    return quantized(node, result, 3, 4, node.type(0).dtype.name)


@converter("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node) -> Converted:
    """Convert; inputs: the output's scale and zero point, then triples of tensor, scale, zero point."""
    parts = [real(node, i, i + 1, i + 2) for i in range(2, len(node), 3)]
    return quantized(node, concat(parts, axis=node.attr.int("axis")), 0, 1)


@converter("QGemm", domain=DOMAIN)
def qgemm(node: Node) -> Converted:
    """Convert to alpha * A' * B' + C.

    C is i32, in units of alpha and the two scales; without an output scale, Y is real.
    """
    transposed = node.attr.bool("transB", 0)
    product = real(node, 0, 1, 2).matmul(
        _real_columns(node, 3, 4, 5, axis=0 if transposed else 1),
        transpose_lhs=node.attr.bool("transA", 0),
        transpose_rhs=transposed,
    )
    alpha = node.attr.float("alpha", 1.0)
    if alpha != 1:
        product = product * alpha
    if node.has(6):
        per_column = node[4] if node.type(4).elements != 1 else scalar_input(node, 4)
        unit = scalar_input(node, 1) * per_column
        if alpha != 1:
            unit = unit * alpha
        addend = node[6].cast(product.type.dtype) * unit
        product = product + addend
    return quantized(node, product, 7, 8) if node.has(7) else product


@converter("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(node: Node) -> Tensor:
    """Convert; inputs: A, B, scale of A, scale of B (possibly per column), zero point of A, of B, bias."""
    lhs = real(node, 0, 2, 4)
    product = lhs @ _real_columns(node, 1, 3, 5, axis=node.type(1).rank - 1)
    return product + node[6] if node.has(6) else product


def _real_columns(node: Node, index: int, scale: int, zero: int, axis: int) -> Tensor:
    """Dequantize an operand with one scale and zero point, or one per column."""
    scales, zeros = node[scale], node.optional(zero)
    if node.type(scale).elements == 1:
        scales, zeros = scalar_input(node, scale), scalar_input(node, zero) if node.has(zero) else None
    return node.emit("dequantize", node[index], scales, zeros, axis=axis, dtype=node.type(scale).dtype)
