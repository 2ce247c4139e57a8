"""A contraction in register tiles: what was found, and what is chosen for it, each in a record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.vector_memory import pieces_of
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import ContractionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.orders import Freedom, LoopOrder
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, TileSearch, edge_ranges
from mirlo.targets.llvm.schedule.cost import REST_ROWS, REST_ROWS_IN_LOOPS


@dataclass(frozen=True)
class ContractionRoles:
    """A contraction as it was found: which operand has the rows and which the columns, and the lanes' axis."""

    contraction: Contraction
    rows: ContractionOperand
    columns: ContractionOperand
    lane_axis: BlockAxis
    order: tuple[BlockAxis, ...]
    """All reduction axes, outermost first."""

    @property
    def have_own_rows(self) -> bool:
        """Return whether every column has rows of its own, as in depthwise convolutions."""
        return bool(self.rows.form.stride(self.lane_axis) != 0)


@dataclass(frozen=True)
class RegisterTile:
    """The register tile: rows and vectors of accumulators, and the instruction that adds to them."""

    row_axis: BlockAxis | None
    rows: int
    vectors: int
    lanes: int
    problem: TileProblem
    """The parameters of the choice."""
    dot: bool = False
    """Whether the lanes run along K instead of the output."""
    may_dot: bool = False
    """Whether the lanes could run along K as well as along the output."""
    has_partial_sums: bool = False
    """Whether the order of a sum is that of vectors along it, whose lanes are added up in their order."""
    is_short: bool = False
    """Whether dot products read a column after the other, with code for all of K."""
    group: DotGroup | None = None
    """The operand groups of a dot-product instruction, if it is used."""
    search: TileSearch | None = None
    """What the tile was chosen for; None for dot products, whose tiles are not compared."""

    @property
    def columns(self) -> int:
        return self.vectors if self.dot else self.vectors * self.lanes

    @property
    def row_axes(self) -> tuple[BlockAxis, ...]:
        """Return the axis of its rows; none where it has one row."""
        return () if self.row_axis is None else (self.row_axis,)

    @property
    def group_size(self) -> int:
        """Return the elements along K that one instruction multiplies."""
        return 1 if self.group is None else self.group.size

    @property
    def has_dynamic_rows(self) -> bool:
        """Return whether the number of rows is dynamic."""
        return self.row_axis is not None and not isinstance(self.row_axis.extent, int)


@dataclass(frozen=True)
class PanelPacking:
    """Where the column operand is packed into panels."""

    packs_panels: bool
    """Whether the kernel packs each panel; else it reads the operand in place."""
    is_optional: bool = False
    """Whether the kernel may as well do otherwise."""
    is_stored: bool = False
    """Whether the operand may be packed before the kernel runs."""


@dataclass(frozen=True)
class LoopsAround:
    """The loops around the tiles, and of the reduction in them, as axes that are fused where that is possible."""

    columns: tuple[BlockAxis, ...]
    """Axes outside of the panels: those that the column operand depends on."""
    rows: tuple[BlockAxis, ...]
    """Axes between a panel and its tiles: those that the column operand does not depend on."""
    reduce: tuple[BlockAxis, ...]
    """Reduction axes, outermost first."""
    unrolled: tuple[BlockAxis, ...] = ()
    """The last axes of `reduce`, which are unrolled."""
    order: LoopOrder = LoopOrder()
    free: Freedom = Freedom(False, False, None)
    """The other permitted orders."""

    @property
    def depth(self) -> Dim:
        return D.product([axis.extent for axis in self.reduce])


class TailArguments(TypedDict):
    """The arguments of `split` that say how a loop ends."""

    tail: str
    rests: list[int]


