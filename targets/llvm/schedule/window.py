"""Reductions vectorized along an output loop: pooling windows, sums over leading or middle dims.

Each lane reduces on its own, so any combination is possible. Elementwise blocks that follow are computed on the
results while they are in registers. The loops are cut at the edges of padding; inside no element is tested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.rules import Decline, deciding, decline, schedule
from mirlo.passes.schedule.blocks.group import BlockGroup, opaque_of_group
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.words.group_plan import WordsPlan, words_of
from mirlo.passes.schedule.words.schedule import Schedule
from mirlo.passes.schedule.words.tree import ScheduleError
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import Chunks, can_mask, chunks, work
from mirlo.targets.llvm.schedule.cost import (
    LOAD_BOUND_OPERATIONS,
    MAX_LANE_STRIDE,
    MAX_SUBSPACES,
    MAX_UNROLLED_WINDOW,
    MIN_WINDOW_OUTPUTS,
)
from mirlo.targets.llvm.schedule.group import function_group
from mirlo.targets.llvm.schedule.priorities import PRIORITIES
from mirlo.targets.llvm.schedule.sweep import LoopVectors, describe_vectors

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@deciding
def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> WordsPlan | Decline:
    """Arrange the loops of a reduction with one output element per lane."""
    refusal = _fits(group) or opaque_of_group(group)
    if refusal is not None:
        return refusal
    s = words_of(group)
    block, *others = s.blocks()
    try:
        for other in others:
            s.reverse_compute_inline(other)
    except ScheduleError as error:
        return decline("a block is not computed on the results of the reduction", words=str(error))
    kinds = s.kinds(block)
    order = s.memory_order(block)
    s.reorder(*(loop for loop in order if kinds[loop] == "reduce"), *(o for o in order if kinds[o] == "spatial"))
    together = s.contiguous_loops(block)
    lane = s.fuse(*together) if len(together) > 1 else s.loops(block)[-1]
    refusal = _is_profitable(s, block, lane)
    if refusal is not None:
        return refusal
    vectors = _choose_vectors(s, block, lane, group.machine, choices)
    masked = can_mask(s.instances(block), group.machine)
    kinds = s.kinds(block)
    outer = [loop for loop in s.loops(block) if kinds[loop] == "spatial" and loop != lane]
    reduced = [loop for loop in s.loops(block) if kinds[loop] == "reduce"]
    s.reorder(*outer, lane, *reduced)
    outer = _merged(s, block, outer)
    is_unrolled = _is_unrolled(s, reduced)
    for loop in reduced if is_unrolled else ():
        s.unroll(loop)
    for part in _parts_of_lanes(s, lane, vectors.lanes):
        for chunk in _chunks(s, part, vectors, masked):
            _vectorize(s, chunk, vectors, masked)
    _partition_rows(s, outer)
    return WordsPlan(group, s, "window", describe_vectors([vectors]))


def _fits(group: BlockGroup[Machine]) -> Decline | None:
    first = group.blocks[0]
    if not first.is_reduction:
        return decline("the first block does not reduce", block=first.name)
    if not first.spatial:
        return decline("there is one output element only")
    domain = tuple(first.domain[i] for i in first.spatial)
    for block in group.blocks[1:]:
        if block.is_reduction:
            return decline("a second block reduces", block=block.name)
        if block.domain != domain:
            return decline("blocks have different domains", blocks=f"{first.name}, {block.name}")
    return None


def _is_profitable(s: Schedule, block: str, lane: str) -> Decline | None:
    if D.estimate_dim(s.extent(lane)) < MIN_WINDOW_OUTPUTS:
        return decline("the output's innermost loop is too short for vectors", elements=s.extent(lane))
    reads, writes = s.strides(block, lane)
    if any(step != 1 for step in writes):
        return decline("an output is not written along memory", block=block, step=next(w for w in writes if w != 1))
    if reads and not any(step is not None and 0 < abs(D.estimate_dim(step)) <= MAX_LANE_STRIDE for step in reads):
        return decline("no operand runs along the output's memory", block=block)
    return None


def _merged(s: Schedule, block: str, outer: list[str]) -> list[str]:
    """Fuse those of the outer loops that need no divisions as one."""
    result: list[str] = []
    while outer:
        together = s.contiguous_loops(block, outer[-1])
        result.insert(0, s.fuse(*together) if len(together) > 1 else outer[-1])
        outer = outer[: len(outer) - max(1, len(together))]
    return result


def _is_unrolled(s: Schedule, reduced: list[str]) -> bool:
    """Return whether the reduction loops are unrolled completely."""
    return D.is_certain(lambda: D.product([s.extent(loop) for loop in reduced]) <= MAX_UNROLLED_WINDOW)


def _choose_vectors(s: Schedule, block: str, lane: str, machine: Machine, chosen: LoopChoices) -> LoopVectors:
    """Choose the vectors of the output loop: more of them read longer stretches of memory in each step."""
    reduction, *_ = instances = s.instances(block)
    effort = work([reduction])
    kinds = s.kinds(block)
    is_unrolled = _is_unrolled(s, [loop for loop in kinds if kinds[loop] == "reduce"])
    if is_unrolled or effort > LOAD_BOUND_OPERATIONS:
        unroll = 4 if effort <= LOAD_BOUND_OPERATIONS else 2
    else:
        unroll = max(1, machine.vector_registers // 2 // len(reduction.block.outputs))
    own = machine.lanes(widest_bytes(instances, lane))
    return LoopVectors(chosen.lanes_of(0) or own, chosen.unroll_of(0) or unroll)


def _parts_of_lanes(s: Schedule, lane: str, lanes: int) -> list[str]:
    """Cut the loop of the lanes where a condition changes, at multiples of a vector: rounded away from the middle."""
    extent = s.extent(lane)
    if not isinstance(extent, int) or extent <= 2 * lanes:
        return [lane]
    cuts = {
        min(-(-at // lanes) * lanes, extent) if at <= extent // 2 else at // lanes * lanes
        for at in s.change_points(lane)
    }
    points = sorted(cuts - {0, extent})
    return s.partition(lane, points) if points else [lane]


def _chunks(s: Schedule, part: str, vectors: LoopVectors, masked: bool) -> list[str]:
    """Cut a loop into whole vectors and a tail, unless a mask makes one of it."""
    extent: Dim = s.extent(part)
    if not isinstance(extent, int):
        widths = [vectors.lanes >> i for i in range(vectors.lanes.bit_length())]
        return s.partition(part, multiples=[vectors.lanes * vectors.unroll, *widths])
    cut = chunks(extent, vectors.lanes, vectors.unroll, masked)
    assert isinstance(cut, Chunks)
    points = [start for start, _, _ in cut.rest if start]
    return s.partition(part, points) if points else [part]


def _vectorize(s: Schedule, part: str, vectors: LoopVectors, masked: bool) -> None:
    """Compute a part of the output loop in vectors, several at a time, and reduce in registers."""
    (block,) = s.blocks(part)
    extent = s.extent(part)
    lanes, unroll = vectors.lanes, vectors.unroll
    if isinstance(extent, int):
        cut = chunks(extent, lanes, unroll, masked)
        assert isinstance(cut, Chunks)
        lanes, unroll = (cut.lanes, cut.unroll) if cut.main else (cut.rest[0][1], 1)
    kinds = s.kinds(block)
    reduced = [loop for loop in s.loops(block) if kinds[loop] == "reduce"]
    if unroll > 1:
        outer, several, lane = s.split(part, (None, unroll, lanes))
        s.reorder(outer, *reduced, several, lane)
        s.unroll(several)
    else:
        outer, lane = s.split(part, (None, lanes))
        s.reorder(outer, *reduced, lane)
    s.vectorize(lane)
    s.accumulate(block, reduced[0], in_order=True)


def _partition_rows(s: Schedule, outer: list[str]) -> None:
    """Cut the loops over outputs where a condition changes, and share them between threads."""
    parts = [*outer]
    count = len(s.blocks())
    for loop in reversed(outer):
        points = s.change_points(loop)
        if points and count * (len(points) + 1) <= MAX_SUBSPACES * count:
            parts[parts.index(loop) : parts.index(loop) + 1] = s.partition(loop, points)
    for loop in parts:
        s.parallel(loop)
    if not outer:
        s.parallel(s.loops(s.blocks()[0])[0])


@schedule(target="llvm", priority=PRIORITIES["window"])
def window(kernel: Kernel, context: ScheduleContext, choices: LoopChoices = NO_LOOP_CHOICES) -> ir.OpView | Decline:
    """Schedule pooling and reductions over dims that are not innermost: one output element per lane."""
    group = function_group(kernel, context)
    if isinstance(group, Decline):
        return group
    plan = plan_window(group, choices)
    return plan if isinstance(plan, Decline) else plan.schedule(kernel.view)
