"""Packed functions, called on copies of tensors. Shared by the loaders of GPU targets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.dlpack import DLTensor, tensor_of_array
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.targets.gpu.commands import Step, StepRange
from mirlo.targets.gpu.device_layout import Pointers, pointers
from mirlo.targets.gpu.host import CallEnded

_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.POINTER(DLTensor)), ctypes.c_int64)


class PackedFunctionTable:
    """The packed functions of a model, at the addresses that its entry function receives."""

    def __init__(self, artifact: Artifact, params: Pointers) -> None:
        self._names = list(artifact.packed)
        weights = len(artifact.params)
        addresses = pointers(params, weights + len(self._names))
        self._functions = [_Function(addresses[weights + i] or 0) for i in range(len(self._names))]

    def call(self, step: Step, record: ctypes.Array[ctypes.c_int64],
             read: Callable[[StepRange, np.ndarray], None],
             write: Callable[[StepRange, np.ndarray], None]) -> None:  # fmt: skip
        """Execute a step that calls a function; if the function fails, record that and end the call.

        `read` fills an array from a range of the device's memory, `write` copies it there.
        """
        arrays = [empty_aligned(numpy_dtype(dtype), tuple(shape)) for dtype, shape in step["types"]]
        inputs = len(arrays) - step["outputs"]
        for where, array in zip(step["ranges"][:inputs], arrays[:inputs], strict=True):
            read(where, array)
        code = self.start(step["call"], [tensor_of_array(array) for array in arrays])
        if code:
            record[0], record[1] = 1 + self._names.index(step["call"]), code
            raise CallEnded
        for where, array in zip(step["ranges"][inputs:], arrays[inputs:], strict=True):
            write(where, array)

    def start(self, name: str, tensors: Sequence[DLTensor]) -> int:
        """Call a function on tensors, wherever their memory is, and return its result."""
        operands = (ctypes.POINTER(DLTensor) * len(tensors))(*(ctypes.pointer(tensor) for tensor in tensors))
        return int(self._functions[self._names.index(name)](operands, len(tensors)))
