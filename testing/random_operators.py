"""The operators of random graphs: each function adds one or a few to a graph, or nothing where no value fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.dialects.relax import OPS
from mirlo.testing.random_graphs import Graph, GraphNode

UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "negative": np.negative,
    "abs": np.abs,
    "square": np.square,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
REDUCE: dict[str, Callable[..., np.ndarray]] = {
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
}


def unary(g: Graph) -> None:
    x = g.pick()
    name = g.choice(list(UNARY) if g.dtype.is_float else ["relu", "negative", "abs", "square"])
    g.emit(name, [x], UNARY[name](x.array))


def binary(g: Graph) -> None:
    x = g.pick()
    y: Any = (
        g.pick(lambda n: n.shape == x.shape or _broadcasts(n.shape, x.shape))
        if g.flip()
        else g.broadcast_operand(x.shape)
    )
    name = g.choice(list(BINARY))
    pair = (x, y) if g.flip(0.7) else (y, x)
    g.emit(name, list(pair), BINARY[name](pair[0].array, pair[1].array))


def divide(g: Graph) -> None:
    x = g.pick()
    if g.flip():
        y = g.constant((), scale=0.0, offset=g.choice([1.0, 2.0, 3.0, -4.0]))
    else:
        square = g.emit("square", [x], np.square(x.array))
        one = g.constant((), scale=0.0, offset=1.0)
        y = g.emit("add", [square, one], square.array + 1.0)
        if y.shape != x.shape:
            return
    g.emit("divide", [x, y], x.array / y.array)


def power(g: Graph) -> None:
    x = g.pick()
    exponent = g.choice([1.0, 2.0, 3.0])
    g.emit("power", [x, g.constant((), scale=0.0, offset=exponent)], x.array**exponent)


def select(g: Graph) -> None:
    """Return where(a < b, a, b), which is continuous regardless of the rounding of a and b."""
    a = g.pick()
    b: Any = g.pick(lambda n: n.shape == a.shape)
    value = GraphNode(_make("less", a.value, b.value), a.array < b.array)
    g.emit("where", [value, a, b], np.minimum(a.array, b.array))


def permute(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 2)
    if x is not None:
        axes = [int(a) for a in g.random.permutation(x.rank)]
        g.emit("permute", [x], x.array.transpose(axes), axes=axes)


def reshape(g: Graph) -> None:
    x = g.pick()
    shape: list[int] = []
    left = x.array.size
    while left > 1 and len(shape) < 3:
        divisor = g.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(divisor)
        left //= divisor
    shape = [*shape, left] if g.flip() else [left, *shape]
    g.emit("reshape", [x], x.array.reshape(shape), shape=shape)


def unit_dims(g: Graph) -> None:
    x = g.pick(lambda n: n.rank <= 3)
    if x is None:
        return
    axis = g.integer(0, x.rank + 1)
    result = g.emit("expand_dims", [x], np.expand_dims(x.array, axis), axes=[axis])
    if g.flip():
        result = g.emit("relu", [result], np.maximum(result.array, 0))
        g.emit("squeeze", [result], result.array.squeeze(axis), axes=[axis])


def concat(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1)
    if x is None:
        return
    axis = g.integer(0, x.rank)
    others = [
        g.pick(lambda n: n.rank == x.rank and _without(n.shape, axis) == _without(x.shape, axis)) for _ in range(2)
    ]
    parts = [x, *(o for o in others if o is not None)]
    g.emit("concat", [parts], np.concatenate([p.array for p in parts], axis), axis=axis)


def split(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1 and max(n.shape) > 1)
    if x is None:
        return
    axis = int(np.argmax(x.shape))
    first = g.integer(1, x.shape[axis])
    sizes = [first, x.shape[axis] - first]
    result = _make("split", x.value, axis=axis, sizes=sizes)
    for value, array in zip(result, np.split(x.array, [first], axis), strict=True):
        g.nodes.append(GraphNode(value, array))


def strided_slice(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1 and max(n.shape) > 2)
    if x is None:
        return
    axis = int(np.argmax(x.shape))
    begin, end = g.integer(0, 2), x.shape[axis] - g.integer(0, 1)
    step = g.choice([1, 1, 2])
    cut = [slice(None)] * x.rank
    cut[axis] = slice(begin, end, step)
    g.emit("strided_slice", [x], x.array[tuple(cut)], axes=[axis], begin=[begin], end=[end], strides=[step])


def pad(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1 and n.array.size < 4000)
    if x is None:
        return
    widths = [(g.integer(0, 2), g.integer(0, 2)) for _ in range(x.rank)]
    pads = [low for low, _ in widths] + [high for _, high in widths]
    value = g.choice([0.0, 0.0, 2.0])
    g.emit("pad", [x], np.pad(x.array, widths, constant_values=value), pads=pads, value=value)


def expand(g: Graph) -> None:
    x = g.pick(lambda n: n.array.size < 2000 and n.rank <= 3)
    if x is not None:
        shape = (g.integer(1, 4), *(3 if dim == 1 and g.flip() else dim for dim in x.shape))
        g.emit("expand", [x], np.broadcast_to(x.array, shape), shape=shape)


def gather(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1)
    if x is None:
        return
    axis = g.integer(0, x.rank)
    indices = g.random.integers(0, x.shape[axis], (g.integer(1, 6),))
    g.emit("gather", [x, g.constant_of(indices)], np.take(x.array, indices, axis), axis=axis)


def reduce(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1)
    if x is None:
        return
    name = g.choice(list(REDUCE) if g.dtype.is_float else ["reduce_sum", "reduce_max", "reduce_min"])
    axes = sorted({g.integer(0, x.rank) for _ in range(g.integer(1, 3))}) if g.flip() else [x.rank - 1]
    keep = g.flip()
    g.emit(name, [x], REDUCE[name](x.array, axis=tuple(axes), keepdims=keep), axes=axes, keepdims=keep)


def softmax(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 1)
    if x is None:
        return
    axis = -1 if g.flip(0.8) else g.integer(0, x.rank)
    raised = np.exp(x.array - x.array.max(axis, keepdims=True))
    g.emit("softmax", [x], raised / raised.sum(axis, keepdims=True), axis=axis)


def layer_norm(g: Graph) -> None:
    # With few or nearly equal elements the variance cancels, and float32 is far from float64.
    x = g.pick(lambda n: n.rank >= 1 and n.shape[-1] >= 8 and n.array.std(-1).min() > 0.05)
    if x is None:
        return
    scale, bias = g.constant(x.shape[-1:]), g.constant(x.shape[-1:])
    normal = (x.array - x.array.mean(-1, keepdims=True)) / np.sqrt(x.array.var(-1, keepdims=True) + 1e-3)
    g.emit("layer_norm", [x, scale, bias], normal * scale.array + bias.array, epsilon=1e-3)


def spelled_norm(g: Graph) -> None:
    """Add a layer norm or an RMS norm in single steps, with a scale that may fit the row."""
    x = g.pick(lambda n: n.rank >= 1 and n.shape[-1] >= 8 and n.array.std(-1).min() > 0.05)
    if x is None:
        return
    mean = {"axes": [x.rank - 1], "keepdims": True}
    if g.flip():
        center = g.emit("reduce_mean", [x], x.array.mean(-1, keepdims=True), **mean)
        x = g.emit("subtract", [x, center], x.array - center.array)
    square = g.emit("square", [x], np.square(x.array))
    variance = g.emit("reduce_mean", [square], square.array.mean(-1, keepdims=True), **mean)
    epsilon = g.constant((), scale=0.0, offset=0.5)
    shifted = g.emit("add", [variance, epsilon], variance.array + 0.5)
    root = g.emit("sqrt", [shifted], np.sqrt(shifted.array))
    normal = g.emit("divide", [x, root], x.array / root.array)
    _affine(g, normal, -1)


def spelled_gelu(g: Graph) -> None:
    """GELU, or nearly: with tanh in single steps, the factors in any order."""
    x = g.pick()
    one, small, scale, half = (
        g.constant((), 0.0, c) for c in (1.0, 0.044715, np.sqrt(2 / np.pi), g.choice([0.5, 0.25]))
    )
    cube = g.emit("power", [x, g.constant((), 0.0, 3.0)], np.clip(x.array, -50, 50) ** 3)
    if cube.value.owner.name != "relax.power":
        return
    scaled = g.emit("multiply", [small, cube], small.array * cube.array)
    total = g.emit("add", [x, scaled], x.array + scaled.array)
    inner = g.emit("multiply", [total, scale], total.array * scale.array)
    bent = g.emit("tanh", [inner], np.tanh(inner.array))
    shifted = g.emit("add", [one, bent], 1.0 + bent.array)
    a, b, c = ([x, half, shifted], [half, shifted, x], [shifted, x, half])[g.integer(0, 3)]
    first = g.emit("multiply", [a, b], a.array * b.array)
    g.emit("multiply", [first, c], first.array * c.array)


def matmul(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 2)
    if x is None:
        return
    transpose_lhs, transpose_rhs = g.flip(0.2), g.flip(0.3)
    left = x.array.swapaxes(-1, -2) if transpose_lhs else x.array
    depth = left.shape[-1]
    y = g.pick(
        lambda n: n.rank >= 2 and n.shape[:-2] in (x.shape[:-2], ()) and n.shape[-1 if transpose_rhs else -2] == depth
    )
    if y is None or g.flip():
        columns = g.integer(1, 40)
        y = g.constant((columns, depth) if transpose_rhs else (depth, columns), scale=depth**-0.5)
    right = y.array.swapaxes(-1, -2) if transpose_rhs else y.array
    result = g.emit("matmul", [x, y], left @ right, transpose_lhs=transpose_lhs, transpose_rhs=transpose_rhs)
    if g.flip():
        _affine(g, result, -1)


def conv(g: Graph) -> None:
    x = g.pick(lambda n: n.rank == 4 and min(n.shape[2:]) >= 3 and n.shape[1] <= 24)
    if x is None:
        return
    channels = x.shape[1]
    groups = channels if g.flip(0.2) else 1
    outputs = groups * g.integer(1, 3) if groups > 1 else g.integer(1, 20)
    size, stride, padding = g.choice([1, 3]), g.choice([1, 1, 2]), g.integer(0, 2)
    depth = channels // groups * size * size
    weight = g.constant((outputs, channels // groups, size, size), scale=depth**-0.5)
    bias = g.constant((outputs,)) if g.flip() else None
    result = convolved(x.array, weight.array, stride, padding, groups)
    if bias is not None:
        result = result + bias.array.reshape(-1, 1, 1)
    node = g.emit(
        "conv", [x, weight, bias], result, strides=[stride] * 2, padding=[padding] * 4, groups=groups
    )  # fmt: skip
    if g.flip():
        _affine(g, node, 1)


def convolved(x: np.ndarray, weight: np.ndarray, stride: int, padding: int, groups: int) -> np.ndarray:
    """Return a two-dimensional convolution, by windows."""
    windows = _windows(np.pad(x, [(0, 0), (0, 0), (padding,) * 2, (padding,) * 2]), weight.shape[2], stride)
    n, c, h, w, k, _ = windows.shape
    split = windows.reshape(n, groups, c // groups, h, w, k, k)
    kernels = weight.reshape(groups, -1, *weight.shape[1:])
    return np.einsum("ngchwij,gocij->ngohw", split, kernels).reshape(n, -1, h, w)


def pool(g: Graph) -> None:
    x = g.pick(lambda n: n.rank == 4 and min(n.shape[2:]) >= 3)
    if x is None:
        return
    size, stride = g.integer(2, 4), g.integer(1, 3)
    windows = _windows(x.array, size, stride)
    attributes: dict[str, Any] = {"kernel": [size] * 2, "strides": [stride] * 2}
    if g.flip():
        g.emit("max_pool", [x], windows.max((-1, -2)), **attributes)
    else:
        g.emit("avg_pool", [x], windows.mean((-1, -2)), **attributes)


def prelu(g: Graph) -> None:
    x = g.pick(lambda n: n.rank >= 3)
    if x is not None:
        slope = g.constant((x.shape[-3], 1, 1) if g.flip() else x.shape[-1:])
        g.emit("prelu", [x, slope], np.where(x.array < 0, slope.array * x.array, x.array))


def resize(g: Graph) -> None:
    """Repeat each pixel two or three times."""
    x = g.pick(lambda n: n.rank == 4 and n.array.size < 1000)
    if x is not None:
        times = (g.integer(1, 4), g.integer(1, 4))
        array = x.array.repeat(times[0], 2).repeat(times[1], 3)
        g.emit("resize", [x], array, shape=array.shape, coordinates="asymmetric", nearest="floor")


def batch_norm(g: Graph) -> None:
    x = g.pick(lambda n: n.rank == 4)
    if x is None:
        return
    channels = x.shape[1]
    scale, bias, mean = (g.constant((channels,)) for _ in range(3))
    variance = g.constant_of(np.abs(g.random.standard_normal(channels)).astype(np.float32) + np.float32(0.5))
    a, b, m, v = (n.array.reshape(-1, 1, 1) for n in (scale, bias, mean, variance))
    g.emit("batch_norm", [x, scale, bias, mean, variance], a * (x.array - m) / np.sqrt(v + 1e-5) + b)


def _affine(g: Graph, x: GraphNode, axis: int) -> None:
    """Add a multiplication and an addition by constants along one axis."""
    shape = [1] * x.rank
    shape[axis] = x.shape[axis]
    cut = shape[axis % x.rank :] if g.flip() else shape
    for name in g.choice([("multiply",), ("add",), ("multiply", "add"), ("add", "multiply")]):
        other = g.constant(tuple(cut))
        x = g.emit(name, [x, other], BINARY[name](x.array, other.array))


def _make(name: str, *values: Any, **attributes: Any) -> Any:
    return OPS[name].make(*values, **attributes)


def _windows(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    sliding = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return sliding[:, :, ::stride, ::stride]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return len(shape) <= len(target) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False)
    )


OPERATORS: list[tuple[float, Callable[[Graph], None]]] = [
    (3, unary), (4, binary), (1, divide), (0.7, power), (1, select), (2, permute), (2, reshape), (1, unit_dims),
    (1.5, concat), (1, split), (1, strided_slice), (1, pad), (0.7, expand), (1, gather), (2, reduce), (1.5, softmax),
    (1.5, layer_norm), (2.5, matmul), (2.5, conv), (1.2, pool), (1, batch_norm), (0.7, prelu), (0.7, resize),
    (0.7, spelled_norm), (0.7, spelled_gelu),
]  # fmt: skip
"""How often, and what."""


FLOATS_ONLY = (divide, power, softmax, layer_norm, conv, pool, batch_norm, prelu, resize, spelled_norm, spelled_gelu)


def grow(graph: Graph, count: int) -> None:
    """Add some operators."""
    allowed = [(weight, f) for weight, f in OPERATORS if graph.dtype.is_float or f not in FLOATS_ONLY]
    weights = np.array([weight for weight, _ in allowed])
    for _ in range(count):
        allowed[int(graph.random.choice(len(allowed), p=weights / weights.sum()))][1](graph)
