"""Plans instantiated on GPUs: constants and intermediate values in memory, the library's handle, calls in order.

Shared by the loaders of NVIDIA's libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol

import numpy as np

from mirlo.runtime.external import ExternalFunctions
from mirlo.runtime.locks import make_lock
from mirlo.targets.nvvm.device import Gpu, check
from mirlo.targets.nvvm.device_functions import on_gpu
from mirlo.targets.nvvm.library_plan import LibraryRegion, LibraryStep
from mirlo.targets.nvvm.memory import allocate

if TYPE_CHECKING:
    from ctypes import c_void_p


class LibraryCall(Protocol):
    """One step, with the library's descriptors."""

    def start(self, place: DeviceState, address: Callable[[int], int], stream: int) -> None:
        """Enqueue the step on a stream; values are looked up by number."""

    def release(self) -> None:
        """Destroy the descriptors."""


class DeviceState:
    """The state of a program on one GPU."""

    def __init__(self, gpu: Gpu, handle: c_void_p, close: Callable[[c_void_p], None]) -> None:
        self.gpu = gpu
        self.handle = handle
        """The library's handle for this GPU."""
        self._close = close
        self._memories: list[int] = []
        self._made: dict[str | tuple[str, int | str], int] = {}

    def memory(self, key: str | tuple[str, int | str], size: int) -> int:
        """Return memory for one purpose, allocated on first use."""
        if key not in self._made:
            self._made[key] = allocate(self.gpu, size)
            self._memories.append(self._made[key])
        return self._made[key]

    def constant(self, key: str | tuple[str, int | str], array: np.ndarray) -> int:
        """Return the GPU address of a constant, copied on first use."""
        if key in self._made:
            return self._made[key]
        held = np.ascontiguousarray(array)
        address = self.memory(key, held.nbytes)
        copied = self.gpu.cuda.cuMemcpyHtoD(address, held.__array_interface__["data"][0], held.nbytes)
        check(copied, "copying to the GPU")
        check(self.gpu.cuda.cuCtxSynchronize(), "copying to the GPU")
        return address

    def release(self) -> None:
        """Release everything."""
        with self.gpu.entered():
            for address in self._memories:
                self.gpu.cuda.cuMemFree(address)
            self._close(self.handle)


class LibraryProgram(Generic[LibraryStep]):
    """The functions of a plan, and their state on each GPU that called them."""

    def __init__(
        self,
        functions: Sequence[LibraryRegion[LibraryStep]],
        params: Mapping[str, np.ndarray],
        make_call: Callable[[LibraryStep], LibraryCall],
        open_handle: Callable[[], c_void_p],
        close_handle: Callable[[c_void_p], None],
    ) -> None:
        self._functions = functions
        self._params = params
        self._make_call, self._open, self._close = make_call, open_handle, close_handle
        self._lock = make_lock()
        self._places: dict[int, DeviceState] = {}
        self._calls: dict[str, list[LibraryCall]] = {}

    def functions(self) -> ExternalFunctions:
        """Return a loader's result. The first call loads the library, so a model can be saved without it."""
        return on_gpu({f.name: partial(self._run, f) for f in self._functions}, self, self.release)

    def _run(self, function: LibraryRegion[LibraryStep], gpu: Gpu, stream: int, tensors: Sequence[int]) -> None:
        with self._lock:
            if function.name not in self._calls:
                self._calls[function.name] = [self._make_call(step) for step in function.steps]
            if gpu.number not in self._places:
                self._places[gpu.number] = DeviceState(gpu, self._open(), self._close)
            place = self._places[gpu.number]

            def address(number: int) -> int:
                key = str(number)
                if number < len(tensors):
                    return tensors[number]
                if key in function.constants:
                    name = function.constants[key]
                    return place.constant(("constant", name), self._params[name])
                return place.memory((function.name, key), function.sizes[key])

            for call in self._calls[function.name]:
                call.start(place, address, stream)

    def release(self) -> None:
        """Release everything."""
        for place in self._places.values():
            place.release()
        self._places.clear()
        for call in [call for calls in self._calls.values() for call in calls]:
            call.release()
        self._calls.clear()
