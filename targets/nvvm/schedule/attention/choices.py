"""What measurements may choose for attention: tiles, and among how many blocks of threads keys are divided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mirlo.passes.schedule.blocks.attention import Attention
from mirlo.targets.nvvm.schedule.attention.mma import Tile

WARPS, ROWS, KEYS, PARTS = "warps", "rows", "keys", "parts"
MOST_REGISTERS = 208
"""Of a thread, for what it keeps from tile to tile: the rest is for what is on its way."""
MOST_PARTS = 64


def tiles(found: Attention, own: Tile) -> Iterator[Tile]:
    """Tiles of the matrix units whose fragments fit registers, those like the plan's own first."""
    for warps in (4, 8, 2):
        for rows in (1, 2):
            for keys in (64, 32, 128):
                tile = replace(own, warps=warps, rows=rows, keys=keys)
                fits = rows * (tile.columns / 2 + keys / 2 + found.size / 4) <= MOST_REGISTERS
                if fits and (not isinstance(found.keys, int) or keys <= max(found.keys, 32)):
                    yield tile


def choices(plan: Any) -> list[dict[str, int]]:
    """What may be tried in place of a plan."""
    found = []
    own = getattr(plan, "tile", None)
    if isinstance(own, Tile):
        others = (tile for tile in tiles(plan.found, own) if tile != own)
        found = [{WARPS: t.warps, ROWS: t.rows, KEYS: t.keys, PARTS: plan.parts} for t in others]
    near = {1, 2 * plan.parts, 4 * plan.parts, plan.parts // 2}
    return found + [{PARTS: parts} for parts in sorted(near) if 0 < parts <= MOST_PARTS and parts != plan.parts]


def with_choices(plan: Any, values: Mapping[str, int]) -> Any:
    """A plan with what measurements found; what does not fit it, of another version, is left out."""
    parts = values.get(PARTS, plan.parts)
    if parts in range(1, MOST_PARTS + 1):
        plan = replace(plan, parts=parts)
    own = getattr(plan, "tile", None)
    if not isinstance(own, Tile):
        return plan
    asked = [values.get(name, getattr(own, name)) for name in (WARPS, ROWS, KEYS)]
    for tile in tiles(plan.found, own):
        if [tile.warps, tile.rows, tile.keys] == asked:
            return replace(plan, tile=tile)
    return plan
