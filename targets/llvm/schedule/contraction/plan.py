"""Decisions before any code: the axis of the lanes, that of the rows, what is packed, the order of the loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.analysis import Access, Contraction
from mirlo.targets.llvm.schedule.contraction.body import Factor
from mirlo.targets.llvm.schedule.contraction.linear import Axis, Linear, fuse, row_major
from mirlo.targets.llvm.schedule.contraction.tiles import Piece, TileQuestion, choose_tile, pieces

PACK_FROM_ROWS = 6
"""From so many rows on, copying a panel of the column operand costs less than reading it with a long stride."""
DOT_BELOW_ROWS = 16
"""Up to so many rows, dot products along the sum cost less than transposing the column operand."""
UNROLL_TAPS = 32
"""Reductions of up to this length are unrolled whole where their loads overlap (windows of depthwise convolutions)."""


NO_AXIS = Axis(-2, 1, False)
"""Stands for the axis of the lanes where the output is a single number."""


@dataclass
class Side:
    """One operand of the product, as the kernel reads it."""

    factor: Factor
    access: Access
    form: Linear
    """Position in the buffer that the kernel reads: the operand itself, or its padded copy."""
    padded_shape: tuple[int, ...] | None = None
    """Shape of the padded copy, where reads leave the tensor."""
    padding: tuple[int, ...] = ()
    """Elements before the first, in each dim of the copy."""


@dataclass
class Plan:
    """A contraction with every decision made."""

    contraction: Contraction
    machine: Machine
    rows: Side
    columns: Side
    lane_axis: Axis
    row_axis: Axis | None
    column_loops: list[Axis]
    """Axes outside of the panels: those that the column operand walks."""
    row_loops: list[Axis]
    """Axes between a panel and its tiles: those along which the column operand stays."""
    order: list[Axis]
    """All reduction axes, outermost first."""
    reduce: list[Axis]
    """Reduction axes as the kernel walks them, fused, outermost first."""
    packed: Linear | None
    """Position in the packed panel over the reduction axes, in rows of a panel; None where nothing is packed."""
    pack_reduce: list[Axis]
    """Reduction axes as the packing walks them."""
    pack_forms: tuple[Linear, Linear] | None
    tile_rows: int
    tile_vectors: int
    lanes: int
    unroll: bool
    dot: bool
    """Whether the lanes run along the sum, and not along the output."""
    writes: list[Linear]
    reads: list[list[Linear | None]]
    indices: list[list[Linear]]
    extents: dict[int, int] = field(default_factory=dict)

    @property
    def tile_columns(self) -> int:
        return self.tile_vectors if self.dot else self.tile_vectors * self.lanes

    @property
    def depth(self) -> int:
        return prod(axis.extent for axis in self.reduce)

    def cut(self, columns: int) -> list[Piece]:
        """The vectors that cover this many columns."""
        return pieces(columns, self.lanes, self.machine.masked)


def make_side(factor: Factor, access: Access, extents: dict[int, int]) -> Side | Decline:
    """How the kernel reads an operand: as it is, or from a padded copy where its map leaves the tensor."""
    ranges = [dim.range(extents) for dim in access.dims]
    beyond = [low < 0 or high >= size for (low, high), size in zip(ranges, access.shape, strict=True)]
    if not any(beyond):
        return Side(factor, access, row_major(access.dims, access.shape))
    if access.outside is None:
        return decline("an operand is read beyond its edges")
    shape, before, dims = [], [], []
    for dim, (low, high), size, is_beyond in zip(access.dims, ranges, access.shape, beyond, strict=True):
        shift = -low if is_beyond else 0
        shape.append(high - low + 1 if is_beyond else size)
        before.append(shift)
        dims.append(dim.shifted(shift))
    return Side(factor, access, row_major(dims, shape), tuple(shape), tuple(before))


def make_plan(contraction: Contraction, machine: Machine) -> Plan | Decline:
    """Decide everything, or say why this contraction is none for register tiles."""
    extents = contraction.extents
    lhs = make_side(contraction.product.lhs, contraction.lhs, extents)
    rhs = make_side(contraction.product.rhs, contraction.rhs, extents)
    if isinstance(lhs, Decline):
        return lhs
    if isinstance(rhs, Decline):
        return rhs
    writes = [row_major(access.dims, access.shape) for _, access in contraction.writes]
    reads = [[None if r is None else row_major(r.dims, r.shape) for r in s.reads] for s in contraction.stages]
    indices = [list(stage.indices) for stage in contraction.stages]
    spatial = sorted(contraction.spatial, key=lambda axis: -writes[0].stride(axis))
    if any(not lhs.form.stride(a) and not rhs.form.stride(a) for a in spatial):
        return decline("an axis of the output moves neither operand")
    flat = [lhs.form, rhs.form, *writes, *(f for f in _flatten(reads) if f is not None), *_flatten(indices)]
    ragged = contraction.ragged
    spatial, fused = fuse(spatial, flat, () if ragged is None else (ragged.outer, ragged.inner))
    it = iter(fused)
    lhs.form, rhs.form = next(it), next(it)
    writes = [next(it) for _ in writes]
    reads = [[None if f is None else next(it) for f in group] for group in reads]
    indices = [[next(it) for _ in group] for group in indices]
    lane_axis = next((axis for axis in spatial if writes[0].stride(axis) == 1), None) if spatial else NO_AXIS
    if lane_axis is None:
        return decline("no axis along which the output is contiguous")
    if ragged is not None and lane_axis.id != ragged.inner:
        return decline("an axis other than that of the lanes is divided into unequal parts")
    if spatial and any(write.stride(lane_axis) != 1 for write in writes):
        return decline("the outputs are contiguous along different axes")
    rows, columns = _sides(lhs, rhs, lane_axis, spatial)
    return _finish(contraction, machine, rows, columns, lane_axis, spatial, writes, reads, indices)


def _flatten(groups: Iterable[Iterable[Linear | None]]) -> list[Linear]:
    return [form for group in groups for form in group if form is not None]


def _sides(lhs: Side, rhs: Side, lane_axis: Axis, spatial: list[Axis]) -> tuple[Side, Side]:
    """The operand whose elements are spread over a row, and the one whose vectors run along the lanes."""
    moves_left, moves_right = lhs.form.stride(lane_axis) != 0, rhs.form.stride(lane_axis) != 0
    if moves_left and moves_right:
        walked = [sum(side.form.stride(axis) != 0 for axis in spatial) for side in (lhs, rhs)]
        return (lhs, rhs) if walked[1] <= walked[0] else (rhs, lhs)
    return (lhs, rhs) if moves_right else (rhs, lhs)


def _finish(
    contraction: Contraction, machine: Machine, rows: Side, columns: Side, lane_axis: Axis, spatial: list[Axis],
    writes: list[Linear], reads: list[list[Linear | None]], indices: list[list[Linear]],
) -> Plan | Decline:  # fmt: skip
    accumulator_bytes = element_bytes(contraction.product.accumulate_type)
    lanes = machine.lanes(accumulator_bytes)
    order = sorted(contraction.reduce, key=lambda axis: -abs(rows.form.stride(axis)))
    depth = prod(axis.extent for axis in order)
    ragged = contraction.ragged
    others = [axis for axis in spatial if axis is not lane_axis]
    panels = [axis for axis in others if ragged is not None and axis.id == ragged.outer]
    shared_columns = [axis for axis in others if columns.form.stride(axis) == 0]
    question = TileQuestion(
        1, lane_axis.extent, lanes, depth,
        shared_columns=bool(shared_columns) or not others, shared_rows=rows.form.stride(lane_axis) == 0,
        element_bytes=accumulator_bytes,
    )  # fmt: skip
    # Rows that multiply vectors of their own cannot share a packed panel.
    must_pack = columns.form.stride(lane_axis) != 1
    candidates = shared_columns or ([] if must_pack or panels else others)
    reuse = prod(axis.extent for axis in shared_columns)
    along = _contiguous_sum(rows, columns, order) if must_pack and reuse < DOT_BELOW_ROWS else None
    if along is not None:
        order = [axis for axis in order if axis is not along] + [along]
        row_axis, tile_rows, tile_vectors = _dot_tile(shared_columns, lane_axis, machine)
    else:
        row_axis, tile_rows, tile_vectors = _choose_rows(question, candidates, machine)
    width = tile_vectors * lanes
    pack = along is None and _wants_packing(columns, lane_axis, order, reuse, width, machine)
    packed: Linear | None = None
    pack_reduce: list[Axis] = []
    pack_forms: tuple[Linear, Linear] | None = None
    rows_form, columns_form = rows.form, columns.form
    if pack:
        packed, weight = Linear({}), 1
        for axis in reversed(order):
            packed = packed + Linear({axis.id: weight})
            weight *= axis.extent
        pack_reduce, forms = fuse(order, [columns.form, packed])
        pack_forms = (forms[0], forms[1])
        reduce, forms = fuse(order, [rows.form, packed])
        rows_form, packed = forms[0], forms[1]
    else:
        reduce, forms = fuse(order, [rows.form, columns.form])
        rows_form, columns_form = forms[0], forms[1]
    rows.form, columns.form = rows_form, columns_form
    rest = [axis for axis in others if axis is not row_axis and axis not in panels] + panels
    return Plan(
        contraction, machine, rows, columns, lane_axis, row_axis,
        column_loops=[axis for axis in rest if columns.form.stride(axis)], order=order,
        row_loops=[axis for axis in rest if not columns.form.stride(axis)],
        reduce=reduce, packed=packed, pack_reduce=pack_reduce, pack_forms=pack_forms,
        tile_rows=tile_rows, tile_vectors=tile_vectors, lanes=lanes,
        unroll=along is None and not question.shared_columns and depth <= UNROLL_TAPS, dot=along is not None,
        writes=writes, reads=reads, indices=indices,
    )  # fmt: skip


def _choose_rows(question: TileQuestion, candidates: list[Axis], machine: Machine) -> tuple[Axis | None, int, int]:
    """The axis along which the tile's rows run, and the size of the tile."""
    if not candidates:
        rows, vectors, _ = choose_tile(question, machine)
        return None, rows, vectors
    total = prod(axis.extent for axis in candidates)
    best = None
    for axis in reversed(candidates):  # innermost first: among equals its rows lie closest together
        asked = TileQuestion(**{**question.__dict__, "rows": axis.extent})
        rows, vectors, cycles = choose_tile(asked, machine)
        cycles *= total // axis.extent
        if best is None or cycles < best[0] * 0.98:
            best = (cycles, axis, rows, vectors)
    assert best is not None
    return best[1:]


