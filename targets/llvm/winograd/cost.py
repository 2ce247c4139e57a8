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


def direct_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of direct convolution in register tiles."""
    products = tiling.channels * tiling.out_channels * 9
    pixels = D.estimate_dim(tiling.batch * tiling.out[0] * tiling.out[1])
    return _products(products * pixels, products, machine)


def winograd_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of both transforms and the products between them."""
    planes = tiling.alpha**2
    weights = planes * tiling.channels * tiling.out_channels
    count = D.estimate_dim(tiling.count)
    vectors = planes * count * (tiling.channels + tiling.out_channels) / machine.lanes(4)
    return _products(weights * count, weights, machine) + _ELEMENT_CYCLES * vectors


def _products(count: float, weights: int, machine: Machine) -> float:
    computing = count / (machine.lanes(4) * machine.fma_per_cycle * _REACHED)
    return max(computing, 4 * weights / _BYTES_PER_CYCLE)
