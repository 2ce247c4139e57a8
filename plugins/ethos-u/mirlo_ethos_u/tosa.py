"""Regions as TOSA: composites of quantized operators become TOSA operators in integer arithmetic.

Scales become multipliers of 31 bits and shifts (`tosa.rescale`). Biases are rounded to whole accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirlo.extend.codegen import ExternalFunction, ExternalNode, ExternalValue, Step

KERNEL_AXES = {"OI*": (0, 2, 3, 1), "O*I": (0, 1, 2, 3), "*IO": (3, 0, 1, 2)}
"""Axes of weights: out channels, window, in channels."""
ADDEND_BITS = 20
"""Extra bits of a sum of two tensors below one step, as in TFLite."""


def tosa_text(function: ExternalFunction) -> str:
    """Return a region as the text of a module in the dialect tosa."""
    emitter = _Emitter()
    arguments = []
    for i, value in enumerate(function.inputs):
        emitter.names[value] = f"%arg{i}"
        arguments.append(f"%arg{i}: {_type(value)} {_identifier(f'x{i}')}")
    for step in function.steps:
        _emit_step(emitter, step)
    results = ", ".join(f"{_type(v)} {_identifier(f'y{i}')}" for i, v in enumerate(function.outputs))
    returned = ", ".join(emitter.names[v] for v in function.outputs)
    types = ", ".join(_type(v) for v in function.outputs)
    body = "\n".join(f"  {line}" for line in emitter.lines)
    return f"func.func @main({', '.join(arguments)}) -> ({results}) {{\n{body}\n  return {returned} : {types}\n}}\n"


def _identifier(name: str) -> str:
    return f'{{ml_program.identifier = "{name}", tf_saved_model.index_path = ["{name}"]}}'


def _type(value: ExternalValue) -> str:
    return _tensor(value.shape, str(value.dtype))


def _tensor(shape: Sequence[Any], element: str) -> str:
    return f"tensor<{''.join(f'{int(dim)}x' for dim in shape)}{element}>"


@dataclass
class _Tensor:
    """A value of the text, with its type."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        return _tensor(self.shape, self.element)


