"""Cost model of a convolution, in cycles of one core: direct, and by Winograd's algorithm."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.winograd.functions import Tiling

_REACHED = 0.9
"""Part of the machine's peak that matrix products reach."""
_BYTES_PER_CYCLE = 4.5
"""Bandwidth of weights from memory."""
_EXPOSED_REREADS = 0.7
"""Part of the cycles of reading panels from the L2 cache again that products take longer. On a Xeon with AVX-512 3x3
windows of 512 channels on 7x7 pixels, whose panels are 590 KB, reach 0.63 of the peak, those on lines of 14 pixels
0.79, others 0.9."""
_TILE_ROWS = 14
"""Rows of a tile of the products, unless a line has fewer pixels."""
_PANEL_COLUMNS = 32
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
    rows = min(_TILE_ROWS, max(1, D.estimate_dim(tiling.out[1])))
    panel_bytes = 9 * tiling.channels * _PANEL_COLUMNS * weight_bytes
    again = _reread_cycles(pixels / rows, panel_bytes, weight_bytes * products, machine)
    return _products(products * pixels, weight_bytes * products, tiling, machine) + again


def winograd_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of both transforms and the products between them."""
    planes = tiling.alpha**2
    weights = planes * tiling.channels * tiling.out_channels
    count = D.estimate_dim(tiling.count)
    vectors = tiling.channels / machine.lanes(tiling.transformed_bytes) + tiling.out_channels / machine.lanes(4)
    transforms = _ELEMENT_CYCLES * planes * count * vectors
    size = tiling.transformed_bytes * weights
    panel_bytes = tiling.channels * _PANEL_COLUMNS * tiling.transformed_bytes
    again = _reread_cycles(count / _TILE_ROWS, panel_bytes, size, machine)
    return _products(weights * count, size, tiling, machine) + transforms + again


def _reread_cycles(times: float, panel_bytes: int, weight_bytes: float, machine: Machine) -> float:
    """Estimate the cycles lost to panels beyond the L1 cache that are read so many times, where loads are exposed."""
    if not machine.exposed_loads or panel_bytes <= machine.l1_bytes // 2:
        return 0.0
    return _EXPOSED_REREADS * max(1.0, times) * weight_bytes / machine.l2_bytes_per_cycle


def _products(count: float, weight_bytes: int, tiling: Tiling, machine: Machine) -> float:
    rate = _INTEGER_PRODUCTS if tiling.is_integer else machine.fma_per_cycle
    return max(count / (machine.lanes(4) * rate * _REACHED), weight_bytes / _BYTES_PER_CYCLE)
