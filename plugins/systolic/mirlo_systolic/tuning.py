"""Tuning of tilings: the simulator counts cycles, which depend on sizes only and are reproducible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from mirlo.extend.codegen import ExternalModule, Tunable
from mirlo_systolic.expressions import Misfit
from mirlo_systolic.layers import Layer, Tiling
from mirlo_systolic.queues import Program
from mirlo_systolic.regions import place_region
from mirlo_systolic.simulator import MEGAHERTZ, execute

CHUNKS = (64, 32, 16, 8, 4)
"""Candidate chunk sizes, all of which divide the scratchpad of weights."""
PARTS = (1, 2, 3, 4, 6)
"""Candidate tile heights, as multiples of the smallest one."""


def layer_key(layer: Layer) -> str:
    """Return a key of everything that the cycles of a layer depend on; addresses do not matter."""
    images = tuple(replace(image, address=0) for image in layer.operands)
    return (
        repr(replace(layer, function=None, operands=images, weights=0, parameters=0, output=0))
        + layer.function.__name__
    )


def tuned_tiling(layer: Layer, values: Mapping[str, int]) -> Tiling:
    """Return the tuned tiling of a layer."""
    own = layer.tiling
    return Tiling(values.get("rows", own.rows), values.get("chunk", own.chunk), bool(values.get("linked", own.linked)))


def tunables(module: ExternalModule, tiling: Tiling) -> list[Tunable]:
    """Return the layers of a module, with candidate tilings."""
    result = []
    for function in module.functions:
        try:
            region = place_region(function, tiling)
        except Misfit:
            continue  # it goes back to the graph
        for name, images in zip(region.names, region.layers, strict=True):
            for layer in images:
                result.append(Tunable(layer_key(layer), name, list(_choices(layer)), _Measure(layer, region.size)))
    return result


class _Measure:
    """The time of a layer on the simulator."""

    def __init__(self, layer: Layer, size: int) -> None:
        self.layer, self.size = layer, size

    def __call__(self, values: Mapping[str, int]) -> float:
        program = Program()
        program.step(replace(self.layer, tiling=tuned_tiling(self.layer, values)).commands())
        (step,) = execute(np.zeros(self.size, np.uint8), program.content(), 1)
        return step.cycles / MEGAHERTZ


def _choices(layer: Layer) -> Iterator[dict[str, int]]:
    chunks = [chunk for chunk in CHUNKS if chunk < 2 * layer.shape.taps] or [CHUNKS[-1]]
    rows = list(dict.fromkeys(-(-layer.tile_rows() // parts) for parts in PARTS))
    for row, chunk, linked in product(rows, chunks, (1, 0)):
        yield {"rows": row, "chunk": chunk, "linked": linked}
