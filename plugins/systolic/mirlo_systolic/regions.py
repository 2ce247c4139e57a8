"""Regions as programs: operands in main memory, weights and parameters packed, and the commands of each layer."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mirlo.extend import decline
from mirlo_systolic.commands import ACCUMULATOR_ROWS, DATA_ROWS, SIZE, Mode
from mirlo_systolic.expressions import Linear, linear_of, source_of
from mirlo_systolic.layers import CONTEXTS, Block, Emitter, Image, Layer, Product, Tiling, parameters
from mirlo_systolic.tuning import best_tiling

MAGIC, VERSION = 0x54535953, 1
ALIGNMENT = 64


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
    if len(x.shape) != 4 or not all(isinstance(dim, int) for dim in x.shape):
        return decline("the unit convolves images of static sizes", x=str(x.type))
    spatial = slice(1, 3) if conv.data_layout == "N*C" else slice(2, 4)
    channels, columns = (int(v.shape[3 if conv.data_layout == "N*C" else 1]) for v in (x, y))
    if conv.groups != 1 and not conv.groups == channels == columns:
        return decline("the unit convolves all channels at once, or each alone", groups=conv.groups)
    window = weight.shape[1:3] if conv.kernel_layout == "O*I" else weight.shape[2:4]
    dilations, padding = conv.dilations or (1, 1), conv.padding or (0, 0, 0, 0)
    width = x.shape[spatial][1] + padding[1] + padding[3]
    blocks = 1 if conv.groups != 1 else -(-channels // SIZE)
    rows = ((window[0] - 1) * dilations[0] + 1) * width * blocks
    if rows > DATA_ROWS // CONTEXTS or y.shape[spatial][1] > ACCUMULATOR_ROWS // CONTEXTS:
        return decline("a row of the result needs more than the scratchpads hold", rows=rows)
    return _result(match)


def matmul_fits(match: Any) -> Any:
    """Check a product of matrices: return True, or why the unit does not compute it."""
    matmul = match.op("matmul")
    x, weight = matmul.lhs, matmul.rhs
    if x.dtype.name != "i8" or weight.dtype.name != "i8":
        return decline("the unit multiplies int8", x=str(x.type), weight=str(weight.type))
    if matmul.transpose_lhs or matmul.transpose_rhs or len(x.shape) != 2 or len(weight.shape) != 2:
        return decline("the unit multiplies matrices as they are", x=str(x.type), weight=str(weight.type))
    if not all(isinstance(dim, int) for dim in x.shape):
        return decline("the unit multiplies matrices of static sizes", x=str(x.type))
    if x.shape[1] > SIZE * DATA_ROWS // CONTEXTS:
        return decline("a row is longer than the scratchpads hold", x=str(x.type))
    return _result(match)


def sum_fits(match: Any) -> Any:
    """Check a sum: return True, or why the unit does not compute it."""
    a, b = match["a"], match["b"]
    if a.dtype.name != "i8" or b.dtype.name != "i8" or tuple(a.shape) != tuple(b.shape):
        return decline("the unit adds int8 of equal shapes", a=str(a.type), b=str(b.type))
    if not all(isinstance(dim, int) for dim in a.shape) or math.prod(a.shape) % SIZE:
        return decline("the unit adds static multiples of 16 elements", a=str(a.type))
    return _result(match)


def is_view(step: Any) -> bool:
    """Return whether a step is a reshape of its own, between composites."""
    return len(step.nodes) == 1 and step.nodes[0].op == "relax.reshape"


@dataclass
class _Memory:
    """Where tensors and constants are."""

    size: int = 0
    places: dict[Any, int] = field(default_factory=dict)
    constants: bytearray = field(default_factory=bytearray)

    def tensor(self, value: Any) -> int:
        """Return the address of a tensor, which it gets when it is first asked for."""
        if value not in self.places:
            self.places[value] = self._take(math.prod(value.shape))
        return self.places[value]

    def alias(self, value: Any, view: Any) -> None:
        """Let a view have the memory of its tensor, if one of them may choose."""
        if view not in self.places:
            self.places[view] = self.tensor(value)
        else:
            self.places.setdefault(value, self.places[view])

    def is_done(self, step: Any) -> bool:
        """Return whether a step is a view, for which there is nothing to do."""
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


def compile_region(function: Any, tiling: Tiling, tuned: bool = False) -> CompiledRegion:
    """Return the program of a region; `tuned` measures tilings of each layer on the simulator."""
    memory = _Memory()
    tensors = [*function.inputs, *function.outputs]
    for value in tensors:
        memory.tensor(value)
    for step in reversed(function.steps):
        if is_view(step):
            memory.alias(step.nodes[0]["x"], step.nodes[0].output)
    steps = [step for step in function.steps if not memory.is_done(step)]
    layers = [_layers(step, memory, tiling) for step in steps]
    base, emitter = memory.size, Emitter()
    for images in layers:
        for layer in images:
            placed = replace(layer, weights=base + layer.weights, parameters=base + layer.parameters)
            if tuned:
                placed = replace(placed, tiling=best_tiling(placed, base + len(memory.constants) + SIZE))
            emitter.layer(placed)
        emitter.program.barrier()
    commands = emitter.program.content()
    constants = bytes(memory.constants)
    head = [
        MAGIC, VERSION, base + len(constants) + SIZE, base, len(constants), emitter.program.count,
        len(function.inputs), len(function.outputs),
    ]  # fmt: skip
    for value in tensors:
        head += [memory.tensor(value), math.prod(value.shape)]
    start = struct.pack(f"<{len(head)}I", *head)
    content = start + bytes(-len(start) % ALIGNMENT) + commands + constants
    return CompiledRegion(content, [step.nodes[-1].name for step in steps])


def _layers(step: Any, memory: _Memory, tiling: Tiling) -> list[Layer]:
    """Return the layers of a step, one for each image of a batch."""
    result, expression = linear_of(step)
    core = next((node for node in step.nodes if node.op in ("relax.conv", "relax.matmul")), None)
    if core is None:
        return [_sum(result, expression, memory, tiling)]
    if core.op == "relax.matmul":
        return [_matmul(core, result, expression, memory, tiling)]
    return _convolutions(core, result, expression, memory, tiling)


def _convolutions(conv: Any, result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> list[Layer]:
    image, x = conv["x"], conv["x"]
    padding, fill = conv["padding"] or (0, 0, 0, 0), 0
    if x.producer is not None and x.producer.op == "relax.pad" and x.producer.composite is conv.composite:
        pad = x.producer
        _, top, left, _, _, bottom, right, _ = pad["pads"]
        image, padding, fill = pad["x"], (top, left, bottom, right), int(pad["value"])
    kernel = conv["weight"].array
    columns, kh, kw, _ = kernel.shape
    dilations = conv["dilations"] or (1, 1)
    taps = [(i * dilations[0], j * dilations[1]) for i in range(kh) for j in range(kw)]
    batch, height, width, channels = image.shape
    if conv["groups"] == 1:
        weights, groups = dense(kernel.reshape(columns, kh * kw, channels).transpose(1, 2, 0), taps)
    else:
        weights, groups = depthwise(kernel.reshape(columns, kh * kw).T, taps)
    (term,) = expression.terms
    addresses = memory.constant(weights), memory.constant(term_parameters(expression, [term], columns))
    reach = taps[-1][0] + 1, taps[-1][1] + 1
    layer = Layer(
        (Image(memory.tensor(source_of(image)), height, width, channels, padding, fill),), groups, *addresses,
        memory.tensor(result), tuple(conv.output.shape[1:]), conv["strides"] or (1, 1), reach, expression.limits,
        tiling=tiling,
    )  # fmt: skip
    sizes = height * width * channels, math.prod(conv.output.shape[1:])
    return [
        replace(
            layer, operands=(replace(layer.operands[0], address=layer.operands[0].address + i * sizes[0]),),
            output=layer.output + i * sizes[1],
        )
        for i in range(batch)
    ]  # fmt: skip


def _matmul(matmul: Any, result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> Layer:
    x, weight = matmul["lhs"], matmul["rhs"].array
    (rows, depth), columns = x.shape, weight.shape[1]
    weights, groups = dense(weight[None], [(0, 0)])
    (term,) = expression.terms
    addresses = memory.constant(weights), memory.constant(term_parameters(expression, [term], columns))
    return Layer(
        (Image(memory.tensor(source_of(x)), rows, 1, depth),), groups, *addresses, memory.tensor(result),
        (rows, 1, columns), (1, 1), (1, 1), expression.limits, tiling=tiling,
    )  # fmt: skip


def _sum(result: Any, expression: Linear, memory: _Memory, tiling: Tiling) -> Layer:
    terms = list(expression.terms)
    identity = memory.constant(np.eye(SIZE, dtype=np.int8).tobytes())
    addresses = identity, memory.constant(term_parameters(expression, terms, SIZE))
    rows = math.prod(result.shape) // SIZE
    images = tuple(Image(memory.tensor(term), rows, 1, SIZE) for term in terms)
    products = tuple(Product(i, (0, 0), 0, 0, i, Mode.STORE) for i in range(len(terms)))
    return Layer(
        images, ((Block(0, products),),), *addresses, memory.tensor(result), (rows, 1, SIZE), (1, 1), (1, 1),
        expression.limits, regions=len(terms), tiling=tiling,
    )  # fmt: skip


def dense(kernel: np.ndarray, taps: Sequence[tuple[int, int]]) -> tuple[bytes, tuple[tuple[Block, ...], ...]]:
    """Return the packed weights of [taps, channels, columns], and the products of all blocks, which are one group."""
    _, channels, columns = kernel.shape
    deep, wide = -(-channels // SIZE), -(-columns // SIZE)
    whole = np.pad(kernel, ((0, 0), (0, deep * SIZE - channels), (0, wide * SIZE - columns)))
    packed = whole.reshape(len(taps), deep, SIZE, wide, SIZE).transpose(3, 1, 0, 2, 4)
    blocks = []
    for column in range(wide):
        parts = [(block, tap) for block in range(deep) for tap in taps]
        products = (
            Product(0, tap, block, column * len(parts) + i, 0, Mode.ADD if i else Mode.STORE)
            for i, (block, tap) in enumerate(parts)
        )
        blocks.append(Block(column, tuple(products)))
    return packed.tobytes(), (tuple(blocks),)


def depthwise(kernel: np.ndarray, taps: Sequence[tuple[int, int]]) -> tuple[bytes, tuple[tuple[Block, ...], ...]]:
    """Return the weights of [taps, channels] on diagonals, and the products of each block, which are a group."""
    channels = kernel.shape[1]
    deep = -(-channels // SIZE)
    whole = np.pad(kernel, ((0, 0), (0, deep * SIZE - channels))).reshape(len(taps), deep, SIZE)
    packed = np.zeros((deep, len(taps), SIZE, SIZE), np.int8)
    lanes = np.arange(SIZE)
    packed[:, :, lanes, lanes] = whole.transpose(1, 0, 2)
    groups = []
    for block in range(deep):
        products = (
            Product(0, tap, block, block * len(taps) + i, 0, Mode.ADD if i else Mode.STORE)
            for i, tap in enumerate(taps)
        )
        groups.append((Block(block, tuple(products)),))
    return packed.tobytes(), tuple(groups)


def term_parameters(expression: Linear, terms: Sequence[Any], columns: int) -> bytes:
    """Return the parameters of columns for the terms of an expression."""
    factors = [np.broadcast_to(np.ravel(expression.terms[term]), columns) for term in terms]
    constant = np.broadcast_to(np.ravel(expression.constant), columns)
    return parameters(factors[0], constant, factors[1] if len(factors) == 2 else None)
