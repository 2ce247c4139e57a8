"""Choices of the rules of target `llvm` for a kernel, which callers and measurements may make instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mirlo.dialects.bindings import ir
from mirlo.passes.rule_choices import Choice, ChoiceError, bind_choices
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import MAX_ACCUMULATORS

PACKED = "tir.packed"
"""Attribute of a prim function: the panels of a constant operand were packed before."""
SMALL_PAIRS = "tir.small_pairs"
"""Attribute of a prim function: two adjacent products with the constant operand fit 16 bits, whatever the other is."""
_SQUARES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ContractionChoices:
    """Choices for a register tile and the loops around it; None where the schedule chooses."""

    tile_rows: Annotated[int | None, Choice(range(1, 65), "rows of the register tile", is_capped=True)] = None
    tile_vectors: Annotated[
        int | None, Choice(range(1, 65), "vectors of columns of the register tile; at most 64 accumulators in all")
    ] = None
    pack: Annotated[
        bool | None, Choice(range(2), "whether panels of columns are packed: weights once, others in each call")
    ] = None
    dot: Annotated[bool | None, Choice(range(2), "whether the lanes run along K instead of the columns")] = None
    rows_outside: Annotated[
        bool | None, Choice(range(2), "whether the loops over rows are outside of those over panels")
    ] = None
    row_block: Annotated[
        int | None,
        Choice(
            range(1 << 20),
            "tiles of rows that are computed with a panel before the next one; 0 for all",
            tried=(1, 2, 4, 8),
        ),
    ] = None
    depth_block: Annotated[
        int | None,
        Choice(range(1 << 30), "extent of a block of K, 64 or more; 0 for all of K", tried=(256, 512, 1024)),
    ] = None
    lead_bytes: Annotated[
        int | None,
        Choice(range(1 << 20), "prefetch distance, in bytes, of weights that one tile reads", tried=(0, 2048, 8192)),
    ] = None
    share: Annotated[
        int | None,
        Choice(range(3), "what threads divide: 0 panels, 1 the rows of each, 2 both as one loop", tried=(0, 1, 2)),
    ] = None
    is_packed: bool = False
    """Whether the panels of columns were packed before, which no caller chooses."""
    has_small_pairs: bool = False
    """Whether two adjacent products fit 16 bits, which the constant columns prove; no caller chooses it."""

    def __post_init__(self) -> None:
        if self.tile is not None and self.tile[0] * self.tile[1] > MAX_ACCUMULATORS:
            raise ChoiceError(
                f"tile_rows, tile_vectors: expected {MAX_ACCUMULATORS} accumulators or less, "
                f"found {self.tile[0]} * {self.tile[1]}"
            )

    @property
    def has_order(self) -> bool:
        """Return whether the order of the loops is chosen."""
        return any(each is not None for each in (self.rows_outside, self.row_block, self.depth_block))

    @property
    def tile(self) -> tuple[int, int] | None:
        """Return rows and vectors of the register tile, if both are chosen."""
        if self.tile_rows is None or self.tile_vectors is None:
            return None
        return self.tile_rows, self.tile_vectors


@dataclass(frozen=True)
class LoopChoices:
    """Choices for loops that are no contractions: one value for all of them, or one for each."""

    lanes: Annotated[
        tuple[int, ...], Choice(tuple(1 << i for i in range(7)), "elements of a vector", is_per_loop=True)
    ] = ()
    unroll: Annotated[
        tuple[int, ...], Choice(range(1, 17), "vectors per iteration", tried=(1, 2, 4, 8), is_per_loop=True)
    ] = ()

    def lanes_of(self, loop: int | None) -> int | None:
        """Return the elements of a vector in the loop with this number, if chosen."""
        return of_loop(self.lanes, loop)

    def unroll_of(self, loop: int | None) -> int | None:
        """Return the vectors per iteration of the loop with this number, if chosen."""
        return of_loop(self.unroll, loop)


@dataclass(frozen=True)
class ElementwiseChoices(LoopChoices):
    """Choices for loops over elements, some of which are transposed in tiles."""

    transposed_rows: Annotated[
        tuple[int, ...], Choice(_SQUARES, "rows of a tile that is transposed in registers", is_per_loop=True)
    ] = ()
    transposed_columns: Annotated[
        tuple[int, ...], Choice(_SQUARES, "columns of it, no fewer than rows", is_per_loop=True)
    ] = ()


@dataclass(frozen=True)
class BlockChoices:
    """Choices for attention in blocks of rows."""

    block_rows: Annotated[
        int | None, Choice(range(1, 1 << 30), "rows of a block", tried=(16, 32, 64, 96, 128, 192, 256, 512))
    ] = None


@dataclass(frozen=True)
class ConvolutionChoices:
    """Choices for convolutions, before they become prim functions."""

    winograd: Annotated[
        int | None,
        Choice((0, 2, 4), "results of a Winograd tile along each side; 0 for direct convolution"),
    ] = None


NO_CONTRACTION_CHOICES, NO_LOOP_CHOICES = ContractionChoices(), LoopChoices()
NO_ELEMENTWISE_CHOICES, NO_BLOCK_CHOICES = ElementwiseChoices(), BlockChoices()


def of_loop(values: tuple[int, ...], loop: int | None) -> int | None:
    """Return the choice for a loop: there is one value for all, or one for each."""
    if loop is None:
        return None
    if len(values) == 1:
        return values[0]
    return values[loop] if loop < len(values) else None


def contraction_choices(function: ir.OpView | ir.Operation) -> ContractionChoices:
    """Return the requested choices for the contraction of a prim function, for passes before `schedule`."""
    choices: ContractionChoices = bind_choices(ContractionChoices, tuned_values(function))
    return with_panels(choices, panels_of(function))


@dataclass(frozen=True)
class StoredPanels:
    """The panels in which `pack-weights` stored the constant columns of a prim function."""

    is_packed: bool = False
    has_small_pairs: bool = False


NO_PANELS = StoredPanels()


def panels_of(function: ir.OpView | ir.Operation) -> StoredPanels:
    """Return the panels that `pack-weights` recorded for a prim function."""
    attributes = function.operation.attributes
    return StoredPanels(PACKED in attributes, SMALL_PAIRS in attributes)


def with_panels(choices: ContractionChoices, panels: StoredPanels) -> ContractionChoices:
    """Return the choices for a prim function whose panels `pack-weights` may have packed already."""
    if not panels.is_packed:
        return choices
    return replace(choices, pack=None, is_packed=True, has_small_pairs=panels.has_small_pairs)
