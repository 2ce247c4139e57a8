"""Code of a schedule tree: loops over buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, TypeGuard

from mirlo.dialects.bindings import func, ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.core.value import Value, compare, create, index
from mirlo.dialects.tir.block import For
from mirlo.dialects.tir.buffers import STACK_LIMIT, element_bytes
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.loops import PARALLEL as PARALLEL_LOOP
from mirlo.passes.schedule.loops import for_loop, if_any, keep_rolled, when
from mirlo.passes.schedule.primitives.block_code import BlockEmitter, store_each
from mirlo.passes.schedule.primitives.index import LoopPosition, LoopValue, LoopValues
from mirlo.passes.schedule.primitives.kernels import limits_of
from mirlo.passes.schedule.primitives.lane_access import EdgeTest
from mirlo.passes.schedule.primitives.lanes import (
    LaneGuards,
    StoreLanes,
    can_vectorize,
    count_active_lanes,
    edge_tests,
    undecided_guards,
)
from mirlo.passes.schedule.primitives.loops import THREAD
from mirlo.passes.schedule.primitives.memory import (
    PlacedBuffers,
    allocate_buffers,
    place_whole,
)
from mirlo.passes.schedule.primitives.ranges import (
    Bound,
    Range,
    elements_of_thread,
    emit_bound,
    hoist,
    hoist_loads,
    ranges_of,
    reached,
    steps_of,
)
from mirlo.passes.schedule.primitives.registers import Accumulators, Carried, accumulate
from mirlo.passes.schedule.primitives.shifted_tiles import RowSpan, ShiftedTilesEmitter
from mirlo.passes.schedule.primitives.sum_blocks import SumBlocks
from mirlo.passes.schedule.primitives.tensorize import TensorIntrin
from mirlo.passes.schedule.primitives.threads import accesses_of, is_thread
from mirlo.passes.schedule.primitives.tile_code import TileEmitter
from mirlo.passes.schedule.primitives.transposed import LaneLimit, TransposedGroups, TransposedTile, is_limited_by_one
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    BlockLeaf,
    Guard,
    Loop,
    Node,
    PageCopies,
    PartRange,
    Root,
    RowBlocks,
    ScheduleBuffer,
    SharedPosition,
    ShiftedTiles,
    ThreadBarrier,
    TileLeaf,
    TileStart,
    Transposition,
    around,
    buffer_of,
    extents_of,
    leaf_of,
    leaves_of,
    loop_names,
    loops_of,
    nested,
    placed_at,
    reads_of,
    region_of,
    set_children,
)
from mirlo.passes.schedule.primitives.tree_passes import run_passes
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants

if TYPE_CHECKING:
    from mirlo.passes.schedule.primitives.row_blocks import RowBlocksEmitter
    from mirlo.passes.schedule.primitives.variants import SizeVariant

MAX_UNROLL = 256
"""Most iterations of a loop that are emitted one by one."""


def emit(
    root: Root, schedule: ScheduleFacts, choices: ChoiceValues | None = None, variants: Sequence[SizeVariant] = ()
) -> func.FuncOp:
    """Replace the function's tensor form by the loops; return the new function."""
    run_passes(root)
    parts = PartEmitter(root)
    # Threads of a GPU do not see each other's stacks.
    function = BufferFunction(root.view, STACK_LIMIT if limits_of(root) is None else 0)

    def loops() -> None:
        parts.emit(TensorBuffers(function))

    def loops_of_variant(tree: Root, memory: TensorBuffers) -> None:
        PartEmitter(tree).emit(memory)

    if not variants:
        return function.build(loops, schedule, choices)
    from mirlo.passes.schedule.primitives.variants import emit_variants, run_passes_of_variants

    run_passes_of_variants(root, variants)
    root.specialized = [(tuple(map(D.symbol, each.sizes)), each.value) for each in variants]
    return function.build(lambda: emit_variants(function, variants, loops_of_variant, loops), schedule, choices)


