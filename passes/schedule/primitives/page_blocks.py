"""Rows of caches in pages, which a table finds: `copy_pages`, and products over pages where they are (`block_rows`).

Pages hold the rows of all heads, so a page is computed for all heads before the next one: memory is read in order.
Entries of the table and lengths are checked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, emit_constant, index, select
from mirlo.dialects.tir.buffers import UNPROVEN
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.buffers import BufferFunction
from mirlo.passes.schedule.loops import either, for_loop
from mirlo.passes.schedule.primitives.contiguity import in_iterations, position_of
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.loops import unique_loop_name
from mirlo.passes.schedule.primitives.memory import HEAD, NEXT_PAGE, PAGE, PlacedBuffers
from mirlo.passes.schedule.primitives.register_tile import sides_of
from mirlo.passes.schedule.primitives.row_blocks import (
    NestsFunction,
    RowBlocksEmitter,
    SharedRows,
    emit_tasks,
    shared_indices,
)
from mirlo.passes.schedule.primitives.tree import (
    PARALLEL,
    BlockLeaf,
    Loop,
    PageCopies,
    PagedColumns,
    PagedRows,
    Root,
    RowBlocks,
    RowNest,
    ScheduleBuffer,
    ScheduleError,
    TileLeaf,
    around,
    set_children,
)
from mirlo.passes.schedule.primitives.vector_memory import pieces_of
from mirlo.runtime.records import dataclass

_MOST_OPERATIONS = 16
"""Most operations of a block that is compared with the expected computation."""
_WHY_IN_BOUNDS = "pages are clamped to the cache, and scores end at the lengths, which are clamped to the pages"


def reads_pages(block: BlockView) -> bool:
    """Return whether a block reads rows out of pages: a select of an element of a page, which a table has, and zero."""
    if block.is_reduction or block.rank != 4 or len(block.inputs) != 3 or len(block.outputs) != 1:
        return False
    lengths, cache, table = block.inputs
    shape = cache.shape
    if not cache.is_opaque or lengths.is_opaque or table.is_opaque or len(block.body_ops) > _MOST_OPERATIONS:
        return False
    if len(shape) != 4 or not all(isinstance(size, int) for size in shape[1:]):
        return False
    pages, rows, heads, size = shape
    (output,) = block.outputs
    if output.map != ir.AffineMap.get_identity(4) or len(table.shape) != 2:
        return False
    if output.shape != (table.shape[0], heads, table.shape[1] * rows, size):
        return False
    sequence, row = ir.AffineExpr.get_dim(0), ir.AffineExpr.get_dim(2)
    if lengths.map != ir.AffineMap.get(4, 0, [sequence]) or lengths.element_type != table.element_type:
        return False
    if table.map != ir.AffineMap.get(4, 0, [sequence, ir.AffineExpr.get_floor_div(row, rows)]):
        return False
    names = dict(zip([*block.index_arguments, *block.input_arguments], "bhtdlcp", strict=True))
    page, offset = f"minsi(maxsi(index_cast(p), 0), {pages - 1})", f"subi(t, muli(floordivsi(t, {rows}), {rows}))"
    expected = f"select(cmpi:2(t, index_cast(l)), extract(c, {page}, {offset}, h, d), 0)"
    return _text(block.yielded[0], names) == expected


def _text(value: ir.Value, names: Mapping[ir.Value, str]) -> str:
    """Return a computation as text: numbers, names of what it begins with, operations without their dialects."""
    if value in names:
        return names[value]
    op = value.owner.operation
    if op.name == "tir.size":
        return str(op.opview.dim)
    if op.name == "arith.constant":
        return f"{op.attributes['value'].value:g}"
    predicate = f":{op.attributes['predicate'].value}" if "predicate" in op.attributes else ""
    return f"{op.name.partition('.')[2]}{predicate}({', '.join(_text(each, names) for each in op.operands)})"


def paged_rows(leaf: BlockLeaf) -> PagedRows:
    """Return the operands of a block that reads rows out of pages."""
    if leaf.view is not None:
        with leaf.view.op.context, leaf.view.op.location:
            if leaf.is_whole and not leaf.epilogue and reads_pages(leaf.view):
                lengths, cache, table = (access.buffer for access in leaf.reads)
                if all(each.is_parameter for each in (lengths, cache, table)):
                    return PagedRows(leaf.writes[0].buffer, cache, table, lengths)
    raise ScheduleError(f"'{leaf.name}' does not read the rows of sequences out of pages that a table finds")


def copy_pages(root: Root, leaf: BlockLeaf, lanes: int) -> Loop:
    """Copy the rows of a block out of their pages before all else; return the loop over pages."""
    rows, nest = paged_rows(leaf), around(leaf)[0]
    sequences, most = rows.table.shape
    loop = Loop(unique_loop_name(nest, f"{leaf.name}_pages"), sequences * most, PARALLEL)
    loop.form = PageCopies(rows, lanes)
    before = [node for node in root.body if isinstance(node, Loop) and isinstance(node.form, PageCopies)]
    others = [node for node in root.body if node is not nest and node not in before]
    set_children(root, [*before, loop, *others])
    set_children(loop, [nest])
    return loop


def paged_columns(root: Root, leaves: Sequence[BlockLeaf], pages: Sequence[Loop]) -> tuple[PagedColumns, ...]:
    """Return the columns of the first and the last block, register tiles, by the loops over their pages."""
    if len(pages) != 2:
        raise ScheduleError("expected a loop over pages of each product")
    result: list[PagedColumns] = []
    for leaf, loop in zip((leaves[0], leaves[-1]), pages, strict=True):
        tile = leaf.form
        if not isinstance(tile, TileLeaf):
            raise ScheduleError(f"expected a register tile of '{leaf.name}'")
        access = sides_of(tile)[1][1]
        writers = [each for each in root.leaves() if any(other.buffer is access.buffer for other in each.writes)]
        if len(writers) != 1:
            raise ScheduleError(f"no block reads '{access.buffer.name}', the columns of '{leaf.name}', out of pages")
        rows = paged_rows(writers[0])
        count, _, size = rows.page
        form = in_iterations(position_of(access, leaf.place(access)), leaf)
        if loop not in around(leaf) or form.coefficient(loop.name) != count * size:
            raise ScheduleError(f"'{loop.name}' has not the {count} rows of a page in each iteration")
        over = tile.over if loop in tile.blocks else []
        result.append(PagedColumns(rows, loop.name, tuple(each.name for each in over)))
    return tuple(result)


def require_heads(shared: SharedRows, pages: Sequence[PagedColumns], rows: Dim, threads: int) -> None:
    """Require that blocks of rows are those of some heads of a sequence, with keys and values of these heads."""
    (count, heads, _), (sequences, _) = pages[0].rows.page, pages[0].rows.table.shape
    if pages[1].rows.page[:2] != (count, heads) or pages[1].rows.table.shape != pages[0].rows.table.shape:
        raise ScheduleError("the pages of both products have other rows or heads")
    if D.product([extent for _, extent in shared.loops]) != sequences * heads or not isinstance(shared.extent, int):
        raise ScheduleError("the loops of the products are not over sequences and the heads of pages")
    if not isinstance(rows, int) or rows % shared.extent or heads % (rows // shared.extent) or threads < 1:
        raise ScheduleError(
            f"expected blocks of the {shared.extent} rows of a head, or of several that divide {heads} heads, and the "
            "number of threads that claim them"
        )


class PageReader:
    """Emits reads of pages: entries of the table and lengths are checked before anything is read."""

    def __init__(self, rows: PagedRows, placed: PlacedBuffers, lanes: int) -> None:
        self.pages = rows.cache.shape[0]
        self.rows, self.heads, self.size = rows.page
        self.page_elements = rows.page_elements
        self.sequences, self.most = rows.table.shape
        self.cache, self.table, self.lengths = (placed[each].flat for each in (rows.cache, rows.table, rows.lengths))
        self.pieces = pieces_of(self.size, lanes, is_masked=False)

    def length(self, sequence: Value) -> Value:
        """Emit the rows of a sequence: none if there are no pages."""
        length = create("memref.load", self.lengths.type.element_type, self.lengths, sequence)
        most = select(index(self.pages).equals(0), index(0), index(self.most * self.rows))
        return length.cast(ir.IndexType.get()).maximum(0).minimum(most)

    def page(self, sequence: Value, number: Value) -> Value:
        """Emit the first element of a page of a sequence: always a page that exists, whatever the table contains."""
        entry = create("memref.load", self.table.type.element_type, self.table, sequence * self.most + number)
        page = entry.cast(ir.IndexType.get()).minimum(index(self.pages) - 1).maximum(0)
        return page * self.page_elements

    def rows_of(self, length: Value, number: Value) -> Value:
        """Emit how many rows a page has, of a sequence of this length."""
        return (length - number * self.rows).maximum(0).minimum(self.rows)

    def copy(self, source: Value, count: Value, target: PageCopy, heads: int) -> None:
        """Emit the copy of this many rows of some heads, with zeros after them."""
        for first, stop, is_row in ((index(0), count, True), (count, index(self.rows), False)):

            def row(r: Value, is_row: bool = is_row) -> None:
                for_loop(0, heads, 1, lambda h: self._copy_head(source, target, (r, h), is_row), rolled=True)

            for_loop(first, stop, 1, row)

    def _copy_head(self, source: Value, target: PageCopy, place: tuple[Value, Value], is_row: bool) -> None:
        r, h = place
        start = source + (r * self.heads + h) * self.size
        to = target.start + r * target.row_step + h * target.head_step
        for piece in self.pieces:
            kind = ir.VectorType.get([piece.lanes], self.cache.type.element_type)
            loaded = create("vector.load", kind, self.cache, start + piece.offset) if is_row else emit_constant(0, kind)
            ir.Operation.create("vector.store", operands=[loaded, target.buffer, to + piece.offset])


@dataclass(frozen=True)
class PageCopy:
    """The destination of the rows of a page."""

    buffer: ir.Value
    start: Value
    row_step: Dim
    head_step: Dim


def emit_copies(copies: PageCopies, placed: PlacedBuffers, function: BufferFunction) -> None:
    """Emit the copy of the rows of all sequences: pages are read in the order of memory."""
    _note_checks(function)
    reader, target = PageReader(copies.rows, placed, copies.lanes), placed[copies.rows.value].flat
    of_head = reader.most * reader.rows * reader.size

    def page(task: Value) -> None:
        sequence, number = task.divide_unsigned(reader.most), task.remainder_unsigned(reader.most)
        start = sequence * (of_head * reader.heads) + number * (reader.rows * reader.size)
        count = reader.rows_of(reader.length(sequence), number)
        copy = PageCopy(target, start, reader.size, of_head)
        reader.copy(reader.page(sequence, number), count, copy, reader.heads)

    for_loop(0, reader.sequences * reader.most, 1, page, parallel=True)


def _note_checks(function: BufferFunction) -> None:
    """Note on a function why accesses by what a table contains are in bounds."""
    function.function.operation.attributes[UNPROVEN] = ir.StringAttr.get(_WHY_IN_BOUNDS)


class PagesFunction(NestsFunction, Protocol):
    """The emitter of the nests in a loop over blocks of rows, with columns in pages."""

    @property
    def placed(self) -> PlacedBuffers:
        """Return the buffers in memory."""
        ...

    def elsewhere(self, buffer: ScheduleBuffer, memory: ir.Value) -> PagesFunction:
        """Return an emitter of the same nodes, with a buffer in other memory."""
        ...


@dataclass(frozen=True)
class _Task:
    """The heads of a sequence that are computed."""

    sequence: Value
    head: Value
    """The first of the heads of keys."""
    kept: Value
    """The first of the rows that are stored."""
    slot: Value
    length: Value
    """The rows of the sequence."""


class PageBlocksEmitter(RowBlocksEmitter):
    """Emits blocks of rows whose columns are in pages: all rows of some heads of a sequence.

    Pages that are not full are copied for the first product, as there are scores of the rows after the last. The second
    one ends at the last row; its accumulators are in memory from page to page.
    """

    def __init__(self, function: PagesFunction, blocks: RowBlocks, values: LoopValues) -> None:
        super().__init__(function, blocks, values)
        self.pages_function = function
        self.keys, self.values_in_pages = (
            PageReader(each.rows, function.placed, blocks.lanes) for each in blocks.pages
        )

    def emit(self) -> None:
        """Emit all sequences at the insertion point."""
        blocks, keys, function = self.blocks, self.blocks.pages[0].rows, self.pages_function
        _note_checks(function.buffers)
        self.rows_of_head, self.rows_of_task = D.static_dim(blocks.extent), D.static_dim(blocks.size)
        self.heads_of_task = self.rows_of_task // self.rows_of_head
        self.parts = self.keys.heads // self.heads_of_task
        # Each thread has a copy of a page.
        self.copy = function.buffers.shared_scratch(blocks.threads * keys.page_elements, keys.value.element)
        self.of_copy = RowBlocksEmitter(function.elsewhere(keys.value, self.copy), blocks, self.values)
        emit_tasks(function.buffers, blocks.threads, self.keys.sequences * self.parts, self._emit_task)

    def _emit_task(self, number: Value, slot: Value) -> None:
        sequence, part = number.divide_unsigned(self.parts), number.remainder_unsigned(self.parts)
        length = self.keys.length(sequence).minimum(self.values_in_pages.length(sequence))
        task = _Task(sequence, part * self.heads_of_task, slot * self.rows_of_task, slot, length)
        self._emit_scores(task)
        for_loop(0, self.rows_of_task, 1, lambda r: self.emit_row(task.kept + r, {}))
        self._emit_sums(task)

    def _emit_scores(self, task: _Task) -> None:
        """Emit the product with the keys of all pages of a sequence."""
        reader, (columns, _), nest = self.keys, self.blocks.pages, self.blocks.first
        self._emit_whole(reader, columns, nest, task)

        def partial(number: Value) -> None:
            page, first = task.slot * reader.page_elements, task.head * reader.size
            target = PageCopy(self.copy, page + first, reader.heads * reader.size, reader.size)
            source = reader.page(task.sequence, number) + first
            reader.copy(source, reader.rows_of(task.length, number), target, self.heads_of_task)
            self._emit_heads(self.of_copy, columns, nest, task, {PAGE: page, columns.loop: number})

        for_loop(_whole_pages(reader, task), reader.most, 1, partial)

    def _emit_sums(self, task: _Task) -> None:
        """Emit the product with the values of all pages; without pages, an empty one, as the sums are results."""
        reader, (_, columns), nest = self.values_in_pages, self.blocks.pages, self.blocks.last
        self._emit_whole(reader, columns, nest, task)

        def partial(number: Value) -> None:
            count = reader.rows_of(task.length, number)
            (page,) = either(
                count > 0, lambda: [reader.page(task.sequence, number)], lambda: [index(0)], [ir.IndexType.get()]
            )
            ends = dict.fromkeys(columns.over, count)
            self._emit_heads(self, columns, nest, task, {PAGE: Value(page), columns.loop: number}, ends=ends)

        for_loop(_whole_pages(reader, task), D.maximum(1, reader.most), 1, partial)

    def _emit_whole(self, reader: PageReader, columns: PagedColumns, nest: RowNest, task: _Task) -> None:
        """Emit the pages of a sequence that are full, which are read where they are."""

        def page(number: Value) -> None:
            following = (number + 1).minimum(index(reader.most) - 1)
            here, ahead = (reader.page(task.sequence, each) for each in (number, following))
            of_next = lambda own: ahead + own * (reader.rows * reader.size)  # noqa: E731
            self._emit_heads(self, columns, nest, task, {PAGE: here, columns.loop: number}, of_next)

        for_loop(0, _whole_pages(reader, task), 1, page)

    def _emit_heads(
        self,
        emitter: RowBlocksEmitter,
        columns: PagedColumns,
        nest: RowNest,
        task: _Task,
        page: Mapping[str, LoopValue],
        following: Callable[[Value], Value] | None = None,
        ends: Mapping[str, ir.Value] | None = None,
    ) -> None:
        """Emit the product of one page with each head; `following` is the share of a head of what to prefetch."""
        loops, rows_of_head = self.blocks.loops, self.rows_of_head

        def head(h: Value) -> None:
            own = task.head + h
            others: dict[str, LoopValue] = {HEAD: own, **page}
            if following is not None:
                others[NEXT_PAGE] = following(own)
            indices = shared_indices(loops, task.sequence * self.keys.heads + own)
            stored = task.kept + h * rows_of_head
            emitter.emit_product(nest, indices, 0, rows_of_head, stored, ends or {}, others)

        for_loop(0, self.heads_of_task, 1, head, rolled=True)


def _whole_pages(reader: PageReader, task: _Task) -> Value:
    """Emit how many pages of a sequence are full."""
    return task.length.divide_unsigned(reader.rows).minimum(index(reader.most))
