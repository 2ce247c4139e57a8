"""Copies that permute contiguous runs: heads and tokens, images and batches.

An operand and the output are both contiguous along the last loop, but differ in the loop with the next larger
stride: adjacent runs of one are far apart in the other. Copied run by run, each line of the operand is requested
when it is needed. So some adjacent runs of the operand, by some adjacent runs of the output, form a block that is
unrolled: what the hardware prefetches for one then serves the other.
"""

from __future__ import annotations

from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import CLOSE_TO_L2, RUN_BLOCK_VECTORS, RUNS_PER_BLOCK, SHORT_RUN_VECTORS
from mirlo.targets.llvm.schedule.transposes import mapped_operands, moved_bytes
from mirlo.targets.llvm.schedule.vector_loops import cut_vectors, has_intrinsics, work


@dataclass(frozen=True)
class Runs:
    """A copy by runs."""

    far: str
    """The loop with the next stride of an operand's runs; that of the output's runs is the last but one."""
    far_step: int
    """Extent of a block along it."""
    near_step: int
    """Extent of a block along the last loop but one."""
    lanes: int


def find_runs(s: Schedule, block: str, group: BlockGroup[Machine]) -> Runs | None:
    """Choose the blocks of a copy by runs, if a nest is one and blocks pay."""
    loops, machine = [loop for loop in s.loops(block) if s.extent(loop) != 1], group.machine
    extents = [s.extent(loop) for loop in loops]
    if len(loops) < 3 or not all(isinstance(extent, int) for extent in extents[-2:]):
        return None
    instances = s.instances(block)
    if has_intrinsics(instances):
        return None
    far = _outer_run_loop(instances, loops, group)
    near, last = loops[-2:]
    if far is None or far == near or not isinstance(s.extent(far), int):
        return None
    size = widest_bytes(instances, last)
    lanes, moved = machine.lanes(size), moved_bytes(s, block, size)
    vectors = -(-_static(s, last) // lanes)
    if not 2 * machine.l1_bytes <= moved <= machine.private_cache_bytes:
        return None
    if vectors > SHORT_RUN_VECTORS and moved > CLOSE_TO_L2 * machine.l2_bytes:
        return None
    together = RUN_BLOCK_VECTORS // (vectors * max(1, work(instances)))
    if together < 2:
        return None
    steps = _evenly(_static(s, far), min(RUNS_PER_BLOCK, together))
    return Runs(far, steps, _evenly(_static(s, near), together // steps), lanes)


def _static(s: Schedule, loop: str) -> int:
    extent = s.extent(loop)
    assert isinstance(extent, int), "blocks are of static loops"
    return extent


def _evenly(extent: int, most: int) -> int:
    """Return a step of at most `most` that leaves a small rest."""
    return -(-extent // -(-extent // most))


def _outer_run_loop(instances: list[BlockInstance], loops: list[str], group: BlockGroup[Machine]) -> str | None:
    """Return the loop with the next stride of the operands' runs; None if they have no runs."""
    *others, last = loops
    result: str | None = None
    for instance, operand in mapped_operands(instances, group):
        where = instance.flat(operand)
        steps = {loop: where.coefficient(loop) for loop in loops}
        if not all(isinstance(step, int) for step in steps.values()) or steps[last] not in (0, 1):
            return None
        moving = [loop for loop in others if steps[loop] > 0]
        if steps[last] == 1 and moving and result in (None, others[-1]):
            result = min(moving, key=lambda loop: steps[loop])
    return result


def arrange_runs(s: Schedule, block: str, runs: Runs, masked: bool) -> None:
    """Arrange the loops of a copy in blocks of runs."""
    loops = s.loops(block)
    near, last = [loop for loop in loops if s.extent(loop) != 1][-2:]
    outer = [loop for loop in loops if loop not in (runs.far, near, last)]
    s.reorder(*outer, runs.far, near, last)
    for loop in outer:
        s.parallel(loop)
    for far in _whole(s, runs.far, runs.far_step):
        (block,) = s.blocks(far)
        near, last = s.loops(block)[-2:]
        far_blocks, *several = _blocks(s, far, runs.far_step)
        s.reorder(far_blocks, near, *several, last)
        s.parallel(far_blocks)
        for part in _whole(s, near, runs.near_step):
            (block,) = s.blocks(part)
            loops = s.loops(block)
            *inside, last = loops[loops.index(part) + 1 :]
            near_blocks, *rows = _blocks(s, part, runs.near_step)
            for loop in (*rows, *inside):
                s.unroll(loop)
            s.parallel(near_blocks)
            for each, lanes, _ in cut_vectors(s, last, runs.lanes, 1, masked):
                vectors, lane = s.split(each, (None, lanes))
                s.unroll(vectors)
                s.vectorize(lane)


def _whole(s: Schedule, loop: str, step: int) -> list[str]:
    """Cut a loop after its last whole block."""
    extent = _static(s, loop)
    main = extent // step * step
    return s.partition(loop, [main]) if main < extent else [loop]


def _blocks(s: Schedule, loop: str, step: int) -> list[str]:
    """Split a loop into blocks, if there is a whole one."""
    return s.split(loop, (None, step)) if step > 1 and _static(s, loop) >= step else [loop]