def emit_buffer_block(block: BlockView) -> None:
    """Emit a block over buffers at the insertion point: loops over scalars, with results of reductions in registers."""
    names = loop_names(block.name, block.rank)
    buffers = {each.value: buffer_of(each.value, block.name) for each in (*block.inputs, *block.outputs)}
    leaf = leaf_of(block.name, block, buffers, [loop_index(name) for name in names])
    root = Root(PrimView(enclosing(block.op, "func.func"), [block]), list(buffers.values()))
    order = (*block.spatial, *block.reduce)
    set_children(root, [nested([Loop(names[axis], block.domain[axis]) for axis in order], leaf)])
    if block.reduce:
        accumulate(root, leaf, root.find_loop(names[block.reduce[0]]))
    extents = extents_of(root.loops())
    emitter = _Emitter(place_whole(buffers, extents), extents, frozenset(), None)
    emitter.nodes(root.body, LoopValues(), [])


class PartEmitter:
    """Emits the nodes of a tree after its passes, part by part."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._emitter: _Emitter | None = None

    def emit(self, memory: TensorBuffers, nodes: Sequence[Node] | None = None) -> None:
        """Emit some nodes at the insertion point, all of them by default."""
        self._in(memory).nodes(self._root.body if nodes is None else nodes, LoopValues(), [])

    def finish(
        self, memory: TensorBuffers, block: str, results: Sequence[ir.Value], indices: Mapping[str, LoopValue]
    ) -> None:
        """Store a vector of a block's results that are computed elsewhere, and compute its epilogue."""
        leaf = self._root.find_leaf(block)
        lanes = around(leaf)[-1]
        whole = LaneGuards(D.static_dim(lanes.extent))
        self._in(memory).lanes_of(leaf, lanes, LoopValues(indices), whole).finish(results)

    def _in(self, memory: TensorBuffers) -> _Emitter:
        """Return the emitter of nodes; buffers are allocated once."""
        if self._emitter is None:
            placed = allocate_buffers(self._root, memory)
            accesses = (access for leaf in self._root.leaves() for access in (*leaf.reads, *leaf.writes))
            straight = frozenset(name for access in accesses for name in access.register_loops)
            self._emitter = _Emitter(placed, extents_of(self._root.loops()), straight, memory.buffers)
        return self._emitter


def _has_guards_of(node: Node, leaf: BlockLeaf) -> TypeGuard[BlockLeaf]:
    """Return whether a node is a block with the same iterations and guards as another one."""
    return isinstance(node, BlockLeaf) and node.guards == leaf.guards and node.is_clamped == leaf.is_clamped


def _has_loops(loop: Loop) -> bool:
    """Return whether the code of an iteration has loops."""
    return any(inner.kind != UNROLLED and inner.extent != 1 for inner in loops_of(loop))


def _at_position(
    name: str,
    part: PartRange,
    body: Callable[[LoopValue, Carried], Carried],
    at: ir.Value,
    held: Carried,
    start: IndexExpr | None = None,
) -> Carried:
    """Emit an iteration of a loop, given where it is in the loop that it is a part of."""
    return body(LoopPosition(name, at, part, start or IndexExpr()), held)


def _position(bound: Bound, part: PartRange) -> ir.Value | Dim:
    """Return where an iteration of a part of a loop begins."""
    return Value(bound) * part.step + part.low if isinstance(bound, ir.Value) else part.low + bound * part.step


def _incomplete(ranges: Sequence[Range], position: int) -> frozenset[Guard]:
    """Return the guard that no iteration of a range passes at all points: the one that ends the range before it."""
    passed = ranges[0][2] if position > 0 else frozenset[Guard]()
    return passed if len(passed) == 1 else frozenset()


def _is_at_most_one(low: Bound, high: Bound) -> bool:
    """Return whether a range of iterations is certainly one at most."""
    if isinstance(low, ir.Value) or isinstance(high, ir.Value):
        return False
    return D.is_certain(lambda: (high if low == 0 else high - low) <= 1)