@dataclass
class _Emitter:
    """The lines of a function under construction, and the names of its values."""

    lines: list[str] = field(default_factory=list)
    names: dict[ExternalValue, str] = field(default_factory=dict)
    _count: int = 0

    def value(self, value: ExternalValue) -> _Tensor:
        """Return the name and type of a value that was emitted."""
        return _Tensor(self.names[value], tuple(int(dim) for dim in value.shape), str(value.dtype))

    def emit(
        self, op: str, operands: Sequence[_Tensor], shape: Sequence[int], element: str, attributes: str = ""
    ) -> _Tensor:
        """Emit an operation with one result."""
        result = _Tensor(self._name(), tuple(int(dim) for dim in shape), element)
        names, types = ", ".join(o.name for o in operands), ", ".join(o.type for o in operands)
        self.lines.append(f"{result.name} = tosa.{op} {names} {{{attributes}}} : ({types}) -> {result.type}")
        return result

    def constant(self, array: np.ndarray) -> _Tensor:
        """Emit a constant."""
        element = {"int8": "i8", "int32": "i32"}[array.dtype.name]
        result = _Tensor(self._name(), array.shape, element)
        text = f'dense<"0x{array.astype(array.dtype.newbyteorder("<")).tobytes().hex().upper()}">'
        self.lines.append(f'{result.name} = "tosa.const"() <{{values = {text} : {result.type}}}> : () -> {result.type}')
        return result

    def scalar(self, value: int, element: str = "int8") -> _Tensor:
        """Emit a constant of one element."""
        return self.constant(np.array([value], element))

    def shape(self, dims: Sequence[int]) -> _Shape:
        """Emit sizes as an operand."""
        result = _Shape(self._name(), tuple(dims), "")
        values = ", ".join(map(str, dims))
        self.lines.append(
            f"{result.name} = tosa.const_shape {{values = dense<[{values}]> : tensor<{len(dims)}xindex>}} "
            f": () -> {result.type}"
        )
        return result

    def reshape(self, x: _Tensor, shape: Sequence[int]) -> _Tensor:
        """Emit a view with other sizes."""
        if x.shape == tuple(shape):
            return x
        return self.emit("reshape", [x, self.shape(shape)], shape, x.element)

    def rescale(
        self, x: _Tensor, scale: np.ndarray | float, element: str, in_zero: int = 0, out_zero: int = 0
    ) -> _Tensor:
        """Emit `round(x * scale)`, with one scale, or one for each element of the last dim."""
        return self.scale(x, fixed_point(np.atleast_1d(np.asarray(scale, np.float64))), element, in_zero, out_zero)

    def scale(
        self, x: _Tensor, scale: tuple[np.ndarray, np.ndarray], element: str, in_zero: int, out_zero: int,
        rounding: str = "SINGLE_ROUND",
    ) -> _Tensor:  # fmt: skip
        """Emit integers times multipliers, shifted."""
        multipliers, shifts = scale
        if (multipliers < 0).any():
            raise ValueError("a scale is negative: TOSA has none")
        operands = [
            x, self.constant(multipliers), self.constant(shifts),
            self.scalar(in_zero, _NUMPY[x.element]), self.scalar(out_zero, _NUMPY[element]),
        ]  # fmt: skip
        attributes = (
            f"scale32 = true, rounding_mode = {rounding}, per_channel = {str(len(multipliers) > 1).lower()}, "
            "input_unsigned = false, output_unsigned = false"
        )
        return self.emit("rescale", operands, x.shape, element, attributes)

    def rescaled(self, node: ExternalNode, x: _Tensor) -> _Tensor:
        """Emit `relax.rescale` of a tensor."""
        scale = (_array(node[name]).reshape(-1) for name in ("multiplier", "shift"))
        multipliers, shifts = np.broadcast_arrays(*scale)
        return self.scale(
            x, (np.ascontiguousarray(multipliers), shifts.astype(np.int8)), str(node.output.dtype), node["input_zero"],
            node["zero_point"], "DOUBLE_ROUND" if node["double_round"] else "SINGLE_ROUND",
        )  # fmt: skip

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"


class _Shape(_Tensor):
    """Sizes as an operand."""

    @property
    def type(self) -> str:
        return f"!tosa.shape<{len(self.shape)}>"


_NUMPY = {"i8": "int8", "i32": "int32"}


