"""This checkout beside another one: `python -m benchmarks.against TREE {contraction,memory_bound,samples} [CASE...]`.

    python -m benchmarks.against ../before contraction --rounds 8

A process of each checkout, with its own `.venv`, compiles the case; then they take turns on one core. New processes in
each round place arrays elsewhere in memory, which moves times of the same code by a tenth. The table has the medians
over the rounds of the median ratios of their turns, of calls (CPU time) and of kernels (their profile): above 1 this
checkout is faster. Cases are those of `benchmarks.kernels`, by number or a part of the name, or sample models.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import path
from mirlo.runtime.records import dataclass

SAMPLES = ("mobilenetv2", "resnet50", "vit_base", "bert_base", "gpt2")
KINDS = ("contraction", "memory_bound", "samples")
LEAST_SECONDS = 0.002
"""How long a turn is, at least."""
WORKER = """
import json, os, sys, time
sys.path.insert(0, os.getcwd())
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import numpy as np
import mirlo
OPTIONS = {"threads": 1, "cache": False}

def contraction(case):
    from benchmarks.kernels import contraction as cases
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context
    from mirlo.runtime.params import ParameterStore
    case, generator, store = cases.CASES[int(case)], np.random.default_rng(0), ParameterStore()
    x, w = (generator.standard_normal(shape, dtype=np.float32) for shape in (case.x, case.weight))
    store.add("w", np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2))) if case.is_conv else w)
    columns = case.weight[0] if case.is_conv else case.weight[1]
    store.add("b", generator.standard_normal(columns, dtype=np.float32))
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(cases.mirlo_text(case)), params=store, **OPTIONS)
    return executable, [cases.channels_last(x) if case.is_conv else x]

def memory_bound(case):
    from benchmarks.kernels import memory_bound as cases
    case = cases.CASES[int(case)]
    return mirlo.compile(cases.make_model(case), **OPTIONS), cases.make_arrays(case)

def samples(case):
    executable = mirlo.compile(case, jobs=1, **OPTIONS)
    return executable, list(executable.random_inputs(0).values())

def seconds(count):
    start = time.thread_time()
    for _ in range(count):
        executable(*arrays)
    return time.thread_time() - start

for line in sys.stdin:
    order, *words = line.split()
    if order == "make":
        executable, arrays = globals()[words[0]](words[1])
        count, result = 1, executable(*arrays)
        while seconds(count) < float(words[2]):
            count *= 2
        result = result[0] if isinstance(result, (list, tuple)) else result
        print(json.dumps([count, np.ascontiguousarray(result).tobytes().hex()[:200000]]), flush=True)
    else:
        count = int(words[0])
        print(seconds(count) / count, executable.profile(*arrays, repeats=5).microseconds * 1e-6, flush=True)
"""


class Checkout:
    """A process of a checkout, which compiles and calls what it is asked for."""

    def __init__(self, python: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-c", WORKER], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, order: str) -> str:
        """Return the line that it answers."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args!s:.60}: no answer to '{order}'")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True)
class Comparison:
    """A case in one round: speeds beside the other checkout, and whether results have equal bits."""

    call: float
    kernel: float
    are_equal: bool


def compare(checkouts: Sequence[Checkout], kind: str, case: str, turns: int) -> Comparison:
    """Compile a case in both checkouts and time them in turns, forwards and backwards."""
    answers = [json.loads(each.ask(f"make {kind} {case} {LEAST_SECONDS}")) for each in checkouts]
    count = min(each[0] for each in answers)
    seconds: list[list[list[float]]] = [[], []]
    for number in range(turns):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds[side].append([float(word) for word in checkouts[side].ask(f"run {count}").split()])
    other, own = np.array(seconds)
    call, kernel = np.median(other / own, axis=0)
    return Comparison(float(call), float(kernel), answers[0][1] == answers[1][1])


def cases_of(kind: str, wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Return the cases as the processes know them, with their names."""
    if kind == "samples":
        return [(str(Path(path(name)).resolve()), name) for name in wanted or SAMPLES]
    from benchmarks.kernels import contraction, memory_bound

    module: Any = contraction if kind == "contraction" else memory_bound
    named = [(str(number), case.name) for number, case in enumerate(module.CASES)]
    return [each for each in named if not wanted or any(word == each[0] or word in each[1] for word in wanted)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.split("\n\n")[2])
    parser.add_argument("tree", type=Path, metavar="TREE", help="another checkout of Mirlo with its environment")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="numbers, parts of names, or sample models")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="new processes (default: 5)")
    parser.add_argument("--turns", type=int, default=8, metavar="N", help="turns of a case in a round (default: 8)")
    options = parser.parse_args()
    cases = cases_of(options.kind, options.cases)
    rounds: list[list[Comparison]] = []
    for _ in range(options.rounds):
        checkouts = [
            Checkout(str((options.tree / ".venv/bin/python").absolute()), options.tree),
            Checkout(sys.executable, Path.cwd()),
        ]
        rounds.append([compare(checkouts, options.kind, case, options.turns) for case, _ in cases])
        for each in checkouts:
            each.close()
    print("| case | calls | kernels | bits |\n| --- | ---: | ---: | --- |")
    medians = []
    for (_, name), compared in zip(cases, zip(*rounds, strict=True), strict=True):
        call, kernel = (statistics.median(each) for each in zip(*((c.call, c.kernel) for c in compared), strict=True))
        medians.append((call, kernel))
        print(f"| {name} | {call:.3f} | {kernel:.3f} | {'equal' if compared[0].are_equal else 'differ'} |")
    for title, of in (("mean", statistics.mean), ("least", min)):
        call, kernel = (of(column) for column in zip(*medians, strict=True))
        print(f"| {title} | {call:.3f} | {kernel:.3f} | |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
