"""Convolutions of a plan: descriptors, heuristic choice of an algorithm, execution."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_void_p

import numpy as np

from mirlo.extend.nvidia import DeviceState
from mirlo_cudnn.native import library as dnn
from mirlo_cudnn.native.library import CUDNN, AlgorithmPerformance, CuDnnError
from mirlo_cudnn.plan import Convolution

WORKSPACE = 256 << 20
"""The most bytes of scratch memory for an algorithm."""


class ConvolutionCall:
    """One convolution, with its descriptors: `mirlo.targets.nvvm.library_program.LibraryCall`."""

    def __init__(self, step: Convolution, tf32: bool = False) -> None:
        self.step = step
        self._library = CUDNN.load()
        self._made: list[tuple[str, c_void_p]] = []
        kind, compute, math = dnn.TYPES[step.dtype]
        if tf32 and step.dtype == "f32":
            math = dnn.DEFAULT_MATH
        self.x, self.y = self._tensor(kind, step.x_shape), self._tensor(kind, step.y_shape)
        ones = (1,) * (len(step.y_shape) - 2)
        self.bias = self._tensor(kind, (1, step.y_shape[1], *ones))
        self.weight = self._new("Filter")
        layout = dnn.NHWC if step.channels_last else dnn.NCHW
        self._do("SetFilterNdDescriptor", self.weight, kind, layout, len(step.weight_shape), _ints(step.weight_shape))
        self.convolution = self._new("Convolution")
        window = (_ints(step.padding), _ints(step.strides), _ints(step.dilations))
        self._do(
            "SetConvolutionNdDescriptor", self.convolution, len(step.strides), *window, dnn.CROSS_CORRELATION, compute
        )
        self._do("SetConvolutionGroupCount", self.convolution, step.groups)
        self._do("SetConvolutionMathType", self.convolution, math)
        self.activation = self._new("Activation")
        how = dnn.RELU if step.activation == "relu" else dnn.IDENTITY
        self._do("SetActivationDescriptor", self.activation, how, dnn.PROPAGATE_NAN, ctypes.c_double(0))
        number = ctypes.c_double if compute == dnn.F64 else ctypes.c_float
        self._one, self._zero, self._of_added = number(1), number(0), number(step.added is not None)
        self._chosen: dict[int, tuple[int, int]] = {}

    def _do(self, name: str, *arguments: object) -> None:
        step = self.step
        CUDNN.check(
            getattr(self._library, f"cudnn{name}")(*arguments), f"convolving {step.x_shape} with {step.weight_shape}"
        )

    def _new(self, what: str) -> c_void_p:
        result = ctypes.c_void_p()
        self._do(f"Create{what}Descriptor", ctypes.byref(result))
        self._made.append((what, result))
        return result

    def _tensor(self, kind: int, shape: Sequence[int]) -> c_void_p:
        """Return the descriptor of a dense tensor in the layout of the data."""
        result = self._new("Tensor")
        order = (0, *range(2, len(shape)), 1) if self.step.channels_last else tuple(range(len(shape)))
        strides, apart = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = apart
            apart *= shape[axis]
        self._do("SetTensorNdDescriptor", result, kind, len(shape), _ints(shape), _ints(strides))
        return result

    @property
    def _is_plain(self) -> bool:
        return self.step.bias is None and self.step.added is None and not self.step.activation

    def start(self, place: DeviceState, address: Callable[[int], int], stream: int) -> None:
        """Enqueue the convolution on a stream."""
        step, handle, pointer = self.step, place.handle, ctypes.c_void_p
        self._do("SetStream", handle, pointer(stream))
        algorithm, size = self._algorithm(place)
        workspace = pointer(place.memory(("workspace", size), size) if size else None)
        x, weight, y = (pointer(address(number)) for number in (step.x, step.weight, step.y))
        one, zero, bytes_ = ctypes.byref(self._one), ctypes.byref(self._zero), ctypes.c_size_t(size)
        if self._is_plain:
            self._do(
                "ConvolutionForward", handle, one, self.x, x, self.weight, weight, self.convolution, algorithm,
                workspace, bytes_, zero, self.y, y,
            )  # fmt: skip
            return
        bias = pointer(self._bias(place, address))
        added = y if step.added is None else pointer(address(step.added))
        self._do(
            "ConvolutionBiasActivationForward", handle, one, self.x, x, self.weight, weight, self.convolution,
            algorithm, workspace, bytes_, ctypes.byref(self._of_added), self.y, added, self.bias, bias, self.activation,
            self.y, y,
        )  # fmt: skip

    def _bias(self, place: DeviceState, address: Callable[[int], int]) -> int:
        if self.step.bias is not None:
            return address(self.step.bias)
        channels = self.step.y_shape[1]
        return place.constant(("zeros", channels), np.zeros(channels))  # as many bytes as the widest type needs

    def _algorithm(self, place: DeviceState) -> tuple[int, int]:
        """Return the algorithm that the heuristics choose on a GPU, and its scratch memory in bytes."""
        result = self._chosen.get(place.gpu.number)
        if result is None:
            result = self._chosen[place.gpu.number] = self._choose(place.handle)
        return result

    def _choose(self, handle: c_void_p) -> tuple[int, int]:
        if not self._is_plain and not self.step.activation:
            return dnn.PRECOMPUTED_GEMM, self._workspace(handle, dnn.PRECOMPUTED_GEMM)
        rows, count = (AlgorithmPerformance * dnn.ALGORITHMS)(), ctypes.c_int()
        ends = (self.x, self.weight, self.convolution, self.y)
        self._do("GetConvolutionForwardAlgorithm_v7", handle, *ends, dnn.ALGORITHMS, ctypes.byref(count), rows)
        for row in rows[: count.value]:
            if row.status == 0 and row.memory <= WORKSPACE:
                return row.algorithm, self._workspace(handle, row.algorithm)
        raise CuDnnError(f"cuDNN has no algorithm for {self.step.x_shape} with {self.step.weight_shape}")

    def _workspace(self, handle: c_void_p, algorithm: int) -> int:
        size = ctypes.c_size_t()
        ends = (self.x, self.weight, self.convolution, self.y)
        self._do("GetConvolutionForwardWorkspaceSize", handle, *ends, algorithm, ctypes.byref(size))
        return size.value

    def release(self) -> None:
        """Destroy the descriptors."""
        for what, descriptor in self._made:
            getattr(self._library, f"cudnnDestroy{what}Descriptor")(descriptor)
        self._made.clear()


def _ints(values: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)
