"""A fake cuDNN in numpy, for a fake of CUDA's driver: it computes the operations that its descriptors define."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import ml_dtypes
import numpy as np
from fake_backend import FakeBackend

TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 9: ml_dtypes.bfloat16}


class FakeCudnn(FakeBackend):
    """The functions that the loader calls."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.made: dict[int, dict[str, Any]] = {}
        self.calls: list[dict[str, Any]] = []
        self.stream = 0
        self.begin()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cudnnBackend"):
            raise AttributeError(name)
        if name.startswith("cudnnCreate") and name.endswith("Descriptor"):
            return self._make
        if name.startswith("cudnnDestroy"):
            return self._destroy
        raise AttributeError(name)

    def _make(self, out: Any) -> int:
        number = 1 + max(self.made, default=0)
        self.made[number] = {}
        out._obj.value = number
        return 0

    def _destroy(self, handle: Any) -> int:
        del self.made[handle.value]
        return 0

    def cudnnCreate(self, out: Any) -> int:
        assert self.driver.context and self.driver.recorded is None
        return self._make(out)

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        self.stream = stream.value
        return 0

    def cudnnSetTensorNdDescriptor(self, made: Any, kind: int, rank: int, dims: Any, strides: Any) -> int:
        assert rank == len(dims) == len(strides)
        self.made[made.value] = {"kind": kind, "dims": tuple(dims), "strides": tuple(strides)}
        return 0

    def cudnnSetFilterNdDescriptor(self, made: Any, kind: int, layout: int, rank: int, dims: Any) -> int:
        order = (0, *range(2, rank), 1) if layout else tuple(range(rank))
        strides = [0] * rank
        apart = 1
        for axis in reversed(order):
            strides[axis] = apart
            apart *= dims[axis]
        self.made[made.value] = {"kind": kind, "dims": tuple(dims), "strides": tuple(strides)}
        return 0

    def cudnnSetConvolutionNdDescriptor(
        self, made: Any, rank: int, pads: Any, strides: Any, dilations: Any, mode: int, compute: int
    ) -> int:
        assert mode == 1 and rank == len(pads) == len(strides) == len(dilations)
        window = {"pads": tuple(pads), "strides": tuple(strides), "dilations": tuple(dilations), "compute": compute}
        self.made[made.value].update(window)
        return 0

    def cudnnSetConvolutionGroupCount(self, made: Any, groups: int) -> int:
        self.made[made.value]["groups"] = groups
        return 0

    def cudnnSetConvolutionMathType(self, made: Any, math: int) -> int:
        self.made[made.value]["math"] = math
        return 0

    def cudnnSetActivationDescriptor(self, made: Any, mode: int, nans: int, coefficient: Any) -> int:
        assert isinstance(coefficient, ctypes.c_double)
        self.made[made.value] = {"mode": mode}
        return 0

    def cudnnGetConvolutionForwardAlgorithm_v7(
        self, handle: Any, x: Any, w: Any, convolution: Any, y: Any, wanted: int, count: Any, rows: Any
    ) -> int:
        rows[0].status, rows[1].status, rows[1].algorithm, rows[1].memory = 3000, 0, 6, 1024
        count._obj.value = 2
        return 0

    def cudnnGetConvolutionForwardWorkspaceSize(
        self, handle: Any, x: Any, w: Any, convolution: Any, y: Any, algorithm: int, size: Any
    ) -> int:
        size._obj.value = 1024 if algorithm == 6 else 0
        return 0

    def cudnnConvolutionForward(
        self, handle: Any, one: Any, x_kind: Any, x: Any, w_kind: Any, w: Any, convolution: Any, algorithm: int,
        workspace: Any, size: Any, zero: Any, y_kind: Any, y: Any,
    ) -> int:  # fmt: skip
        kinds = [self.made[kind.value] for kind in (x_kind, w_kind, y_kind)]
        return self._start(algorithm, size, workspace, convolution, kinds, [x.value, w.value, y.value], None, 5)

    def cudnnConvolutionBiasActivationForward(
        self, handle: Any, one: Any, x_kind: Any, x: Any, w_kind: Any, w: Any, convolution: Any, algorithm: int,
        workspace: Any, size: Any, zero: Any, z_kind: Any, z: Any, b_kind: Any, b: Any, activation: Any, y_kind: Any,
        y: Any,
    ) -> int:  # fmt: skip
        kinds = [self.made[kind.value] for kind in (x_kind, w_kind, y_kind)]
        mode = self.made[activation.value]["mode"]
        assert mode == 1 or algorithm == 1, "the library has identity with one algorithm only"
        bias = (self.made[b_kind.value], b.value)
        assert zero._obj.value in (0, 1) and z_kind.value == y_kind.value
        addresses = [x.value, w.value, y.value, *([z.value] if zero._obj.value else [])]
        return self._start(algorithm, size, workspace, convolution, kinds, addresses, bias, mode)

    def _start(
        self,
        algorithm: int,
        size: Any,
        workspace: Any,
        convolution: Any,
        kinds: Any,
        addresses: Any,
        bias: Any,
        mode: int,
    ) -> int:
        assert (size.value, bool(workspace.value)) == ((1024, True) if algorithm == 6 else (0, False))
        how = dict(self.made[convolution.value])
        self.calls.append({"how": how, "kinds": kinds, "mode": mode})

        def run() -> None:
            x, w, y = (_array(kind, address) for kind, address in zip(kinds, addresses, strict=False))
            sums = _convolved(x.astype(np.float64), w.astype(np.float64), how)
            if len(addresses) > 3:
                sums = sums + _array(kinds[2], addresses[3]).astype(np.float64)
            if bias is not None:
                sums = sums + _array(*bias).astype(np.float64)
            y[...] = (np.maximum(sums, 0) if mode == 1 else sums).astype(y.dtype)

        self.driver._now(self.stream, run)
        return 0

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"refused"


def _array(kind: dict[str, Any], address: int) -> np.ndarray:
    dtype = np.dtype(TYPES[kind["kind"]])
    reach = 1 + sum((dim - 1) * step for dim, step in zip(kind["dims"], kind["strides"], strict=True))
    flat = np.frombuffer((ctypes.c_char * (reach * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, kind["dims"], [step * dtype.itemsize for step in kind["strides"]])


def _convolved(x: np.ndarray, w: np.ndarray, how: dict[str, Any]) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in how["pads"])])
    reaches = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], how["dilations"], strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reaches, how["strides"], strict=True)]
    groups, inside = how["groups"], w.shape[1]
    parts = []
    for group in range(groups):
        data = padded[:, group * inside : (group + 1) * inside]
        kernel = w[group * (len(w) // groups) : (group + 1) * (len(w) // groups)]
        total = 0.0
        for at in itertools.product(*map(range, w.shape[2:])):
            starts = [a * d for a, d in zip(at, how["dilations"], strict=True)]
            cuts = [slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, sizes, how["strides"], strict=True)]
            total = total + np.einsum("nc...,oc->no...", data[(slice(None), slice(None), *cuts)], kernel[(..., *at)])
        parts.append(total)
    return np.concatenate(parts, axis=1)
