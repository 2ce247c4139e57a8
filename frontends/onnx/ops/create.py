"""Constants, and operators that create tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import WRONG, as_sizes, dtype_of_array, sizes_if, sum_fits
from mirlo.frontends.onnx.declared import declared_shape, equals, required
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import STRING_CODE
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.shape import stash_type
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import DECLINED, Converted, is_exact, strings
from mirlo.frontends.tensor import Tensor, maximum, steps, where


@converter("Constant")
def constant_node(node: Node) -> Converted:
    names = node.attr.names()
    if len(names) != 1:
        raise NodeError(f"exactly one attribute must give the value, got {', '.join(names) or 'none'}")
    name = node.outputs[0]
    array: np.ndarray
    match names[0]:
        case "value":
            tensor = node.attr.tensor("value")
            if tensor.code == STRING_CODE:
                return strings(name, node.builder.strings(tensor))
            result = node.builder.constant(node.builder.array(tensor), name=name)
            result.parameter = node.builder.parameter_of(tensor, name)
            return result
        case "value_float":
            array = np.array(node.attr.float("value_float"), np.float32)
        case "value_int":
            array = np.array(node.attr.int("value_int"), np.int64)
        case "value_floats":
            array = np.array(node.attr.floats("value_floats"), np.float32)
        case "value_string":
            return strings(name, np.array(node.attr.str("value_string"), object))
        case "value_strings":
            return strings(name, np.array(node.attr.strs("value_strings"), object))
        case "value_ints":
            array = np.array(node.attr.ints("value_ints"), np.int64)
        case other:
            raise NodeError(f"attribute '{other}' is not supported: only dense tensors of numbers are")
    return node.builder.constant(array, name=name)


@converter("ConstantOfShape")
def constant_of_shape(node: Node) -> Converted:
    value = np.zeros(1, np.float32)
    if "value" in node.attr:
        value = node.tensor_attribute("value")
        if value.size != 1:
            raise NodeError(f"attribute 'value' must have one element, got {value.size}")
    declared = declared_shape(node, 0)
    shape = node.dims(0) if declared is None else declared
    result = _filled(node, value, shape)
    return result if declared is None else required(node, equals(node, 0, declared), "input 'input' is another", result)


def _filled(node: Node, value: np.ndarray, shape: Sequence[Dim]) -> Tensor:
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise NodeError(f"input 'input' must be sizes, got {list(shape)}")
    number = value.reshape(-1)[0].item()
    if not is_exact(number):
        return node.emit("expand", node.constant(value.reshape(())), shape=shape)
    return node.emit("full", shape=shape, value=float(number), dtype=dtype_of_array(value))


@converter("Range")
def arange(node: Node) -> Converted:
    """Convert Range with constant bounds, or from 0 by 1 to a symbolic dim."""
    tensor_type = node.type(0)
    if stash_type(node) != tensor_type.dtype:
        return DECLINED  # the function body computes in this type
    declared = node.declared(0)
    if declared is not None and len(declared) == 1 and not all(node.value(i).known is not None for i in range(3)):
        return _range_of_declared_shape(node, declared[0])
    if all(node.value(i).array is not None for i in range(3)):
        start, stop, step = (node.scalar(i) for i in range(3))
        if step == 0:
            raise NodeError("input 'delta' must not be 0")
        return node.emit("arange", start=float(start), stop=float(stop), step=float(step), dtype=tensor_type.dtype)
    is_counted = tensor_type.rank == 0 and not tensor_type.dtype.is_float and node.value(1).known is not None
    if is_counted and node.value(0).array is not None and node.value(2).array is not None and node.scalar(2) == 1:
        (stop,), start = node.dims(1), node.scalar(0)
        return steps(node[0], node[2], stop if start == 0 else D.maximum(stop - int(start), 0))
    return dynamic_range(node)


def _range_of_declared_shape(node: Node, count: int) -> Tensor:
    start, limit, delta = (node[i].reshape(()) for i in range(3))
    require_table("the range", count)
    index = node.constant(np.arange(count), node.type(0))
    elements = start + index * delta
    # Up or down, the last element is before the limit, and the next one is not.
    spans = [node.constant(number, node.type(0)) * delta for number in (count - 1, count)]
    ends = [start + span for span in spans]
    up = delta > 0
    is_before = [where(up, end < limit, end > limit) for end in ends]
    fits = ~is_before[1]
    fits = is_before[0] & fits if count else fits
    return required(node, fits, "the bounds make another number of elements", elements)


@converter("EyeLike")
def eye_like(node: Node) -> Converted:
    tensor_type = node.type(0)
    node.ignore(0)
    dtype = onnx_dtype(node.attr.int("dtype"), "attribute 'dtype'").dtype if "dtype" in node.attr else tensor_type.dtype
    return node.emit("eye", shape=tensor_type.shape, k=node.attr.int("k", 0), dtype=dtype)


@converter("Trilu")
def trilu(node: Node) -> Converted:
    if node.has(1) and node.value(1).array is None:
        return _trilu_of_dynamic_k(node)
    return node.emit("tri", node[0], k=int(node.scalar(1, 0)), upper=node.attr.bool("upper", 1))


def _trilu_of_dynamic_k(node: Node) -> Tensor:
    """Convert Trilu with a run-time diagonal: compare it with each element's own."""
    rows, columns = node.type(0).shape[-2:]
    down = node.index_vector(rows).reshape((rows, 1))
    diagonals = node.index_vector(columns) - down
    k = node.single(1)
    is_kept = diagonals >= k if node.attr.bool("upper", 1) else diagonals <= k
    return where(is_kept, node[0], node.constant(0, node.type(0)))


def dynamic_range(node: Node) -> Tensor:
    """Convert Range with run-time bounds."""
    start, limit, delta = (node.single(i) for i in range(3))
    tensor_type = start.type
    if tensor_type.dtype.is_float:
        wide = "f64"
        first, last, step = (each.cast(wide) for each in (start, limit, delta))
        length = (last - first) / step
        count = as_sizes(maximum(length.ceil(), node.constant(0.0, "f64")))
    else:
        first, last, step = (
            each if tensor_type.dtype.name == "i64" else each.cast("i64") for each in (start, limit, delta)
        )
        nonzero = where(step.equals(0), 1, step)
        count = -((first - last) // nonzero)
        count = maximum(count, 0)
        count = sizes_if(sum_fits(first, -last), count)
    wrong = delta.equals(0)
    count = where(wrong, WRONG, count)
    (size,) = node.bind(
        count.reshape((1,)),
        "input 'delta' must not be 0, nor the range longer than any memory",
    )
    return steps(start, delta, size)
