"""Processors with AMX: `python -m benchmarks.amx [--models NAME,...] [--openvino] [--seconds S] [--pause MS]`.

Measures products and models in f32, in bf16 on AMX and in bf16 on vectors (`llvm{tiles=none}`), in turns in one
process, on one thread; with `--openvino` that engine with its defaults and in f32 as well. Columns are medians.
With `--emulated` it calls each once on a machine without AMX, with `llvm{tiles=emulated}`, and shows the largest
differences from f32, relative to the largest result: the times are those of the emulation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import mirlo
from mirlo import R
from mirlo.benchmarks.turns import relative_error
from mirlo.targets.llvm.options import host_machine
from mirlo.tools import samples

PRODUCTS = (
    (128, 768, 768, "relu"), (128, 3072, 768, "relu"), (197, 768, 3072, "gelu"), (1024, 1024, 1024, "relu"),
    (49, 2048, 512, "relu"), (8, 768, 768, "relu"),
)  # fmt: skip
"""Rows, products and columns of a matrix product with a bias, and its activation."""
ROWS: dict[str, dict[str, Any]] = {
    "f32": {},
    "bf16": {"precision": "bf16"},
    "bf16, no AMX": {"precision": "bf16", "target": "llvm{tiles=none}"},
}


def product(m: int, k: int, n: int, activation: str) -> tuple[Any, np.ndarray]:
    """Return a product with a bias and an activation, and its input."""
    random = np.random.default_rng(0)
    weight = (random.standard_normal((k, n)) / k**0.5).astype(np.float32)
    bias = random.standard_normal(n).astype(np.float32)
    activate = getattr(R, activation)

    @mirlo.script
    def model(x: R.Tensor[(m, k), R.f32]):
        return activate(R.add(R.matmul(x, R.const(weight)), R.const(bias)))

    return model, random.standard_normal((m, k)).astype(np.float32)


def feeds_of(executable: Any) -> list[np.ndarray]:
    """Return random inputs of a model."""
    random = np.random.default_rng(0)
    arrays = []
    for spec in executable.inputs:
        shape = [size if isinstance(size, int) else 1 for size in spec.shape]
        is_float = str(spec.dtype).startswith("f")
        arrays.append(
            random.standard_normal(shape).astype(np.float32) if is_float else random.integers(0, 100, shape, np.int64)
        )
    return arrays


def openvino_runner(path: str, arrays: Sequence[np.ndarray], precision: str | None) -> Callable[[], Any]:
    """Return a call of OpenVINO on one thread, with the types that it chooses or with one."""
    import openvino

    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
    if precision is not None:
        options["INFERENCE_PRECISION_HINT"] = precision
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
    for i, array in enumerate(arrays):
        request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))
    return request.infer


IN_A_ROW = 8
"""Calls of one engine before the next one's turn, where there are no pauses; the first two are not counted: an engine
whose threads slept while the others computed would pay for waking them in every call."""


def medians(calls: dict[str, Callable[[], Any]], seconds: float, pause: float) -> dict[str, float]:
    """Return the medians of calls, in milliseconds: in a row, engines in turns; or each call after a pause."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    count, skipped = (1, 0) if pause else (IN_A_ROW, 2)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[next(iter(times))]) < 5:
        for name, call in calls.items():
            for turn in range(count):
                time.sleep(pause)
                start = time.perf_counter()
                call()
                if turn >= skipped:
                    times[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(each) for name, each in times.items()}


def report(title: str, calls: dict[str, Callable[[], Any]], seconds: float, pause: float) -> None:
    """Print a line of medians."""
    cells = ", ".join(f"{name} {value:.3f}" for name, value in medians(calls, seconds, pause).items())
    print(f"{title}: {cells} ms", flush=True)


def report_errors(title: str, calls: dict[str, Callable[[], Any]]) -> None:
    """Call each once; print how long it takes, and how far its first result is from that of f32."""
    cells: list[str] = []
    wanted: np.ndarray | None = None
    for name, call in calls.items():
        start = time.perf_counter()
        result = call()
        elapsed = 1000 * (time.perf_counter() - start)
        first = np.asarray(result[0] if isinstance(result, list | tuple) else result, np.float64)
        wanted = first if wanted is None else wanted
        cells.append(f"{name} {elapsed:.1f} ms, error {relative_error(first, wanted):.1e}")
    print(f"{title}: {'; '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amx", description="Measure AMX beside vectors.")
    parser.add_argument("--models", default=",".join(samples.names()), help="samples, or an empty text for none")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--openvino", action="store_true", help="measure OpenVINO too")
    mode.add_argument("--emulated", action="store_true", help="call each once, with AMX emulated")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each line")
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds before each call")
    options = parser.parse_args()
    if not host_machine().tiles and not options.emulated:
        raise SystemExit("this machine has no AMX that the system permits; --emulated computes what it does")
    pause = options.pause / 1000
    rows = ROWS | {"bf16": {"precision": "bf16", "target": "llvm{tiles=emulated}"}} if options.emulated else ROWS

    def measure(title: str, calls: dict[str, Callable[[], Any]], seconds: float) -> None:
        if options.emulated:
            report_errors(title, calls)
        else:
            report(title, calls, seconds, pause)

    for shape in PRODUCTS:
        model, x = product(*shape)
        built = {name: mirlo.compile(model, cache=False, **row) for name, row in rows.items()}
        calls = {name: partial(f, x) for name, f in built.items()}
        measure("x".join(map(str, shape[:3])), calls, min(options.seconds, 2.0))
    for name in filter(None, options.models.split(",")):
        path = str(samples.path(name))
        built = {row: mirlo.compile(path, cache=False, **chosen) for row, chosen in rows.items()}
        arrays = feeds_of(built["f32"])
        calls: dict[str, Callable[[], Any]] = {row: partial(f, *arrays) for row, f in built.items()}
        if options.openvino:
            calls["OpenVINO"] = openvino_runner(path, arrays, None)
            calls["OpenVINO f32"] = openvino_runner(path, arrays, "f32")
        measure(name, calls, options.seconds)


if __name__ == "__main__":
    main()
