"""How the products of a contraction are summed: in groups by dot instructions, in vectors along K, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.sum_blocks import SUM_BLOCK
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.choices import (
    contiguous_sum,
    count_of,
    has_large_output,
    panel_pixels,
    reread_bytes,
)
from mirlo.targets.llvm.schedule.contraction.groups import (
    NEVER,
    DotGroup,
    GroupedSum,
    grouped_sum,
    kind_of_group,
    multiplies_words,
    reserve_registers,
)
from mirlo.targets.llvm.schedule.contraction.sides import ContractionSides, PlanRequest
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem
from mirlo.targets.llvm.schedule.cost import DOT_BELOW_ROWS, MIN_ROWS_TO_PACK, WORD_TEMPORARIES


@dataclass(frozen=True)
class SumChoice:
    """The choice of how products are summed."""

    order: tuple[BlockAxis, ...]
    """The reduction axes, outermost first."""
    problem: TileProblem
    machine: Machine
    """The machine without the registers that the sum needs."""
    may_dot: bool
    """Whether vectors along an axis of the sum are possible."""
    dot: BlockAxis | None = None
    """The axis along which vectors are multiplied and their lanes summed."""
    grouped: GroupedSum | None = None
    """Groups that one instruction sums."""
    has_partial_sums: bool = False
    """Whether the order of a sum is that of vectors along it, whose lanes are added up in their order."""

    @property
    def group(self) -> DotGroup | None:
        """Return the elements that one instruction multiplies, if it multiplies several."""
        return None if self.grouped is None else self.grouped.group


def choose_sum(request: PlanRequest, sides: ContractionSides) -> SumChoice:
    """Choose how products are summed."""
    step = sides.rows.form.stride
    order = tuple(sorted(sides.contraction.reduce, key=lambda axis: -abs(D.estimate_dim(step(axis)))))
    problem = tile_problem(request.machine, sides, count_of(order))
    contiguous = contiguous_axis(sides, order)
    in_lanes = has_partial_sums(request, sides, order, problem.lanes)
    along = choose_dot(request, sides, contiguous)
    if keeps_order(request.machine, sides.contraction) and not in_lanes:
        along = None  # with more rows, panels would be summed in another order
    grouped = choose_groups(request, sides, order, problem, may_dot=along is not None)
    if grouped is not None:
        kind = grouped.group
        problem = replace(
            problem, depth=max(1, problem.depth // kind.size), row_pairs=kind.is_matrix, temporaries=kind.temporaries,
            multiplications=kind.multiplications, is_added=kind.temporaries > 0,
        )  # fmt: skip
        machine = request.machine if request.choices.tile is not None else reserve_registers(kind, request.machine)
        return SumChoice(order, problem, machine, contiguous is not None, grouped=grouped)
    if along is not None:
        order = (*(axis for axis in order if axis is not along), along)
    problem = replace(problem, has_partial_sums=in_lanes)
    return SumChoice(order, problem, request.machine, contiguous is not None, along, has_partial_sums=in_lanes)


def tile_problem(machine: Machine, sides: ContractionSides, depth: int) -> TileProblem:
    """Return what a tile is chosen for, other than its rows; `depth` is the length of the sum."""
    contraction, rows, columns = sides.contraction, sides.rows, sides.columns
    accumulator_bytes = element_bytes(contraction.product.accumulate_type)
    shared_rows = rows.form.stride(sides.lane_axis) == 0
    return TileProblem(
        1, D.estimate_dim(sides.lane_axis.extent), machine.lanes(accumulator_bytes), depth,
        shared_columns=bool(sides.shared) or not sides.moving, shared_rows=shared_rows,
        element_bytes=accumulator_bytes, row_bytes=reread_bytes(rows, [*sides.others, sides.lane_axis]),
        temporaries=WORD_TEMPORARIES if multiplies_words(contraction.product, machine) else 0,
        has_large_output=shared_rows and has_large_output(contraction, rows, columns, machine),
        panel_pixels=0 if shared_rows else panel_pixels(contraction, rows, columns, machine),
    )  # fmt: skip


def contiguous_axis(sides: ContractionSides, order: Sequence[BlockAxis]) -> BlockAxis | None:
    """Return the axis of the sum along which lanes may be, in place of columns; many rows are better with panels."""
    is_counted = all(isinstance(axis.extent, int) for axis in sides.shared)
    if sides.columns.form.stride(sides.lane_axis) == 1 or sides.windows or not is_counted:
        return None
    return contiguous_sum(sides.rows, sides.columns, order)


def choose_dot(request: PlanRequest, sides: ContractionSides, contiguous: BlockAxis | None) -> BlockAxis | None:
    """Return the axis that lanes are along where there are few rows, or a caller requests it."""
    chosen = request.choices.dot
    return contiguous if (count_of(sides.shared) < DOT_BELOW_ROWS if chosen is None else chosen) else None


def choose_groups(
    request: PlanRequest, sides: ContractionSides, order: Sequence[BlockAxis], problem: TileProblem, may_dot: bool
) -> GroupedSum | None:
    """Return the groups that one instruction sums, if the machine has one and the columns are, or can be, in groups.

    Columns that are not constant are packed for many rows only, and not where lanes may be along K.
    """
    rows, columns, reuse = sides.rows, sides.columns, count_of(sides.shared)
    group = kind_of_group(
        sides.contraction.product, rows.factor, columns.factor, request.machine, reuse > 1,
        request.choices.has_small_pairs,
    )  # fmt: skip
    if group is None or depends_on_rows(request, sides, group):
        return None
    if not (problem.shared_rows and problem.shared_columns and sides.is_fixed):
        return None
    least = 0 if columns.access.value in request.constants else NEVER if may_dot else MIN_ROWS_TO_PACK
    return grouped_sum(group, rows, columns, order, sides.lane_axis, sides.apart, reuse >= least)


def keeps_order(machine: Machine, contraction: Contraction) -> bool:
    """Return whether sums have the same order for any number of rows; those of integers are exact in any."""
    return machine.invariant and isinstance(contraction.product.accumulate_type, ir.FloatType)


def has_partial_sums(request: PlanRequest, sides: ContractionSides, order: Sequence[BlockAxis], lanes: int) -> bool:
    """Return whether few rows and many are summed as vectors along K are, in the order of their lanes.

    Constants are packed before, for any number of rows.
    """
    columns = sides.columns
    if not keeps_order(request.machine, sides.contraction) or sides.windows:
        return False
    if len(order) != 1 or not isinstance(order[0].extent, int):
        return False
    if columns.form.stride(sides.lane_axis) == 1 or columns.access.value in request.constants:
        return False
    is_short = lanes > 1 and order[0].extent <= lanes * SUM_BLOCK
    return is_short and contiguous_sum(sides.rows, columns, order) is not None


def depends_on_rows(request: PlanRequest, sides: ContractionSides, group: DotGroup) -> bool:
    """Return whether the machine keeps the order of sums, and the number of rows decides about a group.

    Columns that are not constant are in groups for many rows only.
    """
    is_constant = sides.columns.access.value in request.constants or request.choices.is_packed
    return keeps_order(request.machine, sides.contraction) and (group.is_matrix or not is_constant)
