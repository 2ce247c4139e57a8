"""Constructs in both forms of a kernel: exponentials, infinities, constants of comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.exact.arithmetic import LOG2_E
from mirlo.passes.exact.double import is_rounded
from mirlo.passes.exact.translate_intrinsics import EXPONENTIALS
from mirlo.passes.exact.values import element_of, is_float

MAXIMA = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
_COMPARISONS = (*MAXIMA, "arith.cmpf")
_WITH_CONSTANTS = ("arith.constant", "tir.block")


def operations_in(operation: ir.Operation) -> list[ir.Operation]:
    """Return all operations below an operation, each before those in it."""
    operations: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        operations.append(op)
        return ir.WalkResult.ADVANCE

    walk(operation, visit, ir.WalkOrder.PRE_ORDER)
    return operations[1:]


class OperationList:
    """The operations of functions, which are visited once."""

    def __init__(self, *functions: ir.Operation):
        self.by_function = [[(op, op.name) for op in operations_in(function)] for function in functions]
        """The operations of each function, with their names."""
        self.names = frozenset(name for operations in self.by_function for _, name in operations)

    @property
    def has_exponentials(self) -> bool:
        return not self.names.isdisjoint(EXPONENTIALS)

    @property
    def has_comparisons(self) -> bool:
        return not self.names.isdisjoint(_COMPARISONS)

    @property
    def has_infinities(self) -> bool:
        """Return whether infinities or NaN are among the constants."""
        return any(not math.isfinite(value) for constants in self._constants for _, value in constants)

    def rounded_constants(self) -> list[float]:
        """Return the constants of kernels and small ones of graphs that may stand for other numbers."""
        return sorted(filter(is_rounded, {value for constants in self._constants for _, value in constants}))

    def compared_constants(self) -> list[float]:
        """Return the constants whose position in the order matters: operands of maxima and comparisons."""
        return sorted(set[float]().union(*self._compared))

    def compare_alike(self) -> bool:
        """Return whether all functions compare elements with the same constants."""
        return all(each == self._compared[0] for each in self._compared)

    def scaled_constants(self) -> dict[float, Fraction]:
        """Return the constants that are others times log2 e, rounded to f32: exp(k x) is exp2(k log2 e x).

        The others are constants of the first function.
        """
        if not self.has_exponentials:
            return {}
        first, *others = ({value for _, value in constants if math.isfinite(value)} for constants in self._constants)
        factors = {np.float32(k * math.log2(math.e)): k for value in first if value for k in (value, -value)}
        rounded = {float(c): Fraction(k) * Fraction(LOG2_E) for c, k in factors.items()}
        return {c: rounded[c] for c in sorted(set[float]().union(*others) - first) if c in rounded}

    @cached_property
    def _compared(self) -> list[set[float]]:
        """Return the constants that each function compares elements with."""
        return [
            {
                value for op, value in constants
                if op.name != "tir.block" and math.isfinite(value) and _is_compared(op.results[0])
            }
            for constants in self._constants
        ]  # fmt: skip

    @cached_property
    def _constants(self) -> list[list[tuple[ir.Operation, float]]]:
        """Return the float constants of each function."""
        return [
            [each for op, name in operations if name in _WITH_CONSTANTS for each in _constants(op, name)]
            for operations in self.by_function
        ]


def _is_compared(value: ir.Value) -> bool:
    for use in value.uses:
        user = use.owner.operation
        if user.name in _COMPARISONS or (user.name == "vector.broadcast" and _is_compared(user.results[0])):
            return True
    return False


def _constants(op: ir.Operation, name: str) -> Iterator[tuple[ir.Operation, float]]:
    """Yield float constants with their operation, also initial values of reductions and values beyond edges."""
    if name == "arith.constant" and is_float(element_of(op.results[0].type)):
        attribute = op.attributes["value"]
        if not isinstance(attribute, ir.DenseElementsAttr):
            yield op, float(ir.FloatAttr(attribute).value)
        elif attribute.is_splat:
            yield op, float(attribute.get_splat_value().value)
        else:
            dense: Any = ir.DenseFPElementsAttr(attribute)
            yield from ((op, float(dense[i])) for i in range(len(dense)))
    elif name == "tir.block":
        view = BlockView(op)
        attributes = [*view.init, *(operand.outside for operand in view.inputs)]
        yield from ((op, float(a.value)) for a in attributes if a is not None and isinstance(a, ir.FloatAttr))
