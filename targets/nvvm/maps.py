"""Tensor maps: descriptors of tensors for the copy engine, encoded by the driver and passed to kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from mirlo.targets.nvvm.device import CudaError, check

if TYPE_CHECKING:
    from mirlo.targets.gpu.commands import MapArgument

FORMATS = {
    "s8": ("UINT8", 0), "u8": ("UINT8", 0), "e4m3": ("UINT8", 0), "e5m2": ("UINT8", 0), "f16": ("FLOAT16", 6),
    "bf16": ("BFLOAT16", 9), "tf32": ("TFLOAT32", 11),
}  # fmt: skip
"""`CUtensorMapDataType` by program format. Copies round f32 to `TFLOAT32`."""
PERMUTED_128, PROMOTED_256 = 3, 3
"""`CUtensorMapSwizzle` and `CUtensorMapL2promotion`: the only ones that kernels support."""
BYTES, ALIGNMENT = 128, 128
_SINCE = 12000
"""The CUDA version that introduced them."""
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32),
    *[ctypes.c_int] * 4,
)  # fmt: skip


class Encoded:
    """A tensor map aligned to 128 bytes, as CUDA 13 requires; the bindings' own objects are not."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_char * (BYTES + ALIGNMENT))()
        self._address = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT

    def getPtr(self) -> int:  # noqa: N802
        """Return its address; launches call this name."""
        return self._address


def encode(cuda: ModuleType, described: MapArgument, address: int) -> Encoded:
    """Encode the map of a tensor at an address, as the program of a model describes it."""
    result = Encoded()
    dims, strides, box = described["dims"], described["strides"], described["box"]
    rank = len(dims)
    _, number = FORMATS[described["format"]]
    status = _function(cuda)(
        result.getPtr(), number, rank, address, (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * max(rank - 1, 1))(*strides), (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank), 0, PERMUTED_128, PROMOTED_256, 0,
    )  # fmt: skip
    if status:
        raise CudaError(f"describing a tensor of {dims} to the GPU's copying engine failed: CUDA error {status}")
    return result


def _function(cuda: ModuleType) -> Callable[..., int]:
    address, _ = check(cuda.cuGetProcAddress(b"cuTensorMapEncodeTiled", _SINCE, 0), "finding the driver's tensor maps")
    if not address:
        raise CudaError("the CUDA driver is older than 12.0 and has no tensor maps: install a newer one")
    return _ENCODE(int(address))