class _Emitter(BlockEmitter):
    """Emits loops around blocks."""

    def __init__(
        self, placed: PlacedBuffers, extents: dict[str, Dim], straight: frozenset[str], function: BufferFunction | None
    ) -> None:
        super().__init__(placed, extents)
        self._extents = extents
        self.unswitched: frozenset[str] = frozenset()
        """The loops of which a copy is emitted now."""
        self.bound: list[ir.Operation] = []
        """The loops that are bound to hardware axes, in the order in which they were emitted."""
        self.summed: frozenset[str] = frozenset()
        """The loops that are emitted now whose accumulators have begun from zero."""
        self.ends: Mapping[str, ir.Value] = {}
        """Where loops end early.

        An end is an iteration of the loop as it was before it was cut and split, and where an iteration of each of its
        parts ends.
        """
        self.spans: Mapping[str, RowSpan] = {}
        """The rows that loops over tiles compute, if these are not all."""
        self.straight = straight
        """The loops each of whose iterations has registers of its own."""
        self._function = function
        self.sizes: dict[str, int] = {}
        """The iterations of loops over elements of a tile, where it is a smaller one."""
        self.tiles: dict[TileLeaf, TileEmitter] = {}
        """The register tiles that are emitted in this function."""

    @cached_property
    def constants(self) -> FunctionConstants:
        """Return the constants at the start of the function."""
        return FunctionConstants(self.buffers.entry, self.buffers.location, self.buffers.scratch)

    @property
    def buffers(self) -> BufferFunction:
        """Return the function that is emitted."""
        assert self._function is not None, "a block over buffers has neither register tiles nor blocks of rows"
        return self._function

    def nodes(self, nodes: Sequence[Node], values: LoopValues, carried: Carried) -> Carried:
        """Emit nodes that follow one another; return the accumulators after them."""
        following = list(nodes)
        while following:
            node = following.pop(0)
            if isinstance(node, Loop):
                if node.accumulated and self.accumulators is None:
                    # The loops that continue a reduction are emitted with the one that begins it.
                    region = region_of(node)
                    following = [other for other in following if other not in region]
                carried = self.loop(node, values, carried)
            elif isinstance(node, BlockLeaf):
                group = [node]
                while node.guards and following and _has_guards_of(last := following[0], node):
                    group.append(last)
                    del following[0]
                carried = self.leaves(group, values, carried)
        return carried

    def loop(self, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        if loop.is_unswitched and loop.name not in self.unswitched:
            return self.unswitch(loop, values, carried)
        form = loop.form
        if isinstance(form, (ShiftedTiles, RowBlocks, PageCopies)):
            assert not carried, "a reduction has neither tiles that overlap nor blocks of rows"
            self.row_tiles(loop, form, values)
            return carried
        if isinstance(form, TileLeaf):
            assert not carried, "a register tile has its own accumulators"
            self.register_tile(form, values)
            return carried
        if isinstance(form, TensorIntrin):
            form.emit(loop, values, self.placed)
            return carried
        if loop.accumulated and self.accumulators is None:
            self.accumulators = Accumulators(region_of(loop), self.placed)
            self.accumulators.emit(self, values)
            self.accumulators = None
            return carried
        if isinstance(form, SharedPosition):
            return self.nodes(loop.body, values.at({loop.name: values.emit(form.index)}), carried)
        if isinstance(form, TileStart):
            assert not carried, "a reduction has no tiles that overlap"
            self.tile_start(loop, form, values)
            return carried
        if isinstance(form, Transposition) and self.transposed(loop, values):
            return carried
        if loop.kind == VECTORIZED and loop.extent != 1:
            leaves = [node for node in loop.body if isinstance(node, BlockLeaf)]
            if len(leaves) == len(loop.body):
                following = self.lanes(leaves, loop, values, carried)
                if following is not None:
                    return following
        return self.each_iteration(loop, values, carried)

    def row_tiles(self, loop: Loop, form: ShiftedTiles | RowBlocks | PageCopies, values: LoopValues) -> None:
        """Emit a loop over tiles, blocks or pages of any number of rows."""
        if isinstance(form, ShiftedTiles):
            ShiftedTilesEmitter(self, loop, form, values, self.spans.get(loop.name)).emit()
            return
        if isinstance(form, PageCopies):
            from mirlo.passes.schedule.primitives.page_blocks import emit_copies  # for caches in pages only

            emit_copies(form, self.placed, self.buffers)
            return
        self.row_blocks(form, values).emit()

    def row_blocks(self, blocks: RowBlocks, values: LoopValues) -> RowBlocksEmitter:
        """Return the emitter of blocks of rows in this function."""
        if blocks.pages:
            from mirlo.passes.schedule.primitives.page_blocks import PageBlocksEmitter  # for caches in pages only

            return PageBlocksEmitter(self, blocks, values)
        from mirlo.passes.schedule.primitives.row_blocks import RowBlocksEmitter  # for attention only

        return RowBlocksEmitter(self, blocks, values)

    def elsewhere(self, buffer: ScheduleBuffer, memory: ir.Value) -> _Emitter:
        """Return an emitter of the same nodes, with a buffer in other memory."""
        return _Emitter(self.placed.elsewhere(buffer, memory), self._extents, self.straight, self._function)

    def register_tile(self, tile: TileLeaf, values: LoopValues) -> None:
        """Emit a register tile at a point of the loops around it."""
        self.emitter_of(tile).emit(values)

    def emitter_of(self, tile: TileLeaf) -> TileEmitter:
        """Return the emitter of a register tile in this function."""
        if tile not in self.tiles:
            self.tiles[tile] = self._new_emitter(tile)
        return self.tiles[tile]

    def _new_emitter(self, tile: TileLeaf) -> TileEmitter:
        if tile.is_along_sum:
            from mirlo.passes.schedule.primitives.dot_tile_code import DotTileEmitter  # for few contractions

            return DotTileEmitter(tile, self)
        if tile.instruction.has_pairs:
            from mirlo.passes.schedule.primitives.pair_tile_code import PairTileEmitter  # for some processors only

            return PairTileEmitter(tile, self)
        if tile.instruction.unit is None:
            return TileEmitter(tile, self)
        from mirlo.passes.schedule.primitives.matrix_tile_code import MatrixTileEmitter  # for matrix units only

        return MatrixTileEmitter(tile, self)

    def each_iteration(self, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        """Emit a loop that is not vectorized."""
        if self.accumulators is not None and loop.name in self.accumulators.blocked - self.summed:
            before, self.summed = self.summed, self.summed | {loop.name}
            block = self.each_iteration(loop, values, self.accumulators.zeros())
            self.summed = before
            return self.accumulators.combine(carried, block)
        in_thread = is_thread(loop)
        if isinstance(loop.form, ThreadBarrier):
            # The classes of the dialect take 10 ms to create, of each process that compiles for CPUs.
            ir.Operation.create("gpu.barrier")

        def body(i: LoopValue, held: Carried, known: LoopValues = values) -> Carried:
            inside = known.in_thread(loop.name, i) if in_thread else known.at({loop.name: i})
            return self.nodes(loop.body, inside, held)

        if loop.name in values:
            return body(values[loop.name], carried)
        if loop.name in self.ends:
            return self.before_end(loop, self.ends[loop.name], values, body, carried)
        elements = elements_of_thread(loop, values, self.assumed)
        if elements is not None:
            return self.each_element(loop, *elements, values, body, carried)
        ranges = ranges_of(loop, values, self.assumed)
        for position, (low, high, assumed) in enumerate(ranges):
            steps = None if isinstance(high, int) or position == 0 else steps_of(loop)
            each = body if steps is None else partial(self.step_by_step, loop, steps, values, body)
            is_rest = position > 0
            apart = self.placed.apart(loop) if is_rest else nullcontext()
            with self.assuming(assumed, _incomplete(ranges, position)), apart:
                carried = self.iterations(loop, (low, high), values, each, carried, is_rest)
        return carried

    def each_element(
        self, loop: Loop, guard: Guard, start: IndexExpr, end: Dim, step: int, values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried], carried: Carried,
    ) -> Carried:  # fmt: skip
        """Emit a loop over the elements of a thread, which counts them for their addresses."""
        iteration = partial(_at_position, loop.name, PartRange(0, step), body, start=start)
        with self.assuming(self.assumed | {guard}):
            return for_loop(
                values.emit(start), values.emit(end), index(step), lambda at, *held: iteration(at, list(held)), carried
            )

    def before_end(
        self,
        loop: Loop,
        end: ir.Value,
        values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried],
        carried: Carried,
    ) -> Carried:
        """Emit the iterations of a loop, a part of another one, before an iteration of that other loop.

        A loop that was neither cut nor split, as where vectors have one lane, is the whole of itself.
        """
        part = loop.part or PartRange(0)
        whole: list[Range] = [(0, loop.extent, frozenset())]
        ranges = ranges_of(loop, values, self.assumed) if loop.is_peeled else whole
        for position, (low, high, assumed) in enumerate(ranges):
            first, stop = _position(low, part), Value(end).minimum(_position(high, part))
            with self.assuming(assumed, _incomplete(ranges, position)):
                if _is_at_most_one(low, high):
                    carried = if_any(first, stop, lambda at, *held, i=low: body(i, list(held)), carried)
                    continue
                iteration = partial(_at_position, loop.name, part, body)
                is_rolled = not isinstance(loop.extent, int)
                carried = for_loop(
                    first, stop, index(part.step), lambda at, *held, each=iteration: each(at, list(held)), carried,
                    rolled=is_rolled,
                )  # fmt: skip
        return carried

    def tile_start(self, loop: Loop, start: TileStart, values: LoopValues) -> None:
        """Emit a tile from the line of memory on in which it begins, if there is one, within the loop's iterations."""
        kind = ir.IndexType.get()
        address = create("memref.extract_aligned_pointer_as_index", kind, self.placed[start.buffer].flat)
        elements = create("arith.divui", kind, address, index(element_bytes(start.buffer.element)))
        beyond = create("arith.remui", kind, elements, index(start.size))
        first = values.emit(start.tile * start.size) - beyond

        def tile() -> None:
            inside = first.minimum(index(start.extent - start.size)).maximum(0)
            self.nodes(loop.body, values.at({loop.name: inside}), [])

        when(first < values.emit(start.extent), tile)

    def transposed(self, loop: Loop, values: LoopValues) -> bool:
        """Emit a tile that is transposed in registers; return whether its extent is known."""
        (lane_loop,) = loop.body
        if not isinstance(lane_loop, Loop) or lane_loop.kind != VECTORIZED or loop.name in values:
            return False
        (leaf,) = leaves_of(lane_loop)
        guards = self.guards_of(leaf, values)
        if guards is None:
            return True
        if isinstance(lane_loop.body[0], Loop):
            groups = TransposedGroups(loop, lane_loop, lane_loop.body[0], leaf, values.at({}), self.placed)
            return groups.emit(guards)
        of_rows = [guard for guard in guards if loop.name in guard[0].variables()]
        of_lanes = [guard for guard in guards if lane_loop.name in guard[0].variables()]
        rows, lanes = count_active_lanes(of_rows, loop), count_active_lanes(of_lanes, lane_loop)
        is_limited = lanes is None and is_limited_by_one(of_lanes, loop, lane_loop)
        if rows is None or not (lanes or is_limited) or not can_vectorize(leaf, lane_loop, of_lanes, self.placed):
            return False
        others = [guard for guard in guards if guard not in of_rows and guard not in of_lanes]

        def tile() -> None:
            inside = values.at({})
            limit = LaneLimit.of(of_lanes[0], lane_loop, inside) if is_limited else None
            count = lanes or D.static_dim(lane_loop.extent)
            TransposedTile(loop, lane_loop, leaf, inside, self.placed, rows, count, limit, self.passed).emit()

        self.guarded(others, values, tile)
        return True

    def step_by_step(
        self, loop: Loop, steps: Loop, values: LoopValues, body: Callable[..., Carried], i: LoopValue, held: Carried
    ) -> Carried:
        """Emit an iteration with the unrolled loop in it around the others."""
        inside = values.at({loop.name: i})
        low, high, assumed = reached(steps, inside, self.assumed)

        def step(j: LoopValue, inner: Carried) -> Carried:
            return body(i, inner, inside.at({steps.name: j}))

        with self.assuming(assumed):
            return self.iterations(steps, (low, high), inside, step, held, is_rest=True)

    def unswitch(self, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        """Emit a loop without the tests of edges and ends that it decides for all iterations, and with them."""
        tests, ends = self.tests_before(loop, values), self.ends_before(loop, values)
        unswitched, passed, failed = self.unswitched, self.passed, self.failed
        self.unswitched = unswitched | {loop.name}
        try:
            if not tests and not ends:
                return self.loop(loop, values, carried)
            conditions = [compare("le", values.emit(last), values.emit(bound - 1)) for _, (last, bound) in ends.items()]
            conditions += [self.all_inside(tests, values)] if tests else []
            condition = reduce(partial(create, "arith.andi", ir.IntegerType.get_signless(1)), conditions)
            branch = scf.IfOp(condition, [value.type for value in carried], has_else=True)
            self.passed = passed | set(tests)
            with ir.InsertionPoint(branch.then_block), self.assuming(frozenset(ends)):
                scf.YieldOp(self.loop(loop, values, carried))
            # Where ends are part of the condition, all tests may pass where it does not hold.
            self.passed, self.failed = passed, (*failed, tests) if tests and not ends else failed
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(self.loop(loop, values, carried))
        finally:
            self.unswitched, self.passed, self.failed = unswitched, passed, failed
        return list(branch.results)

    def ends_before(self, loop: Loop, values: LoopValues) -> dict[Guard, tuple[IndexExpr, Dim]]:
        """Return the guards in a loop that one of its iterations may not pass, their last indices, and bounds."""
        ends: dict[Guard, tuple[IndexExpr, Dim]] = {}
        for leaf in leaves_of(loop):
            inside = {each.name: each.extent for each in around(leaf) if each is loop or each in loops_of(loop)}
            for guard, (index_, bound) in undecided_guards(leaf, values, self.assumed) or []:
                outer = IndexExpr({a: n for a, n in index_.terms.items() if a not in inside}, index_.constant)
                if not index_.divisions and outer.terms:
                    ends[guard] = outer + (index_ - outer).range(inside)[1], bound
        return ends

    def tests_before(self, loop: Loop, values: LoopValues) -> list[EdgeTest]:
        """Return the tests of edges in a loop that do not depend on its iterations."""
        inside, tests = {loop.name, *(other.name for other in loops_of(loop))}, dict[EdgeTest, None]()
        for leaf in leaves_of(loop):
            extents = extents_of(around(leaf))
            for access in leaf.reads:
                for test in edge_tests(access, leaf.place(access), values, extents):
                    if test not in self.passed and not test[0].variables() & inside:
                        tests[test] = None
        return list(tests)

    def iterations(
        self,
        loop: Loop,
        bounds: tuple[Bound, Bound],
        values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried],
        carried: Carried,
        is_rest: bool,
    ) -> Carried:
        """Emit some iterations of a loop."""
        low, high = bounds
        # Lanes have registers of their own, also where they are no vectors.
        is_straight = loop.kind == UNROLLED or loop.kind == VECTORIZED and (carried or loop.name in self.straight)
        most = MAX_UNROLL if is_straight else 1
        if isinstance(low, int) and isinstance(high, int) and high - low <= most and loop.kind != BOUND:
            return self._straight_iterations(loop, range(low, high), values, body, carried)
        kind = SERIAL if is_rest else loop.kind
        if carried or kind in (SERIAL, PARALLEL):
            return self._rolled_iterations(loop, kind, bounds, values, body, carried)
        self.annotated(loop, kind, bounds, values, body)
        return carried

    def _straight_iterations(
        self,
        loop: Loop,
        iterations: range,
        values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried],
        carried: Carried,
    ) -> Carried:
        """Emit iterations one after the other."""
        if loop.kind == UNROLLED and self.stores is None and self.can_load_first(loop, values):
            return self.loads_first(iterations, body, carried)
        first = len(self.bound)
        for i in iterations:
            carried = body(i, carried)
        if loop.kind == UNROLLED:
            self.synchronize_once(loop, self.bound[first:])
        return carried

    def _rolled_iterations(
        self,
        loop: Loop,
        kind: str,
        bounds: tuple[Bound, Bound],
        values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried],
        carried: Carried,
    ) -> Carried:
        """Emit iterations as a loop, or as a branch where there is one at most."""
        low, high = bounds
        part, is_at_most_one = loop.part, kind == SERIAL and _is_at_most_one(low, high)
        is_counted = isinstance(high, ir.Value) or isinstance(high, int) and not carried
        if part is None or kind != SERIAL or isinstance(low, ir.Value) or is_counted:
            step, iteration = 1, body
        else:
            # Addresses contain where the part begins: as iterations, one value has it, instead of one each.
            low, high, step = part.low + low * part.step, part.low + high * part.step, part.step  # type: ignore[operator]
            iteration = partial(_at_position, loop.name, part, body)
        if is_at_most_one:
            return if_any(low, high, lambda i, *held: iteration(i, list(held)), carried)
        is_static = isinstance(low, int) and isinstance(high, int)

        def rolled(first: ir.Value, last: ir.Value, held: Carried) -> Carried:
            new_loop = scf.ForOp(first, last, values.emit(step), held)
            if kind == PARALLEL:
                new_loop.operation.attributes[PARALLEL_LOOP] = ir.UnitAttr.get()
            with ir.InsertionPoint(new_loop.body):
                scf.YieldOp(iteration(new_loop.induction_variable, Carried(new_loop.inner_iter_args)))
            self._improve(new_loop.operation, loop, kind, is_static, bool(carried))
            return list(new_loop.results)

        first, last = emit_bound(low, values), emit_bound(high, values)
        if self.accumulators is None:
            return rolled(first, last, carried)
        length = high - low if isinstance(low, int) and isinstance(high, int) else None
        blocks = self.accumulators.sum_blocks(loop, bounds)
        return SumBlocks(self.accumulators, length, step, rolled).emit(first, last, carried, blocks)

    def _improve(self, emitted: ir.Operation, loop: Loop, kind: str, is_static: bool, is_carrying: bool) -> None:
        """Forbid LLVM to unroll an emitted loop that is work enough, and hoist what does not vary in it."""
        is_cut = self.accumulators is not None and len(self.accumulators.loops) > 1
        if not is_static and (not is_carrying or is_cut) and self.has_vectors_only(loop):
            keep_rolled(emitted)
        if kind == SERIAL and not is_carrying and is_static and not _has_loops(loop):
            hoist(emitted)
        elif not is_carrying and not self.placed.in_threads and self.reads_in_common(loop):
            hoist_loads(emitted)

    def reads_in_common(self, loop: Loop) -> bool:
        """Return whether all iterations of a loop of vectors read an element in common."""
        inner = loops_of(loop)
        if not inner or any(each.kind not in (UNROLLED, VECTORIZED) and each.extent != 1 for each in inner):
            return False
        inside = {loop.name, *(each.name for each in inner)}
        if not any(each.kind == VECTORIZED for each in inner) or any(
            isinstance(each.form, Transposition) for each in inner
        ):
            return False
        return any(
            not access.is_opaque and not any(index.variables() & inside for index in placed_at(access.at, at))
            for leaf in leaves_of(loop)
            for access, at in reads_of(leaf)
        )

    def has_vectors_only(self, loop: Loop) -> bool:
        """Return whether an iteration is vectors of CPUs, without loops around them but those of a reduction."""
        inner = [other for other in loops_of(loop) if other.kind != UNROLLED and other.extent != 1]
        reduced = {name for leaf in leaves_of(loop) for name in leaf.reduce_loops()}
        others = [other for other in inner if other.kind != VECTORIZED]
        return len(others) < len(inner) and not self.placed.in_threads and all(o.name in reduced for o in others)

    def annotated(
        self,
        loop: Loop,
        kind: str,
        bounds: tuple[Bound, Bound],
        values: LoopValues,
        body: Callable[[LoopValue, Carried], Carried],
    ) -> None:
        """Emit a loop that a later pass maps to lanes, copies or threads."""
        low, high = (emit_bound(bound, values) for bound in bounds)
        new_loop = For.build(low, high, result_types=[], kind=kind, thread=loop.thread if kind == BOUND else None)
        if kind == BOUND:
            self.bound.append(new_loop.operation)
        block = new_loop.operation.regions[0].blocks.append(ir.IndexType.get())
        with ir.InsertionPoint(block):
            body(block.arguments[0], [])
            no_values = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0, 0])}
            ir.Operation.create("tir.yield", operands=[], attributes=no_values)

    def synchronize_once(self, loop: Loop, bound: Sequence[ir.Operation]) -> None:
        """Synchronize threads after the last iteration of an unrolled loop only, if each has its own elements."""
        leaf, *others = leaves_of(loop)
        if others or leaf.is_reduction or not leaf.is_whole:
            return
        written = [access.buffer for access in leaf.writes]
        if len([access for access in accesses_of(leaf) if access.buffer in written]) > len(written):
            return  # it reads what it writes
        threads = [op for op in bound if op.opview.thread.startswith(THREAD)]
        always = [i for i, op in enumerate(threads) if op.block == ir.InsertionPoint.current.block]
        for op in threads[: always[-1]] if always else ():
            op.attributes["nowait"] = ir.BoolAttr.get(True)

    def can_load_first(self, loop: Loop, values: LoopValues) -> bool:
        """Return whether the loads of all iterations of an unrolled loop may be in flight before its stores.

        Assemblers of GPUs do not move loads before stores, which may be to the same memory for all that they know.
        """
        leaves, loops = leaves_of(loop), loops_of(loop)
        if not self.placed.in_threads or len(leaves) > 1 or leaves[0].is_reduction:
            return False
        if not leaves[0].is_clamped and self.guards_of(leaves[0], values):
            return False
        written = [access.buffer for access in leaves[0].writes]
        reads = [access for access in leaves[0].reads if access.inlined is not None or access.buffer in written]
        reads += [access for after in leaves[0].epilogue for access in after.reads if access.inlined is not None]
        return not reads and all(
            other.kind == UNROLLED
            or other.extent == 1
            and other.kind != BOUND
            or other.kind == VECTORIZED
            and can_vectorize(leaves[0], other, [], self.placed)
            for other in loops
        )

    def loads_first(
        self, iterations: range, body: Callable[[LoopValue, Carried], Carried], carried: Carried
    ) -> Carried:
        """Emit the iterations of an unrolled loop, and their stores after all of them."""
        self.is_loading, stores = True, list[StoreLanes]()
        self.stores = stores
        for i in iterations:
            body(i, carried)
        self.is_loading = False
        for i in iterations:
            carried = body(i, carried)
        self.stores = None
        store_each(stores)
        return carried
