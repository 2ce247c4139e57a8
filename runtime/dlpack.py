"""DLPack: its C structures, and zero-copy conversion of arrays."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from mirlo.runtime.dtypes import ArrayDType, element_type_of, element_type_of_dlpack, numpy_dtype

_CPU_DEVICES = {1: "cpu", 3: "cuda_host", 11: "rocm_host"}
_DEVICE_NAMES = {**_CPU_DEVICES, 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda_managed"}
READ_ONLY = 1
"""Flag of a versioned tensor that must not be written."""
UNVERSIONED, VERSIONED = b"dltensor", b"dltensor_versioned"
"""Names of capsules that are not consumed."""


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


class DLPackError(ValueError):
    """A DLPack tensor that cannot be converted to an array; the message says why."""


class DLPackProducer(Protocol):
    """An array of another library, as DLPack passes it."""

    def __dlpack__(self, **how: Any) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def array_of_tensor(tensor: DLTensor, owner: object = None, read_only: bool = False) -> np.ndarray:
    """Return an array over the memory of a tensor; it keeps `owner` alive."""
    if tensor.device.device_type not in _CPU_DEVICES:
        raise DLPackError(f"it is on device '{device_name(tensor.device.device_type)}'; move it to the CPU first")
    element = element_of(tensor)
    dtype = numpy_dtype(element.name)
    shape = tuple(tensor.shape[: tensor.ndim])
    if 0 in shape:
        return np.empty(shape, dtype)
    if not tensor.data:
        raise DLPackError("its memory is at address 0")
    if any(dim < 0 for dim in shape):
        raise DLPackError(f"its shape is {list(shape)}")
    strides = tuple(step * element.bytes for step in tensor.strides[: tensor.ndim]) if tensor.strides else None
    memory = _Memory((tensor.data or 0) + tensor.byte_offset, shape, strides, element.bytes, read_only, owner)
    array = np.asarray(memory)
    return array if array.dtype == dtype else array.view(dtype)


def element_of(tensor: DLTensor) -> ArrayDType:
    """Return the element type of a tensor."""
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    element = element_type_of_dlpack(code, bits) if lanes == 1 else None
    if element is None:
        raise DLPackError(f"its DLPack type (code {code}, {bits} bits, {lanes} lanes) is not an element type")
    return element


def from_dlpack(value: DLPackProducer) -> np.ndarray:
    """Return an array over the memory of an object with `__dlpack__`, of any element type (numpy's own lacks bf16)."""
    device, _ = value.__dlpack_device__()
    if device not in _CPU_DEVICES:
        raise DLPackError(f"it is on device '{device_name(device)}'; move it to the CPU first")
    tensor, owner, read_only = tensor_of(value)
    return array_of_tensor(tensor, owner, read_only)


def is_on_cpu(device: int) -> bool:
    """Return whether a DLPack device is CPU memory."""
    return device in _CPU_DEVICES


def tensor_of(value: DLPackProducer, **how: object) -> tuple[DLTensor, object, bool]:
    """Return the tensor of `__dlpack__`, its owner, and whether it is read-only.

    `how` is passed on: for example `stream` for memory on a GPU.
    """
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **how)
    except TypeError:  # a producer from before DLPack 1.0
        capsule = value.__dlpack__(**how)
    # The capsule is kept, not consumed: its destructor frees the tensor with the last array over it.
    if is_capsule(capsule, VERSIONED):
        versioned = DLManagedTensorVersioned.from_address(_get_pointer(capsule, VERSIONED))
        if versioned.major != 1:
            raise DLPackError(f"its DLPack version is {versioned.major}.{versioned.minor}; versions 0 and 1 are known")
        return versioned.dl_tensor, capsule, bool(versioned.flags & READ_ONLY)
    if is_capsule(capsule, UNVERSIONED):
        return DLManagedTensor.from_address(_get_pointer(capsule, UNVERSIONED)).dl_tensor, capsule, False
    raise DLPackError("its __dlpack__ gave no DLPack capsule")


def data_type_of(element: ArrayDType) -> DLDataType:
    """Return the DLPack data type of an element type."""
    # DLPack packs types narrower than 8 bits; Mirlo stores and exports them as whole bytes.
    code = element.dlpack_code if element.dlpack_code is not None else int(element.name.startswith("u"))
    return DLDataType(code, element.dlpack_bits, 1)


def tensor_of_array(array: np.ndarray) -> DLTensor:
    """Return a tensor over the memory of an array, which the structure keeps alive."""
    element = element_type_of(array.dtype)
    if element is None:
        raise DLPackError(f"numpy type {array.dtype} is not an element type")
    dims = ctypes.c_int64 * array.ndim
    tensor = DLTensor(
        data=array.ctypes.data,
        device=DLDevice(1, 0),
        ndim=array.ndim,
        dtype=data_type_of(element),
        shape=dims(*array.shape),
        strides=dims(*(step // array.itemsize for step in array.strides)),
        byte_offset=0,
    )
    tensor.array = array
    return tensor


class _Memory:
    """Foreign memory as numpy's array interface; numpy keeps this object, and so the owner, alive."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        itemsize: int,
        read_only: bool,
        owner: object,
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, read_only),
            "shape": shape,
            "strides": strides,
            "typestr": "|u1" if itemsize == 1 else f"<u{itemsize}",
        }


def device_name(device: int) -> str:
    """Return the name of a device type for messages."""
    return _DEVICE_NAMES.get(device, f"DLPack device {device}")


_api = ctypes.pythonapi
is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
