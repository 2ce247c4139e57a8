"""Tensor maps: what `cuTensorMapEncodeTiled` writes into 128 bytes, in an encoding of the emulator's own.

The driver's checks are those that its manual lists.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError

BYTES = 128
_MAGIC = 0x50414D54
_FORM = struct.Struct("<IIIIQ5Q4Q5H")
SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
"""Bytes of an element, by `CUtensorMapDataType`."""
TFLOAT32 = 11
SWIZZLE_NONE, SWIZZLE_128 = 0, 3
_INVALID = 1


@dataclass(frozen=True)
class EncodedMap:
    """A tensor, and the box of it that is copied at a time; sizes begin with the contiguous dim."""

    kind: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, of all dims but the first."""
    box: tuple[int, ...]
    swizzle: int

    @property
    def element(self) -> int:
        """Return the bytes of an element."""
        return SIZES[self.kind]

    @property
    def box_bytes(self) -> int:
        """Return the bytes of a box, elements outside of the tensor included."""
        return int(np.prod(self.box)) * self.element

    def packed(self) -> bytes:
        """Return the map as 128 bytes."""
        rank = len(self.dims)
        padded = [*self.dims, *[1] * (5 - rank), *self.strides, *[0] * (5 - rank)]
        result = _FORM.pack(_MAGIC, self.kind, rank, self.swizzle, self.address, *padded, *self.box, *[1] * (5 - rank))
        return result.ljust(BYTES, b"\0")


def unpacked(data: bytes) -> EncodedMap:
    """Unpack the 128 bytes of a tensor map."""
    magic, kind, rank, swizzle, address, *rest = _FORM.unpack_from(data)
    if magic != _MAGIC:
        raise KernelError("there is no tensor map")
    dims, strides, box = rest[:5], rest[5:9], rest[9:]
    return EncodedMap(kind, address, tuple(dims[:rank]), tuple(strides[: rank - 1]), tuple(box[:rank]), swizzle)


def encode(
    target: int, kind: int, rank: int, address: int, dims: Any, strides: Any, box: Any, steps: Any, *rest: int
) -> tuple[int, EncodedMap | None]:
    """Return what the driver does: `CUresult` and the tensor map."""
    interleave, swizzle, promotion, fill = rest
    if kind not in SIZES or not 1 <= rank <= 5 or target % 64 or address % 16:
        return _INVALID, None
    if interleave != 0 or swizzle not in (0, 1, 2, 3) or promotion not in (0, 1, 2, 3) or fill not in (0, 1):
        return _INVALID, None
    result = EncodedMap(kind, address, tuple(dims[:rank]), tuple(strides[: rank - 1]), tuple(box[:rank]), swizzle)
    inner = result.box[0] * result.element
    wrong = (
        any(not 0 < dim <= 1 << 32 for dim in result.dims)
        or any(stride % 16 or not 0 < stride < 1 << 40 for stride in result.strides)
        or any(not 0 < size <= 256 for size in result.box)
        or any(not 1 <= steps[i] <= 8 for i in range(rank))
        or inner % 16 != 0
        or (swizzle != SWIZZLE_NONE and inner > 16 << swizzle)
    )
    return (_INVALID, None) if wrong else (0, result)
