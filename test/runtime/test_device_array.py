"""Arrays on a device, without one: capsules and interfaces of memory that only has an address."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from mirlo.runtime import device_array
from mirlo.runtime.device_array import DeviceArray, DeviceView, is_on_device, view_of
from mirlo.runtime.dlpack import DLPackError
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype

SHAPES = ((), (3,), (2, 0, 4), (2, 3, 4), (1, 5, 1))

BYTES = {"i4": "i8", "u4": "u8", "i2": "i8", "u2": "u8", "f4e2m1": "i8"}
"""Types that DLPack packs, and of what type their bytes are exported."""


class Memory:
    """Host memory that pretends to be on a GPU, and records what is asked of it."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (2, 1)) -> None:
        self.array, self.device, self.stream = array, device, 7
        self.address = array.__array_interface__["data"][0]
        self.waiting: list[int] = []

    def order_before_stream(self, stream: int) -> None:
        self.waiting.append(stream)

    def read(self, target: int, size: int) -> None:
        assert size == self.array.nbytes
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * size).from_address(target))[:] = np.frombuffer(
            self.array.tobytes(), np.uint8
        )


def _array(shape: tuple[int, ...] = (2, 3), dtype: str = "f32") -> DeviceArray:
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(numpy_dtype(dtype))
    return DeviceArray(shape, dtype, Memory(values))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_capsule_is_read_as_the_array_that_it_is_of(shape: tuple[int, ...]) -> None:
    for dtype in ELEMENT_TYPES:
        array = _array(shape, dtype)
        view = view_of(array, 5)
        expected = (array.memory.address, (2, 1), BYTES.get(dtype, dtype), shape, True, False)
        found = (view.address, view.device, view.dtype, view.shape, view.is_contiguous, view.read_only)
        assert found == expected
        assert view.nbytes == array.nbytes == array.memory.array.nbytes and array.ndim == len(shape)
        assert array.memory.waiting == [5] and is_on_device(array)
        assert (array.numpy().dtype, array.numpy().tobytes()) == (array.dtype, array.memory.array.tobytes())


def test_what_is_exported_lives_as_long_as_its_capsule() -> None:
    gc.collect()
    before = len(device_array._exported)
    capsules = [_array().__dlpack__(max_version=version) for version in (None, (0, 8), (1, 0), (1, 1), (2, 0))]
    assert ["versioned" in repr(capsule) for capsule in capsules] == [False, False, True, True, True]
    assert len(device_array._exported) == before + 5
    del capsules
    assert len(device_array._exported) == before
    view = view_of(_array(), 3)
    assert len(device_array._exported) == before + 1
    del view
    gc.collect()
    assert len(device_array._exported) == before


def test_streams_of_consumers() -> None:
    array = _array()
    for stream in (None, 1, -1, 2, 9):
        array.__dlpack__(stream=stream)
    assert array.memory.waiting == [1, 1, 2, 9]
    with pytest.raises(BufferError, match="stream 0 may mean two streams"):
        array.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="cannot be copied on export"):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="the array is on cuda:1, not on DLPack device"):
        array.__dlpack__(dl_device=(1, 0))
    array.__dlpack__(dl_device=(2, 1), copy=False)


def test_arrays_of_numpy_are_copies() -> None:
    array = _array((2, 3), "i32")
    assert np.asarray(array).dtype == np.int32 and np.asarray(array, np.float32).dtype == np.float32
    out = np.empty((2, 3), np.int32)
    assert array.numpy(out) is out and out.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="without a copy"):
        array.__array__(copy=False)
    assert repr(array) == "<DeviceArray i32[2, 3] on cuda:1>"
    interface = array.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["stream"]) == ((2, 3), "<i4", 7)
    assert interface["data"] == (array.memory.address, False) and interface["strides"] is None
    with pytest.raises(AttributeError, match="has no bf16"):
        _ = _array((2,), "bf16").__cuda_array_interface__


class Foreign:
    """An object of another library that has CUDA's array interface only."""

    def __init__(self, **fields: Any) -> None:
        self.__cuda_array_interface__ = {"typestr": "<f4", "data": (4096, False), "shape": (2, 3), **fields}


@pytest.mark.parametrize(
    ("shape", "strides", "is_contiguous"),
    [
        ((2, 3), None, True), ((2, 3), (12, 4), True), ((2, 3), (4, 8), False), ((2, 3), (16, 4), False),
        ((1, 3), (99, 4), True), ((2, 0), (4, 4), True), ((2, 1), (4, 99), True), ((), (), True), ((2,), (6,), False),
    ],
)  # fmt: skip
def test_views_of_the_interface(shape: tuple[int, ...], strides: Any, is_contiguous: bool) -> None:
    foreign = Foreign(shape=shape, strides=strides, stream=3, data=(4096, True))
    assert is_on_device(foreign)
    assert view_of(foreign, 5) == DeviceView(4096, (2, -1), "f32", shape, is_contiguous, True, foreign, 3)


def test_interfaces_that_are_refused() -> None:
    for fields, message in (
        ({"typestr": ">f4"}, "its type >f4 is not"), ({"typestr": "<M8"}, "is not an element"), ({"mask": 1}, "mask"),
    ):  # fmt: skip
        with pytest.raises(DLPackError, match=message):
            view_of(Foreign(**fields), 5)
    assert view_of(Foreign(data=(None, False)), 5).address == 0
    assert not is_on_device(np.zeros(3)) and not is_on_device([3])


def test_views_that_overlap() -> None:
    def view(address: int, size: int) -> DeviceView:
        return DeviceView(address, (2, 0), "u8", (size,), True, False, None)

    near = [view(100 + first, size) for first in range(4) for size in range(1, 4)]
    for a in near:
        for b in near:
            shared = range(max(a.address, b.address), min(a.address + a.nbytes, b.address + b.nbytes))
            assert a.overlaps(b) == bool(shared)
