"""Scalars in the graph, such as conditions and trip counts, which are loaded from and stored to tensors."""

from __future__ import annotations

import itertools

from mirlo.dialects.bindings import arith, ir, memref, scf
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.memory.function_builder import FunctionBuilder
from mirlo.passes.memory.storage_assignment import FROM_ELEMENTS, SELECT
from mirlo.passes.memory.timeline import is_tensor

EXTRACT = "tensor.extract"


def is_supported(op: ir.Operation) -> bool:
    """Return whether `emit` supports this operation."""
    if op.name == EXTRACT:
        return _can_be_loaded(op.results[0].type)
    if op.name == FROM_ELEMENTS:
        return all(_can_be_loaded(value.type) for value in op.operands)
    if op.name == SELECT:
        return not is_tensor(op.operands[0])
    if op.name == "arith.constant":
        return True
    return op.name.startswith("arith.") and not any(is_tensor(v) for v in (*op.operands, *op.results))


def emit(planned: FunctionBuilder, op: ir.Operation) -> None:
    """Emit the operation over buffers at the insertion point."""
    if op.name == EXTRACT:
        indices = [planned.scalars[value] for value in list(op.operands)[1:]]
        stored = memref.LoadOp(planned.buffer(op.operands[0]), indices).result
        planned.scalars[op.results[0]] = _loaded(stored, op.results[0].type)
    elif op.name == FROM_ELEMENTS:
        _store_all(planned, op)
    elif op.name == SELECT and is_tensor(op.results[0]):
        _select(planned, op)
    else:
        clone = op.clone()
        for i, value in enumerate(op.operands):
            clone.operands[i] = planned.scalars[value]
        planned.scalars.update(zip(op.results, clone.results, strict=True))


def _can_be_loaded(scalar: ir.Type) -> bool:
    """Return whether a scalar can be loaded: unsigned and coded low-precision types have no upstream operations."""
    dtype = dtype_of_mlir(scalar)
    return dtype is not None and (dtype.name == "bool" or ir.Type.parse(dtype.storage) == scalar)


def _loaded(stored: ir.Value, wanted: ir.Type) -> ir.Value:
    """Convert a stored element to the graph's type: bools are stored as bytes."""
    if stored.type == wanted:
        return stored
    zero = arith.ConstantOp(stored.type, ir.IntegerAttr.get(stored.type, 0)).result
    return compare("ne", stored, zero)


def _store_all(planned: FunctionBuilder, op: ir.Operation) -> None:
    buffer = planned.buffer(op.results[0])
    for value, position in zip(op.operands, itertools.product(*map(range, buffer.type.shape)), strict=True):
        scalar = planned.scalars[value]
        if scalar.type != buffer.type.element_type:
            scalar = arith.ExtUIOp(buffer.type.element_type, scalar).result
        memref.StoreOp(scalar, buffer, [index(i) for i in position])


def _select(planned: FunctionBuilder, op: ir.Operation) -> None:
    """Copy one of two tensors. Simplification creates this from branches that compute nothing."""
    condition, *values = op.operands
    target = planned.buffer(op.results[0])
    branch = scf.IfOp(planned.scalars[condition], has_else=True)
    for block, value in zip((branch.then_block, branch.else_block), values, strict=True):
        with planned.inside(), ir.InsertionPoint(block):
            planned.copy(planned.buffer(value), target, value.type)
            scf.YieldOp([])
