"""Models compiled once for all sizes: whether they are right for ten shapes, and how fast beside builds for one size.

    python -m benchmarks.dynamic bert_base gpt2 resnet50 detector

Results are compared with ONNX Runtime's on the same model. Latencies are medians of pairs that run one after the other.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mirlo.benchmarks import models
from mirlo.benchmarks.models import dynamic
from mirlo.benchmarks.turns import relative_error

TOKENS = ((1, 1), (1, 7), (2, 16), (1, 33), (3, 5), (1, 64), (1, 128), (2, 50), (4, 17), (1, 100))
IMAGES = tuple((batch, 0) for batch in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
SIDES = ((320, 320), (640, 640), (333, 500), (480, 640), (96, 64), (37, 50))
"""Heights and widths of images for the detector."""
PAIRS = 9


def arrays_for(model: Any, batch: int, length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return inputs of a model of these sizes."""
    arrays: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if length == 0:
            arrays[value.name] = rng.standard_normal((batch, 3, 224, 224), dtype=np.float32)
        elif value.name == "attention_mask":
            arrays[value.name] = np.arange(length)[None] < rng.integers(1, length + 1, (batch, 1))
            arrays[value.name] = arrays[value.name].astype(np.int64)
        else:
            arrays[value.name] = rng.integers(0, 2 if value.name == "token_type_ids" else 5000, (batch, length))
    return arrays


def measure(name: str) -> None:
    import onnx
    import onnxruntime

    import mirlo

    fixed = onnx.load(str(models.path(name)))
    model = dynamic.with_symbols(fixed)
    every, one = mirlo.compile(model), mirlo.compile(fixed)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    is_text = model.graph.input[0].name == "input_ids"
    worst = 0.0
    for batch, length in TOKENS if is_text else IMAGES:
        feeds = arrays_for(model, batch, length, rng)
        actual, expected = next(iter(every.run(feeds).values())), reference.run(None, feeds)[0]
        if actual.shape != expected.shape:
            raise SystemExit(f"{name}: of {batch} x {length} the shape is {actual.shape}, not {expected.shape}")
        worst = max(worst, relative_error(actual, expected))
    length = fixed.graph.input[0].type.tensor_type.shape.dim[1].dim_value if is_text else 0
    feeds = arrays_for(model, 1, length, rng)
    pairs = [(_seconds(every, feeds), _seconds(one, feeds)) for _ in range(PAIRS)][1:]
    ratio = statistics.median(a / b for a, b in pairs)
    times = " and ".join(f"{1000 * statistics.median(each):.1f} ms" for each in zip(*pairs, strict=True))
    print(f"{name}: ten shapes right to {worst:.1e}; any size and one size: {times}, ratio {ratio:.2f}")


def measure_detector() -> None:
    """Compare a detector whose head computes with the size of the image with ONNX Runtime, and with fixed sizes."""
    import mirlo
    from mirlo.benchmarks.models.detector import detector
    from mirlo.benchmarks.turns import onnxruntime_session

    model = detector()
    every, theirs = mirlo.compile(model, threads=1), onnxruntime_session(model.SerializeToString(), threads=1)
    rng = np.random.default_rng(0)
    for height, width in SIDES:
        feeds = {"x": rng.random((1, 3, height, width), np.float32)}
        one = mirlo.compile(model, shapes={"x": [1, 3, height, width]}, threads=1)
        actual, expected = next(iter(every.run(feeds).values())), theirs.run(None, feeds)[0]
        if actual.shape != expected.shape:
            raise SystemExit(f"detector: of {height} x {width} the shape is {actual.shape}, not {expected.shape}")
        error = relative_error(actual, expected)
        calls = [partial(every.run, feeds), partial(theirs.run, None, feeds), partial(one.run, feeds)]
        turns = [[_thread_seconds(call) for call in calls] for _ in range(PAIRS)][1:]
        to_theirs, to_one = (statistics.median(turn[0] / turn[other] for turn in turns) for other in (1, 2))
        times = 1000 * statistics.median(turn[0] for turn in turns)
        print(
            f"detector, {height} x {width}: right to {error:.1e}; {times:.1f} ms, ratio to ONNX Runtime "
            f"{to_theirs:.2f}, to a build for this size {to_one:.2f}"
        )


def _thread_seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _seconds(executable: Any, feeds: dict[str, np.ndarray]) -> float:
    start = time.perf_counter()
    executable.run(feeds)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["bert_base", "gpt2", "resnet50", "detector"])
    for name in parser.parse_args().models:
        measure_detector() if name == "detector" else measure(name)


if __name__ == "__main__":
    main()
