"""Among how many blocks of threads the keys of a row are divided: by what each number costs, roughly."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.attention import Attention
from mirlo.targets.gpu.schedule.costs import ALONE, LAUNCH, SUMS, UNIT_BYTES

FEWEST_KEYS = 128
"""Keys that are worth a part of their own."""
MOST_PARTS = 64


@dataclass(frozen=True)
class Blocks:
    """Blocks of threads as the cost of an attention depends on them."""

    height: int
    """Rows of a block."""
    width: int
    """Keys of a tile."""
    columns: int
    """Elements of a row of values."""
    units: int
    """Of the device."""
    rate: float = SUMS
    """Multiply-and-adds a second of a unit."""
    together: int = 1
    """Blocks that share a unit: those of few warps, and those that wait for memory."""


def choose_parts(found: Attention, blocks: Blocks) -> int:
    """The number of parts that takes the least time."""
    tiles = -(-found.keys // blocks.width)
    parts = [1]
    while 2 * parts[-1] <= MOST_PARTS and found.keys >= 2 * parts[-1] * FEWEST_KEYS:
        parts.append(2 * parts[-1])
    # Parts of the same longest share are as good with fewer of them.
    even = sorted({-(-tiles // -(-tiles // number)) for number in parts})
    return min(even, key=lambda number: _seconds(found, blocks, number))


def _seconds(found: Attention, blocks: Blocks, parts: int) -> float:
    rows = found.count(found.rows)
    wide = -(-found.value_size // blocks.columns)
    count = found.count(found.batch) * -(-rows // blocks.height) * wide
    tiles = -(-found.keys // blocks.width)
    length = found.size + blocks.columns
    size = element_bytes(found.key.operand.element_type)
    bandwidth = blocks.units * UNIT_BYTES
    tile = max(
        blocks.height * blocks.width * length * blocks.together / blocks.rate,
        blocks.width * length * size / (ALONE * UNIT_BYTES / blocks.together),
    )
    rounds = -(-count * parts // (blocks.units * blocks.together))
    keys = found.count(found.batch) * found.keys * (found.size + found.value_size) * size
    busy = max(rounds * -(-tiles // parts) * tile, keys / bandwidth)
    if parts == 1:
        return busy
    kept = parts * found.count(found.batch) * rows * found.value_size * element_bytes(found.sum_type)
    return busy + LAUNCH + 2 * kept / bandwidth
