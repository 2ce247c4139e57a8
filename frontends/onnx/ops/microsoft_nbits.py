"""Weights of 2, 4 and 8 bits of `com.microsoft`: packed in bytes, dequantized in blocks."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, concat

DOMAIN = "com.microsoft"
BITS = (2, 4, 8)
ACTIVATIONS = {0: "exact", 1: "exact", 2: "exact", 3: "bf16", 4: "i8"}
"""How activations may be represented, by `accuracy_level`. ONNX Runtime computes level 2, f16, in f32 as well."""


@converter("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(node: Node) -> Converted:
    """Convert; inputs: x, packed weights [N, blocks, bytes of a block], scales, zero points, group of each row, bias.

    The weights stay packed. With an order of groups (`g_idx`), rows of K are sorted by their group.
    """
    columns, rows = node.attr.int("N"), node.attr.int("K")
    bits, block = node.attr.int("bits", 4), node.attr.int("block_size")
    level, prepacked = node.attr.int("accuracy_level", 0), node.attr.int("weight_prepacked", 0)
    if bits not in BITS or columns < 1 or rows < 1 or block < 16 or block & (block - 1):
        raise NodeError(
            "supported are 2, 4 and 8 bits in blocks of a power of two from 16, "
            f"got {bits} bits in blocks of {block}, K={rows}, N={columns}"
        )
    if prepacked:
        raise NodeError(f"attribute 'weight_prepacked' must be 0, got {prepacked}: that layout is for CUDA")
    if level not in ACTIVATIONS:
        raise NodeError(f"attribute 'accuracy_level' must be 0 to 4, got {level}")
    blocks = -(-rows // block)
    if node.type(1).dtype.name != "u8" or node.type(1).elements != columns * blocks * block * bits // 8:
        raise NodeError(f"{rows} rows in blocks of {block} numbers of {bits} bits do not fit weights {node.type(1)}")
    if node.type(2).elements != columns * blocks:
        raise NodeError(f"scales must be {columns} x {blocks}, got {node.type(2)}")
    packed = node[1].reshape((columns, blocks * block * bits // 8))
    scales = node[2].reshape((columns, blocks))
    x, zeros = node[0], _zero_points(node, 3, (columns, blocks), bits, scales.type.dtype)
    weights = unpacked(node, packed, bits)
    if node.has(4):
        order = _order_of_groups(node, rows, blocks, block)
        if order is None:
            return _biased(node, x.matmul(_grouped(node, weights, scales, zeros), transpose_rhs=True))
        x = x.gather(node.constant(order), x.type.rank - 1)
        weights = unpacked(node, node.constant(_sorted(node.array(1), order, columns, bits), "u8"), bits)
    real = node.emit("dequantize", weights, scales, zeros, axis=1, block=block, dtype=scales.type.dtype)
    if rows % block:
        real = real.slice(1, 0, rows)
    return _biased(node, x.matmul(real, transpose_rhs=True, activations=ACTIVATIONS[level]))


def _biased(node: Node, product: Tensor) -> Tensor:
    return product + node[5] if node.has(5) else product


def unpacked(node: Node, packed: Tensor, bits: int) -> Tensor:
    """Return values of a few bits, packed in bytes along the last dim, as unsigned integers."""
    return packed if bits == 8 else node.emit("unpack", packed, dtype=f"u{bits}")


def _zero_points(node: Node, index: int, shape: tuple[int, int], bits: int, real: DType) -> Tensor:
    """Return the zero points: packed integers, whose rows begin at a byte, or values of the type of the scales."""
    if not node.has(index):
        return node.emit("full", shape=shape, value=1 << (bits - 1), dtype=f"u{bits}")
    zeros_type = node.type(index)
    if zeros_type.dtype is real:
        if zeros_type.elements != shape[0] * shape[1]:
            raise NodeError(f"zero points of {real} must be {shape[0]} x {shape[1]}, got {zeros_type}")
        return node[index].reshape(shape)
    if zeros_type.dtype.name != "u8":
        raise NodeError(f"zero points must be packed in u8, or values of {real}, got {zeros_type}")
    return packed_zero_points(node, node[index], shape, bits)


def packed_zero_points(node: Node, packed: Tensor, shape: tuple[int, int], bits: int) -> Tensor:
    """Return zero points of a few bits, packed in u8; each row begins at a byte."""
    rows, count = shape
    width = -(-count * bits // 8)
    if packed.type.elements != rows * width:
        raise NodeError(f"zero points of {bits} bits for {rows} x {count} blocks do not fit {packed.type}")
    zeros = unpacked(node, packed.reshape((rows, width)), bits)
    return _cut(node, zeros, shape)


def _order_of_groups(node: Node, rows: int, blocks: int, block: int) -> np.ndarray | None:
    """Return the rows of K sorted by their group; None if the groups are not whole blocks."""
    groups = node.array(4)
    if groups.shape != (rows,) or groups.min() < 0 or groups.max() >= blocks:
        raise NodeError(f"input 'g_idx' must have {rows} groups from 0 to {blocks - 1}, got {node.type(4)}")
    order = np.argsort(groups, kind="stable").astype(np.int64)
    return order if np.array_equal(groups[order], np.arange(rows) // block) else None


def _sorted(packed: np.ndarray, order: np.ndarray, columns: int, bits: int) -> np.ndarray:
    """Return packed weights with sorted rows of K."""
    count, mask = 8 // bits, (1 << bits) - 1
    flat = packed.reshape(columns, -1)
    values = np.stack([flat >> shift & mask for shift in range(0, 8, bits)], axis=-1).reshape(columns, -1)
    values[:, : len(order)] = values[:, order]
    parts = values.reshape(columns, -1, count)
    result: np.ndarray = np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=-1).astype(np.uint8)
    return result


def _grouped(node: Node, weights: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Dequantize weights each of whose rows of K names its group."""
    groups = node.constant(node.array(4).astype(np.int64))
    rows = groups.type.shape[0]
    if weights.type.shape[1] != rows:
        weights = weights.slice(1, 0, rows)
    scales, zeros = (value.gather(groups, 1) for value in (scales, zeros))
    return node.emit("dequantize", weights, scales, zeros, axis=1, block=1, dtype=scales.type.dtype)


