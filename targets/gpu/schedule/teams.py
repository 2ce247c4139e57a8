"""Reductions over a team of threads: by shuffles in a warp, through shared memory across warps or the whole team."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir, memref, scf
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import WARP, barrier, shared, split
from mirlo.targets.gpu.schedule.shuffles import CombineValues, over_team


@dataclass(frozen=True)
class Team:
    """Threads of a block that reduce together: the numbers of teams and of threads in each, and this thread's indices.

    Every thread of the block is in a team.
    """

    rows: int
    threads: int
    row: Value
    thread: Value


def reduce_in_shared_memory(team: Team, combine: CombineValues, partial: Sequence[ir.Value]) -> list[ir.Value]:
    """Reduce over all threads of a team through shared memory, and return the result to each of them.

    All threads of the block take part.
    """
    if team.threads == 1:
        return list(partial)
    memories = [shared(team.rows * team.threads, value.type) for value in _storable(partial)]
    own = team.row * team.threads + team.thread
    barrier()
    for memory, value in zip(memories, _storable(partial), strict=True):
        memref.StoreOp(value, memory, [own])
    barrier()
    left = team.threads
    while left > 1:
        half = left // 2
        branch = scf.IfOp(team.thread.below(half))
        with ir.InsertionPoint(branch.then_block):
            mine = _load(memories, own, partial)
            other = _load(memories, own + (left - half), partial)
            for memory, value in zip(memories, _storable(combine(mine, other)), strict=True):
                memref.StoreOp(value, memory, [own])
            scf.YieldOp([])
        barrier()
        left -= half
    return _load(memories, team.row * team.threads, partial)


def reduce_by_shuffles(team: Team, combine: CombineValues, partial: Sequence[ir.Value]) -> list[ir.Value]:
    """Reduce over a team of consecutive threads by shuffles, and across warps with one value per warp.

    A team is a power of two of threads.
    """
    result = over_team(partial, combine, min(team.threads, WARP))
    warps = team.threads // WARP
    if warps <= 1:
        return result
    number, lane = split(team.thread, [warps, WARP])
    memories = [shared(team.rows * warps, value.type) for value in _storable(partial)]
    first = team.row * warps
    barrier()

    def keep() -> None:
        for memory, value in zip(memories, _storable(result), strict=True):
            memref.StoreOp(value, memory, [first + number])

    when(lane.below(1), keep)
    barrier()
    total: list[ir.Value] | None = None
    for warp in range(warps):
        values = _load(memories, first + warp, partial)
        total = values if total is None else combine(total, values)
    return total or result


def can_shuffle(threads: int, block: int) -> bool:
    """Return whether teams of this many consecutive threads of a block are whole warps, or equal parts of them.

    Their number is a power of two: LLVM loads three values of warps as four.
    """
    return block % WARP == 0 and threads & (threads - 1) == 0


def _load(memories: Sequence[ir.Value], place: Value, like: Sequence[ir.Value]) -> list[ir.Value]:
    loaded = [memref.LoadOp(memory, [place]).result for memory in memories]
    return [_restored(value, former) for value, former in zip(loaded, like, strict=True)]


def _storable(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Convert values to types that shared memory stores: bools to bytes."""
    i8 = ir.IntegerType.get_signless(8)
    return [create("arith.extui", i8, v) if str(v.type) == "i1" else v for v in values]


def _restored(loaded: ir.Value, like: ir.Value) -> ir.Value:
    return create("arith.trunci", like.type, loaded) if str(like.type) == "i1" else loaded
