"""The primitive `block_rows`: nests that follow one another, computed a block of rows at a time.

Such are two products with row operations between them (attention): what the first one writes of a block of rows stays
in the cache until the second one has read it. The loops outside of the blocks, over heads and batches, are shared.
Where sizes are static, threads divide these loops, or the blocks. Where the number of rows or of columns is dynamic,
threads claim blocks one after the other, and each has a slot of the memory of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import lcm, prod
from typing import Protocol

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, emit_constant, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.find_attention import find_attention
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.loops import for_loop, loop_over_tiles, loop_with_tail, store
from mirlo.passes.schedule.primitives.contiguity import in_iterations, position_of
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.loops import unique_loop_name
from mirlo.passes.schedule.primitives.memory import STORED_ROW
from mirlo.passes.schedule.primitives.register_tile import sides_of
from mirlo.passes.schedule.primitives.registers import Carried
from mirlo.passes.schedule.primitives.shifted_tiles import RowSpan, plus
from mirlo.passes.schedule.primitives.tree import (
    PARALLEL,
    BlockLeaf,
    BufferAccess,
    Loop,
    Node,
    PagedColumns,
    Root,
    RowBlocks,
    RowNest,
    ScheduleBuffer,
    ScheduleError,
    ShiftedTiles,
    TileLeaf,
    around,
    leaves_of,
    placed_at,
    reads_of,
    set_children,
    views_of,
)
from mirlo.runtime.records import dataclass

Index = ir.Value | int
_ADDI = 1
"""The sum of integers as the kind of `memref.atomic_rmw`."""


class _Scalars:
    """The machine model of analyses that use no vectors."""

    def lanes(self, element_bytes: int) -> int:
        return 1


@dataclass(frozen=True)
class SharedRows:
    """The rows that two products have in common: the second one reads those that the first one writes."""

    loops: tuple[tuple[Dim, Dim], ...]
    """The loops outside of blocks, outermost first: their steps in rows, and their extents."""
    extent: Dim
    """Rows within these loops."""
    width: Dim
    """The columns of a row."""
    first: RowNest
    last: RowNest
    between: tuple[Loop | BlockLeaf, ...]
    """The nests between the products."""
    row: Loop | None
    """The loop over rows between the products; None if there is one row."""
    values: tuple[ScheduleBuffer, ...]
    """Values that are stored for one block only."""
    blocks: tuple[BlockView, ...]
    """The blocks of the function that the nests compute."""

    @property
    def total(self) -> Dim:
        """Return the rows of all blocks."""
        return D.product([extent for _, extent in self.loops]) * self.extent

    @cached_property
    def hidden(self) -> tuple[int, Dim] | None:
        """Return the columns that a mask hides from rows, as `RowBlocks.limit`; None if it hides none."""
        return _hidden_columns(self.blocks, self.extent)


def block_rows(
    root: Root,
    block: str,
    shared: SharedRows,
    rows: Dim,
    ends: Sequence[Loop],
    threads: int,
    pages: tuple[PagedColumns, ...] = (),
    lanes: int = 1,
) -> Loop:
    """Compute the nests of a block and of others a block of rows at a time; return the loop over blocks.

    The columns of both products may be read in pages, of which vectors of copies have this many lanes.
    """
    sizes = (rows, shared.extent, shared.width, *(extent for _, extent in shared.loops))
    if threads < 1 and not all(isinstance(size, int) for size in sizes):
        raise ScheduleError(
            f"block_rows: blocks of {rows} rows of {shared.width} columns, sizes that only the run time knows: state "
            "how many threads claim blocks (threads=)"
        )
    limit = None
    if ends:
        limit = shared.hidden
        if limit is None:
            raise ScheduleError("block_rows: no mask hides columns from all rows of a block on")
    heads = D.product([extent for _, extent in shared.loops])
    form = RowBlocks(
        shared.loops, shared.extent, shared.width, rows, shared.first, shared.last, shared.between, shared.row,
        shared.values, limit, _columns_at_once(shared, ends), tuple(loop.name for loop in ends), threads, pages, lanes,
    )  # fmt: skip
    first = shared.first.node
    loop = Loop(unique_loop_name(first, f"{block}_rows"), D.ceildiv(shared.extent, rows) * heads, PARALLEL)
    loop.form = form
    nests = [first, *shared.between, shared.last.node]
    body = _without(root, pages)
    at = body.index(first)
    set_children(root, [*body[:at], loop, *body[at + len(nests) :]])
    set_children(loop, nests)
    return loop


def _without(root: Root, pages: Sequence[PagedColumns]) -> list[Loop | BlockLeaf]:
    """Return the nests of a tree without those of blocks whose rows are read in pages."""
    values = [each.rows.value for each in pages]
    return [node for node in root.body if not any(leaf.writes[0].buffer in values for leaf in leaves_of(node))]


def shared_rows(root: Root, leaves: Sequence[BlockLeaf], pages: Sequence[PagedColumns] = ()) -> SharedRows:
    """Return the rows that the nests of blocks, two products and what is between them, have in common."""
    tops = list(dict.fromkeys(around(leaf)[0] if around(leaf) else leaf for leaf in leaves))
    body = _without(root, pages)
    at = body.index(tops[0]) if tops and tops[0] in body else 0
    if list(body[at : at + len(tops)]) != tops or len(tops) < 3:
        raise ScheduleError("expected blocks whose nests follow one another: a product, rows and a product")
    node, *between, end = tops
    tiles = [leaf.form for leaf in (leaves[0], leaves[-1])]
    first, last = tiles
    if not (isinstance(first, TileLeaf) and isinstance(last, TileLeaf)):
        raise ScheduleError(f"expected register tiles of '{leaves[0].name}' and '{leaves[-1].name}'")
    assert isinstance(node, Loop) and isinstance(end, Loop)
    result, axes = _stored(first.leaf)[0]
    read = sides_of(last)[0][1]
    *outer, width = read.buffer.shape
    total = D.product(outer)
    written = in_iterations(position_of(result, placed_at(result.at, axes)), first.leaf)
    used = in_iterations(position_of(read, last.leaf.place(read)), last.leaf)
    nests = (_row_nest(node, first, written, width, total), _row_nest(end, last, used, width, total))
    loops, extent = _nested_rows(nests, outer)
    values = _shared_values(root, [[node], between, [end]])
    if read.buffer not in values:
        raise ScheduleError(f"'{last.leaf.name}' reads no rows that the nests before it compute")
    row = _loop_over_rows(between, total)
    _require_rows(between, row, values, total)
    own = [each.op for top in tops for leaf in leaves_of(top) for each in views_of(leaf)]
    blocks = tuple(each for each in root.view.blocks if each.op in own)
    return SharedRows(loops, extent, width, *nests, tuple(between), row, values, blocks)


def _hidden_columns(blocks: Sequence[BlockView], rows: Dim) -> tuple[int, Dim] | None:
    """Return the coefficient and constant of the first column that one of an attention's rows does not need."""
    attention = find_attention(BlockGroup(tuple(blocks), frozenset(), _Scalars()))
    if isinstance(attention, Decline) or attention.key_loop < 1 or attention.extents[attention.key_loop - 1] != rows:
        return None
    query = attention.key_loop - 1
    limits = [
        bound.limit for bound in attention.bounds if bound.limit.variables() <= {query} and not bound.limit.divisions
    ]
    limit = next((limit for limit in limits if limit.coefficient(query) >= 0), None)
    return None if limit is None else (limit.coefficient(query), limit.constant + 1)


