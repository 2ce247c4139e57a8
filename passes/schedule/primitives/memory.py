"""Memory of a schedule's buffers: the elements that one iteration of the loops around all uses needs, in an order."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace as changed
from functools import cached_property

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import (
    Extents,
    IndexExpr,
    contiguous_strides,
    flatten,
    loop_index,
)
from mirlo.dialects.tir.buffers import ALIGNMENT, SHARED, UNBOUNDED, element_bytes
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.primitives.analysis import KnownValues, known_values
from mirlo.passes.schedule.primitives.contiguity import memory_dims, memory_indices
from mirlo.passes.schedule.primitives.kernels import limits_of
from mirlo.passes.schedule.primitives.regions import region_of
from mirlo.passes.schedule.primitives.threads import ThreadRegion, is_thread, thread_region
from mirlo.passes.schedule.primitives.tree import (
    ACCELERATOR_SCOPES,
    BOUND,
    LOCAL,
    PARALLEL,
    VECTORIZED,
    BlockLeaf,
    BufferAccess,
    Loop,
    PageCopies,
    Root,
    RowBlocks,
    ScheduleBuffer,
    ScheduleError,
    TileLeaf,
    around,
    axis_name,
    extents_of,
    placed_at,
)
from mirlo.passes.schedule.vectors import flat
from mirlo.runtime.records import dataclass

_SCRATCH = ("memref.alloca", "memref.view")
"""Operations whose results are scratch memory: on the stack, and in the workspace."""
STORED_ROW = "#stored_row"
"""The loop that stands for a row in the memory of values of which only a block of rows is stored."""
PAGE, HEAD, NEXT_PAGE = "#page", "#head", "#next_page"
"""Loops that stand for the first element of a page, for a head of keys, and for the first element to prefetch."""
MAX_STACK_BYTES = 1 << 18
"""Most bytes of a buffer on the stack."""


@dataclass(frozen=True)
class Placed:
    """A buffer in memory, and how its dims map to those in memory."""

    buffer: ScheduleBuffer
    value: ir.Value
    start: list[IndexExpr]
    """Offset to subtract from each index: the buffer holds only what one iteration needs."""
    shape: tuple[Dim, ...]
    """The dims in memory."""
    threads: ThreadRegion | None = None
    """The elements that each thread keeps, where the buffer is memory of threads."""

    def at(self, indices: list[IndexExpr]) -> list[IndexExpr]:
        """Return the indices in memory."""
        if self.threads is not None:
            inside = self.threads.own(indices, self.start)
        else:
            inside = [index - start for index, start in zip(indices, self.start, strict=True)]
        offsets = memory_indices(self.buffer, inside)
        return offsets if self.threads is None else [flatten(offsets, contiguous_strides(self.threads.shape))]

    @property
    def is_flat(self) -> bool:
        """Return whether the memory has one dim, as buffers with dynamic dims have, and values of a block of rows."""
        shape = list(self.value.type.shape)
        return shape == [UNBOUNDED] or len(shape) == 1 < len(self.shape)

    @property
    def flat(self) -> ir.Value:
        """Emit a one-dimensional view: of a parameter, where the function begins.

        Scratch memory is private to a parallel loop that has all its uses, so that its views are where they are used.
        """
        if len(self.value.type.shape) == 1:
            return self.value
        return flat(self.value) if self._outside is None else self._outside

    @cached_property
    def _outside(self) -> ir.Value | None:
        owner = self.value.owner
        if not isinstance(owner, ir.Block):
            return None
        with ir.InsertionPoint.at_block_begin(owner):
            return flat(self.value)


@dataclass(frozen=True)
class PartLayout:
    """Where the elements of a value are of which only a part is in memory, that of the loops inside of others."""

    outer: frozenset[str]
    """The loops outside of the part."""
    origin: IndexExpr
    """Where the part begins, by loops that stand for what is outside of it."""
    steps: tuple[Dim, ...] | None = None
    """The elements from one index to the next of each dim; None where they are those of the whole value."""
    ahead: IndexExpr | None = None
    """What is to be prefetched of the columns of a tile: where it begins; only where its loops have values."""
    share: int = 0
    """The elements of it for each k-step, or each column where lanes are along K."""

    def inside(self, form: IndexExpr) -> IndexExpr:
        """Return a position of the value in the memory of the part."""
        terms = {atom: step for atom, step in form.terms.items() if atom not in self.outer}
        return IndexExpr(terms, form.constant) + self.origin


PartLayouts = Mapping[ir.Value | None, PartLayout]
"""The values of which only a part is in memory."""


@dataclass(frozen=True)
class _Place:
    """Where a block accesses a buffer, for the axes of the block as expressions of the loops."""

    axes: list[IndexExpr]
    indices: list[IndexExpr]
    in_memory: list[IndexExpr]
    flat: IndexExpr
    """The position in memory, with as few divisions as the extents of the loops allow."""


class PlacedBuffers:
    """The buffers of a schedule in memory, and where blocks access them while they are emitted."""

    def __init__(self, placed: dict[int, Placed], in_threads: bool, extents: Extents, has_views: bool = False) -> None:
        self._placed = placed
        self.extents = extents
        """The extents of all loops."""
        self.in_threads = in_threads
        """Whether the function runs in threads of a GPU."""
        self.has_views = has_views
        """Whether code may have views of memory as one dim."""
        self.constants: frozenset[int] = frozenset()
        """The buffers that nothing in threads of a GPU writes."""
        self.copies: frozenset[int] = frozenset()
        """The copies that one block writes."""
        self.private: Mapping[int, Sequence[int]] = {}
        """By parallel loop, the copies whose uses are all inside: each thread that shares the loop has its own."""
        self.parts: PartLayouts = {}
        """The values of which only a part is in memory."""
        self._places: dict[int, _Place] = {}
        self._known: dict[tuple[object, ...], KnownValues] = {}
        self._epilogues: dict[int, list[tuple[BlockLeaf, list[IndexExpr]]]] = {}
        self._axes: list[IndexExpr] = []
        self._names: dict[str, IndexExpr] = {}
        """The axes of the last block, by their names."""

    def epilogue(self, leaf: BlockLeaf) -> list[tuple[BlockLeaf, list[IndexExpr]]]:
        """Return the blocks of the epilogue of a block, and their axes as expressions of loops."""
        if id(leaf) not in self._epilogues:
            self._epilogues[id(leaf)] = [(after, placed_at(after.at, leaf.at)) for after in leaf.epilogue]
        return self._epilogues[id(leaf)]

    def known(self, leaf: BlockLeaf, at: Sequence[IndexExpr]) -> KnownValues | None:
        """Return the known values of the body of a block at these axes; None if it computes nothing with indices."""
        if leaf.view is None or not leaf.body.computes_indices:
            return None
        key = (id(leaf.view), leaf.assumed, tuple(at))
        if key not in self._known:
            self._known[key] = known_values(leaf.view, at, self.extents, leaf.assumed)
        return self._known[key]

    def is_constant(self, buffer: ScheduleBuffer) -> bool:
        """Return whether the elements of a buffer are the same for as long as a thread runs."""
        return id(buffer) in self.constants

    def is_written_once(self, buffer: ScheduleBuffer) -> bool:
        """Return whether a buffer is a copy of which one block writes all elements."""
        return id(buffer) in self.copies

    def __getitem__(self, buffer: ScheduleBuffer) -> Placed:
        return self._placed[id(buffer)]

    @contextmanager
    def apart(self, loop: Loop) -> Iterator[None]:
        """Give the copies in what is emitted apart of a parallel loop, its last iterations, memory of its own.

        The memory of the other iterations then has no use outside of their loop, and stays private to it.
        """
        before = self._placed
        self._placed = {**before, **{each: _with_own_memory(before[each]) for each in self.private.get(id(loop), ())}}
        try:
            yield
        finally:
            self._placed = before

    def elsewhere(self, buffer: ScheduleBuffer, memory: ir.Value) -> PlacedBuffers:
        """Return the buffers with one of them in other memory."""
        result = copy(self)
        result._placed = {**self._placed, id(buffer): changed(self[buffer], value=memory)}
        return result

    def indices(self, access: BufferAccess, axes: list[IndexExpr]) -> list[IndexExpr]:
        """Return the indices of an access of a block with these axes."""
        return self._place(access, axes).indices

    def in_memory(self, access: BufferAccess, axes: list[IndexExpr]) -> list[IndexExpr]:
        """Return the indices of an access in the dims of the memory."""
        return self._place(access, axes).in_memory

    def flat_index(self, access: BufferAccess, axes: list[IndexExpr]) -> IndexExpr:
        """Return the position in memory of the element of an access."""
        return self._place(access, axes).flat

    def _place(self, access: BufferAccess, axes: list[IndexExpr]) -> _Place:
        # Unrolled iterations access the same expressions with other values.
        result = self._places.get(id(access))
        if result is None or result.axes is not axes:
            if self._axes is not axes:
                self._axes, self._names = axes, {axis_name(i): index for i, index in enumerate(axes)}
            indices = [index.replace(self._names) for index in access.at]
            in_memory, flat = list[IndexExpr](), IndexExpr()
            if access.inlined is None:
                placed = self[access.buffer]
                in_memory = placed.at(indices)
                layout = self.parts.get(access.buffer.value)
                steps = None if layout is None else layout.steps
                flat = self.simplified(flatten(in_memory, steps or contiguous_strides(placed.shape)))
                flat = flat if layout is None else layout.inside(flat)
            result = _Place(axes, indices, in_memory, flat)
            self._places[id(access)] = result
        return result

    def simplified(self, index: IndexExpr) -> IndexExpr:
        """Return an index with as few divisions as the extents of the loops allow."""
        if not index.divisions:
            return index
        try:
            result: IndexExpr = index.substitute(loop_index, self.extents)
        except (UndecidedDim, KeyError):
            return index
        return result


def allocate_buffers(root: Root, memory: TensorBuffers) -> PlacedBuffers:
    """Allocate all buffers that blocks access, but those of tensor values that are in memory already."""
    placed: dict[int, Placed] = {}
    uses_of: dict[int, list[tuple[BlockLeaf, BufferAccess]]] = {}
    for leaf in root.leaves():
        for access in memory_accesses(leaf):
            uses_of.setdefault(id(access.buffer.shared or access.buffer), []).append((leaf, access))
    blocks = row_blocks_of(root)
    of_rows, layouts = _allocate_copies(root, memory.buffers), dict[ir.Value | None, PartLayout]()
    if blocks is not None:
        of_rows |= {**_allocate_rows(blocks, memory.buffers), **_caches(blocks, memory)}
        layouts = {**_row_layouts(blocks), **_page_layouts(blocks)}
    # Those in the memory of others come after these.
    for buffer in sorted(root.buffers, key=lambda each: each.shared is not None):
        if buffer.packed is not None:
            raise ScheduleError(
                f"pack: '{buffer.name}' is a parameter, which is stored in another order where all calls pass a "
                f"constant, on target llvm; pack a copy of it (cache_read)"
            )
        if buffer.shared is not None:
            from mirlo.passes.schedule.primitives.sharing import require_sharable  # for `share_memory` only

            require_sharable(root, buffer, buffer.shared)
            placed[id(buffer)] = changed(placed[id(buffer.shared)], buffer=buffer)
            continue
        if id(buffer) in of_rows:
            placed[id(buffer)] = _whole(buffer, of_rows[id(buffer)])
            continue
        uses = uses_of.get(id(buffer), [])
        is_whole = buffer.is_parameter or any(leaf.rule for leaf, _ in uses)
        if buffer.value is not None and is_whole:
            placed[id(buffer)] = _whole(buffer, memory.buffer(buffer.value))
        elif uses:
            placed[id(buffer)] = _allocate(buffer, uses, memory.buffers)
    in_threads = limits_of(root) is not None
    has_views = root.target is not None and root.target.has_vectors
    result = PlacedBuffers(placed, in_threads, extents_of(root.loops()), has_views)
    written = Counter(id(access.buffer) for leaf in root.leaves() for access in leaf.writes)
    copies = (buffer for buffer in root.buffers if buffer.value is None and buffer.shared is None)
    result.copies = frozenset(id(buffer) for buffer in copies if written[id(buffer)] == 1)
    result.private, result.parts = _private_copies(uses_of, placed), layouts
    if in_threads:
        result.constants = _constants(root)
    return result


def row_blocks_of(root: Root) -> RowBlocks | None:
    """Return the blocks of rows of a tree; None if it has none."""
    return next((loop.form for loop in root.loops() if isinstance(loop.form, RowBlocks)), None)


def _elements_of_row(buffer: ScheduleBuffer, total: Dim) -> Dim:
    """Return the elements of a value per row, for this many rows."""
    return D.product(list(buffer.shape)) // total


def _allocate_rows(blocks: RowBlocks, function: BufferFunction) -> dict[int, ir.Value]:
    """Allocate the values of a block of rows, of which each thread has its own, by their buffers."""
    memory: dict[int, ir.Value] = {}
    for buffer in blocks.values:
        elements = blocks.size * _elements_of_row(buffer, blocks.total)
        if buffer.shared is not None:
            continue
        if blocks.threads:
            memory[id(buffer)] = function.shared_scratch(blocks.threads * elements, buffer.element)
        else:
            memory[id(buffer)] = function.scratch([elements], buffer.element)
    return memory


def _row_layouts(blocks: RowBlocks) -> dict[ir.Value | None, PartLayout]:
    """Return where the rows of a block are in the memory of each value."""
    return {
        buffer.value: PartLayout(blocks.outside, IndexExpr({STORED_ROW: _elements_of_row(buffer, blocks.total)}))
        for buffer in blocks.values
    }


def _allocate_copies(root: Root, function: BufferFunction) -> dict[int, ir.Value]:
    """Allocate the copies of rows in pages, by their buffers."""
    memory: dict[int, ir.Value] = {}
    for loop in root.loops():
        if isinstance(loop.form, PageCopies):
            value = loop.form.rows.value
            elements = D.product(list(value.shape)) * _share_of_calls(root)
            memory[id(value)] = function.shared_scratch(elements, value.element)
    return memory


def _caches(blocks: RowBlocks, memory: TensorBuffers) -> dict[int, ir.Value]:
    """Return the caches in whose pages values are, by their buffers."""
    return {id(each.rows.value): memory.slot(each.rows.cache.value).buffer for each in blocks.pages}


def _page_layouts(blocks: RowBlocks) -> dict[ir.Value | None, PartLayout]:
    """Return where the rows of a page are in the caches that both products read.

    The next page is prefetched in the order of memory, a row's share for each row of a head.
    """
    nests = (blocks.first, blocks.last)
    outer = {name for nest, each in zip(nests, blocks.pages, strict=False) for name in (*nest.outer, each.loop)}
    layouts: dict[ir.Value | None, PartLayout] = {}
    for each in blocks.pages:
        _, heads, size = each.rows.page
        origin = IndexExpr({PAGE: 1, HEAD: size})
        layouts[each.rows.value.value] = PartLayout(
            frozenset(outer), origin, (0, 0, heads * size, 1), IndexExpr({NEXT_PAGE: 1}), size
        )
    return layouts


def _share_of_calls(root: Root) -> Dim:
    """Return 0 for sizes for which there are other loops, otherwise 1; sizes below 1 have no elements."""
    ones = [sizes for sizes, value in root.specialized if value == 1]
    return D.product([D.minimum(1, sum((size // 2 for size in sizes), 0)) for sizes in ones])


def place_in_threads(accesses: Sequence[BufferAccess], memory: TensorBuffers, extents: Extents) -> PlacedBuffers:
    """Return the positions of tensor values, whole in memory, that blocks in threads of a GPU access.

    The views of that memory are made at the insertion point; `extents` are those of the loops.
    """
    opaque = {id(access.buffer) for access in accesses if access.is_opaque}
    placed: dict[int, Placed] = {}
    for buffer in {id(access.buffer): access.buffer for access in accesses}.values():
        value = memory.buffer(buffer.value) if id(buffer) in opaque else memory.slot(buffer.value).buffer
        placed[id(buffer)] = _whole(buffer, value)
    return PlacedBuffers(placed, True, extents)


def place_whole(buffers: Mapping[ir.Value, ScheduleBuffer], extents: Extents) -> PlacedBuffers:
    """Return where blocks access buffers, each of which is whole in this memory, in loops of these extents."""
    return PlacedBuffers({id(buffer): _whole(buffer, value) for value, buffer in buffers.items()}, False, extents)


def _constants(root: Root) -> frozenset[int]:
    """Return the parameters that no block writes."""
    blocks = [each for leaf in root.leaves() for each in (leaf, *leaf.epilogue)]
    written = {id(access.buffer) for each in blocks for access in each.writes}
    return frozenset(id(b) for b in root.buffers if b.is_parameter and not b.scope and id(b) not in written)


def _private_copies(
    uses_of: Mapping[int, Sequence[tuple[BlockLeaf, BufferAccess]]], placed: Mapping[int, Placed]
) -> dict[int, list[int]]:
    """Return by parallel loop, the outermost one, the copies in scratch memory whose uses are all inside of it.

    An intermediate value is none of them: blocks of other trees of the kernel may read it.
    """
    result: dict[int, list[int]] = {}
    for each, uses in uses_of.items():
        is_copy = all(access.buffer.value is None for _, access in uses)
        if not is_copy or each not in placed or not _is_scratch(placed[each].value):
            continue
        loops = common_loops([leaf for leaf, _ in uses])
        outermost = next((loop for loop in loops if loop.kind == PARALLEL), None)
        if outermost is not None:
            result.setdefault(id(outermost), []).append(each)
    return result


def _is_scratch(value: ir.Value) -> bool:
    """Return whether memory is scratch memory that threads do not share."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name in _SCRATCH and SHARED not in owner.attributes


