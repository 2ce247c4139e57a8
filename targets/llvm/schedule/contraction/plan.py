"""Choices for a contraction: lane and row axes, the register tile, packing, the order of the loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, RuleError, deciding, decline
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction, analyze
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, fuse, row_major
from mirlo.passes.schedule.primitives.sum_blocks import SUM_BLOCK
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices
from mirlo.targets.llvm.machine import MAX_ACCUMULATORS, Machine
from mirlo.targets.llvm.schedule.contraction.choices import (
    choose_rows,
    contiguous_sum,
    count_of,
    dot_tile,
    has_large_output,
    is_short_dot,
    needs_packing,
    panel_pixels,
    reread_bytes,
    tile_request,
)
from mirlo.targets.llvm.schedule.contraction.costs import fastest_order
from mirlo.targets.llvm.schedule.contraction.groups import (
    NEVER,
    DotGroup,
    GroupedSum,
    grouped_sum,
    kind_of_group,
    multiplies_words,
    reserve_registers,
)
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand, plan_operand
from mirlo.targets.llvm.schedule.contraction.orders import choose_order, freedom, keep_order_of_sum
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    ContractionRoles,
    LoopsAround,
    PanelPacking,
    RegisterTile,
    TiledContraction,
    row_tiles,
)
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, TileSearch
from mirlo.targets.llvm.schedule.cost import (
    DOT_BELOW_ROWS,
    EDGE_TILES,
    MIN_ROWS_TO_EXTEND,
    MIN_ROWS_TO_PACK,
    UNROLL_TAPS,
    WORD_TEMPORARIES,
)

NO_AXIS = BlockAxis(-2, 1, False)
"""The lane axis of a scalar output."""


def plan_register_tile(
    contraction: Contraction,
    machine: Machine,
    constants: Collection[ir.Value] = (),
    choices: ContractionChoices = NO_CONTRACTION_CHOICES,
    threads: int = 1,
) -> TiledContraction | Decline:
    """Plan a contraction, or decline it for register tiles.

    `constants` are operands that may be packed before the kernel runs, `threads` divide its loops.
    """
    writes = [row_major(access.dims, access.shape) for _, access in contraction.writes]
    spatial = sorted(contraction.spatial, key=lambda axis: -D.estimate_dim(writes[0].stride(axis)))
    lane_axis = next((axis for axis in spatial if writes[0].stride(axis) == 1), None) if spatial else NO_AXIS
    if lane_axis is None:
        return decline("no axis along which the output is contiguous")
    ragged = contraction.ragged
    if ragged is not None and lane_axis.id != ragged.inner:
        return decline("an axis other than that of the lanes is divided into unequal parts")
    if spatial and any(write.stride(lane_axis) != 1 for write in writes):
        return decline("the outputs are contiguous along different axes")
    for allow_edge in (True, False):
        sides = _row_and_column_operands(contraction, lane_axis, spatial, allow_edge)
        if isinstance(sides, Decline):
            return sides
        plan = _Planner(contraction, machine, *sides, lane_axis, spatial, constants, choices, threads).plan()
        edge = plan.roles.rows.edge
        # Tiles can skip products at their edges only along their rows, and only if the taps are unrolled.
        is_possible = edge is None or (plan.tile.row_axis == edge.position and edge.tap in plan.loops.unrolled)
        if is_possible and sum(is_edge for _, is_edge in row_tiles(plan.roles.rows, plan.tile)) <= EDGE_TILES:
            break
    return plan


def _row_and_column_operands(
    contraction: Contraction, lane_axis: BlockAxis, spatial: list[BlockAxis], allow_edge: bool
) -> tuple[ContractionOperand, ContractionOperand] | Decline:
    """Return the row operand and the column operand.

    Elements of the row operand are broadcast; vectors of the column operand run along the lanes.
    """
    operands = [(contraction.product.lhs, contraction.lhs), (contraction.product.rhs, contraction.rhs)]
    forms = [row_major(access.dims, access.shape) for _, access in operands]
    if any(all(form.stride(axis) == 0 for form in forms) for axis in spatial):
        return decline("an axis of the output indexes neither operand")
    left, right = (form.stride(lane_axis) != 0 for form in forms)
    walked = [sum(form.stride(axis) != 0 for axis in spatial) for form in forms]
    if (left and right and walked[1] > walked[0]) or not right:
        operands.reverse()
        left, right = right, left
    (row_factor, row_access), (column_factor, column_access) = operands
    # The tile's rows run along the innermost axis that only the row operand depends on. Along other axes loop bounds
    # skip products that are out of bounds; along this one tiles at edges skip them (depthwise), or the operand is
    # padded.
    walks, stays = (row_major(access.dims, access.shape) for access in (row_access, column_access))
    walked_axes = (axis for axis in spatial if axis is not lane_axis and stays.stride(axis) == 0)
    moving = [axis for axis in walked_axes if walks.stride(axis) != 0]
    inner = moving[-1] if moving else None
    guarded = {axis.id for axis in moving[:-1]}
    edge = inner.id if inner is not None and left and allow_edge else None
    rows = plan_operand(row_factor, row_access, contraction.axes, guarded, edge)
    columns = plan_operand(column_factor, column_access, contraction.axes)
    if isinstance(rows, Decline):
        return rows
    return columns if isinstance(columns, Decline) else (rows, columns)


@dataclass(frozen=True)
class _FreeAxes:
    """The spatial axes other than that of the lanes."""

    others: list[BlockAxis]
    shared: list[BlockAxis]
    """Those along which the column operand stays the same."""
    moving: list[BlockAxis]
    """Those along which the row operand changes."""
    panels: list[BlockAxis]
    """Those that count panels of unequal widths."""


@dataclass(frozen=True)
class _SumChoice:
    """The choice of how products are summed."""

    order: list[BlockAxis]
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


class _Planner:
    """Makes the plan for given operands and lane axis."""

    def __init__(
        self,
        contraction: Contraction,
        machine: Machine,
        rows: ContractionOperand,
        columns: ContractionOperand,
        lane_axis: BlockAxis,
        spatial: list[BlockAxis],
        constants: Collection[ir.Value],
        choices: ContractionChoices,
        threads: int,
    ):
        self.contraction = contraction
        self.threads = threads
        self.choices = choices
        self.constants = constants
        self.machine = machine
        self.windows = [*rows.guards, *([rows.edge] if rows.edge is not None else [])]
        self.alone = {axis.id for window in self.windows for axis in (window.position, window.tap)}
        if contraction.ragged is not None:
            self.alone |= {contraction.ragged.outer, contraction.ragged.inner}
        self.spatial, self.rows, self.columns = self._fuse_spatial(rows, columns, spatial)
        self.lane_axis = next((axis for axis in self.spatial if axis.id == lane_axis.id), lane_axis)

    def _fuse_spatial(
        self, rows: ContractionOperand, columns: ContractionOperand, spatial: list[BlockAxis]
    ) -> tuple[list[BlockAxis], ContractionOperand, ContractionOperand]:
        """Return the spatial axes, fused where all tensors permit it, and the operands over them."""
        stages = self.contraction.stages
        accesses = [access for _, access in self.contraction.writes]
        accesses += [read for stage in stages for read in stage.reads if read is not None]
        forms = [row_major(access.dims, access.shape) for access in accesses]
        # Only indices that a stage computes with must be distinguished.
        forms += [form for s in stages for axis, form in enumerate(s.indices) if s.block.uses_index(axis)]
        fused, (row_form, column_form, *_) = fuse(spatial, [rows.form, columns.form, *forms], self.alone)
        return fused, replace(rows, form=row_form), replace(columns, form=column_form)

    def plan(self) -> TiledContraction:
        """Choose the tile, the packing and the order of the loops."""
        rows, columns, lane_axis = self.rows, self.columns, self.lane_axis
        axes = self._free_axes()
        chosen = self._choose_sum(axes)
        row_axis, tile_rows, tile_vectors, search = self._choose_tile(axes, chosen)
        if tile_rows * tile_vectors > MAX_ACCUMULATORS:
            raise RuleError(f"rule 'contraction': a tile of {tile_rows} x {tile_vectors} vectors is too large")
        problem, grouped = chosen.problem, chosen.grouped
        kind = self.contraction.product.accumulate_type
        is_cast, width = columns.needs_cast(kind), tile_vectors * problem.lanes
        is_dot, reuse = chosen.dot is not None, count_of(axes.shared)
        if grouped is not None:
            pack = not grouped.group.is_stored or self._extends_panels(grouped.group, axes)
        else:
            pack = not is_dot and needs_packing(
                columns, lane_axis, chosen.order, reuse, width, is_cast, chosen.machine, self.choices.pack
            )
        rows = replace(rows, is_converted=self._converts_rows(axes, chosen, width))
        reduce, rows, columns = self._fuse_reduce(rows, columns, chosen.order, pack, grouped)
        overlap = not is_dot and not (problem.shared_columns and problem.shared_rows)
        rest = [axis for axis in axes.others if axis is not row_axis and axis not in axes.panels] + axes.panels
        row_loops = [axis for axis in rest if columns.form.stride(axis) == 0]
        unrolled = self._unrolled(reduce) if overlap else []
        is_stored = columns.access.value in self.constants
        is_plain = not is_dot and grouped is None and (not pack or is_stored)
        free = freedom(rows, lane_axis, row_axis, row_loops, reduce, unrolled, is_plain=is_plain)
        if self.machine.invariant:
            free = keep_order_of_sum(free, reduce)
        roles = ContractionRoles(self.contraction, rows, columns, lane_axis, tuple(chosen.order))
        tile = RegisterTile(
            row_axis, tile_rows, tile_vectors, problem.lanes,
            replace(problem, rows=1) if row_axis is None else tile_request(problem, row_axis, rows, chosen.order),
            dot=is_dot, may_dot=chosen.may_dot, has_partial_sums=chosen.has_partial_sums,
            is_short=is_dot and is_short_dot(tile_rows, lane_axis, chosen.order, problem.lanes),
            group=None if grouped is None else grouped.group, search=search,
        )  # fmt: skip
        may_pack = not is_dot and grouped is None and columns.form.stride(lane_axis) == 1 and not is_cast
        packing = PanelPacking(pack, may_pack, is_stored)
        order = choose_order(self.choices, free, roles.have_own_rows and not pack, row_axis, tile_rows)
        column_loops = tuple(axis for axis in rest if columns.form.stride(axis) != 0)
        loops = LoopsAround(column_loops, tuple(row_loops), tuple(reduce), tuple(unrolled), order, free)
        result = TiledContraction(self.machine, self.choices, roles, tile, packing, loops)
        if self.choices.has_order:
            return result
        return replace(result, loops=replace(loops, order=fastest_order(result, self.threads)))

    def _free_axes(self) -> _FreeAxes:
        """Sort the spatial axes other than that of the lanes by what they index."""
        ragged = self.contraction.ragged
        others = [axis for axis in self.spatial if axis is not self.lane_axis]
        return _FreeAxes(
            others,
            shared=[axis for axis in others if self.columns.form.stride(axis) == 0],
            # An axis that only the columns depend on counts panels: with a single row there is nothing else to divide.
            moving=[axis for axis in others if self.rows.form.stride(axis) != 0],
            panels=[axis for axis in others if ragged is not None and axis.id == ragged.outer],
        )

    def _problem(self, axes: _FreeAxes, depth: int) -> TileProblem:
        accumulator_bytes = element_bytes(self.contraction.product.accumulate_type)
        shared_rows = self.rows.form.stride(self.lane_axis) == 0
        words = multiplies_words(self.contraction.product, self.machine)
        return TileProblem(
            1, D.estimate_dim(self.lane_axis.extent), self.machine.lanes(accumulator_bytes), depth,
            shared_columns=bool(axes.shared) or not axes.moving, shared_rows=shared_rows,
            element_bytes=accumulator_bytes, row_bytes=reread_bytes(self.rows, self.spatial),
            temporaries=WORD_TEMPORARIES if words else 0,
            has_large_output=shared_rows and has_large_output(self.contraction, self.rows, self.columns, self.machine),
            panel_pixels=0 if shared_rows else panel_pixels(self.contraction, self.rows, self.columns, self.machine),
        )  # fmt: skip

    def _choose_sum(self, axes: _FreeAxes) -> _SumChoice:
        """Choose how products are summed: in groups by dot instructions, in vectors along the sum, or one by one."""
        rows, columns, lane_axis = self.rows, self.columns, self.lane_axis
        order = sorted(self.contraction.reduce, key=lambda axis: -abs(D.estimate_dim(rows.form.stride(axis))))
        problem = self._problem(axes, count_of(order))
        reuse = count_of(axes.shared)
        is_counted = all(isinstance(axis.extent, int) for axis in axes.shared)  # with many rows, panels are better
        can_turn = columns.form.stride(lane_axis) != 1 and not self.windows and is_counted
        contiguous = contiguous_sum(rows, columns, order) if can_turn else None
        dot = self.choices.dot
        along = contiguous if (reuse < DOT_BELOW_ROWS if dot is None else dot) else None
        has_partial_sums = self._has_partial_sums(order, problem.lanes)
        if self._keeps_order and not has_partial_sums:
            along = None  # with more rows, panels would be summed in another order
        group = kind_of_group(
            self.contraction.product, rows.factor, columns.factor, self.machine, reuse > 1, self.choices.has_small_pairs
        )
        if group is not None and self._depends_on_rows(group):
            group = None
        if group is not None and problem.shared_rows and problem.shared_columns and self._is_fixed:
            least = 0 if columns.access.value in self.constants else NEVER if along is not None else MIN_ROWS_TO_PACK
            grouped = grouped_sum(group, rows, columns, order, lane_axis, self.alone, reuse >= least)
            if grouped is not None:
                depth = max(1, problem.depth // grouped.group.size)
                kind = grouped.group
                problem = replace(
                    problem, depth=depth, row_pairs=kind.is_matrix, temporaries=kind.temporaries,
                    multiplications=kind.multiplications, is_added=kind.temporaries > 0,
                )  # fmt: skip
                machine = self.machine if self.choices.tile is not None else reserve_registers(kind, self.machine)
                return _SumChoice(order, problem, machine, contiguous is not None, grouped=grouped)
        if along is not None:
            order = [axis for axis in order if axis is not along] + [along]
        problem = replace(problem, has_partial_sums=has_partial_sums)
        return _SumChoice(
            order, problem, self.machine, contiguous is not None, dot=along, has_partial_sums=has_partial_sums
        )

    @property
    def _keeps_order(self) -> bool:
        """Return whether sums have the same order for any number of rows; those of integers are exact in any."""
        return self.machine.invariant and isinstance(self.contraction.product.accumulate_type, ir.FloatType)

    def _has_partial_sums(self, order: list[BlockAxis], lanes: int) -> bool:
        """Return whether few rows and many are summed as vectors along K are, in the order of their lanes.

        Constants are packed before, for any number of rows.
        """
        columns = self.columns
        if not self._keeps_order or self.windows or len(order) != 1 or not isinstance(order[0].extent, int):
            return False
        if columns.form.stride(self.lane_axis) == 1 or columns.access.value in self.constants:
            return False
        is_short = lanes > 1 and order[0].extent <= lanes * SUM_BLOCK
        return is_short and contiguous_sum(self.rows, columns, order) is not None

    def _depends_on_rows(self, group: DotGroup) -> bool:
        """Return whether the machine keeps the order of sums, and the number of rows decides about a group.

        Sums of integers are exact in any order. Columns that are not constant are in groups for many rows only.
        """
        is_constant = self.columns.access.value in self.constants or self.choices.is_packed
        return self._keeps_order and (group.is_matrix or not is_constant)

    def _choose_tile(self, axes: _FreeAxes, chosen: _SumChoice) -> tuple[BlockAxis | None, int, int, TileSearch | None]:
        """Return the axis of the tile's rows, its rows and column vectors, and the request that they answer."""
        if chosen.dot is not None:
            return *dot_tile(axes.shared, self.lane_axis, chosen.order, chosen.problem.lanes, chosen.machine), None
        # Rows with column vectors of their own cannot share a packed panel.
        if chosen.grouped is not None:
            must_pack = not chosen.grouped.group.is_stored
        else:
            must_pack = self.columns.form.stride(self.lane_axis) not in (0, 1)
        candidates = self._row_candidates(axes.shared or ([] if must_pack or axes.panels else axes.moving))
        return choose_rows(
            chosen.problem, candidates, axes.shared, self.rows, chosen.order, chosen.machine, self.choices.tile
        )

    @property
    def _is_fixed(self) -> bool:
        """Return whether the lanes and the sums have known sizes; the number of rows may be dynamic."""
        return all(isinstance(axis.extent, int) for axis in (self.lane_axis, *self.contraction.reduce))

    def _converts_rows(self, axes: _FreeAxes, chosen: _SumChoice, width: int) -> bool:
        """Return whether rows are converted once, before the tiles of this many columns read them."""
        grouped = chosen.grouped
        # A group that is widened in the tile takes four instructions, in a copy a seventh of three.
        if grouped is not None and grouped.group.widens and self._is_fixed and chosen.problem.shared_rows:
            return True
        strides = map(self.columns.form.stride, axes.others)
        is_reused = width < D.estimate_dim(self.lane_axis.extent) or any(stride != 0 for stride in strides)
        # A tile converts elements one by one, a copy whole vectors of them.
        is_reused |= isinstance(self.rows.access.element_type, (ir.F16Type, ir.BF16Type))
        if not (self._is_fixed and chosen.dot is None and chosen.problem.shared_rows and is_reused):
            return False
        if grouped is not None:
            return bool(grouped.group.flips or grouped.group.widens)
        return self.rows.needs_cast(self.contraction.product.accumulate_type)

    def _extends_panels(self, group: DotGroup, axes: _FreeAxes) -> bool:
        """Return whether a panel of stored int8 is extended in a copy, which many rows are multiplied with."""
        rows = prod(axis.extent if isinstance(axis.extent, int) else 0 for axis in axes.shared)
        return group.widens and rows >= MIN_ROWS_TO_EXTEND

    def _row_candidates(self, axes: list[BlockAxis]) -> list[BlockAxis]:
        """Return the axes that the tile's rows may run along."""
        if self.rows.edge is not None:
            return [axis for axis in axes if axis.id == self.rows.edge.position.id]
        guarded = {window.position.id for window in self.rows.guards}
        return [axis for axis in axes if axis.id not in guarded]

    def _fuse_reduce(
        self,
        rows: ContractionOperand,
        columns: ContractionOperand,
        order: list[BlockAxis],
        pack: bool,
        grouped: GroupedSum | None,
    ) -> tuple[list[BlockAxis], ContractionOperand, ContractionOperand]:
        """Return the reduction axes of the kernel's loops, and the operands over them."""
        if grouped is not None:
            return grouped.reduce, replace(rows, form=grouped.rows), replace(columns, form=grouped.columns)
        if not pack:
            reduce, (row_form, column_form) = fuse(order, [rows.form, columns.form], self.alone)
            return reduce, replace(rows, form=row_form), replace(columns, form=column_form)
        panel, weight = IndexExpr(), 1
        for axis in reversed(order):
            panel = panel + IndexExpr({axis.id: weight})
            weight *= axis.extent
        reduce, (row_form, _) = fuse(order, [rows.form, panel], self.alone)
        return reduce, replace(rows, form=row_form), columns

    def _unrolled(self, reduce: list[BlockAxis]) -> list[BlockAxis]:
        guarded = {window.tap.id for window in self.rows.guards}
        result: list[BlockAxis] = []
        for axis in reversed(reduce):
            if axis.id in guarded or not isinstance(axis.extent, int):
                break
            if axis.extent * count_of(result) > UNROLL_TAPS:
                break
            result.insert(0, axis)
        return result


@deciding
def plan_of(
    blocks: Sequence[BlockView],
    kept: Collection[ir.Value],
    machine: Machine,
    constants: Collection[ir.Value] = (),
    choices: ContractionChoices = NO_CONTRACTION_CHOICES,
    threads: int = 1,
) -> TiledContraction | Decline:
    """Plan some blocks, the first of which is the contraction, in register tiles."""
    contraction = analyze(blocks, kept)
    if isinstance(contraction, Decline):
        return contraction
    return plan_register_tile(contraction, machine, constants, choices, threads)