def _stored(leaf: BlockLeaf) -> list[tuple[BufferAccess, list[IndexExpr]]]:
    """Return the results of a block and of its epilogue in memory, with the axes of each."""
    results = [(access, leaf.at) for access in leaf.writes if not access.is_held]
    for after in leaf.epilogue:
        at = placed_at(after.at, leaf.at)
        results += [(access, at) for access in after.writes if not access.is_held]
    return results


def _row_nest(node: Loop, tile: TileLeaf, form: IndexExpr, width: Dim, total: Dim) -> RowNest:
    """Return the loops of a product over rows of this width, of which an element is at a position by the loops."""
    if form.divisions:
        raise ScheduleError(f"the rows of '{tile.leaf.name}' are not a multiple of its loops")
    outer: dict[str, tuple[Dim, Dim]] = {}
    tiles = None
    for loop in around(tile.over[0]):
        step = form.coefficient(loop.name)
        if isinstance(loop.form, ShiftedTiles):
            tiles = loop
        elif loop.extent != 1 and step != 0 and D.is_multiple(step, width):
            outer[loop.name] = step // width, loop.extent
    if tiles is not None and isinstance(tiles.form, ShiftedTiles):
        return RowNest(node, outer, tiles.name, tiles.form.extent)
    steps = [step for step, _ in outer.values()] or [total]
    inside = next((step for step in steps if all(D.is_multiple(other, step) for other in steps)), None)
    if inside is None:
        raise ScheduleError(f"the loops of '{tile.leaf.name}' step by {', '.join(map(str, steps))} rows")
    return RowNest(node, outer, "", inside)


