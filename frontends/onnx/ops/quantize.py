"""Quantization, and operators on quantized tensors."""

from __future__ import annotations

from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.conv import conv_attributes
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor

I32 = DTYPES["i32"]


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> Converted:
    wanted = _output_dtype(node, node.type(2).dtype if node.has(2) else DTYPES["u8"])
    if not node.attr.bool("saturate", 1) and wanted.is_float:
        raise NodeError("attribute 'saturate' must be 1, got 0")
    node.attr.ignore("precision")  # the division is in f32 or better
    if node.has(2) and node.type(2).dtype is not wanted:
        raise NodeError(f"attribute 'output_dtype' is {wanted}, but input 'y_zero_point' is {node.type(2)}")
    return node.emit("quantize", node[0], *_scale(node), **_granularity(node), dtype=wanted)


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> Converted:
    wanted = _output_dtype(node, node.type(1).dtype)
    return node.emit("dequantize", node[0], *_scale(node), **_granularity(node), dtype=wanted)


def _output_dtype(node: Node, default: DType) -> DType:
    code = node.attr.int("output_dtype", 0)
    return onnx_dtype(code, "attribute 'output_dtype'").dtype if code else default


def _granularity(node: Node) -> dict[str, int]:
    """Return axis and block size, unless there is one scale per tensor."""
    axis, block = node.attr.int("axis", 1), node.attr.int("block_size", 0)
    return {"axis": axis, "block": block} if node.type(1).rank and not _is_scalar(node, 1) else {}


def _is_scalar(node: Node, index: int) -> bool:
    """Return whether there is one scale per tensor; older tools write it as a vector of one."""
    return node.type(index).rank <= 1 and node.type(index).elements == 1


def _scale(node: Node) -> list[Tensor]:
    scalar = _is_scalar(node, 1)
    return [_as_scalar(node, i) if scalar else node[i] for i in (1, 2) if node.has(i)]


def _as_scalar(node: Node, index: int) -> Tensor:
    return node[index] if node.type(index).rank == 0 else node[index].reshape(())


@converter("MatMulInteger", since=10)
def matmul_integer(node: Node) -> Converted:
    return _integer_matmul(node, (0, 1), (2, 3))


@converter("ConvInteger", since=10)
def conv_integer(node: Node) -> Converted:
    return _integer_conv(node, (0, 1), (2, 3), None)


@converter("QLinearMatMul", since=10)
def qlinear_matmul(node: Node) -> Converted:
    product = _integer_matmul(node, (0, 3), (2, 5))
    scale = _along(node, 1, node.type(0).rank, -2) * _along(node, 4, node.type(3).rank, -1)
    return _requantized(node, product, scale)


@converter("QLinearConv", since=10)
def qlinear_conv(node: Node) -> Converted:
    product = _integer_conv(node, (0, 3), (2, 5), node.optional(8))
    per_channel = _along(node, 4, node.type(0).rank - 1, 0)
    return _requantized(node, product, _as_scalar(node, 1) * per_channel)


def _requantized(node: Node, product: Tensor, scale: Tensor) -> Tensor:
    """Requantize i32 accumulators to the output's scale (input 6) and zero point (input 7)."""
    real = product.cast(scale.type.dtype) * scale
    return node.emit("quantize", real, _as_scalar(node, 6), _as_scalar(node, 7), dtype=node.type(7).dtype)


def _integer_matmul(node: Node, data: tuple[int, int], zero_points: tuple[int, int]) -> Tensor:
    lhs, rhs = data
    if _is_zero(node, zero_points[0]) and _is_zero(node, zero_points[1]):
        return node[lhs].matmul(node[rhs], out_dtype=I32)
    return _centred(node, lhs, zero_points[0], -2) @ _centred(node, rhs, zero_points[1], -1)


def _integer_conv(node: Node, data: tuple[int, int], zero_points: tuple[int, int], bias: Tensor | None) -> Tensor:
    x, weight = data
    attributes = conv_attributes(node, node.type(x), node.type(weight))
    if _is_zero(node, zero_points[0]) and _is_zero(node, zero_points[1]):
        return node.emit("conv", node[x], node[weight], bias, out_dtype=I32, **attributes)
    # Padding uses the zero point: subtracted first, it is the zero that relax.conv pads with.
    return node.emit(
        "conv", _centred(node, x, zero_points[0], 0), _centred(node, weight, zero_points[1], 0), bias, **attributes
    )


def _is_zero(node: Node, index: int) -> bool:
    if not node.has(index):
        return True
    known = node.value(index).known
    return known is not None and node.value(index).sizes is None and not known.any()


def _centred(node: Node, index: int, zero_point: int, axis: int) -> Tensor:
    """Return x - zero point, in i32."""
    wide = node[index].cast(I32)
    if _is_zero(node, zero_point):
        return wide
    return wide - _along(node, zero_point, node.type(index).rank, axis).cast(I32)


def _along(node: Node, index: int, rank: int, axis: int) -> Tensor:
    """Reshape a scale or zero point to broadcast: a vector extends along `axis` of a tensor of this rank."""
    tensor_type = node.type(index)
    if tensor_type.rank == 0 or tensor_type.rank > 1:
        return node[index]
    if tensor_type.elements == 1:
        return _as_scalar(node, index)
    shape = [1] * rank
    if rank < 1 or (rank == 1 and axis == -2):
        raise NodeError(f"input '{node.input_name(index)}' must be a scalar, got {tensor_type}")
    return node[index].reshape((*shape[: axis % rank], tensor_type.shape[0], *shape[axis % rank + 1 :]))
