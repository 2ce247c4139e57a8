"""Planning of attention by warpgroups: whether it applies, and its tiles."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from mirlo.dialects.core.dims import static_dim
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.attention import AttentionBlocks
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.attention.lengths import AttentionPlan
from mirlo.targets.gpu.schedule.attention.split_keys import BlockProperties, choose_key_splits
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.nvvm.chips import Chip
from mirlo.targets.nvvm.schedule.attention.groups import REGISTERS, GroupKernel
from mirlo.targets.nvvm.schedule.attention.mapped import (
    GroupTile,
    MappedOperands,
    mapped_read,
    uniform_pitch,
)
from mirlo.targets.nvvm.schedule.ring_buffer import RESERVED_BYTES
from mirlo.targets.nvvm.schedule.units import COLUMNS, Format

RATE = 2.2e12
"""Approximate multiply-adds per second of a multiprocessor's warpgroups."""
MIN_WARPGROUP_ROWS = 48
"""Fewest rows of a head for a warpgroup."""
LARGEST = 256
STAGES = 4
"""Most pipeline stages for tiles of keys, and of values."""
SMALL, SLOWER = 64, 0.88
"""Heads whose exponentials take as long as their products, and the relative speed of two warpgroups there."""
RESERVED_REGISTERS = 32
"""Registers per thread for anything but scores, weights and accumulators."""


@dataclass(frozen=True)
class WarpgroupStrategy:
    """Warpgroups and keys of a tile, and the estimated relative speed of such tiles."""

    groups: int
    keys: int
    speed: float
    unmasked: bool = False
    """Only without masks: masks take registers, and half of a wide tile may be masked."""
    simple: bool = False
    """Only if keys fill tiles, no heads share keys, and bounds are the only mask: registers are scarce."""


STRATEGIES = (
    WarpgroupStrategy(3, 128, 1.0, simple=True),
    WarpgroupStrategy(2, 176, 1.0, unmasked=True),
    WarpgroupStrategy(2, 128, 0.95),
    WarpgroupStrategy(2, 112, 0.93),
    WarpgroupStrategy(2, 96, 0.91),
    WarpgroupStrategy(2, 80, 0.88),
    WarpgroupStrategy(2, 64, 0.8),
    WarpgroupStrategy(1, 128, 0.6),
    WarpgroupStrategy(1, 64, 0.5),
    WarpgroupStrategy(1, 32, 0.3),
)


@dataclass(frozen=True)
class GroupAttentionPlan(AttentionPlan):
    """Attention by warpgroups."""

    tile: GroupTile
    parts: int
    factors: MappedOperands
    chip: Chip

    def kernel(self, work: Work) -> GroupKernel:
        """See `AttentionPlan`."""
        return GroupKernel(work, self.tile, self.parts, self.factors, self.chip.units)


def plan_groups(attention: AttentionBlocks, form: Format, chip: Chip) -> GroupAttentionPlan | Decline:
    """Plan an attention in this format by warpgroups."""
    if not all(isinstance(extent, int) for extent in attention.extents):
        return decline("sizes are known at run time only, which tensor maps must be made for")
    if max(attention.size, attention.value_size) > LARGEST:
        return decline("heads are too large for registers", size=max(attention.size, attention.value_size))
    if attention.value_size % COLUMNS != 0:
        return decline("eight does not divide the size of values", value_size=attention.value_size)
    factors = map_operands(attention, form)
    if isinstance(factors, Decline):
        return factors
    if factors.query.lines < MIN_WARPGROUP_ROWS:
        return decline("there are too few rows for warpgroups", rows=factors.query.lines)
    tile = choose_tile(attention, factors, chip)
    if tile is None:
        return decline("no tile fits registers and shared memory", size=attention.size, value_size=attention.value_size)
    blocks = BlockProperties(tile.height, tile.keys, attention.value_size, chip.units, RATE)
    parts = nonempty_splits(attention, tile, static_dim(choose_key_splits(attention, blocks)))
    if 2 * jobs(attention, factors, tile) * parts < chip.units:
        return decline("there are too few rows for the chip's units", rows=attention.count(attention.rows))
    return GroupAttentionPlan("attention on warpgroups", attention, tile, parts, factors, chip)


