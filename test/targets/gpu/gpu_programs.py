"""Prim functions compiled for a GPU target, and for the CPU to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.compute import PrimBuilder
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.tools.conformance.programs import TestProgram, module_of, run, tensor_type

Body = Callable[..., Any]


def prim_program(name: str, body: Body, arrays: Sequence[np.ndarray]) -> TestProgram:
    """Return a call of the prim function that `body(p, *tensors)` builds."""

    def emit(values: list[Any]) -> list[Any]:
        prim = PrimBuilder(name, [tensor_type(array) for array in arrays], ir.Location.unknown())
        made = body(prim, *prim.inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        module = ir.InsertionPoint.current.block.owner.operation.parent
        function = prim.finish(*outputs).operation
        module.regions[0].blocks[0].append(function)
        types = [TensorType.from_mlir(kind) for kind in ir.TypeAttr(function.attributes["function_type"]).value.results]
        result = CallTir.make(values, result_types=types, callee=name)
        return list(result) if isinstance(result, tuple) else [result]

    return TestProgram(name, arrays, emit)


def assert_agree(programs: Sequence[TestProgram], target: str) -> None:
    """Check that the programs give the same results on the target as on the CPU."""
    found, wanted = run(programs, target, lambda done: None), run(programs, "llvm", lambda done: None)
    for program, here, there in zip(programs, found, wanted, strict=True):
        assert here.error is None and there.error is None, f"{program.name}: {here.error or there.error}"
        for got, expected in zip(here.results, there.results, strict=True):
            if expected.dtype.kind != "f":
                np.testing.assert_array_equal(got, expected, err_msg=program.name)
                continue
            # Sums in another order differ by what rounding their largest parts costs.
            size = np.abs(expected).max(initial=1.0)
            slack = 1e-4 if expected.dtype == np.float32 else 1e-9
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=slack * size, err_msg=program.name)


def stages_of(program: TestProgram, target: str) -> str:
    """Return the names of the plans that compute a program on a target."""
    with make_context(), ir.Location.unknown():
        module, _ = module_of([program])
        text = str(find_target(target).pipeline(SimpleNamespace(target_options="")))  # type: ignore[misc]
        Pipeline(f"{text[: text.index(',map-threads')]})").run(module, Session(), [])
        found = [f.operation.attributes["tir.schedule"] for f in prim_functions(module.operation)]
        return "; ".join(ir.StringAttr(ir.DictAttr(schedule)["stages"]).value for schedule in found)
