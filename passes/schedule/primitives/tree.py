"""The loops of a prim function as a tree that a schedule rearranges: loops, and the blocks in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, loop_index, number
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.affine import read_affine
from mirlo.dialects.tir.block import SPATIAL
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.passes.schedule.blocks.contraction.body import MultiplyAdd, ProductInput
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction
from mirlo.passes.schedule.stored import PackedOrder, packed_orders
from mirlo.passes.targets import ThreadLimits
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.names import unique_names
from mirlo.runtime.records import dataclass

LOCAL, SHARED = "local", "shared"
"""Memory of a thread, its stack on CPUs; of a block of threads."""
ACCELERATOR_SCOPES: set[str] = set()
"""Memories of accelerators that `command_intrin` names: main memory where the loops are emitted."""
SERIAL, PARALLEL, VECTORIZED, UNROLLED, BOUND = "serial", "parallel", "vectorized", "unrolled", "bound"
LETTERS = "ijklmnopqrst"


class ScheduleError(MirloError, ValueError):
    """Raised for a primitive that cannot be applied: the loops do not match, or the result would change."""

    error_code = "MIR0406"
    remedy = "Apply the primitive to loops or blocks that it fits, as the message says."


Guard = tuple[IndexExpr, Dim]
"""An index and its bound: an iteration in which the index is not below the bound is skipped."""


@dataclass(eq=False)
class ScheduleBuffer:
    """A buffer: a parameter, an intermediate value, or a copy that the schedule requested."""

    name: str
    shape: tuple[Dim, ...]
    element: ir.Type
    value: ir.Value | None = None
    """The tensor value of the prim function; None for copies."""
    is_parameter: bool = False
    scope: str = ""
    """Memory space: the target's main memory, `local` (the stack), or a name that the target defines."""
    order: tuple[int, ...] = ()
    """Dims from the slowest to the fastest in memory."""
    tiles: dict[int, int] = field(default_factory=dict)
    """Tile sizes of tiled dims; the position within the tile is the fastest dim (`pack`)."""
    padding: tuple[int, int] | None = None
    """A factor and an offset: the elements of a row in memory are a multiple of the one, plus the other."""
    copies: int = 1
    """How many tiles of it an accelerator holds at a time (`double_buffer`)."""
    alias: str = ""
    """The name that it would have without the author's: `x0`, or its block's."""
    shared: ScheduleBuffer | None = None
    """The result in whose memory it is (`share_memory`)."""
    packed: PackedOrder | None = None
    """Of a parameter: the order in which it is to be stored, which its dims are those of."""

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(eq=False)
class BufferAccess:
    """An access of a block to a buffer, as expressions of the block's axes."""

    buffer: ScheduleBuffer
    at: list[IndexExpr]
    """One index for each dim; empty for a tensor that the body reads by itself."""
    outside: ir.Attribute | None = None
    is_opaque: bool = False
    inlined: BlockLeaf | None = None
    """The inlined block that computes the element."""
    is_converted: bool = False
    """Of a register tile: whether the copy has the element as it is multiplied (`convert`)."""
    is_held: bool = False
    """Whether the element that is written is only read where it is in a register."""
    is_tile: bool = False
    """Whether the indices are expressions of loops, as those of a tile with a dim for each loop."""
    register: BufferAccess | None = None
    """Of an element that is read in a register, where a block before this one writes it, in the same loops."""
    register_loops: tuple[str, ...] = ()
    """The loops each of whose iterations, which are emitted one by one, has a register for the element."""


@dataclass(eq=False)
class Accumulation:
    """The form of a reduction whose results are in registers while a loop runs, or several that follow one another."""

    is_in_order: bool = False
    """Whether unrolled loops of the reduction add to one result, iteration by iteration."""


@dataclass(frozen=True)
class InitialValues:
    """The form of a block that stores the initial values of a reduction."""

    reduction: BlockLeaf


