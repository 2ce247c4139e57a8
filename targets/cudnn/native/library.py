"""cuDNN through ctypes: found where CUDA or NVIDIA's wheels put it, and what it says when it fails."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from mirlo.targets.nvvm.wheels import find_library

F32, F64, F16, BF16 = 0, 1, 2, 9
DEFAULT_MATH, TENSOR_MATH, FMA_MATH = 0, 1, 3
TYPES = {"f32": (F32, F32, FMA_MATH), "f64": (F64, F64, DEFAULT_MATH), "f16": (F16, F32, TENSOR_MATH),
         "bf16": (BF16, F32, TENSOR_MATH)}  # fmt: skip
"""By element type: that of tensors, what sums are computed in, and on which units."""
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
RELU, IDENTITY = 1, 5
PROPAGATE_NAN = 1
PRECOMPUTED_GEMM = 1
"""The algorithm that the library has for a bias without an activation."""
ALGORITHMS = 8


class Found(ctypes.Structure):
    """What the heuristics say of an algorithm: `cudnnConvolutionFwdAlgoPerf_t`."""

    _fields_ = [
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    ]


class CuDnnError(Exception):
    """The library is not there, or refuses."""


@cache
def load_library() -> Any:
    """The library; an error that says what to install where it is not."""
    name = find_library("cudnn")
    if name is None:
        raise CuDnnError("the library cuDNN is not on this machine: pip install nvidia-cudnn-cu13, or install cuDNN")
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise CuDnnError(f"the library cuDNN does not load: {error}") from error


def check(status: int, what: str) -> None:
    """An error where a call of the library failed."""
    if not status:
        return
    library = load_library()
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    said = library.cudnnGetErrorString(status)
    raise CuDnnError(f"{what}: {said.decode() if said else f'status {status}'}")
