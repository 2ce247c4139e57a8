"""Loops of schedules of words that are cut for vectors."""

from __future__ import annotations

from mirlo.passes.schedule.words.schedule import Schedule
from mirlo.targets.llvm.schedule.chunks import Chunks, chunks


def cut_lanes(s: Schedule, lane: str, lanes: int) -> list[str]:
    """Cut the loop of the lanes where a condition changes, at multiples of a vector: rounded away from the middle."""
    extent = s.extent(lane)
    if not isinstance(extent, int) or extent <= 2 * lanes:
        return [lane]
    changes = s.change_points(lane)
    cuts = {-(-at // lanes) * lanes if at <= extent // 2 else at // lanes * lanes for at in changes} - {0}
    return s.partition(lane, sorted(cuts)) if cuts else [lane]


def cut_vectors(s: Schedule, part: str, lanes: int, unroll: int, masked: bool) -> list[tuple[str, int, int]]:
    """Cut a loop into several vectors at a time, single ones, and a tail; return each loop, its lanes and vectors."""
    cut = chunks(s.extent(part), lanes, unroll, masked)
    if isinstance(cut, Chunks):
        widths = [*([(cut.lanes, cut.unroll)] if cut.main else []), *((lanes, 1) for _, lanes, _ in cut.rest)]
        points = [start for start, _, _ in cut.rest if start]
        parts = s.partition(part, points) if points else [part]
    else:
        widths = [(lanes, unroll)] if unroll > 1 else []
        widths += [(lanes >> i, 1) for i in range(lanes.bit_length())]
        parts = s.partition(part, multiples=[lanes * unroll for lanes, unroll in widths])
    # Parts that certainly are empty, the last ones, are left out.
    return [(loop, lanes, unroll) for loop, (lanes, unroll) in zip(parts, widths, strict=False)]


def split_vectors(s: Schedule, loop: str, lanes: int, unroll: int) -> str:
    """Split a loop into vectors, several of them unrolled; return the loop around them."""
    factors = [factor for factor in (unroll, lanes) if factor > 1]
    outer, *inner = s.split(loop, (None, *factors)) if factors else [loop]
    if lanes > 1:
        s.vectorize(inner.pop())
    for several in inner:
        s.unroll(several)
    return outer
