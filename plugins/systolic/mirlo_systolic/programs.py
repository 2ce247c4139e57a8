"""Programs that show each instruction of the unit, executed by the RTL: `mirlo check-target` compares their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from mirlo.extend.schedules import CommandMemory, CommandProgram, TileCommand
from mirlo_systolic import simulator
from mirlo_systolic.commands import SIZE
from mirlo_systolic.functions import Shape, sum_of_two, window_maxima, window_products
from mirlo_systolic.layers import CAPACITY, EMITTERS, Image, Layer, Tiling, parameters
from mirlo_systolic.queues import Program

LIMITS = (3, -100, 120)
CASES: dict[str, tuple[Callable[[Shape], Any], Shape, Tiling]] = {
    "convolution": (
        window_products,
        Shape((7, 6, 24), (4, 3, 32), (3, 3), (2, 2), padding=(1, 1), fill=-7, limits=LIMITS),
        Tiling(rows=3, chunk=4),
    ),
    "depthwise": (
        window_products,
        Shape((6, 5, 32), (6, 5, 32), (3, 3), padding=(1, 1), is_deep=False, limits=LIMITS),
        Tiling(rows=4, chunk=2),
    ),
    "product": (window_products, Shape((1, 5, 48), (1, 5, 16), limits=LIMITS), Tiling(chunk=2, linked=False)),
    "largest": (
        window_maxima, Shape((6, 6, 16), (3, 3, 16), (2, 2), (2, 2), is_deep=False, is_shared=True, limits=LIMITS),
        Tiling(rows=2),
    ),
    "sum": (sum_of_two, Shape((5, 4, 16), (5, 4, 16), limits=LIMITS), Tiling(rows=2)),
}  # fmt: skip
"""By name: what is computed, its sizes, and the tiles."""


def programs() -> Iterator[CommandProgram]:
    """Yield programs for the unit; none without a simulator."""
    if simulator.missing_tools():
        return
    for name, (function, shape, tiling) in CASES.items():
        operands = 2 if function is sum_of_two else 1
        schedule = _layer(function, shape, tiling, [0] * (operands + 3)).schedule()
        constants = np.frombuffer(_constants(shape), np.int64).reshape(shape.blocks[2], -1, 4)
        inputs = {"p": constants, "w": _weights(function, shape)}
        execute = partial(_execute, function, shape, tiling)
        yield CommandProgram(f"systolic.{name}", schedule, execute, inputs, CAPACITY)


def _weights(function: Callable[[Shape], Any], shape: Shape) -> np.ndarray:
    """Return random weights; zeros for channels that are not there, and the identity where maxima are computed."""
    if function is window_maxima:
        return np.eye(SIZE, dtype=np.int8)[None]
    _, deep, results = shape.blocks
    taps = 1 if function is sum_of_two else shape.taps
    weights = np.random.default_rng(1).integers(-128, 128, (results, taps, SIZE, SIZE), np.int8)
    channels = np.arange(deep * SIZE).reshape(deep, 1, SIZE) < (shape.image[2] if shape.is_deep else SIZE)
    return weights * np.repeat(channels, taps // deep, 1).reshape(taps, SIZE, 1)


def _constants(shape: Shape) -> bytes:
    """Return a requantization of each column."""
    rng = np.random.default_rng(0)
    scales = [rng.uniform(0.5, 2, shape.size[2]) / (64 * shape.taps) for _ in range(2)]
    return parameters(scales[0], rng.uniform(-9, 9, shape.size[2]), scales[1])


def _layer(function: Callable[[Shape], Any], shape: Shape, tiling: Tiling, addresses: Sequence[int]) -> Layer:
    *operands, weights, constants, output = addresses
    _, columns, channels = shape.image
    images = tuple(Image(address, channels, columns * channels) for address in operands)
    return Layer(function, shape, images, weights, constants, output, tiling)


def _execute(
    function: Callable[[Shape], Any], shape: Shape, tiling: Tiling, commands: Sequence[TileCommand],
    memory: CommandMemory,
) -> None:  # fmt: skip
    """Execute the commands of a layer on the RTL."""
    names = ["a", "b", "w", "p", "y"] if function is sum_of_two else ["x", "w", "p", "y"]
    content, addresses = bytearray(), []
    for name in names:
        content += bytes(-len(content) % 16)
        addresses.append(len(content))
        content += memory.array(name).tobytes()
    layer = _layer(function, shape, tiling, addresses)
    program = Program()
    program.step(each for command in commands for each in EMITTERS[command.name](layer, command))
    main = np.frombuffer(bytes(content) + bytes(16), np.uint8).copy()
    simulator.execute(main, program.content(), 1)
    size = int(np.prod(shape.size))
    memory.set_array("y", main[addresses[-1] : addresses[-1] + size].view(np.int8))
