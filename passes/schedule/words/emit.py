"""Code of a schedule tree: loops over buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import func, ir, memref, scf, vector
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, Remainder
from mirlo.dialects.tir.loops import For
from mirlo.dialects.tir.scalars import compare, create, emit_constant
from mirlo.passes.schedule.buffers import BufferFunction, ScheduleFacts
from mirlo.passes.schedule.choices import ChoiceValues
from mirlo.passes.schedule.loops import attribute_constant, clone_body
from mirlo.passes.schedule.vectors import splat, vector_body
from mirlo.passes.schedule.words.blocks import decompose
from mirlo.passes.schedule.words.index import emit_index
from mirlo.passes.schedule.words.memory import Placed, allocate_buffers
from mirlo.passes.schedule.words.tree import (
    BOUND,
    VECTORIZED,
    BlockLeaf,
    BufferAccess,
    Loop,
    Node,
    Root,
    around,
    axis_name,
)

Values = dict[str, ir.Value]


def emit(root: Root, schedule: ScheduleFacts, choices: ChoiceValues | None = None) -> func.FuncOp:
    """Replace the function's tensor form by the loops; return the new function."""
    parts = PartEmitter(root)
    function = BufferFunction(root.view)
    return function.build(lambda: parts.emit(root.body, function), schedule, choices)