@dataclass(frozen=True)
class Update:
    """The form of a reduction that adds to what is stored."""


@dataclass(eq=False)
class RuleClaim:
    """The form of the blocks that one `apply_rule` of a rule of the target schedules."""

    rule: str


@dataclass(frozen=True)
class BlockBody:
    """The computation in the body of a block, read once for all its copies."""

    indices: list[tuple[int, ir.Value]]
    """The axes whose indices are used as values, and their arguments."""
    inputs: list[ir.Value]
    accumulators: list[ir.Value]
    body_ops: list[ir.Operation]
    yielded: list[ir.Value]
    computes_indices: bool
    """Whether operations compute with the indices of axes."""

    @staticmethod
    def of(view: BlockView) -> BlockBody:
        """Return the body of a block."""
        indices = [(axis, argument) for axis, argument in enumerate(view.index_arguments) if view.uses_index(axis)]
        ops = view.body_ops
        is_plain = all(len(op.regions) == 0 and len(op.results) == 1 for op in ops)
        return BlockBody(
            indices, view.input_arguments, view.accumulators, ops, view.yielded, bool(indices) and is_plain
        )


@dataclass(frozen=True, eq=False)
class TreeBlock:
    """What a block of the tree computes, wherever it is: the kinds and extents of its axes, and its body."""

    kinds: tuple[str, ...]
    domain: tuple[Dim, ...]
    view: BlockView | None = None
    """The block of a function; None for a copy, which has no body."""

    @staticmethod
    def copy(shape: Sequence[Dim]) -> TreeBlock:
        """Return a block that copies elements, with an axis for each dim."""
        return TreeBlock((SPATIAL,) * len(shape), tuple(shape))

    @cached_property
    def body(self) -> BlockBody:
        """Return the body of a block that is no copy."""
        assert self.view is not None
        return BlockBody.of(self.view)


