"""Mixtures of experts of `com.microsoft`: a router chooses experts for each token, which are small networks.

Each expert computes the rows of the tokens that chose it, so the weights of an expert that no token chose are not read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.library.experts import mix_experts
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft_float_experts import (
    E2M1,
    E4M3,
    FORMATS,
    FP8,
    WEIGHTS,
    scales_of_blocks,
    scales_of_bytes,
)
from mirlo.frontends.onnx.ops.microsoft_float_experts import KINDS as FLOAT_KINDS
from mirlo.frontends.onnx.ops.microsoft_nbits import ACTIVATIONS, BITS, packed_zero_points, unpacked
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.records import dataclass

DOMAIN = "com.microsoft"
PLAIN = {"relu": "relu", "silu": "silu", "identity": ""}
"""Activations of one operand that are an operator; '' for none."""
KINDS = (*PLAIN, "gelu", "swiglu")


@dataclass(frozen=True)
class _Layer:
    """One linear layer of all experts: weights [experts, columns, rows], perhaps packed, and their bias."""

    weights: Tensor
    rows: int
    bias: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None
    bits: int = 0
    block: int = 0
    floats: str = ""
    """The type of packed weights that are floats."""

    @property
    def columns(self) -> int:
        columns = self.weights.type.shape[1]
        assert isinstance(columns, int)
        return columns


@dataclass(frozen=True)
class _Network:
    """The layers of the experts: one or two whose results the activation takes, and the last."""

    first: _Layer
    last: _Layer
    gated: _Layer | None
    activations: str


@converter("MoE", domain=DOMAIN)
def moe(node: Node) -> Tensor:
    """Convert; inputs: tokens, logits of the router, then weights and bias of the layers 1, 2 and 3."""
    hidden, inner = _sizes(node, node.type(4).shape)
    first = _layer(node, 2, 3, hidden)
    last = _layer(node, 4, 5, inner)
    gated = _layer(node, 6, 7, hidden) if node.has(6) else None
    weights = node[1].softmax(-1)
    chosen, factors = _largest(node, weights, weights)
    factors = _normalized(node, factors)
    return _mixed(node, _Network(first, last, gated, "exact"), chosen, factors)


@converter("QMoE", domain=DOMAIN)
def quantized_moe(node: Node) -> Tensor:
    """Convert; inputs: tokens, logits of the router, (weights, scales, bias) of three layers, zero points, weights.

    As ONNX Runtime computes on CPUs, the weights of the chosen experts add up to 1, unless they are given.
    """
    kind = node.attr.choice("quant_type", "int", ("int", *FLOAT_KINDS))
    if kind != "int":
        return _moe_of_floats(node, kind)
    if node.attr.int("weights_prepacked", -1) > 0:
        raise NodeError("attribute 'weights_prepacked' must be 0 or -1: other layouts are for CUDA")
    for index in range(15, len(node)):
        if node.has(index):
            raise NodeError(f"input '{node.input_name(index)}' is for weights of 4 and 8 bit floats only")
    level = node.attr.int("accuracy_level", 0)
    bits = node.attr.int("expert_weight_bits", 4)
    of_layers = [node.attr.int(f"fc{number}_expert_weight_bits", bits) for number in (1, 2, 3)]
    if any(each not in BITS for each in of_layers):
        raise NodeError(f"weights must have 2, 4 or 8 bits, got {', '.join(map(str, of_layers))}")
    packed = node.type(5).shape[-1]
    hidden, inner = _sizes(node, (*node.type(5).shape[:2], packed * 8 // of_layers[1]))
    first = _packed_layer(node, 0, of_layers[0], hidden)
    last = _packed_layer(node, 1, of_layers[1], inner)
    gated = _packed_layer(node, 2, of_layers[2], hidden) if node.has(8) else None
    if node.has(14):
        chosen, factors = _largest(node, node[1], node[14])
        factors = _normalized(node, factors)
    else:
        node.attr.ignore("normalize_routing_weights")
        chosen, factors = _largest(node, node[1], node[1])
        factors = factors.softmax(-1)
    network = _Network(first, last, gated, ACTIVATIONS.get(level, "exact"))
    return _mixed(node, network, chosen, factors)


def _moe_of_floats(node: Node, kind: str) -> Tensor:
    """Convert weights in floats of 4 or 8 bits, which stay as they are."""
    for index in (11, 12, 13, *range(17, len(node))):
        if node.has(index):
            raise NodeError(f"input '{node.input_name(index)}' is not for weights of quant_type '{kind}'")
    for name in (
        "expert_weight_bits",
        "weights_prepacked",
        *(f"fc{number}_expert_weight_bits" for number in (1, 2, 3)),
    ):
        node.attr.ignore(name)
    level, packing = node.attr.int("accuracy_level", 0), 1 if kind == FP8 else 2
    columns, packed = node.type(5).shape[1:]
    if not isinstance(packed, int):
        raise NodeError(f"weights of 3 fixed dims are expected, got {node.type(5)}")
    hidden, inner = _sizes(node, (node.type(5).shape[0], columns, packed * packing))
    if kind != FP8:
        node.attr.ignore("block_size")  # each kind has its own
    first = _float_layer(node, 0, kind, hidden)
    last = _float_layer(node, 1, kind, inner)
    gated = _float_layer(node, 2, kind, hidden) if node.has(8) else None
    weights = node[14] if node.has(14) else node[1].softmax(-1)
    chosen, factors = _largest(node, node[1], weights)
    factors = _normalized(node, factors)
    return _mixed(node, _Network(first, last, gated, ACTIVATIONS.get(level, "exact")), chosen, factors)


def _float_layer(node: Node, number: int, kind: str, rows: int) -> _Layer:
    weights = node[WEIGHTS[number]]
    if kind == FP8:
        scales, block = scales_of_bytes(node, number, rows)
        layer = _Layer(weights, rows, None, node.constant(scales), None, 8, block, E4M3)
    else:
        scales = scales_of_blocks(node, number, kind, rows)
        layer = _Layer(weights, rows, None, node.constant(scales), None, 4, FORMATS[kind].block, E2M1)
    return _biased(node, layer, WEIGHTS[number] + 2)


def _normalized(node: Node, factors: Tensor) -> Tensor:
    """Return the weights of the chosen experts, divided by their sum if the node asks for it."""
    if not node.attr.bool("normalize_routing_weights", 0):
        return factors
    return factors / factors.sum(1, keepdims=True)


def _sizes(node: Node, last: tuple[Dim, ...]) -> tuple[int, int]:
    """Return the sizes of a token and of a hidden layer, from the shape [experts, columns, rows] of the last layer."""
    width = node.type(0).shape[-1]
    if node.type(0).rank not in (2, 3) or node.type(1).rank != 2:
        raise NodeError(f"tokens of 2 or 3 dims and logits of 2 are expected, got {node.type(0)} and {node.type(1)}")
    if len(last) != 3 or not all(isinstance(size, int) for size in (*last, width)):
        raise NodeError(f"weights of 3 fixed dims and tokens of a fixed size are expected, got {node.type(0)}")
    experts, columns, rows = last
    if columns != width or experts != node.type(1).shape[1]:
        raise NodeError(f"weights for {experts} experts of {columns} results do not fit {node.type(0)}, {node.type(1)}")
    assert isinstance(width, int) and isinstance(rows, int)
    return width, rows


def _layer(node: Node, weights: int, bias: int, rows: int) -> _Layer:
    tensor_type = node.type(weights)
    experts = node.type(1).shape[1]
    if (
        tensor_type.rank != 3
        or tensor_type.shape[0] != experts
        or tensor_type.shape[2] != rows
        or not tensor_type.is_static
    ):
        raise NodeError(f"input '{node.input_name(weights)}' must be {experts} x columns x {rows}, got {tensor_type}")
    return _biased(node, _Layer(node[weights], rows), bias)


def _packed_layer(node: Node, number: int, bits: int, rows: int) -> _Layer:
    """Return a layer whose inputs are (weights, scales, bias) from 2 on, and the zero points from 11 on."""
    at = 2 + 3 * number
    weights_type, scales = node.type(at), node.type(at + 1)
    experts, columns = node.type(1).shape[1], weights_type.shape[1]
    block = node.attr.int("block_size", 0)
    if (
        weights_type.dtype.name != "u8"
        or weights_type.rank != 3
        or weights_type.shape != (experts, columns, rows * bits // 8)
    ):
        raise NodeError(
            f"input '{node.input_name(at)}' must be {experts} x columns of {rows} weights, got {weights_type}"
        )
    if not block or scales.rank == 2 or scales.shape[2] == 1:
        block = rows
    if block < 1 or rows % block or scales.elements != experts * columns * (rows // block):
        raise NodeError(f"scales {scales} do not fit {experts} x {columns} x {rows} weights in blocks of {block}")
    zeros = node[11 + number] if node.has(11 + number) else None
    layer = _Layer(node[at], rows, None, node[at + 1], zeros, bits, block)
    return _biased(node, layer, at + 2)


def _biased(node: Node, layer: _Layer, index: int) -> _Layer:
    if not node.has(index):
        return layer
    if node.type(index).shape != (node.type(1).shape[1], layer.columns):
        raise NodeError(f"input '{node.input_name(index)}' must have {layer.columns} values for each expert")
    return replace(layer, bias=node[index])


def _largest(node: Node, logits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k experts of the largest logits of each token, and their weights."""
    count, experts = node.attr.int("k", 1), logits.type.shape[1]
    if node.attr.bool("use_sparse_mixer", 0):
        raise NodeError("attribute 'use_sparse_mixer' must be 0: that way to choose experts is for CUDA")
    if count < 1 or not isinstance(experts, int) or count > experts:
        raise NodeError(f"attribute 'k' must be from 1 to the number of experts, {experts}, got {count}")
    if weights.type != logits.type:
        raise NodeError(f"weights {weights.type} of experts must be like the logits {logits.type}")
    order = node.emit("argsort", logits, axis=1, descending=True)
    chosen = order.slice(1, 0, count)
    return chosen, weights.gather_elements(chosen, 1)


