"""What a contraction is planned from: what a caller requests, the operands by side, and the axes by what they index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, fuse, row_major
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand, WindowIndex, plan_operand

NO_AXIS = BlockAxis(-2, 1, False)
"""The lane axis of a scalar output."""


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is made for."""

    machine: Machine
    constants: Collection[ir.Value] = ()
    """Operands that may be packed before the kernel runs."""
    choices: ContractionChoices = NO_CONTRACTION_CHOICES
    threads: int = 1


@dataclass(frozen=True)
class LaneAxis:
    """The axis along which the results of a contraction are contiguous, and all spatial axes, outermost first."""

    axis: BlockAxis
    spatial: tuple[BlockAxis, ...]


@dataclass(frozen=True)
class ContractionSides:
    """The operands of a contraction by side, and its spatial axes, fused where all tensors permit it."""

    contraction: Contraction
    rows: ContractionOperand
    """Its elements are broadcast."""
    columns: ContractionOperand
    """Its vectors run along the lanes."""
    lane_axis: BlockAxis
    others: tuple[BlockAxis, ...]
    """The other spatial axes, outermost first."""

    @property
    def shared(self) -> list[BlockAxis]:
        """Return the axes along which the columns stay the same."""
        return [axis for axis in self.others if self.columns.form.stride(axis) == 0]

    @property
    def moving(self) -> list[BlockAxis]:
        """Return the axes along which the rows change.

        One that only the columns depend on counts panels: with a single row there is nothing else to divide.
        """
        return [axis for axis in self.others if self.rows.form.stride(axis) != 0]

    @property
    def panels(self) -> list[BlockAxis]:
        """Return the axes that count panels of unequal widths."""
        ragged = self.contraction.ragged
        return [axis for axis in self.others if ragged is not None and axis.id == ragged.outer]

    @property
    def windows(self) -> list[WindowIndex]:
        """Return the windows whose products beyond edges are skipped."""
        return windows_of(self.rows)

    @property
    def apart(self) -> frozenset[int]:
        """Return the ids of the axes that are not fused with others."""
        return axes_apart(self.contraction, self.rows)

    @property
    def is_fixed(self) -> bool:
        """Return whether the lanes and the sums have known sizes; the number of rows may be dynamic."""
        return all(isinstance(axis.extent, int) for axis in (self.lane_axis, *self.contraction.reduce))


def windows_of(rows: ContractionOperand) -> list[WindowIndex]:
    """Return the windows of an operand whose products beyond edges are skipped."""
    return [*rows.guards, *([rows.edge] if rows.edge is not None else [])]


def axes_apart(contraction: Contraction, rows: ContractionOperand) -> frozenset[int]:
    """Return the ids of the axes that are not fused with others: those of windows, and of unequal panels."""
    ids = {axis.id for window in windows_of(rows) for axis in (window.position, window.tap)}
    if contraction.ragged is not None:
        ids |= {contraction.ragged.outer, contraction.ragged.inner}
    return frozenset(ids)


def find_lanes(contraction: Contraction) -> LaneAxis | Decline:
    """Return the axis of the lanes, along which all results are contiguous."""
    writes = [row_major(access.dims, access.shape) for _, access in contraction.writes]
    spatial = sorted(contraction.spatial, key=lambda axis: -D.estimate_dim(writes[0].stride(axis)))
    lanes = next((axis for axis in spatial if writes[0].stride(axis) == 1), None) if spatial else NO_AXIS
    if lanes is None:
        return decline("no axis along which the output is contiguous")
    ragged = contraction.ragged
    if ragged is not None and lanes.id != ragged.inner:
        return decline("an axis other than that of the lanes is divided into unequal parts")
    if spatial and any(write.stride(lanes) != 1 for write in writes):
        return decline("the outputs are contiguous along different axes")
    return LaneAxis(lanes, tuple(spatial))


