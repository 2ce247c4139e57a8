"""Products of a few rows with a matrix, as in decoders: every element of the matrix is read once.

Threads read the matrix in 16-byte vectors. If its lines are contiguous along K, a warp has a few lines and reduces
by shuffles. If lines are contiguous along columns, each thread accumulates adjacent columns for every n-th k-step;
threads of a warp combine by shuffles, warps through shared memory.
"""

from __future__ import annotations

import math
from functools import partial

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.combine import in_pairs
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import attribute_constant, for_loop, when
from mirlo.passes.schedule.vectors import elements_of
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import contiguous
from mirlo.targets.gpu.schedule.costs import Shape
from mirlo.targets.gpu.schedule.launch import WARP, Ids, barrier, clamp_index, launch, shared, split
from mirlo.targets.gpu.schedule.product_leaves import OperandLine, ProductLeaves
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles, values_of
from mirlo.targets.gpu.schedule.shuffles import of_neighbour
from mirlo.targets.gpu.schedule.vectors import all_of, load_vector, spread
from mirlo.targets.nvvm.schedule.units import ACCESS

MAX_ROWS = 8
"""Most rows that a thread accumulates at the same time."""
WARPS, DEEP_WARPS = 4, 8
"""Warps per block: contiguous along K, and along columns, where there are fewer blocks."""
COLUMN_THREADS = 8
"""Threads of a warp that read adjacent columns, if these are contiguous: 128 bytes."""
ACCUMULATED_LINES = 4
"""Lines that a warp accumulates at the same time, if contiguous along K."""
UNROLLED, DEEP_UNROLLED = 4, 8
"""Loads of a thread in flight together; the latter for matrices contiguous along columns."""
REGISTER_ROWS = 2
"""Most rows whose operands leave enough registers for that."""