@converter("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(node: Node) -> Converted:
    """Gather rows of a quantized table together with their scales and zero points."""
    data, axis = node.type(0), node.attr.int("gather_axis", 0)
    quantized_axis, block = node.attr.int("quantize_axis", 1), node.attr.int("block_size", 128)
    bits = node.attr.int("bits", 4)
    is_packed = data.dtype.name == "u8" and bits != 8
    if data.rank < 2 or not -data.rank <= axis < data.rank or not -data.rank <= quantized_axis < data.rank:
        raise NodeError(f"attributes 'gather_axis' {axis} and 'quantize_axis' {quantized_axis} must be axes of {data}")
    axis, quantized_axis = axis % data.rank, quantized_axis % data.rank
    if axis == quantized_axis:
        raise NodeError("attributes 'gather_axis' and 'quantize_axis' must be different axes")
    if data.dtype.name not in ("u8", "u4", "i4") or bits not in BITS or (is_packed and axis == data.rank - 1):
        raise NodeError(f"a table of {bits} bits in {data}, gathered along axis {axis}, is not supported")
    indices = node[1]
    rows, scales = (value.gather(indices, axis) for value in (node[0], node[2]))
    at = quantized_axis if quantized_axis < axis else quantized_axis + node.type(1).rank - 1
    zeros = node[3].gather(indices, axis) if node.has(3) else None
    if is_packed:
        rows = unpacked(node, rows, bits)
        if zeros is not None:
            zeros = _cut(node, unpacked(node, zeros, bits), scales.type.shape)
    if zeros is None and data.dtype.name == "u8":
        zeros = node.emit("full", shape=scales.type.shape, value=1 << (bits - 1), dtype=f"u{bits}")
    return node.emit("dequantize", rows, scales, zeros, axis=at, block=block, dtype=scales.type.dtype)


def _cut(node: Node, value: Tensor, shape: tuple[Dim, ...]) -> Tensor:
    """Cut padding off the last dim."""
    last = shape[-1]
    if value.type.shape[-1] == last or not isinstance(last, int):
        return value
    return value.slice(len(shape) - 1, 0, last)


FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""Magnitudes of bitsandbytes' FP4 by code; the highest bit is the sign."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Values of bitsandbytes' NF4 by code."""


@converter("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(node: Node) -> Converted:
    """Convert; inputs: x, codes of 4 bits, the first in the upper half of a byte, and the largest of each block."""
    columns, rows = node.attr.int("N"), node.attr.int("K")
    block, kind = node.attr.int("block_size"), node.attr.int("quant_type")
    node.attr.ignore("training_mode")
    if node.attr.int("transB", 1) != 1:
        raise NodeError("attribute 'transB' must be 1")
    if columns < 1 or rows < 1 or block < 16 or kind not in (0, 1):
        raise NodeError(f"N={columns}, K={rows}, blocks of {block} and quant_type {kind} are not supported")
    count, scales = columns * rows, node.type(2)
    if node.type(1).elements != -(-count // 2) or scales.elements != -(-count // block):
        raise NodeError(f"{columns} x {rows} numbers in blocks of {block} do not fit {node.type(1)} and {scales}")
    table = node.constant(np.array(NF4 if kind else (*FP4, *(-value for value in FP4))), scales)
    if rows % block == 0 and block & (block - 1) == 0 and node.value(1).known is not None:
        return node[0].matmul(_from_table(node, table, (columns, rows), block), transpose_rhs=True)
    pairs = node.emit("unpack", node[1].reshape((-(-count // 2), 1)), dtype="u4")
    upper, lower = pairs.split([1, 1], 1)[::-1]
    codes = concat([upper, lower], axis=1).reshape((-(-count // 2) * 2,))
    if count % 2:
        codes = codes.slice(0, 0, count)
    real = table.gather(codes.cast("i32"))
    factors = node[2].reshape((scales.elements, 1))
    each = factors.expand((scales.elements, block)).reshape((scales.elements * block,))
    if count % block:
        each = each.slice(0, 0, count)
    weights = (real * each).reshape((columns, rows))
    return node[0].matmul(weights, transpose_rhs=True)


def _from_table(node: Node, table: Tensor, shape: tuple[int, int], block: int) -> Tensor:
    """Return weights whose codes name elements of a table; each row of K consists of whole blocks."""
    columns, rows = shape
    packed = node.array(1).reshape(columns, rows // block, block // 2)
    codes = node.emit("unpack", node.constant(packed >> 4 | packed << 4, "u8"), dtype="u4")
    real = table.gather(codes.cast("i32"))
    scales = node[2].reshape((columns, rows // block, 1))
    return (real * scales).reshape(shape)
