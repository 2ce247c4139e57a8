"""Regions as programs: operands in main memory, weights and parameters packed, and the commands of each layer."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mirlo.extend.rules import decline
from mirlo_systolic.commands import ACCUMULATOR_ROWS, DATA_ROWS, SIZE
from mirlo_systolic.expressions import (
    ACCUMULATORS,
    POOLS,
    ROUNDED,
    Linear,
    Misfit,
    activation_of,
    linear_of,
    source_of,
    table_of,
)
from mirlo_systolic.functions import Shape, sum_of_two, window_maxima, window_products
from mirlo_systolic.layers import IN_FLIGHT, Image, Layer, Tiling, parameters
from mirlo_systolic.queues import Program

MAGIC, VERSION = 0x54535953, 2
ALIGNMENT = 64
IDENTITY = np.eye(SIZE, dtype=np.int8).tobytes()


@dataclass(frozen=True)
class CompiledRegion:
    """A program, and the names of its steps."""

    content: bytes
    steps: list[str]


def _result(match: Any) -> Any:
    result = match["result"]
    if result.dtype.name != "i8":
        return decline("the unit computes int8", result=str(result.type))
    return True


def conv_fits(match: Any) -> Any:
    """Check a convolution: return True, or why the unit does not compute it."""
    conv = match.op("conv")
    x, weight, y = conv.x, conv.weight, conv.output
    if x.dtype.name != "i8" or weight.dtype.name != "i8":
        return decline("the unit multiplies int8", x=str(x.type), weight=str(weight.type))
    if len(x.shape) != 4:
        return decline("the unit convolves images", x=str(x.type))
    spatial = slice(1, 3) if conv.data_layout == "N*C" else slice(2, 4)
    channels, columns = (int(v.shape[3 if conv.data_layout == "N*C" else 1]) for v in (x, y))
    if conv.groups != 1 and not conv.groups == channels == columns:
        return decline("the unit convolves all channels at once, or each alone", groups=conv.groups)
    window = weight.shape[1:3] if conv.kernel_layout == "O*I" else weight.shape[2:4]
    dilations, padding = conv.dilations or (1, 1), conv.padding or (0, 0, 0, 0)
    width = x.shape[spatial][1] + padding[1] + padding[3]
    blocks = 1 if conv.groups != 1 else -(-channels // SIZE)
    rows = ((window[0] - 1) * dilations[0] + 1) * width * blocks
    if rows > DATA_ROWS // IN_FLIGHT or y.shape[spatial][1] > ACCUMULATOR_ROWS // IN_FLIGHT:
        return decline("a row of the result needs more than the scratchpads hold", rows=rows)
    return _both(_by_column(match, 4, 3 if conv.data_layout == "N*C" else 1), _result(match))


def matmul_fits(match: Any) -> Any:
    """Check a product of matrices: return True, or why the unit does not compute it."""
    matmul = match.op("matmul")
    x, weight = matmul.lhs, matmul.rhs
    if x.dtype.name != "i8" or weight.dtype.name != "i8":
        return decline("the unit multiplies int8", x=str(x.type), weight=str(weight.type))
    if matmul.transpose_lhs or matmul.transpose_rhs or len(x.shape) != 2 or len(weight.shape) != 2:
        return decline("the unit multiplies matrices as they are", x=str(x.type), weight=str(weight.type))
    if x.shape[1] > SIZE * DATA_ROWS // IN_FLIGHT:
        return decline("a row is longer than the scratchpads hold", x=str(x.type))
    return _both(_by_column(match, 2, 1), _result(match))


def sum_fits(match: Any) -> Any:
    """Check a sum: return True, or why the unit does not compute it."""
    a, b = match["a"], match["b"]
    if a.dtype.name != "i8" or b.dtype.name != "i8" or tuple(a.shape) != tuple(b.shape):
        return decline("the unit adds int8 of equal shapes", a=str(a.type), b=str(b.type))
    return _both(_is_int8(a), _result(match))


def pool_fits(match: Any) -> Any:
    """Check a pool: return True, or why the unit does not compute it."""
    pool, x = match.op("pool"), match["x"]
    padding = pool.padding or (0, 0, 0, 0)
    if len(x.shape) != 4:
        return decline("the unit pools images", x=str(x.type))
    if pool.OPERATION_NAME == "relax.avg_pool" and any(padding):
        return decline("the unit divides all windows by one number", padding=padding)
    if any(dilation != 1 for dilation in pool.dilations or ()):
        return decline("windows of pools have no dilations", dilations=pool.dilations)
    return _both(_window_fits(x, 2 if pool.data_layout != "N*C" else 1, pool.kernel, padding), _result(match))


def mean_fits(match: Any) -> Any:
    """Check a mean: return True, or why the unit does not compute it."""
    mean, x = match.op("mean"), match["x"]
    if len(x.shape) != 4 or sorted(axis % 4 for axis in mean.axes) not in ([1, 2], [2, 3]):
        return decline("the unit averages over the pixels of images", x=str(x.type), axes=mean.axes)
    first = min(axis % 4 for axis in mean.axes)
    return _both(_window_fits(x, first, x.shape[first : first + 2], (0, 0, 0, 0)), _result(match))


def move_fits(match: Any) -> Any:
    """Check a reshape, or a clip, between two scales: return True, or why the unit does not compute it."""
    shapes = (match["x"].shape, match["moved"].shape) if "moved" in match else ()
    if any(len(shape) == 4 and shape[2:] != (1, 1) for shape in map(tuple, shapes)):
        return decline("images have their channels last, so that a reshape of pixels permutes", x=str(match["x"].type))
    return _both(_is_int8(match["x"]), _result(match))


def table_fits(match: Any) -> Any:
    """Check a function of one operand: return True, or why the unit does not compute it."""
    return _both(_is_int8(match["x"]), _result(match))


def _by_column(match: Any, rank: int, axis: int) -> Any:
    """Check that constants are scalars or have one element per column of the result."""
    for name in ("scale", "addend", "correction"):
        if name in match:
            shape = (1,) * (rank - len(match[name].shape)) + tuple(match[name].shape)
            if any(size != 1 for i, size in enumerate(shape) if i != axis):
                return decline("the unit has parameters for each column of a result", constant=str(match[name].type))
    return True


def _both(first: Any, second: Any) -> Any:
    """Return the first of two check results that is not True, or True."""
    return second if first is True else first


def _is_int8(value: Any) -> Any:
    return value.dtype.name == "i8" or decline("the unit computes int8", x=str(value.type))


def _window_fits(x: Any, first: int, kernel: Sequence[int], padding: Sequence[int]) -> Any:
    is_int8 = _is_int8(x)
    if is_int8 is not True:
        return is_int8
    width = x.shape[first + 1] + padding[1] + padding[3]
    if kernel[0] * width > DATA_ROWS // IN_FLIGHT or width > ACCUMULATOR_ROWS // IN_FLIGHT:
        return decline("a row of the result needs more than the scratchpads hold", rows=kernel[0] * width)
    return True


def is_view(step: Any) -> bool:
    """Return whether a step is a separate reshape between composites."""
    return len(step.nodes) == 1 and step.nodes[0].op == "relax.reshape"


@dataclass(frozen=True)
class Border:
    """The padding that the driver writes around an input, so that window rows are contiguous."""

    padding: tuple[int, int, int, int]
    fill: int
    height: int
    width: int
    channels: int

    @property
    def line(self) -> int:
        """Return the bytes between two rows."""
        return (self.width + self.padding[1] + self.padding[3]) * self.channels

    @property
    def bytes(self) -> int:
        return (self.height + self.padding[0] + self.padding[2]) * self.line

    @property
    def lead(self) -> int:
        """Return the bytes before the first element."""
        return self.padding[0] * self.line + self.padding[1] * self.channels


@dataclass
class _Memory:
    """The addresses of tensors and constants."""

    size: int = 0
    places: dict[Any, int] = field(default_factory=dict)
    borders: dict[Any, Border] = field(default_factory=dict)
    """Inputs with a border, whose addresses are those of the border."""
    constants: bytearray = field(default_factory=bytearray)

    def tensor(self, value: Any) -> int:
        """Return the address of a tensor, assigned at first use."""
        if value not in self.places:
            border = self.borders.get(value)
            self.places[value] = self._take(math.prod(value.shape) if border is None else border.bytes)
        return self.places[value]

    def words(self, value: Any) -> list[int]:
        """Return the driver's copy of a tensor: address, bytes, bytes per line and between lines, border."""
        size, border = math.prod(value.shape), self.borders.get(value)
        if border is None:
            return [self.places[value], size, size, size, 0, 0, 0]
        begin, row = self.places[value], border.width * border.channels
        return [begin + border.lead, size, row, border.line, begin, border.bytes, border.fill & 255]

    def alias(self, value: Any, view: Any) -> None:
        """Make a view share the memory of its tensor, if the address of either is free to choose."""
        if view not in self.places:
            self.places[view] = self.tensor(value)
        else:
            self.places.setdefault(value, self.places[view])

    def is_done(self, step: Any) -> bool:
        """Return whether a step is a view, which needs no commands."""
        return is_view(step) and self.places[step.nodes[0].output] == self.places[step.nodes[0]["x"]]

    def constant(self, content: bytes) -> int:
        """Return the offset of a constant among the constants."""
        self.constants += bytes(-len(self.constants) % ALIGNMENT)
        offset = len(self.constants)
        self.constants += content
        return offset

    def _take(self, size: int) -> int:
        address = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return address


