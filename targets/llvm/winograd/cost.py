"""Cost model of a convolution, in cycles of one core: direct, and by Winograd's algorithm."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.winograd.functions import Tiling

_REACHED = 0.9
"""Part of the machine's peak that matrix products reach."""
_BYTES_PER_CYCLE = 4.5
"""Bandwidth of weights from memory."""
_ELEMENT_CYCLES = 2.5
"""Cycles for a vector of a transformed tile: the computation, and a store to or load from a cache."""


_INTEGER_PRODUCTS = 3.0
"""Products of 16-bit integers per cycle and lane of 32 bits, by `vpmaddwd`: with the addition to the accumulator that
each needs, it is issued on three ports."""


def direct_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of direct convolution in register tiles."""
    products = tiling.channels * tiling.out_channels * 9
    pixels = D.estimate_dim(tiling.batch * tiling.out[0] * tiling.out[1])
    weight_bytes = 1 if tiling.is_integer else 4
    return _products(products * pixels, weight_bytes * products, tiling, machine)


def winograd_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of both transforms and the products between them."""
    planes = tiling.alpha**2
    weights = planes * tiling.channels * tiling.out_channels
    count = D.estimate_dim(tiling.count)
    vectors = tiling.channels / machine.lanes(tiling.transformed_bytes) + tiling.out_channels / machine.lanes(4)
    transforms = _ELEMENT_CYCLES * planes * count * vectors
    return _products(weights * count, tiling.transformed_bytes * weights, tiling, machine) + transforms


def weight_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of the transform of a weight, or of its gradient: a product of matrices, in each call."""
    windows = tiling.alpha**2 * tiling.channels * tiling.out_channels
    product = 9 * windows / (machine.lanes(4) * machine.fma_per_cycle * _REACHED)
    return max(product + _ELEMENT_CYCLES * windows / machine.lanes(4), 4 * windows / _BYTES_PER_CYCLE)


def _products(count: float, weight_bytes: int, tiling: Tiling, machine: Machine) -> float:
    rate = _INTEGER_PRODUCTS if tiling.is_integer else machine.fma_per_cycle
    return max(count / (machine.lanes(4) * rate * _REACHED), weight_bytes / _BYTES_PER_CYCLE)
