"""cuDNN through ctypes: loading from CUDA or NVIDIA's wheels, and error messages."""

from __future__ import annotations

import ctypes

from mirlo.extend.nvidia import NvidiaLibrary

F32, F64, F16, BF16 = 0, 1, 2, 9
DEFAULT_MATH, TENSOR_MATH, FMA_MATH = 0, 1, 3
TYPES = {"f32": (F32, F32, FMA_MATH), "f64": (F64, F64, DEFAULT_MATH), "f16": (F16, F32, TENSOR_MATH),
         "bf16": (BF16, F32, TENSOR_MATH)}  # fmt: skip
"""By element type: the tensors' type, the accumulator type and the math mode."""
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
RELU, IDENTITY = 1, 5
PROPAGATE_NAN = 1
PRECOMPUTED_GEMM = 1
"""The library's only algorithm for a bias without an activation."""
ALGORITHMS = 8


class AlgorithmPerformance(ctypes.Structure):
    """A result of the heuristics: `cudnnConvolutionFwdAlgoPerf_t`."""

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
    """The library is missing or returned an error."""


def _why(library: ctypes.CDLL) -> str:
    """Return the library's message for its last error, if the version provides one."""
    if not hasattr(library, "cudnnGetLastErrorString"):
        return ""
    message = ctypes.create_string_buffer(512)
    library.cudnnGetLastErrorString(message, ctypes.c_size_t(len(message)))
    lines = message.value.decode(errors="replace").split("\n")
    return f" ({lines[0]})" if lines[0] else ""


CUDNN = NvidiaLibrary(
    "cuDNN", "cudnn", "pip install nvidia-cudnn-cu13, or install cuDNN", CuDnnError, "cudnn", "cudnnGetErrorString",
    {"cudnnGetVersion": ctypes.c_size_t}, _why,
)  # fmt: skip


def version() -> tuple[int, int, int]:
    """Return the version of the library: 9, 28, 0."""
    number = int(CUDNN.load().cudnnGetVersion())
    # Before version 9 it had four digits: 8907.
    scale = 10000 if number >= 90000 else 1000
    return number // scale, number % scale // 100, number % 100
