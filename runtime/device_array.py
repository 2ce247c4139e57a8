"""Arrays on a device: results that stay there, and zero-copy inputs of other libraries.

Their `__dlpack__` returns DLPack capsules of Mirlo's own memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mirlo.runtime.artifact import describe
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.dlpack import (
    UNVERSIONED,
    VERSIONED,
    DLDevice,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackError,
    DLTensor,
    data_type_of,
    element_of,
    is_on_cpu,
    tensor_of,
)
from mirlo.runtime.dtypes import ELEMENT_TYPES, ArrayDType, element_type_of, numpy_dtype
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt


CUDA = 2
"""DLPack's device type of NVIDIA GPUs."""
LEGACY_STREAM, NO_STREAM = 1, -1
"""DLPack's default stream, and its marker for no synchronization."""


class DeviceMemory(Protocol):
    """A block of device memory; the loader that allocated it frees it with the last reference."""

    address: int
    device: tuple[int, int]
    """DLPack's device type, and the device number."""
    stream: int
    """The stream of the work that writes the memory."""

    def order_before_stream(self, stream: int) -> None:
        """Make later work on this stream wait until the memory is written."""

    def read(self, target: int, size: int) -> None:
        """Copy bytes to CPU memory once they are written."""


class DeviceArray:
    """An array on a device, which owns its memory.

    Libraries take it without a copy: `torch.from_dlpack(y)`, `cupy.from_dlpack(y)`, `jax.dlpack.from_dlpack(y)`; it
    has `__cuda_array_interface__` as well. `numpy()` copies it.
    """

    def __init__(self, shape: Sequence[int], dtype: str, memory: DeviceMemory) -> None:
        self.shape = tuple(shape)
        self.memory = memory
        self._element = ELEMENT_TYPES[dtype]

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self._element.name)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self._element.bytes

    @property
    def device(self) -> str:
        """Return the name of the device: `cuda:0`."""
        return f"cuda:{self.memory.device[1]}"

    def numpy(self, out: np.ndarray | None = None) -> np.ndarray:
        """Return a copy in CPU memory; `out` is a contiguous array to write it to."""
        result = empty_aligned(self.dtype, self.shape) if out is None else out
        if self.nbytes:
            self.memory.read(result.__array_interface__["data"][0], self.nbytes)
        return result

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"an array on {self.device} cannot be a numpy array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule; work on the consumer's `stream` waits until the array is written."""
        if dl_device is not None and tuple(dl_device) != self.memory.device:
            raise BufferError(f"the array is on {self.device}, not on DLPack device {tuple(dl_device)}: use numpy()")
        if copy:
            raise BufferError("the array cannot be copied on export: copy the result of from_dlpack")
        wanted = LEGACY_STREAM if stream is None else int(stream)
        if wanted == 0:
            raise BufferError("stream 0 may mean two streams: 1 is the legacy default stream, 2 that of the thread")
        if wanted != NO_STREAM:
            self.memory.order_before_stream(wanted)
        versioned = max_version is not None and max_version[0] >= 1
        return capsule_of(self.memory.address, self.memory.device, self.shape, self._element, self, versioned)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.dtype.isbuiltin != 1:
            raise AttributeError(f"CUDA's array interface has no {self._element.name}: take the array by DLPack")
        return {
            "version": 3, "shape": self.shape, "typestr": self.dtype.str, "strides": None,
            "data": (self.memory.address, False), "stream": self.memory.stream,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<DeviceArray {describe(self._element.name, self.shape)} on {self.device}>"


@dataclass(frozen=True)
class DeviceView:
    """Device memory passed in by a caller."""

    address: int
    device: tuple[int, int]
    dtype: str
    shape: tuple[int, ...]
    is_contiguous: bool
    read_only: bool
    owner: object
    """The object that keeps the memory alive."""
    stream: int | None = None
    """A stream to wait for before the memory is used, if the producer does not synchronize."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_TYPES[self.dtype].bytes

    def overlaps(self, other: DeviceView) -> bool:
        """Return whether the views share memory."""
        here, there = self.address, other.address
        return here < there + other.nbytes and there < here + self.nbytes


def is_on_device(value: object) -> bool:
    """Return whether an object is an array on a device other than the CPU."""
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "__dlpack_device__"):
        return not is_on_cpu(int(value.__dlpack_device__()[0]))
    return hasattr(value, "__cuda_array_interface__")


def view_of(value: Any, stream: int) -> DeviceView:
    """Return a view of the device memory of another library's object; its producer makes `stream` wait for it."""
    if not hasattr(value, "__dlpack__"):
        return _view_of_interface(value.__cuda_array_interface__, value)
    tensor, owner, read_only = tensor_of(value, stream=stream)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    device = (int(tensor.device.device_type), int(tensor.device.device_id))
    contiguous = _is_contiguous(shape, strides)
    return DeviceView(address, device, element_of(tensor).name, shape, contiguous, read_only, (owner, value))


def _view_of_interface(interface: dict[str, Any], owner: object) -> DeviceView:
    dtype = np.dtype(interface["typestr"])
    element = element_type_of(dtype)
    if element is None or not dtype.isnative:
        raise DLPackError(f"its type {interface['typestr']} is not an element type")
    address, read_only = interface["data"]
    shape, steps = tuple(interface["shape"]), interface.get("strides")
    strides = None if steps is None else tuple(step / dtype.itemsize for step in steps)
    if interface.get("mask") is not None:
        raise DLPackError("it has a mask")
    # The interface does not name the device; the loader asks the driver, by address.
    return DeviceView(
        address or 0, (CUDA, -1), element.name, shape, _is_contiguous(shape, strides), bool(read_only), owner,
        interface.get("stream"),
    )  # fmt: skip


def _is_contiguous(shape: Sequence[int], strides: Sequence[float] | None) -> bool:
    step = 1
    if strides is None or 0 in shape:
        return True
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != step:
            return False
        step *= dim
    return True


_exported: dict[int, tuple[object, ...]] = {}
"""Exported tensors by address, each with the owner of its memory."""


def capsule_of(
    address: int, device: tuple[int, int], shape: Sequence[int], element: ArrayDType, owner: object, versioned: bool
) -> object:
    """Return a capsule over contiguous memory; `owner` lives until the consumer calls the deleter."""
    dims = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))()
    step = 1
    for axis in reversed(range(len(shape))):
        steps[axis] = step
        step *= max(shape[axis], 1)
    tensor = DLTensor(
        data=address, device=DLDevice(*device), ndim=len(shape), dtype=data_type_of(element), shape=dims,
        strides=steps, byte_offset=0,
    )  # fmt: skip
    deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    managed = (
        DLManagedTensorVersioned(1, 0, None, deleter, 0, tensor)
        if versioned
        else DLManagedTensor(tensor, None, deleter)
    )
    place = ctypes.addressof(managed)
    _exported[place] = (managed, dims, steps, owner)
    return _new_capsule(place, VERSIONED if versioned else UNVERSIONED, _destructor)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _deleter(place: int) -> None:
    _exported.pop(place, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destructor(capsule: int) -> None:
    # A consumer renames the capsule, and calls the deleter of the tensor.
    for name in (VERSIONED, UNVERSIONED):
        if _is_named(capsule, name):
            _exported.pop(_pointer_of(capsule, name), None)


_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, type(_destructor))(
    ("PyCapsule_New", _api)
)
# A capsule that is being destroyed must not be referenced, so its address is passed as an integer.
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
