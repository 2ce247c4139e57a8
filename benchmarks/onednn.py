"""`python -m benchmarks.onednn`: models with parts in the oneDNN library, beside Mirlo alone and ONNX Runtime.

Each model and number of threads has a process of its own, in which the three take turns, with a pause after each run
so that no one's waiting threads take time from the next. Numbers are medians; `times` is the median of the ratios of
neighbouring runs. `FLOPs` is the share of the model's operations that the library does.
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

TARGETS = "onednn,llvm"
MODELS = ("resnet50", "bert_base", "mobilenetv2", "gpt2", "vit_base")
PAUSE = 0.01
COLUMNS = (
    ("model", "{}"),
    ("threads", "{}"),
    ("FLOPs %", "{:.2f}"),
    ("regions", "{}"),
    ("reorders", "{}"),
    ("load s", "{:.2f}"),
    ("onednn ms", "{:.2f}"),
    ("llvm ms", "{:.2f}"),
    ("onnxruntime ms", "{:.2f}"),
    ("times onnxruntime", "{:.2f}"),
    ("times llvm", "{:.2f}"),
    ("error", "{:.1e}"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onednn", description=__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"some of {', '.join(all_names())} (default: {', '.join(MODELS)})"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of all three (default: 1 2)")
    parser.add_argument("--repeat", type=int, default=20, help="runs of each (default: 20)")
    parser.add_argument("--cache", help="folder of the models (default: ~/.cache/mirlo/models)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        model = str(path(arguments.models[0], arguments.cache))
        print(json.dumps(measure(model, arguments.threads[0], arguments.repeat)))
        return 0
    print("  ".join(title for title, _ in COLUMNS))
    failed = 0
    for name in arguments.models or MODELS:
        for threads in arguments.threads:
            flags = ["--threads", threads, "--repeat", arguments.repeat, "--here"]
            flags += ["--cache", arguments.cache] if arguments.cache else []
            command = [sys.executable, "-m", "benchmarks.onednn", name, *map(str, flags)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
                failed = 1
                continue
            row = [name, threads, *json.loads(done.stdout.splitlines()[-1])]
            cells = (form.format(value).rjust(len(title)) for (title, form), value in zip(COLUMNS, row, strict=True))
            print("  ".join(cells), flush=True)
    return failed


def measure(model: str, threads: int, repeat: int) -> list[Any]:
    """The numbers of a row."""
    import numpy as np

    import mirlo

    mixed = mirlo.compile(model, TARGETS, threads=threads)
    alone = mirlo.compile(model, "llvm", threads=threads)
    session = _session(model, threads)
    inputs = mixed.random_inputs(seed=0)
    found = mixed.run(inputs)
    expected = dict(zip(found, session.run(list(found), inputs), strict=True))
    error = max(float(np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max()) for name in found)
    regions = sum(kernel.symbol.startswith("onednn.") for kernel in mixed.artifact.kernels)
    functions = [lambda: mixed.run(inputs), lambda: alone.run(inputs), lambda: session.run(None, inputs)]
    seconds = _with_pauses(functions, repeat)
    times = [
        statistics.median(ours / theirs for ours, theirs in zip(seconds[0], other, strict=True))
        for other in (seconds[2], seconds[1])
    ]
    milliseconds = [1000 * statistics.median(runs) for runs in seconds]
    share, reorders, loading = offloaded(model), *_loaded(mixed)
    return [100 * share, regions, reorders, loading, *milliseconds, *times, error]


def _session(model: str, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _with_pauses(functions: list[Callable[[], Any]], repeat: int) -> list[list[float]]:
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for function, times in zip(functions, seconds, strict=True):
            time.sleep(PAUSE)
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return seconds


def offloaded(model: str) -> float:
    """The share of a model's operations that target `onednn` takes."""
    from mirlo.dialects.bindings import ir
    from mirlo.passes.byoc.records import Placement
    from mirlo.passes.pipeline import Pipeline
    from mirlo.tools.models import open_model

    opened = open_model(model, None, None)
    with opened.module.context, ir.Location.unknown():
        passes = f"simplify,fold-constant,cse,remove-dead,partition{{targets={TARGETS}}}"
        Pipeline(passes).run(opened.module, opened.session)
    (placement,) = (note for note in opened.session.notes if isinstance(note, Placement))
    taken = {number for entry in placement.taken if entry.target == "onednn" for number in entry.nodes}
    return sum(n.flops or 0 for n in placement.nodes if n.id in taken) / sum(n.flops or 0 for n in placement.nodes)


def _loaded(exe: Any) -> tuple[int, float]:
    """Changes of layout in all regions, and the seconds in which their primitives are made."""
    from mirlo.targets.onednn.native.program import Program
    from mirlo.targets.onednn.plan import read

    reorders, seconds = 0, 0.0
    for artifact in exe.artifact.externals:
        params = {name: exe._store.get(name) for name in artifact.params}
        start = time.perf_counter()
        program = Program(read(artifact.data), params, exe.artifact.threads)
        seconds += time.perf_counter() - start
        reorders += sum(report.reorders for report in program.reports.values())
    return reorders, seconds


if __name__ == "__main__":
    sys.exit(main())
