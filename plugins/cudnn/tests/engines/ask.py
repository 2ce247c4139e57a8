"""Lists the attention graphs for which cuDNN has engines, on a GPU that exists as a description only."""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import replace

from mirlo_cudnn.native import backend
from mirlo_cudnn.native.attention import graph_of
from mirlo_cudnn.native.backend import DESCRIPTOR, GRAPH, GRAPH_OPERATIONS, HEURISTICS, MODE, Descriptors
from mirlo_cudnn.plan import AttentionStep, contiguous

DEVICE, DEVICE_TEXT, CHARACTERS, HEURISTICS_DEVICE = 38, 2702, 24, 204
"""A descriptor of a GPU from text, and the attribute of heuristics that refers to it."""
HOPPER = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "memoryBusWidth": 6144, "l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
    "totalGlobalMem": 150000000000, "cudaDeviceId": 0,
}  # fmt: skip
AMPERE = {**HOPPER, "deviceVer": 800, "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912}


def attention(
    q: tuple[int, ...], k: tuple[int, ...], dtype: str = "f16", size: int = 0, **facts: object
) -> AttentionStep:
    v, y = (*k[:3], size or k[3]), (*q[:3], size or q[3])
    strides = [contiguous(shape) for shape in (q, k, v, y)]
    return replace(AttentionStep(0, 1, 2, 3, q, k, v, *strides, 0.125, dtype), **facts)  # type: ignore[arg-type]


def transposed(step: AttentionStep) -> AttentionStep:
    """Return the same attention with the heads of a token contiguous."""
    lying = {}
    for name, shape in (("q", step.q_shape), ("k", step.k_shape), ("v", step.v_shape), ("y", step.q_shape)):
        found = contiguous(tuple(shape[i] for i in (0, 2, 1, 3)))
        lying[f"{name}_strides"] = tuple(found[i] for i in (0, 2, 1, 3))
    return replace(step, **lying)  # type: ignore[arg-type]


PLAIN = attention((2, 4, 128, 64), (2, 4, 128, 64))
CASES = {
    "plain": PLAIN,
    "bf16": attention((1, 16, 4096, 128), (1, 16, 4096, 128), "bf16", bound=0),
    "causal": replace(PLAIN, bound=0),
    "transposed": transposed(PLAIN),
    "shared keys, odd lengths": attention((2, 4, 100, 64), (2, 2, 333, 64), bound=0),
    "after a cache": attention((2, 4, 32, 64), (2, 4, 192, 64), bound=160),
    "mask": replace(PLAIN, mask=4, mask_shape=(1, 4, 128, 128)),
    "mask of keys": replace(PLAIN, mask=4, mask_shape=(2, 1, 1, 128)),
    "mask, causal": replace(PLAIN, mask=4, mask_shape=(1, 1, 128, 128), bound=0),
    "one query": attention((2, 32, 1, 128), (2, 8, 1000, 128)),
    "heads of 8": attention((1, 4, 64, 8), (1, 4, 64, 8)),
    "heads of 72": attention((1, 4, 64, 72), (1, 4, 64, 72)),
    "heads of 256": attention((1, 4, 512, 256), (1, 4, 512, 256), bound=0),
    "values of another size": attention((1, 4, 128, 64), (1, 4, 128, 64), size=32),
    "heads of 12": attention((1, 4, 128, 12), (1, 4, 128, 12)),
}


def engines(step: AttentionStep, device: dict[str, object]) -> int:
    """Return the number of engines that compute an attention."""
    made = Descriptors("asking")
    text = json.dumps(device).encode()
    try:
        gpu = made.make(DEVICE, (DEVICE_TEXT, CHARACTERS, (ctypes.c_char * len(text)).from_buffer_copy(text)))
        operations = backend._pointers(backend.operations_of(graph_of(step), made))
        graph = made.make(GRAPH, (GRAPH_OPERATIONS, DESCRIPTOR, operations))
        mode = ctypes.c_int(backend.BY_HEURISTICS)
        given = [(backend.HEURISTICS_MODE, MODE, mode), (backend.HEURISTICS_GRAPH, DESCRIPTOR, graph)]
        rules = made.make(HEURISTICS, *given, (HEURISTICS_DEVICE, DESCRIPTOR, gpu))
        return len(backend.engine_configs(rules, made))
    finally:
        made.release()


if __name__ == "__main__":
    json.dump({name: [engines(step, chip) for chip in (HOPPER, AMPERE)] for name, step in CASES.items()}, sys.stdout)