def fixed_point(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers of 31 bits and shifts: `scale = multiplier / 2**shift`.

    TOSA allows shifts of 2 to 62. Smaller scales keep fewer bits, since their products round to zero.
    """
    multipliers, shifts = np.empty(scales.shape, np.int32), np.empty(scales.shape, np.int8)
    for i, scale in enumerate(scales):
        mantissa, exponent = math.frexp(float(scale))
        multiplier, shift = round(mantissa * 2**31), 31 - exponent
        if multiplier == 2**31:
            multiplier, shift = 2**30, shift - 1
        if shift > 62:
            multiplier, shift = multiplier >> min(shift - 62, 31), 62
        if shift < 2:
            raise ValueError(f"a scale of {scale} is too large for TOSA: it must be below 2**29")
        multipliers[i], shifts[i] = multiplier, shift
    return multipliers, shifts


def _emit_step(emitter: _Emitter, step: Step) -> None:
    nodes = {node.op: node for node in step.nodes}
    single = _SINGLE.get(step.nodes[-1].op)
    if single is not None:
        y = single(emitter, step.nodes[-1], step.nodes[0])
        emitter.names[step.nodes[-1].output] = y.name
    elif "relax.conv" in nodes:
        _emit_conv(emitter, nodes)
    elif "relax.matmul" in nodes:
        _emit_matmul(emitter, nodes)
    elif "relax.reduce_mean" in nodes:
        _emit_mean(emitter, nodes)
    elif "relax.reduce_sum" in nodes:
        _emit_integer_mean(emitter, step.nodes)
    elif "relax.add" in nodes and "relax.rescale" in nodes:
        _emit_integer_sum(emitter, step.nodes)
    elif "relax.add" in nodes:
        _emit_sum(emitter, step.nodes)
    elif "relax.permute" in nodes or "relax.reshape" in nodes:
        _emit_moved(emitter, step.nodes)
    else:
        raise ValueError(f"{', '.join(nodes)}: no TOSA for these operators")


def _emit_conv(emitter: _Emitter, nodes: dict[str, ExternalNode]) -> None:
    conv, pad = nodes["relax.conv"], nodes.get("relax.pad")
    if conv["data_layout"] != "N*C":
        raise ValueError(f"{conv.name}: expected channels last, found layout {conv['data_layout']}")
    weight = _kernel(conv)
    out_channels, kernel_h, kernel_w, in_channels = weight.shape
    strides, dilations = conv["strides"] or (1, 1), conv["dilations"] or (1, 1)
    bias = np.zeros(out_channels, np.int64) if conv["bias"] is None else _array(conv["bias"]).astype(np.int64)
    before_h, before_w, after_h, after_w = conv["padding"] or (0, 0, 0, 0)
    pads, zero = [before_h, after_h, before_w, after_w], 0
    x = emitter.value(conv["x"] if pad is None else pad["x"])
    if pad is not None:
        zero, found = round(pad["value"]), pad["pads"]
        pads = [found[1], found[5], found[2], found[6]]
        bias = bias + zero * weight.astype(np.int64).sum((1, 2, 3))
    x = _exact_windows(emitter, x, pads, (kernel_h, kernel_w), strides, dilations)
    if conv["groups"] > 1:
        op, weight = "depthwise_conv2d", weight.transpose(1, 2, 0, 3)
    else:
        op = "conv2d"
    _emit_requantized(
        emitter, nodes, conv.output.shape, bias,
        lambda total: emitter.emit(
            op, [x, emitter.constant(np.ascontiguousarray(weight)), emitter.constant(total), emitter.scalar(zero),
                 emitter.scalar(0)],
            conv.output.shape, "i32",
            f"acc_type = i32, dilation = {_integers(dilations)}, pad = {_integers(pads)}, "
            f"stride = {_integers(strides)}",
        ),
    )  # fmt: skip


def _exact_windows(
    emitter: _Emitter, x: _Tensor, pads: list[int], window: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> _Tensor:  # fmt: skip
    """Remove rows and columns that no window reads, as TOSA requires."""
    sizes = list(x.shape)
    for i in range(2):
        extent = sizes[1 + i] - 1 + pads[2 * i] + pads[2 * i + 1] - (window[i] - 1) * dilations[i]
        unread = extent % strides[i]
        of_pad = min(unread, pads[2 * i + 1])
        pads[2 * i + 1] -= of_pad
        sizes[1 + i] -= unread - of_pad
    if tuple(sizes) == x.shape:
        return x
    return emitter.emit("slice", [x, emitter.shape([0, 0, 0, 0]), emitter.shape(sizes)], sizes, x.element)


def _emit_matmul(emitter: _Emitter, nodes: dict[str, ExternalNode]) -> None:
    """Emit a product with constant weights: a convolution with a window of one element."""
    matmul = nodes["relax.matmul"]
    lhs, rhs = matmul["lhs"], matmul["rhs"]
    weight = _array(rhs) if matmul["transpose_rhs"] else _array(rhs).T
    depth, columns = weight.shape[1], weight.shape[0]
    x = emitter.value(lhs)
    rows = math.prod(x.shape) // depth
    x = emitter.reshape(x, (1, rows, 1, depth))
    kernel = np.ascontiguousarray(weight.reshape(columns, 1, 1, depth))
    bias = np.zeros(columns, np.int64)
    if "relax.subtract" in nodes:
        bias = bias - _constant_of(nodes["relax.subtract"]).reshape(-1)
    _emit_requantized(
        emitter, nodes, (1, rows, 1, columns), bias,
        lambda total: emitter.emit(
            "conv2d", [x, emitter.constant(kernel), emitter.constant(total), emitter.scalar(0), emitter.scalar(0)],
            (1, rows, 1, columns), "i32",
            "acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>",
        ),
    )  # fmt: skip


def _emit_mean(emitter: _Emitter, nodes: dict[str, ExternalNode]) -> None:
    """Emit a mean over all pixels: a depthwise convolution with ones, whose scale divides. It is rounded once."""
    mean, quantize, dequantize = nodes["relax.reduce_mean"], nodes["relax.quantize"], nodes["relax.dequantize"]
    x = emitter.value(dequantize["x"])
    if sorted(axis % 4 for axis in mean["axes"]) == [2, 3]:
        order = (0, 2, 3, 1)
        x = emitter.emit("transpose", [x], [x.shape[axis] for axis in order], "i8", _permutation(order))
    scale, zero = _scale(dequantize), _zero(dequantize)
    total, pixels = _emit_pixel_sums(emitter, x, -zero), x.shape[1] * x.shape[2]
    y = emitter.rescale(total, scale / pixels / _scale(quantize), "i8", 0, _zero(quantize))
    y = emitter.reshape(y, [int(dim) for dim in mean.output.shape])
    emitter.names[quantize.output] = y.name


def _emit_requantized(
    emitter: _Emitter, nodes: dict[str, ExternalNode], shape: Sequence[Any], bias: np.ndarray,
    contraction: Callable[[np.ndarray], _Tensor],
) -> None:  # fmt: skip
    """Emit a contraction, and the requantization of its accumulators to int8."""
    if "relax.rescale" in nodes:
        if "relax.add" in nodes:
            bias = bias + _constant_of(nodes["relax.add"]).reshape(-1)
        y = emitter.rescaled(nodes["relax.rescale"], contraction(_accumulators(bias, nodes["relax.rescale"])))
        last = nodes.get("relax.clip") or nodes.get("relax.relu") or nodes["relax.rescale"]
        if last.op != "relax.rescale":
            y = _limited(emitter, y, last)
        emitter.names[last.output] = emitter.reshape(y, [int(dim) for dim in last.output.shape]).name
        return
    quantize = nodes["relax.quantize"]
    channels = int(shape[-1])
    factors = np.broadcast_to(_constant_of(nodes["relax.multiply"]).reshape(-1).astype(np.float64), (channels,))
    if "relax.add" in nodes:
        addend = _constant_of(nodes["relax.add"]).reshape(-1).astype(np.float64)
        bias = bias + np.rint(addend / factors).astype(np.int64)
    total = contraction(_accumulators(bias, quantize))
    y = emitter.rescale(total, factors / _scale(quantize), "i8", 0, _zero(quantize))
    y = _clamped(emitter, y, nodes, quantize)
    y = emitter.reshape(y, [int(dim) for dim in quantize.output.shape])
    emitter.names[quantize.output] = y.name


def _accumulators(bias: np.ndarray, node: ExternalNode) -> np.ndarray:
    if np.abs(bias).max(initial=0) >= 2**31:
        raise ValueError(f"{node.name}: a bias is beyond 32 bits of the accumulators")
    return bias.astype(np.int32)


def _clamped(emitter: _Emitter, y: _Tensor, nodes: dict[str, ExternalNode], quantize: ExternalNode) -> _Tensor:
    """Emit the activation: a clamp in quantized units of the result."""
    least, most = -128, 127
    scale, zero = _scale(quantize), _zero(quantize)
    if "relax.relu" in nodes:
        least = max(least, zero)
    if "relax.clip" in nodes:
        clip = nodes["relax.clip"]
        if clip["min"] is not None:
            least = max(least, round(clip["min"] / scale) + zero)
        if clip["max"] is not None:
            most = min(most, round(clip["max"] / scale) + zero)
    return _bounded(emitter, y, least, most)


def _bounded(emitter: _Emitter, y: _Tensor, low: float | None, high: float | None) -> _Tensor:
    """Emit a clamp of int8 elements to the limits of an operator."""
    least, most = max(-128, round(-128 if low is None else low)), min(127, round(127 if high is None else high))
    if (least, most) == (-128, 127):
        return y
    return emitter.emit("clamp", [y], y.shape, "i8", f"min_val = {least} : i8, max_val = {most} : i8")


def _emit_sum(emitter: _Emitter, step: Sequence[ExternalNode]) -> None:
    """Emit a sum, computed in units of the larger scale, with more bits."""
    quantize, add = step[-1], next(node for node in step if node.op == "relax.add")
    sources = [value.producer for value in add.inputs]
    operands = [node for node in sources if node is not None]
    largest = 2 * max(_scale(node) for node in operands)
    addends = []
    for node in operands:
        x = emitter.value(node["x"])
        addends.append(emitter.rescale(x, _scale(node) / largest * 2**ADDEND_BITS, "i32", _zero(node)))
    total = emitter.emit("add", addends, addends[0].shape, "i32")
    y = emitter.rescale(total, largest / 2**ADDEND_BITS / _scale(quantize), "i8", 0, _zero(quantize))
    y = _clamped(emitter, y, {node.op: node for node in step}, quantize)
    emitter.names[quantize.output] = y.name


def _limited(emitter: _Emitter, y: _Tensor, node: ExternalNode) -> _Tensor:
    """Emit a clip or a rectifier of int8 elements."""
    low, high = (0, None) if node.op == "relax.relu" else (node["min"], node["max"])
    return _bounded(emitter, y, low, high)


def _emit_integer_sum(emitter: _Emitter, step: Sequence[ExternalNode]) -> None:
    """Emit a sum of rescaled tensors, operator by operator."""
    for node in step:
        if node.op == "relax.rescale":
            y = emitter.rescaled(node, emitter.value(node["x"]))
        elif node.op == "relax.add":
            y = emitter.emit("add", [emitter.value(x) for x in node.inputs], [int(d) for d in node.output.shape], "i32")
        else:
            y = _limited(emitter, emitter.value(node["x"]), node)
        emitter.names[node.output] = y.name


def _emit_integer_mean(emitter: _Emitter, step: Sequence[ExternalNode]) -> None:
    """Emit sums over all pixels, as they are rescaled once: a depthwise convolution with ones."""
    first, last = step[0], step[-1]
    x = emitter.value(first["x"])
    total = _emit_pixel_sums(emitter, x, -first["input_zero"])
    emitter.names[last.output] = emitter.rescaled(last, total).name


def _emit_pixel_sums(emitter: _Emitter, x: _Tensor, offset: int) -> _Tensor:
    _, height, width, channels = x.shape
    ones = emitter.constant(np.ones((height, width, channels, 1), np.int8))
    bias = emitter.constant(np.full(channels, offset * height * width, np.int32))
    return emitter.emit(
        "depthwise_conv2d", [x, ones, bias, emitter.scalar(0), emitter.scalar(0)], (1, 1, 1, channels), "i32",
        "acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>",
    )  # fmt: skip


def _emit_pool(emitter: _Emitter, pool: ExternalNode, first: ExternalNode) -> _Tensor:
    x, kernel = emitter.value(pool["x"]), tuple(pool["kernel"])
    strides = tuple(pool["strides"] or (1, 1))
    before_h, before_w, after_h, after_w = pool["padding"] or (0, 0, 0, 0)
    pads = [before_h, after_h, before_w, after_w]
    last = pool["data_layout"] == "N*C"
    if not last:
        x = emitter.emit("transpose", [x], [x.shape[axis] for axis in (0, 2, 3, 1)], "i8", _permutation((0, 2, 3, 1)))
    x = _exact_windows(emitter, x, pads, kernel, strides, (1, 1))
    shape = [int(dim) for dim in pool.output.shape]
    shape = shape if last else [shape[axis] for axis in (0, 2, 3, 1)]
    attributes = f"kernel = {_integers(kernel)}, pad = {_integers(pads)}, stride = {_integers(strides)}"
    y = emitter.emit("max_pool2d", [x], shape, "i8", attributes)
    if last:
        return y
    return emitter.emit("transpose", [y], [shape[axis] for axis in (0, 3, 1, 2)], "i8", _permutation((0, 3, 1, 2)))


def _emit_table(emitter: _Emitter, gather: ExternalNode, first: ExternalNode) -> _Tensor:
    x = emitter.value(first["x"])
    return emitter.emit("table", [x, emitter.constant(_array(gather.inputs[0]))], x.shape, "i8")


def _emit_slice(emitter: _Emitter, part: ExternalNode, first: ExternalNode) -> _Tensor:
    x, starts = emitter.value(part["x"]), [0] * len(part.output.shape)
    for axis, begin in zip(part["axes"], part["begin"], strict=True):
        starts[axis] = begin + (x.shape[axis] if begin < 0 else 0)
    shape = [int(dim) for dim in part.output.shape]
    return emitter.emit("slice", [x, emitter.shape(starts), emitter.shape(shape)], shape, "i8")


def _emit_reshape(emitter: _Emitter, reshape: ExternalNode, first: ExternalNode) -> _Tensor:
    return emitter.reshape(emitter.value(reshape["x"]), [int(dim) for dim in reshape.output.shape])


def _emit_concat(emitter: _Emitter, concat: ExternalNode, first: ExternalNode) -> _Tensor:
    shape = [int(dim) for dim in concat.output.shape]
    axis = concat["axis"] % len(shape)
    return emitter.emit("concat", [emitter.value(x) for x in concat.inputs], shape, "i8", f"axis = {axis} : i32")


_SINGLE: dict[str, Callable[[_Emitter, ExternalNode, ExternalNode], _Tensor]] = {
    "relax.max_pool": _emit_pool, "relax.gather": _emit_table, "relax.strided_slice": _emit_slice,
    "relax.concat": _emit_concat, "relax.reshape": _emit_reshape,
}  # fmt: skip


def _permutation(axes: Sequence[int]) -> str:
    return f"perms = array<i32: {', '.join(map(str, axes))}>"


def _emit_moved(emitter: _Emitter, step: Sequence[ExternalNode]) -> None:
    """Emit a reshape or a permutation, with a rescale if the scales differ."""
    first, last = step[0], step[-1]
    moved = next(node for node in step if node.op in ("relax.permute", "relax.reshape"))
    y = emitter.value(first["x"])
    shape = [int(dim) for dim in moved.output.shape]
    if moved.op == "relax.reshape":
        y = emitter.reshape(y, shape)
    else:
        y = emitter.emit("transpose", [y], shape, "i8", _permutation(moved["axes"]))
    if first.op == "relax.dequantize" and (_scale(first), _zero(first)) != (_scale(last), _zero(last)):
        y = emitter.rescale(y, _scale(first) / _scale(last), "i8", _zero(first), _zero(last))
    emitter.names[last.output] = y.name


def _kernel(conv: ExternalNode) -> np.ndarray:
    """Return weights as output channels, window, input channels."""
    return _array(conv["weight"]).transpose(KERNEL_AXES[conv["kernel_layout"]])


def _constant_of(node: ExternalNode) -> np.ndarray:
    return next(value.array for value in node.inputs if value.array is not None)


def _array(value: ExternalValue) -> np.ndarray:
    array = value.array
    if array is None:
        raise ValueError(f"{value.name} is no constant")
    return array


def _scale(node: ExternalNode) -> float:
    return float(_array(node["scale"]).reshape(-1)[0])


def _zero(node: ExternalNode) -> int:
    return 0 if node["zero_point"] is None else int(_array(node["zero_point"]).reshape(-1)[0])


def _integers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"
