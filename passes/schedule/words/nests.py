"""Nests that rules of all targets arrange with words: their order, and loops that are one."""

from __future__ import annotations

from mirlo.passes.schedule.words.schedule import Schedule


def fuse_contiguous(s: Schedule, block: str, loops: list[str]) -> list[str]:
    """Fuse loops that need no divisions as one."""
    result: list[str] = []
    while loops:
        together = [loop for loop in s.contiguous_loops(block, loops[-1]) if loop in loops] or loops[-1:]
        result.insert(0, s.fuse(*together) if len(together) > 1 else together[0])
        loops = loops[: -len(together)]
    return result


def order_loops(s: Schedule, block: str, loops: list[str]) -> None:
    """Put all loops of a block in this order, if they are in another one."""
    if loops != s.loops(block):
        s.reorder(*loops)
