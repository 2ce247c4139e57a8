"""PyTorch on the GPU, which benchmarks compare with where it is installed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

ROUNDS = 5
"""Turns of the two, of which the median counts."""


def torch_on_gpu() -> Any:
    """The module, or None where it is not there or has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def device_name() -> str:
    """The GPU, for titles."""
    torch = torch_on_gpu()
    return "" if torch is None else f", {torch.cuda.get_device_name()}"


def seconds(run: Callable[[], Any], repeat: int) -> float:
    """Of one call, on the device's clock."""
    torch = torch_on_gpu()
    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeat):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(1e-3 * start.elapsed_time(end) / repeat)


def in_turns(model: Any, inputs: Any, peer: Callable[[], Any] | None, repeat: int) -> tuple[float, float | None]:
    """Seconds of a compiled model, and of what PyTorch does, measured in turns."""
    own_times, peer_times = [], []
    for _ in range(ROUNDS):
        own_times.append(1e-6 * model.profile(*inputs, repeats=repeat).microseconds)
        if peer is not None:
            peer_times.append(seconds(peer, repeat))
    return statistics.median(own_times), statistics.median(peer_times) if peer_times else None
