"""Folding of operators on known values, so that shapes computed in the model become dims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.relax.elementwise import Compare
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.fold import known_elements, require_few, require_few_together
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.shape import slice_arguments, stash_type
from mirlo.frontends.onnx.registry import FOLDERS, folder, meaning_of, relax_class
from mirlo.frontends.onnx.values import FoldedDims
from mirlo.frontends.sizes import OF_ARRAYS, Undecided

ON_SIZES = (
    "Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
)  # fmt: skip
ON_FLAGS = ("And", "Or")
"""Operators of two operands or more that are folded by what their classes mean, of sizes too and of flags alone."""


def _fold_binary(operator: str) -> Callable[[Node], np.ndarray]:
    cls, meaning = relax_class(operator), meaning_of(operator)
    on_dims = OF_ARRAYS.functions[cls.OPERATION_NAME.removeprefix("relax.")] if operator in ON_SIZES else None
    is_comparison = issubclass(cls, Compare)

    def apply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        require_few_together([left, right])
        if left.dtype != object and right.dtype != object:
            return np.asarray(meaning(left, right))
        if on_dims is None:
            raise Undecided
        result = np.asarray(np.frompyfunc(on_dims, 2, 1)(left.astype(object), right.astype(object)), object)
        return result.astype(bool) if is_comparison else result

    def function(node: Node) -> np.ndarray:
        result = known_elements(node, 0)
        for i in range(1, len(node)):
            result = apply(result, known_elements(node, i))
        return result

    return function


for _operator in (*ON_SIZES, *ON_FLAGS):
    FOLDERS.add("", _operator, 1, _fold_binary(_operator))


@folder("Mod")
def mod(node: Node) -> np.ndarray:
    left, right = known_elements(node, 0), known_elements(node, 1)
    require_few_together([left, right])
    if node.attr.bool("fmod", 0):
        if left.dtype == object or right.dtype == object or (left.dtype.kind in "iu" and not right.all()):
            raise Undecided
        return np.asarray(np.fmod(left, right))
    if left.dtype == object or right.dtype == object:
        return np.asarray(np.frompyfunc(OF_ARRAYS.mod, 2, 1)(left.astype(object), right.astype(object)), object)
    if left.dtype.kind not in "iu" or not right.all():
        raise Undecided
    return np.asarray(np.mod(left, right))


@folder("Shape")
def shape(node: Node) -> np.ndarray:
    part = slice(node.attr.int("start", None), node.attr.int("end", None))
    return np.array(node.type(0).shape[part], dtype=object)


@folder("Size")
def size(node: Node) -> np.ndarray:
    return np.array(node.type(0).elements, dtype=object)


@folder("Gather")
def gather(node: Node) -> np.ndarray:
    data, indices = known_elements(node, 0), known_elements(node, 1)
    return np.asarray(np.take(data, indices.astype(np.int64), axis=node.attr.int("axis", 0)), data.dtype)


@folder("Concat")
def concat(node: Node) -> np.ndarray:
    arrays = [known_elements(node, i) for i in range(len(node))]
    if any(array.dtype == object for array in arrays):
        arrays = [array.astype(object) for array in arrays]
    return np.concatenate(arrays, axis=node.attr.int("axis"))


@folder("Slice")
def slice_(node: Node) -> np.ndarray:
    data = known_elements(node, 0)
    starts, ends, axes, steps = slice_arguments(node)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(start, int) or not isinstance(end, int):
            raise Undecided
        # With a negative step, an end before the first element means "all of it", which is None in Python.
        stop = None if step < 0 and end < -data.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


@folder("Split")
def split(node: Node) -> list[np.ndarray]:
    data, axis = known_elements(node, 0), node.attr.int("axis", 0)
    count = node.attr.int("num_outputs", len(node.outputs))
    sizes = node.axes(1, "split")
    if sizes is None:
        if count != len(node.outputs) or data.shape[axis] % count:
            raise Undecided
        sizes = [data.shape[axis] // count] * count
    if sum(sizes) != data.shape[axis] or len(sizes) != len(node.outputs):
        raise Undecided
    return np.split(data, np.cumsum(sizes)[:-1].tolist(), axis=axis)


@folder("Squeeze")
def squeeze(node: Node) -> np.ndarray:
    axes = node.axes(1)
    return np.squeeze(known_elements(node, 0), axis=None if axes is None else tuple(axes))


@folder("Unsqueeze")
def unsqueeze(node: Node) -> np.ndarray:
    axes = node.axes(1)
    if axes is None:
        raise Undecided
    return np.expand_dims(known_elements(node, 0), tuple(axes))


@folder("Reshape")
def reshape(node: Node) -> np.ndarray:
    data, wanted = known_elements(node, 0), node.ints(1)
    if not node.attr.bool("allowzero", 0):
        wanted = [data.shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)]
    return data.reshape(wanted)


@folder("Transpose")
def transpose(node: Node) -> np.ndarray:
    return np.transpose(known_elements(node, 0), node.attr.ints("perm", None))


@folder("Expand")
def expand(node: Node) -> np.ndarray:
    data = known_elements(node, 0)
    shape = np.broadcast_shapes(data.shape, tuple(node.ints(1)))
    require_few(shape)
    result: np.ndarray = np.broadcast_to(data, shape).copy()
    return result


@folder("Tile")
def tile(node: Node) -> np.ndarray:
    data, repeats = known_elements(node, 0), node.ints(1)
    require_few([dim * count for dim, count in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


@folder("Cast")
def cast(node: Node) -> np.ndarray | FoldedDims:
    return _cast(node, onnx_dtype(node.attr.int("to"), "attribute 'to'").dtype)


@folder("CastLike")
def cast_like(node: Node) -> np.ndarray | FoldedDims:
    node.ignore(1)
    return _cast(node, node.type(1).dtype)


def _cast(node: Node, wanted: DType) -> np.ndarray | FoldedDims:
    data = known_elements(node, 0)
    node.attr.ignore("saturate", "round_mode")  # they concern low-precision types, which are not folded here
    if data.dtype == object:
        if wanted.name not in ("i64", "i32"):
            raise Undecided
        return FoldedDims(data, wanted)
    if not (wanted.is_integer or wanted.is_bool or wanted.name in ("f64", "f32", "f16", "bf16")):
        raise Undecided
    if data.dtype.kind == "f" and not wanted.is_float and not np.isfinite(data).all():
        raise Undecided
    return data.astype(wanted.to_numpy())


@folder("Where")
def where(node: Node) -> np.ndarray:
    condition, x, y = (known_elements(node, i) for i in range(3))
    require_few_together([condition, x, y])
    if object in (x.dtype, y.dtype):
        x, y = x.astype(object), y.astype(object)
    return np.where(condition, x, y)


@folder("ConstantOfShape")
def constant_of_shape(node: Node) -> np.ndarray:
    shape = node.ints(0)
    require_few(shape)
    value = node.tensor_attribute("value") if "value" in node.attr else np.zeros(1, np.float32)
    return np.full(shape, value.reshape(-1)[0], value.dtype)


@folder("Range")
def arange(node: Node) -> np.ndarray:
    wide = stash_type(node).to_numpy()
    start, stop, step = (node.scalar(i) for i in range(3))
    count = max(0, int(np.ceil((stop - start) / step)))
    require_few([count])
    elements = np.asarray(start, wide) + np.arange(count, dtype=wide) * np.asarray(step, wide)
    result: np.ndarray = elements.astype(node.type(0).dtype.to_numpy())
    return result


@folder("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean")
def reduce(node: Node) -> np.ndarray:
    data, axes = known_elements(node, 0), node.axes(1)
    return _reduce_dims(node, data, axes) if data.dtype == object else reduce_elements(node, axes)


def _reduce_dims(node: Node, data: np.ndarray, axes: list[int] | None) -> np.ndarray:
    """Return the product or sum of a list of dims."""
    node.attr.ignore("noop_with_empty_axes")
    if data.ndim != 1 or axes not in (None, [0], [-1]):
        raise Undecided
    if node.operator not in ("ReduceProd", "ReduceSum"):
        raise Undecided
    total = D.product(tuple(data)) if node.operator == "ReduceProd" else sum(data.tolist(), start=0)
    return np.array([total] if node.attr.bool("keepdims", 1) else total, dtype=object)


@folder("NonZero")
def nonzero(node: Node) -> np.ndarray:
    data = known_elements(node, 0)
    if data.dtype == object:
        raise Undecided
    return np.array(np.nonzero(data), np.int64)


def static_elements(node: Node, index: int) -> np.ndarray:
    """Return the elements of an input, none of which is a symbolic dim."""
    array = known_elements(node, index)
    if array.dtype == object:
        raise Undecided
    return array


def _fold_elementwise(operation: Callable[..., np.ndarray], node: Node) -> np.ndarray:
    """Return what an operator computes whose result has the element type of its first input."""
    arrays = [static_elements(node, i) for i in range(len(node))]
    require_few_together(arrays)
    return np.asarray(operation(*arrays)).astype(arrays[0].dtype)


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    if base.dtype.kind not in "iu":
        return np.asarray(np.power(base, exponent.astype(base.dtype)))
    result = np.power(base.astype(np.float64), exponent.astype(np.float64))
    if not (np.abs(result) < 2**53).all():  # NaN as well
        raise Undecided
    return result


def _mean(*arrays: np.ndarray) -> np.ndarray:
    result: np.ndarray = sum(arrays[1:], start=arrays[0]) / np.asarray(len(arrays), arrays[0].dtype)
    return result


def _sum(*arrays: np.ndarray) -> np.ndarray:
    result: np.ndarray = sum(arrays[1:], start=arrays[0])
    return result


ELEMENTWISE = (
    "Neg", "Abs", "Not", "Floor", "Ceil", "Sqrt", "Exp", "Log", "Reciprocal", "Round", "Sign", "Xor",
)  # fmt: skip
"""Operators that are folded by what their classes mean."""
_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    **{name: meaning_of(name) for name in ELEMENTWISE},
    "Pow": _power,
    "Sum": _sum,
    "Mean": _mean,
}
for _name, _operation in _OPERATIONS.items():
    FOLDERS.add("", _name, 1, partial(_fold_elementwise, _operation))


@folder("Clip")
def clip(node: Node) -> np.ndarray:
    result = static_elements(node, 0)
    for index, limited in ((1, np.maximum), (2, np.minimum)):
        if node.has(index):
            limit = static_elements(node, index)
            require_few_together([result, limit])
            result = limited(result, limit)
    return result


@folder("ArgMax", "ArgMin")
def arg_extreme(node: Node) -> np.ndarray:
    data, axis = static_elements(node, 0), node.attr.int("axis", 0)
    if not data.shape[axis]:
        raise Undecided
    last = node.attr.bool("select_last_index", 0)
    ordered = np.flip(data, axis) if last else data
    positions = (np.argmax if node.operator == "ArgMax" else np.argmin)(ordered, axis=axis)
    positions = np.asarray(data.shape[axis] - 1 - positions if last else positions, np.int64)
    return np.expand_dims(positions, axis) if node.attr.bool("keepdims", 1) else positions


@folder("CumSum")
def cumulative_sum(node: Node) -> np.ndarray:
    data, axis = static_elements(node, 0), int(node.scalar(1))
    if node.attr.bool("exclusive", 0) or node.attr.bool("reverse", 0):
        raise Undecided
    return np.cumsum(data, axis=axis, dtype=data.dtype)


@folder("Flatten")
def flatten(node: Node) -> np.ndarray:
    data, axis = known_elements(node, 0), node.attr.int("axis", 1)
    return data.reshape(int(np.prod(data.shape[:axis], dtype=np.int64)), -1)


def reduce_elements(node: Node, axes: list[int] | None) -> np.ndarray:
    """Return the reduction of known numbers."""
    data, keepdims = static_elements(node, 0), node.attr.bool("keepdims", 1)
    if not axes and node.attr.bool("noop_with_empty_axes", 0):
        return data
    if not data.size or data.dtype.kind == "b":
        raise Undecided
    node.attr.ignore("noop_with_empty_axes")
    result = meaning_of(node.operator)(data, axes=tuple(axes) if axes else None, keepdims=keepdims)
    # An integer mean is truncated, as by the operator.
    return np.asarray(np.trunc(result) if data.dtype.kind in "iu" else result, data.dtype)