@dataclass(frozen=True)
class GemvPlan:
    """A product with few rows and its elementwise epilogue."""

    name = "matrix by few rows"

    roles: Roles
    few: ProductOperand
    many: ProductOperand
    vector: int
    """Elements of the matrix in 16 bytes."""
    along_k: bool

    @property
    def shape(self) -> Shape:
        """Return the properties of the plan that its cost depends on."""
        few = D.static_dim(self.few.extent)
        return Shape(few, self.lines) if self.few is self.roles.rows else Shape(self.lines, few)

    @property
    def lines(self) -> int:
        """Return the lines of the matrix per thread block."""
        if not self.along_k:
            return COLUMN_THREADS * self.vector
        return WARPS * max(1, ACCUMULATED_LINES // D.static_dim(self.few.extent))

    @property
    def warps(self) -> int:
        """Return the warps per block."""
        return WARPS if self.along_k else DEEP_WARPS

    @property
    def blocks(self) -> int:
        return D.static_dim(self.roles.batches * -(-self.many.extent // self.lines))

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        kernel = _WarpPerLine if self.along_k else _ThreadPerColumns
        kernel(self, memory).emit()


def plan_gemv(roles: Roles) -> GemvPlan | Decline:
    """Plan a product with a few rows, or columns, only."""
    few, many = sorted((roles.rows, roles.columns), key=lambda side: side.extent)
    if few.extent > MAX_ROWS or many.extent < MAX_ROWS:
        return decline("neither factor has few rows", sizes=(roles.rows.extent, roles.columns.extent))
    kind = roles.contraction.product.accumulate_type
    if str(kind) not in ("f32", "i32"):
        return decline("the sums are not f32 or i32", type=str(kind))
    vector = ACCESS // element_bytes(many.access.element_type)
    if roles.depth < WARP:
        return decline("the sums are too short for a warp", steps=roles.depth)
    if contiguous(many, roles.sums, vector) and contiguous(few, roles.sums, vector):
        return GemvPlan(roles, few, many, vector, True)
    if contiguous(many, many.axes, vector):
        return GemvPlan(roles, few, many, vector, False)
    return decline("the matrix is not read 16 bytes at a time", shape=many.access.shape)


class _Kernel:
    """Shared code of both layouts."""

    def __init__(self, plan: GemvPlan, memory: TensorBuffers):
        self.plan = plan
        self.roles = plan.roles
        self.leaves = ProductLeaves(plan.roles, memory)
        self.rows = D.static_dim(plan.few.extent)
        self.depth = D.static_dim(self.roles.depth)
        self.kind = plan.roles.contraction.product.accumulate_type
        self.wide = -(-plan.many.extent // plan.lines)
        self.start = emit_init(plan.roles.contraction.block, self.kind)
        self.batch: dict[int, Value] = {}

    def emit(self) -> None:
        launch(self.plan.blocks, self.plan.warps * WARP, self._block)

    def _block(self, ids: Ids) -> None:
        raise NotImplementedError

    def _vector(self, line: OperandLine, sums: dict[int, Value]) -> ir.Value:
        """Load consecutive elements of an operand in the accumulator type."""
        count = self.plan.vector
        return line.convert(load_vector(line.view, line.position(sums), count), count)

    def _zeros(self) -> Value:
        return spread(emit_constant(0, self.kind), self.plan.vector)

    def _line(self, side: ProductOperand, line: Value) -> OperandLine:
        return self.leaves.line(side, {**self.batch, **values_of(side.axes, line)})

    def _finish(self, row: int, line: Value, total: ir.Value) -> None:
        plan = self.plan
        values = {**self.batch, **values_of(plan.few.axes, index(row)), **values_of(plan.many.axes, line)}
        self.leaves.store(self._plus(attribute_constant(self.start), total), values)

    @staticmethod
    def _plus(a: ir.Value, b: ir.Value) -> Value:
        return create("arith.addf" if isinstance(a.type, ir.FloatType) else "arith.addi", a.type, a, b)

    def _over(self, value: ir.Value, distances: list[int]) -> ir.Value:
        for distance in distances:
            value = self._plus(value, of_neighbour(value, distance))
        return value


class _WarpPerLine(_Kernel):
    """A warp per few lines, contiguous along K."""

    def _block(self, ids: Ids) -> None:
        plan = self.plan
        batch, wide = split(ids.block, [self.roles.batches, self.wide])
        self.batch = values_of(self.roles.batch, batch)
        warp, lane = split(ids.thread, [WARPS, WARP])
        own = plan.lines // WARPS
        lines = [wide * plan.lines + (warp * own + i) for i in range(own)]
        held = [clamp_index(line, plan.many.extent, plan.lines) for line in lines]
        columns = [self._line(plan.many, line) for line in held]
        rows = [self._line(plan.few, index(row)) for row in range(self.rows)]
        step = plan.vector * WARP
        unrolled = math.gcd(self.depth // step, UNROLLED) if D.is_multiple(self.depth, step) else 1

        def round_(first: Value, *sums: ir.Value) -> list[ir.Value]:
            reads = []
            for part in range(unrolled):
                at = values_of(self.roles.sums, first + part * step)
                matrix = [self._vector(line, at) for line in columns]
                reads.append((matrix, [self._vector(line, at) for line in rows]))
            following = list(sums)
            for matrix, factors in reads:
                pairs = [(m, f) for m in matrix for f in factors]
                following = [_multiply_add(m, f, total) for (m, f), total in zip(pairs, following, strict=True)]
            return following

        first = lane * plan.vector
        sums = for_loop(first, self.roles.depth, step * unrolled, round_, [self._zeros()] * (own * self.rows))
        distances = [1 << bit for bit in range(WARP.bit_length() - 1)]
        totals = [self._over(in_pairs(self._plus, elements_of(value)), distances) for value in sums]
        for number, total in enumerate(totals):
            line = lines[number // self.rows]
            exists = line.below(plan.many.extent) if not D.is_multiple(plan.many.extent, plan.lines) else None
            when(all_of(lane.equals(number % WARP), exists), partial(self._finish, number % self.rows, line, total))


class _ThreadPerColumns(_Kernel):
    """A thread per adjacent columns and every n-th k-step."""

    def _block(self, ids: Ids) -> None:
        plan, vector = self.plan, self.plan.vector
        batch, wide = split(ids.block, [self.roles.batches, self.wide])
        self.batch = values_of(self.roles.batch, batch)
        warp, deep, across = split(ids.thread, [DEEP_WARPS, WARP // COLUMN_THREADS, COLUMN_THREADS])
        together = DEEP_WARPS * WARP // COLUMN_THREADS
        first_line = wide * plan.lines
        own = first_line + across * vector
        if not D.is_multiple(plan.many.extent, plan.lines):
            own = create("arith.minui", own.type, own, index(plan.many.extent - vector))
        columns = self._line(plan.many, own)
        rows = [self._line(plan.few, index(row)) for row in range(self.rows)]
        depth = self.depth
        most = DEEP_UNROLLED if self.rows <= REGISTER_ROWS else UNROLLED
        unrolled = math.gcd(depth // together, most) if D.is_multiple(depth, together) else 1

        def round_(first: Value, *sums: ir.Value) -> list[ir.Value]:
            reads = []
            for part in range(unrolled):
                at = values_of(self.roles.sums, first + part * together)
                reads.append((self._vector(columns, at), [row.read(at) for row in rows]))
            following = list(sums)
            for matrix, factors in reads:
                pairs = zip((spread(factor, plan.vector) for factor in factors), following, strict=True)
                following = [_multiply_add(matrix, f, total) for f, total in pairs]
            return following

        begin = warp * (WARP // COLUMN_THREADS) + deep
        sums = for_loop(begin, depth, together * unrolled, round_, [self._zeros()] * self.rows)
        self._meet(ids.thread, warp, deep, across, sums, first_line)

    def _meet(
        self,
        thread: Value,
        warp: Value,
        deep: Value,
        across: Value,
        sums: list[ir.Value],
        first_line: Value,
    ) -> None:
        """Combine the threads' sums and apply the epilogue, to one sum per thread or several."""
        plan, lines = self.plan, self.plan.lines
        distances = [COLUMN_THREADS << bit for bit in range((WARP // COLUMN_THREADS).bit_length() - 1)]
        memory = shared(DEEP_WARPS * self.rows * lines, self.kind)
        for row, vector in enumerate(sums):
            for i, value in enumerate(elements_of(vector)):
                total = self._over(value, distances)
                line = across * plan.vector + i
                place = (warp * self.rows + row) * lines + line
                when(deep.below(1), partial(memref.StoreOp, total, memory, [place]))
        barrier()
        for first in range(0, self.rows * lines, DEEP_WARPS * WARP):
            number = thread + first
            inside = number.below(self.rows * lines) if first + DEEP_WARPS * WARP > self.rows * lines else None
            when(inside, partial(self._add_up, memory, number, first_line))

    def _add_up(self, memory: Value, number: Value, first_line: Value) -> None:
        plan, lines = self.plan, self.plan.lines
        total: ir.Value | None = None
        for warp in range(DEEP_WARPS):
            value = memref.LoadOp(memory, [number + warp * self.rows * lines]).result
            total = value if total is None else self._plus(total, value)
        row, own = split(number, [self.rows, lines])
        line = first_line + own
        assert total is not None
        keep = partial(self._store, row, line, total)
        when(line.below(plan.many.extent) if not D.is_multiple(plan.many.extent, lines) else None, keep)

    def _store(self, row: Value, line: Value, total: ir.Value) -> None:
        values = {**self.batch, **values_of(self.plan.few.axes, row), **values_of(self.plan.many.axes, line)}
        self.leaves.store(self._plus(attribute_constant(self.start), total), values)


def _multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> Value:
    """Compute a * b + c of vectors."""
    if isinstance(c.type.element_type, ir.FloatType):
        return create("vector.fma", c.type, a, b, c)
    return create("arith.addi", c.type, create("arith.muli", c.type, a, b), c)
