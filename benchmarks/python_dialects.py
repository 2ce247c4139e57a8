"""Dialects in Python: MLIR's `ext.Operation` beside Mirlo's classes: `python -m benchmarks.python_dialects`.

Microseconds of processor time to create an operation of two operands with an attribute, least of rounds in turns.
`create` is the function of the bindings that both call.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from mirlo.dialects.bindings import PACKAGE, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.slice import Concat

COUNT, ROUNDS = 1000, 7
PROGRAM = "func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) { return }"


def main() -> None:
    """Print the table."""
    ext = importlib.import_module(f"{PACKAGE}.dialects.ext")
    dialect: Any = type("Toy", (ext.Dialect,), {}, name="toy")
    fields: dict[str, Any] = {"axis": ir.IntegerAttr, "x": ext.Operand[Any], "y": ext.Operand[Any]}
    fields["out"] = ext.Result[Any]
    of_bindings = type("Joined", (dialect.Operation,), {"__annotations__": fields}, name="joined")
    with make_context(), ir.Location.unknown():
        started = time.process_time()
        dialect.load()
        print(f"ext.Dialect.load of one operation: {1e3 * (time.process_time() - started):.1f} ms")
        program = ir.Module.parse(PROGRAM)
        function = program.body.operations[0]
        block = function.regions[0].blocks[0]
        x, y = block.arguments
        axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        kind = ir.RankedTensorType.get([8], x.type.element_type)
        types = [TensorType.of((4,), "f32")] * 2
        makers: dict[str, Callable[[], Any]] = {
            "create": lambda: ir.Operation.create("toy.joined", [kind], [x, y], {"axis": axis}),
            "ext.Operation, of attributes and types that are there": lambda: of_bindings(axis, x, y, kind),
            "Mirlo's make, with inference": lambda: Concat.make([x, y], axis=0),
            "... of it the inference": lambda: Concat.infer(types, axis=0),
        }
        least = dict.fromkeys(makers, float("inf"))
        for _ in range(ROUNDS):
            for name, make in makers.items():
                with ir.InsertionPoint.at_block_begin(block):
                    started = time.process_time()
                    for _ in range(COUNT):
                        make()
                    least[name] = min(least[name], (time.process_time() - started) / COUNT)
        for name, seconds in least.items():
            print(f"{name}: {1e6 * seconds:.1f} us")


if __name__ == "__main__":
    main()
