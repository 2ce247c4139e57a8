"""`python -m benchmarks.placement`: models divided among several targets, and what placement by measured cost takes.

For each model, list of targets and number of threads, in a process of its own: the share of the model's operations that
each code generator has, how far results are from ONNX Runtime's, the time of a run by priority, and that of the
alternative that `placement="measured"` takes, both by ONNX Runtime's. All take turns, with a pause after each run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .models import all_names, path
from .onednn import _session

TARGETS = ("onednn,llvm", "onnx,llvm", "onednn,onnx,llvm")
PAUSE = 0.05
MODELS = ("resnet50", "bert_base")
COLUMNS = (
    ("model       ", "{}"),
    ("targets           ", "{}"),
    ("threads", "{}"),
    ("share of FLOPs", "{}"),
    ("error  ", "{:.1e}"),
    ("priority ms", "{:.2f}"),
    ("measured ms", "{:.2f}"),
    ("onnxruntime ms", "{:.2f}"),
    ("priority by it", "{:.2f}"),
    ("measured by it", "{:.2f}"),
    ("taken", "{}"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"some of {', '.join(all_names())} (default: {', '.join(MODELS)})"
    )
    parser.add_argument(
        "--targets", nargs="+", default=TARGETS, help=f"lists of targets (default: {' '.join(TARGETS)})"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of all (default: 1 2)")
    parser.add_argument("--repeat", type=int, default=16, help="runs of each (default: 16)")
    parser.add_argument("--cache", help="folder of the models (default: ~/.cache/mirlo/models)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        model = str(path(arguments.models[0], arguments.cache))
        print(json.dumps(measure(model, arguments.targets[0], arguments.threads[0], arguments.repeat)))
        return 0
    print("  ".join(title for title, _ in COLUMNS))
    rows = [(m, t, n) for m in arguments.models or MODELS for t in arguments.targets for n in arguments.threads]
    return max([_row(*row, arguments.repeat, arguments.cache) for row in rows], default=0)


def _row(name: str, targets: str, threads: int, repeat: int, cache: str | None) -> int:
    flags = ["--targets", targets, "--threads", threads, "--repeat", repeat, "--here"]
    flags += ["--cache", cache] if cache else []
    command = [sys.executable, "-m", "benchmarks.placement", name, *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} {targets}: {done.stderr.strip()}", file=sys.stderr)
        return 1
    row = [name, targets, threads, *json.loads(done.stdout.splitlines()[-1])]
    cells = (form.format(value).ljust(len(title)) for (title, form), value in zip(COLUMNS, row, strict=True))
    print("  ".join(cells), flush=True)
    return 0


def measure(model: str, targets: str, threads: int, repeat: int) -> list[Any]:
    """The numbers of a row."""
    import numpy as np

    import mirlo
    from mirlo.tools.place.survey import survey

    placed = survey(model, targets)
    whole = placed.total.flops or 1
    shares = {name: 100 * (share.flops or 0) / whole for name, share in placed.shares.items() if name != placed.rest}
    by_priority = mirlo.compile(model, targets, threads=threads)
    measured = mirlo.compile(model, targets, threads=threads, placement="measured")
    session = _session(model, threads)
    inputs = by_priority.random_inputs(seed=0)
    found = by_priority.run(inputs)
    expected = dict(zip(found, session.run(list(found), inputs), strict=True))
    error = max(float(np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max()) for name in found)
    functions = [lambda: by_priority.run(inputs), lambda: measured.run(inputs), lambda: session.run(None, inputs)]
    seconds = _in_turns(functions, repeat)
    ratios = [
        statistics.median(ours / theirs for ours, theirs in zip(times, seconds[2], strict=True))
        for times in seconds[:2]
    ]
    milliseconds = [1000 * statistics.median(runs) for runs in seconds]
    text = ", ".join(f"{name} {share:.2f} %" for name, share in shares.items())
    taken = measured.artifact.metadata.get("placement", {}).get("taken", "")
    return [text, error, *milliseconds, *ratios, taken]


def _in_turns(functions: list[Callable[[], Any]], repeat: int) -> list[list[float]]:
    """Seconds of each, to and fro: nobody always runs after the same other one, whose threads may still be waiting."""
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(repeat):
        order = range(len(functions)) if number % 2 == 0 else reversed(range(len(functions)))
        for i in order:
            time.sleep(PAUSE)
            start = time.perf_counter()
            functions[i]()
            seconds[i].append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
