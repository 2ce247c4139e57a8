"""Vectors of a loop: the number of lanes, the vectors per iteration, and the parts of its tail."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import Variable
from mirlo.passes.rule_choices import ChoiceValue, choice_values, tried_values, tuning_point
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.blocks.lanes import fitting, gathered_bytes, narrowest_stored_bytes, widest_bytes
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.vector_memory import REGISTER_PART
from mirlo.passes.schedule.vectors import may_trap
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.cost import F32_BYTES, INTRINSIC_OPERATIONS


@dataclass(frozen=True)
class LoopVectors:
    """The vectors of a loop, as choices: elements of each, and vectors per iteration."""

    lanes: int
    unroll: int
    are_joined: bool = False
    """Whether the vectors of an iteration are computed as one long vector."""


def choose_lane_vectors(
    instances: Sequence[BlockInstance],
    axis: Variable,
    length: Dim,
    machine: Machine,
    chosen: LoopChoices,
    loop: int | None = 0,
    reduces: bool = False,
    lanes: int | None = None,
) -> LoopVectors:
    """Choose the vectors of a loop of this length, unless they are chosen for the loop with this number.

    `lanes` overrides the number of lanes.
    """
    unroll = chosen.unroll_of(loop)
    if lanes is None:
        own = chosen.lanes_of(loop) or _own_lanes(instances, axis, machine, reduces)
        if not reduces and has_intrinsics(instances):
            # Long dependency chains need several independent ones in flight, interleaved operation by operation. LLVM
            # does not interleave consecutive vectors, but it splits a vector of several registers that way.
            most = max(1, length // own) if isinstance(length, int) else machine.vector_registers
            return LoopVectors(own, min(unroll or machine.vector_registers // 8, most), True)
    heavy = work(instances)
    return LoopVectors(
        own if lanes is None else lanes, unroll or (4 if reduces or heavy <= 12 else 2 if heavy <= 40 else 1)
    )


def _own_lanes(instances: Sequence[BlockInstance], axis: Variable, machine: Machine, reduces: bool) -> int:
    """Return the lanes of a vector whose widest elements fill a register.

    Elements that are loaded one by one fill at least the part of a register that they are inserted in. So do those
    that a loop stores which reduces: vectors of others are joined.
    """
    narrow = gathered_bytes(instances, axis), narrowest_stored_bytes(instances, axis) if reduces else 0
    least = max(REGISTER_PART // size if size else 1 for size in narrow)
    return max(machine.lanes(widest_bytes(instances, axis)), least)


def loop_space(kernel: Kernel, context: ScheduleContext) -> list[dict[str, int]]:
    """Return the vectors of all loops to measure: how many at a time, half a vector, and two."""
    own = find_machine(context.options.get("machine")).lanes(F32_BYTES)
    points = [LoopChoices(unroll=(count,)) for count in tried_values(LoopChoices, "unroll")]
    return [tuning_point(choices) for choices in (*points, LoopChoices((own // 2,)), LoopChoices((2 * own,)))]


def describe_vectors(vectors: Sequence[LoopVectors]) -> dict[str, ChoiceValue]:
    """Return the vectors of several loops as choices."""
    if not vectors:
        return {}
    return choice_values(LoopChoices(tuple(each.lanes for each in vectors), tuple(each.unroll for each in vectors)))


def can_mask(instances: Sequence[BlockInstance], machine: Machine) -> bool:
    """Return whether lanes may be masked: masks are cheap, and computing inactive lanes does not trap."""
    return machine.masked and not traps(instances)


def traps(instances: Sequence[BlockInstance]) -> bool:
    """Return whether computing elements that do not exist may trap: a division of integers."""
    return any(may_trap(instance.block.body_ops) for instance in instances)


def work(instances: Sequence[BlockInstance]) -> int:
    """Estimate the operations per element."""
    return sum(
        INTRINSIC_OPERATIONS if _is_intrinsic(value) else 1 for instance in instances for value in instance.needed
    )


def has_intrinsics(instances: Sequence[BlockInstance]) -> bool:
    """Return whether a math function is computed for each element."""
    return any(_is_intrinsic(value) for instance in instances for value in instance.needed)


def _is_intrinsic(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith("tir.")


@dataclass(frozen=True)
class VectorPart:
    """A part of a loop, from an element to another one: several vectors at a time, or at most one."""

    start: Dim
    stop: Dim
    lanes: int
    unroll: int = 1

    @property
    def step(self) -> int:
        """Return the elements that are computed at a time."""
        return self.lanes * self.unroll


def cut_into_vectors(extent: Dim, lanes: int, unroll: int, masked: bool) -> list[VectorPart]:
    """Divide a loop into whole vectors and a tail: one masked vector, or a few of smaller powers of two.

    If only the run time knows the length, there are several vectors at a time, single ones, and at most one of each
    smaller power of two.
    """
    if not isinstance(extent, int):
        widths = [(lanes, unroll)] if unroll > 1 else []
        widths += [(lanes >> i, 1) for i in range(lanes.bit_length())]
        ends = [extent // (width * count) * width * count for width, count in widths]
        bounds = zip([0, *ends[:-1]], ends, widths, strict=True)
        return [VectorPart(low, high, *sizes) for low, high, sizes in bounds if low != high]
    lanes = fitting(lanes, extent)
    if not masked and lanes > extent:
        lanes //= 2
    unroll = max(1, min(unroll, extent // lanes))
    at = extent // (lanes * unroll) * lanes * unroll
    parts = [VectorPart(0, at, lanes, unroll)] if at else []
    while at < extent:
        left = extent - at
        width = lanes
        if left < lanes:
            # A power of two needs no mask.
            width = 1 << (left.bit_length() - 1)
            if masked and width != left:
                width *= 2
        parts.append(VectorPart(at, at + min(width, left), width))
        at += min(width, left)
    return parts


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
    cuts = cut_into_vectors(s.extent(part), lanes, unroll, masked)
    if not isinstance(s.extent(part), int):
        parts = s.partition(part, multiples=[cut.step for cut in cuts])
    elif len(cuts) > 1:
        parts = s.partition(part, [cut.start for cut in cuts[1:] if isinstance(cut.start, int)])
    else:
        parts = [part]
    return [(loop, cut.lanes, cut.unroll) for loop, cut in zip(parts, cuts, strict=True)]


def cut_whole_vectors(s: Schedule, part: str, lanes: int) -> list[tuple[str, int, int]]:
    """Cut the loop of a reduction into vectors and a masked one; return each loop, its lanes and vectors.

    The position of an element alone decides in which lane it is added: rows that differ in zeros after their ends have
    equal sums.
    """
    extent = s.extent(part)
    if not isinstance(extent, int):
        return [(loop, lanes, 1) for loop in s.partition(part, multiples=[lanes])]
    whole = extent // lanes * lanes
    return [(loop, lanes, 1) for loop in s.partition(part, [whole] if 0 < whole < extent else [])]


def split_vectors(s: Schedule, loop: str, lanes: int, unroll: int) -> str:
    """Split a loop into vectors, several of them unrolled; return the loop around them."""
    factors = [factor for factor in (unroll, lanes) if factor > 1]
    outer, *inner = s.split(loop, (None, *factors)) if factors else [loop]
    if lanes > 1:
        s.vectorize(inner.pop())
    for several in inner:
        s.unroll(several)
    return outer
