"""Attention by warpgroups (`wgmma`, sm_90a): a producer copies queries, keys and values for the consumers.

A consumer has 64 rows. Thread blocks are persistent and process tiles of rows, those with the most keys first; the
first keys of the next tile are in flight while rows are finished. The scores of the next keys and the product of
the weights with the values are in flight together. While a warpgroup computes weights from scores, in registers,
another one uses the matrix units: they alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import either, when
from mirlo.targets.gpu.schedule.attention.partial_results import PartialResults
from mirlo.targets.gpu.schedule.attention.work import Work, hidden
from mirlo.targets.gpu.schedule.launch import WARP, Ids, launch, shared, split
from mirlo.targets.gpu.schedule.shuffles import of_warp
from mirlo.targets.nvvm.schedule import bulk, in_flight
from mirlo.targets.nvvm.schedule.attention.jobs import Job, Jobs, Row, Visit, loop_i32
from mirlo.targets.nvvm.schedule.attention.mapped import GroupTile, MappedOperands
from mirlo.targets.nvvm.schedule.attention.memory import rematerialize
from mirlo.targets.nvvm.schedule.attention.online import as_word, in_all, masked, packed, pairs_of, weigh
from mirlo.targets.nvvm.schedule.attention.row_stores import SharedRowStores
from mirlo.targets.nvvm.schedule.fragments import PAIR, Lane
from mirlo.targets.nvvm.schedule.in_flight import SharedOperand
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS, Ring, only
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES, MappedMatrix
from mirlo.targets.nvvm.schedule.units import COLUMNS, DEPTH_BYTES, ROWS

REGISTERS = {1: (40, 232), 2: (40, 232), 3: (32, 160)}
"""Registers per producer and per consumer thread, by the number of consumer warpgroups; together all of them."""
FIRST_ORDER_BARRIER = 1
"""The named barrier where the first warpgroup waits for its turn; those of the others follow. 0 is the block's."""
NEVER = 1e30
"""Above the sum of any row's weights."""
MAX_ALTERNATING_HEAD = 128
"""Largest head size for which warpgroups alternate: with larger heads the products take longer than the weights."""