@dataclass(frozen=True)
class PlacedRegion:
    """The layers of a region's steps, with their memory."""

    names: tuple[str, ...]
    layers: tuple[tuple[Layer, ...], ...]
    base: int
    """The address of the constants."""
    memory: _Memory

    @property
    def size(self) -> int:
        """Return the size in bytes of the memory that the layers address."""
        return self.base + len(self.memory.constants) + SIZE


def place_region(function: Any, tiling: Tiling) -> PlacedRegion:
    """Return the layers of a region with the tiling of the options; raise `Misfit` for an unsupported step."""
    for step in function.steps:
        if len(step.nodes) == 1 and not is_view(step) and step.nodes[0].op not in (*ROUNDED, *POOLS):
            operator = step.nodes[0].op
            raise Misfit("between its layers is an operator that the unit does not have", operator=operator)
    memory = _Memory()
    tensors = [*function.inputs, *function.outputs]
    for node in function.nodes:
        source, border = border_of(node) if node.op == "relax.conv" else (None, None)
        if border is not None and source in function.inputs and source not in function.outputs:
            memory.borders[source] = border
    for value in tensors:
        memory.tensor(value)
    for step in reversed(function.steps):
        if is_view(step):
            memory.alias(step.nodes[0]["x"], step.nodes[0].output)
    steps = [step for step in function.steps if not memory.is_done(step)]
    layers = [_layers(step, memory, tiling) for step in steps]
    base = memory.size
    placed = tuple(
        tuple(
            replace(
                each,
                weights=base + each.weights,
                parameters=base + each.parameters,
                table=None if each.table is None else base + each.table,
            )
            for each in images
        )
        for images in layers
    )
    return PlacedRegion(tuple(step.nodes[-1].name for step in steps), placed, base, memory)


