"""Arrays of another library on the GPUs of the fake driver, with separate streams."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mirlo.runtime.device_array import capsule_of
from mirlo.runtime.dlpack import element_of, tensor_of
from mirlo.runtime.dtypes import element_type_of
from mirlo.testing.ptx.fake_cuda import FakeDriver


class Foreign:
    """An array that a stream of its library writes when it gets to it."""

    def __init__(self, driver: FakeDriver, data: np.ndarray, stream: int = 7, gpu: int = 0, skip: int = 0) -> None:
        self.driver, self.stream, self.gpu, self.data = driver, stream, gpu, data
        context, driver.context = driver.context, gpu + 1
        self.base = driver.cuMemAlloc(data.nbytes + skip)[1]
        driver.context = context
        self.address = self.base + skip
        source = np.ascontiguousarray(data)
        self.freed = False

        def write() -> None:
            ctypes.memmove(self.address, source.ctypes.data, source.nbytes)

        driver.streams.add(stream, write)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.gpu)

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        self.driver.cuStreamWaitEvent(stream, self._event(), 0)
        element = element_type_of(self.data.dtype)
        assert element is not None
        return capsule_of(self.address, (2, self.gpu), self.data.shape, element, self, max_version is not None)

    def _event(self) -> dict[str, Any]:
        event: dict[str, Any] = {}
        self.driver.cuEventRecord(event, self.stream)
        return event

    def numpy(self) -> np.ndarray:
        """Return the content when its library's stream is done."""
        self.driver.streams.run(self.stream)
        return self.bytes_now()

    def bytes_now(self) -> np.ndarray:
        held = (ctypes.c_char * self.data.nbytes).from_address(self.address)
        return np.frombuffer(bytes(held), self.data.dtype).reshape(self.data.shape)


class Interfaced:
    """The same array by CUDA's array interface only."""

    def __init__(self, array: Foreign, names_stream: bool = True) -> None:
        self._array = array
        self._names_stream = names_stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = self._array.data
        return {
            "version": 3, "shape": data.shape, "typestr": data.dtype.str, "data": (self._array.address, False),
            "strides": None, "stream": self._array.stream if self._names_stream else None,
        }  # fmt: skip


def taken(driver: FakeDriver, array: Any, stream: int) -> list[np.ndarray]:
    """Return what another library reads of an array passed to its stream, when the stream reaches it."""
    tensor, owner, _ = tensor_of(array, stream=stream)
    found: list[np.ndarray] = []
    address, shape = tensor.data, tuple(tensor.shape[: tensor.ndim])
    dtype = np.dtype(element_of(tensor).numpy_name)

    def read() -> None:
        held = (ctypes.c_char * (int(np.prod(shape)) * dtype.itemsize)).from_address(address)
        found.append(np.frombuffer(bytes(held), dtype).reshape(shape))

    driver.streams.add(stream, read)
    # The owner is let go of at once: libraries free memory while their streams are still at work.
    del owner
    return found
