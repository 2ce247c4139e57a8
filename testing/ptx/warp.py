"""Instructions of a warp together: section 9.7.9.5 to 9.7.13 of the PTX manual (shfl, vote, match, redux, elect)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.text import Pair, PtxInstruction
from mirlo.testing.ptx.types import TYPES, Array

Ending = Callable[[Group], list[Group]]
WaitBuilder = Callable[[KernelPreparation, PtxInstruction, int], tuple[Ending | None, Read | None]]


def places_of_lanes(group: Group) -> Array:
    """Return by warp and lane the index of a thread in the group, or -1."""
    batch = group.batch
    positions = np.full((batch.count * batch.warps_per_block, 32), -1, np.int64)
    positions[batch.warp_of[group.tids], batch.threads["%laneid"][group.tids]] = np.arange(group.size)
    return positions


def check_members(group: Group, mask: Array) -> None:
    """Raise an error if a thread executes an instruction whose mask excludes it."""
    lanes = group.batch.threads["%laneid"][group.tids]
    if (mask >> lanes & np.uint32(1) == 0).any():
        raise KernelError("a thread that is not in the mask of members executes the instruction")


def _source_lane(mode: str, lane: Array, offset: Array, control: Array) -> tuple[Array, Array]:
    """Return the lane that is read, and whether it is in range."""
    b, c, segment = offset & 31, control & 31, control >> 8 & 31
    most, least = lane & segment | c & ~segment & 31, lane & segment
    if mode == "up":
        j = lane - b
        valid = j >= most
    elif mode == "down":
        j = lane + b
        valid = j <= most
    elif mode == "bfly":
        j = lane ^ b
        valid = j <= most
    else:
        j = least | b & ~segment & 31
        valid = j <= most
    return np.where(valid, j, lane), valid


def _shfl(p: KernelPreparation, i: PtxInstruction) -> Step:
    mode = i.modifiers[1]
    target = i.operands[0]
    write = p.write(target.first if isinstance(target, Pair) else target)
    in_range = p.write(target.second) if isinstance(target, Pair) else None
    a = p.read(i.operands[1], "b32")
    b, c, members = (p.read(operand, "u32") for operand in i.operands[2:])

    def step(group: Group) -> None:
        mask = members(group)
        check_members(group, mask)
        lane = group.batch.threads["%laneid"][group.tids].astype(np.int64)
        j, valid = _source_lane(mode, lane, b(group).astype(np.int64), c(group).astype(np.int64))
        source = places_of_lanes(group)[group.batch.warp_of[group.tids], j]
        if (source < 0).any() or (mask >> j.astype(np.uint32) & np.uint32(1) == 0).any():
            bad = int(np.flatnonzero((source < 0) | (mask >> j.astype(np.uint32) & np.uint32(1) == 0))[0])
            raise KernelError(f"lane {int(lane[bad])} reads lane {int(j[bad])}, which does not take part")
        write(group, group.spread(a(group))[source])
        if in_range is not None:
            in_range(group, valid)

    return step


def per_warp(group: Group, values: Array, fill: object, function: Callable[[Array], Any]) -> Array:
    """Apply a function to the 32 values of each warp, `fill` for absent threads; return each thread's result."""
    places = places_of_lanes(group)
    spread = np.where(places >= 0, group.spread(values)[places], np.array(fill, values.dtype))
    each: Array = function(spread)
    return each[group.batch.warp_of[group.tids]]


_LANES = np.uint32(1) << np.arange(32, dtype=np.uint32)


def _ballot(values: Array) -> Array:
    return (values * _LANES).sum(1).astype(np.uint32)


def _vote(p: KernelPreparation, i: PtxInstruction) -> Step:
    mode = i.modifiers[1]
    a, members, write = p.read(i.operands[1], "pred"), p.read(i.operands[2], "u32"), p.write(i.operands[0])

    def step(group: Group) -> None:
        check_members(group, members(group))
        if mode == "all":
            write(group, per_warp(group, a(group), True, lambda v: v.all(1)))
        elif mode == "any":
            write(group, per_warp(group, a(group), False, lambda v: v.any(1)))
        elif mode == "uni":
            every = per_warp(group, a(group), True, lambda v: v.all(1))
            write(group, every | ~per_warp(group, a(group), False, lambda v: v.any(1)))
        else:
            write(group, per_warp(group, a(group), False, _ballot))

    return step