def _mixed(node: Node, network: _Network, chosen: Tensor, factors: Tensor) -> Tensor:
    """Return the sum of what the chosen experts compute for each token, times their factors."""
    experts = network.first.weights.type.shape[0]
    assert isinstance(experts, int)
    rows = node[0].reshape((chosen.type.shape[0], network.last.columns))
    require_table("the numbers of experts", experts)
    numbers = node.constant(np.arange(experts)[None], chosen.type)

    def bound(values: Tensor, bounds: list[Dim]) -> tuple[Dim, ...]:
        return node.bind(values, "rows of an expert", bounds)

    mixed = mix_experts(node.builder, rows, chosen, factors, numbers, bound, partial(_computed, node, network))
    return mixed.reshape(node.type(0).shape)


def _computed(node: Node, network: _Network, experts: tuple[int, ...], expert: Tensor, rows: Tensor) -> Tensor:
    """Return what one expert, of which the number is known at run time, computes for rows of tokens."""
    first = _product(node, network.first, expert, rows, network.activations)
    other = None if network.gated is None else _product(node, network.gated, expert, rows, network.activations)
    return _product(node, network.last, expert, _activated(node, first, other), network.activations)


def _product(node: Node, layer: _Layer, expert: Tensor, x: Tensor, activations: str) -> Tensor:
    weights = _of_expert(layer.weights, expert)
    if layer.scales is None:
        result = x.matmul(weights, transpose_rhs=True)
    else:
        blocks = layer.rows // layer.block
        scales = _of_expert(layer.scales, expert).reshape((layer.columns, blocks))
        real = node.emit(
            "dequantize",
            _stored(node, layer, weights),
            scales,
            None if layer.floats else _zero_points(node, layer, expert, blocks),
            axis=1,
            block=layer.block,
            dtype=scales.type.dtype,
        )
        if real.type.dtype is not x.type.dtype:
            real = real.cast(x.type.dtype)
        result = x.matmul(real, transpose_rhs=True, activations=activations)
    return result if layer.bias is None else result + _of_expert(layer.bias, expert)


