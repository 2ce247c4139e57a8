"""cuBLASLt through ctypes: found where CUDA or NVIDIA's wheels put it, and what it says when it fails."""

from __future__ import annotations

import ctypes

from mirlo.targets.nvvm.library_loading import NvidiaLibrary

F32, F16, F64, BF16 = 0, 2, 1, 14
"""Types of elements, as the library numbers them."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32 = 68, 70, 77
TYPES = {"f32": (F32, COMPUTE_32F, F32), "f16": (F16, COMPUTE_32F, F32), "bf16": (BF16, COMPUTE_32F, F32),
         "f64": (F64, COMPUTE_64F, F64)}  # fmt: skip
"""By element type: that of matrices, what sums are computed in, and what they are scaled by."""
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
"""Attributes of a product."""
BATCH_COUNT, BATCH_OFFSET = 5, 6
"""Attributes of a matrix."""
MAX_WORKSPACE, ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 1, 5, 6, 7, 8
"""Attributes of what is preferred."""
DEFAULT, RELU, BIAS, GELU = 1, 2, 4, 32
"""What is done with the sums; bits, but for the first."""


class Algorithm(ctypes.Structure):
    """What the heuristics find: `cublasLtMatmulHeuristicResult_t`."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class CuBlasError(Exception):
    """The library is not there, or refuses."""


CUBLAS = NvidiaLibrary(
    "cuBLASLt",
    "cublasLt",
    "pip install nvidia-cublas, or install CUDA",
    CuBlasError,
    "cublasLt",
    "cublasLtGetStatusString",
)
