"""AWQ: input channels of linear layers are scaled so that those with large activations lose less by rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mirlo.extend.quantize import Quantization
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions
from mirlo_llm.quantize.decoder_layers import DecoderLayer
from mirlo_llm.quantize.grid import quantize_nearest

STEPS = 20
"""Exponents from 0 to 1 that the search tries, as in the paper; 0 means no scaling."""
SMALLEST = 1e-4
"""Lower bound of the factors before they are normalized."""


@dataclass
class ReadRows:
    """Statistics of the input rows X of a linear layer, summed over the calibration tokens."""

    hessian: np.ndarray
    """f64[K, K]: X^T X."""
    magnitudes: np.ndarray
    """f64[K]: the sum of |X|."""
    count: int = 0

    @classmethod
    def empty(cls, depth: int) -> ReadRows:
        """Return the statistics of no rows."""
        return cls(np.zeros((depth, depth)), np.zeros(depth))

    def add(self, rows: np.ndarray) -> None:
        """Add rows [..., K]."""
        flat = rows.reshape(-1, rows.shape[-1])
        self.hessian += flat.T @ flat
        self.magnitudes += np.abs(flat).sum(0, dtype=np.float64)
        self.count += len(flat)


@dataclass(frozen=True)
class ChannelFold:
    """Channels between a producer and the linear layers that read them: one is multiplied, the others divided."""

    readers: tuple[str, ...]
    norm: str = ""
    """The norm that computes the channels; None if a linear layer does."""
    rows_of: str = ""
    first: int = 0
    """The first row of that layer."""
    groups: int = 1
    """Number of consecutive copies of the same rows, such as heads that share keys and values."""
    size: int = 0
    """Elements of a part; 0 if there is one part."""


def channel_folds(layer: DecoderLayer, options: DecoderOptions) -> Iterator[ChannelFold]:
    """Yield the channels of a layer that can be scaled."""
    for norm, readers in layer.norms.items():
        yield ChannelFold(readers, norm=norm)
    for name in layer.matrices:
        base, _, part = name.rpartition(".")
        if part == "o_proj" and not options.projection_limit:
            size, shared = options.size, options.heads // options.kv_heads
            fused = (options.heads + options.kv_heads) * size
            source, first = (f"{base}.qkv_proj", fused) if options.fused else (f"{base}.v_proj", 0)
            if f"{source}.weight" in layer.weights:
                yield ChannelFold((name,), rows_of=source, first=first, groups=shared, size=size)
        elif part == "down_proj" and options.is_gated:
            depth = layer.weights[f"{name}.weight"].shape[1]
            source = f"{base}.gate_up_proj"
            if f"{source}.weight" in layer.weights:
                yield ChannelFold((name,), rows_of=source, first=depth)
            else:
                yield ChannelFold((name,), rows_of=f"{base}.up_proj")


def scale_channels(
    layer: DecoderLayer, options: DecoderOptions, rows: Mapping[str, ReadRows], how: Quantization
) -> set[str]:
    """Scale the channels of a layer where this reduces errors; return the changed norms.

    `rows` are the inputs of linear layers. Results stay the same except for rounding in f32.
    """
    changed = set()
    for fold in channel_folds(layer, options):
        factors = search_factors(layer, fold, rows, how)
        if factors is not None:
            apply_factors(layer.weights, fold, factors, options.norm_offset)
            changed.add(f"{fold.norm}.weight" if fold.norm else "")
    return changed - {""}


def search_factors(
    layer: DecoderLayer, fold: ChannelFold, rows: Mapping[str, ReadRows], how: Quantization
) -> np.ndarray | None:
    """Return the factors of channels with the least rounding error; None for no scaling."""
    readers = [name for name in fold.readers if name in layer.matrices]
    widest = max((rows[name] for name in fold.readers), key=lambda each: each.count)
    magnitudes = _shared_mean(widest.magnitudes, fold)
    if not readers or not magnitudes.any():
        return None
    best, least = None, np.inf
    for step in range(STEPS):
        factors = np.maximum(magnitudes / magnitudes.max(), SMALLEST) ** (step / STEPS)
        factors = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
        loss = sum(_loss(layer.weights[f"{name}.weight"], factors, rows[name].hessian, how) for name in readers)
        if loss < least:
            best, least = (factors if step else None), loss
    return best


def _shared_mean(magnitudes: np.ndarray, fold: ChannelFold) -> np.ndarray:
    """Replace the magnitudes of channels with the same rows by their mean."""
    if fold.groups == 1:
        return magnitudes
    parts = magnitudes.reshape(-1, fold.groups, fold.size)
    shared: np.ndarray = np.broadcast_to(parts.mean(1, keepdims=True), parts.shape).reshape(-1)
    return shared


def _loss(weights: np.ndarray, factors: np.ndarray, hessian: np.ndarray, how: Quantization) -> float:
    """Return the squared error of a linear layer: |X (Q(W s) / s - W)^T|^2."""
    error = quantize_nearest(weights * factors, how).values() / factors - weights
    return float(((error @ hessian.astype(np.float32)) * error).sum(dtype=np.float64))


def apply_factors(weights: dict[str, np.ndarray], fold: ChannelFold, factors: np.ndarray, norm_offset: float) -> None:
    """Multiply the columns of the reading matrices by factors, and divide the producer by them."""
    for name in fold.readers:
        weights[f"{name}.weight"] = weights[f"{name}.weight"] * factors
    if fold.norm:
        scale = f"{fold.norm}.weight"
        weights[scale] = (weights[scale] + np.float32(norm_offset)) / factors - np.float32(norm_offset)
        bias = f"{fold.norm}.bias"
        if bias in weights:
            weights[bias] = weights[bias] / factors
        return
    own = factors if fold.groups == 1 else factors.reshape(-1, fold.groups, fold.size)[:, 0].reshape(-1)
    rows = slice(fold.first, fold.first + len(own))
    for part in ("weight", "bias"):
        name = f"{fold.rows_of}.{part}"
        if name in weights:
            array = weights[name].copy()
            array[rows] /= own[:, None] if array.ndim == 2 else own
            weights[name] = array
