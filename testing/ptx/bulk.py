"""Copies of boxes by tensor maps: `cp.async.bulk.tensor`, section 9.7.9.27 of the PTX manual.

A copy comes as late as it may: when no thread can go on without it. What is read before has not come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.convert import round_tf32_even
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.memory import BY_COPY, UNDER_WAY
from mirlo.testing.ptx.prepare import KernelPreparation, Step
from mirlo.testing.ptx.tensormap import BYTES, SWIZZLE_128, SWIZZLE_NONE, TFLOAT32, EncodedMap, unpacked
from mirlo.testing.ptx.text import Bracket, PtxInstruction
from mirlo.testing.ptx.types import Array


@dataclass
class _Copy:
    block: int
    target: int
    bytes: Array
    swizzle: int
    barrier: int


class BulkCopies:
    """Boxes that are on their way."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._under_way: list[_Copy] = []

    def start(self, block: int, target: int, box: EncodedMap, coordinates: list[int], barrier: int, warp: int) -> None:
        """Begin to copy a box."""
        if target % 128 or barrier % 8:
            raise KernelError(f"a box is copied to {target}, its barrier is at {barrier}: expected multiples of 128, 8")
        result = _Copy(block, target, self.read(box, coordinates), box.swizzle, barrier)
        self._batch.mbarriers.state((block, barrier))
        places = self._places(result)
        self._batch.shared.mark(places, 1, UNDER_WAY)
        if self._batch.races is not None:
            self._batch.races.write(np.full(len(places), warp), places, None)
        self._under_way.append(result)

    def read(self, box: EncodedMap, coordinates: list[int]) -> Array:
        """Return the bytes of a box; bytes outside of the tensor are zero."""
        inside, offset = np.ones(box.box, np.bool_).T, np.zeros(box.box, np.int64).T
        for axis, (size, first) in enumerate(zip(box.box, coordinates, strict=True)):
            index = first + np.arange(size)
            stride = box.element if axis == 0 else box.strides[axis - 1]
            shape = [1] * len(box.box)
            shape[-1 - axis] = size
            inside = inside & ((index >= 0) & (index < box.dims[axis])).reshape(shape)
            offset = offset + (index * stride).reshape(shape)
        result = np.zeros(inside.shape, f"u{box.element}")
        if inside.any():
            addresses = (box.address + offset[inside]).astype(np.uint64)
            result[inside] = self._batch.memory.load(addresses, box.element)
        if box.kind == TFLOAT32 and self._batch.kernel.residues is None:
            result = round_tf32_even(result.view(np.float32)).view(np.uint32)
        return np.ascontiguousarray(result).reshape(-1).view(np.uint8)

    def _places(self, copy: _Copy) -> Array:
        """Return the places of the bytes, counted from the shared memory of the first block."""
        shared = self._batch.shared
        if copy.target + len(copy.bytes) > shared.size:
            raise KernelError(f"a box goes to {copy.target}, beyond the {shared.size} bytes of shared memory")
        at = copy.target + np.arange(len(copy.bytes))
        if copy.swizzle == SWIZZLE_128:
            at ^= (at >> 7 & 7) << 4
        elif copy.swizzle != SWIZZLE_NONE:
            raise KernelError(f"swizzle {copy.swizzle} is not known")
        return copy.block * shared.stride + at

    def finish(self) -> bool:
        """Complete all copies; return whether there were any."""
        copies, self._under_way = self._under_way, []
        for copy in copies:
            places = self._places(copy)
            self._batch.shared.put(places, copy.bytes, 1, BY_COPY)
            races = self._batch.races
            if races is not None:
                races.write_of_copy(places)
                races.leave((copy.block, copy.barrier), np.array([races.copies]))
            self._batch.mbarriers.copied((copy.block, copy.barrier), len(copy.bytes))
        return bool(copies)


def copy_box(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Copy a box from global to shared memory of one or several blocks of a cluster."""
    if p.version < (9, 0):
        raise PtxError("cp.async.bulk needs sm_90")
    known = ("async", "bulk", "tensor", "shared::cluster", "shared::cta", "global", "tile",
             "mbarrier::complete_tx::bytes", "multicast::cluster")  # fmt: skip
    rank = next((int(m[0]) for m in i.modifiers if m in ("1d", "2d", "3d", "4d", "5d")), 0)
    if not rank or any(m not in known and m[1:] != "d" for m in i.modifiers) or i.modifiers.index("global") < 4:
        raise PtxError(f"'{i.opcode}' is not known")
    multicast = i.has("multicast::cluster")
    if multicast and p.target != "sm_90a" and p.version < (10, 0):
        raise PtxError("multicast is slow on anything but sm_90a")
    target, source, barrier = p.address(i.operands[0]), i.operands[1], p.address(i.operands[2])
    if not isinstance(source, Bracket):
        raise PtxError("expected a tensor map and coordinates")
    described = p.read(source.parts[0], "u64")
    coordinates = [p.read(part, "s32") for part in p.parts(source.parts[1])]
    mask = p.read(i.operands[3], "u16") if multicast else None
    if len(coordinates) != rank:
        raise PtxError(f"{rank} coordinates are expected")

    def step(group: Group) -> None:
        batch = group.batch
        own = batch.block_of(group).tolist()
        blocks, offsets = batch.in_cluster(group, group.spread(target(group)))
        _, places = batch.in_cluster(group, group.spread(barrier(group)))
        maps = group.spread(described(group)).tolist()
        where = [group.spread(read(group)).tolist() for read in coordinates]
        masks = [0] * group.size if mask is None else group.spread(mask(group)).tolist()
        for n in range(group.size):
            box = _map_at(group, maps[n])
            if len(box.dims) != rank:
                raise KernelError(f"the tensor map has {len(box.dims)} dims")
            first = own[n] // batch.cluster * batch.cluster
            chosen = [int(blocks[n])]
            if mask is not None:
                chosen = [first + rank_ for rank_ in range(16) if masks[n] >> rank_ & 1]
                if max(chosen, default=0) >= first + batch.cluster or not chosen:
                    raise KernelError(f"mask {masks[n]:#x} of a cluster of {batch.cluster} blocks")
            for block in chosen:
                batch.bulk.start(
                    block,
                    int(offsets[n]),
                    box,
                    [axis[n] for axis in where],
                    int(places[n]),
                    int(batch.warp_of[group.tids[n]]),
                )

    return step


def _map_at(group: Group, address: int) -> EncodedMap:
    """Return the map at a generic address, which is one of a parameter's."""
    parameters = group.batch.params
    if address % 64 or address + BYTES > len(parameters):
        raise KernelError(f"there is no tensor map at {address:#x}")
    return unpacked(parameters[address : address + BYTES])
