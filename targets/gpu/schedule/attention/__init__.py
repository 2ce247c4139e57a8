"""Attention, a tile of scores at a time: the rule of all GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.attention import Attention, cannot_be_attention, find_attention
from mirlo.passes.schedule.blocks.evaluate import Memory
from mirlo.passes.schedule.blocks.group import Group, unfit
from mirlo.targets.gpu.schedule.attention.parting import Blocks, choose_parts
from mirlo.targets.gpu.schedule.attention.tiled import Team, Tile, TiledKernel, in_shared_memory
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.stages import LANES, build, open_dims, plan_stages

BUSY = 64
"""Units of a device: keys are divided where there are fewer blocks, and that costs less."""
KEYS = 4
"""Keys of a thread, where rows are few."""
MOST_COLUMNS, FEWEST_COLUMNS = 256, 64
"""Elements of a row of values that one block computes."""
SHARED_BYTES = 32 * 1024
"""Shared memory of a block: what nearly every GPU has."""


@dataclass(frozen=True)
class AttentionPlan:
    """An attention by tiles, and among how many blocks the keys of a row are divided."""

    name = "attention"

    found: Attention
    tile: Tile
    parts: int
    team: Team = in_shared_memory
    """How the threads of a row learn what they have together."""

    def emit(self, memory: Memory) -> None:
        """Emit the launches at the insertion point."""
        TiledKernel(Work(self.found, memory), self.tile, self.parts, self.team).emit()

    def describe(self) -> dict[str, Any]:
        return {"tile": [self.tile.height, self.tile.width], "parts": self.parts}


def plan_attention(group: Group, busy: int = BUSY, team: Team = in_shared_memory) -> AttentionPlan | Decline:
    """How to compute these blocks, if they are an attention."""
    found = find_attention(group)
    if isinstance(found, Decline):
        return found
    tile = choose_tile(found)
    return AttentionPlan(found, tile, choose_parts(found, Blocks(tile.height, tile.width, tile.columns, busy)), team)


def choose_tile(found: Attention) -> Tile:
    """The largest tile that shared memory holds."""
    tile = _widest_tile(found)
    size = element_bytes(found.sum_type)
    while size * tile.shared_numbers > SHARED_BYTES:
        if tile.columns > FEWEST_COLUMNS:
            tile = replace(tile, columns=-(-tile.columns // 2))
        elif tile.rows > 1:
            tile = replace(tile, rows=tile.rows // 2)
        else:
            break
    return tile


def _widest_tile(found: Attention) -> Tile:
    """Threads and their scores: as many rows as there are, up to 64."""
    rows = found.count(found.rows)
    columns = min(found.value_size, MOST_COLUMNS)
    if rows >= 16:
        of_thread = 4 if rows >= 64 else 2 if rows >= 32 else 1
        return Tile(16, 16, of_thread, 2, columns)
    down = 1 << (rows - 1).bit_length()
    widest = max(found.value_size, min(found.keys, 128))
    across = min(128 // down, max(16, 1 << (widest - 1).bit_length()))
    return Tile(down, across, 1, KEYS, columns)


@schedule("any", target="gpu", priority=70)
def attention(kernel: Any, context: Any) -> Any:
    """Two products and the softmax between them, without keeping scores; what is around them by the other plans."""
    refusal = unfit(kernel.view) or cannot_be_attention(kernel.view.blocks) or open_dims(kernel.view.blocks)
    if refusal is not None:
        return refusal
    found = plan_stages(kernel.view, (plan_attention,))
    plans = [stage for stage in found if isinstance(stage, AttentionPlan)]
    if not plans:
        declined = find_attention(Group(tuple(kernel.view.blocks), frozenset(kernel.view.returned), LANES))
        return declined if isinstance(declined, Decline) else decline("it is not computed by itself")
    return build(kernel, found, plans[0].describe())
