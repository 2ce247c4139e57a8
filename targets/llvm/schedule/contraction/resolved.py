"""The choices of a planned contraction: the values with which it is planned again."""

from __future__ import annotations

from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import prefetch_bytes


def resolved_choices(plan: RegisterTilePlan) -> ContractionChoices:
    """Return the choices of a plan, without those that do not apply to it.

    What threads divide is left out unless it was chosen: by default it depends on the memory of a panel.
    """
    if plan.dot:
        return ContractionChoices(dot=True)
    free, loops = plan.free, plan.order_of_loops
    is_packed = plan.packing is not None if plan.may_pack else None
    return ContractionChoices(
        plan.tile_rows,
        plan.tile_vectors,
        pack=True if plan.choices.is_packed else is_packed,
        dot=False if plan.may_dot else None,
        rows_outside=loops.rows_outside if free.swap else None,
        row_block=loops.row_block // plan.tile_rows if free.block_rows else None,
        depth_block=loops.depth_block if free.depth_axis is not None else None,
        lead_bytes=prefetch_bytes(plan),
        share=loops.share,
    )
