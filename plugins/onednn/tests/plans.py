"""Helpers that run a plan of one function on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from mirlo_onednn.native.compiled import RegionReport
from mirlo_onednn.native.program import OneDnnProgram
from mirlo_onednn.plan import OneDnnPlan, PlanTensor, PostOp, PrimitiveNode, PrimitiveRegion, read, write

from mirlo.extend.runtime import DLTensor, tensor_of_array

RELU = PostOp("eltwise", "relu")


class Region:
    """A function of some nodes: inputs and parameters as arrays by name, the shapes of the results."""

    def __init__(
        self,
        nodes: Sequence[PrimitiveNode],
        inputs: dict[str, np.ndarray],
        results: dict[str, Sequence[int]],
        params: dict[str, np.ndarray] | None = None,
        outputs: Sequence[str] = (),
        threads: int = 1,
    ) -> None:
        params = params or {}
        self.inputs = [np.ascontiguousarray(array, np.float32) for array in inputs.values()]
        self.outputs = tuple(outputs) or (nodes[-1].result,)
        self.shapes = [tuple(results[name]) for name in self.outputs]
        tensors = {name: PlanTensor(array.shape, "f32") for name, array in {**inputs, **params}.items()}
        tensors.update({name: PlanTensor(tuple(shape), "f32") for name, shape in results.items()})
        names = {name: name for name in params}
        function = PrimitiveRegion("region", tuple(inputs), self.outputs, tensors, tuple(nodes), names)
        plan = read(write(OneDnnPlan((function,))))
        self.program = OneDnnProgram(plan, {k: v.astype(np.float32) for k, v in params.items()}, threads)

    @property
    def report(self) -> RegionReport:
        return self.program.reports["region"]

    def call(self, arrays: Sequence[np.ndarray]) -> int:
        """Call the function on inputs and outputs."""
        tensors = [tensor_of_array(array) for array in arrays]
        pointers = (ctypes.POINTER(DLTensor) * len(tensors))(*map(ctypes.pointer, tensors))
        return self.program.functions["region"](pointers, len(tensors))

    def __call__(self) -> Any:
        results = [np.full(shape, np.nan, np.float32) for shape in self.shapes]
        for _ in range(2):  # what the first call leaves in the arena must not matter to the second
            assert self.call([*self.inputs, *results]) == 0
        return results[0] if len(results) == 1 else results


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return numbers of a normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def conv_attributes(padding: int = 0, stride: int = 1, gap: int = 0, dims: int = 2) -> dict[str, Any]:
    return {
        "strides": (stride,) * dims,
        "dilations": (gap,) * dims,
        "padding_begin": (padding,) * dims,
        "padding_end": (padding,) * dims,
    }


def conv(x: np.ndarray, w: np.ndarray, padding: int = 0, stride: int = 1, gap: int = 0, groups: int = 1) -> np.ndarray:
    """Return a convolution of [N, C, H, W] with [O, C / groups, kh, kw]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kh, kw = ((size - 1) * (gap + 1) + 1 for size in w.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (2, 3))
    windows = windows[:, :, ::stride, ::stride, :: gap + 1, :: gap + 1]
    n, c, oh, ow = windows.shape[:4]
    windows = windows.reshape(n, groups, c // groups, oh, ow, *w.shape[2:])
    grouped = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    return np.einsum("ngchwij,gocij->ngohw", windows, grouped).reshape(n, w.shape[0], oh, ow)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1, float(np.abs(expected).max())))