def _nested_rows(nests: Sequence[RowNest], outer: Sequence[Dim]) -> tuple[tuple[tuple[Dim, Dim], ...], Dim]:
    """Return the shared loops of two products over rows of these dims, and the rows within them."""
    extents = [nest.rows for nest in nests]
    steps = {*extents, D.product(list(outer))}
    for stride, count in (each for nest in nests for each in nest.outer.values()):
        steps |= {stride, stride * count}
    # Steps of the loops over rows: adjacent dims, or several of them fused.
    chain: list[Dim] = [1]
    for dim in reversed(outer):
        chain.append(chain[-1] * dim)
    ordered = [step for i, step in enumerate(chain) if step in steps and step not in chain[:i]]
    extent = next((step for step in ordered if step in extents), 1)
    if not steps <= set(ordered) or any(chain.index(step) < chain.index(extent) for step in steps):
        raise ScheduleError(
            f"the loops of the contractions do not fit into each other: they step by {', '.join(map(str, steps))} rows"
        )
    return tuple((small, large // small) for small, large in pairwise(ordered))[::-1], extent


def _shared_values(root: Root, stages: Sequence[Sequence[Loop | BlockLeaf]]) -> tuple[ScheduleBuffer, ...]:
    """Return the values that one stage computes and a later one reads, in the order of their definition."""
    accessed = [{id(access.buffer) for node in nodes for access in _accesses(node)} for nodes in stages]
    leaves = [leaf for nodes in stages for node in nodes for leaf in leaves_of(node)]
    computed = {id(access.buffer) for leaf in leaves for access, _ in _stored(leaf)}
    values = tuple(
        each
        for each in root.buffers
        if id(each) in computed and sum(id(each) in ids for ids in accessed) > 1 and _is_value(root, each)
    )
    for nodes in stages[:-1]:
        results = [access.buffer for node in nodes for leaf in leaves_of(node) for access, _ in _stored(leaf)]
        output = next((each for each in results if each.is_parameter), None)
        if output is not None:
            raise ScheduleError(f"'{output.name}', a value between the products, is a result of the function")
    return values


def _is_value(root: Root, buffer: ScheduleBuffer) -> bool:
    return buffer.value is not None and buffer.value not in root.view.arguments


def _accesses(node: Loop | BlockLeaf) -> list[BufferAccess]:
    """Return the accesses of memory in a node."""
    result: list[BufferAccess] = []
    for leaf in leaves_of(node):
        result += [access for access, _ in (*reads_of(leaf), *_stored(leaf))]
    return result


def _loop_over_rows(nodes: Sequence[Loop | BlockLeaf], total: Dim) -> Loop | None:
    """Return the loop over all rows of the nests between products."""
    if total == 1:
        return None
    node = nodes[0] if len(nodes) == 1 else None
    while isinstance(node, Loop) and node.extent == 1 and len(node.body) == 1:
        node = node.body[0]
    if not isinstance(node, Loop) or node.extent != total:
        raise ScheduleError(f"expected one loop over all {total} rows between the products")
    return node


def _require_rows(
    nodes: Sequence[Loop | BlockLeaf], row: Loop | None, values: Sequence[ScheduleBuffer], total: Dim
) -> None:
    """Require that a row between the products is computed from what the first one has stored of it."""
    if row is None:
        return
    for leaf in (leaf for node in nodes for leaf in leaves_of(node)):
        if any(row.name in leaf.at[axis].variables() for axis, _ in (leaf.body.indices if leaf.view else ())):
            raise ScheduleError(f"'{leaf.name}' computes with the number of its row")
        for access, axes in (*reads_of(leaf), *_stored(leaf)):
            if access.is_opaque or access.outside is not None:
                raise ScheduleError(f"'{leaf.name}' picks elements of '{access.buffer.name}'")
            form = in_iterations(position_of(access, placed_at(access.at, axes)), leaf)
            step = form.coefficient(row.name)
            own = D.product(list(access.buffer.shape)) // total
            is_row = access.buffer in values and not form.divisions and step == own
            if not is_row and (access.buffer in values or access.buffer.is_parameter and row.name in form.variables()):
                raise ScheduleError(f"'{leaf.name}' accesses '{access.buffer.name}' other than row by row")


def _columns_at_once(shared: SharedRows, ends: Sequence[Loop]) -> int:
    """Return the columns that all loops compute at a time, if not all columns are computed."""
    tile = leaves_of(shared.first.node)[-1].form
    if not ends or not isinstance(tile, TileLeaf):
        return 1
    parts = [loop.part for loop in ends if loop.part is not None and loop.part.low == 0]
    return lcm(tile.width, *(part.step for part in parts))


class NestsFunction(Protocol):
    """The emitter of the nests in a loop over blocks of rows."""

    ends: Mapping[str, ir.Value]
    spans: Mapping[str, RowSpan]

    @property
    def buffers(self) -> BufferFunction:
        """Return the function that is emitted."""
        ...

    def nodes(self, nodes: Sequence[Node], values: LoopValues, carried: Carried) -> Carried:
        """Emit nodes that follow one another."""
        ...


class RowBlocksEmitter:
    """Emits blocks of rows: a product, what is computed of each row, and the other product."""

    def __init__(self, function: NestsFunction, blocks: RowBlocks, values: LoopValues) -> None:
        self.function, self.blocks, self.values = function, blocks, values

    def emit(self) -> None:
        """Emit all blocks at the insertion point."""
        if self.blocks.threads:
            self._emit_tasks()
        else:
            self._emit_known()

    def _emit_known(self) -> None:
        """Emit blocks of a known number of rows."""
        blocks = self.blocks
        extent, size = static_dim(blocks.extent), static_dim(blocks.size)
        heads, whole = prod(static_dim(extent) for _, extent in blocks.loops), extent // size * size
        parts = [range(0, whole, size)] if whole else []
        parts += [range(whole, extent, extent - whole)] if whole < extent else []

        def of_head(head: Index) -> None:
            indices = shared_indices(blocks.loops, head)
            # The rest is part of the loop: scratch memory that is used inside of it only is private to each thread.
            loop_with_tail(
                parts, lambda start, part: self.emit_block(indices, start, parts[part].step, 0), parallel=heads == 1
            )

        loop_over_tiles(0, heads, 1, of_head, parallel=True)

    def _emit_tasks(self) -> None:
        """Emit blocks of a number of rows that only the run time knows."""
        blocks = self.blocks
        heads = D.product([extent for _, extent in blocks.loops])
        # The same block of all heads first: causal blocks take longer, the later their rows.
        tasks = D.ceildiv(blocks.extent, blocks.size) * heads

        def task(number: Value, slot: Value) -> None:
            start, head = number.divide_unsigned(heads) * blocks.size, number.remainder_unsigned(heads)
            count = (index(blocks.extent) - start).minimum(blocks.size)
            self.emit_block(shared_indices(blocks.loops, head), start, count, slot)

        emit_tasks(self.function.buffers, blocks.threads, tasks, task)

    def emit_block(self, indices: Mapping[Dim, Index], start: Index, count: Index, slot: Index) -> None:
        """Emit `count` rows from `start` on, in a slot of the memory of blocks."""
        blocks = self.blocks
        needed = self._needed_columns(start, count)
        ends = {} if needed is None else dict.fromkeys(blocks.ends, needed)
        stored = times(slot, blocks.size)
        self.emit_product(blocks.first, indices, start, count, stored, ends)
        if blocks.row is None:
            self.emit_row(0, ends)
        elif isinstance(count, int):
            loop_over_tiles(0, count, 1, lambda r: self.emit_row(plus(stored, r), ends))
        else:
            for_loop(0, count, 1, lambda r: self.emit_row(plus(stored, r), ends))
        self.emit_product(blocks.last, indices, start, count, stored, ends)

    def emit_row(self, stored: Index, ends: Mapping[str, ir.Value]) -> None:
        """Emit what is computed of a row between the products; `stored` is its row of the memory of blocks."""
        row = self.blocks.row
        at: dict[str, LoopValue] = {STORED_ROW: stored} if row is None else {row.name: stored, STORED_ROW: stored}
        self._nodes(self.blocks.between, at, ends)

    def emit_product(
        self,
        nest: RowNest,
        indices: Mapping[Dim, Index],
        start: Index,
        count: Index,
        stored: Index,
        ends: Mapping[str, ir.Value],
        others: Mapping[str, LoopValue] | None = None,
    ) -> None:
        """Emit `count` rows of a product from `start` on; `indices` are those of the shared loops, `others` of others.

        `stored` is the row of the memory of a block where the first one is; `ends` are where loops end early.
        """
        at: dict[str, LoopValue] = {name: self._index(indices, *each) for name, each in nest.outer.items()}
        spans: dict[str, RowSpan] = {}
        if nest.tiles:
            first = start
            for distance in self._between(self.blocks.order[0], nest.rows):
                first = plus(first, times(indices[distance], distance))
            spans[nest.tiles] = RowSpan(first, count, stored)
        else:
            at[STORED_ROW] = stored
        self._nodes([nest.node], {**at, **(others or {})}, ends, spans)

    def _nodes(
        self,
        nodes: Sequence[Node],
        at: Mapping[str, LoopValue],
        ends: Mapping[str, ir.Value],
        spans: Mapping[str, RowSpan] | None = None,
    ) -> None:
        function = self.function
        before = function.ends, function.spans
        function.ends, function.spans = ends, spans or {}
        function.nodes(nodes, self.values.at(dict(at)), [])
        function.ends, function.spans = before

    def _needed_columns(self, start: Index, count: Index) -> ir.Value | None:
        """Return the number of columns that a block of rows needs, in whole steps; None if it needs all."""
        blocks = self.blocks
        if blocks.limit is None:
            return None
        (scale, beyond), step = blocks.limit, blocks.columns_at_once
        end = plus(plus(start, count), -1)
        if isinstance(end, int):
            needed = max(-(-(scale * end + beyond) // step), 1) * step
            return None if needed >= blocks.width else index(needed)
        last = Value(end) * scale + (beyond + step - 1)
        steps = create("arith.floordivsi", ir.IndexType.get(), last, index(step)).maximum(1)
        return (steps * step).minimum(index(blocks.width))

    def _index(self, indices: Mapping[Dim, Index], stride: Dim, extent: Dim) -> Index:
        """Return the index of a loop that steps by this many rows."""
        total: Index = 0
        for distance in self._between(stride, stride * extent):
            total = plus(total, times(indices[distance], distance // stride))
        return total

    def _between(self, low: Dim, high: Dim) -> Sequence[Dim]:
        """Return the steps of the loops that one is fused of, from its step to its end."""
        order = self.blocks.order
        return order[order.index(low) : order.index(high)]


def shared_indices(loops: Sequence[tuple[Dim, Dim]], head: Index) -> dict[Dim, Index]:
    """Return the index of each shared loop, by its step, from a linear index over all of them."""
    indices: dict[Dim, Index] = {}
    below: Dim = 1
    for i, (stride, extent) in reversed(list(enumerate(loops))):
        if isinstance(head, int):
            indices[stride] = head // static_dim(below) % static_dim(extent)
        else:
            value = Value(head) if below == 1 else Value(head).divide_unsigned(below)
            indices[stride] = value if i == 0 else value.remainder_unsigned(extent)
        below *= extent
    return indices


def times(value: Index, factor: Dim) -> Index:
    """Emit a multiple of an index; of an integer, return it."""
    if isinstance(value, int):
        return value * factor if isinstance(factor, int) else index(factor) * value
    return Value(value) * factor


def emit_tasks(function: BufferFunction, slots: int, tasks: Dim, task: Callable[[Value, Value], None]) -> None:
    """Emit tasks that threads, each with a slot, claim one after the other: `task(number, slot)`."""
    if slots == 1:
        for_loop(0, tasks, 1, lambda number: task(number, index(0)))
        return
    following = function.shared_scratch(1, ir.IntegerType.get_signless(64))
    store(emit_constant(0, following.type.element_type), following, [1], [index(0)])

    def worker(slot: Value) -> None:
        _claim_each(following, tasks, lambda number: task(number, slot))

    for_loop(0, slots, 1, worker, parallel=True)


def _claim_each(following: ir.Value, count: Dim, body: Callable[[Value], None]) -> None:
    """Emit a loop that takes the next of some tasks until none is left; `following` is a number that threads share.

    A thread that is slow, or starts late, takes fewer.
    """
    element, kind = following.type.element_type, ir.IndexType.get()
    loop = scf.WhileOp([kind], [])
    with ir.InsertionPoint(loop.before.blocks.append()):
        addi = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _ADDI)
        claimed = create("memref.atomic_rmw", element, emit_constant(1, element), following, index(0), kind=addi).cast(
            kind
        )
        scf.ConditionOp(claimed < count, [claimed])
    with ir.InsertionPoint(loop.after.blocks.append(kind)):
        body(Value(loop.after.blocks[0].arguments[0]))
        scf.YieldOp([])
