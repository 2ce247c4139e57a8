"""The unit itself, simulated: the functions of its driver, and the loaders that give them to compiled code."""

import ctypes
from collections import Counter

import numpy as np

from mirlo.extend.runtime import ExternalFunctions
from mirlo.runtime.loaders import load_llvm
from mirlo.runtime.object_loader import define_symbol

_F32, _BYTES, _WORD = ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int64
CALLS = Counter()
"""How often each function was called."""
TOKENS = Counter()
"""What the queues gave each other and did not take yet."""
ERRORS = []
"""What the unit complained about: its functions are called from machine code, where no exception gets through."""
_MEMORY = {}
KINDS = ((np.float32, np.float32), (np.int8, np.int32))


@ctypes.CFUNCTYPE(None, _F32, _F32, _F32, *[_WORD] * 4)
def NpuGemm(x, weight, y, rows, columns, depth, relu):
    CALLS["NpuGemm"] += 1
    product = np.ctypeslib.as_array(x, (rows, depth)) @ np.ctypeslib.as_array(weight, (depth, columns))
    np.ctypeslib.as_array(y, (rows, columns))[:] = np.maximum(product, 0) if relu else product


@ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
def NpuExp(x):
    CALLS["NpuExp"] += 1
    with np.errstate(over="ignore"):
        return float(np.float32(np.exp(np.float64(x))))


@ctypes.CFUNCTYPE(None, _WORD, _WORD)
def NpuDepPush(giver, taker):
    TOKENS[giver, taker] += 1


@ctypes.CFUNCTYPE(None, _WORD, _WORD)
def NpuDepPop(giver, taker):
    if TOKENS[giver, taker] == 0:
        ERRORS.append(f"queue {taker} waits for {giver} for ever")
    TOKENS[giver, taker] -= 1


@ctypes.CFUNCTYPE(None, _WORD, _BYTES, _WORD, _WORD)
def NpuLoad(memory, source, offset, size):
    CALLS["NpuLoad"] += 1
    _MEMORY[memory] = ctypes.string_at(source + offset, size)


@ctypes.CFUNCTYPE(None, *[_WORD] * 15)
def NpuConv(kind, height, width, channels, filters, kh, kw, rows, columns, sh, sw, top, left, has_bias, relu):
    CALLS["NpuConv"] += 1
    element, sums = KINDS[kind]
    image = np.frombuffer(_MEMORY[0], element).reshape(height, width, channels).astype(sums)
    kernel = np.frombuffer(_MEMORY[1], element).reshape(filters, -1).astype(sums)
    below, right = ((rows - 1) * sh + kh - height - top, (columns - 1) * sw + kw - width - left)
    padded = np.pad(image, ((top, max(below, 0)), (left, max(right, 0)), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), (0, 1))[::sh, ::sw][:rows, :columns]
    made = windows.transpose(0, 1, 3, 4, 2).reshape(rows, columns, -1) @ kernel.T
    if has_bias:
        made = made + np.frombuffer(_MEMORY[2], sums)
    _MEMORY["out"] = (np.maximum(made, 0) if relu else made).astype(sums).tobytes()


@ctypes.CFUNCTYPE(None, _BYTES, _WORD, _WORD)
def NpuStore(target, offset, size):
    CALLS["NpuStore"] += 1
    if len(_MEMORY["out"]) != size:
        ERRORS.append(f"{size} bytes are wanted of a result of {len(_MEMORY['out'])}")
        return
    ctypes.memmove(target + offset, _MEMORY["out"], size)


@ctypes.CFUNCTYPE(None)
def NpuSync():
    CALLS["NpuSync"] += 1
    ERRORS.extend(f"{count} tokens of {pair} are left" for pair, count in TOKENS.items() if count)


FUNCTIONS = (NpuGemm, NpuExp, NpuDepPush, NpuDepPop, NpuLoad, NpuConv, NpuStore, NpuSync)
NAMES = ("NpuGemm", "NpuExp", "NpuDepPush", "NpuDepPop", "NpuLoad", "NpuConv", "NpuStore", "NpuSync")


def define_driver():
    """Compiled code finds the driver in this process."""
    for name, function in zip(NAMES, FUNCTIONS, strict=True):
        define_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def load(artifact):
    """Load a whole model for the target: the code is the CPU's, with calls of the driver."""
    define_driver()
    return load_llvm(artifact)


def load_driver(artifact, context):
    """Parts of a model for another target: no functions of their own, but what its code calls."""
    define_driver()
    return ExternalFunctions({})
