"""Weights of experts in floats of 4 and 8 bits: MXFP4, NVFP4 and FP8, as layers that the kernels know."""

from __future__ import annotations

import math

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.runtime.records import dataclass

E2M1, E4M3 = "f4e2m1", "f8e4m3fn"
"""The types of floats of 4 and of 8 bits."""
MAX_BLOCK = 256
"""Largest block of weights with one scale."""


@dataclass(frozen=True)
class BlockFloats:
    """Floats of 4 bits with a scale for each block, and one for each expert."""

    block: int
    scale: str
    """The type of the scales of blocks."""


FORMATS = {"fp4": BlockFloats(32, "f8e8m0"), "nvfp4": BlockFloats(16, "f8e4m3fn")}
FP8 = "fp8"
KINDS = (*FORMATS, FP8)
WEIGHTS, GLOBAL_SCALES = (2, 5, 8), (15, 16)
"""Inputs: the weights of the layers, which their scales follow, and scales of experts."""


def scales_of_blocks(node: Node, number: int, kind: str, rows: int) -> np.ndarray:
    """Check the weights of a layer of floats of 4 bits; return their scales, f32[experts, columns, blocks]."""
    element_format, at = FORMATS[kind], WEIGHTS[number]
    experts, columns = node.type(1).shape[1], node.type(at).shape[1]
    expected = (experts, columns, rows // 2)
    if node.type(at).dtype.name != "u8" or node.type(at).shape != expected or rows % element_format.block:
        what = f"u8 {experts} x {columns} x {rows // 2}, rows a multiple of {element_format.block},"
        raise NodeError(f"input '{node.input_name(at)}' must be {what} for '{kind}', got {node.type(at)}")
    scales_type = node.type(at + 1)
    if scales_type.dtype.name != element_format.scale or scales_type.shape != (
        experts,
        columns,
        rows // element_format.block,
    ):
        what = f"{element_format.scale} {experts} x {columns} x {rows // element_format.block}"
        raise NodeError(f"input '{node.input_name(at + 1)}' must be {what} for '{kind}', got {scales_type}")
    scales: np.ndarray = node.array(at + 1).astype(np.float32) * _global_scales(node, number, kind)[:, None, None]
    return scales


def scales_of_bytes(node: Node, number: int, rows: int) -> tuple[np.ndarray, int]:
    """Check the weights of a layer of floats of 8 bits; return scales f32[experts, columns, blocks], and the block.

    Blocks are a power of two; the file's may have another size, or be whole matrices.
    """
    at, block = WEIGHTS[number], node.attr.int("block_size", 0)
    experts, columns = node.type(1).shape[1], node.type(at).shape[1]
    if node.type(at).dtype.name != "f8e4m3fn" or node.type(at).shape != (experts, columns, rows):
        what = f"f8e4m3fn {experts} x {columns} x {rows}"
        raise NodeError(f"input '{node.input_name(at)}' must be {what} for 'fp8', got {node.type(at)}")
    assert isinstance(columns, int)
    common = math.gcd(rows, block) if block > 0 else rows
    own = min(common & -common, MAX_BLOCK)
    if block < 1:
        if node.has(at + 1):
            raise NodeError(f"input '{node.input_name(at + 1)}' needs a positive 'block_size' for 'fp8'")
        whole = _global_scales(node, number, FP8)
        return np.repeat(whole, columns * (rows // own)).reshape(-1, columns, rows // own), own
    if any(node.has(index) for index in GLOBAL_SCALES):
        raise NodeError("scales of experts are for weights without blocks: 'block_size' must be 0 with them")
    shape = (experts, -(-columns // block), -(-rows // block))
    if not node.has(at + 1) or node.type(at + 1).shape != shape:
        scales_type = node.type(at + 1) if node.has(at + 1) else "none"
        raise NodeError(f"input '{node.input_name(at + 1)}' must be scales {list(shape)}, got {scales_type}")
    scales = node.array(at + 1).astype(np.float32)[:, np.arange(columns) // block]
    return scales[:, :, np.arange(0, rows, own) // block], own


def _global_scales(node: Node, number: int, kind: str) -> np.ndarray:
    """Return the scale of each expert."""
    if number >= len(GLOBAL_SCALES):
        raise NodeError(f"a third layer has no scales of experts, which '{kind}' needs: fuse it with the first")
    at = GLOBAL_SCALES[number]
    if not node.has(at) or node.type(at).shape != (node.type(1).shape[1],):
        scales_type = node.type(at) if node.has(at) else "none"
        raise NodeError(
            f"'{kind}' needs input 'fc{number + 1}_global_scale', a number for each expert, got {scales_type}"
        )
    return node.array(at).astype(np.float32)
