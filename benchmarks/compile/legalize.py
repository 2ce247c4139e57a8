"""How long legalization takes: `python -m benchmarks.compile.legalize [--nodes N] [--profile]`.

The module is a chain of operators in which shapes change, so that few prim functions are shared.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from typing import Any

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

WIDTHS = 25
"""Sizes of the layers before they repeat: as many shapes as a large network has."""
LAYER = ("matmul", "add", "relu", "sigmoid", "softmax", "multiply", "exp", "subtract")


def make_module(nodes: int) -> Any:
    """Return a function of `nodes` operators: layers of different widths, one after the other."""
    module = ir.Module.create()
    types = [TensorType.of((8, 16), "f32").to_mlir()]
    types += [TensorType.of((_width(i), _width(i + 1)), "f32").to_mlir() for i in range(WIDTHS)]
    with ir.InsertionPoint(module.body):
        main = func.FuncOp("main", ir.FunctionType.get(types, []))
    with ir.InsertionPoint(main.add_entry_block()):
        value, *weights = main.arguments
        before = value
        for i in range(nodes):
            name = LAYER[i % len(LAYER)]
            with ir.Location.name(f"node_{i}"):
                if name == "matmul":
                    value = before = OPS[name].make(value, weights[i // len(LAYER) % WIDTHS])
                else:
                    operands = [value, before] if name in ("add", "multiply", "subtract") else [value]
                    value = OPS[name].make(*operands)
        func.ReturnOp([value])
    main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [value.type]))
    return module


def _width(i: int) -> int:
    return 16 + i % WIDTHS


def measure(nodes: int) -> tuple[float, int, int]:
    """Return the seconds, and the numbers of operators and prim functions."""
    with make_context(), ir.Location.unknown():
        module = make_module(nodes)
        pipeline, session = Pipeline("legalize{target=llvm}"), Session()
        start = time.perf_counter()
        pipeline.run(module, session)
        seconds = time.perf_counter() - start
        functions = sum(op.operation.name == "func.func" for op in module.body.operations) - 1
    return seconds, len(session.notes), functions


def main() -> None:
    """Measure once with everything imported before, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    measure(16)
    profiler = cProfile.Profile()
    if arguments.profile:
        profiler.enable()
    seconds, operators, functions = measure(arguments.nodes)
    profiler.disable()
    print(f"{operators} operators legalized into {functions} prim functions in {seconds:.2f} s")
    if arguments.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
