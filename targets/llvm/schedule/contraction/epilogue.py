"""Epilogues: elementwise blocks on the final accumulators, vector by vector, and the stores.

Where an epilogue is long, or many tiles have it, the accumulators are stored first: it is then a loop over them.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, estimate_dim
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator, count_operations
from mirlo.passes.schedule.dynamic_tiles import TileBody, TiledRows
from mirlo.passes.schedule.vectors import VectorBody, lane_indices, read_body, splat, vector_body
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor
from mirlo.targets.llvm.schedule.contraction.cursors import Buffers, TileCursors
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span
from mirlo.targets.llvm.schedule.cost import (
    INTRINSIC_OPERATIONS,
    LONG_INTRINSICS,
    MAX_UNROLLED_IN_REST,
    MAX_UNROLLED_IN_ROW,
    MIN_DEEP,
    MIN_DEPTH_TO_HOLD,
    MIN_K_TO_PREFETCH,
    ROLLED_FROM,
    ROLLED_FROM_IF_DEEP,
)


@dataclass(frozen=True)
class EpilogueStage:
    """A block of an epilogue, read once: it is emitted for each vector of each tile."""

    body: VectorBody
    indices: tuple[tuple[int, ir.Value], ...]
    """The axes whose index the body computes with, and the arguments for these."""
    inputs: tuple[tuple[ir.Value, ir.Value], ...]
    """The arguments for the inputs, and the tensors."""
    outputs: tuple[ir.Value, ...]

    @staticmethod
    def of(block: BlockView) -> EpilogueStage:
        """Read a block."""
        arguments = enumerate(block.index_arguments)
        return EpilogueStage(
            read_body(block),
            tuple((axis, argument) for axis, argument in arguments if block.uses_index(axis)),
            tuple(zip(block.input_arguments, (operand.value for operand in block.inputs), strict=True)),
            tuple(output.value for output in block.outputs),
        )


@dataclass(frozen=True)
class HeldAccumulators:
    """Memory for the accumulators of tiles that have one epilogue."""

    buffer: ir.Value
    row: ir.Value | None
    """The row of the memory in which those of a tile begin; None for the first one."""


class Epilogue:
    """Emits the epilogue of the tiles of a plan."""

    def __init__(self, code: Code, plan: RegisterTilePlan, buffers: Buffers):
        self.code = code
        self.plan = plan
        self.buffers = buffers
        self.operations = count_operations([stage.block for stage in plan.contraction.stages], LONG_INTRINSICS)
        self.stages = [EpilogueStage.of(stage.block) for stage in plan.contraction.stages]
        result = plan.contraction.block.outputs[0]
        self.result, self.result_type = result.value, result.element_type
        self.held: HeldAccumulators | None = None
        """Where tiles store their accumulators, for an epilogue that they share."""
        depth = estimate_dim(plan.depth)
        self.may_hold = depth >= (MIN_DEEP if self.operations >= INTRINSIC_OPERATIONS else MIN_DEPTH_TO_HOLD)
        """Whether a store and a load of each accumulator are a small part of a tile's time."""
        self.rolled_from = ROLLED_FROM_IF_DEEP if depth >= MIN_DEEP else ROLLED_FROM

    def finish(self, places: TileCursors, rows: int, cut: list[ColumnVector], sums: list[ir.Value]) -> None:
        """Emit the epilogue of a tile whose accumulators are in registers, or store these where they are held."""
        axis = self.plan.row_axis
        if self.held is not None:
            self._hold(self.held, rows, cut, sums)
            return
        is_rest = self.may_hold and (rows < self.plan.tile_rows or len(cut) < self.plan.tile_vectors)
        most = MAX_UNROLLED_IN_REST if is_rest else self.rolled_from
        if axis is None or rows == 1 or self.operations * len(sums) <= most:
            seen: dict[tuple[ir.Value, ir.Value | None, Dim, int], ir.Value] = {}
            for r in range(rows):
                here = places if axis is None else places.advance(axis, r)
                for p, piece in enumerate(cut):
                    self.store_results(here, piece, sums[r * len(cut) + p], seen)
            return
        buffer = self._scratch(cut)
        self._hold(HeldAccumulators(buffer, None), rows, cut, sums)
        self.code.loop(Span(0, rows, 1), lambda i: self._row(buffer, i, places, i, cut, is_rest))

    def shares_rest(self, rows: TiledRows, cut: list[ColumnVector]) -> bool:
        """Return whether the smaller tiles have one copy of the epilogue."""
        copies = len(cut) * sum(tiles.size for tiles in rows.smaller)
        return not self.plan.dot and self.may_hold and self.operations * copies > MAX_UNROLLED_IN_REST

    def finish_together(self, places: TileCursors, rows: TiledRows, cut: list[ColumnVector], tile: TileBody) -> None:
        """Emit the smaller tiles, which hold their accumulators in memory, and one epilogue for all of their rows."""
        assert self.plan.row_axis is not None and self.held is None
        buffer = self._scratch(cut)

        def hold(first: ir.Value, size: int) -> None:
            self.held = HeldAccumulators(buffer, create("arith.subi", first.type, first, rows.rest))
            tile(first, size)
            self.held = None

        def row(i: ir.Value) -> list[ir.Value]:
            self._row(buffer, create("arith.subi", i.type, i, rows.rest), places, i, cut, is_rest=True)
            return []

        rows.loop_over_smaller(hold)
        self.code.range_loop(rows.rest, rows.count, row, [])

    def _scratch(self, cut: list[ColumnVector]) -> ir.Value:
        """Return memory for the accumulators of a tile."""
        width = sum(piece.lanes for piece in cut)
        return self.code.scratch(self.plan.tile_rows * width, self.plan.contraction.product.accumulate_type)

    def _hold(self, held: HeldAccumulators, rows: int, cut: list[ColumnVector], sums: list[ir.Value]) -> None:
        """Store the accumulators of a tile."""
        width = sum(piece.lanes for piece in cut)
        line = None if held.row is None else self.code.scaled(held.row, width)
        for r in range(rows):
            for p, piece in enumerate(cut):
                offset = self.code.index(r * width + piece.offset)
                position = offset if line is None else self.code.add(line, offset)
                self.code.store_vector(sums[r * len(cut) + p], held.buffer, position, piece, whole=True)

    def _row(
        self,
        buffer: ir.Value,
        held_row: ir.Value,
        places: TileCursors,
        i: ir.Value,
        cut: list[ColumnVector],
        is_rest: bool,
    ) -> None:
        """Emit the epilogue of row i, whose accumulators are in a buffer; of a rest, as a loop over vectors if long."""
        axis, lane_axis = self.plan.row_axis, self.plan.lane_axis
        assert axis is not None
        here = places.advance(axis, i)
        lanes = cut[0].lanes
        line = self.code.scaled(held_row, sum(piece.lanes for piece in cut))
        is_even = all(piece.lanes == lanes and not piece.is_partial for piece in cut)
        if is_rest and is_even and len(cut) > 1 and self.operations * len(cut) > MAX_UNROLLED_IN_ROW:
            vector = ColumnVector(0, lanes, lanes)

            def each(c: ir.Value) -> None:
                total = self.code.load_vector(buffer, self.code.add(line, c), vector)
                self.store_results(here.advance(lane_axis, c), vector, total, {})

            self.code.loop(Span(0, lanes * len(cut), lanes), each)
            return
        for piece in cut:
            position = line if piece.offset == 0 else self.code.add(line, self.code.index(piece.offset))
            self.store_results(here, piece, self.code.load_vector(buffer, position, piece, whole=True), {})

    def fetch(self, places: TileCursors, rows: int, cut: list[ColumnVector]) -> None:
        """Prefetch what the epilogue reads of large tensors, before the reduction.

        Otherwise each tile would wait for it at its end. It goes to the L2 cache: in L1, rows at strides of powers
        of two would evict each other.
        """
        plan = self.plan
        axis = plan.row_axis
        seen: set[ir.Value] = set()
        for s, cursors in enumerate(places.reads):
            for cursor, buffer in zip(cursors, self.buffers.reads[s], strict=True):
                if cursor is None or buffer is None or buffer in seen or not self._comes_late(cursor, buffer):
                    continue
                seen.add(buffer)
                for r in range(rows):
                    here = cursor if axis is None else cursor.advance(axis, r)
                    for piece in cut:
                        self.code.prefetch_line(buffer, here.position(piece.offset))

    def _comes_late(self, cursor: Cursor, buffer: ir.Value) -> bool:
        """Return whether an operand is read once, vector by vector, from beyond the L2 cache."""
        plan, axis = self.plan, self.plan.row_axis
        if cursor.form.stride(plan.lane_axis) != 1 or (axis is not None and cursor.form.stride(axis) == 0):
            return False
        if not buffer.type.has_static_shape or not isinstance(plan.depth, int):
            return False
        return buffer_bytes(buffer.type) > plan.machine.l2_bytes // 2 and plan.depth >= MIN_K_TO_PREFETCH

    def store_results(
        self,
        places: TileCursors,
        piece: ColumnVector,
        total: ir.Value,
        seen: dict[tuple[ir.Value, ir.Value | None, Dim, int], ir.Value],
    ) -> None:
        """Emit the elementwise blocks and stores of one vector of accumulators; `seen` caches loads."""
        values = {self.result: convert_accumulator(total, self.result_type)}
        for s, stage in enumerate(self.stages):
            env: dict[ir.Value, ir.Value] = {}
            for axis, argument in stage.indices:
                env[argument] = self._index(places.indices[s][axis], piece)
            for i, (argument, tensor) in enumerate(stage.inputs):
                read = places.reads[s][i]
                if tensor in values:
                    env[argument] = values[tensor]
                elif read is None:
                    env[argument] = self.code.buffers.buffer(tensor)
                else:
                    buffer = self.buffers.reads[s][i]
                    assert buffer is not None
                    env[argument] = self._read(buffer, read, piece, seen)
            mask = self.code.mask(piece) if piece.is_partial else None
            results = vector_body(stage.body, env, piece.lanes, mask)
            values.update(zip(stage.outputs, results, strict=True))
        writes = zip(self.plan.contraction.writes, self.buffers.writes, places.writes, strict=True)
        for (value, _), target, cursor in writes:
            self.code.store_vector(splat(values[value], piece.lanes), target, cursor.position(piece.offset), piece)

    def _index(self, cursor: Cursor, piece: ColumnVector) -> ir.Value:
        """Emit the index of an epilogue block's axis: one for the vector, or one per lane."""
        stride = cursor.form.stride(self.plan.lane_axis)
        if stride == 0:
            return cursor.position()
        first = cursor.position(piece.offset * stride)
        if stride == 1:
            return lane_indices(first, piece.lanes)
        steps = lane_indices(self.code.index(0), piece.lanes)
        scaled = create("arith.muli", steps.type, steps, splat(self.code.index(stride), piece.lanes))
        return create("arith.addi", steps.type, splat(first, piece.lanes), scaled)

    def _read(
        self,
        buffer: ir.Value,
        cursor: Cursor,
        piece: ColumnVector,
        seen: dict[tuple[ir.Value, ir.Value | None, Dim, int], ir.Value],
    ) -> ir.Value:
        stride = cursor.form.stride(self.plan.lane_axis)
        key = (buffer, cursor.base, cursor.offset + piece.offset * stride, piece.lanes if stride else 0)
        if key not in seen:
            seen[key] = self.code.load_lanes(buffer, cursor.position(piece.offset * stride), stride, piece)
        return seen[key]
