"""Decoding and prompts: `python -m benchmarks.llm [--model NAME] [--threads T] [--repeat N] [--folder DIR]`.

Builds a decoder with random weights, runs it with Mirlo and ONNX Runtime in turns in one process, and prints the least
and the median time of each, the ratio of the medians of turns, and the largest difference of the logits. Both update
their caches in place. With one thread times are CPU time of the thread, which other processes hardly change; with
several they are wall time. Then come the cost of the loop of generation around the model, and what requests that run
together get in all.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import mirlo
from mirlo.benchmarks.llm.loop import report_loop
from mirlo.benchmarks.llm.model import LLAMA, TINY, DecoderConfig, feed, save
from mirlo.benchmarks.llm.serving import report_serving
from mirlo.benchmarks.turns import onnxruntime_session

MODELS = {
    "llama": LLAMA,
    "tiny": TINY,
    "asymmetric": replace(LLAMA, is_symmetric=False),
    "head8": replace(LLAMA, head_bits=8),
    "block128": replace(LLAMA, block=128),
}
CASES = ((1, 128, 1), (1, 2046, 1), (1, 8190, 1), (1, 128, 8), (64, 0, 1), (512, 0, 1))
"""New tokens, tokens before them, sequences."""


def with_room(arrays: dict[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
    """Return copies of caches that have room for new tokens."""
    return {
        name: np.concatenate([array, np.zeros_like(array, shape=(*array.shape[:2], tokens, array.shape[3]))], 2)
        for name, array in arrays.items()
        if name.startswith("past")
    }


def ours(executable: Any, arrays: dict[str, np.ndarray], tokens: int) -> Callable[[], Any]:
    """Return a call of Mirlo that updates its caches in place."""
    outputs = {name: output for output, name in executable.aliases.items()}
    call = executable.updating(with_room(arrays, tokens), outputs)
    others = {name: array for name, array in arrays.items() if name not in outputs}
    return lambda: call.run(others)["logits"]


def theirs(session: Any, arrays: dict[str, np.ndarray], tokens: int) -> Callable[[], Any]:
    """Return a call of ONNX Runtime on arrays that are bound once, with shared caches."""
    import onnxruntime

    binding = session.io_binding()
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in {**arrays, **with_room(arrays, tokens)}.items()
    }
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        source = output.name.replace("present", "past_key_values")
        if source in values:
            binding.bind_ortvalue_output(output.name, values[source])
        else:
            binding.bind_output(output.name, "cpu")
    return lambda: (session.run_with_iobinding(binding), binding.get_outputs(), values)[1]


def measure(calls: list[Callable[[], Any]], repeat: int, clock: Callable[[], float]) -> list[list[float]]:
    """Return the milliseconds of each call, in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for times, call in zip(found, calls, strict=True):
            start = clock()
            call()
            times.append(1000 * (clock() - start))
    return found


def report(config: DecoderConfig, path: Path, threads: int, repeat: int, activations: str | None, longest: int) -> None:
    """Measure a model and print the table."""
    executable = mirlo.compile(str(path), threads=threads, activations=activations)
    session = onnxruntime_session(str(path), threads)
    print(executable.memory)
    clock = time.thread_time if threads == 1 else time.perf_counter
    print(f"{'tokens':>6} {'past':>6} {'batch':>6} {'mirlo ms':>18} {'onnxruntime ms':>18} {'ratio':>7} {'error':>9}")
    for tokens, past, batch in CASES:
        if tokens + past > min(config.positions, longest):
            continue
        arrays = feed(config, tokens, past, batch)
        call, other = ours(executable, arrays, tokens), theirs(session, arrays, tokens)
        found, wanted = np.asarray(call()), other()[0].numpy()
        error = np.abs(found - wanted).max() / np.abs(wanted).max()
        mine, peer = measure([call, other], max(3, repeat // (1 + tokens * batch // 16)), clock)
        ratio = statistics.median(a / b for a, b in zip(mine, peer, strict=True))
        columns = "  ".join(f"{min(t):8.2f} {statistics.median(t):8.2f}" for t in (mine, peer))
        print(f"{tokens:6} {past:6} {batch:6} {columns} {ratio:8.2f} {error:9.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="llama", help="what to build (default: llama)")
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: 1)")
    parser.add_argument("--repeat", type=int, default=40, help="calls of a decoding step (default: 40)")
    parser.add_argument("--longest", type=int, default=16384, help="skip cases of more tokens than this")
    parser.add_argument("--activations", help="how activations are represented (default: as the model says)")
    parser.add_argument("--serving", action="store_true", help="measure only requests that run together")
    parser.add_argument("--folder", type=Path, help="where the model is kept; default: a temporary folder")
    arguments = parser.parse_args()
    config = MODELS[arguments.model]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)) / arguments.model
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "model.onnx"
        if not path.exists():
            save(config, folder)
        if not arguments.serving:
            report(config, path, arguments.threads, arguments.repeat, arguments.activations, arguments.longest)
            report_loop(folder / "loop")
        report_serving(folder, arguments.threads, arguments.activations)


if __name__ == "__main__":
    main()
