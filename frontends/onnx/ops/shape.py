"""Operators that change shapes, constants, and operators that fold to them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.values import OPERAND_RUNS
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.dialects.relax.infer import shape_text
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.onnx.declared import (
    axes_set,
    candidate_axes,
    count_of,
    declared_of_static,
    declared_shape,
    equals,
    is_candidate,
    required,
    required_all,
)
from mirlo.frontends.onnx.dtypes import FLOAT_CODE, onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.fold import FOLD_ELEMENTS
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.registry import convert_dynamic, converter
from mirlo.frontends.onnx.values import Converted, as_dim, is_exact
from mirlo.frontends.sizes import divisible, quotient
from mirlo.frontends.tensor import Tensor, concat, maximum, minimum, where


@converter("Identity", traits=[NodeTrait.SAME_SHAPE, NodeTrait.SAME_VALUES])
def identity(node: Node) -> Converted:
    return node.any_value(0)


@converter("Dropout")
def dropout(node: Node) -> Converted:
    """Convert to the identity: dropout has no effect in inference."""
    node.attr.ignore("ratio", "seed", "is_test")
    if node.has_output(1):
        return node.value(0), node.emit("full", shape=node.type(0).shape, value=1, dtype="bool")
    return node.value(0)


class Undivided(NodeError):
    """A shape whose divisibility is known only at run time, with -1 for the rest."""

    def __init__(self, text: str, shape: Sequence[Dim], equation: tuple[Dim, Dim] | None = None) -> None:
        super().__init__(text)
        self.shape = tuple(shape)
        self.equation = equation
        """Two dims that are equal if the shape divides the elements."""


def reshaped(x: TensorType, wanted: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """Return the result shape of a Reshape to `wanted`: 0 copies a dim, -1 is the rest."""
    shape: list[Dim] = []
    for i, dim in enumerate(wanted):
        if dim == 0 and not allow_zero:
            if i >= x.rank:
                raise NodeError(f"shape {_listed(wanted)} copies dim {i}, but the input is {x}")
            dim = x.shape[i]
        shape.append(dim)
    unknown = [i for i, dim in enumerate(shape) if dim == -1]
    if any(isinstance(dim, int) and dim < -1 for dim in shape) or len(unknown) > 1:
        raise NodeError(f"shape {_listed(wanted)} must be sizes, of which one may be -1")
    if unknown:
        known = D.product([dim for dim in shape if dim != -1])
        rest = quotient(x.elements, known)
        if rest is None:
            text = f"the input {x} cannot be reshaped to {_listed(wanted)}: {known} does not divide {x.elements}"
            number = D.product([dim for dim in shape if isinstance(dim, int) and dim != -1])
            total = quotient(x.elements, D.product([dim for dim in shape if not isinstance(dim, int)]))
            if total is None and D.symbols_of(x.elements):
                raise Undivided(text, shape)
            if total is None or not isinstance(number, int) or number < 1:
                raise NodeError(text)
            raise Undivided(text, shape, divisible(total, number))
        shape[unknown[0]] = rest
    return tuple(shape)


def _listed(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


@converter("Reshape", traits=[NodeTrait.MOVES])
def reshape(node: Node) -> Converted:
    x = node.type(0)
    shape = declared_shape(node, 1)
    if shape is not None and count_of(node, 1) == len(shape) and D.product(x.shape) == math.prod(shape):
        return _reshape_of_declared_shape(node, shape, node.attr.bool("allowzero", 0))
    if node.value(1).known is None:
        return convert_dynamic(node)
    try:
        dims = reshaped(x, node.dims(1), node.attr.bool("allowzero", 0))
    except Undivided as error:
        if error.equation is not None and node.builder.solution(*error.equation):
            raise DimsDiffer(str(error), *error.equation) from None
        dims = _infer_remaining_dim(node, x, error.shape)
    return node[0].reshape(dims)


def _infer_remaining_dim(node: Node, x: TensorType, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return a shape whose -1 is replaced by what the other dims leave of x's elements."""
    total = node.sizes(x.shape).prod()
    known = node.sizes([1, *(dim for dim in shape if dim != -1)]).prod()
    rest = total // maximum(known, 1)
    whole = (rest * known).equals(total)
    checked = sizes_if(whole, rest).reshape((1,))
    (dim,) = node.bind(checked, f"the other dims of the shape do not divide the elements of {x}")
    return tuple(dim if size == -1 else size for size in shape)