@dataclass(frozen=True)
class TiledContraction:
    """A contraction with the choices for it on a machine."""

    machine: Machine
    choices: ContractionChoices
    """What a caller or a measurement chose."""
    roles: ContractionRoles
    tile: RegisterTile
    packing: PanelPacking
    loops: LoopsAround
    part: BlockOfRows | None = None
    """What of it is computed, if it is a part of other loops."""

    @property
    def column_axes(self) -> tuple[BlockAxis, ...]:
        """Return the axes that the column operand depends on, outermost first; the last one is that of the lanes."""
        return *self.loops.columns, self.roles.lane_axis

    @property
    def row_axes(self) -> tuple[BlockAxis, ...]:
        """Return the axes that the column operand does not depend on; the last one is that of a tile's rows, if any."""
        return *self.loops.rows, *self.tile.row_axes

    @property
    def unrolled_loops(self) -> int:
        """Return how many loops of the reduction are unrolled, the innermost ones."""
        return 1 if self.tile.is_short else len(self.loops.unrolled)

    @property
    def change_points(self) -> list[int]:
        """Return the tiles of rows at which those with or without products beyond an edge begin, but the first ones."""
        return [rows.start // self.tile.rows for rows, _ in tiles_at_edges(self.roles.rows, self.tile)[1:]]

    @property
    def copied_sides(self) -> list[ContractionOperand]:
        """Return the operands that tiles read from a copy, with a border or converted."""
        return [side for side in (self.roles.rows, self.roles.columns) if side.padded_dims or side.is_converted]

    @property
    def has_own_rows(self) -> bool:
        """Return whether tiles read rows of their own for every column, which no panel shares."""
        return self.roles.have_own_rows and not self.packing.packs_panels

    @property
    def is_interleaved(self) -> bool:
        """Return whether the kernel packs panels of groups of elements along K."""
        return self.packing.packs_panels and self.tile.group is not None and not self.tile.group.is_stored

    @property
    def has_contiguous_columns(self) -> bool:
        """Return whether vectors of columns, in panels that the kernel packs, are in memory; else those along K are."""
        columns = self.roles.columns.form
        if self.tile.group is None:
            return bool(columns.stride(self.roles.lane_axis) == 1)
        return bool(columns.stride(self.loops.reduce[-1]) != self.tile.group.size)

    @property
    def transposed_squares(self) -> list[int]:
        """Return the extents of the loops along K of which packing transposes squares, and of those in them.

        So it does with elements that are contiguous along K, and with those of a group.
        """
        group = [] if self.tile.group is None else [self.tile.group.size]
        return group if self.has_contiguous_columns else [self.tile.lanes, *group]

    @property
    def converts_panels(self) -> bool:
        """Return whether packing converts elements; those of groups are multiplied as they are."""
        kind = self.roles.contraction.product.accumulate_type
        return self.tile.group is None and self.roles.columns.needs_cast(kind)

    @property
    def has_smaller_panel(self) -> bool:
        """Return whether the last of several panels may be smaller than others."""
        extent = self.roles.lane_axis.extent
        is_single = isinstance(extent, int) and extent < self.tile.columns
        return not is_single and extent % self.tile.columns != 0

    @property
    def tail_of_panels(self) -> str:
        """Return how columns are split into panels: the last one, if it is smaller, may have loops of its own.

        Packed panels do not: one copy serves all of them. Transposes of groups need to know their columns.
        """
        extent = self.roles.lane_axis.extent
        is_apart = not isinstance(extent, int)
        if self.is_interleaved:
            is_apart |= extent % self.tile.columns != 0
        else:
            is_apart |= self.part is not None and self.has_smaller_panel
            is_apart &= not self.packing.packs_panels
        return "peel" if is_apart else "mask"

    @property
    def vectors(self) -> tuple[int, ...]:
        """Return the extents of the loops over the columns of a panel."""
        if self.tile.dot:
            return (self.tile.columns,)
        return self.tile.vectors, 1 if self.roles.lane_axis.extent == 1 else self.tile.lanes

    @property
    def rows(self) -> tuple[int, ...]:
        """Return the tiles of a block of rows, if there are such blocks, and the rows of a tile."""
        block = self.loops.order.row_block
        return (block // self.tile.rows, self.tile.rows) if block else (self.tile.rows,)

    @property
    def tail_of_rows(self) -> TailArguments:
        """Return how rows are split into tiles: shifted ones, and smaller ones, if there may be any number of rows."""
        is_counted = self.part is not None and self.part.is_counted and self.tile.row_axis is not None
        if self.loops.order.row_block or not (is_counted or self.tile.has_dynamic_rows):
            return {"tail": "mask", "rests": []}
        smaller = REST_ROWS_IN_LOOPS if len(self.roles.contraction.spatial) > 2 else REST_ROWS
        return {"tail": "shift", "rests": [rows for rows in smaller if rows < self.tile.rows]}


@dataclass(frozen=True)
class TiledLoops:
    """The loops around the register tiles of a contraction, outermost first."""

    blocks: list[str]
    """Those over blocks of K and of rows."""
    outer: list[str]
    """Over panels, or rows, that threads divide first."""
    panel: str
    tiles: str
    """Over tiles of rows."""
    over: list[str]
    """Those of the reduction in a tile."""
    axes: Mapping[str, int]
    """The ids of the axes that loops are over which were not split; of fused ones, that of the innermost."""


@dataclass(frozen=True)
class BlockOfRows:
    """What a contraction computes that is a part of other loops: a block of rows, inside of the loops over heads."""

    is_counted: bool = True
    """Whether these loops know the number of rows, and where they begin; else it is all rows of a head."""
    is_one: bool = False
    """Whether it is one row, which tiles have no loop over."""
    columns: int = 0
    """The columns of a part, of which a loop outside of panels has one after the other; 0 for all of them."""
    depth: int = 0
    """The products of a part, of which the outermost loop has one after the other; 0 for all of them."""

    def choices(self, whole: TiledContraction) -> TiledContraction:
        """Return the choices for this part of a contraction: the loops around it decide the order of its own."""
        roles, tile, loops = whole.roles, whole.tile, replace(whole.loops, order=LoopOrder())
        if self.columns:
            roles = replace(roles, lane_axis=replace(roles.lane_axis, extent=self.columns))
        if self.depth:
            (axis,) = loops.reduce
            order = LoopOrder(depth_axis=axis, depth_block=self.depth)
            loops = replace(loops, reduce=(replace(axis, extent=self.depth),), order=order)
        if self.is_one:
            loops = replace(loops, rows=whole.row_axes)
            tile = replace(tile, row_axis=None, rows=1)
        return replace(whole, roles=roles, tile=tile, loops=loops, part=self)


def lanes_of_panel(columns: BlockAxis, tile: RegisterTile, machine: Machine) -> int:
    """Return the lanes of a panel's vectors, including the inactive ones of the last vector."""
    width = min(columns.extent, tile.columns)
    return sum(piece.lanes for piece in pieces_of(width, tile.lanes, machine.masked))


def tiles_at_edges(rows: ContractionOperand, tile: RegisterTile) -> list[tuple[range, bool]]:
    """Return ranges of rows, each with whether its tiles are at an edge; none if no products are skipped there."""
    axis, edge = tile.row_axis, rows.edge
    if axis is None or edge is None:
        return []
    if not isinstance(axis.extent, int):
        raise UndecidedDim(f"which of {axis.extent} rows lie at an edge")
    return edge_ranges(axis.extent, tile.rows, *edge.interior())
