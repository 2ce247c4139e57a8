"""Comparison of one exported model with ONNX Runtime: `python -m benchmarks.zoo.judge MODEL.onnx`.

Prints one line of JSON. Runs in a process of its own, whose memory the runner limits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RIGHT, WRONG, REFUSED, NOT_COMPILED, NOT_RUN, DISPUTED = (
    "right", "wrong", "call refused", "not compiled", "not run by ONNX Runtime", "disputed",
)  # fmt: skip
REFERENCE_DONE = "reference done"
"""A line of output after which a crash is Mirlo's, not ONNX Runtime's."""

CALLS = 30
SECONDS = 0.6
TOLERANCE = 2e-4
"""Of the largest value of an output; more where ONNX Runtime with and without its optimizations differ by more."""

LOW_PRECISION_TOLERANCE = 3e-2
"""Of models that round to 8 or 16 bits inside: about four steps of int8, as a tie there moves all that follows."""


@dataclass
class Judgement:
    """What became of one exported model."""

    status: str
    reason: str = ""
    compile_seconds: float = 0.0
    error: float = 0.0
    """The largest difference to ONNX Runtime, by the largest value of the output."""
    shapes: list[list[list[int]]] = field(default_factory=list)
    mirlo_ms: list[float] = field(default_factory=list)
    onnxruntime_ms: list[float] = field(default_factory=list)


def session(path: Path, optimize: bool = True) -> Any:
    """Return a session of ONNX Runtime on one thread."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def difference(actual: Any, expected: Any) -> float:
    """Return the largest difference by the largest expected value; infinity if shapes or types differ."""
    if isinstance(expected, list) or isinstance(actual, list):
        return _list_difference(actual, expected)
    if isinstance(expected, dict):
        keys, values = list(expected), np.array(list(expected.values()))
        return difference(np.array([actual[k] for k in keys]), values) if set(actual) == set(keys) else float("inf")
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or (actual.dtype != expected.dtype and expected.dtype.kind != "O"):
        return float("inf")
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind not in "fc":
        return 0.0 if np.array_equal(actual, expected) else float(np.mean(actual != expected))
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if same.all():
        return 0.0
    finite = np.isfinite(expected)
    if not finite[~same].all() or not np.isfinite(actual[~same]).all():
        return float("inf")
    scale = max(float(np.abs(expected[finite]).max()), 1e-6)
    return float(np.abs(actual - expected)[~same].max()) / scale


def _list_difference(actual: Any, expected: Any) -> float:
    if not isinstance(expected, list) or not isinstance(actual, list | tuple) or len(actual) != len(expected):
        return float("inf")
    return max((difference(f, e) for f, e in zip(actual, expected, strict=True)), default=0.0)


def judge(path: Path) -> Judgement:
    """Compile the model, run it at its three shapes, compare and time it."""
    import mirlo

    feeds = [_load(path.with_suffix(f".{index}.npz")) for index in range(3)]
    try:
        reference = session(path)
        feeds = [_taken(each, [value.name for value in reference.get_inputs()]) for each in feeds]
        expected = [reference.run(None, each) for each in feeds]
    except Exception as error:  # ONNX Runtime's errors share no class below Exception
        return Judgement(NOT_RUN, _line(error).replace(f"{path.parent}/", ""))
    print(REFERENCE_DONE, flush=True)
    start = time.process_time()
    try:
        compiled: Any = mirlo.compile(str(path), cache=False, jobs=1)
    except Exception as error:
        return Judgement(NOT_COMPILED, _told(error, path), time.process_time() - start)
    verdict = Judgement(RIGHT, compile_seconds=time.process_time() - start)
    names = [value.name for value in reference.get_outputs()]
    tolerance = tolerance_of(path)
    for arrays, wanted in zip(feeds, expected, strict=True):
        verdict.shapes.append([list(np.shape(each)) for each in arrays.values()])
        try:
            results = compiled.run(arrays)
        except Exception as error:
            verdict.status, verdict.reason = REFUSED, f"{verdict.shapes[-1]}: {_told(error, path)}"
            return verdict
        for name, value in zip(names, wanted, strict=True):
            error = difference(results[name], value)
            verdict.error = max(verdict.error, error)
            if error > tolerance and verdict.status != WRONG:
                _contradict(path, verdict, name, arrays, (results[name], value), error)
    for arrays in feeds:
        fast, slow = _times(lambda a=arrays: compiled.run(a), lambda a=arrays: reference.run(None, a))
        verdict.mirlo_ms.append(fast)
        verdict.onnxruntime_ms.append(slow)
    return verdict


def tolerance_of(path: Path) -> float:
    """Return the tolerance for a model, by the numbers that it computes with."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    quantized = any("Quantize" in node.op_type or "Integer" in node.op_type for node in graph.node)
    half = any(each.data_type == onnx.TensorProto.FLOAT16 for each in graph.initializer)
    return LOW_PRECISION_TOLERANCE if quantized or half else TOLERANCE


def _contradict(path: Path, verdict: Judgement, name: str, arrays: Any, pair: tuple[Any, Any], error: float) -> None:
    """Decide whether a result is wrong, or rounding moves ONNX Runtime's own results as far."""
    actual, expected = pair
    others = _rounded(path, name, arrays)
    if any(difference(actual, other) <= tolerance_of(path) for other in others[:1]):
        return
    own = max((difference(other, expected) for other in others), default=0.0)
    verdict.status = DISPUTED if error <= 10 * own else WRONG
    verdict.reason = (
        f"output '{name}' of {[list(np.shape(a)) for a in arrays.values()]} departs by {error:.1e}, "
        f"ONNX Runtime's own by {own:.1e} where it rounds otherwise"
    )


def _rounded(path: Path, name: str, arrays: Any) -> list[Any]:
    """Return what ONNX Runtime computes without its optimizations, then of inputs that differ by their rounding."""
    result = []
    for seed, optimize in enumerate((False, False, True, True)):
        rng = np.random.default_rng(seed)
        nudged = {
            key: value * (1 + 2e-7 * rng.standard_normal(value.shape)).astype(value.dtype)
            if seed and value.dtype.kind == "f" else value
            for key, value in arrays.items()
        }  # fmt: skip
        try:
            result.append(session(path, optimize).run([name], nudged)[0])
        except Exception:  # an operator that only its optimizations implement
            continue
    return result


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _taken(arrays: dict[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the inputs that the exported model still has: exporters leave out those that change nothing."""
    return {name: arrays[name] for name in names}


def _times(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Return the least milliseconds of this thread's CPU time of each, called in turns: other processes count less."""
    least = [float("inf"), float("inf")]
    deadline = time.perf_counter() + SECONDS
    for count in range(CALLS):
        for index, call in enumerate((one, other)):
            start = time.thread_time()
            call()
            least[index] = min(least[index], 1000 * (time.thread_time() - start))
        if count >= 4 and time.perf_counter() > deadline:
            break
    return least[0], least[1]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]


def _told(error: BaseException, path: Path) -> str:
    """Return the message of an error without the file that it names, marked where it is none of Mirlo's own."""
    own = type(error).__module__.startswith("mirlo")
    return ("" if own else f"internal {type(error).__name__}: ") + _line(error).replace(f"{path}: ", "")


def main() -> None:
    print(json.dumps(asdict(judge(Path(sys.argv[1])))))


if __name__ == "__main__":
    main()
