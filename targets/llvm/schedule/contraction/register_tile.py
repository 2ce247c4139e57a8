"""The plan of a contraction in register tiles: the decisions, and quantities that follow from them."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.primitives.vector_memory import pieces_of
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_CONTRACTION_CHOICES, ContractionChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand, WindowIndex
from mirlo.targets.llvm.schedule.contraction.orders import Freedom, LoopOrder
from mirlo.targets.llvm.schedule.contraction.tiles import TileProblem, TileSearch, edge_ranges, tile_ranges


@dataclass
class RegisterTilePlan:
    """A contraction with every decision made."""

    contraction: Contraction
    machine: Machine
    rows: ContractionOperand
    columns: ContractionOperand
    lane_axis: LoopAxis
    row_axis: LoopAxis | None
    column_loops: list[LoopAxis]
    """Axes outside of the panels: those that the column operand depends on."""
    row_loops: list[LoopAxis]
    """Axes between a panel and its tiles: those that the column operand does not depend on."""
    order: list[LoopAxis]
    """All reduction axes, outermost first."""
    reduce: list[LoopAxis]
    """Reduction axes of the kernel's loops, fused, outermost first."""
    packs_panels: bool
    """Whether panels of the column operand are packed; else it is read in place."""
    tile_rows: int
    tile_vectors: int
    lanes: int
    unrolled: list[LoopAxis]
    """The last axes of `reduce`, which are unrolled."""
    dot: bool
    """Whether the lanes run along K instead of the output."""
    writes: list[IndexExpr]
    reads: list[list[IndexExpr | None]]
    problem: TileProblem
    """The parameters of the choice of the tile."""
    may_pack: bool = False
    """Whether packing panels is optional."""
    group: DotGroup | None = None
    """The operand groups of a dot-product instruction, if it is used."""
    is_streamed: bool = True
    """Whether panels may be prefetched: they are read one after the other."""
    has_own_rows: bool = False
    """Whether every column has rows of its own, as in depthwise convolutions."""
    order_of_loops: LoopOrder = LoopOrder()
    choices: ContractionChoices = NO_CONTRACTION_CHOICES
    """What a caller or a measurement chose."""
    free: Freedom = Freedom(False, False, None)
    """The other permitted orders."""
    is_stored: bool = False
    """Whether the column operand may be packed before the kernel runs."""
    may_dot: bool = False
    """Whether the lanes could run along K as well as along the output."""
    search: TileSearch | None = None
    """What the tile was chosen for; None for dot products, whose tiles are not compared."""
    has_partial_sums: bool = False
    """Whether the order of a sum is that of vectors along it, whose lanes are added up in their order."""
    is_short: bool = False
    """Whether dot products read a column after the other, with code for all of K."""

    @property
    def tile_columns(self) -> int:
        return self.tile_vectors if self.dot else self.tile_vectors * self.lanes

    @property
    def depth(self) -> Dim:
        return D.product([axis.extent for axis in self.reduce])

    @property
    def panel_columns(self) -> int:
        """Return the columns of a panel's vectors, including the inactive ones of the last vector."""
        columns = min(self.lane_axis.extent, self.tile_columns)
        return sum(piece.lanes for piece in pieces_of(columns, self.lanes, self.machine.masked))

    @property
    def row_tiles(self) -> list[tuple[range, bool]]:
        """Return the tiles along the rows, each with whether it is at an edge, where products are skipped.

        There are none if the number of rows is dynamic.
        """
        axis, edge = self.row_axis, self.rows.edge
        if axis is None:
            return []
        if not isinstance(axis.extent, int):
            if edge is not None:
                raise UndecidedDim(f"which of {axis.extent} rows lie at an edge")
            return []
        if edge is None:
            return [(tiles, False) for tiles in tile_ranges(axis.extent, self.tile_rows)]
        return edge_ranges(axis.extent, self.tile_rows, *edge.interior())

    @property
    def guards(self) -> list[WindowIndex]:
        return self.rows.guards

    @property
    def dynamic_rows(self) -> bool:
        """Return whether the number of rows is dynamic."""
        return self.row_axis is not None and not isinstance(self.row_axis.extent, int)

    @property
    def rows_first(self) -> bool:
        """Return whether the loops over rows are outside of those over panels: row operands are read once."""
        return self.order_of_loops.rows_outside
