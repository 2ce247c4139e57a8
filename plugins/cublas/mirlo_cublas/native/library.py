"""cuBLASLt through ctypes: loading from CUDA or NVIDIA's wheels, and error messages."""

from __future__ import annotations

import ctypes

from mirlo.extend.nvidia import NvidiaLibrary

F32, F64, I32 = 0, 1, 10
KINDS = {"f32": F32, "f64": F64, "f16": 2, "bf16": 14, "i8": 3, "i32": I32, "f8e4m3fn": 28, "f8e5m2": 29}
"""Element types by the library's numbers."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_TF32 = 68, 70, 72, 77
COMPUTE_TYPES = {"f64": (COMPUTE_64F, F64), "i8": (COMPUTE_32I, I32)}
"""Compute and scale types by the type of the factors; f32 for all others."""
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
"""Attributes of a product."""
BATCH_COUNT, BATCH_OFFSET = 5, 6
"""Attributes of a matrix."""
MAX_WORKSPACE, ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 1, 5, 6, 7, 8
"""Attributes of a preference."""
DEFAULT, RELU, BIAS, GELU = 1, 2, 4, 32
"""Epilogues, as bits except for the first."""


class Algorithm(ctypes.Structure):
    """A result of the heuristics: `cublasLtMatmulHeuristicResult_t`."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class CuBlasError(Exception):
    """The library is missing or returned an error."""


CUBLAS = NvidiaLibrary(
    "cuBLASLt",
    "cublasLt",
    "pip install nvidia-cublas, or install CUDA",
    CuBlasError,
    "cublasLt",
    "cublasLtGetStatusString",
    {"cublasLtGetVersion": ctypes.c_size_t},
)