def _reshape_of_declared_shape(node: Node, shape: tuple[int, ...], allow_zero: bool) -> Tensor:
    x = node.type(0)
    fits = equals(node, 1, shape) | equals(node, 1, [-1] * len(shape))
    if not allow_zero:
        copies = [i < x.rank and x.shape[i] == dim for i, dim in enumerate(shape)]
        copied = equals(node, 1, [0] * len(shape)) & node.constant(np.array(copies, bool))
        fits = fits | copied
    return required(node, fits, "input 'shape' is another", node[0].reshape(shape))


@converter("Flatten", traits=[NodeTrait.MOVES])
def flatten(node: Node) -> Tensor:
    x, axis = node.type(0), node.attr.int("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return node[0].reshape((D.product(x.shape[:axis]), D.product(x.shape[axis:])))


@converter("Transpose", traits=[NodeTrait.MOVES])
def transpose(node: Node) -> Tensor:
    axes = node.attr.ints("perm", None)
    if axes is None:
        axes = list(range(node.type(0).rank))[::-1]
    return node[0].permute(axes)


@converter("Squeeze", traits=[NodeTrait.MOVES])
def squeeze(node: Node) -> Converted:
    shape, x = declared_of_static(node, 1), node.type(0)
    if shape is not None:
        candidates = candidate_axes(x, count_of(node, 1), shape, False)
        candidates = [axes for axes in candidates if all(x.shape[i] == 1 for i in axes)]
        if candidates:
            return _with_axes(node, x.rank, candidates, shape)
    if node.has(1) and node.value(1).known is None:
        return convert_dynamic(node)
    axes = node.axes(1)
    if axes is not None:
        return node.emit("squeeze", node[0], axes=axes)
    result = node.emit("squeeze", node[0], axes=[i for i, dim in enumerate(x.shape) if dim == 1])
    dynamic_dims = [dim for dim in x.shape if not isinstance(dim, int)]
    if not dynamic_dims:
        return result
    # The rank of the result must be known: use the number of sizes that are not 1.
    more = node.sizes(dynamic_dims).not_equals(node.constant(np.int64(1)))
    listed = ", ".join(map(str, dynamic_dims))
    return required(node, more, f"without axes, none of {listed} may be 1", result, why="as the rank would be another")


@converter("Unsqueeze", traits=[NodeTrait.MOVES])
def unsqueeze(node: Node) -> Converted:
    shape = declared_of_static(node, 1)
    if shape is not None:
        tensor_type, count = node.type(0).with_shape(shape), count_of(node, 1)
        candidates = candidate_axes(tensor_type, count, node.type(0).static_shape, False)
        candidates = [axes for axes in candidates if all(shape[i] == 1 for i in axes)]
        if candidates:
            return _with_axes(node, len(shape), candidates, shape)
    if node.has(1) and node.value(1).known is None:
        return convert_dynamic(node)
    axes = node.axes(1)
    if axes is None:
        raise NodeError("attribute 'axes' is missing")
    return node.emit("expand_dims", node[0], axes=axes)


def _with_axes(node: Node, rank: int, candidates: list[tuple[int, ...]], shape: tuple[int, ...]) -> Tensor:
    """Add or remove unit dims at run-time axes: return the declared shape if the axes make it."""
    is_made = is_candidate(node, axes_set(node, 1, rank), candidates)
    return required(node, is_made, "input 'axes' names other axes", node[0].reshape(shape))


@converter("Expand", traits=[NodeTrait.MOVES])
def expand(node: Node) -> Converted:
    """Broadcast both ways: a wanted dim of 1 keeps the input's."""
    declared = declared_of_static(node, 1)
    if declared is not None and _may_expand_to(node, declared):
        tail = declared[len(declared) - count_of(node, 1) :]
        own = [1] * (len(declared) - node.type(0).rank) + list(node.type(0).shape)
        kept = np.array([own[len(own) - len(tail) + i] == dim for i, dim in enumerate(tail)], bool)
        ones = equals(node, 1, [1] * len(tail)) & node.constant(kept)
        fits = equals(node, 1, tail) | ones
        return required(node, fits, "input 'shape' is another", node.emit("expand", node[0], shape=declared))
    if node.value(1).known is None:
        return convert_dynamic(node)
    x, wanted = node.type(0), list(node.dims(1))
    rank = max(x.rank, len(wanted))
    padded = [*[1] * (rank - len(wanted)), *wanted]
    own = [*[1] * (rank - x.rank), *x.shape]
    shape = [node.builder.broadcast_dim(old, new) for old, new in zip(own, padded, strict=True)]
    _require_broadcast(node, padded, shape)
    return node.emit("expand", node[0], shape=tuple(shape))


def _may_expand_to(node: Node, declared: Sequence[int]) -> bool:
    """Return whether an input of static dims, and a list of this length, can make the declared shape."""
    x = node.type(0)
    if max(x.rank, count_of(node, 1)) != len(declared):
        return False
    return all(dim in (1, wanted) for dim, wanted in zip(x.shape[::-1], declared[::-1], strict=False))


def _require_broadcast(node: Node, wanted: Sequence[Dim], shape: Sequence[Dim]) -> None:
    """Check in the call that each requested dim is 1 or that of the result, which the input's dim may have decided."""
    # It is never larger than the result's: between 1 and that, this product is positive.
    excess = [(dim - new) * (new - 1) for new, dim in zip(wanted, shape, strict=True)]
    excess = [dim for dim in excess if dim != 0]
    if excess:
        what = (
            f"node '{node.outputs[0]}' ({node.operator}): input 'shape', {shape_text(wanted)}, does not broadcast with "
            f"the input {node.type(0)}"
        )
        RequireDims.build(dims=tuple(excess), bounds=(0,) * len(excess), what=what, result_types=[])


@converter("Tile", since=6, traits=[NodeTrait.MOVES])
def tile(node: Node) -> Converted:
    shape = declared_of_static(node, 1)
    if shape is not None and len(shape) == node.type(0).rank and all(node.type(0).static_shape):
        repeats = [new // old for new, old in zip(shape, node.type(0).static_shape, strict=True)]
        return required(
            node, equals(node, 1, repeats), "'repeats' is another", node.emit("tile", node[0], repeats=repeats)
        )
    if node.value(1).array is not None:
        return node.emit("tile", node[0], repeats=node.ints(1))
    # Add a unit dim before each dim, and broadcast it.
    x, counts = node.type(0), node.dims(1)
    if len(counts) != x.rank:
        raise NodeError(f"input 'repeats' must have {x.rank} numbers for {x}, got {len(counts)}")
    apart = node[0].reshape([part for dim in x.shape for part in (1, dim)])
    pairs = [part for count, dim in zip(counts, x.shape, strict=True) for part in (count, dim)]
    tiled = [count * dim for count, dim in zip(counts, x.shape, strict=True)]
    return node.emit("expand", apart, shape=pairs).reshape(tiled)


@converter("Concat", traits=[NodeTrait.MOVES])
def concatenate(node: Node) -> Tensor:
    """Concatenate long lists in two steps: an operation holds a limited number of operands of different types."""
    parts, axis = node.all(), node.attr.int("axis")
    while len(parts) > OPERAND_RUNS:
        groups = [parts[i : i + OPERAND_RUNS] for i in range(0, len(parts), OPERAND_RUNS)]
        parts = [concat(group, axis=axis) for group in groups]
    result = concat(parts, axis=axis)
    result.partial = _known_elements(node)
    return result


def _known_elements(node: Node) -> tuple[Dim | None, ...] | None:
    """Return the elements of a list of integers; None for elements that are not known."""
    elements: list[Dim | None] = []
    for value in map(node.value, range(len(node))):
        if value.type.rank != 1 or value.type.dtype.name not in ("i32", "i64"):
            return None
        (count,) = value.type.shape
        if not isinstance(count, int) or len(elements) + count > FOLD_ELEMENTS:
            return None
        if value.known is not None:
            elements += map(as_dim, value.known)
        else:
            elements += value.partial or [None] * count
    return tuple(elements) if any(dim is not None for dim in elements) else None


@converter("Split", traits=[NodeTrait.MOVES])
def split(node: Node) -> Converted:
    """Split by given sizes, or in equal parts (the last one smaller if the number of parts is given)."""
    x, axis = node.type(0), node.attr.int("axis", 0)
    if not -x.rank <= axis < x.rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {x.rank}")
    size = x.shape[axis]
    sizes: Sequence[Dim] | None = node.attr.ints("split", None)
    parts = [declared_shape(node, 1, i) for i in range(len(node.outputs))]
    known = [part[axis] for part in parts if part is not None and len(part) == x.rank]
    if len(known) == len(parts) and sum(known) == size:
        result = node[0].split(tuple(known), axis)
        return required_all(node, equals(node, 1, known), "input 'split' is another", result)
    if node.has(1) and node.value(1).known is None:
        return convert_dynamic(node)
    if node.has(1):
        sizes = node.dims(1)
    count = node.attr.int("num_outputs", len(node.outputs))
    if count != len(node.outputs):
        raise NodeError(f"attribute 'num_outputs' is {count}, but the node has {len(node.outputs)} outputs")
    if sizes is None and not isinstance(size, int) and node.opset >= 18 and quotient(size, count) is None:
        return _dynamic_splits(node, axis % x.rank, count)
    if sizes is None:
        sizes = _equal_splits(size, count, node.opset >= 18)
    return node[0].split(sizes, axis)


def _equal_splits(size: Dim, count: int, may_differ: bool) -> list[Dim]:
    part = quotient(size, count)
    if part is not None:
        return [part] * count
    if not isinstance(size, int) or not may_differ:
        text = f"a dim of {size} cannot be split into {count} equal parts"
        raise DimsDiffer(text, *divisible(size, count))
    chunk = -(-size // count)
    rest = size - chunk * (count - 1)
    if rest < 0:
        raise NodeError(f"a dim of {size} cannot be split into {count} parts of {chunk}")
    return [*[chunk] * (count - 1), rest]


def slice_arguments(node: Node) -> tuple[Sequence[Dim], Sequence[Dim], list[int], list[int]]:
    """Return starts, ends, axes and steps: attributes before opset 10, inputs since."""
    if node.opset < 10:
        starts: list[Dim] = [*node.attr.ints("starts")]
        ends: list[Dim] = [*node.attr.ints("ends")]
        axes = node.attr.ints("axes", None) or list(range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = list(node.dims(1)), list(node.dims(2))
        axes = node.ints(3) if node.has(3) else list(range(len(starts)))
        steps = node.ints(4) if node.has(4) else [1] * len(starts)
    lengths = [len(starts), len(ends), len(axes), len(steps)]
    if len(set(lengths)) != 1:
        raise NodeError(f"starts, ends, axes and steps must have one length, got {', '.join(map(str, lengths))}")
    if 0 in steps:
        raise NodeError(f"steps must not be 0, got {steps}")
    return starts, ends, axes, steps


def _dynamic_splits(node: Node, axis: int, count: int) -> tuple[Tensor, ...]:
    """Return parts of one size that depends on a symbol, the last ones smaller."""
    x = node.type(0)
    part = D.ceildiv(x.shape[axis], count)
    splits = []
    for i in range(count):
        size = D.minimum(part, D.maximum(x.shape[axis] - part * i, 0))
        splits.append(node[0].slice(axis, part * i, size))
    return tuple(splits)


@converter("Slice", traits=[NodeTrait.MOVES])
def slice_(node: Node) -> Converted:
    x = node.type(0)
    if node.opset >= 10 and not all(node.value(i).known is not None for i in range(1, len(node)) if node.has(i)):
        return convert_dynamic(node)
    starts, ends, axes, steps = slice_arguments(node)
    if not all(_is_bound(dim, x, axis) for dims in (starts, ends) for dim, axis in zip(dims, axes, strict=True)):
        return convert_dynamic(node)
    begin = [_bound(dim) for dim in starts]
    end = [_bound(dim) for dim in ends]
    return node[0].strided_slice(axes, begin, end, steps)


def _is_bound(dim: Dim, x: TensorType, axis: int) -> bool:
    """Return whether this is a number, or the size of the axis itself."""
    return isinstance(dim, int) or (-x.rank <= axis < x.rank and dim == x.shape[axis])


def _bound(dim: Dim) -> int:
    """Return a bound as an integer; the axis' own symbolic size is its end."""
    return dim if isinstance(dim, int) else 2**63 - 1


@converter("Pad", since=11)
def pad(node: Node) -> Converted:
    are_known = all(node.value(i).array is not None for i in range(1, len(node)) if node.has(i))
    shape = declared_of_static(node, 1)
    if not are_known and not (shape and all(node.type(0).static_shape)):
        return convert_dynamic(node)
    if node.has(3) and node.value(3).array is None:
        return convert_dynamic(node)
    axes = node.ints(3) if node.has(3) else list(range(node.type(0).rank))
    if shape is not None:
        return pad_of_declared_shape(node, axes, shape)
    return _pad(node, node.ints(1), axes, node.scalar(2, 0))


@converter("Pad")
def pad_attributes(node: Node) -> Converted:
    return _pad(node, node.attr.ints("pads"), list(range(node.type(0).rank)), node.attr.float("value", 0.0))


def _pad(node: Node, pads: list[int], axes: list[int], value: float) -> Tensor:
    rank = node.type(0).rank
    if len(pads) != 2 * len(axes):
        raise NodeError(f"pads must have {2 * len(axes)} numbers, begins then ends, got {pads}")
    full = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise NodeError(f"axis {axis} is outside a tensor of rank {rank}")
        full[axis % rank], full[axis % rank + rank] = pads[i], pads[i + len(axes)]
    if not is_exact(value):
        raise NodeError(f"input 'constant_value' is {value}, an integer that f64 does not hold")
    mode = node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    return node.emit("pad", node[0], pads=full, mode=mode, value=float(value))


@converter("DepthToSpace", traits=[NodeTrait.MOVES])
def depth_to_space(node: Node) -> Converted:
    mode = node.attr.choice("mode", "DCR", ("DCR", "CRD"))
    return node.emit("depth_to_space", node[0], block=node.attr.int("blocksize"), mode=mode)


@converter("SpaceToDepth", traits=[NodeTrait.MOVES])
def space_to_depth(node: Node) -> Converted:
    mode, block = node.attr.choice("mode", "DCR", ("DCR", "CRD")), node.attr.int("blocksize")
    if mode == "DCR":
        return node.emit("space_to_depth", node[0], block=block)
    x = node.type(0)
    if x.rank != 4 or block < 1:
        raise NodeError(f"attribute 'blocksize' is {block}, which does not fit the input {x}")
    for size in x.shape[2:]:
        if quotient(size, block) is None:
            text = f"attribute 'blocksize' is {block}, which does not fit the input {x}"
            raise DimsDiffer(text, *divisible(size, block))
    batch, channels, height, width = x.shape
    blocks = node[0].reshape((batch, channels, height // block, block, width // block, block))
    depth = blocks.permute((0, 1, 3, 5, 2, 4))
    return depth.reshape((batch, channels * block * block, height // block, width // block))


@converter("Shape", traits=[NodeTrait.MEASURES])
def shape(node: Node) -> Converted:
    """Make a shape tensor, which is only needed if a symbolic shape is used as a tensor; otherwise it is folded."""
    rank = node.type(0).rank
    start, end, _ = slice(node.attr.int("start", None), node.attr.int("end", None)).indices(rank)
    dims = node.emit("shape_of", node[0])
    if (start, end) == (0, rank):
        return dims
    return dims.slice(0, start, max(start, end) - start)


@converter("Size", traits=[NodeTrait.MEASURES])
def size(node: Node) -> Converted:
    return node.emit("shape_of", node[0]).prod(keepdims=False)


PADS, VALUE = 1, 2


def pad_of_declared_shape(node: Node, axes: list[int], shape: tuple[int, ...]) -> Tensor:
    x, count = node.type(0), len(axes)
    if node.type(PADS).static_shape != (2 * count,) or len(shape) != x.rank:
        raise NodeError(f"pads must have {2 * count} numbers for {count} axes of {x}, got {node.type(PADS)}")
    mode = node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    padded, sizes = node[0], x.static_shape
    value = node[VALUE].reshape(()) if node.has(VALUE) else node.constant(0, x)
    for position, axis in enumerate(axes):
        begin = node[PADS].gather(node.constant(position, "i64"))
        require_table(f"the positions along axis {axis}", shape[axis])
        source = node.constant(np.arange(shape[axis]), "i64") - begin
        padded = _along(node, padded, source, axis % x.rank, sizes[axis], mode, value)
    ends = node[PADS].reshape((2, count)).sum(0)
    grown = node.constant([shape[axis] - sizes[axis] for axis in axes], "i64")
    return required(node, ends.equals(grown), "input 'pads' adds another number of elements", padded)


def _along(node: Node, x: Tensor, source: Tensor, axis: int, size: int, mode: str, value: Tensor) -> Tensor:
    """Pad one dim: the element at each position of `source`, or the value that the mode defines outside."""
    if size == 0:
        raise NodeError(f"an empty dim of {node.type(0)} is padded by amounts that are known at run time only")
    last = node.constant(max(size - 1, 0), "i64")
    zero = node.constant(0, "i64")
    if mode == "wrap":
        source = source % (max(size, 1))
    elif mode == "reflect":
        turn = node.constant(max(2 * (size - 1), 1), "i64")
        position = source % turn
        source = minimum(position, turn - position)
    nearest = minimum(maximum(source, zero), last)
    result = x.gather(nearest, axis)
    if mode != "constant":
        return result
    is_inside = source.equals(nearest)
    tensor_type = result.type
    column = tuple(dim if i == axis else 1 for i, dim in enumerate(tensor_type.shape))
    return where(is_inside.reshape(column), result, value)


def stash_type(node: Node) -> DType:
    """Return the type in which Range computes its elements: since version 27, another one for floats of 16 bits."""
    dtype = node.type(0).dtype
    if node.opset < 27 or not dtype.is_float or dtype.bits > 16:
        node.attr.ignore("stash_type")
        return dtype
    return onnx_dtype(node.attr.int("stash_type", FLOAT_CODE), "attribute 'stash_type'").dtype