@dataclass(eq=False)
class BlockLeaf:
    """A block in the tree: its axes as expressions of the loops around it."""

    name: str
    block: TreeBlock
    reads: list[BufferAccess]
    writes: list[BufferAccess]
    at: list[IndexExpr]
    guards: list[Guard] = field(default_factory=list)
    """Expressions and bounds: points at which an expression is not below its bound are skipped."""
    form: LeafForm | None = None
    """What it is, other than all of a block at its place in the loops."""
    begin: BlockLeaf | None = None
    """Where a loop of the reduction is partitioned, the first of the blocks that compute it."""
    parent: Loop | Root | None = None
    is_moved: bool = False
    """Whether it was moved into a loop of another block, which may compute an element several times."""
    is_clamped: bool = False
    """Whether iterations past the end of loops read the last elements, and store nothing, instead of being skipped."""
    stored_by: list[Guard] = field(default_factory=list)
    """The threads that store the results, where all threads have them."""
    is_streamed: bool = False
    """Whether whole vectors of results go past the caches."""
    epilogue: list[BlockLeaf] = field(default_factory=list)
    """The blocks that are computed on its results, before they are stored; `at` has expressions of its axes."""
    assumed: frozenset[ir.Value] = frozenset()
    """Conditions of the body that are true in all its iterations."""
    known_loops: tuple[list[IndexExpr], set[str], set[str]] | None = None
    """The axes as they were, the loops that the spatial ones depend on, and those of the reduction."""

    @property
    def is_reduction(self) -> bool:
        return "reduce" in self.kinds

    @property
    def is_whole(self) -> bool:
        """Return whether it is all of a block, also of a reduction, which no primitive has arranged in another form."""
        return self.form is None or isinstance(self.form, RuleClaim)

    @property
    def is_start(self) -> bool:
        """Return whether it stores the initial values of a reduction."""
        return isinstance(self.form, InitialValues)

    @property
    def rule(self) -> str:
        """Return the rule of the target that schedules it; empty if primitives do."""
        return self.form.rule if isinstance(self.form, RuleClaim) else ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the axes: `spatial` or `reduce`."""
        return self.block.kinds

    @property
    def domain(self) -> tuple[Dim, ...]:
        """Return the extents of the axes."""
        return self.block.domain

    @property
    def view(self) -> BlockView | None:
        """Return the block of a function; None for a copy."""
        return self.block.view

    @property
    def body(self) -> BlockBody:
        """Return the body of a block that is no copy."""
        return self.block.body

    def touches(self, buffer: ScheduleBuffer) -> bool:
        """Return whether the block reads or writes a buffer."""
        after = [access for each in self.epilogue for access in (*each.reads, *each.writes)]
        return any(access.buffer is buffer for access in (*self.reads, *self.writes, *after))

    @property
    def has_partial_results(self) -> bool:
        """Return whether a loop numbers partial results of the reduction that runs over it (`rfactor`)."""
        spatial, reduced = self._loops_by_kind()
        return bool(spatial & reduced)

    @property
    def used_to_reduce(self) -> set[str]:
        """Return the loops that the reduction axes depend on, those that number partial results among them."""
        return self._loops_by_kind()[1]

    def place(self, access: BufferAccess) -> list[IndexExpr]:
        """Return an access as expressions of the loops."""
        return placed_at(access.at, self.at)

    def reduce_loops(self) -> set[str]:
        """Return the loops that the reduction axes depend on."""
        spatial, reduced = self._loops_by_kind()
        return reduced - spatial  # after `rfactor`, one loop of the reduction numbers partial results

    def _loops_by_kind(self) -> tuple[set[str], set[str]]:
        """Return the loops that the spatial axes depend on, and those that the reduction axes depend on."""
        # Primitives replace the list of expressions.
        if self.known_loops is None or self.known_loops[0] is not self.at:
            used: dict[bool, set[str]] = {True: set(), False: set()}
            for kind, index in zip(self.kinds, self.at, strict=True):
                used[kind == "reduce"] |= index.variables()
            self.known_loops = self.at, used[False], used[True]
        return self.known_loops[1:]


class LoopIntrinsic:
    """A hardware instruction that replaces a loop."""

    name: str


@dataclass(frozen=True)
class SharedPosition:
    """The index of a loop that has one iteration for each of those around it, as an expression of them."""

    index: IndexExpr


@dataclass(frozen=True)
class TileStart:
    """A loop of one iteration for each tile, where it begins: at a line of a buffer's memory.

    The first and last tiles overlap others.
    """

    tile: IndexExpr
    """The number of the tile, by the loops over tiles."""
    size: int
    extent: Dim
    """The iterations that tiles cover."""
    buffer: ScheduleBuffer


@dataclass(frozen=True)
class ShiftedTiles:
    """The tiles of a loop, the last of which begin early enough to be whole, and compute elements of others again."""

    size: int
    rests: tuple[int, ...]
    """Sizes of the tiles for fewer elements than a whole tile has."""
    extent: Dim
    row: str
    """The loop over the elements of a tile."""


@dataclass(frozen=True)
class PagedRows:
    """A value of the rows of sequences, which are in pages that a table finds: [sequences, heads, rows, size]."""

    value: ScheduleBuffer
    cache: ScheduleBuffer
    """[pages, rows, heads, size]."""
    table: ScheduleBuffer
    """The pages of each sequence: [sequences, pages]."""
    lengths: ScheduleBuffer
    """The rows of each sequence; those after them are zero."""

    @property
    def page(self) -> tuple[int, int, int]:
        """Return the rows, heads and elements of a page."""
        _, rows, heads, size = self.cache.shape
        return D.static_dim(rows), D.static_dim(heads), D.static_dim(size)

    @property
    def page_elements(self) -> int:
        """Return the elements of a page."""
        rows, heads, size = self.page
        return rows * heads * size


@dataclass(frozen=True)
class PageCopies:
    """The form of a loop over pages, each of which is copied in the order of memory, all heads of a row together."""

    rows: PagedRows
    lanes: int
    """The most elements of a vector."""


@dataclass(frozen=True)
class PagedColumns:
    """The columns of a product whose rows are in pages."""

    rows: PagedRows
    loop: str
    """The loop over pages."""
    over: tuple[str, ...]
    """The loops of the reduction in a page."""


@dataclass(frozen=True, eq=False)
class RowNest:
    """The loops of a product of which a block of rows is computed."""

    node: Loop = field(repr=False)
    outer: Mapping[str, tuple[Dim, Dim]]
    """The loops outside of the blocks, with their steps in rows and their iterations."""
    tiles: str
    """The loop over tiles, which has as many rows as a block has; empty if it has all that are within outer loops."""
    rows: Dim
    """The rows within the outer loops."""

    @property
    def outside(self) -> list[str]:
        """Return the loops outside of a block of rows."""
        return [*self.outer, *([self.tiles] if self.tiles else [])]


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """The form of a loop over blocks of rows, for each of which the nests in it are computed one after the other."""

    loops: tuple[tuple[Dim, Dim], ...]
    """The loops of the nests outside of blocks, outermost first: their steps in rows, and their extents."""
    extent: Dim
    """Rows within these loops."""
    width: Dim
    """The columns of a row."""
    size: Dim
    """The rows of a block."""
    first: RowNest
    last: RowNest
    between: tuple[Loop | BlockLeaf, ...] = field(repr=False)
    """The nests between the products."""
    row: Loop | None = field(repr=False)
    """The loop over rows between the products; None if there is one row."""
    values: tuple[ScheduleBuffer, ...] = field(repr=False)
    """Values of which only the rows of a block are in memory."""
    limit: tuple[int, Dim] | None
    """Row r needs no column from `limit[0] * r + limit[1]` on: the mask hides it."""
    columns_at_once: int
    """The columns that all loops compute at a time, if not all columns are computed."""
    ends: tuple[str, ...]
    """The loops over columns that end with those that a block needs."""
    threads: int
    """The threads that claim blocks, each with memory of its own, if sizes are dynamic; 0 if all are static."""
    pages: tuple[PagedColumns, ...] = ()
    """The columns of both products, where these are read in pages: then a block has all rows of some heads."""
    lanes: int = 1
    """The most elements of a vector of copies of pages."""

    @property
    def total(self) -> Dim:
        """Return the rows of all blocks."""
        return D.product([extent for _, extent in self.loops]) * self.extent

    @property
    def order(self) -> tuple[Dim, ...]:
        """Return the steps of all loops over rows, the innermost first, and the number of rows."""
        strides = [stride for stride, _ in reversed(self.loops)]
        return (*strides, self.loops[0][0] * self.loops[0][1]) if self.loops else (self.extent,)

    @property
    def outside(self) -> frozenset[str]:
        """Return the loops of the nests outside of a block of rows."""
        row = [] if self.row is None else [self.row.name]
        return frozenset([*self.first.outside, *row, *self.last.outside])


@dataclass(frozen=True)
class Transposition:
    """A loop around one of vectors along which memory is accessed: its elements are transposed in registers."""


@dataclass(frozen=True)
class JoinedThreads:
    """A loop of threads that run what were several loops, one after the other."""


@dataclass(frozen=True)
class ThreadBarrier:
    """One of the loops in that of joined threads, before which these wait for one another."""


@dataclass(eq=False)
class Loop:
    """A loop from 0 to its extent, a number or a dim."""

    name: str
    extent: Dim
    kind: str = SERIAL
    thread: str | None = None
    body: list[Loop | BlockLeaf] = field(default_factory=list)
    parent: Loop | Root | None = None
    form: LoopForm | None = None
    """What the loop is, other than iterations of what is in it."""
    is_peeled: bool = False
    """Whether the iterations that no guard limits are a loop of their own."""
    accumulated: tuple[Accumulation, ...] = ()
    """The reductions whose results are in registers while the loop runs."""
    is_unswitched: bool = False
    """Whether there is a copy of the loop for iterations without reads beyond edges."""
    part: PartRange | None = None
    """The iterations of the loop that this is a part of."""
    nested: NestedNodes | None = None
    """The nodes inside, where they are listed since the last change."""


TileSide = tuple[ProductInput, BufferAccess]
"""A factor of the product of a register tile, and the access that reads it."""


@dataclass(frozen=True)
class Prefetch:
    """A prefetch of elements of a buffer, a share in each k-step of a tile."""

    buffer: ScheduleBuffer
    loop: str
    """The loop for whose next iteration the elements are; empty for those `distance` elements ahead."""
    distance: int = 0
    start: IndexExpr | None = None
    """Where the elements begin, by loops of which some may have no value: then there is no prefetch."""


@dataclass(eq=False)
class TileLeaf:
    """A block in registers: rows times vectors of accumulators."""

    leaf: BlockLeaf
    over: list[Loop]
    """The loops of the reduction, outermost first: the only loops in the code of a tile."""
    lines: Loop | None
    """On a matrix unit, the loop over registers of rows, where they are further apart than rows."""
    rows: Loop | None
    vectors: Loop | None
    lanes: Loop
    depth: list[Loop]
    """The loops of the reduction inside of one instruction: groups of columns, and the elements of a group.

    Of an instruction without groups, the loop over the lanes of accumulators.
    """
    blocks: list[Loop]
    """The loops over blocks of K, outside of others: accumulators are in memory between them."""
    instruction: TileInstruction
    product: MultiplyAdd
    is_masked: bool
    """Whether the rest of the columns is one masked vector, in place of ever narrower ones."""
    steps: int
    """K-steps of an iteration of the innermost loop of the reduction."""
    epilogue: tuple[int, int] | None
    """Most accumulators of a whole and of a smaller tile whose epilogue is unrolled, else a loop over rows."""
    has_partial_sums: bool = False
    """Whether the products of each iteration of the outermost loop of `over`, or of each lane of accumulators, are
    added up from zero, and these sums one after the other."""
    is_stored: bool = True
    """Whether the block's results are stored, besides those of its epilogue."""
    prefetches: list[Prefetch] = field(default_factory=list)
    """Of the columns."""
    known_sides: tuple[list[IndexExpr], tuple[TileSide, TileSide]] | None = None
    """The axes of the block as they were, and the factors of rows and of columns with the accesses that read them."""
    awaited: list[ScheduleBuffer] = field(default_factory=list)
    """What the epilogue reads of these buffers is prefetched before the loops of the reduction."""

    @property
    def name(self) -> str:
        """Return the name of the tile in the text of a schedule."""
        return f"{self.instruction.name} tile"

    @property
    def is_along_sum(self) -> bool:
        """Return whether lanes are along the reduction: an accumulator is a vector whose lanes are added up."""
        return bool(self.depth) and self.instruction.is_per_lane

    @property
    def lane_count(self) -> int:
        """Return the lanes of a vector: its columns, if they are not along the reduction."""
        return D.static_dim(self.depth[0].extent if self.is_along_sum else self.lanes.extent)

    @property
    def width(self) -> int:
        """Return the columns of the tile."""
        return (D.static_dim(self.vectors.extent) if self.vectors else 1) * D.static_dim(self.lanes.extent)

    @property
    def height(self) -> int:
        """Return the rows of the tile."""
        return (D.static_dim(self.rows.extent) if self.rows else 1) * self.line_count

    @property
    def line_count(self) -> int:
        """Return the registers of rows that are a loop of their own."""
        return D.static_dim(self.lines.extent) if self.lines else 1

    @property
    def inner(self) -> list[Loop]:
        """Return the loops of the tile, which have no code of their own, and those of `over`."""
        spatial = [loop for loop in (self.lines, self.rows, self.vectors, self.lanes) if loop is not None]
        return [*self.over, *spatial, *self.depth]


