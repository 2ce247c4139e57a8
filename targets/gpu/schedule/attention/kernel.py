"""The skeleton of attention kernels: a grid of row tiles, a loop over tiles of keys, finished rows."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.targets.gpu.schedule.attention.leaves import Loops
from mirlo.targets.gpu.schedule.attention.partial_results import KeyTiles, PartialResults, tiles_of
from mirlo.targets.gpu.schedule.attention.work import Work
from mirlo.targets.gpu.schedule.launch import Ids, clamp_index, launch, split


class AttentionKernel:
    """The kernel of one attention; engines decide how its threads process a tile of keys in registers."""

    def __init__(self, work: Work, parts: Dim, threads: int, height: int, keys: int, columns: int, factor: float = 1):
        """Prepare blocks of `height` rows, tiles of `keys`, and `columns` of a row of values.

        Maxima of rows are of scores that `factor` scales.
        """
        self.work = work
        self.found = work.found
        self.threads = threads
        self.height, self.width, self.columns = height, keys, columns
        self.factor = factor
        self.count = parts
        self.parts = PartialResults(work, parts, factor)
        self.high = D.ceildiv(work.rows, height)
        self.wide = -(-self.found.value_size // columns)
        self.tiles = D.ceildiv(self.found.keys, keys)

    def emit(self) -> None:
        """Emit the launches at the insertion point."""
        blocks = self.high * self.work.batches * self.wide * self.count * self.work.times
        launch(blocks, self.threads, self._block)
        self.parts.combine()

    def _block(self, ids: Ids) -> None:
        work = self.work
        # With a causal bound the last rows see most keys: start them first.
        turn, self.batch_number, self.part, wide = split(ids.block, [self.high, work.batches, self.count, self.wide])
        down = create("arith.subi", turn.type, index(self.high - 1), turn) if self.high != 1 else turn
        self.first_row = down * self.height
        self.first_column = wide * self.columns
        self.thread = ids.thread
        self.batch = work.batch(self.batch_number)
        last = clamp_index(self.first_row + (self.height - 1), work.rows, self.height)
        self.attend(tiles_of(work, self.batch, (self.first_row, last), self.width, self.part, self.count))

    def attend(self, tiles: KeyTiles) -> None:
        """Process the tiles of keys that the block sees, and store its rows."""
        raise NotImplementedError

    def set_rows(self, rows: Sequence[ir.Value]) -> None:
        """Set this thread's rows within the tile."""
        self.own_rows = [self.first_row + row for row in rows]
        held = [clamp_index(row, self.work.rows, self.height) for row in self.own_rows]
        self.row_loops: list[Loops] = [{**self.batch, **self.work.row(row)} for row in held]

    def row_exists(self, i: int) -> Value | None:
        """Return whether one of this thread's rows exists; None if that is certain."""
        return self.own_rows[i].below(self.work.rows) if not D.is_multiple(self.work.rows, self.height) else None

    def store(self, line: Value | None, i: int, column: Value, total: ir.Value, weighted: ir.Value) -> None:
        """Store an element of one of this thread's rows."""
        loops = {**self.row_loops[i], self.found.value_loop: column}
        self.parts.store(line, loops, total, weighted)
