"""Kernels compared with their definitions over ONNX's suite, the samples, and folders of models.

    cd test/conformance; python exact_suite.py --suite samples [--target c]
    python exact_suite.py --suite onnx --sample 100 --seed 1     # or all, at night
    python exact_suite.py --suite FOLDER                         # models of a folder
    python exact_suite.py --suite samples --graph                # passes and rules in place of kernels
    python exact_suite.py --suite samples --target 'nvvm{chip=sm_90a}' --precision f16 --emulated   # with those of PTX

It prints how many kernels are equal, different and outside, and a line for each that is not equal, or did not run on
large numbers. With `--graph` it
prints a row of Markdown for each model. With `--emulated`, kernels of `nvvm` that are outside run as PTX.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import unittest
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from bounds_suite import names_of_suite
from symbolic_suite import SymbolicBackend, load_suite

from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE, KernelVerdict
from mirlo.runtime.errors import MirloError
from mirlo.testing.emulated_kernels import emulated_kernels
from mirlo.tools import samples
from mirlo.tools.verify.graph import verify_graph
from mirlo.tools.verify.model import verify_model

NOT_COMPILED = "not compiled"


@dataclass(frozen=True)
class ModelVerdict:
    """The verdict of a kernel of a model."""

    model: str
    status: str
    kernel: str = ""
    why: str = ""


class _Verified(Exception):
    """Raised once the kernels of a model are compared, as its results are not needed."""

    def __init__(self, verdicts: Sequence[KernelVerdict]) -> None:
        super().__init__()
        self.verdicts = verdicts


class _VerifyingBackend(SymbolicBackend):
    """The backend of a suite, whose kernels are compared with their definitions."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Any:
        raise _Verified(verify_model(model, cls.target, tune=False).verdicts)


@cache
def _cases() -> dict[str, unittest.TestCase]:
    return load_suite()


def verdicts_of(
    name: str, suite: str, target: str, precision: str | None = None, is_emulated: bool = False
) -> list[ModelVerdict]:
    """Return the verdicts of the kernels of a model of a suite."""
    try:
        verdicts: Sequence[KernelVerdict]
        if suite == "onnx":
            verdicts = _verify_case(name, target)
        else:
            path = samples.path(name) if suite == "samples" else name
            verdicts = verify_model(path, target, tune=False, precision=precision).verdicts
            if is_emulated:
                verdicts = _emulated(path, target, precision, verdicts)
    except MirloError as error:
        return [ModelVerdict(name, NOT_COMPILED, why=str(error).splitlines()[0])]
    return [ModelVerdict(name, each.status, each.function, each.why or each.without) for each in verdicts]


def _emulated(
    path: str, target: str, precision: str | None, verdicts: Sequence[KernelVerdict]
) -> Sequence[KernelVerdict]:
    """Return verdicts with those of PTX for kernels that are outside."""
    outside = {verdict.function for verdict in verdicts if verdict.status == OUTSIDE}
    kernels = emulated_kernels(path, target, precision=precision) if outside else []
    as_ptx = {kernel.name: kernel.verify() for kernel in kernels if kernel.name in outside}
    return [as_ptx.get(verdict.function, verdict) for verdict in verdicts]


def _verify_case(name: str, target: str) -> Sequence[KernelVerdict]:
    _VerifyingBackend.target = target
    SymbolicBackend.prepare = _VerifyingBackend.prepare  # type: ignore[method-assign]
    try:
        getattr(_cases()[name], name)()
    except _Verified as verified:
        return verified.verdicts
    except unittest.SkipTest:
        pass
    return ()


def graph_row(name: str, suite: str, target: str) -> str:
    """Return the row of a model: passes and rules by verdict, the processor time of a stage and of all."""
    start = time.process_time()
    verdicts = verify_graph(samples.path(name) if suite == "samples" else name, target).verdicts
    seconds = [verdicts.first_seconds, *(each.seconds for each in verdicts.passes)]
    counts = [
        " / ".join(str(sum(each.status == status for each in group)) for status in (EQUAL, OUTSIDE, DIFFERENT))
        for group in (verdicts.passes, verdicts.rules)
    ]
    mean = sum(seconds) / len(seconds)
    row = [name, *counts, f"{mean:.1f} s", f"{max(seconds):.1f} s", f"{time.process_time() - start:.1f} s"]
    wrong = {f"{each} ({each.status})" for each in verdicts.all if each.status == DIFFERENT}
    return "\n".join([f"| {' | '.join(row)} |", *sorted(wrong)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="samples", help="onnx, samples, or a folder of models")
    parser.add_argument("--sample", type=int, default=0, help="only this many models, chosen with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--target", default="llvm", help="what models are compiled for")
    parser.add_argument("--precision", help="bf16 or f16")
    parser.add_argument("--emulated", action="store_true", help="run kernels that are outside as PTX on the emulator")
    parser.add_argument("--graph", action="store_true", help="compare models pass by pass, and rules")
    options = parser.parse_args()
    names = [name for name in names_of_suite(options.suite) if re.search(options.only, name)]
    if options.sample:
        names = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    counts: Counter[str] = Counter()
    for name in names:
        start = time.process_time()
        if options.graph:
            print(graph_row(name, options.suite, options.target), flush=True)
            continue
        verdicts = verdicts_of(name, options.suite, options.target, options.precision, options.emulated)
        own = Counter(each.status for each in verdicts)
        counts += own
        for each in verdicts:
            if each.why:
                print(f"{each.model}: @{each.kernel}: {each.status}: {each.why}", flush=True)
        if options.suite != "onnx":
            listed = ", ".join(f"{count} {status}" for status, count in own.items())
            print(f"{name}: {listed}; {time.process_time() - start:.1f} s of CPU", flush=True)
    if not options.graph:
        print(f"{options.target}: {len(names)} models, {dict(counts)}")


if __name__ == "__main__":
    main()
