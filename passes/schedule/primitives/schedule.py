"""Class `Schedule`: schedule primitives on the loops of a prim function."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, TypeVar

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import INPLACE
from mirlo.dialects.tir.view import PrimView, is_tensor_form
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.schedule.buffers import ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.primitives import blocks, loops
from mirlo.passes.schedule.primitives.arguments import PRIMITIVES, call_given, plain, primitive
from mirlo.passes.schedule.primitives.kernels import limits_of, require_axis, require_scope
from mirlo.passes.schedule.primitives.lanes import stream
from mirlo.passes.schedule.primitives.partition import partition
from mirlo.passes.schedule.primitives.queries import LoopQueries
from mirlo.passes.schedule.primitives.register_tile import prefetch, register_tile
from mirlo.passes.schedule.primitives.registers import accumulate
from mirlo.passes.schedule.primitives.rule_parts import ANY_RULE, ScheduleParts, claim, require_room_for_rule, unclaimed
from mirlo.passes.schedule.primitives.tensorize import PrimScript, find_tensor_intrin
from mirlo.passes.schedule.primitives.tiles import cache_tile, clamp
from mirlo.passes.schedule.primitives.trace import APPLIED, SPECIALIZE, PrimitiveCallRecord, Trace, variant_name
from mirlo.passes.schedule.primitives.transposed import transpose
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    BlockLeaf,
    Loop,
    PagedColumns,
    ScheduleError,
    leaves_of,
)
from mirlo.passes.schedule.stored import PackedOrder
from mirlo.runtime.errors import nearest

if TYPE_CHECKING:
    from mirlo.passes.schedule.primitives.command_tree import CommandTree
    from mirlo.passes.schedule.primitives.commands import TileCommands
    from mirlo.passes.schedule.primitives.emit import PartEmitter
    from mirlo.passes.schedule.primitives.row_blocks import SharedRows
    from mirlo.passes.schedule.primitives.variants import SizeVariant

Made = TypeVar("Made")
PEEL = "peel"
SHIFT = "shift"
TAILS = ("mask", PEEL, SHIFT)
"""How a loop that is split computes its last iterations."""


def _require_blocks(function: PrimScript, op: ir.OpView, types: Sequence[TensorType]) -> None:
    if not is_tensor_form(op):
        reason = function.why_loops(*types) or "it is loops over buffers"
        raise ScheduleError(f"'{function.name}' is not made of blocks, which primitives arrange: {reason}")


class Schedule(LoopQueries):
    """The loops of a prim function. Each primitive changes them and preserves the result, or raises `ScheduleError`.

    Blocks and loops are identified by their names: `blocks()`, `loops(block)` and `print(schedule)` list them.
    Primitives return the names of the blocks and loops that they create. The recorded primitives can be printed
    (`trace`), saved, and replayed on another function with blocks of the same names. Primitives that few schedules use
    are imported by their methods, for the time of a start.
    """

    def __init__(self, function: ir.OpView | ir.Operation | PrimView, module: ir.Module | None = None) -> None:
        super().__init__(function)
        self._module = module
        """Keeps the function alive if only this schedule refers to it."""
        self.trace = Trace()
        self.applied: list[PrimitiveCallRecord] = []
        """The `apply_rule` that schedules the function, or one for each of the parts that rules schedule."""
        self.inlined: list[str] = []
        """The blocks of the function that `compute_inline` took."""
        self.variant = ""
        """The name of the variant that this schedule is; empty for that of the whole function."""
        self.variants: dict[str, tuple[tuple[str, ...], int, Schedule]] = {}
        """The schedules for one value of some sizes, with the sizes and values, by their names."""
        self._is_given = False
        """Whether a function of the user is arranging the loops."""
        self._shared_rows: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], SharedRows] | None = None
        """The rows that nests of these blocks have in common, after this number of primitives."""

    @staticmethod
    def of(function: PrimScript, *types: TensorType, **attributes: float) -> Schedule:
        """Return the schedule of a `@mirlo.prim_func` for inputs of these types, for inspection and replay."""
        from mirlo.dialects.context import make_context

        with make_context(), ir.Location.unknown():
            module = ir.Module.create()
            function_op, _ = function.specialize(list(types), None, function.name, attributes)
            _require_blocks(function, function_op, types)
            module.body.append(function_op.operation)
            result = Schedule(function_op, module)
            result.blocks()
        return result

    # Loops

    @primitive
    def split(
        self,
        loop: str,
        factors: Sequence[int | None],
        tail: str = "mask",
        align: str = "",
        rests: Sequence[int] = (),
    ) -> list[str]:
        """Split a loop into several, outermost first; a factor of None is inferred.

        Iterations past the end do nothing: with the tail `mask` each iteration tests that, in vectors by a mask; with
        `peel` the complete iterations of the outermost loop are a loop without tests, and the rest follows it. With
        `shift` the last tile begins early enough to be whole, and computes elements of the one before it again;
        `rests` are the sizes of register tiles for rests, largest first. With
        `align`, a parameter, tiles begin where it has whole lines in memory, and the first and last overlap others:
        the loops are those over tiles, the start of a tile, and those of its elements.
        """
        if tail not in TAILS:
            raise ScheduleError(
                f"split: expected a tail of {', '.join(map(repr, TAILS[:-1]))} or {TAILS[-1]!r}, found {tail!r}"
            )
        if rests and tail != SHIFT:
            raise ScheduleError(f"split: 'rests' are sizes of tiles of the tail '{SHIFT}', found tail={tail!r}")
        buffer = self._root.find_buffer(align) if align else None
        if tail == SHIFT:
            new_loops = loops.split_shifted(self._loop(loop), list(factors), list(rests))
        else:
            new_loops = loops.split(self._loop(loop), list(factors), tail == PEEL, buffer)
        named: dict[str, object] = {"tail": tail} if tail in (PEEL, SHIFT) else {}
        named |= {"align": align} if align else {}
        named |= {"rests": tuple(rests)} if rests else {}
        return self._record("split", (loop, tuple(factors)), [each.name for each in new_loops], named)

    @primitive
    def fuse(self, *names: str) -> str:
        """Fuse perfectly nested loops into one."""
        if len(names) < 2:
            raise ScheduleError("fuse: expected two loops or more")
        return self._record("fuse", names, loops.fuse([self._loop(name) for name in names]).name)

    @primitive
    def add_unit_loop(self, block: str) -> str:
        """Put a block, and what is in its loops, into a loop of one iteration, such as one to bind; return its name."""
        return self._record("add_unit_loop", (block,), loops.add_unit_loop(self._leaf(block)).name)

    @primitive
    def merge(self, *names: str) -> None:
        """Merge loops that follow one another, with as many iterations each, into the first of them.

        An iteration of it computes those of all of them, in order. What one of them reads of another one is made in
        the same iteration. Blocks that read an element where it is made have it in a register.
        """
        if len(names) < 2:
            raise ScheduleError("merge: expected two loops or more")
        from mirlo.passes.schedule.primitives.merge import merge

        merge([self._loop(name) for name in names])
        self._record("merge", names, None)

    @primitive
    def block_rows(
        self,
        blocks: Sequence[str],
        rows: str | int,
        ends: Sequence[str] = (),
        threads: int = 0,
        pages: Sequence[str] = (),
        lanes: int = 1,
    ) -> str:
        """Compute the nests of blocks, which follow one another, for a block of rows at a time; return its loop.

        The first and the last of `blocks` are register tiles, of products; the second one reads rows that the first
        one writes, after what the nests between them compute of each row. What they have in common is stored for a
        block only. `ends` are loops over the columns of a row, and over those that the second product adds up: they end
        with the last column that a mask leaves to the rows of a block. The number of rows may be an expression of
        sizes. Where sizes are dynamic, this many `threads` claim blocks one after the other; each has its own memory.

        With `pages`, the columns of both products are rows of caches in pages, which are read where they are: these are
        the loops of the products of which each iteration has the rows of a page. A block has then all rows of one head
        of the caches, or of several. A page that is not full is copied in vectors of up to this many `lanes`.
        """
        from mirlo.passes.schedule.primitives.row_blocks import block_rows

        shared, ended = self.shared_rows(blocks, pages), [self._loop(name) for name in ends]
        size, columns = rows if isinstance(rows, int) else D.parse(rows), self._paged_columns(blocks, pages)
        if columns:
            from mirlo.passes.schedule.primitives.page_blocks import require_heads

            require_heads(shared, columns, size, threads)
        loop = block_rows(self._root, blocks[0], shared, size, ended, threads, columns, lanes)
        named: dict[str, object] = {"ends": tuple(ends)} if ends else {}
        named |= {"threads": threads} if threads else {}
        named |= {"pages": tuple(pages)} if pages else {}
        named |= {"lanes": lanes} if lanes != 1 else {}
        return self._record("block_rows", (tuple(blocks), rows), loop.name, named)

    def _paged_columns(self, blocks: Sequence[str], pages: Sequence[str]) -> tuple[PagedColumns, ...]:
        """Return the columns of the first and the last block that are read in pages, by loops over them."""
        if not pages:
            return ()
        from mirlo.passes.schedule.primitives.page_blocks import paged_columns

        leaves = [self._leaf(name) for name in blocks]
        return paged_columns(self._root, leaves, [self._loop(name) for name in pages])

    @primitive
    def copy_pages(self, block: str, lanes: int = 1) -> str:
        """Copy rows of caches out of their pages, as a block does that reads them by a table; return its loop.

        The copy comes before all else. Threads divide the pages, each of which is read in the order of memory, in
        vectors of up to this many `lanes`; rows after the last one of a sequence are zero, and their pages not read.
        """
        from mirlo.passes.schedule.primitives.page_blocks import copy_pages

        loop = copy_pages(self._root, self._leaf(block), lanes)
        return self._record("copy_pages", (block,), loop.name, {"lanes": lanes} if lanes != 1 else {})

    def shared_rows(self, blocks: Sequence[str], pages: Sequence[str] = ()) -> SharedRows:
        """Return the rows that the nests of blocks have in common, for `block_rows`."""
        from mirlo.passes.schedule.primitives.row_blocks import shared_rows

        state = (len(self.trace.calls), tuple(blocks), tuple(pages))
        if self._shared_rows is None or self._shared_rows[0] != state:
            leaves, columns = [self._leaf(name) for name in blocks], self._paged_columns(blocks, pages)
            self._shared_rows = state, shared_rows(self._root, leaves, columns)
        return self._shared_rows[1]

    @primitive
    def partition(self, loop: str, points: Sequence[int] | None = None, multiples: Sequence[int] = ()) -> list[str]:
        """Replace a loop by several that follow one another, with blocks of their own; return them.

        They begin at 0 and at each of the `points`. With `multiples`, such as `(64, 16, 1)`, the first one has as many
        iterations as are a multiple of 64, the next one those left that are a multiple of 16, and so on. An empty list
        of points, as `change_points` may return, leaves the loop as it is.
        """
        if points is not None and not points and not multiples:
            return [self._loop(loop).name]
        parts = partition(self._root, self._loop(loop), points or (), multiples)
        named = {"multiples": tuple(multiples)} if multiples else {"points": tuple(points or ())}
        return self._record("partition", (loop,), [part.name for part in parts], named)

    @primitive
    def reorder(self, *names: str) -> None:
        """Reorder the loops of a nest."""
        loops.reorder([self._loop(name) for name in names])
        self._record("reorder", names, None)

    @primitive
    def rotate(self, loop: str, by: str) -> None:
        """Begin the iterations of a loop at the index of another loop; the first ones follow after the last."""
        loops.rotate(self._loop(loop), self._loop(by))
        self._record("rotate", (loop, by), None)

    @primitive
    def tile(self, names: Sequence[str], sizes: Sequence[int]) -> list[str]:
        """Split each loop by its size and move the inner loops inside: outer loops, then inner ones."""
        if len(names) != len(sizes):
            raise ScheduleError(f"tile: {len(names)} loops and {len(sizes)} sizes")
        pairs = [self.split(name, (None, size)) for name, size in zip(names, sizes, strict=True)]
        order = [outer for outer, _ in pairs] + [inner for _, inner in pairs]
        self.reorder(*order)
        return order

    @primitive
    def parallel(self, loop: str) -> None:
        """Run the iterations of a loop on several threads."""
        self._kind("parallel", loop, PARALLEL)

    @primitive
    def vectorize(self, loop: str) -> None:
        """Map the iterations of a loop to the lanes of vectors."""
        self._kind("vectorize", loop, VECTORIZED)

    @primitive
    def unroll(self, loop: str) -> None:
        """Unroll a loop completely."""
        self._kind("unroll", loop, UNROLLED)

    @primitive
    def transpose(self, loop: str) -> None:
        """Access memory along the loop around a vectorized one, and transpose elements of both in registers.

        Operands that are contiguous along this loop are loaded in vectors along it; results that are contiguous over
        both are stored in whole vectors. The loop is unrolled. A loop inside of the vectorized one is over groups of
        32 or 64 bits, which a copy moves as one element each.
        """
        if limits_of(self._root) is not None:
            raise ScheduleError(
                f"transpose: threads of GPUs have no vectors to transpose; let '{loop}' read a copy in shared memory"
            )
        transpose(self._loop(loop))
        self._record("transpose", (loop,), None)

    @primitive
    def stream(self, block: str) -> None:
        """Store whole, aligned vectors of a block past the caches, for results that are not read soon."""
        stream(self._leaf(block))
        self._record("stream", (block,), None)

    @primitive
    def unswitch(self, loop: str) -> None:
        """Emit a loop twice: without tests of edges for when all reads inside are in bounds, and with them.

        So it is for iterations past the end of a loop around it that was split: whole vectors have no masks.
        """
        loops.unswitch(self._loop(loop))
        self._record("unswitch", (loop,), None)

    @primitive
    def bind(self, loop: str, thread: str) -> None:
        """Bind a loop to an axis of the hardware, such as `threadIdx.x`, on targets that have it.

        Threads of a block whose loop is one of a reduction combine their partial results: each of them gets the
        result, and the first one stores it, or each one if it is `local` to threads.
        """
        node = self._loop(loop)
        require_axis(self._root, node, thread)
        loops.set_kind(node, BOUND, thread)
        self._record("bind", (loop, thread), None)

    # Blocks

    @primitive
    def compute_at(self, block: str, loop: str) -> None:
        """Compute the part of a block that one iteration of a loop reads at the start of the iteration."""
        blocks.compute_at(self._root, self._leaf(block), self._loop(loop))
        self._record("compute_at", (block, loop), None)

    @primitive
    def reverse_compute_at(self, block: str, loop: str) -> None:
        """Compute the part of a block that is ready at the end of an iteration of a loop."""
        blocks.reverse_compute_at(self._root, self._leaf(block), self._loop(loop))
        self._record("reverse_compute_at", (block, loop), None)

    @primitive
    def compute_inline(self, block: str) -> None:
        """Inline a block into its readers. Where rules schedule some of the blocks, this comes first."""
        if self.applied:
            raise ScheduleError(f"compute_inline: inline '{block}' before the first apply_rule, which sees the result")
        leaf = self._leaf(block)
        blocks.inline(self._root, leaf)
        self._record("compute_inline", (block,), None)
        if leaf.view is not None:
            self.inlined.append(block)

    @primitive
    def reverse_compute_inline(self, block: str) -> None:
        """Compute a block on the results of the block that it reads, before they are stored.

        If that is a reduction, its results are in registers (`accumulate`). What nothing else reads is not stored.
        """
        blocks.reverse_inline(self._root, self._leaf(block))
        self._record("reverse_compute_inline", (block,), None)

    @primitive
    def compute_with(self, block: str, other: str) -> None:
        """Compute a block in the iterations of another one with the same axes, which comes before it.

        It reads elements of the other one, if any, at its own axes only: they are in registers.
        """
        blocks.compute_with(self._root, self._leaf(block), self._leaf(other))
        self._record("compute_with", (block, other), None)

    @primitive
    def cache_read(
        self, block: str | Sequence[str], buffer: str | int, scope: str = "", loops: Sequence[str] = ()
    ) -> str:
        """Copy a buffer for one block or several; for an index, what that operand of the first block reads of it.

        Return the name of the copying block, which `compute_at` moves inwards. In scope `local` the copy is on stack.
        With `loops`, the innermost ones around a block, the copy is what they read, with a dim for each of them, and is
        made before them; the block may be one that is computed with another one.
        """
        if loops:
            return self._cache_tile(block, buffer, scope, loops)
        require_scope(self._root, "cache_read", str(buffer), scope)
        names = [block] if isinstance(block, str) else list(block)
        if not names:
            raise ScheduleError("cache_read: expected a block")
        leaves = list(map(self._leaf, names))
        reads = leaves[0].reads
        operand = reads[buffer] if isinstance(buffer, int) and 0 <= buffer < len(reads) else None
        source = self._root.find_buffer(str(buffer)) if operand is None else operand.buffer
        copy = blocks.cache_read(self._root, leaves, source, scope, operand)
        return self._record("cache_read", (names[0] if len(names) == 1 else tuple(names), buffer, scope), copy.name)

    def _cache_tile(self, block: str | Sequence[str], buffer: str | int, scope: str, loops: Sequence[str]) -> str:
        if not isinstance(block, str) or not isinstance(buffer, str):
            raise ScheduleError("cache_read: a copy with a dim for each loop is that of one block and a named buffer")
        require_scope(self._root, "cache_read", buffer, scope)
        after = {each.name: (leaf, each) for leaf in self._root.leaves() for each in leaf.epilogue}
        leaf, reader = after[block] if block in after else (self._leaf(block), self._leaf(block))
        _require_no_rule(leaf, f"'{block}'")
        source = self._root.find_buffer(buffer)
        copy = cache_tile(self._root, leaf, reader, source, scope, [self._loop(name) for name in loops])
        return self._record("cache_read", (block, buffer, scope), copy.name, {"loops": tuple(loops)})

    @primitive
    def clamp(self, block: str) -> None:
        """Read the last elements in iterations past the end of loops, where else each iteration tests for that.

        So all loads of a thread can be in flight together. Nothing is stored in these iterations, but in a tile, and
        nothing is added to the results of a reduction, which are in registers (`accumulate`).
        """
        clamp(self._leaf(block))
        self._record("clamp", (block,), None)

    @primitive
    def cache_write(self, block: str, scope: str = "") -> str:
        """Write the result of a block to a copy first.

        Return the name of the block that copies the result back, which `reverse_compute_at` moves inwards.
        """
        require_scope(self._root, "cache_write", block, scope)
        copy = blocks.cache_write(self._root, self._leaf(block), scope)
        return self._record("cache_write", (block, scope), copy.name)

    @primitive
    def set_scope(self, buffer: str, scope: str) -> None:
        """Set the memory of a buffer that is not a parameter: `local` to a thread, `shared` by a block of threads."""
        from mirlo.passes.schedule.primitives import layout

        layout.set_scope(self._root, buffer, scope)
        self._record("set_scope", (buffer, scope), None)

    @primitive
    def share_memory(self, buffer: str, result: str) -> None:
        """Keep a buffer in the memory of a result of the function that is written when the elements are read.

        Both have the same shape and type. It is checked when the loops are emitted.
        """
        from mirlo.passes.schedule.primitives.sharing import share_memory

        share_memory(self._root, buffer, result)
        self._record("share_memory", (buffer, result), None)

    def can_share_memory(self, buffer: str, result: str) -> bool:
        """Return whether `share_memory` is possible with the loops as they are."""
        from mirlo.passes.schedule.primitives.sharing import is_sharable

        return is_sharable(self._root, buffer, result)

    @primitive
    def pack(self, buffer: str, order: Sequence[int] = (), tiles: Sequence[Sequence[int]] = ()) -> None:
        """Store a buffer in another order of its dims, slowest first, with tiled dims.

        With `tiles=((1, 16),)`, 16 columns are contiguous. A parameter must be a constant of all calls, which target
        llvm stores so when a model is compiled; its dims are then those of that memory.
        """
        from mirlo.passes.schedule.primitives import layout

        layout.pack(self._root, buffer, order, tiles)
        self._record("pack", (buffer, tuple(order), tuple(map(tuple, tiles))), None)

    @primitive
    def storage_align(self, buffer: str, dim: int, factor: int, offset: int = 0) -> None:
        """Pad the rows of a buffer that is not a parameter: the dim's stride is a multiple of a factor, plus an offset.

        With 32 and 1, the elements of a column of f32 in `shared` memory are in different banks.
        """
        from mirlo.passes.schedule.primitives import layout

        layout.storage_align(self._root, buffer, dim, factor, offset)
        self._record("storage_align", (buffer, dim, factor, offset), None)

    @primitive
    def double_buffer(self, buffer: str, copies: int = 2) -> None:
        """Keep several tiles of a buffer that is not a parameter, so that one is loaded while another one is used.

        For `commands`, which give each tile the next copy. Loops that are emitted run one after the other, on one.
        """
        from mirlo.passes.schedule.primitives import layout

        layout.double_buffer(self._root, buffer, copies)
        self._record("double_buffer", (buffer, copies), None)

    @primitive
    def decompose_reduction(self, block: str, loop: str) -> str:
        """Store the initial values of a reduction before a loop; return the name of the block that does so."""
        start = blocks.decompose(self._root, self._leaf(block), self._loop(loop))
        return self._record("decompose_reduction", (block, loop), start.name)

    @primitive
    def accumulate(self, block: str, loop: str, in_order: bool = False) -> None:
        """Keep the results of a reduction in registers while a loop, the outermost one of the reduction, runs.

        Each iteration of the unrolled loops inside has an accumulator, a vector if the innermost loop is vectorized.
        Loops of the reduction may be unrolled and vectorized: their partial results are combined after the loop, and
        floats are added in another order. With `in_order` unrolled ones have no partial results, nor have the lanes of
        a thread of a GPU.
        """
        accumulate(self._root, self._leaf(block), self._loop(loop), in_order)
        self._record("accumulate", (block, loop), None, {"in_order": True} if in_order else {})

    @primitive
    def pad(self, block: str, buffer: str, dims: Sequence[int]) -> str:
        """Copy a buffer for a block with a border along some dims; return the block that copies.

        Elements of the border are those beyond the edges. `partition` at the `change_points` of its loops, and
        `vectorize`, arrange the copy.
        """
        copy = blocks.pad(self._root, self._leaf(block), self._root.find_buffer(buffer), list(dims))
        return self._record("pad", (block, buffer, tuple(dims)), copy.name)

    @primitive
    def pad_einsum(self, block: str, multiples: Sequence[int]) -> list[str]:
        """Extend each axis of a block to a multiple of a number, so that tiles are whole, and `tensorize` takes them.

        The block reads copies of its operands with zeros beyond their edges, and writes a copy whose part within the
        edges is copied to the result. Return the blocks that copy, those of operands first: `compute_at` and
        `reverse_compute_at` move them to the tiles, so that copies are small, and of fixed size where dims are dynamic.
        An axis of a reduction may be padded where products are added up. Pad before loops are split.
        """
        copies = blocks.pad_einsum(self._root, self._leaf(block), list(multiples))
        return self._record("pad_einsum", (block, tuple(multiples)), [copy.name for copy in copies])

    @primitive
    def register_tile(
        self,
        block: str,
        loops: Sequence[str],
        over: Sequence[str],
        instruction: str = "fma",
        masked: bool = True,
        steps: int = 1,
        epilogue: Sequence[int] = (),
        partial_sums: bool = False,
    ) -> None:
        """Compute a sum of products in registers: `loops` are the innermost ones, of a tile, `over` those around them.

        `loops` are the loops over rows, vectors and lanes of the tile, of known extents, then those of the reduction
        inside of one instruction: none for `fma`, the elements of a group for dot products, and the groups and their
        elements for matrix units. For `fma` they may be loops over rows and columns, and lanes along the reduction,
        which are added up at the end. `over` are loops of the reduction, in whose iterations the accumulators stay in
        registers; the innermost ones may be unrolled. One further out is over blocks of K: accumulators are in memory
        between them. What `reverse_compute_inline` took is computed on the accumulators.

        The rest of the columns is a masked vector, or without `masked` ever narrower ones. `steps` are the k-steps of
        an iteration of the innermost loop of `over`. With two numbers of accumulators in `epilogue`, whole and smaller
        tiles of more accumulators compute it in a loop over their rows: less code.

        With `partial_sums`, the products of each iteration of the outer one of two loops in `over` are added up from
        zero, and then these sums in their order. Lanes along the reduction are added up in their order: a loop over
        the lanes of a vector, around one over vectors, has the same sums.
        """
        nodes, reduced = ([self._loop(name) for name in names] for names in (loops, over))
        limits = (epilogue[0], epilogue[1]) if len(epilogue) == 2 else None
        if epilogue and limits is None or steps < 1:
            raise ScheduleError("register_tile: expected two numbers in 'epilogue', and 'steps' from 1 up")
        register_tile(self._root, self._leaf(block), nodes, reduced, instruction, masked, steps, limits, partial_sums)
        named: dict[str, object] = {} if masked else {"masked": False}
        named |= {"steps": steps} if steps > 1 else {}
        named |= {"epilogue": tuple(epilogue)} if epilogue else {}
        named |= {"partial_sums": True} if partial_sums else {}
        self._record("register_tile", (block, tuple(loops), tuple(over), instruction), None, named)

    @primitive
    def convert(self, copy: str) -> None:
        """Convert the elements that register tiles read once, in a copy, in place of each product.

        Such as bf16 to f32, or int8 to i32. The copy is a block of `cache_read` or `pad`.
        """
        from mirlo.passes.schedule.primitives.convert import convert

        convert(self._root, self._leaf(copy))
        self._record("convert", (copy,), None)

    @primitive
    def prefetch(self, block: str, buffer: str, loop: str = "", distance: int = 0) -> None:
        """Prefetch what a register tile reads of its columns: a share of them in each k-step.

        With a loop, they are those of its next iteration; else those `distance` elements ahead. Of a buffer that the
        epilogue reads, its elements are prefetched before the reduction, without a loop and a distance.
        """
        leaf = self._leaf(block)
        prefetch(self._root, leaf, self._root.find_buffer(buffer), self._loop(loop) if loop else None, distance)
        named: dict[str, object] = {"loop": loop} if loop else {"distance": distance} if distance else {}
        self._record("prefetch", (block, buffer), None, named)

    @primitive
    def rfactor(self, block: str, loop: str) -> str:
        """Compute a partial result in each iteration of a loop of a reduction, and combine these in a block after it.

        Return the name of the block that makes the partial results, in which the loop is no longer one of the
        reduction: it can be vectorized or run on threads. Floats are added in another order.
        """
        from mirlo.passes.schedule.primitives.rfactor import rfactor

        partial_sums = rfactor(self._root, self._leaf(block), self._loop(loop))
        return self._record("rfactor", (block, loop), partial_sums.name)

    @primitive
    def tensorize(self, loop: str, intrinsic: str) -> None:
        """Replace a loop by a tensor intrinsic, or by an instruction of a command stream, that it must match."""
        intrin = find_tensor_intrin(intrinsic)
        node = self._loop(loop)
        loops.require_serial(node)
        with self._root.view.op.context:
            intrin.match(node)  # again when it is emitted: later primitives may change what is around it
        node.form = intrin
        self._record("tensorize", (loop, intrinsic), None)

    # The schedule as a whole

    @primitive
    def specialize(self, size: str | Sequence[str], value: int) -> Schedule:
        """Return a schedule of its own for calls in which a size of the function, or each of several, has this value.

        Its blocks and loops have the names that they have without primitives. The loops of this schedule are for all
        other values.
        """
        from mirlo.passes.schedule.primitives.variants import view_with_sizes

        if self.variant or self.applied or limits_of(self._root) is not None:
            raise ScheduleError(
                "specialize: expected the schedule of a function of a CPU, without apply_rule and not a variant itself"
            )
        sizes, name = (size,) if isinstance(size, str) else tuple(size), variant_name(size, value)
        if name in self.variants:
            raise ScheduleError(f"specialize: there is a schedule for {' and '.join(sizes)} = {value} already")
        result = Schedule(view_with_sizes(self._view, sizes, value))
        result.trace, result.variant = self.trace, name
        self._record(SPECIALIZE, (size, value), result)
        self.variants[name] = sizes, value, result
        return result

    @primitive
    def apply_rule(self, rule: str, blocks: Sequence[str] = (), **choices: int | Sequence[int]) -> None:
        """Schedule the whole function by a rule of the target, with these choices instead of its own.

        With `blocks` it schedules these ones, which follow one another; other rules or primitives schedule the others,
        before or after this. `compute_inline` comes before any rule. `mirlo explain MODEL --kernel NAME` prints the
        rules of each kernel.
        """
        self._require_no_variants("apply_rule")
        require_room_for_rule(self.trace, self.applied, bool(blocks))
        if blocks:
            claim(self._root, rule, list(blocks))
        values = {name: plain(value) for name, value in choices.items()}
        call = PrimitiveCallRecord("apply_rule", (rule, tuple(blocks)) if blocks else (rule,), values)
        self.applied.append(call)
        self.trace.calls.append(call)

    def claim_rest(self) -> None:
        """Schedule the blocks without primitives by rules of a GPU target; else one thread would compute them."""
        if limits_of(self._root) is None or self.applied and len(self.applied[0].arguments) < 2:
            return
        for names in unclaimed(self._root):
            claim(self._root, ANY_RULE, names)
            self.applied.append(PrimitiveCallRecord("apply_rule", (ANY_RULE, tuple(names))))

    def save(self, path: str | Path) -> None:
        """Write the recorded primitives to a file."""
        self.trace.save(path)

    def replay(self, source: Trace | Schedule | str | Path | Callable[[Schedule], object]) -> Schedule:
        """Apply the primitives of a trace, a file, another schedule, or a function that takes a schedule."""
        if isinstance(source, Schedule):
            source = source.trace
        if callable(source):
            self._is_given = True
            try:
                call_given(source, self)
            finally:
                self._is_given = False
            return self
        if not isinstance(source, (Trace, str, Path)):
            raise ScheduleError(
                f"expected a Schedule, its trace, a file of one, or a function that takes a Schedule, found {source!r}"
            )
        trace = source if isinstance(source, Trace) else Trace.load(source)
        for call in trace:
            if call.primitive not in PRIMITIVES:
                raise ScheduleError(f"there is no primitive '{call.primitive}'{nearest(call.primitive, PRIMITIVES)}")
            getattr(self._variant_of(call), call.primitive)(*call.arguments, **call.named)
        return self

    def _variant_of(self, call: PrimitiveCallRecord) -> Schedule:
        """Return the schedule that a recorded primitive arranges: this one, or a variant of it."""
        if call.variant == self.variant:
            return self
        if call.variant not in self.variants:
            raise ScheduleError(
                f"{call.primitive}: there is no variant '{call.variant}'{nearest(call.variant, self.variants)}; "
                "specialize makes one"
            )
        return self.variants[call.variant][2]

    def undo(self, count: int) -> None:
        """Drop all recorded primitives but the first `count`, and their effect on the loops."""
        kept, dropped = self.trace.calls[:count], self.trace.calls[count:]
        for call in dropped:
            if call.primitive == SPECIALIZE:
                self.variants.pop(variant_name(*call.arguments), None)
        names = {call.variant for call in dropped if call.primitive != SPECIALIZE}
        changed = [each for name, (_, _, each) in self.variants.items() if name in names]
        if self.variant in names or not dropped:  # a primitive that raised may have changed the loops
            changed.append(self)
        self.trace.calls.clear()
        for schedule in changed:
            schedule._rebuild([call for call in kept if call.variant == schedule.variant])
        self.trace.calls[:] = kept

    def _rebuild(self, calls: Sequence[PrimitiveCallRecord]) -> None:
        """Apply only these primitives to the loops as they were at first."""
        self.applied.clear()
        self.inlined.clear()
        self.__dict__.pop("_root", None)  # built again for the first primitive
        self._shared_rows = None
        self.replay(Trace([call for call in calls if call.primitive != SPECIALIZE]))

    def emit(self, facts: ScheduleFacts | None = None, choices: ChoiceValues | None = None) -> func.FuncOp:
        """Replace the function by the loops; return the new function, in buffer form. The schedule is used up.

        A rule states what it did as `facts`, and what it chose as `choices`; callers may choose otherwise with
        `apply_rule`.
        """
        from mirlo.passes.schedule.primitives.emit import emit

        if self._is_given:
            raise ScheduleError("emit: the compilation emits the loops of a schedule that it is given; leave it out")
        if self.applied:
            raise ScheduleError("apply_rule: the rules of a target run in a compilation; give it as `schedules`")
        if self.variant:
            raise ScheduleError("emit: the schedule that is specialized emits the loops of its variants")
        self.require_open()
        if facts is None:
            facts, is_rule = {"rule": "schedule", "primitives": "; ".join(map(str, self.trace))}, False
        else:
            facts, is_rule = {"rule": "schedule", **facts}, True
        with self._view.op.location:
            result = emit(self._root, facts, choices, self._size_variants())
        self.close()
        if is_rule:
            result.attributes[APPLIED] = ir.StringAttr.get(json.dumps(self.trace.as_json()))
        return result

    def emit_part(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point, in a function that has other loops too. The schedule is used up."""
        self.part_emitter().emit(memory)

    def part_emitter(self) -> PartEmitter:
        """Return an emitter of the loops, or of parts of them, in a function with other loops; it is used up."""
        from mirlo.passes.schedule.primitives.emit import PartEmitter
        from mirlo.passes.schedule.primitives.tree_passes import run_passes

        self.require_open()
        self._require_no_variants("emit_part")
        self.is_closed = True
        run_passes(self._root)
        return PartEmitter(self._root)

    def commands(self, capacity: Mapping[str, int] | None = None, alignment: int = 64) -> TileCommands:
        """Return the instructions that compute the function, for an accelerator that executes a stream of commands.

        Each loop that `tensorize` replaced by an instruction of `command_intrin` is one command for each iteration of
        the loops outside, with its tiles as numbers. Buffers are one after the other in their memories, at multiples
        of `alignment` bytes; `capacity` are the bytes that memories have. The schedule stays as it is.
        """
        return self.command_tree(capacity, alignment).unrolled()

    def command_tree(self, capacity: Mapping[str, int] | None = None, alignment: int = 64) -> CommandTree:
        """Return the loops outside of the instructions, with the instructions in them; arguments as for `commands`.

        For an accelerator whose programs have loops: `CommandTree.only` selects the instructions of one queue or
        thread, and the address of each operand is an affine function of the loops.
        """
        from mirlo.passes.schedule.primitives.command_tree import command_tree

        self.require_open()
        if self.applied:
            raise ScheduleError("commands: rules of a target emit loops, no commands; use primitives (apply_rule)")
        self._require_no_variants("commands")
        return command_tree(self._root, capacity or {}, alignment)

    def after(self, name: str) -> str:
        """Return the loops as text after a pass between the primitives and their code; the schedule stays as it is.

        The passes, in their order: `prepare-kernels`, `drop-inplace`, `start-reductions`, `join-threads`,
        `keep-in-registers`, `prepare-threads`, `share-positions`.
        """
        from mirlo.passes.schedule.primitives.tree_passes import run_passes

        copy = Schedule(self._function)
        copy.variant = self.variant
        copy.replay(Trace([call for call in self.trace if not self.variant or call.variant == self.variant]))
        attributes = copy._view.op.attributes
        kept = {each: attributes[each] for each in (INPLACE,) if each in attributes}
        with copy._view.op.location:
            for schedule in (copy, *(each for _, _, each in copy.variants.values())):
                run_passes(schedule._root, name)
        for each, attribute in kept.items():
            attributes[each] = attribute
        return str(copy)

    def close(self) -> None:
        """Note that the function may be erased from now on."""
        self.is_closed = True
        for _, _, schedule in self.variants.values():
            schedule.is_closed = True

    def __str__(self) -> str:
        texts = [super().__str__()]
        for sizes, value, schedule in self.variants.values():
            where = " and ".join(f"{size} is {value}" for size in sizes)
            texts.append(f"where {where}:\n" + indent(str(schedule), "  "))
        return "\n".join(texts)

    def packed_parameters(self) -> list[PackedOrder]:
        """Return the orders in which parameters are to be stored, which `pack` has set."""
        return [buffer.packed for buffer in self._root.buffers if buffer.packed is not None]

    def parts(self) -> ScheduleParts:
        """Return the parts of a schedule in which rules of the target schedule some of the blocks; it is used up."""
        from mirlo.passes.schedule.primitives.tree_passes import run_passes

        run_passes(self._root)
        return ScheduleParts(self._root)

    # Internals

    def _record(
        self, word: str, arguments: tuple[object, ...], result: Made, named: Mapping[str, object] | None = None
    ) -> Made:
        if self.applied and len(self.applied[0].arguments) < 2:
            raise ScheduleError(f"{word}: rule '{self.applied[0].arguments[0]}' schedules the whole function")
        # `tile` records the split and reorder that it calls.
        self.trace.calls.append(PrimitiveCallRecord(word, arguments, named or {}, self.variant))
        return result

    def _size_variants(self) -> list[SizeVariant]:
        """Return the loops for values of sizes."""
        if not self.variants:
            return []
        from mirlo.passes.schedule.primitives.variants import SizeVariant

        return [SizeVariant(sizes, value, each._root) for sizes, value, each in self.variants.values()]

    def _require_no_variants(self, word: str) -> None:
        if self.variants or self.variant:
            raise ScheduleError(f"{word}: variants for values of sizes (specialize) are of a whole function of loops")

    def _kind(self, word: str, loop: str, kind: str) -> None:
        assert kind != SERIAL
        loops.set_kind(self._loop(loop), kind)
        self._record(word, (loop,), None)

    def _loop(self, name: str) -> Loop:
        """Return a loop that primitives may arrange."""
        result = self._root.find_loop(name)
        for leaf in leaves_of(result) if self.applied else ():
            _require_no_rule(leaf, f"'{name}' is a loop of '{leaf.name}'")
        return result

    def _leaf(self, name: str) -> BlockLeaf:
        """Return a block that primitives may arrange."""
        result = self._root.find_leaf(name)
        _require_no_rule(result, f"'{name}'")
        return result


def _require_no_rule(leaf: BlockLeaf, what: str) -> None:
    if leaf.rule:
        is_loop = what != f"'{leaf.name}'"
        raise ScheduleError(
            f"{what}, which rule '{leaf.rule}' schedules: it has arguments instead" if is_loop else
            f"{what} is scheduled by rule '{leaf.rule}', which has arguments instead"
        )  # fmt: skip
