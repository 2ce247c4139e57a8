"""Contractions of 16-bit floats on the matrix units: tiles in shared memory, fragments in registers, sums in f32.

While a block multiplies one step of the sums, it has the next ones under way. Factors that lie side by side in memory
are copied to shared memory 16 bytes at a time, asynchronously (`cp.async`), several steps ahead; others go through
registers, one step ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mirlo.dialects.bindings import ir, memref, scf
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.rules import Decline, decline, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import analyze, is_product
from mirlo.passes.schedule.blocks.contraction.body import count_operations, emit_init
from mirlo.passes.schedule.blocks.evaluate import Memory
from mirlo.passes.schedule.blocks.group import Group, unfit
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.finish import Reader, finish, touch
from mirlo.targets.gpu.schedule.launch import Ids, add, barrier, launch, less, multiply, shared, split
from mirlo.targets.gpu.schedule.roles import Roles, Side, evaluate, roles_of, values_of
from mirlo.targets.gpu.schedule.stages import LANES, build, plan_stages
from mirlo.targets.nvvm.schedule.fragments import (
    COLUMNS,
    DEPTH,
    ROWS,
    WARP,
    Lane,
    SharedMatrix,
    number_of,
    product,
    size_of,
)
from mirlo.targets.nvvm.schedule.wide import plan_wide_points

WARPS = 2
"""Warps of a block, down and across each."""
STEP = 32
"""Steps of the sums that are in shared memory at a time."""
VECTOR = 8
"""Numbers of 16 bytes."""
BUSY = 108
"""Blocks that keep a device busy."""
STAGES = 4
"""Most steps that are in shared memory at the same time."""
SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel has without asking for more."""
MOST_CODE = 2000
"""Operations of an epilogue over all sums of a thread: tiles are smaller where there would be more."""


@dataclass(frozen=True)
class Tile:
    """Fragments of the result that a warp holds."""

    down: int
    across: int

    @property
    def height(self) -> int:
        return WARPS * self.down * ROWS

    @property
    def width(self) -> int:
        return WARPS * self.across * COLUMNS


TILES = (Tile(4, 8), Tile(4, 4), Tile(2, 4), Tile(1, 2))


@dataclass(frozen=True)
class TensorCorePlan:
    """A contraction and the elementwise blocks that follow, on the matrix units."""

    roles: Roles
    tile: Tile

    name = "tensor cores"

    def emit(self, memory: Memory) -> None:
        """Emit the launch at the insertion point."""
        touch(self.roles.contraction, memory)
        _Kernel(self.roles, self.tile, memory).emit()


def plan_tensor_cores(group: Group) -> TensorCorePlan | Decline:
    """How to compute these blocks, the first of which is the contraction."""
    found = analyze(group.blocks, group.kept)
    if isinstance(found, Decline):
        return found
    for factor, access in ((found.product.lhs, found.lhs), (found.product.rhs, found.rhs)):
        kind = str(access.element_type)
        if kind not in ("f16", "bf16") or kind != str(found.lhs.element_type):
            return decline("the factors are not both f16 or both bf16", type=kind)
        if any(op.name != "arith.extf" for op in factor.body_ops):
            return decline("the factors are computed from their elements")
    if str(found.product.accumulate_type) != "f32":
        return decline("the sums are not f32", type=str(found.product.accumulate_type))
    roles = roles_of(found)
    if isinstance(roles, Decline):
        return roles
    if roles.rows.extent < ROWS or roles.columns.extent < COLUMNS or roles.depth < DEPTH:
        sizes = (roles.rows.extent, roles.columns.extent, roles.depth)
        return decline("it is smaller than what the matrix units multiply", sizes=sizes)
    return TensorCorePlan(roles, choose_tile(roles))


