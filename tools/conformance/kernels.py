"""Prim functions of several blocks, and on vectors of several dims, for rules that no single operator reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype, dtype_of_numpy
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr, exp, maximum
from mirlo.tools.conformance.case import OperatorCase, case
from mirlo.tools.conformance.programs import TestProgram, tensor_type

SIZES = (20, 30, 40, 24, 28)
"""Rows of the operand, then the columns before and after each product: no multiples of a vector throughout."""
ROWS = 4
"""Rows of a vector of two dims."""
LANES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16)
"""Lanes of the vectors that an intrinsic is tried on; 0 for scalars."""


def kernel_case(steps: Sequence[str], random: np.random.Generator) -> OperatorCase:
    """Return operands of a kernel of these steps, and numpy's results."""
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


def kernel_program(steps: Sequence[str], operator_case: OperatorCase) -> TestProgram:
    """Return a program of one prim function, each of whose blocks reads the one before."""
    symbol = "kernel_" + "_".join(steps)
    types = [tensor_type(array) for array in operator_case.arrays]

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        prim = PrimBuilder(symbol, types, ir.Location.unknown())
        current, *weights = prim.inputs
        rest = iter(weights)
        for step in steps:
            current = _STEPS[step](prim, current, rest)
        _append(prim.finish(current).operation)
        return [CallTir.make(values, result_types=[current.type], callee=symbol)]

    return TestProgram(symbol, operator_case.arrays, emit)


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
    %r = "{operation}"({operands}) : ({types}) -> {result}
{stored}
  }}
  return
}}
"""
_LOAD = """    %f{i} = vector.load %x{i}[%i] : {memref}, {row}
    %v{i} = vector.shape_cast %f{i} : {row} to {vector}"""
_STORED = """    %s = arith.{cast} %r : {result} to {vector}
    %flat = vector.shape_cast %s : {vector} to {row}
    vector.store %flat, %out[%i] : {memref}, {row}"""
_LOAD_SCALAR = "    %v{i} = memref.load %x{i}[%i] : {memref}"
_STORED_SCALAR = """    %s = arith.{cast} %r : {result} to {vector}
    memref.store %s, %out[%i] : {memref}"""


def vector_program(
    name: str, arrays: Sequence[np.ndarray], lanes: int = 8, rows: int = ROWS, is_bool: bool = False
) -> TestProgram:
    """Return a prim function that applies an intrinsic to vectors of one or two dims; the arrays are cut to whole ones.

    It is applied to scalars where there are no lanes. `is_bool` is whether the intrinsic compares.
    """
    full_name = name if "." in name else f"tir.{name}"
    dtypes = [dtype_of_numpy(array.dtype) for array in arrays]
    width = rows * lanes or 1
    size = len(arrays[0]) // width * width
    cut = [array[:size] for array in arrays]
    result_type = dtype("bool") if is_bool else dtypes[0]
    assert result_type is not None and None not in dtypes, [array.dtype for array in arrays]
    symbol = "_".join(["vectors", name.replace(".", "_"), f"{rows}x{lanes}", *(str(array.dtype) for array in arrays)])

    def words(storage: str) -> dict[str, str]:
        shape = f"{rows}x{lanes}x" if rows > 1 else f"{lanes}x"
        vector = f"vector<{shape}{storage}>" if lanes else storage
        return {"memref": f"memref<{size}x{storage}>", "row": f"vector<{width}x{storage}>", "vector": vector}

    kinds = [words(str(kind.storage)) for kind in dtypes if kind is not None]
    output = words(str(result_type.storage))
    result = output["vector"].replace("i8", "i1") if is_bool else output["vector"]
    load, stored = (_LOAD, _STORED) if lanes else (_LOAD_SCALAR, _STORED_SCALAR)
    cast = "extui" if is_bool else "bitcast"
    text = _ON_VECTORS.format(
        symbol=symbol, operation=full_name, size=size, width=width, **output, result=result,
        parameters=", ".join(f"%x{i}: {kind['memref']}" for i, kind in enumerate(kinds)),
        loads="\n".join(load.format(i=i, **kind) for i, kind in enumerate(kinds)),
        operands=", ".join(f"%v{i}" for i in range(len(kinds))), types=", ".join(kind["vector"] for kind in kinds),
        stored=stored.format(cast=cast, result=result, **output),
    )  # fmt: skip

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        parsed = ir.Module.parse(text)
        _append(parsed.body.operations[0].operation.clone())
        return [CallTir.make(values, result_types=[TensorType((size,), result_type)], callee=symbol)]

    return TestProgram(full_name, cut, emit)


def _append(function: ir.Operation) -> None:
    """Append a prim function to the module that is built."""
    module = ir.InsertionPoint.current.block.owner.operation.parent
    assert module is not None
    module.regions[0].blocks[0].append(function)