LeafForm = Accumulation | InitialValues | Update | RuleClaim | TileLeaf
"""What a block in the tree may be, other than all of a block at its place: a reduction in registers, its initial
values, what adds to them, a block that a rule schedules, a register tile."""
LoopForm = (
    LoopIntrinsic | SharedPosition | TileStart | ShiftedTiles | RowBlocks | PageCopies | Transposition | JoinedThreads
    | ThreadBarrier | TileLeaf
)  # fmt: skip
"""What a loop may be, other than iterations: an instruction, a position, where a tile begins, tiles of any length,
blocks of rows, copies of pages, rows that are transposed, what threads run together and where they wait, a register
tile."""


def intrinsic_of(loop: Loop) -> LoopIntrinsic | None:
    """Return the instruction that replaces a loop."""
    return loop.form if isinstance(loop.form, LoopIntrinsic) else None


@dataclass(frozen=True)
class PartRange:
    """Where a part of a loop begins (`partition`), and how many of the iterations one of the part computes."""

    low: Dim
    step: int = 1


@dataclass(frozen=True)
class NestedNodes:
    """The nodes in a loop or a function, in order, outer loops first."""

    loops: tuple[Loop, ...]
    leaves: tuple[BlockLeaf, ...]

    @cached_property
    def loops_by_name(self) -> dict[str, Loop]:
        """Return the loops by their names."""
        return {loop.name: loop for loop in self.loops}


