"""Choice of the number of thread blocks that split the keys of a row, by a rough cost model.

If rows or keys are dynamic, the number of parts is an expression over their sizes that the host computes: enough to
occupy every multiprocessor.
"""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.costs import CACHE_BYTES, LAUNCH, SUMS, UNIT_BYTES

MIN_KEYS = 128
"""Fewest keys per part."""
MAX_SPLITS = 64
DIVIDED_KEYS = 4 * MIN_KEYS
"""With dynamic sizes, fewest keys for which a second kernel is worthwhile."""


@dataclass(frozen=True)
class BlockProperties:
    """Properties of thread blocks that the cost of an attention depends on."""

    height: int
    """Rows per block."""
    width: int
    """Keys per tile."""
    columns: int
    """Elements of a row of values."""
    units: int
    """Multiprocessors of the device."""
    rate: float = SUMS
    """Multiply-adds per second and multiprocessor."""
    together: int = 1
    """Blocks resident on a multiprocessor: those with few warps, and those that wait for memory."""


def choose_key_splits(attention: AttentionBlocks, blocks: BlockProperties) -> Dim:
    """Return the number of parts with the lowest cost."""
    keys, batches, rows = attention.keys, attention.count(attention.batch), attention.count(attention.rows)
    if not (isinstance(keys, int) and isinstance(batches, int) and isinstance(rows, int)):
        return _dynamic_key_splits(attention, blocks)
    sizes = _Sizes(keys, batches, rows)
    tiles = -(-keys // blocks.width)
    parts = [1]
    while 2 * parts[-1] <= MAX_SPLITS and keys >= 2 * parts[-1] * MIN_KEYS:
        parts.append(2 * parts[-1])
    # Among numbers with the same longest part, the smallest is best.
    even = sorted({-(-tiles // -(-tiles // number)) for number in parts})
    return min(even, key=lambda number: _seconds(attention, sizes, blocks, number))


def _dynamic_key_splits(attention: AttentionBlocks, blocks: BlockProperties) -> Dim:
    """Return one part per available multiprocessor, each with enough keys."""
    wide = -(-attention.value_size // blocks.columns)
    count = attention.count(attention.batch) * D.ceildiv(attention.count(attention.rows), blocks.height) * wide
    free = blocks.units * blocks.together // count
    worth = attention.keys // DIVIDED_KEYS * (DIVIDED_KEYS // MIN_KEYS)
    return D.maximum(1, D.minimum(MAX_SPLITS, D.minimum(free, worth)))


@dataclass(frozen=True)
class _Sizes:
    keys: int
    batches: int
    rows: int


def _seconds(attention: AttentionBlocks, sizes: _Sizes, blocks: BlockProperties, parts: int) -> float:
    wide = -(-attention.value_size // blocks.columns)
    count = sizes.batches * -(-sizes.rows // blocks.height) * wide
    tiles = -(-sizes.keys // blocks.width)
    length = attention.size + blocks.columns
    size = element_bytes(attention.key.operand.element_type)
    bandwidth = blocks.units * UNIT_BYTES
    tile = max(
        blocks.height * blocks.width * length * blocks.together / blocks.rate,
        blocks.width * length * size / (CACHE_BYTES / blocks.together),
    )
    rounds = -(-count * parts // (blocks.units * blocks.together))
    keys = sizes.batches * sizes.keys * (attention.size + attention.value_size) * size
    busy = max(rounds * -(-tiles // parts) * tile, keys / bandwidth)
    if parts == 1:
        return busy
    kept = parts * sizes.batches * sizes.rows * attention.value_size * element_bytes(attention.sum_type)
    return busy + LAUNCH + 2 * kept / bandwidth
