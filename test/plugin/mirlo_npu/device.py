"""The unit itself, simulated: the functions of its driver, and the loader that gives them to compiled code."""

import ctypes

import numpy as np

from mirlo.runtime.loaders import define_symbol, load_llvm

_F32 = ctypes.POINTER(ctypes.c_float)
CALLS = {"NpuGemm": 0, "NpuExp": 0}
"""How often each function was called."""


@ctypes.CFUNCTYPE(None, _F32, _F32, _F32, *[ctypes.c_int64] * 4)
def npu_gemm(x, weight, y, rows, columns, depth, relu):
    CALLS["NpuGemm"] += 1
    product = np.ctypeslib.as_array(x, (rows, depth)) @ np.ctypeslib.as_array(weight, (depth, columns))
    np.ctypeslib.as_array(y, (rows, columns))[:] = np.maximum(product, 0) if relu else product


@ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
def npu_exp(x):
    CALLS["NpuExp"] += 1
    with np.errstate(over="ignore"):
        return float(np.float32(np.exp(np.float64(x))))


def load(artifact):
    """The code is the CPU's; it finds the driver in this process."""
    for name, function in (("NpuGemm", npu_gemm), ("NpuExp", npu_exp)):
        define_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return load_llvm(artifact)