@dataclass(frozen=True)
class TreeTarget:
    """What the target of a tree has."""

    name: str
    threads: ThreadLimits | None
    """The limits of the threads that run its kernels; None if these are functions of a CPU."""
    has_vectors: bool

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False)
class Root:
    """The whole function."""

    view: PrimView
    buffers: list[ScheduleBuffer]
    body: list[Loop | BlockLeaf] = field(default_factory=list)
    parent: None = None
    target: TreeTarget | None = None
    """The target that the function is scheduled for, if it is known."""
    stored: Sequence[PackedOrder] = ()
    """The orders in which parameters are stored already."""
    modules: list[ir.Module] = field(default_factory=list)
    """Modules that keep blocks alive which are not in the function."""
    nested: NestedNodes | None = None
    """The nodes inside, where they are listed since the last change."""
    specialized: list[tuple[tuple[Dim, ...], int]] = field(default_factory=list)
    """Sizes that have a value, each of them, where other loops are emitted."""

    def leaves(self) -> Sequence[BlockLeaf]:
        return leaves_of(self)

    def loops(self) -> Sequence[Loop]:
        return loops_of(self)

    @property
    def loop_names(self) -> Mapping[str, Loop]:
        """Return the loops by their names."""
        return _nested(self).loops_by_name

    def find_loop(self, name: str) -> Loop:
        """Return the loop of a name."""
        return _find(self.loop_names, name, "loop")

    def find_leaf(self, name: str) -> BlockLeaf:
        """Return the block of a name."""
        return _find({leaf.name: leaf for leaf in self.leaves()}, name, "block")

    def find_buffer(self, name: str) -> ScheduleBuffer:
        """Return the buffer of a name, or of another name that a primitive gave it."""
        named = {buffer.alias: buffer for buffer in self.buffers if buffer.alias}
        return _find(named | {buffer.name: buffer for buffer in self.buffers}, name, "buffer")


