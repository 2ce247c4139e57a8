"""Copies of prim functions for some sizes of their symbols."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType, dim_attributes, dims_of_attribute


def with_dims(function: ir.Operation, dims: Mapping[str, Dim]) -> ir.Operation:
    """Return a copy of a prim function in tensor form, before it, in which symbols are these dims."""
    clone = function.clone(ip=ir.InsertionPoint(function))

    def retype(value: ir.Value) -> None:
        tensor_type = TensorType.from_mlir(value.type)
        if tensor_type is not None:
            value.set_type(tensor_type.with_shape([D.substitute(dim, dims) for dim in tensor_type.shape]).to_mlir())

    def visit(op: ir.Operation) -> ir.WalkResult:
        for result in op.results:
            retype(result)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    retype(argument)
        if op.name == "tir.block":
            domain = dims_of_attribute(op.attributes["domain"])
            op.attributes["domain"] = dim_attributes(tuple(D.substitute(dim, dims) for dim in domain))
        elif op.name == "tir.size":
            op.attributes["dim"] = ir.StringAttr.get(str(D.substitute(D.parse(op.opview.dim), dims)))
        return ir.WalkResult.ADVANCE

    clone.walk(visit, ir.WalkOrder.PRE_ORDER)
    entry = clone.regions[0].blocks[0]
    results = [value.type for value in entry.operations[len(entry.operations) - 1].operation.operands]
    types = [argument.type for argument in entry.arguments]
    clone.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
    return clone
