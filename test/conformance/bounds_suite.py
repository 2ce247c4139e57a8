"""Accesses of kernels that `verify-bounds` does not prove: over ONNX's suite, that suite with symbols, and models.

    cd test/conformance; python bounds_suite.py --suite symbolic --sample 200 [--target c] [--markdown]
    python bounds_suite.py --suite FOLDER     # the models of a folder: the zoo's (benchmarks.zoo -o), trained ones

Each model is compiled up to its kernels. Those of programs, whose parts are compiled in the course of a call, count
where they are compiled.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import signal
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
from onnx_suite import known_failures
from symbolic_suite import SymbolicBackend, load_suite, with_symbols

from mirlo.runtime.errors import MirloError
from mirlo.tools import samples
from mirlo.tools.explain.model import explain_model

SECONDS = 120
"""The most time for one model."""
SUITES = ("onnx", "symbolic", "samples")
"""What has a name; other suites are folders of models."""


@dataclass(frozen=True)
class KernelAccesses:
    """The accesses of a kernel: how many, and those that are not proven."""

    model: str
    kernel: str
    accesses: int
    unproven: tuple[str, ...] = ()
    from_data: int = 0
    """How many of those depend on data, and are not tested at run time."""
    tested: int = 0
    """How many are tested at run time."""


class _Explained(Exception):
    """Raised once a model is compiled, as its results are not needed."""

    def __init__(self, kernels: Sequence[KernelAccesses]) -> None:
        super().__init__()
        self.kernels = kernels


class _ExplainingBackend(SymbolicBackend):
    """The backend of a suite, whose models are compiled up to their kernels."""

    symbolic = False

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Any:
        raise _Explained(kernel_accesses(with_symbols(model)[0] if cls.symbolic else model, "", cls.target))


def kernel_accesses(model: Any, name: str, target: str) -> list[KernelAccesses]:
    """Compile a model up to its kernels and return their accesses."""
    explanation = explain_model(model, target, tune=False)
    found = []
    for kernel in explanation.kernels:
        if kernel.bounds is not None:
            bounds = kernel.bounds
            texts = tuple(map(str, (*bounds.unproven, *bounds.guarded)))
            of_data = sum(access.from_data for access in bounds.unproven)
            found.append(KernelAccesses(name, kernel.name, bounds.accesses, texts, of_data, len(bounds.guarded)))
    return found


def names_of_suite(suite: str) -> list[str]:
    """Return the names of the models of a suite."""
    if suite == "samples":
        return list(samples.names())
    if suite not in SUITES:
        return sorted(map(str, Path(suite).rglob("*.onnx")))
    failing = known_failures()
    return [name for name in load_suite() if name not in failing]


def accesses_of(name: str, suite: str, target: str) -> list[KernelAccesses]:
    """Return the accesses of the kernels of a model of a suite; none where it has no kernels, or fails."""
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    try:
        if suite == "samples":
            return kernel_accesses(samples.path(name), name, target)
        if suite not in SUITES:
            return kernel_accesses(name, Path(name).name, target)
        return _explain_case(name, suite == "symbolic", target)
    except (MirloError, TimeoutError) as error:
        return [KernelAccesses(name, f"not compiled: {error}", 0)]
    finally:
        signal.alarm(0)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


@cache
def _cases() -> dict[str, unittest.TestCase]:
    return load_suite()


def _explain_case(name: str, symbolic: bool, target: str) -> list[KernelAccesses]:
    _ExplainingBackend.symbolic, _ExplainingBackend.target = symbolic, target
    SymbolicBackend.prepare = _ExplainingBackend.prepare  # type: ignore[method-assign]
    case = _cases()[name]
    try:
        getattr(case, name)()
    except _Explained as explained:
        return [replace(kernel, model=name) for kernel in explained.kernels]
    except Exception as error:  # the suite's own checks, of models that are not compiled here
        return [KernelAccesses(name, f"not compiled: {error}", 0)]
    return []


def run(names: Sequence[str], suite: str, target: str, processes: int) -> Iterator[KernelAccesses]:
    """Yield the kernels of models, compiled by several processes."""
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=200) as pool:
        for kernels in pool.imap_unordered(partial(accesses_of, suite=suite, target=target), names, 4):
            yield from kernels


def operator_of(kernel: str) -> str:
    """Return a kernel's name without the number that makes it unique."""
    return re.sub(r"_\d+$", "", kernel)


def summary(found: Sequence[KernelAccesses]) -> dict[str, int]:
    """Return the totals of a suite."""
    return {
        "models": len({each.model for each in found}),
        "kernels": sum(each.accesses > 0 for each in found),
        "accesses": sum(each.accesses for each in found),
        "unproven": sum(len(each.unproven) for each in found),
        "by data": sum(each.from_data for each in found),
        "tested": sum(each.tested for each in found),
    }


def table(found: Sequence[KernelAccesses]) -> list[str]:
    """Return a table of unproven accesses: kernels by operation, accesses, and the first one's reason."""
    kernels: dict[str, list[KernelAccesses]] = {}
    for each in found:
        if each.unproven:
            kernels.setdefault(operator_of(each.kernel), []).append(each)
    lines = [
        "| kernels of | models | accesses | by data | tested | for example |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, those in sorted(kernels.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        models, accesses = len({each.model for each in those}), sum(len(each.unproven) for each in those)
        by_data, tested = (sum(getattr(each, field) for each in those) for field in ("from_data", "tested"))
        reason = those[0].unproven[0].replace("|", "\\|")
        lines.append(f"| `{name}` | {models} | {accesses} | {by_data} | {tested} | {reason} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="onnx", help=f"{', '.join(SUITES)}, or a folder of models")
    parser.add_argument("--sample", type=int, default=0, help="only this many models, chosen with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", default="llvm", help="what models are compiled for")
    parser.add_argument("--json", type=Path, help="write the kernels to this file")
    parser.add_argument("--markdown", action="store_true", help="print a table of kernels and reasons")
    parser.add_argument("--full", action="store_true", help="print each access, not one a kernel")
    options = parser.parse_args()
    if options.suite not in SUITES and not Path(options.suite).is_dir():
        parser.error(f"--suite is '{options.suite}': expected {', '.join(SUITES)}, or a folder of models")
    names = [name for name in names_of_suite(options.suite) if re.search(options.only, name)]
    if options.sample:
        names = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    found = list(run(names, options.suite, options.target, options.processes))
    if options.markdown:
        print("\n".join(table(found)))
    for each in [] if options.markdown else found:
        for text in each.unproven if options.full else each.unproven[:1]:
            print(f"{each.model}: @{each.kernel}: {text}")
    kinds = Counter(operator_of(each.kernel) for each in found if each.unproven)
    print(", ".join(f"{name} {count}" for name, count in kinds.most_common()) or "all accesses are proven")
    print(summary(found))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")


if __name__ == "__main__":
    main()
