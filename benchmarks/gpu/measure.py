"""How long units take: kernels by the device's clock, calls that stay on the device, and what the device copies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .peers import call_of, seconds
from .unit import Unit

ROUNDS = 5
"""Turns of the two, of which the median counts."""
REPEAT = 10


def measured(unit: Unit, model: Any, inputs: Sequence[np.ndarray]) -> dict[str, Any]:
    """Times of a unit in microseconds, its own and of what PyTorch does, in turns."""
    row: dict[str, Any] = {}
    call, row["peer_why"] = call_of(unit.peer, inputs)
    own: list[float] = []
    other: list[float] = []
    for _ in range(ROUNDS):
        own.append(latency(model, inputs) if unit.is_latency else model.profile(*inputs, repeats=3).microseconds)
        if call is None:
            continue
        try:
            other.append(1e6 * seconds(call, REPEAT))
        except (RuntimeError, TypeError, NotImplementedError) as problem:
            call, row["peer_why"] = None, f"PyTorch: {problem}".splitlines()[0]
    row["us"] = statistics.median(own)
    row["us_each"] = own
    if other:
        row["peer_us"] = statistics.median(other)
        row["ratio"] = row["peer_us"] / row["us"]
    if unit.is_latency:
        row["kernels_us"] = model.profile(*inputs, repeats=3).microseconds
        row["call_us"] = _of_calls(lambda: model(*inputs))
    if unit.flops:
        row["tflops"] = 1e-6 * unit.flops / row["us"]
    if unit.moved:
        row["gbytes"] = 1e-3 * unit.moved / row["us"]
    return row


def latency(model: Any, inputs: Sequence[np.ndarray], calls: int = 20) -> float:
    """Microseconds of a call whose arrays stay on the device: many in a row, then a wait for the last."""
    if model.artifact.loader != "cuda":
        return _of_calls(lambda: model(*inputs))
    first = model.on_device(*inputs)
    outputs = list(first) if isinstance(first, (tuple, list)) else [first]
    held = [_OnDevice(x) for x in inputs]
    start = 0.0
    for call in range(calls + 3):
        if call == 3:
            outputs[0].numpy()
            start = time.perf_counter()
        made = model.on_device(*held, out=outputs)
    (made[0] if isinstance(made, (tuple, list)) else made).numpy()
    return 1e6 * (time.perf_counter() - start) / calls


def _of_calls(call: Any, calls: int = 10) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


class _OnDevice:
    """A copy of an array in memory of the GPU, with the protocol that models take."""

    def __init__(self, array: np.ndarray) -> None:
        from mirlo.targets.nvvm.device import check, first_gpu

        self._gpu = first_gpu()
        held = np.ascontiguousarray(array)
        with self._gpu.entered():
            cuda = self._gpu.cuda
            self._address = int(check(cuda.cuMemAlloc(max(held.nbytes, 1)), "making room for an input"))
            check(cuda.cuMemcpyHtoD(self._address, held.__array_interface__["data"][0], held.nbytes), "copying")
            check(cuda.cuCtxSynchronize(), "copying")
        # The protocol has no name for narrow floats: those that are not IEEE's go by DLPack only.
        self.__cuda_array_interface__ = {
            "shape": held.shape, "typestr": held.dtype.str, "strides": None, "data": (self._address, False),
            "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        with self._gpu.entered():
            self._gpu.cuda.cuMemFree(self._address)


def copied_bytes_a_second(size: int, rounds: int = 10) -> float:
    """What the device reads and writes in a second when it copies."""
    from mirlo.targets.nvvm.device import check, first_gpu

    gpu = first_gpu()
    with gpu.entered():
        cuda = gpu.cuda
        source, target = (check(cuda.cuMemAlloc(size), "making room") for _ in range(2))
        stream = check(cuda.cuStreamCreate(0), "making a stream")
        events = [check(cuda.cuEventCreate(0), "making an event") for _ in range(2)]
        for number in range(rounds + 1):
            if number == 1:
                check(cuda.cuEventRecord(events[0], stream), "recording an event")
            check(cuda.cuMemcpyDtoDAsync(target, source, size, stream), "copying")
        check(cuda.cuEventRecord(events[1], stream), "recording an event")
        check(cuda.cuStreamSynchronize(stream), "copying")
        milliseconds = float(check(cuda.cuEventElapsedTime(*events), "reading an event"))
        for address in (source, target):
            check(cuda.cuMemFree(address), "freeing memory")
    return 2e3 * size * rounds / milliseconds
