"""Epilogues: elementwise blocks on the final accumulators, vector by vector, and the stores.

Where an epilogue is long, or many tiles have it, the accumulators are stored first: it is then a loop over them.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, estimate_dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import convert_accumulator, count_operations
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.dynamic_tiles import TileBody, TiledRows
from mirlo.passes.schedule.loops import for_loop, loop_over_tiles
from mirlo.passes.schedule.primitives.function_constants import FunctionConstants
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.tree import BlockBody
from mirlo.passes.schedule.primitives.vector_memory import READ_FEW, Piece, Position, VectorMemory
from mirlo.passes.schedule.vectors import lane_indices, read_body, splat, vector_body
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
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

Seen = dict[tuple[ir.Value, ir.Value | None, Dim, int], ir.Value]
"""What the epilogue has loaded: from which buffer, from where, and how many lanes."""


@dataclass(frozen=True)
class HeldAccumulators:
    """Memory for the accumulators of tiles that have one epilogue."""

    buffer: ir.Value
    row: ir.Value | None
    """The row of the memory in which those of a tile begin; None for the first one."""


class Epilogue(VectorMemory):
    """Emits the epilogue of the tiles of a plan."""

    def __init__(
        self,
        constants: FunctionConstants,
        memory: TensorBuffers,
        plan: RegisterTilePlan,
        reads: list[list[ir.Value | None]],
        writes: list[ir.Value],
    ):
        super().__init__(constants)
        self.memory, self.plan = memory, plan
        self.reads, self.writes = reads, writes
        self.operations = count_operations([stage.block for stage in plan.contraction.stages], LONG_INTRINSICS)
        bodies = [BlockBody.of(stage.block) for stage in plan.contraction.stages]
        self.bodies = [(body, read_body(body)) for body in bodies]
        """What the blocks compute, read once: it is emitted for each vector of each tile."""
        result = plan.contraction.block.outputs[0]
        self.result, self.result_type = result.value, result.element_type
        self.held: HeldAccumulators | None = None
        """Where tiles store their accumulators, for an epilogue that they share."""
        depth = estimate_dim(plan.depth)
        self.may_hold = depth >= (MIN_DEEP if self.operations >= INTRINSIC_OPERATIONS else MIN_DEPTH_TO_HOLD)
        """Whether a store and a load of each accumulator are a small part of a tile's time."""
        self.rolled_from = ROLLED_FROM_IF_DEEP if depth >= MIN_DEEP else ROLLED_FROM

    def finish(self, values: LoopValues, rows: int, cut: list[Piece], sums: list[ir.Value]) -> None:
        """Emit the epilogue of a tile whose accumulators are in registers, or store these where they are held."""
        axis = self.plan.row_axis
        if self.held is not None:
            self._hold(self.held, rows, cut, sums)
            return
        is_rest = self.may_hold and (rows < self.plan.tile_rows or len(cut) < self.plan.tile_vectors)
        most = MAX_UNROLLED_IN_REST if is_rest else self.rolled_from
        if axis is None or rows == 1 or self.operations * len(sums) <= most:
            places: dict[int, Position] = {}
            seen: Seen = {}
            for r in range(rows):
                for p, piece in enumerate(cut):
                    self.store_results(values, r, piece, sums[r * len(cut) + p], places, seen)
            return
        buffer = self._scratch(cut)
        self._hold(HeldAccumulators(buffer, None), rows, cut, sums)
        loop_over_tiles(0, rows, 1, lambda i: self._row(buffer, i, values, i, cut, is_rest))

    def shares_rest(self, rows: TiledRows, cut: list[Piece]) -> bool:
        """Return whether the smaller tiles have one copy of the epilogue."""
        copies = len(cut) * sum(tiles.size for tiles in rows.smaller)
        return not self.plan.dot and self.may_hold and self.operations * copies > MAX_UNROLLED_IN_REST

    def finish_together(self, values: LoopValues, rows: TiledRows, cut: list[Piece], tile: TileBody) -> None:
        """Emit the smaller tiles, which hold their accumulators in memory, and one epilogue for all of their rows."""
        assert self.plan.row_axis is not None and self.held is None
        buffer = self._scratch(cut)

        def hold(first: ir.Value, size: int) -> None:
            self.held = HeldAccumulators(buffer, create("arith.subi", first.type, first, rows.rest))
            tile(first, size)
            self.held = None

        def row(i: ir.Value) -> None:
            self._row(buffer, create("arith.subi", i.type, i, rows.rest), values, i, cut, is_rest=True)

        rows.loop_over_smaller(hold)
        for_loop(rows.rest, rows.count, 1, row, rolled=True)

    def _scratch(self, cut: list[Piece]) -> ir.Value:
        """Return memory for the accumulators of a tile."""
        elements = self.plan.tile_rows * sum(piece.lanes for piece in cut)
        return self.memory.buffers.scratch([elements], self.plan.contraction.product.accumulate_type)

    def _hold(self, held: HeldAccumulators, rows: int, cut: list[Piece], sums: list[ir.Value]) -> None:
        """Store the accumulators of a tile."""
        width = sum(piece.lanes for piece in cut)
        line = None if held.row is None else create("arith.muli", held.row.type, held.row, self.index(width))
        start = Position(line, 0, {})
        for r in range(rows):
            for p, piece in enumerate(cut):
                position = self.at(start, r * width + piece.offset)
                self.store(sums[r * len(cut) + p], held.buffer, position, piece, whole=True)

    def _row(
        self,
        buffer: ir.Value,
        held_row: LoopValue,
        values: LoopValues,
        i: LoopValue,
        cut: list[Piece],
        is_rest: bool,
    ) -> None:
        """Emit the epilogue of row i, whose accumulators are in a buffer; of a rest, as a loop over vectors if long."""
        values, lanes = values.at({}), cut[0].lanes
        width = sum(piece.lanes for piece in cut)
        line = self.moved(Position(None, 0, {"row": width, "column": 1}), "row", held_row)
        is_even = all(piece.lanes == lanes and not piece.is_partial for piece in cut)
        if is_rest and is_even and len(cut) > 1 and self.operations * len(cut) > MAX_UNROLLED_IN_ROW:
            vector = Piece(0, lanes, lanes)

            def each(c: LoopValue) -> None:
                total = self.load(buffer, self.at(self.moved(line, "column", c)), vector)
                self.store_results(values.at({}), i, vector, total, {}, {}, c)

            loop_over_tiles(0, width, lanes, each)
            return
        places: dict[int, Position] = {}
        for piece in cut:
            total = self.load(buffer, self.at(line, piece.offset), piece, whole=True)
            self.store_results(values, i, piece, total, places, {})

    def fetch_operands(self, values: LoopValues, rows: int, cut: list[Piece]) -> None:
        """Prefetch what the epilogue reads of large tensors, before the reduction.

        Otherwise each tile would wait for it at its end. It goes to the L2 cache: in L1, rows at strides of powers
        of two would evict each other.
        """
        seen: set[ir.Value] = set()
        for forms, buffers in zip(self.plan.reads, self.reads, strict=True):
            for form, buffer in zip(forms, buffers, strict=True):
                if form is None or buffer is None or buffer in seen or not self._comes_late(form, buffer):
                    continue
                seen.add(buffer)
                place = self.place(form, values)
                for r in range(rows):
                    for piece in cut:
                        self.touch(buffer, self.at(place, r * self._row_step(place) + piece.offset), READ_FEW)

    def _row_step(self, place: Position) -> Dim:
        return 0 if self.plan.row_axis is None else place.step(self.plan.row_axis.id)

    def _comes_late(self, form: IndexExpr, buffer: ir.Value) -> bool:
        """Return whether an operand is read once, vector by vector, from beyond the L2 cache."""
        plan, axis = self.plan, self.plan.row_axis
        if form.stride(plan.lane_axis) != 1 or (axis is not None and form.stride(axis) == 0):
            return False
        if not buffer.type.has_static_shape or not isinstance(plan.depth, int):
            return False
        return buffer_bytes(buffer.type) > plan.machine.l2_bytes // 2 and plan.depth >= MIN_K_TO_PREFETCH

    def store_results(
        self,
        values: LoopValues,
        r: LoopValue,
        piece: Piece,
        total: ir.Value,
        places: dict[int, Position],
        seen: Seen,
        column: LoopValue = 0,
    ) -> None:
        """Emit the elementwise blocks and stores of one vector of accumulators, in row r of a tile.

        `places` and `seen` are the positions and loads that are emitted already.
        """
        plan, contraction = self.plan, self.plan.contraction

        def place(form: IndexExpr) -> Position:
            known = places.get(id(form))
            if known is None:
                known = self.moved(self.place(form, values), plan.lane_axis.id, column)
                if plan.row_axis is not None and not isinstance(r, int):
                    known = self.moved(known, plan.row_axis.id, r)
                places[id(form)] = known
            return known.shift(r * self._row_step(known)) if isinstance(r, int) else known

        results = {self.result: convert_accumulator(total, self.result_type)}
        for s, (stage, (body, operations)) in enumerate(zip(contraction.stages, self.bodies, strict=True)):
            env: dict[ir.Value, ir.Value] = {}
            for axis, argument in body.indices:
                env[argument] = self._index(place(plan.indices[s][axis]), piece)
            for i, (argument, operand) in enumerate(zip(body.inputs, stage.block.inputs, strict=True)):
                form, buffer = plan.reads[s][i], self.reads[s][i]
                if operand.value in results:
                    env[argument] = results[operand.value]
                elif form is None or buffer is None:
                    env[argument] = self.memory.buffers.buffer(operand.value)
                else:
                    env[argument] = self._read(buffer, place(form), piece, seen)
            mask = self.mask(piece) if piece.is_partial else None
            computed = vector_body(operations, env, piece.lanes, mask)
            outputs = (output.value for output in stage.block.outputs)
            results.update(zip(outputs, computed, strict=True))
        writes = zip(contraction.writes, self.writes, plan.writes, strict=True)
        for (value, _), target, form in writes:
            at = self.at(place(form), piece.offset)
            self.store(splat(results[value], piece.lanes), target, at, piece)

    def _index(self, place: Position, piece: Piece) -> ir.Value:
        """Emit the index of an epilogue block's axis: one for the vector, or one per lane."""
        stride = place.step(self.plan.lane_axis.id)
        if stride == 0:
            return self.at(place)
        first = self.at(place, piece.offset * stride)
        if stride == 1:
            return lane_indices(first, piece.lanes)
        steps = lane_indices(self.index(0), piece.lanes)
        scaled = create("arith.muli", steps.type, steps, splat(self.index(stride), piece.lanes))
        return create("arith.addi", steps.type, splat(first, piece.lanes), scaled)

    def _read(self, buffer: ir.Value, place: Position, piece: Piece, seen: Seen) -> ir.Value:
        stride = place.step(self.plan.lane_axis.id)
        key = (buffer, place.base, place.offset + piece.offset * stride, piece.lanes if stride else 0)
        if key not in seen:
            seen[key] = self.load_lanes(buffer, self.at(place, piece.offset * stride), stride, piece)
        return seen[key]
