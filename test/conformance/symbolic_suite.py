"""ONNX's backend suite a second time: each case with the dims of its inputs replaced by symbols.

    cd test/conformance; python symbolic_suite.py --sample 200 [--target spirv]

Dims of one size get one symbol, so that what must agree does; dims of 1 stay, which broadcast, and so do lists of
integers, whose length is a rank. The model is compiled before any array is seen, and declares nothing of its outputs'
shapes. Cases count that pass as they are.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from onnx_suite import PASSED, known_failures, run_suite

from mirlo.driver.compile import compile as compile_model
from mirlo.onnx_backend import MirloBackend

_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


class SymbolicRep:
    """A model compiled for any sizes of its inputs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        symbolic, self.symbols = with_symbols(model)
        held = {tensor.name for tensor in model.graph.initializer}
        self.names = [value.name for value in model.graph.input if value.name not in held]
        self.outputs = [value.name for value in model.graph.output]
        self.executable = compile_model(symbolic, target=SymbolicBackend.target)

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        given = inputs if isinstance(inputs, Mapping) else dict(zip(self.names, inputs, strict=True))
        results = self.executable.run(given)
        return tuple(results[name] for name in self.outputs)


class SymbolicBackend(MirloBackend):
    """The backend, of models with symbols for dims."""

    target = "llvm"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Any:
        return SymbolicRep(model)


def with_symbols(model: onnx.ModelProto) -> tuple[onnx.ModelProto, set[str]]:
    """Return the model with symbols for the dims of its inputs, and these."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    held = {tensor.name for tensor in model.graph.initializer}
    symbols: set[str] = set()
    for value in made.graph.input:
        kind = value.type
        if value.name in held or not kind.HasField("tensor_type"):
            continue
        dims = kind.tensor_type.shape.dim
        if kind.tensor_type.elem_type in _INTEGERS and len(dims) == 1:
            continue
        for dim in dims:
            if dim.HasField("dim_value") and dim.dim_value > 1:
                name = f"d{dim.dim_value}"
                symbols.add(name)
                dim.dim_param = name
    for value in made.graph.output:
        if value.type.HasField("tensor_type"):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
    del made.graph.value_info[:]
    return made, symbols


def load_suite() -> dict[str, unittest.TestCase]:
    """Return the cases by name."""
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        groups = BackendTest(SymbolicBackend, __name__).test_cases
    found = {}
    for kind, group in groups.items():
        if "Real" not in kind:
            for name in unittest.defaultTestLoader.getTestCaseNames(group):
                if name.endswith("_cpu"):
                    found[name] = group(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--sample", type=int, default=0, help="only this many cases, chosen with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", default="llvm", help="what models are compiled for")
    options = parser.parse_args()
    SymbolicBackend.target = options.target
    suite = load_suite()
    failing = known_failures()
    names = [name for name in suite if re.search(options.only, name) and name not in failing]
    if options.sample:
        names = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    began = time.monotonic()
    outcomes = run_suite(suite, names, options.processes)
    for outcome in outcomes:
        if outcome.status != PASSED:
            print(f"{outcome.name}: {outcome.status}: {outcome.message[:600]!r}")
    totals = Counter(outcome.status for outcome in outcomes)
    print(f"{totals[PASSED]} of {len(outcomes)} pass: {dict(totals)}; {time.monotonic() - began:.0f} s in all")
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes]), encoding="utf-8")


if __name__ == "__main__":
    main()
