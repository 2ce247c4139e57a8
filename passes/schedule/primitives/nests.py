"""Nests that rules of all targets arrange by primitives: their order, and loops that are one."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.passes.schedule.blocks.rows import RowGroup, Walk
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass


def fuse_contiguous(s: Schedule, block: str, loops: list[str]) -> list[str]:
    """Fuse loops that need no divisions as one."""
    result: list[str] = []
    while loops:
        if len(loops) == 1:
            return [*loops, *result]
        together = [loop for loop in s.contiguous_loops(block, loops[-1]) if loop in loops] or loops[-1:]
        result.insert(0, s.fuse(*together) if len(together) > 1 else together[0])
        loops = loops[: -len(together)]
    return result


def arrange_copy(s: Schedule, copy: str, lanes: int, shared: Sequence[str] = ()) -> None:
    """Arrange the loops of a copy, which may have a border: the border apart, and vectors along memory.

    Threads divide the outermost loops: those that are `shared`, of several parts, or all of a part.
    """
    loops = [loop for loop in s.loops(copy) if s.extent(loop) != 1 and loop not in shared]
    if not loops:
        return
    edge = next((loop for loop in loops[:-1] if s.change_points(loop)), None)
    if edge is not None:
        around = loops[: loops.index(edge)]
        for loop in around if not shared else ():
            s.parallel(loop)
        for part in s.partition(edge, s.change_points(edge)):
            arrange_copy(s, s.blocks(part)[0], lanes, [*shared, *around])
        return
    *outer, last = fuse_contiguous(s, copy, loops)
    units = s.loops(copy)[s.loops(copy).index(last) + 1 :]
    if units:
        s.reorder(*units, last)
    vectors, lane = s.split(last, (None, lanes))
    s.vectorize(lane)
    for loop in (*outer, vectors) if not shared else ():
        s.parallel(loop)


@dataclass(frozen=True)
class WalkLoops:
    """Blocks that share one loop over the elements of a row."""

    walk: Walk
    blocks: list[str]
    loops: list[str]
    """The loops over elements, outermost first; none where a row has one element."""


def merge_rows(s: Schedule, blocks: Sequence[str], rows: RowGroup) -> tuple[list[str], list[WalkLoops]]:
    """Merge the loops over rows of blocks, and those over elements of blocks that share a loop.

    Return the loops over rows, and those over elements of each loop of a row.
    """
    loops = {block: s.loops(block) for block in blocks}
    outer = [_merge(s, [loops[block][axis] for block in blocks]) for axis in range(rows.axes)]
    walks: list[WalkLoops] = []
    at = 0
    for walk in rows.walks:
        names = list(blocks[at : at + len(walk.blocks)])
        at += len(names)
        inner = [_without_units(s, loops[name][rows.axes :]) for name in names]
        merged = [_merge(s, [each[i] for each in inner]) for i in range(len(walk.own))]
        if list(walk.order) != sorted(walk.order):
            s.reorder(*(merged[i] for i in walk.order))
        walks.append(WalkLoops(walk, names, [merged[i] for i in walk.order] if merged else []))
    return outer, walks


def _merge(s: Schedule, loops: Sequence[str]) -> str:
    if len(loops) > 1:
        s.merge(*loops)
    return loops[0]


def _without_units(s: Schedule, loops: Sequence[str]) -> list[str]:
    """Fuse loops of one iteration with those next to them; return the others."""
    result, single = list[str](), list[str]()
    for loop in loops:
        if s.extent(loop) == 1:
            single.append(loop)
            continue
        result.append(s.fuse(*single, loop) if single else loop)
        single = []
    if single and result:
        result[-1] = s.fuse(result[-1], *single)
    return result


def order_loops(s: Schedule, block: str, loops: list[str]) -> None:
    """Put all loops of a block in this order, if they are in another one."""
    if loops != s.loops(block):
        s.reorder(*loops)