def _contiguous_sum(rows: Side, columns: Side, order: list[Axis]) -> Axis | None:
    """The reduction axis along which both operands are contiguous."""
    return next((a for a in order if rows.form.stride(a) == 1 and columns.form.stride(a) == 1), None)


def _dot_tile(candidates: list[Axis], lane_axis: Axis, machine: Machine) -> tuple[Axis | None, int, int]:
    """The axis of the rows, and how many rows and columns of dot products a tile has."""
    row_axis = max(candidates, key=lambda axis: axis.extent, default=None)
    rows = min(row_axis.extent, 4) if row_axis is not None else 1
    fitting = (c for c in (8, 4, 2, 1) if rows * c + rows + 1 <= machine.vector_registers)
    return row_axis, rows, min(next(fitting, 1), lane_axis.extent)


def _wants_packing(
    columns: Side, lane_axis: Axis, order: list[Axis], reuse: int, width: int, machine: Machine
) -> bool:
    """Whether the kernel copies each panel of the column operand before it uses it."""
    if columns.form.stride(lane_axis) != 1:
        return True
    size = element_bytes(columns.access.element_type)
    if reuse < PACK_FROM_ROWS:
        return False
    is_cast = bool(columns.factor.body_ops)
    footprint = prod(axis.extent for axis in order) * lane_axis.extent * size
    if footprint <= machine.l1_bytes // 2 and not is_cast:
        return False
    innermost = order[-1] if order else None
    dense = innermost is not None and columns.form.stride(innermost) <= width
    return is_cast or not dense
