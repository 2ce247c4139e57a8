"""`python -m benchmarks.placement`: models divided among several targets, and what placement by measured cost takes.

For each model, list of targets and number of threads, in a process of its own: the share of the model's operations that
each code generator has, how far results are from ONNX Runtime's, the time of a run by priority, and that of the
alternative that `placement="measured"` takes, both by ONNX Runtime's. All take turns, with a pause after each run.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from .models import path
from .turns import largest_error, model_arguments, onnxruntime_session, print_row, row_elsewhere, take_turns

TARGETS = ("onednn,llvm", "onnx,llvm", "onednn,onnx,llvm")
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
    parser = model_arguments("python -m benchmarks.placement", __doc__, MODELS, repeat=16)
    parser.add_argument(
        "--targets", nargs="+", default=TARGETS, help=f"lists of targets (default: {' '.join(TARGETS)})"
    )
    arguments = parser.parse_args()
    if arguments.here:
        model = str(path(arguments.models[0], arguments.cache))
        print(json.dumps(measure(model, arguments.targets[0], arguments.threads[0], arguments.repeat)))
        return 0
    print("  ".join(title for title, _ in COLUMNS))
    rows = [(m, t, n) for m in arguments.models or MODELS for t in arguments.targets for n in arguments.threads]
    return max([_row(*row, arguments.repeat, arguments.cache) for row in rows], default=0)


def _row(name: str, targets: str, threads: int, repeat: int, cache: str | None) -> int:
    words = [name, "--targets", targets, "--threads", threads, "--repeat", repeat]
    words += ["--cache", cache] if cache else []
    try:
        print_row(COLUMNS, [name, targets, threads, *row_elsewhere("benchmarks.placement", words)])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(model: str, targets: str, threads: int, repeat: int) -> list[Any]:
    """Return the figures of a row."""
    import mirlo
    from mirlo.driver.place.survey import survey

    placed = survey(model, targets)
    whole = placed.total.flops or 1
    shares = {name: 100 * (share.flops or 0) / whole for name, share in placed.shares.items() if name != placed.rest}
    by_priority = mirlo.compile(model, targets, threads=threads)
    measured = mirlo.compile(model, targets, threads=threads, placement="measured")
    session = onnxruntime_session(model, threads)
    inputs = by_priority.random_inputs(seed=0)
    error = largest_error(by_priority.run(inputs), session, inputs)
    runs = (lambda: by_priority.run(inputs), lambda: measured.run(inputs), lambda: session.run(None, inputs))
    turns = take_turns(runs, repeat)
    text = ", ".join(f"{name} {share:.2f} %" for name, share in shares.items())
    taken = measured.artifact.metadata.get("placement", {}).get("taken", "")
    return [text, error, *turns.milliseconds, turns.ratio(0, 2), turns.ratio(1, 2), taken]


if __name__ == "__main__":
    sys.exit(main())
