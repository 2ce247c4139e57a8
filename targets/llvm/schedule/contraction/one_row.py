"""The kernel for one row where the number of rows is dynamic, and panels are copied to convert them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, TensorAccess
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.schedule.contraction.plan import plan_register_tile
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan


def plan_one_row(plan: RegisterTilePlan) -> RegisterTilePlan | None:
    """Plan calls with one row apart, or return None if the same kernel suits them.

    Many rows share a panel whose elements a copy has converted. One row reads it once: its tile converts elements
    where it loads them, and writes no copy.
    """
    side = plan.columns
    is_converted = side.needs_cast(plan.contraction.product.accumulate_type)
    is_contiguous = side.form.stride(plan.lane_axis) == 1
    if plan.packing is None or plan.group is not None or not (is_converted and is_contiguous):
        return None
    rows = rows_of(plan)
    if not rows or any(isinstance(axis.extent, int) for axis in rows):
        return None
    chosen = plan.choices
    choices = ContractionChoices(
        lead_bytes=chosen.lead_bytes, is_packed=chosen.is_packed, has_small_pairs=chosen.has_small_pairs
    )
    single = plan_register_tile(_without(plan.contraction, {axis.id for axis in rows}), plan.machine, choices=choices)
    return None if isinstance(single, Decline) or single.packing is not None else single


def rows_of(plan: RegisterTilePlan) -> list[LoopAxis]:
    """Return the axes of the output that the column operand does not depend on."""
    indexed = {axis for dim in plan.columns.access.dims for axis in dim.terms}
    return [axis for axis in plan.contraction.spatial if axis.id not in indexed]


def _without(contraction: Contraction, axes: Collection[int]) -> Contraction:
    """Return a contraction without axes that have one iteration."""

    def first(dims: Sequence[IndexExpr]) -> list[IndexExpr]:
        return [
            IndexExpr({axis: step for axis, step in dim.terms.items() if axis not in axes}, dim.constant)
            for dim in dims
        ]

    def access(each: TensorAccess) -> TensorAccess:
        return replace(each, dims=first(each.dims))

    stages = [
        replace(
            stage,
            indices=first(stage.indices),
            reads=[None if read is None else access(read) for read in stage.reads],
        )
        for stage in contraction.stages
    ]
    return replace(
        contraction,
        lhs=access(contraction.lhs),
        rhs=access(contraction.rhs),
        axes=[axis for axis in contraction.axes if axis.id not in axes],
        stages=stages,
        sources={axis: source for axis, source in contraction.sources.items() if axis not in axes},
        writes=[(value, access(each)) for value, each in contraction.writes],
    )