Named = TypeVar("Named")


def _find(named: Mapping[str, Named], name: str, kind: str) -> Named:
    if name not in named:
        hint = nearest(str(name), named) or f"; there are {', '.join(named) or 'none'}"
        raise ScheduleError(f"there is no {kind} '{name}'{hint}")
    return named[name]


Node = Loop | BlockLeaf | Root


def leaves_of(node: Node) -> Sequence[BlockLeaf]:
    """Return the blocks in a node, in order."""
    return (node,) if isinstance(node, BlockLeaf) else _nested(node).leaves


def loops_of(node: Node) -> Sequence[Loop]:
    """Return the loops in a node without itself, outer ones first."""
    return () if isinstance(node, BlockLeaf) else _nested(node).loops


def _nested(node: Loop | Root) -> NestedNodes:
    """Return the nodes in a node, which `set_children` changes."""
    if node.nested is None:
        loops: list[Loop] = []
        leaves: list[BlockLeaf] = []
        for child in node.body:
            if isinstance(child, Loop):
                loops.append(child)
            loops += loops_of(child)
            leaves += leaves_of(child)
        node.nested = NestedNodes(tuple(loops), tuple(leaves))
    return node.nested


def axis_name(position: int) -> str:
    """Return the name of a block axis in its accesses."""
    return f"#{position}"


