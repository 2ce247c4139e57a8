"""Constructs in both forms of a kernel: exponentials, infinities, constants of comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.exact.double import is_rounded
from mirlo.passes.exact.translate_intrinsics import EXPONENTIALS
from mirlo.passes.exact.values import element_of, is_float

MAXIMA = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
_COMPARISONS = (*MAXIMA, "arith.cmpf")


def operations_in(operation: ir.Operation) -> Iterator[ir.Operation]:
    """Yield all operations below an operation."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from operations_in(op.operation)


def has_exponentials(*functions: ir.Operation) -> bool:
    return any(op.name in EXPONENTIALS for function in functions for op in operations_in(function))


def has_comparisons(*functions: ir.Operation) -> bool:
    return any(op.name in _COMPARISONS for function in functions for op in operations_in(function))


def has_infinities(*functions: ir.Operation) -> bool:
    """Return whether infinities or NaN are among the constants of functions."""
    return any(not math.isfinite(value) for function in functions for _, value in _constants(function))


def rounded_constants(*functions: ir.Operation) -> list[float]:
    """Return the constants of kernels and small ones of graphs that may stand for other numbers."""
    values = {value for function in functions for _, value in _constants(function)}
    return sorted(value for value in values if is_rounded(value))


def compared_constants(*functions: ir.Operation) -> list[float]:
    """Return the constants whose position in the order matters: operands of maxima and comparisons, also in vectors."""
    values = set()
    for function in functions:
        for op, value in _constants(function):
            if op.name != "tir.block" and math.isfinite(value) and _is_compared(op.results[0]):
                values.add(value)
    return sorted(values)


def _is_compared(value: ir.Value) -> bool:
    for use in value.uses:
        user = use.owner.operation
        if user.name in _COMPARISONS or (user.name == "vector.broadcast" and _is_compared(user.results[0])):
            return True
    return False


def _constants(function: ir.Operation) -> Iterator[tuple[ir.Operation, float]]:
    """Yield each float constant with its operation, also initial values of reductions and values beyond edges."""
    for op in operations_in(function):
        if op.name == "arith.constant" and is_float(element_of(op.results[0].type)):
            attribute = op.attributes["value"]
            if not isinstance(attribute, ir.DenseElementsAttr):
                yield op, float(ir.FloatAttr(attribute).value)
            elif attribute.is_splat:
                yield op, float(attribute.get_splat_value().value)
            else:
                dense: Any = ir.DenseFPElementsAttr(attribute)
                yield from ((op, float(dense[i])) for i in range(len(dense)))
        elif op.name == "tir.block":
            view = BlockView(op)
            attributes = [*view.init, *(operand.outside for operand in view.inputs)]
            yield from ((op, float(a.value)) for a in attributes if a is not None and isinstance(a, ir.FloatAttr))
