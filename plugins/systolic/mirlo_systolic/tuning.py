"""Tilings of layers by measurement: the simulator counts cycles, which depend on sizes only and are always the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mirlo_systolic.layers import Emitter, Layer, Tiling
from mirlo_systolic.simulator import execute

CHUNKS = (4, 8, 16, 32, 64)
"""Products whose weights are loaded together: all divide the scratchpad of weights."""
_BEST: dict[Layer, Tiling] = {}


def best_tiling(layer: Layer, size: int) -> Tiling:
    """Return the tiling of a layer with the fewest cycles; `size` is that of the memory which it addresses."""
    key = replace(
        layer, operands=tuple(replace(image, address=0) for image in layer.operands), weights=0, parameters=0, output=0
    )
    if key not in _BEST:
        best = min((cycles(layer, tiling, size), i, tiling) for i, tiling in enumerate(_by_chunk(layer)))
        others = [(cycles(layer, tiling, size), i + 1, tiling) for i, tiling in enumerate(_by_rows(layer, best[2]))]
        _BEST[key] = min([(best[0], 0, best[2]), *others])[2]
    return _BEST[key]


def cycles(layer: Layer, tiling: Tiling, size: int) -> int:
    """Return the cycles of a layer with a tiling."""
    emitter = Emitter()
    emitter.layer(replace(layer, tiling=tiling))
    emitter.program.barrier()
    (step,) = execute(np.zeros(size, np.uint8), emitter.program.content(), 1)
    return step.cycles


def _by_chunk(layer: Layer) -> Iterator[Tiling]:
    yield layer.tiling
    most = max(len(block.products) for group in layer.groups for block in group)
    for chunk in CHUNKS:
        if chunk != layer.tiling.chunk and chunk < 2 * most:
            yield replace(layer.tiling, chunk=chunk)


def _by_rows(layer: Layer, tiling: Tiling) -> Iterator[Tiling]:
    rows = layer.tile_rows()
    for parts in (2, 3, 4):
        if rows >= 2 * parts:
            yield replace(tiling, rows=-(-rows // parts))