def _with_own_memory(placed: Placed) -> Placed:
    """Return a buffer in scratch memory of its own: on the stack, or a view of its place in the workspace."""
    with ir.InsertionPoint(placed.value.owner):
        return changed(placed, value=placed.value.owner.clone().results[0])


def _whole(buffer: ScheduleBuffer, value: ir.Value) -> Placed:
    return Placed(buffer, value, [IndexExpr()] * len(buffer.shape), buffer.shape)


def memory_accesses(leaf: BlockLeaf) -> list[BufferAccess]:
    """Return all accesses of a block, those of inlined blocks included."""
    result = [access for access in leaf.writes if not access.is_held]
    for access in leaf.reads:
        if access.register is None:
            result += memory_accesses(access.inlined) if access.inlined is not None else [access]
    held = [access.buffer for access in (*leaf.writes, *(each for after in leaf.epilogue for each in after.writes))]
    for after in leaf.epilogue:
        result += [access for access in memory_accesses(after) if access.buffer not in held or access in after.writes]
    return result


def _allocate(buffer: ScheduleBuffer, uses: list[tuple[BlockLeaf, BufferAccess]], function: BufferFunction) -> Placed:
    leaves = [leaf for leaf, _ in uses]
    common = common_loops(leaves)
    blocks = _blocks_of_k(buffer, leaves)
    # Accumulators are in memory from one block of K to the next.
    common = list(itertools.takewhile(lambda loop: loop not in blocks, common))
    in_kernel = any(loop.kind == BOUND for leaf in leaves for loop in around(leaf))
    if in_kernel and buffer.scope != LOCAL:
        # Threads share it: in main memory those of all blocks.
        common = list(itertools.takewhile(lambda loop: not is_thread(loop), common)) if buffer.scope else []
    inlined = any(access not in (*leaf.reads, *leaf.writes) for leaf, access in uses)
    places = [(leaf, None if access.is_opaque or inlined else leaf.place(access)) for leaf, access in uses]
    threads = thread_region(places, common, buffer) if in_kernel and buffer.scope == LOCAL else None
    region = region_of(places, common, buffer.shape) if threads is None else threads.region
    start, shape = [part[0] for part in region], [part[1] for part in region]
    memory = padded_dims(buffer, shape)
    if blocks:  # a thread continues what another one has summed up in the block before
        return Placed(buffer, function.shared_scratch(D.product(memory), buffer.element), start, tuple(memory))
    if not buffer.scope or buffer.scope in ACCELERATOR_SCOPES:
        after = _elements_after(buffer, uses, memory)
        held = [D.product(memory) + after] if after else memory
        return Placed(buffer, function.scratch(held, buffer.element), start, tuple(memory))
    fixed = [size for size in memory if isinstance(size, int)]
    if len(fixed) < len(memory):
        raise ScheduleError(
            f"'{buffer.name}' is {' x '.join(map(str, memory))} elements, of a size that only the run time knows: "
            f"compute it in a loop that needs a fixed part of it, or give it no scope, instead of '{buffer.scope}'"
        )
    size = math.prod(fixed) * element_bytes(buffer.element)
    if buffer.scope == LOCAL and size > MAX_STACK_BYTES:
        raise ScheduleError(
            f"'{buffer.name}' is {size} bytes, too many for the stack: compute it further in, or give it no scope"
        )
    space = None if buffer.scope == LOCAL else ir.StringAttr.get(buffer.scope)
    if threads is not None:
        threads = changed(threads, shape=tuple(fixed))
        fixed = [math.prod(fixed)]
    return Placed(buffer, _alloca(fixed, buffer, function, space), start, tuple(fixed), threads)