def placed_at(indices: Sequence[IndexExpr], axes: Sequence[IndexExpr]) -> list[IndexExpr]:
    """Return expressions of the axes of a block, where these have other expressions as values."""
    names = {axis_name(i): index for i, index in enumerate(axes)}
    return [index.replace(names) for index in indices]


def root_of(node: Node) -> Root:
    """Return the tree that a node is in."""
    while not isinstance(node, Root):
        assert node.parent is not None, "the node is in a tree"
        node = node.parent
    return node


def around(node: Loop | BlockLeaf) -> list[Loop]:
    """Return the loops around a node, outermost first."""
    loops: list[Loop] = []
    parent = node.parent
    while isinstance(parent, Loop):
        loops.append(parent)
        parent = parent.parent
    return loops[::-1]


def views_of(leaf: BlockLeaf) -> Iterator[BlockView]:
    """Return the bodies that a block computes: its own, those inlined in it, and those of its epilogue."""
    if leaf.view is not None and not leaf.is_start:
        yield leaf.view
    for after in leaf.epilogue:
        yield from views_of(after)
    for access in leaf.reads:
        if access.inlined is not None:
            yield from views_of(access.inlined)


def reads_of(leaf: BlockLeaf) -> Iterator[tuple[BufferAccess, list[IndexExpr]]]:
    """Yield the reads of a block, of those inlined in it and of its epilogue, with the axes of each access."""
    yield from reads_inside(leaf, leaf.at)
    for after in leaf.epilogue:
        yield from reads_inside(after, placed_at(after.at, leaf.at))


def reads_inside(block: BlockLeaf, axes: list[IndexExpr]) -> Iterator[tuple[BufferAccess, list[IndexExpr]]]:
    """Yield the reads of a block at these values of its axes, and of those inlined in it."""
    for access in block.reads:
        if access.inlined is None:
            yield access, axes
        else:
            yield from reads_inside(access.inlined, placed_at(access.at, axes))


def without_single(indices: list[IndexExpr], leaf: BlockLeaf) -> list[IndexExpr]:
    """Return expressions of the loops around a block, without those of one iteration."""
    single = {loop.name: number(0) for loop in around(leaf) if loop.extent == 1}
    return [index.replace(single) for index in indices] if single else indices


def parts_of_reduction(root: Root, leaf: BlockLeaf) -> list[BlockLeaf]:
    """Return the blocks that compute a reduction, one after the other: several where its loop is partitioned."""
    return [leaf] if leaf.begin is None else [other for other in root.leaves() if other.begin is leaf.begin]


def register_loop(leaf: BlockLeaf) -> Loop | None:
    """Return the loop around a block over which its results are in registers."""
    return next((loop for loop in around(leaf) if leaf.form in loop.accumulated), None)


def region_of(loop: Loop) -> list[Loop]:
    """Return the loops from this one on, that follow one another, over which the same results are in registers."""
    assert loop.parent is not None
    siblings = loop.parent.body
    held = set(loop.accumulated)
    return [each for each in siblings if isinstance(each, Loop) and held & set(each.accumulated)]


def extents_of(loops: Sequence[Loop]) -> dict[str, Dim]:
    return {loop.name: loop.extent for loop in loops}


