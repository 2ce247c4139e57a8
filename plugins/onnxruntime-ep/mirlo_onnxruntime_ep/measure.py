"""Measurements of models with the provider, compared with ONNX Runtime's own provider."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirlo_onnxruntime_ep import NAME, register

CALLS = 15
"""Alternating calls of each provider."""


HEAD = "| model | difference | ratio | cold | cached | nodes |\n| --- |" + " ---: |" * 5


@dataclass(frozen=True)
class Measurement:
    """The measurements of a model."""

    difference: float
    """The largest difference, relative to the largest result."""
    ratio: float
    """The median time of a call, relative to ONNX Runtime's own provider."""
    cold: float
    cached: float
    taken: int
    nodes: int

    def row(self, model: str) -> str:
        """Return a row of the table."""
        return (
            f"| {model} | {self.difference:.1g} | {self.ratio:.2f} | {self.cold:.1f} s | {self.cached:.2f} s | "
            f"{self.taken} of {self.nodes} |"
        )


def measure(
    model: str | Path, sizes: Mapping[str, int], threads: int = 1, feed: Mapping[str, np.ndarray] | None = None
) -> Measurement:
    """Open a model twice with the provider, and time it against ONNX Runtime's own."""
    import onnxruntime

    register()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    feed = feed or {each.name: _array(each, sizes) for each in theirs.get_inputs()}
    expected = theirs.run(None, feed)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = {"threads": str(threads), "report": str(report)}
        times = []
        for _ in range(2):
            start = time.perf_counter()
            ours = onnxruntime.InferenceSession(
                str(model), settings, providers=[NAME, "CPUExecutionProvider"], provider_options=[options, {}]
            )
            times.append(time.perf_counter() - start)
        nodes = json.loads(report.read_text())["nodes"]
    ratios = []
    for _ in range(CALLS):
        marks = [time.perf_counter()]
        for session in (ours, theirs):
            session.run(None, feed)
            marks.append(time.perf_counter())
        ratios.append((marks[1] - marks[0]) / (marks[2] - marks[1]))
    taken = sum(node["part"] is not None for node in nodes)
    return Measurement(difference(ours.run(None, feed), expected), statistics.median(ratios), *times, taken, len(nodes))


def measure_packages(threads: int = 1) -> Iterator[tuple[str, Measurement]]:
    """Yield the models in installed packages, with their measurements."""
    import onnxruntime

    from mirlo.benchmarks.clients import feed_of, packaged_models

    for model in packaged_models():
        session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
        feed = feed_of(model.name, session.get_inputs())
        yield f"{model.package}: {model.path.name}", measure(model.path, {}, threads, feed)


def summary(rows: Sequence[Measurement]) -> str:
    """Return the ratios and times of all models."""
    mean = math.exp(statistics.mean(math.log(row.ratio) for row in rows))
    whole = sum(row.taken == row.nodes for row in rows)
    return (
        f"{len(rows)} models, {whole} taken whole: ratio {mean:.2f} in the geometric mean, "
        f"{max(row.ratio for row in rows):.2f} at most; opened in {statistics.median(row.cold for row in rows):.1f} s "
        f"in the median, from the cache in {statistics.median(row.cached for row in rows):.2f} s"
    )


def difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference relative to the largest result; infinity for other shapes or types."""
    worst = 0.0
    for mine, other in zip(found, expected, strict=True):
        if not isinstance(other, np.ndarray) or other.dtype.kind not in "fiub":
            worst = max(worst, 0.0 if np.array_equal(mine, other) else np.inf)
        elif mine.shape != other.shape or mine.dtype != other.dtype:
            return np.inf
        elif other.size:
            delta = np.abs(np.nan_to_num(mine.astype(np.float64)) - np.nan_to_num(other.astype(np.float64))).max()
            worst = max(worst, float(delta / max(np.abs(np.nan_to_num(other)).max(), 1e-6)))
    return worst


def _array(argument: Any, sizes: Mapping[str, int]) -> np.ndarray:
    shape = [dim if isinstance(dim, int) else sizes.get(dim or "", 1) for dim in argument.shape]
    kind = argument.type.removeprefix("tensor(").removesuffix(")")
    rng = np.random.default_rng(0)
    if kind.startswith("float") or kind == "double":
        return rng.standard_normal(shape).astype({"float": "f4", "double": "f8", "float16": "f2"}[kind])
    return np.ones(shape, "bool" if kind == "bool" else kind)
