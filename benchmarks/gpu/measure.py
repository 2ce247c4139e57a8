"""How long units take: kernels by the device's clock, calls that stay on the device, and what the device copies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .peers import REPEAT, calls_of
from .unit import Unit

ROUNDS = 5
"""Turns of all, of which the median counts."""


def measured(
    unit: Unit, model: Any, inputs: Sequence[np.ndarray], folder: Path, inductor: bool = False
) -> dict[str, Any]:
    """Return the times of a unit and of its peers in microseconds, measured alternately, each of calls in one graph."""
    row: dict[str, Any] = {}
    names = [spec.name for spec in model.inputs]
    try:
        peers, row["peer_why"] = calls_of(unit.peer, names, inputs, folder, inductor)
    except Exception as problem:  # what others cannot do is reported, and is no failure of the unit
        peers, row["peer_why"] = {}, _first_line(problem)
    own: list[float] = []
    others: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        own.append(_microseconds(model, inputs))
        for name, timed in list(peers.items()):
            try:
                others.setdefault(name, []).append(1e6 * timed())
            except Exception as problem:
                del peers[name]
                others.pop(name, None)
                row["peer_why"] = f"{name}: {_first_line(problem)}"
    row["us"] = statistics.median(own)
    row["us_each"] = own
    row["peers"] = {name: statistics.median(times) for name, times in others.items()}
    if row["peers"]:
        row["peer"] = min(row["peers"], key=row["peers"].__getitem__)
        row["peer_us"] = row["peers"][row["peer"]]
        row["ratio"] = row["peer_us"] / row["us"]
    if unit.is_latency:
        row["kernels_us"] = model.profile(*inputs, repeats=3).microseconds
        row["call_us"] = _of_calls(lambda: model(*inputs))
    if unit.flops:
        row["tflops"] = 1e-6 * unit.flops / row["us"]
    if unit.moved:
        row["gbytes"] = 1e-3 * unit.moved / row["us"]
    return row


def _first_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def _microseconds(model: Any, inputs: Sequence[np.ndarray]) -> float:
    """Return the time of a call whose arrays stay on the device; without such a call, of its kernels."""
    microseconds: float | None = model.device_microseconds(*inputs, repeats=REPEAT)
    return model.profile(*inputs, repeats=3).microseconds if microseconds is None else microseconds


def _of_calls(call: Any, calls: int = 10) -> float:
    """Return the times of calls as a caller on the CPU sees them."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def copied_bytes_a_second(size: int, rounds: int = 10) -> float:
    """Return the bytes that the device reads and writes per second when it copies."""
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
