"""Library functions that a model calls on tensors in place on the GPU.

An external artifact with the metadata `device: cuda` has such functions: packed functions whose tensors are on the
GPU, and which enqueue their work on the model's stream without waiting. Their loaders make them with `on_gpu`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.device_array import CUDA
from mirlo.runtime.dlpack import DLDevice, DLTensor, data_type_of
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.errors import MirloError
from mirlo.runtime.external import ExternalFunctions
from mirlo.runtime.packed import CPackedFunction
from mirlo.targets.nvvm.device import Gpu

_now = threading.local()
ON_CPU, REFUSED = 1, 2
"""Return codes: tensors are on the CPU; the library reported an error."""


class DeviceFunctionFailed(Exception):
    """A function returned an error code."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.name, self.code = name, code


def functions_on_gpu(artifact: Artifact) -> frozenset[str]:
    """Return the functions of a model's external artifacts that take tensors on the GPU."""
    return frozenset(
        external.packed_name(function)
        for external in artifact.externals if external.metadata.get("device") == "cuda"
        for function in external.functions
    )  # fmt: skip


@contextmanager
def working_on(gpu: Gpu, stream: int) -> Iterator[None]:
    """Set the stream of a GPU for functions that are called in this block."""
    _now.place = (gpu, stream)
    try:
        yield
    finally:
        _now.place = None


def on_gpu(
    functions: dict[str, Callable[[Gpu, int, Sequence[int]], None]], keep: object, release: Callable[[], None]
) -> ExternalFunctions:
    """Make a loader's result from functions of a GPU, a stream and the addresses of tensors."""
    problems: dict[str, str] = {}

    def wrapped(name: str, function: Callable[[Gpu, int, Sequence[int]], None]) -> Callable[..., int]:
        def call(tensors: ctypes._Pointer[ctypes._Pointer[DLTensor]], count: int) -> int:
            place = getattr(_now, "place", None)
            if place is None:
                return ON_CPU
            gpu, stream = place
            try:
                function(gpu, stream, [_address(tensors[i].contents) for i in range(count)])
            except Exception as problem:  # exceptions must not cross C frames
                problems[name] = str(problem) if isinstance(problem, MirloError) else f"{problem}"
                return REFUSED
            return 0

        return CPackedFunction(call)

    def explain(name: str, code: int) -> str | None:
        if code == ON_CPU:
            return "it works on tensors that lie on an NVIDIA GPU: let target nvvm compile the rest of the model"
        return problems.get(name)

    return ExternalFunctions({name: wrapped(name, f) for name, f in functions.items()}, keep, release, explain)


def _address(tensor: DLTensor) -> int:
    return int(tensor.data or 0) + int(tensor.byte_offset)


def tensor_on_gpu(address: int, gpu: int, dtype: str, shape: Sequence[int]) -> DLTensor:
    """Return a contiguous tensor on a GPU, as functions receive it."""
    dims = ctypes.c_int64 * len(shape)
    steps = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return DLTensor(
        data=address, device=DLDevice(CUDA, gpu), ndim=len(shape), dtype=data_type_of(ELEMENT_TYPES[dtype]),
        shape=dims(*shape), strides=dims(*steps), byte_offset=0,
    )  # fmt: skip