def _elements_after(
    buffer: ScheduleBuffer, uses: Sequence[tuple[BlockLeaf, BufferAccess]], memory: Sequence[Dim]
) -> int:
    """Return the most elements after a copy in groups of K that a tile reads in its last vector of columns."""
    after = 0
    for leaf, access in uses:
        tile = next((loop.form for loop in around(leaf) if isinstance(loop.form, TileLeaf)), None)
        if tile is None or access in leaf.writes or not buffer.tiles:
            continue
        group, lanes = tile.instruction.group, tile.lane_count
        is_whole = len(memory) > 1 and D.is_multiple(memory[-2], lanes)
        if tile.instruction.unit is None and group > 1 and not is_whole:
            after = max(after, (lanes - 1) * group)
    return after


def _blocks_of_k(buffer: ScheduleBuffer, leaves: Sequence[BlockLeaf]) -> list[Loop]:
    """Return the loops over blocks of K around a register tile whose accumulators are in a buffer."""
    tiles = [leaf for leaf in leaves if isinstance(leaf.form, TileLeaf) and leaf.writes[0].buffer is buffer]
    return [
        loop
        for leaf in tiles
        for loop in itertools.takewhile(lambda loop: not isinstance(loop.form, TileLeaf), around(leaf))
        if loop.name in leaf.reduce_loops() and loop.extent != 1
    ]


def padded_dims(buffer: ScheduleBuffer, shape: Sequence[Dim]) -> list[Dim]:
    """Return the dims in memory of a region of a buffer, slowest first, with padding."""
    memory = memory_dims(buffer, shape)
    if buffer.padding is not None:
        factor, offset = buffer.padding
        memory[-1] = D.ceildiv(memory[-1] - offset, factor) * factor + offset
    return memory


def _alloca(shape: list[int], buffer: ScheduleBuffer, function: BufferFunction, space: ir.Attribute | None) -> ir.Value:
    kind = ir.MemRefType.get(shape, buffer.element, memory_space=space)
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    with ir.InsertionPoint.at_block_begin(function.entry), function.location:
        return memref.AllocaOp(kind, [], [], alignment=alignment).result


def common_loops(leaves: list[BlockLeaf]) -> list[Loop]:
    """Return the loops around all of these blocks, without lanes: those have elements of their own."""
    chains = [around(leaf) for leaf in leaves]
    common = []
    for level in zip(*chains, strict=False):
        if level[0].kind == VECTORIZED or any(loop is not level[0] for loop in level):
            break
        common.append(level[0])
    return common
