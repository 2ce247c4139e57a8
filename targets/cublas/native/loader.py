"""The loader of artifacts with format `cublaslt`: functions on tensors of the GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mirlo.runtime.external import ExternalArtifact, ExternalFunctions, LoadContext
from mirlo.targets.cublas.native.library import check, load_library
from mirlo.targets.cublas.native.products import WORKSPACE, Call
from mirlo.targets.cublas.plan import Function, read
from mirlo.targets.nvvm.device import Gpu
from mirlo.targets.nvvm.device import check as check_driver
from mirlo.targets.nvvm.device_functions import on_gpu
from mirlo.targets.nvvm.memory import allocate


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """The functions of a plan; the library is asked for by the first call: without it a model can be saved."""
    plan = Program(read(artifact.data), context.params, bool(artifact.metadata.get("tf32")))
    functions: dict[str, Callable[[Gpu, int, Sequence[int]], None]] = {
        function.name: partial(plan.run, function) for function in plan.functions
    }
    return on_gpu(functions, plan, plan.release)


class Place:
    """What a program has on one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.handle = ctypes.c_void_p()
        check(load_library().cublasLtCreate(ctypes.byref(self.handle)), "starting cuBLASLt")
        self.memories: list[int] = []
        self.workspace = self.allocate(WORKSPACE)
        self.constants: dict[str, int] = {}
        self.values: dict[tuple[str, str], int] = {}

    def allocate(self, size: int) -> int:
        made = allocate(self.gpu, size)
        self.memories.append(made)
        return made

    def constant(self, name: str, array: np.ndarray) -> int:
        """Where a constant is on the GPU; copied there once."""
        if name not in self.constants:
            held = np.ascontiguousarray(array)
            address = self.constants[name] = self.allocate(held.nbytes)
            cuda = self.gpu.cuda
            copied = cuda.cuMemcpyHtoD(address, held.__array_interface__["data"][0], held.nbytes)
            check_driver(copied, "copying to the GPU")
            check_driver(cuda.cuCtxSynchronize(), "copying to the GPU")
        return self.constants[name]

    def value(self, function: Function, number: str) -> int:
        """Where a value between two products lies."""
        key = (function.name, number)
        if key not in self.values:
            self.values[key] = self.allocate(function.sizes[number])
        return self.values[key]

    def release(self) -> None:
        """Give everything back."""
        with self.gpu.entered():
            for address in self.memories:
                self.gpu.cuda.cuMemFree(address)
            load_library().cublasLtDestroy(self.handle)


class Program:
    """The functions of a plan, and what they have on the GPUs that they were called on."""

    def __init__(self, functions: list[Function], params: Any, tf32: bool) -> None:
        self.functions = functions
        self._params = params
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}
        self._tf32 = tf32
        self.calls: dict[str, list[Call]] = {}

    def run(self, function: Function, gpu: Gpu, stream: int, tensors: Sequence[int]) -> None:
        """Give the products of a function to a stream."""
        with self._lock:
            place = self._places.get(gpu.number)
            if place is None:
                place = self._places[gpu.number] = Place(gpu)

            def address(number: int) -> int:
                if number < len(tensors):
                    return tensors[number]
                name = function.constants.get(str(number))
                return place.value(function, str(number)) if name is None else place.constant(name, self._params[name])

            if function.name not in self.calls:
                self.calls[function.name] = [Call(product, self._tf32) for product in function.products]
            for call in self.calls[function.name]:
                product = call.product
                a, b, d = (address(number) for number in (product.a, product.b, product.d))
                bias = None if product.bias is None else address(product.bias)
                call.start(place.handle, a, b, d, bias, place.workspace, stream)

    def release(self) -> None:
        """Give everything back."""
        for place in self._places.values():
            place.release()
        self._places.clear()
        for calls in self.calls.values():
            for call in calls:
                call.release()
        self.calls.clear()