def set_children(parent: Loop | Root, children: list[Loop | BlockLeaf]) -> None:
    parent.body = children
    for child in children:
        child.parent = parent
    changed: Loop | Root | None = parent
    while changed is not None:
        changed.nested = None
        changed = changed.parent


def nested(loops: Sequence[Loop], node: Loop | BlockLeaf) -> Loop | BlockLeaf:
    """Put a node into loops, outermost first; return the outermost node."""
    for outer in reversed(loops):
        set_children(outer, [node])
        node = outer
    return node


def replace(old: Loop | BlockLeaf, new: list[Loop | BlockLeaf]) -> None:
    """Replace a node by other nodes."""
    parent = old.parent
    assert parent is not None
    at = parent.body.index(old)
    set_children(parent, [*parent.body[:at], *new, *parent.body[at + 1 :]])


def build(view: PrimView) -> Root:
    """Build the tree of a prim function in tensor form: a nest for each block, axes in order."""
    buffers: dict[ir.Value, ScheduleBuffer] = {}
    author_names = view.names
    for position, value in enumerate(view.arguments):
        buffers[value] = _buffer(f"x{position}", value, True, author_names)
    names = unique_names([view.name_of(block) for block in view.blocks])
    for name, block in zip(names, view.blocks, strict=True):
        for result, output in zip(output_names(name, block), block.outputs, strict=True):
            buffers[output.value] = _buffer(result, output.value, output.value in view.returned, author_names)
    root = Root(view, list(buffers.values()), stored=packed_orders(view.op))
    set_children(root, [_nest(name, block, buffers) for name, block in zip(names, view.blocks, strict=True)])
    return root


def output_names(name: str, block: BlockView) -> list[str]:
    """Return the names of the buffers of a block's results."""
    return [name] if len(block.outputs) == 1 else [f"{name}{i}" for i in range(len(block.outputs))]


def loop_names(base: str, rank: int) -> list[str]:
    """Return the names of a block's own loops."""
    return [f"{base}_{LETTERS[i] if i < len(LETTERS) else i}" for i in range(rank)]


def _buffer(alias: str, value: ir.Value, is_parameter: bool, author_names: Mapping[ir.Value, str]) -> ScheduleBuffer:
    return buffer_of(value, author_names.get(value, alias), is_parameter, alias)


def buffer_of(value: ir.Value, name: str, is_parameter: bool = False, alias: str = "") -> ScheduleBuffer:
    """Return the buffer of a tensor value."""
    shape = dims_of(value.type)
    return ScheduleBuffer(
        name, shape, value.type.element_type, value, is_parameter, order=tuple(range(len(shape))), alias=alias
    )


def _nest(base: str, block: BlockView, buffers: dict[ir.Value, ScheduleBuffer]) -> Loop | BlockLeaf:
    names = loop_names(base, block.rank)
    leaf = leaf_of(base, block, buffers, [loop_index(name) for name in names])
    return nested([Loop(name, extent) for name, extent in zip(names, block.domain, strict=True)], leaf)


def leaf_of(name: str, block: BlockView, buffers: Mapping[ir.Value, ScheduleBuffer], at: list[IndexExpr]) -> BlockLeaf:
    """Return a block whose axes are these expressions of the loops around it."""
    axes = [loop_index(axis_name(i)) for i in range(block.rank)]
    extents = {axis_name(i): extent for i, extent in enumerate(block.domain)}

    def access(operand: OperandView) -> BufferAccess:
        if operand.is_opaque:
            return BufferAccess(buffers[operand.value], [], None, True)
        indices = [read_affine(expr, axes, extents) for expr in operand.map.results]
        return BufferAccess(buffers[operand.value], indices, operand.outside)

    reads, writes = [access(operand) for operand in block.inputs], [access(output) for output in block.outputs]
    return BlockLeaf(name, TreeBlock(block.axes, tuple(block.domain), block), reads, writes, at)