class PartEmitter:
    """Emits the nodes of a tree, part by part."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._emitter: _Emitter | None = None
        for leaf in list(root.leaves()):
            if leaf.is_reduction and leaf.part == "whole" and not leaf.rule:
                # Each iteration of a loop may have a partial result of one element: then no loop of the reduction
                # is left.
                chain = around(leaf)
                decompose(root, leaf, next((loop for loop in chain if loop.name in leaf.reduce_loops()), chain[-1]))

    def emit(self, nodes: Sequence[Node], function: BufferFunction) -> None:
        """Emit some nodes at the insertion point."""
        if self._emitter is None:
            self._emitter = _Emitter(allocate_buffers(self._root, function))
        for node in nodes:
            self._emitter.node(node, {})


class _Emitter:
    def __init__(self, placed: dict[int, Placed]) -> None:
        self.placed = placed

    def node(self, node: Node, values: Values) -> None:
        if isinstance(node, BlockLeaf):
            self.guarded(node, values, lambda: self.point(node, values))
        elif isinstance(node, Loop):
            self.loop(node, values)

    def loop(self, loop: Loop, values: Values) -> None:
        if loop.tensorized is not None:
            loop.tensorized.emit(loop, values, self.placed)
            return
        if loop.kind == VECTORIZED and self.lanes_fit(loop):
            leaf = loop.body[0]
            assert isinstance(leaf, BlockLeaf)
            inside = {**values, loop.name: emit_constant(0, ir.IndexType.get())}
            self.guarded(leaf, inside, lambda: self.lanes(leaf, loop, inside))
            return
        if loop.extent == 1:
            for child in loop.body:
                self.node(child, {**values, loop.name: emit_constant(0, ir.IndexType.get())})
            return
        kind = ir.IndexType.get()
        made = For.build(
            emit_constant(0, kind), emit_constant(loop.extent, kind), result_types=[], kind=loop.kind,
            thread=loop.thread if loop.kind == BOUND else None,
        )  # fmt: skip
        block = made.operation.regions[0].blocks.append(kind)
        with ir.InsertionPoint(block):
            for child in loop.body:
                self.node(child, {**values, loop.name: block.arguments[0]})
            no_values = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0, 0])}
            ir.Operation.create("tir.yield", operands=[], attributes=no_values)

    def guarded(self, leaf: BlockLeaf, values: Values, body: Callable[[], None]) -> None:
        """Emit a body for points within bounds; points past the end of a split loop are skipped."""
        extents = {loop.name: loop.extent for loop in around(leaf)}
        condition = None
        for index, bound in leaf.guards:
            if index.range(extents)[1] < bound:
                continue
            test = compare("lt", emit_index(index, values), bound)
            condition = test if condition is None else create("arith.andi", test.type, condition, test)
        if condition is None:
            body()
            return
        branch = scf.IfOp(condition)
        with ir.InsertionPoint(branch.then_block):
            body()
            scf.YieldOp([])

    # Scalars

    def point(self, leaf: BlockLeaf, values: Values) -> None:
        made = self.computed(leaf, [emit_index(index, values) for index in leaf.at], leaf.at, values)
        for value, access in zip(made, leaf.writes, strict=True):
            memref.StoreOp(
                value, self.placed[id(access.buffer)].value, self.address(leaf.place(access), access, values)
            )

    def computed(self, leaf: BlockLeaf, axes: list[ir.Value], at: list[IndexExpr], values: Values) -> list[ir.Value]:
        """Emit the values of a block at one point, given the values of its axes."""
        if leaf.part == "start":
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        names = {axis_name(i): index for i, index in enumerate(at)}
        if leaf.view is None:
            return [self.read(leaf.reads[0], names, values)]
        env = dict(zip(leaf.view.index_arguments, axes, strict=False))
        for argument, access in zip(leaf.view.input_arguments, leaf.reads, strict=True):
            env[argument] = self.read(access, names, values)
        for argument, access in zip(leaf.view.accumulators, leaf.writes, strict=False):
            env[argument] = self.read(access, names, values)
        return clone_body(leaf.view, env)

    def read(self, access: BufferAccess, names: dict[str, IndexExpr], values: Values) -> ir.Value:
        if access.is_opaque:
            return self.placed[id(access.buffer)].value
        at = [index.replace(names) for index in access.at]
        if access.inlined is not None:
            return self.computed(access.inlined, [emit_index(index, values) for index in at], at, values)[0]
        buffer = self.placed[id(access.buffer)].value
        if access.outside is None:
            return memref.LoadOp(buffer, self.address(at, access, values)).result
        inside = self.inside(at, access, values)
        branch = scf.IfOp(inside, [access.buffer.element], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp([memref.LoadOp(buffer, self.address(at, access, values)).result])
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([attribute_constant(access.outside)])
        return branch.results[0]

    def inside(self, at: list[IndexExpr], access: BufferAccess, values: Values) -> ir.Value:
        """Emit whether an index is within the bounds of the tensor."""
        flag = ir.IntegerType.get_signless(1)
        condition = create("arith.constant", flag, value=ir.BoolAttr.get(True))
        for index, size in zip(at, access.buffer.shape, strict=True):
            # An unsigned comparison also covers negative indices.
            test = compare("ult", emit_index(index, values), size)
            condition = create("arith.andi", flag, condition, test)
        return condition

    def address(self, at: list[IndexExpr], access: BufferAccess, values: Values) -> list[ir.Value]:
        return [emit_index(index, values) for index in self.placed[id(access.buffer)].at(at)]

    # Vectors

    def lanes_fit(self, loop: Loop) -> bool:
        """Return whether a loop can be one vector operation: one block, steps of 0 or 1, no reduction over it."""
        if len(loop.body) != 1 or not isinstance(loop.body[0], BlockLeaf):
            return False
        leaf = loop.body[0]
        if loop.name in leaf.reduce_loops() or any(loop.name in index.variables() for index, _ in leaf.guards):
            return False
        if leaf.view is not None and any(loop.name in leaf.at[axis].variables() for axis in _index_axes(leaf)):
            return False
        reads = leaf.reads if leaf.part != "start" else []
        accesses = [*((access, False) for access in reads), *((access, True) for access in leaf.writes)]
        return all(self.step(access, leaf, loop, written) is not None for access, written in accesses)

    def step(self, access: BufferAccess, leaf: BlockLeaf, loop: Loop, written: bool) -> int | None:
        """Return the step of an access along a loop, 0 or 1; None for anything else."""
        if access.is_opaque or access.inlined is not None:
            return None
        memory = self.placed[id(access.buffer)].at(leaf.place(access))
        steps = [index.coefficient(loop.name) for index in memory]
        if any(step is None for step in steps) or any(steps[:-1]):
            return self._tiled_step(memory, steps, leaf, loop, access)
        last = steps[-1] if steps else 0
        if last == 0 and written:
            return None
        fits = last == 0 or (last == 1 and access.outside is None)
        return last if fits else None

    def _tiled_step(
        self, memory: list[IndexExpr], steps: list[int | None], leaf: BlockLeaf, loop: Loop, access: BufferAccess
    ) -> int | None:
        """Return the step of a loop within one tile of a packed buffer.

        The quotient is constant, the remainder moves.
        """
        if access.outside is not None:
            return None
        rest = {other.name: 1 for other in around(leaf)} | {loop.name: loop.extent}
        for position, index in enumerate(memory):
            low, high = index.range(rest)
            is_last = position == len(memory) - 1
            if high - low != (loop.extent - 1 if is_last else 0):
                return None
        # The other loops determine where a tile begins: they must move by whole tiles.
        return 1 if _is_aligned(memory[-1], loop) else None

    def lanes(self, leaf: BlockLeaf, loop: Loop, values: Values) -> None:
        count = loop.extent
        made = self.computed_lanes(leaf, loop, values)
        for value, access in zip(made, leaf.writes, strict=True):
            where = self.address(leaf.place(access), access, values)
            vector.StoreOp(splat(value, count), self.placed[id(access.buffer)].value, where)

    def computed_lanes(self, leaf: BlockLeaf, loop: Loop, values: Values) -> list[ir.Value]:
        if leaf.part == "start":
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        if leaf.view is None:
            return [self.read_lanes(leaf.reads[0], leaf, loop, values, False)]
        env = dict(zip(leaf.view.index_arguments, (emit_index(index, values) for index in leaf.at), strict=False))
        for argument, access in zip(leaf.view.input_arguments, leaf.reads, strict=True):
            env[argument] = self.read_lanes(access, leaf, loop, values, False)
        for argument, access in zip(leaf.view.accumulators, leaf.writes, strict=False):
            env[argument] = self.read_lanes(access, leaf, loop, values, True)
        return vector_body(leaf.view, env, loop.extent)

    def read_lanes(self, access: BufferAccess, leaf: BlockLeaf, loop: Loop, values: Values, written: bool) -> ir.Value:
        names = {axis_name(i): index for i, index in enumerate(leaf.at)}
        if self.step(access, leaf, loop, written) == 0:
            return self.read(access, names, values)
        kind = ir.VectorType.get([loop.extent], access.buffer.element)
        where = self.address(leaf.place(access), access, values)
        return vector.LoadOp(kind, self.placed[id(access.buffer)].value, where).result


def _index_axes(leaf: BlockLeaf) -> list[int]:
    """Return the axes whose index the body computes with."""
    assert leaf.view is not None
    return [axis for axis in range(leaf.view.rank) if leaf.view.uses_index(axis)]


def _is_aligned(index: IndexExpr, loop: Loop) -> bool:
    """Return whether a remainder starts at zero with the loop: all other loops move it by multiples of the tile."""
    terms, _ = index.terms_with_remainders()
    if len(terms) != 1 or not isinstance(terms[0][0], (FloorDiv, Remainder)):
        return False
    inner, divisor = terms[0][0].inner, terms[0][0].divisor
    return inner.constant % divisor == 0 and all(
        isinstance(other, str) and (other == loop.name and count == 1 or count % divisor == 0)
        for other, count in inner.terms.items()
    )