def compile_region(function: Any, region: PlacedRegion, tuned: Callable[[Layer], Tiling]) -> CompiledRegion:
    """Return the program of a region; `tuned` returns the tiling of a layer."""
    program = Program()
    base, memory, tensors = region.base, region.memory, [*function.inputs, *function.outputs]
    for images in region.layers:
        program.step(command for layer in images for command in replace(layer, tiling=tuned(layer)).commands())
    commands = program.content()
    constants = bytes(memory.constants)
    head = [
        MAGIC, VERSION, region.size, base, len(constants), len(program.commands),
        len(function.inputs), len(function.outputs),
    ]  # fmt: skip
    for value in tensors:
        head += memory.words(value)
    start = struct.pack(f"<{len(head)}I", *head)
    content = start + bytes(-len(start) % ALIGNMENT) + commands + constants
    return CompiledRegion(content, list(region.names))


def _layers(step: Any, memory: _Memory, tiling: Tiling) -> list[Layer]:
    """Return the layers of a step, one for each image of a batch."""
    _, expression = linear_of(step)
    result = step.nodes[-1].output
    core = next((node for node in step.nodes if node.op in (*ACCUMULATORS, *POOLS)), None)
    if core is None:
        layers = [_sum(result, expression, memory, tiling)]
    elif core.op == "relax.matmul":
        layers = [_matmul(core, result, expression, memory, tiling)]
    elif core.op in POOLS:
        layers = _pools(core, result, expression, memory, tiling)
    else:
        layers = _convolutions(core, result, expression, memory, tiling)
    if activation_of(step) is None:
        return layers
    table = memory.constant(table_of(step).tobytes())
    return [replace(layer, table=table) for layer in layers]


