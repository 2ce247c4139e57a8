"""`python -m benchmarks.onednn`: models with parts in the oneDNN library, beside Mirlo alone and ONNX Runtime.

Each model and number of threads has a process of its own, in which the three take turns, with a pause after each run
so that no one's waiting threads take time from the next. Numbers are medians; `times` is the median of the ratios of
neighbouring runs. `FLOPs` is the share of the model's operations that the library does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .models import path
from .turns import largest_error, model_arguments, onnxruntime_session, print_row, row_elsewhere, take_turns

TARGETS = "onednn,llvm"
MODELS = ("resnet50", "bert_base", "mobilenetv2", "gpt2", "vit_base")
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
    arguments = model_arguments("python -m benchmarks.onednn", __doc__, MODELS, repeat=20).parse_args()
    if arguments.here:
        model = str(path(arguments.models[0], arguments.cache))
        print(json.dumps(measure(model, arguments.threads[0], arguments.repeat)))
        return 0
    print("  ".join(title for title, _ in COLUMNS))
    failed = 0
    for name in arguments.models or MODELS:
        for threads in arguments.threads:
            words = [name, "--threads", threads, "--repeat", arguments.repeat]
            words += ["--cache", arguments.cache] if arguments.cache else []
            try:
                print_row(COLUMNS, [name, threads, *row_elsewhere("mirlo.benchmarks.onednn", words)])
            except RuntimeError as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


def measure(model: str, threads: int, repeat: int) -> list[Any]:
    """Return the figures of a row."""
    import mirlo

    mixed = mirlo.compile(model, TARGETS, threads=threads)
    alone = mirlo.compile(model, "llvm", threads=threads)
    session = onnxruntime_session(model, threads)
    inputs = mixed.random_inputs(seed=0)
    error = largest_error(mixed.run(inputs), session, inputs)
    regions = sum(kernel.symbol.startswith("onednn.") for kernel in mixed.artifact.kernels)
    runs = (lambda: mixed.run(inputs), lambda: alone.run(inputs), lambda: session.run(None, inputs))
    turns = take_turns(runs, repeat)
    share, reorders, loading = offloaded(model), *_loaded(mixed)
    return [100 * share, regions, reorders, loading, *turns.milliseconds, turns.ratio(0, 2), turns.ratio(0, 1), error]


def offloaded(model: str) -> float:
    """Return the share of a model's operations that target `onednn` takes."""
    from mirlo.dialects.bindings import ir
    from mirlo.driver.models import open_model
    from mirlo.passes.byoc.records import Placement
    from mirlo.passes.pipeline import Pipeline

    opened = open_model(model, None, None)
    with opened.module.context, ir.Location.unknown():
        passes = f"simplify,fold-constant,cse,remove-dead,partition{{targets={TARGETS}}}"
        Pipeline(passes).run(opened.module, opened.session)
    (placement,) = (note for note in opened.session.notes if isinstance(note, Placement))
    taken = {number for entry in placement.taken if entry.target == "onednn" for number in entry.nodes}
    return sum(n.flops or 0 for n in placement.nodes if n.id in taken) / sum(n.flops or 0 for n in placement.nodes)


def _loaded(exe: Any) -> tuple[int, float]:
    """Count the layout changes in all regions; return that and the seconds in which their primitives are made."""
    from mirlo_onednn.native.program import OneDnnProgram
    from mirlo_onednn.plan import read

    reorders, seconds = 0, 0.0
    for artifact in exe.artifact.externals:
        params = {name: exe._store.get(name) for name in artifact.params}
        start = time.perf_counter()
        program = OneDnnProgram(read(artifact.data), params, exe.artifact.threads)
        seconds += time.perf_counter() - start
        reorders += sum(report.reorders for report in program.reports.values())
    return reorders, seconds


if __name__ == "__main__":
    sys.exit(main())