def map_operands(attention: AttentionBlocks, form: Format) -> MappedOperands | Decline:
    """Return queries, keys and values as they are copied; the rows of a tile have a uniform stride."""
    inner = attention.rows
    while len(inner) > 1 and uniform_pitch(attention, attention.query, inner) is None:
        inner = inner[1:]
    outer = attention.rows[: len(attention.rows) - len(inner)]
    reads = (
        (attention.query, attention.size_loop, inner), (attention.key, attention.size_loop, (attention.key_loop,)),
        (attention.value, attention.value_loop, (attention.key_loop,)),
    )  # fmt: skip
    mapped = []
    for read, across, down in reads:
        result = mapped_read(attention, read, form, across, down)
        if isinstance(result, Decline):
            return result
        mapped.append(result)
    query, key, value = mapped
    return MappedOperands(query, key, value, outer)


def tiles(attention: AttentionBlocks, factors: MappedOperands, chip: Chip) -> Iterator[tuple[GroupTile, float]]:
    """Yield tiles that fit registers and shared memory, with their estimated speed."""
    for way in STRATEGIES:
        _, registers = REGISTERS[way.groups]
        taken = RESERVED_REGISTERS + attention.value_size / 2 + way.keys / 2 + way.keys / 4
        plain = not any(o.value != attention.scores for place in attention.mask for o in place.needed_inputs)
        if way.unmasked and (attention.bounds or not plain):
            continue
        if taken > registers or (way.simple and not (plain and _is_simple(attention, way.keys))):
            continue
        for stages in range(STAGES, 1, -1):
            tile = GroupTile(way.groups, way.keys, stages)
            if factors.shared_bytes(tile) + RESERVED_BYTES <= chip.shared_bytes:
                yield tile, way.speed * (SLOWER if way.groups < 3 and attention.value_size <= SMALL else 1.0)
                break


def _is_simple(attention: AttentionBlocks, keys: int) -> bool:
    """Return whether all tiles of this many keys are full, and rows belong to one head."""
    heads = [loop for loop in attention.rows if static_dim(attention.extents[loop]) > 1]
    return len(heads) <= 1 and static_dim(attention.keys) % keys == 0


def choose_tile(attention: AttentionBlocks, factors: MappedOperands, chip: Chip) -> GroupTile | None:
    """Return the tile with the lowest estimated time, counting wasted products."""
    keys = static_dim(attention.keys)

    def cost(tile: GroupTile, speed: float) -> float:
        whole = -(-keys // tile.keys) * tile.keys
        length = (keys + tile.height + tile.keys) / 2 if attention.bounds else whole
        rounds = jobs(attention, factors, tile) / chip.units
        # Jobs of unequal length balance across multiprocessors; equal ones run in whole waves.
        rounds = max(rounds, 1.0) if attention.bounds else ceil(rounds)
        return rounds * tile.height * length / speed

    found_tiles = list(tiles(attention, factors, chip))
    return min(found_tiles, key=lambda pair: cost(*pair))[0] if found_tiles else None


def jobs(attention: AttentionBlocks, factors: MappedOperands, tile: GroupTile) -> int:
    """Return the number of row tiles."""
    heads = static_dim(attention.count(attention.batch)) * static_dim(attention.count(factors.outer))
    return heads * -(-factors.query.lines // tile.height)


def nonempty_splits(attention: AttentionBlocks, tile: GroupTile, parts: int) -> int:
    """Return the number of non-empty parts if each has as many key tiles as the first one."""
    whole = -(-static_dim(attention.keys) // tile.keys)
    return -(-whole // -(-whole // min(parts, whole)))