def _stored(node: Node, layer: _Layer, weights: Tensor) -> Tensor:
    """Return weights in the type that they are stored in."""
    if not layer.floats:
        return unpacked(node, weights, layer.bits)
    return weights if layer.bits == 8 else node.emit("unpack", weights, dtype=layer.floats)


def _zero_points(node: Node, layer: _Layer, expert: Tensor, blocks: int) -> Tensor:
    """Return zero points [columns, blocks]; packed ones begin a row, or the only row of a layer, at a byte."""
    if layer.zeros is None:
        return node.emit("full", shape=(layer.columns, blocks), value=1 << (layer.bits - 1), dtype=f"u{layer.bits}")
    packed = _of_expert(layer.zeros, expert)
    shape = (layer.columns, blocks) if packed.type.rank == 2 else (blocks, layer.columns)
    return packed_zero_points(node, packed, shape, layer.bits).reshape((layer.columns, blocks))


def _of_expert(value: Tensor, expert: Tensor) -> Tensor:
    """Return the part of a tensor that belongs to one expert."""
    return value.gather(expert)


def _activated(node: Node, first: Tensor, other: Tensor | None) -> Tensor:
    """Return the activation of the first layer, gated by the third one if there is one."""
    kind = node.attr.str("activation_type", "relu")
    if kind not in KINDS:
        raise NodeError(f"attribute 'activation_type' must be one of {', '.join(KINDS)}, got '{kind}'")
    if kind == "swiglu":
        return _swiglu(node, first, other)
    if kind == "gelu":
        result = node.emit("gelu", first, approximate="tanh")
    else:
        result = node.emit(PLAIN[kind], first) if PLAIN[kind] else first
    return result if other is None else result * other


def _swiglu(node: Node, first: Tensor, other: Tensor | None) -> Tensor:
    """Return gate * sigmoid(alpha * gate) * (linear + beta), both clamped."""
    fusion, type_ = node.attr.int("swiglu_fusion", 0), first.type
    rows, columns = type_.shape
    if fusion not in (0, 1, 2) or (fusion == 0) != (other is not None):
        raise NodeError(f"attribute 'swiglu_fusion' is {fusion}: it must be 0 with a third layer, else 1 or 2")
    if other is not None:
        gate, linear = first, other
    else:
        if not isinstance(columns, int) or columns % 2:
            raise NodeError(f"gates and values must be an even number of columns, got {columns}")
        if fusion == 1:
            pairs = first.reshape((rows, columns // 2, 2))
            halves = pairs.split([1, 1], 2)
            gate, linear = (half.reshape((rows, columns // 2)) for half in halves)
        else:
            gate, linear = first.split([columns // 2, columns // 2], 1)
    if "swiglu_limit" in node.attr:
        limit = node.attr.float("swiglu_limit")
        gate = gate.clip(most=limit)
        linear = linear.clip(-limit, limit)
    alpha, beta = node.attr.float("activation_alpha", 1.0), node.attr.float("activation_beta", 0.0)
    return gate * (gate * alpha).sigmoid() * (linear + beta)
