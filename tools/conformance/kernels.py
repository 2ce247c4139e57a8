"""Prim functions of several blocks, and on vectors of several dims, for rules that no single operator reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr, exp, maximum
from mirlo.tools.conformance.case import OperatorCase, case
from mirlo.tools.conformance.programs import TestProgram, tensor_type

SIZES = (20, 30, 40, 24, 28)
"""Rows of the operand, then the columns before and after each product: no multiples of a vector throughout."""
ROWS = 4
"""Rows of a vector of two dims."""


def kernel_case(steps: Sequence[str], random: np.random.Generator) -> OperatorCase:
    """Return operands of a kernel of these steps, and what numpy makes of them."""
    rows, *columns = SIZES
    x = random.uniform(-1, 1, (rows, columns[0])).astype(np.float32)
    weights = []
    for i in range(list(steps).count("product")):
        weights.append(random.uniform(-1, 1, (columns[i], columns[i + 1])).astype(np.float32))
    value, rest = x.astype(np.float64), iter(weights)
    for step in steps:
        if step == "product":
            value = value @ next(rest).astype(np.float64)
        elif step == "map":
            value = np.maximum(value, 0)
        else:
            raised = np.exp(value - value.max(-1, keepdims=True))
            value = raised / raised.sum(-1, keepdims=True)
    return case(x, *weights, expected=value, tolerance=1e-4)


def kernel_program(steps: Sequence[str], made: OperatorCase) -> TestProgram:
    """Return a program of one prim function, each of whose blocks reads the one before."""
    symbol = "kernel_" + "_".join(steps)
    types = [tensor_type(array) for array in made.arrays]

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        prim = PrimBuilder(symbol, types, ir.Location.unknown())
        current, *weights = prim.inputs
        rest = iter(weights)
        for step in steps:
            current = _STEPS[step](prim, current, rest)
        _append(prim.finish(current).operation)
        return [CallTir.make(values, result_types=[current.type], callee=symbol)]

    return TestProgram(symbol, made.arrays, emit)


def _product(p: PrimBuilder, x: TensorExpr, weights: Iterator[TensorExpr]) -> TensorExpr:
    w = next(weights)
    return p.reduce("add", (x.shape[0], w.shape[1]), (w.shape[0],), lambda i, j, k: x[i, k] * w[k, j])


def _map(p: PrimBuilder, x: TensorExpr, weights: Iterator[TensorExpr]) -> TensorExpr:
    return p.compute(x.shape, lambda i, j: maximum(x[i, j], 0.0))


def _rows(p: PrimBuilder, x: TensorExpr, weights: Iterator[TensorExpr]) -> TensorExpr:
    rows, columns = x.shape
    top = p.reduce("max", (rows,), (columns,), lambda i, j: x[i, j])
    raised = p.compute((rows, columns), lambda i, j: exp(x[i, j] - top[i]))
    total = p.reduce("add", (rows,), (columns,), lambda i, j: raised[i, j])
    return p.compute((rows, columns), lambda i, j: raised[i, j] / total[i])


_STEPS: dict[str, Callable[[PrimBuilder, TensorExpr, Iterator[TensorExpr]], TensorExpr]] = {
    "product": _product,
    "map": _map,
    "rows": _rows,
}

_ON_VECTORS = """
func.func private @{symbol}({parameters}, %out: {memref}) attributes {{tir.prim_func}} {{
  %c0 = arith.constant 0 : index
  %size = arith.constant {size} : index
  %step = arith.constant {width} : index
  scf.for %i = %c0 to %size step %step {{
{loads}
    %r = "tir.{name}"({operands}) : ({types}) -> {vector}
    %flat = vector.shape_cast %r : {vector} to {row}
    vector.store %flat, %out[%i] : {memref}, {row}
  }}
  return
}}
"""
_LOAD = """    %f{i} = vector.load %x{i}[%i] : {memref}, {row}
    %v{i} = vector.shape_cast %f{i} : {row} to {vector}"""


def vector_program(name: str, arrays: Sequence[np.ndarray], lanes: int = 8) -> TestProgram:
    """Return a prim function that applies an intrinsic to vectors of two dims; the arrays are cut to whole ones."""
    dtype = dtype_of_numpy(arrays[0].dtype)
    assert dtype is not None, arrays[0].dtype
    width = ROWS * lanes
    size = len(arrays[0]) // width * width
    cut = [array[:size] for array in arrays]
    symbol = f"vectors_{name}_{arrays[0].dtype}"
    words = {
        "memref": f"memref<{size}x{dtype.storage}>",
        "row": f"vector<{width}x{dtype.storage}>",
        "vector": f"vector<{ROWS}x{lanes}x{dtype.storage}>",
    }
    count = range(len(cut))
    text = _ON_VECTORS.format(
        symbol=symbol, name=name, size=size, width=width, **words,
        parameters=", ".join(f"%x{i}: {words['memref']}" for i in count),
        loads="\n".join(_LOAD.format(i=i, **words) for i in count),
        operands=", ".join(f"%v{i}" for i in count), types=", ".join([words["vector"]] * len(cut)),
    )  # fmt: skip

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        parsed = ir.Module.parse(text)
        _append(parsed.body.operations[0].operation.clone())
        return [CallTir.make(values, result_types=[TensorType((size,), dtype)], callee=symbol)]

    return TestProgram(f"tir.{name}", cut, emit)


def _append(function: ir.Operation) -> None:
    """Append a prim function to the module that is built."""
    module = ir.InsertionPoint.current.block.owner.operation.parent
    assert module is not None
    module.regions[0].blocks[0].append(function)
