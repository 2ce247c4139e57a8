"""Emission of attention of one token over rows in pages: a page of all heads at a time."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import Value, emit_constant, index, select
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import either, for_loop
from mirlo.passes.schedule.primitives.index import LoopValue
from mirlo.passes.schedule.primitives.memory import PartLayout, PartLayouts
from mirlo.passes.schedule.primitives.row_blocks import RowBlocksEmitter, emit_tasks, shared_indices
from mirlo.passes.schedule.primitives.tree import RowNest
from mirlo.passes.schedule.primitives.vector_memory import pieces_of
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.blocked import AttentionLoops, BlockedPlan
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledLoops
from mirlo.targets.llvm.schedule.cost import LINE_BYTES

PAGE, HEAD, NEXT_PAGE = "#page", "#head", "#next_page"
"""Loops that stand for the first element of a page, for a head of keys, and for the first element to prefetch."""


@dataclass(frozen=True)
class PagedRead:
    """A block that reads the rows of sequences out of their pages: [sequences, heads, rows, size]."""

    block: BlockView
    cache: ir.Value
    """[pages, rows, heads, size]."""
    table: ir.Value
    """The pages of each sequence: [sequences, pages]."""
    lengths: ir.Value
    """The rows of each sequence; those after them are zero."""

    @property
    def value(self) -> ir.Value:
        return self.block.outputs[0].value

    @property
    def shape(self) -> tuple[Dim, int, int, int]:
        """Return the pages, and the rows, heads and elements of each: `match_paged_rows` requires numbers."""
        pages, rows, heads, size = dims_of(self.cache.type)
        assert isinstance(rows, int) and isinstance(heads, int) and isinstance(size, int)
        return pages, rows, heads, size

    @property
    def page_elements(self) -> int:
        _, rows, heads, size = self.shape
        return rows * heads * size


class PageReader:
    """Emits reads of pages: entries of the table and lengths are checked before anything is read."""

    def __init__(self, read: PagedRead, memory: TensorBuffers, machine: Machine) -> None:
        self.read = read
        self.pages, self.rows, self.heads, self.size = read.shape
        self.sequences, self.most = dims_of(read.table.type)
        self.cache, self.table, self.lengths = (
            memory.slot(value).buffer for value in (read.cache, read.table, read.lengths)
        )
        kind = self.cache.type.element_type
        self.line_elements = LINE_BYTES // element_bytes(kind)
        self.pieces = pieces_of(self.size, machine.lanes(element_bytes(kind)), is_masked=False)

    def length(self, sequence: Value) -> Value:
        """Emit the rows of a sequence: none if there are no pages."""
        length = create("memref.load", self.lengths.type.element_type, self.lengths, sequence)
        most = select(index(self.pages).equals(0), index(0), index(self.most * self.rows))
        return length.cast(ir.IndexType.get()).maximum(0).minimum(most)

    def page(self, sequence: Value, number: Value) -> Value:
        """Emit the first element of a page of a sequence: always a page that exists, whatever the table contains."""
        entry = create("memref.load", self.table.type.element_type, self.table, sequence * self.most + number)
        page = entry.cast(ir.IndexType.get()).minimum(index(self.pages) - 1).maximum(0)
        return page * self.read.page_elements

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


def copy_rows(memory: TensorBuffers, read: PagedRead, machine: Machine, share: Dim = 1) -> None:
    """Emit the copy of the rows of all sequences; `share` is 0 for sizes with which this is not executed, otherwise 1.

    Pages are read in the order of memory, all heads of a row after each other.
    """
    reader = PageReader(read, memory, machine)
    target = memory.buffers.shared_scratch(D.product(dims_of(read.value.type)) * share, read.value.type.element_type)
    memory.place(read.value, target)
    target = memory.slot(read.value).buffer
    of_head = reader.most * reader.rows * reader.size

    def page(task: Value) -> None:
        sequence, number = task.divide_unsigned(reader.most), task.remainder_unsigned(reader.most)
        start = sequence * (of_head * reader.heads) + number * (reader.rows * reader.size)
        count = reader.rows_of(reader.length(sequence), number)
        copy = PageCopy(target, start, reader.size, of_head)
        reader.copy(reader.page(sequence, number), count, copy, reader.heads)

    for_loop(0, reader.sequences * reader.most, 1, page, parallel=True)


@dataclass(frozen=True)
class PagedPlan:
    """The plan of attention of one token, page by page."""

    plan: BlockedPlan
    nests: AttentionLoops
    """The loops of a page."""
    keys: PagedRead
    values: PagedRead
    parts: int
    """Parts of the heads, which threads divide."""

    @property
    def slots(self) -> int:
        """Return how many threads compute pages at the same time."""
        return self.plan.slots

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all sequences at the insertion point."""
        _PagedEmitter(self, memory).emit()


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


