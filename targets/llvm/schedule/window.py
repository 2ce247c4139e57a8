"""Reductions vectorized along an output loop: pooling windows, sums over leading or middle dims.

Each lane reduces on its own, so any combination is possible. The epilogue, elementwise blocks, is computed while the
results are in registers. The loops are cut at the edges of padding; inside no element is tested.
"""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, opaque_of_group
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import (
    LOAD_BOUND_OPERATIONS,
    MAX_LANE_STRIDE,
    MAX_SUBSPACES,
    MAX_UNROLLED_WINDOW,
    MIN_WINDOW_OUTPUTS,
    PASS_RUN_BYTES,
    PLAIN_REDUCTION,
    WHOLE_PASS_REGISTERS,
    WINDOW_RUN_BYTES,
)
from mirlo.targets.llvm.schedule.part_rules import part_rule
from mirlo.targets.llvm.schedule.vector_loops import (
    LoopVectors,
    can_mask,
    cut_lanes,
    cut_vectors,
    describe_vectors,
    loop_space,
    work,
)


@part_rule(priority=30, space=loop_space)
@deciding
def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> PrimitivesPlan | Decline:
    """Schedule pooling and reductions over dims that are not innermost: one output element per lane."""
    refusal = _fits(group) or opaque_of_group(group)
    if refusal is not None:
        return refusal
    s = schedule_of(group)
    block, *others = s.blocks()
    try:
        for other in others:
            s.reverse_compute_inline(other)
    except ScheduleError as error:
        return decline("a block is not computed on the results of the reduction", found=str(error))
    reduced = [loop for loop, kind in s.kinds(block).items() if kind == "reduce"]
    outputs = [loop for loop in s.memory_order(block) if loop not in reduced]
    s.reorder(*reduced, *outputs)
    outputs = fuse_contiguous(s, block, outputs)
    s.reorder(*outputs, *reduced)
    *outer, lane = outputs
    refusal = _is_profitable(s, block, lane)
    if refusal is not None:
        return refusal
    count = D.product([s.extent(loop) for loop in reduced])
    is_unrolled = isinstance(count, int) and count <= MAX_UNROLLED_WINDOW
    for loop in reduced if is_unrolled else ():
        s.unroll(loop)
    vectors = _choose_vectors(s.instances(block), lane, s.extent(lane), is_unrolled, group.machine, choices)
    masked = can_mask(s.instances(block), group.machine)
    for part in cut_lanes(s, lane, vectors.lanes):
        _vectorize(s, part, vectors, masked)
    _share_rows(s, outer)
    return PrimitivesPlan(group, s, "window", describe_vectors([vectors]))


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


def _choose_vectors(
    instances: list[BlockInstance], lane: str, extent: Dim, is_unrolled: bool, machine: Machine, chosen: LoopChoices
) -> LoopVectors:
    """Choose the vectors of the output loop: more of them read longer stretches of memory in each step."""
    effort = work(instances[:1])
    own = machine.lanes(widest_bytes(instances, lane))
    outputs = len(instances[0].block.outputs)
    if is_unrolled or (effort > LOAD_BOUND_OPERATIONS and outputs == 1):
        most = min(WINDOW_RUN_BYTES // machine.vector_bytes, machine.vector_registers // 2)
        unroll = max(1, most) if effort <= LOAD_BOUND_OPERATIONS else 2
    else:
        unroll = _vectors_of_pass(machine, outputs, effort)
        if isinstance(extent, int) and not chosen.lanes_of(0):
            unroll = _with_fewest_passes(extent // own, unroll)
            pairs = extent // (2 * own)
            is_whole = extent % (2 * own) == 0 and 2 * pairs <= WHOLE_PASS_REGISTERS * machine.vector_registers
            if unroll < 2 * pairs and is_whole and _is_plain(machine, outputs, effort):
                return LoopVectors(2 * own, chosen.unroll_of(0) or pairs)
    return LoopVectors(chosen.lanes_of(0) or own, chosen.unroll_of(0) or unroll)


def _vectors_of_pass(machine: Machine, outputs: int, effort: int) -> int:
    """Return how many vectors of each output are reduced together, in one pass over the reduced dims.

    Half of the registers hold them, or all if an operation reads one operand in memory besides, and half of the vectors
    read short ranges of memory.
    """
    half = max(1, machine.vector_registers // 2 // outputs)
    is_plain = _is_plain(machine, outputs, effort)
    return machine.vector_registers if is_plain and half * machine.vector_bytes < PASS_RUN_BYTES else half


def _is_plain(machine: Machine, outputs: int, effort: int) -> bool:
    """Return whether an operand in memory is all that an operation needs beside an accumulator, with AVX2."""
    return effort <= PLAIN_REDUCTION and outputs == 1 and machine.avx2


def _with_fewest_passes(vectors: int, most: int) -> int:
    """Return the vectors per pass, at most `most`, that need the fewest passes; remaining vectors take one each."""
    most = max(1, min(most, vectors))
    return min(range(most, most // 2, -1), key=lambda count: vectors // count + vectors % count)


def _vectorize(s: Schedule, part: str, vectors: LoopVectors, masked: bool) -> None:
    """Compute a part of the output loop in vectors, several at a time, and a tail; reduce in registers."""
    for loop, lanes, unroll in cut_vectors(s, part, vectors.lanes, vectors.unroll, masked):
        (block,) = s.blocks(loop)
        reduced = [name for name, kind in s.kinds(block).items() if kind == "reduce"]
        outer, *inner = s.split(loop, (None, unroll, lanes) if unroll > 1 else (None, lanes))
        s.reorder(outer, *reduced, *inner)
        for several in inner[:-1]:
            s.unroll(several)
        s.vectorize(inner[-1])
        s.accumulate(block, reduced[0], in_order=True)


def _share_rows(s: Schedule, outer: list[str]) -> None:
    """Cut the loops over other outputs where a condition changes, and divide all of them among threads."""
    for loop in [] if outer else [s.loops(block)[0] for block in s.blocks()]:
        s.parallel(loop)
    count = 1
    for loop in outer[::-1]:
        points = s.change_points(loop)
        is_cut = bool(points) and count * (len(points) + 1) <= MAX_SUBSPACES
        count *= len(points) + 1 if is_cut else 1
        for part in s.partition(loop, points) if is_cut else [loop]:
            s.parallel(part)
