"""TOSA and TensorFlow Lite against what others made of them: Arm's generated tests, and models of packages.

python -m benchmarks.tosa --tests FOLDER --each 3     # tests that `tosa_verif_build_tests` of `tosa-tools` generated
python -m benchmarks.tosa --models FILE.tflite ...    # beside TensorFlow Lite's own interpreter, `ai-edge-litert`
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np

import mirlo
from mirlo.benchmarks.turns import take_turns

SECONDS = 60
NARROW = {"bf16": ml_dtypes.bfloat16, "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
"""Types that the tests store as bits."""
TOLERANCES = {"f32": 1e-4, "f16": 3e-3, "bf16": 2e-2, "f8e4m3fn": 0.13, "f8e5m2": 0.25}
"""Largest difference from the reference model, as a fraction of the largest result."""


def run_test(folder: Path) -> tuple[Path, str, str]:
    """Return what became of a generated test: 'right', 'wrong', 'refused' or 'no result', and why."""
    test = json.loads((folder / "desc.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as results:
        reference = ["tosa_reference_model", f"--test_desc={folder / 'desc.json'}", f"--output_dir={results}"]
        subprocess.run(reference, capture_output=True, cwd=folder, timeout=SECONDS, check=False)
        files = [Path(results, name) for name in test["ofm_file"]]
        if not all(file.is_file() for file in files):
            return folder, "no result", "of the reference model"
        expected = [np.load(file) for file in files]
    try:
        executable = mirlo.compile(folder / test["tosa_file"], cache=False, threads=1)
        arrays = [np.load(folder / name) for name in test["ifm_file"]]
        inputs = [_as(array, spec.dtype) for array, spec in zip(arrays, executable.inputs, strict=True)]
        result = executable(*inputs)
    except mirlo.MirloError as error:
        return folder, "refused", str(error).partition(": operation ")[2][:120] or str(error)[:120]
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    for spec, array, other in zip(executable.outputs, outputs, expected, strict=True):
        # Inexact rounding is left to implementations.
        problem = _difference(array, _as(other, spec.dtype), str(spec.dtype), is_inexact="_rmI_" in folder.name)
        if problem:
            return folder, "wrong", problem
    return folder, "right", ""


def _as(array: np.ndarray, dtype: object) -> np.ndarray:
    """Return an array of a test as its element type: narrow floats are stored as bits."""
    narrow = NARROW.get(str(dtype))
    if narrow is not None and array.dtype.itemsize == np.dtype(narrow).itemsize:
        return array.view(narrow)
    wide = {"i64": np.int64, "i4": ml_dtypes.int4}.get(str(dtype)) if narrow is None else narrow
    return array if wide is None else array.astype(wide)


def _difference(array: np.ndarray, expected: np.ndarray, dtype: str, is_inexact: bool) -> str:
    if array.shape != expected.shape:
        return f"{array.shape} in place of {expected.shape}"
    one, other = array.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(other)
    if not np.array_equal(np.isfinite(one), finite):
        return "infinities or NaN differ"
    if not finite.any():
        return ""
    largest = float(np.abs(other[finite]).max())
    apart = float(np.abs(one[finite] - other[finite]).max())
    allowed = TOLERANCES[dtype] * largest if dtype in TOLERANCES else 1 + largest * 1e-6 if is_inexact else 0.0
    return f"differs by {apart:g} where the largest is {largest:g}" if apart > allowed else ""


def run_tests(folder: Path, each: int, seed: int) -> None:
    """Run some tests of each operation and print what became of them."""
    rng, by_operation = random.Random(seed), defaultdict(list)
    for file in sorted(folder.glob("*/*/desc.json")):
        kinds = [part for part in file.parent.name.split("_") if part[:1] in "ifb" and part[-1:].isdigit()]
        by_operation[file.parts[-3], tuple(kinds[:1])].append(file.parent)
    chosen = [test for tests in by_operation.values() for test in rng.sample(tests, min(each, len(tests)))]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        for test, outcome, why in pool.map(run_test, chosen, chunksize=4):
            counts[outcome] += 1
            if outcome != "right":
                print(f"{outcome}: {test.parent.name}/{test.name}: {why}", flush=True)
    print(f"{len(chosen)} of {sum(map(len, by_operation.values()))} tests: {dict(counts)}")


def run_models(files: Sequence[Path], repeat: int) -> None:
    """Print a table of models beside TensorFlow Lite's interpreter, on one thread."""
    print("| model | difference | ms | ratio | opened |\n| --- | ---: | ---: | ---: | ---: |")
    for file in files:
        name, start = f"{file.parent.name}: {file.name}", time.perf_counter()
        try:
            executable, states = mirlo.compile(file, cache=False, threads=1), mirlo.initial_states(file)
        except mirlo.MirloError as error:
            print(f"| {name} | refused: {str(error).replace(str(file), '')[:100]} | | | |", flush=True)
            continue
        print(f"| {name} | {_beside(file, executable, list(states.values()), repeat)} | "
              f"{time.perf_counter() - start:.1f} s |", flush=True)  # fmt: skip


def _beside(file: Path, executable: mirlo.Executable, states: list[np.ndarray], repeat: int) -> str:
    from ai_edge_litert.interpreter import Interpreter

    interpreter, rng = Interpreter(str(file), num_threads=1), np.random.default_rng(0)
    inputs, feeds = interpreter.get_input_details(), []
    for each in inputs:
        shape = [max(1, int(dim)) for dim in each["shape"]]
        is_float = np.dtype(each["dtype"]).kind == "f"
        array = rng.standard_normal(shape) if is_float else rng.integers(-128, 127, shape)
        feeds.append(array.astype(each["dtype"]))
        interpreter.resize_tensor_input(each["index"], shape)
    interpreter.allocate_tensors()

    def theirs() -> list[np.ndarray]:
        for each, array in zip(inputs, feeds, strict=True):
            interpreter.set_tensor(each["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]

    worst, held = 0.0, states
    for _ in range(3 if states else 1):
        result = executable(*feeds, *held)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        outputs, held = outputs[: len(outputs) - len(states)], outputs[len(outputs) - len(states) :]
        for expected in theirs():  # in another order, perhaps
            same = [each for each in outputs if each.shape == expected.shape]
            largest = float(np.abs(expected.astype(np.float64)).max()) or 1.0
            apart = (float(np.abs(each.astype(np.float64) - expected).max()) / largest for each in same)
            worst = max(worst, min(apart, default=float("inf")))
    turns = take_turns([lambda: executable(*feeds, *held), theirs], repeat)
    return f"{worst:.0e} | {turns.milliseconds[0]:.2f} | {turns.ratio(0, 1):.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path, metavar="FOLDER", help="run generated tests")
    parser.add_argument("--each", type=int, default=3, help="how many of each operation and element type")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--models", type=Path, nargs="+", metavar="FILE", help="measure models of TensorFlow Lite")
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.tests is not None:
        run_tests(arguments.tests, arguments.each, arguments.seed)
    if arguments.models is not None:
        run_models(arguments.models, arguments.repeat)