def sort_sides(contraction: Contraction, lanes: LaneAxis, allow_edge: bool = True) -> ContractionSides | Decline:
    """Sort the operands by side and fuse the spatial axes.

    Elements of the row operand are broadcast; vectors of the column operand run along the lanes. With `allow_edge`
    tiles at edges may skip products, else the operand is padded.
    """
    spatial = lanes.spatial
    operands = [(contraction.product.lhs, contraction.lhs), (contraction.product.rhs, contraction.rhs)]
    forms = [row_major(access.dims, access.shape) for _, access in operands]
    if any(all(form.stride(axis) == 0 for form in forms) for axis in spatial):
        return decline("an axis of the output indexes neither operand")
    left, right = (form.stride(lanes.axis) != 0 for form in forms)
    indexed = [sum(form.stride(axis) != 0 for axis in spatial) for form in forms]
    if (left and right and indexed[1] > indexed[0]) or not right:
        operands.reverse()
        left, right = right, left
    (row_factor, row_access), (column_factor, column_access) = operands
    # The tile's rows run along the innermost axis that only the row operand depends on. Along other axes loop bounds
    # skip products that are out of bounds; along this one tiles at edges skip them (depthwise), or the operand is
    # padded.
    row_form, column_form = (row_major(access.dims, access.shape) for access in (row_access, column_access))
    shared = (axis for axis in spatial if axis is not lanes.axis and column_form.stride(axis) == 0)
    moving = [axis for axis in shared if row_form.stride(axis) != 0]
    inner = moving[-1] if moving else None
    guarded = {axis.id for axis in moving[:-1]}
    edge = inner.id if inner is not None and left and allow_edge else None
    rows = plan_operand(row_factor, row_access, contraction.axes, guarded, edge)
    columns = plan_operand(column_factor, column_access, contraction.axes)
    if isinstance(rows, Decline):
        return rows
    return columns if isinstance(columns, Decline) else fuse_spatial(contraction, rows, columns, lanes)


def fuse_spatial(
    contraction: Contraction, rows: ContractionOperand, columns: ContractionOperand, lanes: LaneAxis
) -> ContractionSides:
    """Return the operands over spatial axes that are fused where all tensors permit it."""
    stages = contraction.stages
    accesses = [access for _, access in contraction.writes]
    accesses += [read for stage in stages for read in stage.reads if read is not None]
    forms = [row_major(access.dims, access.shape) for access in accesses]
    # Only indices that a stage computes with must be distinguished.
    forms += [form for s in stages for axis, form in enumerate(s.indices) if s.block.uses_index(axis)]
    own = [rows.form, columns.form, *forms]
    fused, (row_form, column_form, *_) = fuse(lanes.spatial, own, axes_apart(contraction, rows))
    lane_axis = next((axis for axis in fused if axis.id == lanes.axis.id), lanes.axis)
    return ContractionSides(
        contraction, replace(rows, form=row_form), replace(columns, form=column_form), lane_axis,
        tuple(axis for axis in fused if axis is not lane_axis),
    )  # fmt: skip


def fuse_sum(
    sides: ContractionSides, order: Sequence[BlockAxis], is_packed: bool
) -> tuple[list[BlockAxis], ContractionSides]:
    """Return the reduction axes, fused where both operands permit it, and the sides over them.

    Columns that are packed have the order of the sum, whatever theirs is.
    """
    rows, columns = sides.rows, sides.columns
    if not is_packed:
        reduce, (row_form, column_form) = fuse(order, [rows.form, columns.form], sides.apart)
        rows, columns = replace(rows, form=row_form), replace(columns, form=column_form)
        return reduce, replace(sides, rows=rows, columns=columns)
    panel, weight = IndexExpr(), 1
    for axis in reversed(order):
        panel = panel + IndexExpr({axis.id: weight})
        weight *= axis.extent
    reduce, (row_form, _) = fuse(order, [rows.form, panel], sides.apart)
    return reduce, replace(sides, rows=replace(rows, form=row_form))