def choose_tile(roles: Roles) -> Tile:
    """The largest tile that wastes little, keeps the device busy, and whose epilogue is not too much code."""
    heavy = count_operations([stage.block for stage in roles.contraction.stages])
    for tile in TILES[:-1]:
        height, width = -(-roles.rows.extent // tile.height), -(-roles.columns.extent // tile.width)
        fits = roles.rows.extent > tile.height // 2 and roles.columns.extent > tile.width // 2
        if fits and heavy * 4 * tile.down * tile.across <= MOST_CODE and height * width * roles.batches >= BUSY:
            return tile
    return TILES[-1]


@dataclass(frozen=True)
class _Load:
    """A thread's part of bringing a factor to shared memory."""

    read: Callable[[Any], Any]
    """From global memory to registers, for the first step of a round."""
    write: Callable[[Any], None]
    """To shared memory."""
    copy: Callable[[Any, Any], None] | None
    """From global to shared memory, for the first step of a round and where its stage begins; None where it cannot."""


class _Kernel:
    def __init__(self, roles: Roles, tile: Tile, memory: Memory):
        self.roles = roles
        self.tile = tile
        self.memory = memory
        self.high = -(-roles.rows.extent // tile.height)
        self.wide = -(-roles.columns.extent // tile.width)
        self.threads = WARPS * WARPS * WARP

    def emit(self) -> None:
        launch(self.roles.batches * self.high * self.wide, self.threads, self._block)

    def _block(self, ids: Ids) -> None:
        roles, tile = self.roles, self.tile
        self.thread = ids.thread
        batch, down, across = split(ids.block, [roles.batches, self.high, self.wide])
        self.batch = values_of(roles.batch, batch)
        self.row, self.column = multiply(down, tile.height), multiply(across, tile.width)
        warp_down, warp_across, lane = split(ids.thread, [WARPS, WARPS, WARP])
        self.lane = Lane.of(lane)
        self.warp_row = multiply(warp_down, tile.down * ROWS)
        self.warp_column = multiply(warp_across, tile.across * COLUMNS)
        left, loads = self._side(roles.rows, self.row, tile.height)
        right, more = self._side(roles.columns, self.column, tile.width)
        loads = [*loads, *more]
        kind = ir.VectorType.get([2, 2], ir.F32Type.get())
        start = [create("vector.broadcast", kind, self._start())] * (tile.down * tile.across)
        stages = min(STAGES, SHARED_BYTES // (2 * (left.size + right.size)))
        if stages > 1 and all(load.copy is not None for load in loads):
            self._finish(self._staged(left, right, loads, start, stages))
        else:
            self._finish(self._through_registers(left, right, loads, start))

    def _through_registers(
        self, left: SharedMatrix, right: SharedMatrix, loads: list[_Load], start: list[Any]
    ) -> list[Any]:
        count = len(start)

        def round_(first: Any, *carried: Any) -> list[Any]:
            for load, value in zip(loads, carried[count:], strict=True):
                load.write(value)
            barrier()
            following = add(first, STEP)
            ahead = [load.read(following) for load in loads]
            sums = self._products(left, right, list(carried[:count]))
            barrier()
            return [*sums, *ahead]

        begin = [*start, *(load.read(index(0)) for load in loads)]
        return for_loop(0, self.roles.depth, STEP, round_, begin)[:count]

    def _staged(
        self, left: SharedMatrix, right: SharedMatrix, loads: list[_Load], start: list[Any], stages: int
    ) -> list[Any]:
        for matrix in (left, right):
            kind = matrix.memory.type
            larger = ir.MemRefType.get([stages * matrix.size], kind.element_type, memory_space=kind.memory_space)
            matrix.memory.set_type(larger)

        def copy(first: Any, stage: Any) -> None:
            for load in loads:
                assert load.copy is not None
                load.copy(first, stage)
            ir.Operation.create("nvvm.cp.async.commit.group")

        def round_(first: Any, *sums: Any) -> list[Any]:
            _wait(stages - 2)
            # From here on all threads see this stage, and none still reads the one before.
            barrier()
            number = create("arith.divui", first.type, first, index(STEP))
            last = create("arith.remui", first.type, add(number, stages - 1), index(stages))
            copy(add(first, (stages - 1) * STEP), last)
            stage = create("arith.remui", first.type, number, index(stages))
            here = [replace(matrix, start=multiply(stage, matrix.size)) for matrix in (left, right)]
            return self._products(here[0], here[1], list(sums))

        for stage in range(stages - 1):
            copy(index(stage * STEP), index(stage))
        sums = for_loop(0, self.roles.depth, STEP, round_, start)
        _wait(0)
        return sums

    def _start(self) -> Any:
        f32 = ir.F32Type.get()
        return create("arith.constant", f32, value=emit_init(self.roles.contraction.block, f32))

    # From global to shared memory

    def _side(self, side: Side, first: Any, lines: int) -> tuple[SharedMatrix, list[_Load]]:
        kind = side.access.element_type
        along_sums = _contiguous(side, self.roles.sums)
        along_lines = not along_sums and _contiguous(side, side.axes)
        vectors = along_sums or along_lines
        keeps_sums = along_sums or (not along_lines and side.stride(self.roles.sums) == 1)
        matrix = SharedMatrix(shared(size_of(lines, STEP, keeps_sums), kind), lines, STEP, keeps_sums)
        width = VECTOR if vectors else 1
        loads = []
        for part in range(-(-lines * STEP // (width * self.threads))):
            number = add(self.thread, part * self.threads)
            if keeps_sums:
                line, step = split(number, [lines, STEP // width])
                step = multiply(step, width)
            else:
                step, line = split(number, [STEP, lines // width])
                line = multiply(line, width)
            loads.append(self._load(side, matrix, first, line, step, width))
        return matrix, loads

    def _load(self, side: Side, matrix: SharedMatrix, first: Any, line: Any, step: Any, width: int) -> _Load:
        roles, extent = self.roles, side.extent
        reader = Reader(roles, side, self.memory)
        # Lines beyond the last one are read somewhere, and not used.
        at = create("arith.minui", line.type, add(first, line), index(extent - (1 if matrix.along_sums else width)))
        base = reader.base({**self.batch, **values_of(side.axes, at)})
        last = roles.depth - (width if matrix.along_sums else 1)

        def read(begin: Any) -> Any:
            position = add(begin, step)
            held = create("arith.minui", position.type, position, index(last))
            values = values_of(roles.sums, held)
            value = self._vector(side, base[0], values) if width > 1 else reader.element(base, values)
            zero = emit_constant(0, side.access.element_type)
            zero = zero if width == 1 else create("vector.broadcast", value.type, zero)
            return create("arith.select", value.type, less(position, roles.depth), value, zero)

        def write(value: Any) -> None:
            place = matrix.place(line, step)
            if width == 1:
                memref.StoreOp(value, matrix.memory, [place])
                return
            alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2 * width)
            ir.Operation.create(
                "vector.store", operands=[value, matrix.memory, place], attributes={"alignment": alignment}
            )

        def copy(begin: Any, stage: Any) -> None:
            position = add(begin, step)
            held = create("arith.minui", position.type, position, index(last))
            source = evaluate(side.position, values_of(roles.sums, held), base[0])
            target = add(multiply(stage, matrix.size), matrix.place(line, step))
            # What lies beyond the last step is zero.
            count = create(
                "arith.select", position.type, less(position, roles.depth), index(width), index(0)
            )  # fmt: skip
            ir.Operation.create(
                "nvgpu.device_async_copy",
                results=[ir.Type.parse("!nvgpu.device.async.token")],
                operands=[matrix.memory, target, self.memory.slot(side.access.value).buffer, source, count],
                attributes={
                    "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), width), "bypassL1": ir.UnitAttr.get(),
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, 1]),
                },
            )  # fmt: skip

        return _Load(read, write, copy if width == VECTOR else None)

    def _vector(self, side: Side, start: Any, values: Any) -> Any:
        kind = ir.VectorType.get([VECTOR], side.access.element_type)
        position = evaluate(side.position, values, start)
        alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2 * VECTOR)
        return create("vector.load", kind, self.memory.slot(side.access.value).buffer, position, alignment=alignment)

    # Products and what becomes of them

    def _products(self, left: SharedMatrix, right: SharedMatrix, sums: list[Any]) -> list[Any]:
        for step in range(0, STEP, DEPTH):
            rows = [self.lane.left(left, add(self.warp_row, i * ROWS), index(step)) for i in range(self.tile.down)]
            columns = [
                self.lane.right(right, add(self.warp_column, j * COLUMNS), index(step)) for j in range(self.tile.across)
            ]
            pairs = [(a, b) for a in rows for b in columns]
            sums = [product(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]
        return sums

    def _finish(self, sums: list[Any]) -> None:
        for i in range(self.tile.down):
            for j in range(self.tile.across):
                fragment = sums[i * self.tile.across + j]
                for row, column, position in self.lane.places():
                    self._store(
                        add(self.row, add(self.warp_row, add(row, i * ROWS))),
                        add(self.column, add(self.warp_column, add(column, j * COLUMNS))),
                        number_of(fragment, position),
                    )

    def _store(self, row: Any, column: Any, total: Any) -> None:
        roles = self.roles
        inside = create(
            "arith.andi",
            ir.IntegerType.get_signless(1),
            less(row, roles.rows.extent),
            less(column, roles.columns.extent),
        )
        branch = scf.IfOp(inside)
        with ir.InsertionPoint(branch.then_block):
            values = {**self.batch, **values_of(roles.rows.axes, row), **values_of(roles.columns.axes, column)}
            finish(roles.contraction, self.memory, values, total)
            scf.YieldOp([])


def _wait(groups: int) -> None:
    """Until at most so many groups of copies are under way."""
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), groups)
    ir.Operation.create("nvvm.cp.async.wait.group", attributes={"n": count})


def _contiguous(side: Side, axes: Any) -> bool:
    """Whether the last of these axes is read 16 bytes at a time: side by side, aligned, never beyond an edge."""
    if not axes or side.access.outside is not None:
        return False
    position, last = side.position, axes[-1]
    others = [factor for axis, factor in position.terms.items() if axis != last.id]
    aligned = all(number % VECTOR == 0 for number in (*others, position.constant, last.extent))
    return position.stride(last) == 1 and aligned


@schedule("any", target="nvvm", priority=60)
def tensor_cores(kernel: Any, context: Any) -> Any:
    """Products of 16-bit floats on the matrix units, and what is around them by the plans of all GPUs."""
    refusal = unfit(kernel.view)
    if refusal is not None:
        return refusal
    if not any(is_product(block) for block in kernel.view.blocks):
        return decline("no block is a product of two tensors")
    found = plan_stages(kernel.view, (plan_tensor_cores, plan_wide_points))
    if not any(isinstance(stage, TensorCorePlan) for stage in found):
        first = next(block for block in kernel.view.blocks if is_product(block))
        declined = plan_tensor_cores(Group((first,), frozenset(o.value for o in first.outputs), LANES))
        return declined if isinstance(declined, Decline) else decline("the product is not computed by itself")
    return build(kernel, found)
