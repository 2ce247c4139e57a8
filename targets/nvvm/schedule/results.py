"""Stores of warpgroup results: rows of 128 bytes, through shared memory.

Four threads of a warp have adjacent elements of a row, 16 bytes or less. Stored directly, each piece is a separate
access, and a tile with a short reduction waits longer for these than for its products. Each warp assembles its rows
in its own part of shared memory; only its own threads synchronize.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.forms import row_major
from mirlo.passes.schedule.loops import when
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import WARP, split
from mirlo.targets.gpu.schedule.leaves import PlacedAccess
from mirlo.targets.gpu.schedule.product_leaves import ProductLeaves, indices_of
from mirlo.targets.gpu.schedule.roles import Indices, ProductOperand, Roles
from mirlo.targets.gpu.schedule.vectors import element_at, is_aligned, load_vector, store_vector
from mirlo.targets.nvvm.schedule.fragments import PAIR, Lane
from mirlo.targets.nvvm.schedule.units import ACCESS, COLUMNS, ROWS

ROW_CHUNK_BYTES = 128
"""Bytes of a row that are assembled at a time."""
PITCHES = {2: ROW_CHUNK_BYTES + ACCESS, 4: ROW_CHUNK_BYTES + 2 * ACCESS}
"""Bytes from one row to the next by element size; concurrent accesses hit different banks."""
WARP_BYTES = ROWS * max(PITCHES.values())
"""Shared memory per warp."""


@dataclass(frozen=True)
class WarpRowStores:
    """Stores the rows of warps, 16 bytes per thread."""

    leaves: ProductLeaves
    lane: Lane
    place: Value
    """Shared memory where results are assembled, for all warps."""
    warp: Value
    """Index of this warp."""

    def store(self, batch: Indices, row: Value, column: Value, sums: Sequence[tuple[ir.Value, ir.Value]]) -> None:
        """Apply the epilogue to 16 rows of as many columns as there are accumulators for, and store them.

        Accumulators come in pairs of adjacent columns: of a row, then of the row eight below it, then of the next
        eight columns.
        """
        size = element_bytes(self._kind)
        wide, fragments = ROW_CHUNK_BYTES // size, ROW_CHUNK_BYTES // size // COLUMNS
        also = self.leaves.residual
        for first in range(0, len(sums) // 2, fragments):
            here = column + first * COLUMNS
            if also is not None:
                self._fetch(also, batch, row, here, wide)
                self._wait()
            for number in range(first, min(first + fragments, len(sums) // 2)):
                for half in range(2):
                    pair = sums[2 * number + half]
                    self._put(batch, row + half * COLUMNS, half, here, number - first, pair, also)
            self._wait()
            self._write(batch, row, here, wide)
            self._wait()

    @property
    def roles(self) -> Roles:
        return self.leaves.roles

    @property
    def _kind(self) -> ir.Type:
        kind: ir.Type = self.place.type.element_type
        return kind

    def _at(self, row: Value, column: Value) -> Value:
        """Return the position of an element in this warp's memory."""
        size = element_bytes(self._kind)
        start = self.warp * (WARP_BYTES // size)
        return start + (row * (PITCHES[size] // size) + column)

    def _put(
        self,
        batch: Indices,
        row: Value,
        half: int,
        column: Value,
        number: int,
        pair: tuple[ir.Value, ir.Value],
        also: PlacedAccess | None,
    ) -> None:
        """Apply the epilogue to two adjacent elements and write them to their row, where the residual may be."""
        ((written, _),) = self.leaves.writes
        own = self.lane.member * PAIR + number * COLUMNS
        at = self._at(self.lane.group + half * COLUMNS, own)
        there = None if also is None else load_vector(self.place, at, PAIR)
        line, vectors = self._held(self.roles.rows, row + self.lane.group), []
        for i, total in enumerate(pair):
            across = self._held(self.roles.columns, column + (own + i))
            values = LoopValues(indices_of(self.roles, batch, line, across))
            loaded = {} if also is None or there is None else {id(also[0]): element_at(there, i)}
            vectors.append(self.leaves.results(total, values, loaded)[written.buffer])
        vector = create("vector.from_elements", ir.VectorType.get([PAIR], self._kind), *vectors)
        store_vector(vector, self.place, at)

    def _vector_positions(self, row: Value, column: Value, wide: int) -> Iterator[tuple[Value, Value, Value]]:
        """Yield this thread's 16-byte pieces: position in the warp's memory, row and first column."""
        vector = ACCESS // element_bytes(self._kind)
        down, piece = split(self.lane.number, [WARP * vector // wide, wide // vector])
        along = piece * vector
        for first in range(0, ROWS, WARP * vector // wide):
            line = down + first
            yield self._at(line, along), row + line, column + along

    def _fetch(self, residual: PlacedAccess, batch: Indices, row: Value, column: Value, wide: int) -> None:
        """Load the residual to where the results go."""
        vector = ACCESS // element_bytes(self._kind)
        vectors = []
        for place, line, first in self._vector_positions(row, column, wide):
            last = index(self.roles.columns.extent - vector)
            across = create("arith.minui", first.type, first, last)
            indices = indices_of(self.roles, batch, self._held(self.roles.rows, line), across)
            position = self.leaves.points.position(*residual, LoopValues(indices))
            vectors.append((place, load_vector(self.leaves.view(residual[0]), position, vector)))
        for place, loaded in vectors:
            store_vector(loaded, self.place, place)

    def _write(self, batch: Indices, row: Value, column: Value, wide: int) -> None:
        vector = ACCESS // element_bytes(self._kind)
        for place, at, across in self._vector_positions(row, column, wide):
            loaded = load_vector(self.place, place, vector)
            when(self._exists(at, across), partial(self._store, batch, at, across, loaded))

    def _store(self, batch: Indices, row: Value, column: Value, vector: Value) -> None:
        (written,) = self.leaves.writes
        position = self.leaves.points.position(*written, LoopValues(indices_of(self.roles, batch, row, column)))
        store_vector(vector, self.leaves.view(written[0]), position)

    def _exists(self, row: Value, column: Value) -> Value:
        """Return whether the row and columns exist: all columns of a piece do, or none."""
        return row.below(self.roles.rows.extent) & column.below(self.roles.columns.extent)

    @staticmethod
    def _held(side: ProductOperand, at: Value) -> Value:
        """Clamp a line to the existing ones; nothing is stored for others."""
        return create("arith.minui", at.type, at, index(side.extent - 1))

    @staticmethod
    def _wait() -> None:
        """Synchronize the threads of the warp."""
        everyone = create("arith.constant", _i32(), value=ir.IntegerAttr.get(_i32(), -1))
        ir.Operation.create("nvvm.bar.warp.sync", operands=[everyone])


def row_store_type(roles: Roles) -> ir.Type | None:
    """Return the type of the only result, if its rows can be stored in 16-byte pieces; else None."""
    writes = roles.contraction.writes
    if len(writes) != 1 or not roles.columns.axes:
        return None
    ((value, access),) = writes
    kind = value.type.element_type
    if element_bytes(kind) not in PITCHES or kind == ir.IntegerType.get_signless(1):
        return None
    count, last = ACCESS // element_bytes(kind), roles.columns.axes[-1]
    return kind if is_aligned(row_major(access.dims, access.shape), last.id, count, last.extent) else None


def _i32() -> ir.IntegerType:
    return ir.IntegerType.get_signless(32)
