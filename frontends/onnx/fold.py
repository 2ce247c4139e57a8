"""Folding at import: operators on small known values and on shapes.

Only values that determine shapes are folded here, with few elements; large constants are left to the compiler's
folding pass. Models compute dims with floats as well: `ceil(h / 2)`, on the way to a padding. Elements of a small float
tensor are fractions of dims by powers of two, whose arithmetic is exact, as that of f32 is for dims below 2^24; where a
model converts them back to integers, these are dims. The float operators are imported as all others, and removed if
nothing else needs them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.registry import FOLDERS, relax_name
from mirlo.frontends.onnx.values import FoldedDims, as_dim, symbolic
from mirlo.frontends.sizes import FRACTION_ARITHMETIC, FRACTION_FUNCTIONS, DimFraction, Undecided
from mirlo.frontends.tensor import Tensor

FOLD_ELEMENTS = 1024
"""Most elements of a folded value."""


def fold(node: Node, compute: Callable[[], Tensor]) -> list[Tensor] | None:
    """Return the outputs of a node if they can be folded. `compute` makes the operation in its place."""
    if not (_measures(node) or _has_known_inputs(node)):
        return None
    function = FOLDERS.find(node.domain, node.operator, node.opset)
    if function is None:
        return None
    try:
        with np.errstate(all="ignore"):
            results = function(node)
    except (Undecided, TypeError, ValueError, IndexError, ArithmeticError):
        # Not foldable, or invalid: the converter makes the operation, or reports the error.
        return None
    dtype = results.dtype if isinstance(results, FoldedDims) else _dtype_of(node)
    arrays = results if isinstance(results, list) else [results.array if isinstance(results, FoldedDims) else results]
    if node.unread() is not None or sum(array.size for array in arrays) > FOLD_ELEMENTS:
        return None
    if len(arrays) > 1 and any(array.dtype == object for array in arrays):
        return None
    return [
        symbolic(node.builder, array, dtype, compute, name)
        if array.dtype == object
        else node.builder.constant(array, name=name)
        for name, array in zip(node.outputs, arrays, strict=False)
    ]


def require_few(shape: Iterable[int]) -> None:
    """Leave a result of this shape to the compiler if it has many elements, even if the model asks for them."""
    if math.prod(int(dim) for dim in shape) > FOLD_ELEMENTS:
        raise Undecided


def require_few_together(arrays: Sequence[np.ndarray]) -> None:
    """Leave an elementwise operator to the compiler if its operands broadcast to many elements."""
    require_few(np.broadcast_shapes(*(array.shape for array in arrays)))


def partial_of(node: Node) -> tuple[Dim | None, ...] | None:
    """Return which elements of a list are known if it has the numbers of the node's first input, as after a Cast."""
    value = node.inputs[0] if node.inputs else None
    has_values = NodeTrait.SAME_VALUES in node.traits
    return value.partial if has_values and isinstance(value, Tensor) else None


def known_elements(node: Node, index: int) -> np.ndarray:
    """Return the elements of an input, some of which may be symbolic dims."""
    array = node.value(index).known
    assert array is not None
    return array


def _measures(node: Node) -> bool:
    return NodeTrait.MEASURES in node.traits


def _has_known_inputs(node: Node) -> bool:
    casts = NodeTrait.SAME_VALUES in node.traits
    inputs = node.inputs[:1] if casts else node.inputs  # of the second input of CastLike, only the type is read
    values = [value for value in inputs if value is not None]
    arrays = [value.known for value in values if isinstance(value, Tensor) and value.known is not None]
    return bool(values) and len(arrays) == len(values) and sum(array.size for array in arrays) <= FOLD_ELEMENTS


def _dtype_of(node: Node) -> DType:
    """Return the element type of a result on dims: that of its operands, or int64 if they come from a shape."""
    if _measures(node):
        return DTYPES["i64"]
    symbolic_inputs = [value for value in node.inputs if isinstance(value, Tensor) and value.sizes is not None]
    return symbolic_inputs[0].type.dtype if symbolic_inputs else DTYPES["i64"]


_EXACT = ("f32", "f64")
"""Element types that hold dims exactly, as they are below 2^24."""
_MAX_DENOMINATOR = 1 << 10
_MAX_NUMBER = 1 << 24


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
    traits = node.traits
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
    name = relax_name(node.operator)
    if name in FRACTION_FUNCTIONS:
        return _applied(FRACTION_FUNCTIONS[name], _operand(node.value(0)))
    if name in FRACTION_ARITHMETIC:
        operands = [_operand(node.value(index)) for index in range(len(node))]
        return reduce(partial(_applied, FRACTION_ARITHMETIC[name]), operands)
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
