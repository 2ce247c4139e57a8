"""The choices of a planned contraction: the values with which it is planned again."""

from __future__ import annotations

from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import prefetch_bytes
from mirlo.targets.llvm.tuned_machine import (
    DEPTH_BLOCK,
    DOT,
    LEAD,
    OUTSIDE,
    PACK,
    ROW_BLOCK,
    ROWS,
    SHARE,
    VECTORS,
)


def chosen_values(plan: RegisterTilePlan) -> dict[str, int]:
    """Return the choices of a plan, without those that do not apply to it.

    What threads divide is left out unless it was chosen: by default it depends on the memory of a panel.
    """
    if plan.dot:
        return {DOT: 1}
    free, loops = plan.free, plan.order_of_loops
    values = {ROWS: plan.tile_rows, VECTORS: plan.tile_vectors}
    if plan.machine.chosen.is_packed:
        values[PACK] = 1
    elif plan.may_pack:
        values[PACK] = int(plan.packing is not None)
    if plan.may_dot:
        values[DOT] = 0
    if free.swap:
        values[OUTSIDE] = int(loops.rows_outside)
    if free.block_rows:
        values[ROW_BLOCK] = loops.row_block // plan.tile_rows
    if free.depth_axis is not None:
        values[DEPTH_BLOCK] = loops.depth_block
    distance = prefetch_bytes(plan)
    if distance is not None:
        values[LEAD] = distance
    if loops.share is not None:
        values[SHARE] = loops.share
    return values