class _PagedProduct:
    """One of the two contractions, over pages of rows of its columns."""

    def __init__(self, emitter: _PagedEmitter, loops: TiledLoops, nest: RowNest, read: PagedRead) -> None:
        self.emitter, self.loops, self.nest, self.read = emitter, loops, nest, read
        (self.block,) = loops.blocks
        self.reader = PageReader(read, emitter.memory, emitter.plan.plan.stages.group.machine)
        emitter.memory.place(read.value, self.reader.cache)

    @property
    def layout(self) -> PartLayout:
        """Return where the rows of a page are in the cache.

        The next page is prefetched in the order of memory, a row's share for each row of a head.
        """
        return PartLayout(
            frozenset([*self.nest.outer, self.block]),
            IndexExpr({PAGE: 1, HEAD: self.reader.size}),
            (0, 0, self.reader.heads * self.reader.size, 1),
            IndexExpr({NEXT_PAGE: 1}),
            self.reader.size,
        )

    def emit_whole(self, task: _Task) -> None:
        """Emit the pages of a sequence that are full, which are read where they are."""

        def page(number: Value) -> None:
            following = (number + 1).minimum(index(self.reader.most) - 1)
            here, ahead = (self.reader.page(task.sequence, each) for each in (number, following))
            self.emit_heads(self.emitter.rows, task, number, here, ahead)

        for_loop(0, self.whole_pages(task), 1, page)

    def whole_pages(self, task: _Task) -> Value:
        """Emit how many pages of a sequence are full."""
        return task.length.divide_unsigned(self.reader.rows).minimum(index(self.reader.most))

    def emit_heads(
        self,
        rows: RowBlocksEmitter,
        task: _Task,
        number: Value,
        page: Value,
        following: Value | None = None,
        depth: Value | None = None,
    ) -> None:
        """Emit the product of one page with each head; `page` and `following` are where it and the next one begin."""
        emitter, reader = self.emitter, self.reader
        shared = emitter.plan.nests.shared
        ends = {} if depth is None else dict.fromkeys(self.loops.over, depth)

        def head(h: Value) -> None:
            own = task.head + h
            others: dict[str, LoopValue] = {HEAD: own, PAGE: page, self.block: number}
            if following is not None:
                others[NEXT_PAGE] = following + own * (reader.rows * reader.size)
            indices, stored = (
                shared_indices(shared.loops, task.sequence * emitter.heads + own),
                task.kept + h * shared.extent,
            )
            rows.emit_product(self.nest, indices, 0, emitter.rows_of_head, stored, ends, others)

        for_loop(0, emitter.heads_of_task, 1, head, rolled=True)


class _ScoresOfPages(_PagedProduct):
    """The product with keys. Pages that are not full are copied, as there are scores of the rows after the last."""

    def copy_partial_pages(self) -> None:
        """Allocate the copies, of which each thread has one."""
        elements = self.emitter.plan.slots * self.read.page_elements
        self.copy = self.emitter.memory.buffers.shared_scratch(elements, self.read.value.type.element_type)
        memory = self.emitter.memory
        self.of_copy = self.emitter.parts.elsewhere(memory, self.read.value, self.copy).row_blocks(memory)

    def emit_pages(self, task: _Task) -> None:
        """Emit all pages of a sequence."""
        reader = self.reader
        self.emit_whole(task)

        def partial(number: Value) -> None:
            page, first = task.slot * self.read.page_elements, task.head * reader.size
            target = PageCopy(self.copy, page + first, reader.heads * reader.size, reader.size)
            source = reader.page(task.sequence, number) + first
            reader.copy(source, reader.rows_of(task.length, number), target, self.emitter.heads_of_task)
            self.emit_heads(self.of_copy, task, number, page)

        for_loop(self.whole_pages(task), reader.most, 1, partial)


class _SumsOfPages(_PagedProduct):
    """The product with values, which ends at the last row. Accumulators are in memory from page to page."""

    def emit_pages(self, task: _Task) -> None:
        """Emit all pages of a sequence; without pages, an empty one, as the sums are results."""
        reader = self.reader
        self.emit_whole(task)

        def partial(number: Value) -> None:
            count = reader.rows_of(task.length, number)
            (page,) = either(
                count > 0, lambda: [reader.page(task.sequence, number)], lambda: [index(0)], [ir.IndexType.get()]
            )
            self.emit_heads(self.emitter.rows, task, number, Value(page), depth=count)

        for_loop(self.whole_pages(task), D.maximum(1, reader.most), 1, partial)


class _PagedEmitter:
    """Emits a plan over the buffers of a function."""

    def __init__(self, plan: PagedPlan, memory: TensorBuffers) -> None:
        self.plan, self.memory = plan, memory
        self.heads = plan.keys.shape[2]
        self.heads_of_task = self.heads // plan.parts

    def emit(self) -> None:
        """Emit all sequences at the insertion point."""
        nests, memory = self.plan.nests, self.memory
        shared = nests.shared
        self.keys = _ScoresOfPages(self, nests.first, shared.first, self.plan.keys)
        self.values = _SumsOfPages(self, nests.last, shared.last, self.plan.values)
        pages: PartLayouts = {each.read.value: each.layout for each in (self.keys, self.values)}
        self.parts = nests.s.part_emitter(pages)
        self.rows = self.parts.row_blocks(memory)
        self.keys.copy_partial_pages()
        tasks = dims_of(self.plan.keys.table.type)[0] * self.plan.parts

        emit_tasks(memory.buffers, self.plan.slots, tasks, self._emit_task)

    @property
    def rows_of_head(self) -> int:
        """Return the rows that read the same head of keys."""
        extent = self.plan.plan.shared.extent
        assert isinstance(extent, int)
        return extent

    @property
    def _rows(self) -> int:
        """Return the rows of a task that are stored."""
        return self.heads_of_task * self.rows_of_head

    def _emit_task(self, number: Value, slot: Value) -> None:
        sequence, part = number.divide_unsigned(self.plan.parts), number.remainder_unsigned(self.plan.parts)
        length = self.keys.reader.length(sequence).minimum(self.values.reader.length(sequence))
        task = _Task(sequence, part * self.heads_of_task, slot * self._rows, slot, length)
        self.keys.emit_pages(task)
        for_loop(0, self._rows, 1, lambda r: self.rows.emit_row(task.kept + r, {}))
        self.values.emit_pages(task)
