"""Rows: softmax, normalizations, reductions along the contiguous axis, as a schedule of primitives.

A block of threads computes one row or several. The plan is that of all targets, one loop over the elements of a row
after another. The threads of a row compute its elements in turn, singly or in vectors, keep them in registers from one
loop to the next if there are not too many, and combine their partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core import dims as D
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.blocks.rows import RowGroup, find_rows
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import WalkLoops, fuse_contiguous, merge_rows
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass

BLOCK = 128
"""Threads per block; long rows use all of them."""
SHORTEST = 8
"""Fewest threads per row."""
HELD = 32
"""Most elements that a thread keeps in registers between loops; longer rows use memory."""
MAX_UNROLLED_OPS = 1200
"""Most operations of a thread on the elements that it keeps."""
LONG = 4096
"""If there are few rows with more elements, blocks have more threads."""
FEW = 256
"""Rows that leave a device idle if each has one small block."""
ROWS = "rows"
"""The name of the stages that these plans are."""
RowWidth = Callable[[RowGroup], int]
"""Chooses the consecutive elements that a thread computes at once; divides the innermost extents."""


def one_element(rows: RowGroup) -> int:
    """Schedule one element at a time per thread."""
    return 1


@dataclass(frozen=True)
class RowThreads:
    """How threads divide the elements of rows."""

    width: int
    """Consecutive elements that a thread computes at once."""
    threads: int
    """Threads per row, a power of two."""
    rows: int
    """Rows per block."""
    is_held: bool
    """Whether threads keep their elements in registers."""


def plan_rows(
    group: BlockGroup[LaneModel],
    width_of: RowWidth = one_element,
    max_threads: int = 2 * BLOCK,
    max_reading: int = 2 * BLOCK,
) -> PrimitivesPlan | Decline:
    """Plan these blocks row by row.

    At most `max_threads` threads share a row if its elements then fit registers, and `max_reading` one of few others.
    """
    rows = find_rows(group)
    if isinstance(rows, Decline):
        return rows
    if not any(D.estimate_dim(D.product(list(walk.own))) >= SHORTEST for walk in rows.walks if walk.reductions):
        return decline("rows are too short to be shared")
    chosen = divide_rows(rows, width_of(rows), max_threads, max_reading)
    s = schedule_of(group)
    _arrange(s, rows, chosen)
    return PrimitivesPlan(group, s, ROWS, {}, {"width": chosen.width})


def divide_rows(rows: RowGroup, width: int, max_threads: int, max_reading: int) -> RowThreads:
    """Choose the threads of rows: as many as there are elements for, a power of two."""
    start, count = len(rows.rows), D.product(list(rows.rows))
    lengths = [D.product(list(walk.extents[start:])) for walk in rows.walks]
    longest = max(map(D.estimate_dim, lengths))
    is_known = all(map(D.is_static, lengths))
    is_held = is_known and rows.in_step and _code(rows) <= MAX_UNROLLED_OPS and longest <= HELD * max_threads
    block = BLOCK
    if longest > LONG and D.estimate_dim(count) < FEW:
        block = 2 * BLOCK if is_held else max_reading
    while is_held and longest > HELD * block:
        block *= 2
    each = 4 if width == 1 else 2 * width
    threads = max(SHORTEST, min(block, 1 << (max(longest // each, 1) - 1).bit_length()))
    return RowThreads(width, threads, 1 if count == 1 else block // threads, is_held)


def _code(rows: RowGroup) -> int:
    """Return the operations on the elements that a thread may keep."""
    return HELD * count_operations([block for walk in rows.walks for block in walk.blocks if walk.own])


def _arrange(s: Schedule, rows: RowGroup, chosen: RowThreads) -> None:
    """Compute rows in the threads of blocks, and the elements of a row in consecutive ones."""
    outer, walks = merge_rows(s, s.blocks(), rows)
    if not outer:
        outer = [s.add_unit_loop(walk.blocks[0]) for walk in walks]
        if len(outer) > 1:
            s.merge(*outer)
        del outer[1:]
    for walk in walks:
        if walk.loops:
            _divide(s, walk, chosen)
    row = s.fuse(*outer) if len(outer) > 1 else outer[0]
    if chosen.rows > 1:
        row, own = s.split(row, (None, chosen.rows))
        s.bind(own, "threadIdx.y")
    s.bind(row, "blockIdx.x")
    _clamp(s, rows, walks, chosen.is_held)
    if not chosen.is_held:
        for value, result in rows.shared().items():
            names = s.buffer_of(value), s.buffer_of(result)
            if s.can_share_memory(*names):
                s.share_memory(*names)


def _clamp(s: Schedule, rows: RowGroup, walks: Sequence[WalkLoops], is_held: bool) -> None:
    """Clamp reads in threads beyond the last row, but not those of elements that threads of that row write."""
    free = [walk for i, walk in enumerate(walks) if is_held or not rows.read_from_memory(i)]
    for block in (block for walk in free for block in walk.blocks):
        if s.is_limited(block):
            s.clamp(block)


def _divide(s: Schedule, walk: WalkLoops, chosen: RowThreads) -> None:
    """Divide the elements of a loop among threads, which combine their partial results."""
    loops = fuse_contiguous(s, walk.blocks[0], walk.loops)
    loop = s.fuse(*loops) if len(loops) > 1 else loops[0]
    lanes = []
    if chosen.width > 1:
        loop, lane = s.split(loop, (None, chosen.width))
        lanes = [lane]
    step, thread = s.split(loop, (None, chosen.threads))
    s.reorder(thread, step)
    if chosen.is_held:
        s.unroll(step)
    for lane in lanes:
        s.vectorize(lane)
    s.bind(thread, "threadIdx.x")
    for position in walk.walk.reductions:
        s.accumulate(walk.blocks[position], thread, in_order=True)