def _match(p: KernelPreparation, i: PtxInstruction) -> Step:
    target, every = i.operands[0], i.modifiers[0] == "all"
    write = p.write(target.first if isinstance(target, Pair) else target)
    same = p.write(target.second) if isinstance(target, Pair) else None
    a, members = p.read(i.operands[1], i.kind), p.read(i.operands[2], "u32")

    def step(group: Group) -> None:
        check_members(group, members(group))
        places = places_of_lanes(group)
        values = group.spread(a(group))
        rows = values[places][group.batch.warp_of[group.tids]]
        here = (places >= 0)[group.batch.warp_of[group.tids]]
        positions = _ballot((rows == values[:, None]) & here)
        if every:
            all_same = positions == _ballot(here)
            positions = np.where(all_same, positions, np.uint32(0))
            if same is not None:
                same(group, all_same)
        write(group, positions)

    return step


_REDUX = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
          "xor": np.bitwise_xor}  # fmt: skip


def _redux(p: KernelPreparation, i: PtxInstruction) -> Step:
    operation = i.modifiers[1]
    a, members, write = p.read(i.operands[1], i.kind), p.read(i.operands[2], "u32"), p.write(i.operands[0])
    info = np.iinfo(TYPES[i.kind])
    ones = -1 if info.min else info.max
    fill = {"add": 0, "min": info.max, "max": info.min, "and": ones, "or": 0, "xor": 0}[operation]
    ufunc = _REDUX[operation]

    def step(group: Group) -> None:
        check_members(group, members(group))
        write(group, per_warp(group, a(group), fill, lambda v: ufunc.reduce(v, 1, dtype=v.dtype)))

    return step


def _elect(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Choose one thread of each warp: the first one; the manual requires only that it is always the same."""
    target = i.operands[0]
    assert isinstance(target, Pair)
    write, chosen, members = p.write(target.first), p.write(target.second), p.read(i.operands[1], "u32")

    def step(group: Group) -> None:
        check_members(group, members(group))
        lane = group.batch.threads["%laneid"][group.tids]
        first = per_warp(group, lane, 32, lambda v: v.min(1))
        write(group, first)
        chosen(group, lane == first)

    return step


def _activemask(p: KernelPreparation, i: PtxInstruction) -> Step:
    write = p.write(i.operands[0])
    return lambda group: write(group, per_warp(group, np.ones(1, np.bool_), False, _ballot))


def _member_mask(position: int) -> WaitBuilder:
    """Return which threads wait for those in the mask of an operand."""

    def build(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
        return None, p.read(i.operands[position], "u32")

    return build


def whole_warps(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
    """Return which threads wait for all threads of their warp that have not ended."""
    return None, lambda group: group.batch.alive_lanes(group)


def _barrier(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
    modifiers = [m for m in i.modifiers if m not in ("cta", "aligned")]
    if i.guard is not None or modifiers not in (["sync"], ["arrive"]):
        raise KernelError(f"{i.opcode} is not known, or not with a predicate")
    number = p.read(i.operands[0], "u32")
    count = p.read(i.operands[1], "u32") if len(i.operands) > 1 else None
    waits = modifiers == ["sync"]

    def ending(group: Group) -> list[Group]:
        numbers = group.spread(number(group))
        counts = None if count is None else count(group)
        warps = group.tids // 32
        if (numbers[1:] != numbers[:-1])[warps[1:] == warps[:-1]].any() or (counts is not None and np.ptp(counts)):
            raise KernelError("threads of a warp come to different barriers in one instruction")
        wanted = None if counts is None else int(counts[0])
        going: list[Group] = []
        for one in np.unique(numbers):
            mine = numbers == one
            part = group if mine.all() else group.part(mine, group.batch.kernel.blocks[then].live, group.at)
            going += group.batch.barriers.arrive(part, int(one), wanted, then, waits)
        return going

    return ending, whole_warps(p, i, then)[1]


def warp_barrier(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
    """Execute `bar.warp.sync`: threads wait for those in the mask of the operand."""
    return None, p.read(i.operands[0], "u32")


WARP: dict[str, Builder] = {"shfl": _shfl, "vote": _vote, "match": _match, "redux": _redux, "elect": _elect,
                            "activemask": _activemask}  # fmt: skip
WAITS: dict[str, WaitBuilder] = {
    "shfl": _member_mask(4), "vote": _member_mask(2), "match": _member_mask(2), "redux": _member_mask(2),
    "elect": _member_mask(1), "bar": _barrier, "barrier": _barrier,
}  # fmt: skip
