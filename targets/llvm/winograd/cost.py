"""What a convolution is expected to take, in cycles of one core: directly, and by Winograd's algorithm."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.winograd.functions import Tiling

_REACHED = 0.9
"""Share of the machine's multiply-adds that products reach."""
_BYTES_PER_CYCLE = 4.5
"""Bytes of weights that arrive from memory in a cycle."""
_ELEMENT_CYCLES = 2.5
"""Cycles for a vector of a transformed tile: computed, and written to or read from a cache."""


def direct_cycles(tiling: Tiling, machine: Machine) -> float:
    """Of the register tiles that compute the convolution directly."""
    products = tiling.channels * tiling.out_channels * 9
    pixels = D.estimate_dim(tiling.batch * tiling.out[0] * tiling.out[1])
    return _products(products * pixels, products, machine)


def winograd_cycles(tiling: Tiling, machine: Machine) -> float:
    """Of both transforms and the products between them."""
    planes = tiling.alpha**2
    weights = planes * tiling.channels * tiling.out_channels
    count = D.estimate_dim(tiling.count)
    vectors = planes * count * (tiling.channels + tiling.out_channels) / machine.lanes(4)
    return _products(weights * count, weights, machine) + _ELEMENT_CYCLES * vectors


def _products(count: float, weights: int, machine: Machine) -> float:
    computing = count / (machine.lanes(4) * machine.fma_per_cycle * _REACHED)
    return max(computing, 4 * weights / _BYTES_PER_CYCLE)