def _pools(pool: Any, result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> list[Layer]:
    """Return pooling as products with the identity, reduced to the largest element or the sum."""
    x = pool["x"] if pool["x"].dtype.name == "i8" else pool["x"].producer["x"]
    batch, height, width, channels = x.shape
    if pool.op == "relax.reduce_mean":
        kernel, strides, padding = (height, width), (1, 1), (0, 0, 0, 0)
    else:
        kernel, strides = tuple(pool["kernel"]), tuple(pool["strides"] or (1, 1))
        padding = tuple(pool["padding"] or (0, 0, 0, 0))
    (term,) = expression.terms
    rows, columns = (
        (size + padding[axis] + padding[axis + 2] - kernel[axis]) // strides[axis] + 1
        for axis, size in enumerate((height, width))
    )
    shape = Shape(
        (height, width, channels), (rows, columns, channels), kernel, strides, (1, 1), padding[:2], -128,
        is_deep=False, is_shared=True, limits=expression.limits,
    )  # fmt: skip
    layer = Layer(
        window_maxima if pool.op == "relax.max_pool" else window_products, shape,
        (contiguous(memory.tensor(source_of(x)), shape.image),), memory.constant(IDENTITY),
        memory.constant(term_parameters(expression, [term], channels)), memory.tensor(result), tiling,
    )  # fmt: skip
    return _by_image(layer, batch)


def contiguous(address: int, shape: tuple[int, int, int]) -> Image:
    """Return an image with contiguous elements."""
    return Image(address, shape[2], shape[1] * shape[2])


def _by_image(layer: Layer, batch: int) -> list[Layer]:
    """Return the layer of each image of a batch."""
    (image,) = layer.operands
    sizes = math.prod(layer.shape.image), math.prod(layer.shape.size)
    return [
        replace(
            layer, operands=(replace(image, address=image.address + i * sizes[0]),), output=layer.output + i * sizes[1]
        )
        for i in range(batch)
    ]  # fmt: skip


def padded_source(conv: Any) -> tuple[Any, tuple[int, int, int, int], int]:
    """Return the tensor that a convolution reads, its padding, and the value of the padding."""
    x = conv["x"]
    if x.producer is not None and x.producer.op == "relax.pad" and x.producer.composite is conv.composite:
        _, top, left, _, _, bottom, right, _ = x.producer["pads"]
        return x.producer["x"], (top, left, bottom, right), int(x.producer["value"])
    return x, tuple(conv["padding"] or (0, 0, 0, 0)), 0


def border_of(conv: Any) -> tuple[Any, Border | None]:
    """Return the tensor that a convolution reads, and the border that makes window rows fit the array.

    An image of few channels leaves most rows of the array without data. Contiguous columns of a window can be loaded as
    one row if no padding is in between, so the driver writes the padding.
    """
    image, padding, fill = padded_source(conv)
    source = origin_of(image)
    _, _, window, channels = conv["weight"].shape
    is_alone = len(source.users) == len(image.users) == 1 and conv["groups"] == 1 and image.shape[0] == 1
    if not is_alone or window == 1 or window * channels > SIZE or (conv["dilations"] or (1, 1))[1] != 1:
        return source, None
    return source, Border(padding, fill, *image.shape[1:])


def origin_of(value: Any) -> Any:
    """Return the tensor that a value is a view of, if the views have no other readers."""
    while value.producer is not None and value.producer.op == "relax.reshape" and len(value.users) == 1:
        value = value.producer["x"]
    return value


def _convolutions(conv: Any, result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> list[Layer]:
    image, padding, fill = padded_source(conv)
    kernel = conv["weight"].array
    columns, kh, kw, _ = kernel.shape
    batch, height, width, channels = image.shape
    is_deep = conv["groups"] == 1
    if is_deep:
        weights = dense(kernel.reshape(columns, kh * kw, channels).transpose(1, 2, 0))
    else:
        weights = depthwise(kernel.reshape(columns, kh * kw).T)
    shape = Shape(
        (height, width, channels), tuple(conv.output.shape[1:]), (kh, kw), tuple(conv["strides"] or (1, 1)),
        tuple(conv["dilations"] or (1, 1)), padding[:2], fill, is_deep, limits=expression.limits,
    )  # fmt: skip
    source = contiguous(memory.tensor(source_of(image)), shape.image)
    border = memory.borders.get(origin_of(image))
    if border is not None:
        weights = dense(kernel.reshape(columns, kh, kw * channels).transpose(1, 2, 0))
        down, right = shape.strides
        source = Image(source.address, right * channels, border.line)
        shape = replace(
            shape, image=(height + padding[0] + padding[2], shape.size[1], kw * channels), window=(kh, 1),
            strides=(down, 1), dilations=(shape.dilations[0], 1), padding=(0, 0),
        )  # fmt: skip
    (term,) = expression.terms
    layer = Layer(
        window_products, shape, (source,), memory.constant(weights),
        memory.constant(term_parameters(expression, [term], columns)), memory.tensor(result), tiling,
    )  # fmt: skip
    return _by_image(layer, batch)


def _matmul(matmul: Any, result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> Layer:
    x, weight = matmul["lhs"], matmul["rhs"].array
    (rows, depth), columns = x.shape, weight.shape[1]
    (term,) = expression.terms
    shape = Shape((rows, 1, depth), (rows, 1, columns), limits=expression.limits)
    return Layer(
        window_products, shape, (contiguous(memory.tensor(source_of(x)), shape.image),),
        memory.constant(dense(weight[None])), memory.constant(term_parameters(expression, [term], columns)),
        memory.tensor(result), tiling,
    )  # fmt: skip


def _sum(result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> Layer:
    """Return products of one or two operands with the identity, on rows of 16 elements of any channels."""
    terms = list(expression.terms)
    size = (-(-math.prod(result.shape) // SIZE), 1, SIZE)
    shape = Shape(size, size, is_shared=True, limits=expression.limits)
    return Layer(
        sum_of_two if len(terms) == 2 else window_products, shape,
        tuple(contiguous(memory.tensor(term), size) for term in terms), memory.constant(IDENTITY),
        memory.constant(term_parameters(expression, terms, SIZE)), memory.tensor(result), tiling,
    )  # fmt: skip


def dense(kernel: np.ndarray) -> bytes:
    """Return the packed weights of [taps, channels, columns]: for each 16 columns, each 16 channels of all taps."""
    taps, channels, columns = kernel.shape
    deep, wide = -(-channels // SIZE), -(-columns // SIZE)
    whole = np.pad(kernel, ((0, 0), (0, deep * SIZE - channels), (0, wide * SIZE - columns)))
    return whole.reshape(taps, deep, SIZE, wide, SIZE).transpose(3, 1, 0, 2, 4).tobytes()


def depthwise(kernel: np.ndarray) -> bytes:
    """Return the weights of [taps, channels] on diagonals."""
    taps, channels = kernel.shape
    deep = -(-channels // SIZE)
    whole = np.pad(kernel, ((0, 0), (0, deep * SIZE - channels))).reshape(taps, deep, SIZE)
    packed = np.zeros((deep, taps, SIZE, SIZE), np.int8)
    lanes = np.arange(SIZE)
    packed[:, :, lanes, lanes] = whole.transpose(1, 0, 2)
    return packed.tobytes()


def term_parameters(expression: Linear, terms: Sequence[Any], columns: int) -> bytes:
    """Return the parameters of columns for the terms of an expression."""
    factors = [np.broadcast_to(np.ravel(expression.terms[term]), columns) for term in terms]
    constant = np.broadcast_to(np.ravel(expression.constant), columns)
    return parameters(factors[0], constant, factors[1] if len(factors) == 2 else None)
