"""Folding at import: operators on small known values and on shapes.

Only values that determine shapes are folded here, with few elements; large constants are left to the compiler's
folding pass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.frontends.onnx.dimensions import Undecided
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.node_traits import NodeTrait
from mirlo.frontends.onnx.registry import CONVERTERS, FOLDERS
from mirlo.frontends.onnx.values import FoldedDims, constant, symbolic
from mirlo.frontends.tensor import Tensor

FOLD_ELEMENTS = 1024
"""Most elements of a folded value."""


def fold(node: Node, compute: Callable[[], Tensor]) -> list[Tensor] | None:
    """Return the outputs of a node if they can be folded. `compute` makes the operation in its place."""
    function = FOLDERS.find(node.domain, node.operator, node.opset)
    if function is None or not (_measures(node) or _has_known_inputs(node)):
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
        else constant(node.builder, array, name)
        for name, array in zip(node.outputs, arrays, strict=False)
    ]


def partial_of(node: Node) -> tuple[Dim | None, ...] | None:
    """Return which elements of a list are known if it has the numbers of the node's first input, as after a Cast."""
    value = node.inputs[0] if node.inputs else None
    has_values = NodeTrait.SAME_VALUES in CONVERTERS.traits(node.domain, node.operator)
    return value.partial if has_values and isinstance(value, Tensor) else None


def known_elements(node: Node, index: int) -> np.ndarray:
    """Return the elements of an input, some of which may be symbolic dims."""
    array = node.value(index).known
    assert array is not None
    return array


def _measures(node: Node) -> bool:
    return NodeTrait.MEASURES in CONVERTERS.traits(node.domain, node.operator)


def _has_known_inputs(node: Node) -> bool:
    casts = NodeTrait.SAME_VALUES in CONVERTERS.traits(node.domain, node.operator)
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
