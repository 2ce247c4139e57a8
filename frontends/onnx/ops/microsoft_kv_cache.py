"""Keys and values in the caches of `GroupQueryAttention`: as they are, or quantized to 8 or 4 bits."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.records import dataclass

SCALES = (12, 13)
"""Inputs: the scales of keys and of values."""


@dataclass(frozen=True)
class CacheFormat:
    """How rows [batch, heads, rows, size] of keys, or values, are stored."""

    bits: int = 0
    """0: as they are."""
    scale: Tensor | None = None

    def encoded(self, node: Node, rows: Tensor) -> Tensor:
        """Return rows as they are stored: rounded to integers, two of 4 bits in a byte, the first in the lower half."""
        if self.scale is None:
            return rows
        kind, low = rows.type, -(1 << (self.bits - 1))
        steps = (rows / self.scale).round()
        limited = steps.clip(low, -low - 1)
        if self.bits == 8:
            return limited.cast("i8")
        *outer, size = kind.shape
        assert isinstance(size, int)
        biased = limited - low
        pairs = biased.reshape((*outer, size // 2, 2))
        first, second = pairs.split([1, 1], len(outer) + 1)
        byte = first + second * 16
        return byte.reshape((*outer, size // 2)).cast("u8")

    def decoded(self, node: Node, rows: Tensor) -> Tensor:
        """Return stored rows as real numbers, or as multiples of the scale where `scaled` multiplies with it."""
        if self.scale is None:
            return rows
        kind = self.scale.type
        if self.bits == 8:
            steps = rows.cast(kind.dtype)
        else:
            steps = node.emit("unpack", rows, dtype="u4").cast(kind.dtype)
            steps = steps - 8
        return steps if self._is_scaled_later(kind) else steps * self.scale

    @staticmethod
    def _is_scaled_later(kind: TensorType) -> bool:
        """Return whether the scale is applied to queries and results: not in f16, where these could underflow."""
        return kind.dtype.name != "f16"

    def scaled(self, node: Node, rows: Tensor) -> Tensor:
        """Return rows of all heads, queries or results, times the scale of the keys or values that they are for.

        The scale of an element of the keys is that of the element of the queries that it is multiplied with.
        """
        if self.scale is None or not self._is_scaled_later(self.scale.type):
            return rows
        heads, (_, shared, _, size) = rows.type.shape[1], self.scale.type.shape
        if shared == 1:
            return rows * self.scale
        assert isinstance(heads, int) and isinstance(shared, int)
        scale = self.scale.expand_dims(2).expand((1, shared, heads // shared, 1, size))
        return rows * scale.reshape((1, heads, 1, size))


def cache_formats(node: Node, past: int, query: Tensor) -> list[CacheFormat]:
    """Return how keys and values are stored, from the attributes, the type of input `past` and the scales."""
    formats = []
    for which, scale in zip("kv", SCALES, strict=True):
        kind = node.attr.choice(f"{which}_quant_type", "NONE", ("NONE", "PER_TENSOR", "PER_CHANNEL"))
        if kind == "NONE":
            formats.append(CacheFormat())
            continue
        bits = node.attr.int("kv_cache_bit_width", 8)
        stored = {8: "i8", 4: "u8"}.get(bits)
        if stored is None or not node.has(past) or node.type(past).dtype.name != stored:
            cache_type = node.type(past) if node.has(past) else "no cache"
            raise NodeError(f"a cache of 8 bits (i8) or 4 bits (u8) is expected, got {bits} bits and {cache_type}")
        if not node.has(scale):
            raise NodeError(f"attribute '{which}_quant_type' = '{kind}' needs input '{which}_scale'")
        formats.append(CacheFormat(bits, _scale(node, scale, query)))
    if formats[0].bits == formats[1].bits == 0:
        node.attr.ignore("kv_cache_bit_width")
    return formats


def _scale(node: Node, index: int, query: Tensor) -> Tensor:
    scales_type = node.type(index)
    shape: tuple[Dim, ...] = (1, 1, 1, 1) if scales_type.elements == 1 else scales_type.shape
    if len(shape) != 4:
        raise NodeError(f"scales must be one number or [1, heads, 1, size], got {scales_type}")
    return node[index].reshape(shape).cast(query.type.dtype)
