"""Math functions beside numpy's, on one core: `python -m benchmarks.intrinsics [--elements N] [--rounds R]`.

A compiled model of one operator reads and writes arrays that fit the second-level cache. Its time is that of the
kernel, from the processor's counter (`Executable.profile`), so that neither the call from Python nor the copies around
it count; numpy writes into arrays that exist already. Both are measured in turns, and the medians compared.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS

ROUNDS = 15


@dataclass(frozen=True)
class Row:
    """Nanoseconds for an element."""

    name: str
    ours: float
    numpys: float

    @property
    def ratio(self) -> float:
        return self.numpys / self.ours


def _sigmoid(x: Any, out: Any) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1.0, out=out)
    np.reciprocal(out, out=out)


def _gelu(x: Any, out: Any) -> None:
    np.multiply(x, x, out=out)
    np.multiply(out, 0.044715 * math.sqrt(2 / math.pi), out=out)
    np.add(out, math.sqrt(2 / math.pi), out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)
    np.add(out, 1.0, out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, 0.5, out=out)


_erf_of_each = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Any, out: Any) -> None:
    # numpy has none: this is the way without another library.
    out[...] = _erf_of_each(x)


NUMPY: dict[str, tuple[str, dict[str, Any], Callable[..., Any]]] = {
    "exp": ("exp", {}, lambda x, out: np.exp(x, out=out)),
    "tanh": ("tanh", {}, lambda x, out: np.tanh(x, out=out)),
    "sigmoid": ("sigmoid", {}, _sigmoid),
    "gelu (tanh)": ("gelu", {"approximate": "tanh"}, _gelu),
    "erf": ("erf", {}, _erf),
    "log": ("log", {}, lambda x, out: np.log(np.abs(x), out=out)),
    "sin": ("sin", {}, lambda x, out: np.sin(x, out=out)),
    "cos": ("cos", {}, lambda x, out: np.cos(x, out=out)),
}
"""By what is shown: the operator, its attributes, and numpy's way to compute it."""


def compiled(operator: str, attributes: dict[str, Any], elements: int) -> Any:
    """Return an executable of one operator."""
    with make_context(), ir.Location.unknown():
        kind = TensorType.of((elements,), "f32").to_mlir()
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([kind], [kind]))
        with ir.InsertionPoint(main.add_entry_block()):
            func.ReturnOp([OPS[operator].make(main.arguments[0], **attributes)])
        return mirlo.compile(module)


def compare(name: str, elements: int, rounds: int = ROUNDS) -> Row:
    """Compare one function with numpy, in turns."""
    operator, attributes, reference = NUMPY[name]
    exe = compiled(operator, attributes, elements)
    x = (np.random.default_rng(0).standard_normal(elements) * 3).astype(np.float32)
    out = np.empty_like(x)
    ours, numpys = [], []
    for _ in range(rounds):
        ours.append(exe.profile(x, repeats=20).microseconds * 1e3)
        times = []
        for _ in range(2 if name == "erf" else 20):
            start = time.perf_counter()
            reference(x, out)
            times.append(time.perf_counter() - start)
        numpys.append(statistics.median(times) * 1e9)
    return Row(name, statistics.median(ours) / elements, statistics.median(numpys) / elements)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 16)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", choices=NUMPY)
    arguments = parser.parse_args()
    print("| function | ns an element | numpy | times as fast |\n| --- | --- | --- | --- |")
    for name in arguments.only or NUMPY:
        row = compare(name, arguments.elements, arguments.rounds)
        print(f"| {row.name} | {row.ours:.3f} | {row.numpys:.3f} | {row.ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