class GroupKernel:
    """The kernel of one attention by warpgroups."""

    def __init__(self, work: Work, tile: GroupTile, parts: int, factors: MappedOperands, units: int):
        self.work = work
        self.found = work.found
        self.factors = factors
        self.tile = tile
        self.factor = work.factor_of_scores or 1.0
        self.parts = PartialResults(work, parts, self.factor)
        self.jobs = Jobs(work, factors, tile, parts, units)
        self.form = factors.key.form
        self.f32 = ir.F32Type.get()
        self.in_turns = tile.groups > 1 and max(self.found.size, self.found.value_size) <= MAX_ALTERNATING_HEAD

    def emit(self) -> None:
        memory, tile = self.work.memory, self.tile
        lines = ((self.factors.query, tile.height), (self.factors.key, tile.keys), (self.factors.value, tile.keys))
        self.query_map, self.key_map, self.value_map = (read.tensor_map(memory, count) for read, count in lines)
        launch(self.jobs.blocks * self.work.times, tile.threads, self._block)
        self.parts.combine()

    def _block(self, ids: Ids) -> None:
        self._allocate_memory(ids)
        group, own = split(ids.thread, [self.tile.groups + 1, GROUP])
        group = of_warp(group)
        copying, multiplying = REGISTERS[self.tile.groups]

        def produce() -> None:
            bulk.set_registers(copying, more=False)
            with only(ids.thread.below(1)):
                self.jobs.each(ids.block, self._copy, [index(0), index(1)])

        def consume() -> None:
            bulk.set_registers(multiplying, more=True)
            self.number = create("arith.subi", group.type, group, index(1))
            warp, lane = split(own, [GROUP // WARP, WARP])
            self.lane = Lane.of(lane)
            self.group_row = self.number * PRODUCT_ROWS
            self.own_row = self.group_row + (warp * ROWS + self.lane.group)
            if self.in_turns:
                with only(self.number.below(1)):
                    bulk.arrive_named_barrier(FIRST_ORDER_BARRIER, 2 * GROUP)
            self.jobs.each(ids.block, self._attend, [index(0), index(0)])

        either(group.below(1), produce, consume)

    def _allocate_memory(self, ids: Ids) -> None:
        tile, factors = self.tile, self.factors
        slots = bulk.address_of(shared(factors.shared_bytes(tile), ir.IntegerType.get_signless(8)))
        states = bulk.address_of(shared(2 + 4 * tile.stages, ir.IntegerType.get_signless(64)))
        self.unused = bulk.address_of(shared(1, self.f32))
        sizes = [factors.query.bytes(tile.height), factors.key.bytes(tile.keys), factors.value.bytes(tile.keys)]
        self.query = Ring.of(slots, sizes[0], 1, states)
        self.keys = Ring.of(slots + sizes[0], sizes[1], tile.stages, states + 16)
        after = self.keys.base + tile.stages * sizes[1]
        self.values = Ring.of(after, sizes[2], tile.stages, states + (16 + 16 * tile.stages))
        with only(ids.thread.below(1)):
            for ring in (self.query, self.keys, self.values):
                ring.make(1, tile.groups * (GROUP // WARP))
            bulk.publish_barriers()
        bulk.synchronize(cluster=False)

    # Producer: one thread of its warpgroup

    def _copy(self, visit: Visit, at: Sequence[ir.Value]) -> list[ir.Value]:
        job = visit.job
        slot, parity = at
        self._fetch(self.keys, self.factors.key, self.key_map, job, job.last, slot, parity)
        query = self.factors.query
        self.query.empty.wait(index(0), next_phase(visit.odd))
        self.query.full.expect(index(0), self.query.size)
        target, full = self.query.base, self.query.full
        place = (job.first_row, index(0), job.loops)
        query.copy(self.query_map, target, self.tile.height, place, full, index(0), boxes=query.boxes)

        def step(tile: Value, slot: Value, parity: Value) -> list[ir.Value]:
            following = self.keys.following(slot, parity)
            self._fetch(self.keys, self.factors.key, self.key_map, job, tile, *following)
            self._fetch(self.values, self.factors.value, self.value_map, job, tile + 1, slot, parity)
            return following

        slot, parity = downwards(job.last, job.begin, step, [slot, parity])
        self._fetch(self.values, self.factors.value, self.value_map, job, job.begin, slot, parity)
        return self.keys.following(slot, parity)

    def _fetch(
        self,
        ring: Ring,
        read: MappedMatrix,
        tensor_map: Value,
        job: Job,
        tile: Value,
        slot: ir.Value,
        parity: ir.Value,
    ) -> None:
        """Copy a tile of keys or values to its stage, once that is empty."""
        ring.empty.wait(slot, parity)
        ring.full.expect(slot, ring.size)
        place = (tile * self.tile.keys, index(0), job.loops)
        read.copy(tensor_map, ring.at(slot), self.tile.keys, place, ring.full, slot, boxes=read.boxes)

    # Consumers

    def _attend(self, visit: Visit, at: Sequence[ir.Value]) -> list[ir.Value]:
        job = visit.job
        slot, parity = at
        self.rows = self._rows(job)
        self.query.full.wait(index(0), visit.odd)
        self.keys.full.wait(slot, parity)
        scores = in_flight.wait_products(0, self._scores(slot))
        self._release(self.keys, slot)
        zero, none = emit_constant(0.0, self.f32), hidden(self.f32)
        weighed = weigh(self._masked(scores, job.last, False), [none] * 2, [zero] * 2, self.factor)
        sums: list[ir.Value] = [zero] * (self.found.value_size * PRODUCT_ROWS // GROUP)
        carried = [*weighed.peaks, *weighed.totals, *self._words(weighed.weights), *sums, slot, parity]
        if self.found.bounds:
            carried = downwards(job.last, job.edge, partial(self._step, inside=False), carried)
        carried = downwards(job.edge, job.begin, partial(self._step, inside=True), carried)
        peaks, totals, words, sums, (slot, parity) = self._apart(carried)
        # All products with these queries are done.
        self._release(self.query, index(0))
        self.values.full.wait(slot, parity)
        sums = in_flight.wait_products(0, self._weighted(words, slot, sums), words)
        self._release(self.values, slot)
        job = visit.again()
        self.rows = self._rows(job)
        self._finish(job, peaks, in_all(totals), sums)
        return self.keys.following(slot, parity)

    def _rows(self, job: Job) -> list[Row]:
        own = rematerialize(self.own_row)
        return [self.jobs.row(job, own + half * (ROWS // 2)) for half in range(2)]

    def _step(self, tile: Value, *carried: ir.Value, inside: bool) -> list[ir.Value]:
        """Process a tile of keys, and multiply the previous weights with their values."""
        peaks, totals, words, sums, (slot, parity) = self._apart(carried)
        following = self.keys.following(slot, parity)
        self.keys.full.wait(*following)
        if self.in_turns:
            bulk.wait_named_barrier(self.number + FIRST_ORDER_BARRIER, 2 * GROUP)
        scores = self._scores(following[0])
        self.values.full.wait(slot, parity)
        sums = self._weighted(words, slot, sums)
        if self.in_turns:
            bulk.arrive_named_barrier(self._next_order_barrier(), 2 * GROUP)
        scores = in_flight.wait_products(1, scores)
        self._release(self.keys, following[0])
        weighed = weigh(self._masked(scores, tile, inside), peaks, totals, self.factor)
        in_flight.order_before(Value(weighed.totals[0]) + weighed.totals[1], NEVER, self.unused)
        sums = in_flight.wait_products(0, sums, words)
        self._release(self.values, slot)
        sums = [Value(total) * weighed.fades[i // PAIR % 2] for i, total in enumerate(sums)]
        return [*weighed.peaks, *weighed.totals, *self._words(weighed.weights), *sums, *following]

    def _apart(
        self, carried: Sequence[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value], list[ir.Value], list[ir.Value]]:
        """Split the carried values: maxima, totals, weights, accumulators, and the values' stage with its phase."""
        ends = [2, 4, 4 + self.tile.keys * PRODUCT_ROWS // GROUP // PAIR, len(carried) - 2, len(carried)]
        peaks, totals, words, sums, place = (
            list(carried[first:last]) for first, last in zip([0, *ends], ends, strict=False)
        )
        return peaks, totals, words, sums, place

    def _next_order_barrier(self) -> Value:
        """Return the barrier of the warpgroup whose turn is next."""
        following = self.number + 1
        more = following.below(self.tile.groups)
        return create("arith.select", following.type, more, following + FIRST_ORDER_BARRIER, index(FIRST_ORDER_BARRIER))

    def _release(self, ring: Ring, slot: ir.Value) -> None:
        """Emit the signal of each warp that it has consumed a stage."""
        with only(self.lane.number.below(1)):
            ring.empty.arrive(slot)

    def _scores(self, slot: ir.Value) -> list[ir.Value]:
        """Issue the scores of a tile of keys."""
        products = -(-self.found.size // self.form.depth)
        queries = self.query.base + self.group_row * ROW_BYTES
        left, right = (
            SharedOperand(start, in_flight.steps_along(rows, products, DEPTH_BYTES, ROW_BYTES))
            for start, rows in ((queries, self.tile.height), (self.keys.at(slot), self.tile.keys))
        )
        return in_flight.multiply(self.form, self.tile.keys, left, right, [])

    def _weighted(self, words: Sequence[ir.Value], slot: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Issue the product of weights and values, accumulated."""
        depth = self.form.depth
        moved = [step * ROW_BYTES for step in range(0, self.tile.keys, depth)]
        values = SharedOperand(self.values.at(slot), moved, along_k=False, beside=self.tile.keys * ROW_BYTES)
        return in_flight.multiply(self.form, self.found.value_size, words, values, sums)

    def _masked(self, scores: Sequence[ir.Value], tile: Value, inside: bool) -> list[list[ir.Value]]:
        first = tile * self.tile.keys + rematerialize(self.lane.member * PAIR)
        return masked(self.work, by_rows(scores), [row.loops for row in self.rows], first, self.tile.keys, inside)

    def _words(self, weights: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
        """Pack weights as the lhs operand: four registers of two elements for each 16 keys."""
        element = self.found.value.operand.element_type
        upper, lower = weights
        pairs = [pair for step in range(0, self.tile.keys, 2 * COLUMNS) for pair in pairs_of(upper, lower, step)]
        return [as_word(packed(element, *pair)) for pair in pairs]

    # Finished rows

    def _finish(
        self, job: Job, peaks: Sequence[ir.Value], totals: Sequence[ir.Value], sums: Sequence[ir.Value]
    ) -> None:
        lines = SharedRowStores(self.work, self.lane)
        for row, peak, total, own in zip(self.rows, peaks, totals, by_rows(sums), strict=True):
            if self.parts.count == 1:
                lines.store(total, own, row.loops, row.exists)
            else:
                when(row.exists, partial(self._keep, job, row.number, peak, total, own))

    def _keep(self, job: Job, row: Value, peak: ir.Value, total: ir.Value, sums: Sequence[ir.Value]) -> None:
        """Store the partial result of a row."""
        line = self.parts.store_row(job.part, job.batch_number, row, peak, total, self.lane.member.below(1))
        for i, weighted in enumerate(sums):
            column = self.lane.member * PAIR + (i // PAIR * COLUMNS + i % PAIR)
            loops = {**self.work.row(row), **job.loops, self.found.value_loop: column}
            self.parts.store(line, loops, total, weighted)


def by_rows(registers: Sequence[ir.Value]) -> list[list[ir.Value]]:
    """Group a thread's accumulators by row: pairs of adjacent columns of two rows alternate."""
    return [[value for i, value in enumerate(registers) if i // PAIR % 2 == half] for half in range(2)]


def downwards(
    after: Value, last: Value, body: Callable[..., Sequence[ir.Value]], carried: Sequence[ir.Value]
) -> list[ir.Value]:
    """Run `body` for the numbers below `after` down to `last`."""
    count = create("arith.subi", after.type, after, last)

    def one(i: Value, *held: ir.Value) -> Sequence[ir.Value]:
        below = create("arith.subi", after.type, after, i + 1)
        return body(below, *held)

    return loop_i32(count, one, carried)


def next_phase(parity: Value) -> Value:
    """Return the next phase of a single stage."""
    return create("arith.subi", parity.type, index(1), parity)
