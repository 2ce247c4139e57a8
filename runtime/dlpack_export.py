"""DLPack capsules of Mirlo's own memory, as returned by `__dlpack__` of device arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from mirlo.runtime.dlpack import (
    UNVERSIONED,
    VERSIONED,
    DLDevice,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLTensor,
    data_type_of,
)
from mirlo.runtime.dtypes import ArrayDType

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
