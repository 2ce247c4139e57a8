"""The pass `map-threads`: loops that are bound to hardware axes, or parallel, become launches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import gpu, ir, memref
from mirlo.dialects.core.surgery import clone_with, erase_op, replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import Value, index, integer_of
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.lower.calls import find, find_all
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.schedule.buffers import SCHEDULE
from mirlo.passes.schedule.loops import PARALLEL, for_loop, when
from mirlo.passes.targets import ThreadLimits, thread_limits
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.bound_loops import (
    AXES,
    Axis,
    LaunchExtents,
    axis_of,
    bound_loops,
    extent_of,
    find_axis,
    loops_around,
    thread_extent,
)
from mirlo.targets.gpu.exchanges import (
    exchange_between_blocks,
    exchange_in_main_memory,
    why_no_exchange_between_blocks,
    why_no_exchange_between_loops,
)
from mirlo.targets.gpu.launches import ALLOCA, VIEWS, Launch, find_launches
from mirlo.targets.gpu.schedule.launch import SHARED, WARP, barrier, launch
from mirlo.targets.gpu.schedule.teams import Team, can_shuffle, reduce_by_shuffles, reduce_in_shared_memory
from mirlo.targets.gpu.synchronization import UniformStatements

if TYPE_CHECKING:
    from mirlo.passes.session import Session

REDUCE, FOR = "tir.reduce_threads", "tir.for"


@register_pass
@dataclass(frozen=True)
class MapThreads(Pass):
    """Turn loops bound to `blockIdx.x` ... `threadIdx.z` into the indices of launches.

    Each outermost loop of a prim function is a launch; those that use the same memory of threads are one. Loops of
    one axis have one extent; those over threads may have smaller ones. After each loop over threads, unless it is
    `nowait`, all threads of a block synchronize if they exchange values through memory; between loops that another
    loop over threads contains, if these exchange elements. It is an error if blocks exchange elements. A statement
    that no loop over threads contains is executed by one of them, if it writes memory that they share. Values are
    reduced over threads by shuffles where the target has warps of which the threads are whole parts, else through
    shared memory. Where a loop over blocks may have more iterations than a grid has blocks along its axis, it takes
    another axis too, or each block computes several.
    """

    name = "map-threads"
    contained = True
    shuffles: bool = option(False, "reduce values over the threads of a warp by shuffles")
    target: str = option("", "the target whose grids have limits; without it, those of every device")

    def run(self, op: ir.OpView, session: Session) -> None:
        limits = (thread_limits(self.target) if self.target else None) or ThreadLimits()
        for function in list(op.regions[0].blocks[0].operations):
            loops = bound_loops(function) if is_prim_func(function) and not is_tensor_form(function) else []
            if loops:
                _erase_empty(loops)
                last = list(function.operation.regions[0].blocks[0].operations)[-1].operation
                for each in find_launches(function.operation):
                    for operation in each.operations:
                        operation.move_before(last)
                    if not each.is_on_host:
                        _Mapping(each, function.operation, self, limits).run()


def _erase_empty(loops: Sequence[ir.Operation]) -> None:
    """Erase bound loops without iterations."""
    for loop in reversed(loops):
        extent = extent_of(loop)
        if isinstance(extent, int) and extent <= 0 and not len(loop.results):
            erase_op(loop)


class _Mapping:
    """One launch."""

    def __init__(self, launch: Launch, function: ir.Operation, options: MapThreads, limits: ThreadLimits):
        self.operations = operations = launch.operations
        self.written = {b for each in launch.statements for b, is_written in each.accessed.items() if is_written}
        self.function = symbol_name(function)
        self.is_checked = SCHEDULE in function.attributes
        self.shuffles = options.shuffles
        self.max_grid = limits.max_grid
        used = [find_all(op, ALLOCA, REDUCE, FOR) for op in operations]
        self.loops = [loop for each in used for loop in each[FOR] if loop.opview.kind == "bound"]
        extents = LaunchExtents.of(self.loops, f"'@{self.function}'")
        extents.require_limits(limits, options.target)
        self.grid, self.threads = extents.grid, extents.threads
        self.widths: dict[int, int] = {}
        """The blocks in a row of the grid, for each axis that may have more iterations than a grid has blocks."""
        self.rows: dict[int, int] = {}
        """The axis that is the number of the row, for each of these; blocks compute several rows without one."""
        arrays = [alloca for each in used for alloca in each[ALLOCA]]
        self.reductions = [reduction for each in used for reduction in each[REDUCE]]
        self.arrays = arrays
        self.shared = [alloca for alloca in arrays if alloca.results[0].type.memory_space is not None]
        buffer = launch.exchanged()
        self.waits = bool(self.shared) or buffer is not None
        """Whether threads of a block wait for one another after each loop over threads."""
        if buffer is not None and self.grid != [1, 1, 1]:
            raise PassError(why_no_exchange_between_loops(buffer, self.function), self.loops[-1].location)

    def run(self) -> None:
        if not self.loops:
            self._run_in_one_thread()
            return
        first = self.operations[0]
        with ir.InsertionPoint(self.operations[-1]), first.location:
            launch = gpu.LaunchOp(tuple(self._blocks()), tuple(self.threads))
            region = launch.regions[0].blocks[0]
            with ir.InsertionPoint(region):
                end = gpu.TerminatorOp()
        for op in self.operations:
            op.move_before(end.operation)
        self.ids = {"block": list(region.arguments)[:3], "thread": list(region.arguments)[3:6]}
        self._guard_uniform(end.operation)
        for alloca in self.shared:
            self._share(alloca)
        waits = [self._is_outermost(loop) and not loop.opview.nowait and not self._is_last(loop) for loop in self.loops]
        for loop, synchronizes in zip(self.loops, waits, strict=True):
            self._map(loop, self.waits and synchronizes)
        for reduction in self.reductions:
            self._reduce(reduction)

    def _guard_uniform(self, end: ir.Operation) -> None:
        """Guard code outside of loops over threads that writes shared memory, so that one thread executes it."""
        threads = {("thread", dim) for dim in range(3) if self.threads[dim] > 1}
        blocks = {("block", dim) for dim in range(3) if self.grid[dim] != 1 and dim not in self.rows.values()}
        operations = [op for op in self.operations if op.name != ALLOCA]
        private = {alloca.results[0] for alloca in self.arrays} - {alloca.results[0] for alloca in self.shared}
        shared = self.written - private
        may_exchange = blocks and not self.is_checked
        exchanged = exchange_between_blocks(operations, shared, blocks) if may_exchange else None
        if exchanged is not None:
            buffer, user = exchanged
            raise PassError(why_no_exchange_between_blocks(buffer, self.function), user.location)
        uniform = UniformStatements(self._is_full, self._is_first, shared, threads, self.is_checked)
        uniform.visit(operations, threads | blocks, end, reached=True)
        outermost = [loop for loop in self.loops if axis_of(loop)[0] == "thread" and self._is_outermost(loop)]
        self.waits |= uniform.synchronizes or exchange_in_main_memory(outermost, shared, threads)

    def _is_outermost(self, loop: ir.Operation) -> bool:
        """Return whether all threads of a block reach a loop together: it is in no loop over several threads."""
        axes = [axis_of(other) for other in loops_around(loop)]
        return all(kind == "block" or self.threads[dim] == 1 for kind, dim in axes)

    def _is_last(self, loop: ir.Operation) -> bool:
        """Return whether nothing of the launch follows an iteration of a loop over threads."""
        op = loop
        while op.name != "gpu.launch":
            axis = find_axis(op)
            if axis is None or op is not loop and axis[1] in self.widths:
                return False
            *others, _ = [each.operation for each in op.block.operations]
            if others[-1] != op or op.parent is None:
                return False
            op = op.parent.operation
        return True

    def _is_full(self, loop: ir.Operation) -> bool:
        return extent_of(loop) == self.threads[axis_of(loop)[1]]

    def _is_first(self, axis: Axis) -> ir.Value:
        kind, dim = axis
        number = Value(self.ids[kind][dim])
        if kind == "block" and dim in self.rows:
            number = number + Value(self.ids[kind][self.rows[dim]])
        return number.below(1)

    def _blocks(self) -> list[int | ir.Value]:
        """Return the size of the grid; a loop that may have too many iterations takes a second axis, if one is free.

        An index has fewer values than such a grid has blocks.
        """
        used = {axis_of(loop)[1] for loop in self.loops if axis_of(loop)[0] == "block"}
        free = [dim for dim in range(3) if dim not in used]
        extents = list(map(_before_loops, self.grid))
        blocks = list(extents)
        for dim, (extent, most) in enumerate(zip(extents, self.max_grid, strict=True)):
            if isinstance(extent, int) and extent <= most:
                continue
            self.widths[dim] = width = _row_width(extent, most)
            blocks[dim] = width if isinstance(extent, int) else create("arith.minsi", extent.type, extent, index(width))
            if free:
                self.rows[dim] = free.pop(0)
                blocks[self.rows[dim]] = _rows(extent, width)
        return blocks

    def _run_in_one_thread(self) -> None:
        with ir.InsertionPoint(self.operations[-1]), self.operations[0].location:
            launch(1, WARP, lambda ids: when(ids.thread.below(1), self._move_here))

    def _move_here(self) -> None:
        anchor = index(0).owner
        for op in self.operations:
            op.move_before(anchor.operation)
        anchor.operation.erase()

    @staticmethod
    def _share(alloca: ir.Operation) -> None:
        kind = alloca.results[0].type
        space = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), SHARED)
        with ir.InsertionPoint(alloca), alloca.location:
            memory = memref.AllocOp(ir.MemRefType.get(kind.shape, kind.element_type, memory_space=space), [], [])
        alloca.results[0].replace_all_uses_with(memory.result)
        alloca.erase()
        _share_views(memory.result, space)

    def _map(self, loop: ir.Operation, waits: bool) -> None:
        """Replace a loop by the index of its axis; if it `waits`, all threads of a block synchronize after it."""
        kind, dim = AXES[loop.opview.thread]
        with ir.InsertionPoint(loop), loop.location:
            if kind == "thread":
                self._map_thread(loop, Value(self.ids[kind][dim]), self.threads[dim])
                if waits:
                    barrier()
            else:
                self._map_block(loop, Value(self.ids[kind][dim]), dim, waits)
        erase_op(loop)

    def _map_thread(self, loop: ir.Operation, thread: Value, threads: int) -> None:
        extent = thread_extent(loop)
        if extent < threads and self.reductions and find(loop, REDUCE):
            raise PassError("not all threads of a block reach a reduction over threads", loop.location)
        when(thread.below(extent) if extent < threads else None, lambda: _move_body(loop, thread))

    def _map_block(self, loop: ir.Operation, block: Value, dim: int, waits: bool) -> None:
        """Replace a loop over blocks; where it may have too many iterations, those are in rows as wide as the grid."""
        extent = extent_of(loop)
        if dim not in self.widths:
            when(block.below(extent) if extent != self.grid[dim] else None, lambda: _move_body(loop, block))
            return

        def iteration(row: Value) -> None:
            # Unsigned, as the number of an iteration that is left out may exceed a signed index.
            number = row * self.widths[dim] + block
            when(number.below(extent), lambda: _move_body(loop, number))

        def step(row: Value) -> None:
            iteration(row)
            if waits:
                barrier()

        if dim in self.rows:
            iteration(Value(self.ids["block"][self.rows[dim]]))
        else:
            for_loop(0, _rows(loop.operands[1], self.widths[dim]), 1, step, rolled=True)

    def _reduce(self, op: ir.Operation) -> None:
        """Replace a reduction over threads."""
        dims = sorted({AXES[axis][1] for axis in op.opview.threads})
        others = [dim for dim in range(3) if dim not in dims]
        size, block = prod(self.threads[dim] for dim in dims), prod(self.threads)
        body = op.regions[0].blocks[0]
        longest = max(dim for dim in dims if self.threads[dim] > 1 or dim == dims[0])
        is_consecutive = all(self.threads[dim] == 1 for dim in others if dim < longest)
        shuffles = self.shuffles and is_consecutive and can_shuffle(size, block)
        with ir.InsertionPoint(op), op.location:
            team = Team(block // size, size, self._thread_of(others), self._thread_of(dims))
            reduce = reduce_by_shuffles if shuffles else reduce_in_shared_memory
            reduced = reduce(team, partial(_combined, body), list(op.operands))
        replace_op(op, reduced)

    def _thread_of(self, dims: Sequence[int]) -> Value:
        """Emit the number of this thread among those that differ in these axes, the first one fastest."""
        owner: Value | None = None
        for dim in reversed(dims):
            own = Value(self.ids["thread"][dim])
            if self.threads[dim] > 1:
                owner = own if owner is None else owner * self.threads[dim] + own
        return index(0) if owner is None else owner


def _combined(body: ir.Block, left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
    """Emit the body of a reduction on two lists of values."""
    known: dict[ir.Value, ir.Value] = dict(zip(body.arguments, (*left, *right), strict=True))
    *ops, last = (op.operation for op in body.operations)
    for op in ops:
        clone = clone_with(op, [known.get(value, value) for value in op.operands])
        known.update(zip(op.results, clone.results, strict=True))
    return [known.get(value, value) for value in last.operands]


def _move_body(loop: ir.Operation, number: Value) -> None:
    """Move the body of a loop to the insertion point, for one iteration."""
    body = loop.regions[0].blocks[0]
    body.arguments[0].replace_all_uses_with(number)
    anchor = index(0).owner.operation
    for op in [o.operation for o in body.operations]:
        if op.name == "tir.yield":
            op.erase()
        else:
            op.move_before(anchor)
    anchor.erase()


def _row_width(extent: int | ir.Value, most: int) -> int:
    """Return the number of iterations of a row, with as few superfluous ones as the known extent allows."""
    return -(-extent // -(-extent // most)) if isinstance(extent, int) else most


def _rows(extent: int | ir.Value, width: int) -> int | ir.Value:
    """Return how many rows of blocks compute this many iterations."""
    if isinstance(extent, int):
        return -(-extent // width)
    return (Value(extent) + (width - 1)).divide_unsigned(index(width))


def _before_loops(extent: int | ir.Value) -> int | ir.Value:
    """Return the extent of a grid, computed at the insertion point where loops compute it."""
    if isinstance(extent, int) or isinstance(extent.owner, ir.Block):
        return extent
    owner, here = extent.owner.operation, ir.InsertionPoint.current
    if owner.parent.operation == here.block.owner.operation:
        return extent
    operands = [value for value in map(_before_loops, owner.operands) if isinstance(value, ir.Value)]
    result: ir.Value = clone_with(owner, operands).results[0]
    return result


def _share_views(buffer: ir.Value, space: ir.Attribute) -> None:
    """Give views of shared memory its type."""
    for view in {use.owner.operation for use in buffer.uses if use.owner.operation.name in VIEWS}:
        result = view.results[0]
        kind = result.type
        result.set_type(ir.MemRefType.get(kind.shape, kind.element_type, kind.layout, space))
        _share_views(result, space)


@dataclass(eq=False)
class IterationNest:
    """Loops with independent iterations, each the only work of the one around it."""

    loops: list[ir.Operation]
    extents: list[ir.Value]

    def hoist_extents(self) -> None:
        """Move the computation of the extents of inner loops to before the nest."""
        for loop in self.loops[:-1]:
            for op in [o.operation for o in loop.regions[0].blocks[0].operations]:
                if _is_pure(op):
                    op.move_before(self.loops[0])


def parallel_nest(operations: Sequence[ir.Operation]) -> IterationNest | None:
    """Return the parallel loops that contain all of the work of a launch, None if there are none."""
    loops: list[ir.Operation] = []
    while True:
        work = [op for op in operations if op.name != ALLOCA and not (loops and _is_pure(op))]
        if len(work) != 1 or work[0].name != "scf.for" or PARALLEL not in work[0].attributes or len(work[0].results):
            break
        low, high, step = map(integer_of, list(work[0].operands)[:3])
        if low != 0 or step != 1 or (high is not None and high < 1):
            break
        body = work[0].regions[0].blocks[0]
        loops.append(work[0])
        operations = [op.operation for op in list(body.operations)[:-1]]
        if any(op.name == ALLOCA for op in operations) or not _is_rectangular(operations, body.arguments[0]):
            break
    return IterationNest(loops, [loop.operands[1] for loop in loops]) if loops else None


def _is_pure(op: ir.Operation) -> bool:
    return op.name.startswith("arith.")


def _is_rectangular(operations: Sequence[ir.Operation], position: ir.Value) -> bool:
    """Return whether arithmetic beside an inner loop depends on none of the positions."""
    return not any(position in op.operands for op in operations if _is_pure(op))
