"""Dims that a model computes with floats: `ceil(h / 2)` of exporters, on the way to a padding.

Elements of a small float tensor are fractions of dims by powers of two. Their arithmetic is exact, as that of f32 is
for dims below 2^24; where a model converts them back to integers, these are dims. The operators themselves are imported
as all others, and are removed if nothing else needs them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.dimensions import Undecided
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.fold import FOLD_ELEMENTS
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.node_traits import NodeTrait
from mirlo.frontends.onnx.registry import CONVERTERS, FOLDERS
from mirlo.frontends.onnx.values import as_dim, symbolic
from mirlo.frontends.tensor import Tensor

_EXACT = ("f32", "f64")
"""Element types that hold dims exactly, as they are below 2^24."""
_MAX_DENOMINATOR = 1 << 10
_MAX_NUMBER = 1 << 24


@dataclass(frozen=True)
class DimFraction:
    """A dim, which may be negative, divided by a power of two."""

    numerator: Dim
    denominator: int = 1

    @staticmethod
    def of(numerator: Dim, denominator: int) -> DimFraction:
        """Return a fraction in lowest terms."""
        terms = [numerator] if isinstance(numerator, int) else [factor for _, factor in numerator.terms]
        common = math.gcd(denominator, *terms)
        return DimFraction(numerator // common, denominator // common)

    def __add__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a + b))

    def __sub__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a - b))

    def __mul__(self, other: DimFraction) -> DimFraction:
        if not isinstance(self.numerator, int) and not isinstance(other.numerator, int):
            raise Undecided  # a product of dims may exceed what f32 holds exactly
        return DimFraction.of(self.numerator * other.numerator, self.denominator * other.denominator)

    def __truediv__(self, other: DimFraction) -> DimFraction:
        number = other.numerator
        if not isinstance(number, int) or number <= 0 or number & (number - 1):
            raise Undecided
        return self * DimFraction(other.denominator, number)

    def maximum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.maximum))

    def minimum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.minimum))

    def floor(self) -> DimFraction:
        return DimFraction(self.numerator // self.denominator)

    def ceil(self) -> DimFraction:
        return DimFraction(D.ceildiv(self.numerator, self.denominator))

    def truncated(self) -> Dim:
        """Return the integer towards zero."""
        if self.denominator == 1:
            return self.numerator
        if not D.is_nonnegative(self.numerator):
            raise Undecided
        return self.numerator // self.denominator

    def _common(self, other: DimFraction, apply: Callable[[Dim, Dim], Dim]) -> tuple[Dim, int]:
        """Return the result of a function of both numerators over a common denominator."""
        common = math.lcm(self.denominator, other.denominator)
        left, right = (each.numerator * (common // each.denominator) for each in (self, other))
        return apply(left, right), common


_UNARY: dict[str, Callable[[DimFraction], DimFraction]] = {
    "Ceil": DimFraction.ceil, "Floor": DimFraction.floor, "Relu": lambda x: x.maximum(DimFraction(0)),
    "Neg": lambda x: DimFraction(0) - x,
}  # fmt: skip
_BINARY: dict[str, Callable[[DimFraction, DimFraction], DimFraction]] = {
    "Add": DimFraction.__add__, "Sub": DimFraction.__sub__, "Mul": DimFraction.__mul__, "Div": DimFraction.__truediv__,
    "Max": DimFraction.maximum, "Min": DimFraction.minimum,
}  # fmt: skip


def fractions_of(node: Node, result: Tensor) -> np.ndarray | None:
    """Return the elements of a node's float result as fractions of dims, if they are known to be some."""
    if not isinstance(result, Tensor) or result.known is not None or result.type.dtype.name not in _EXACT:
        return None
    values = [value for value in node.inputs if value is not None]
    if not any(isinstance(v, Tensor) and (v.fractions is not None or v.sizes is not None) for v in values):
        return None
    try:
        elements = _elements(node)
    except (Undecided, TypeError, ValueError, IndexError, ArithmeticError):
        return None
    return (
        elements
        if elements is not None and elements.size <= FOLD_ELEMENTS and elements.shape == result.type.shape
        else None
    )


def fold_fractions(node: Node, compute: Callable[[], Tensor]) -> list[Tensor] | None:
    """Return the result of a cast of fractions to integers, which are dims; `compute` makes the operation."""
    value = node.inputs[0] if (node.domain, node.operator) == ("", "Cast") else None
    if not isinstance(value, Tensor) or value.fractions is None:
        return None
    wanted = onnx_dtype(node.attr.int("to"), "attribute 'to'").dtype
    if wanted.name not in ("i64", "i32"):
        return None
    try:
        return [
            symbolic(node.builder, _applied(DimFraction.truncated, value.fractions), wanted, compute, node.outputs[0])
        ]
    except Undecided:
        return None


def _elements(node: Node) -> np.ndarray | None:
    traits = CONVERTERS.traits(node.domain, node.operator)
    if NodeTrait.SAME_VALUES in traits:
        return _operand(node.value(0))
    if NodeTrait.MOVES in traits:
        return _moved(node)
    if node.domain:
        return None
    if node.operator == "Clip":
        result = _operand(node.value(0))
        for index, limit in ((1, DimFraction.maximum), (2, DimFraction.minimum)):
            if node.has(index):
                result = _applied(limit, result, _operand(node.value(index)))
        return result
    if node.operator in _UNARY:
        return _applied(_UNARY[node.operator], _operand(node.value(0)))
    if node.operator in _BINARY:
        result = _operand(node.value(0))
        for index in range(1, len(node)):
            result = _applied(_BINARY[node.operator], result, _operand(node.value(index)))
        return result
    return None


def _moved(node: Node) -> np.ndarray:
    """Fold an operator that moves elements."""
    inputs = [
        dataclasses.replace(value, array=None, sizes=tuple(_operand(value).flat))
        if isinstance(value, Tensor) and value.type.dtype.is_float
        else value
        for value in node.inputs
    ]
    function = FOLDERS.find(node.domain, node.operator, node.opset)
    if function is None:
        raise Undecided
    results = function(node.with_inputs(inputs))
    return np.asarray(results[0] if isinstance(results, list) else results, object)


def _applied(function: Callable[..., Dim | DimFraction], *operands: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), object)


def _operand(value: Tensor) -> np.ndarray:
    """Return the elements of an operand as fractions."""
    if value.fractions is not None:
        return value.fractions
    if value.known is None or value.known.size > FOLD_ELEMENTS:
        raise Undecided
    if value.sizes is not None:
        return _filled([DimFraction(_linear(as_dim(dim))) for dim in value.known.flat], value.known.shape)
    return _filled([_number(number) for number in value.known.flat], value.known.shape)


def _filled(elements: Sequence[DimFraction], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def _linear(dim: Dim) -> Dim:
    """Return a dim that is a sum of multiples of dims; products may exceed what f32 holds exactly."""
    if not isinstance(dim, int) and any(len(atoms) > 1 for atoms, _ in dim.terms):
        raise Undecided
    return dim


def _number(number: float) -> DimFraction:
    top, bottom = (int(part) for part in float(number).as_integer_ratio())
    if abs(top) > _MAX_NUMBER or bottom > _MAX_DENOMINATOR:
        raise Undecided
    return DimFraction(top, bottom)
