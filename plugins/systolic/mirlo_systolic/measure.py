"""Cycles on the simulated unit: `python -m mirlo_systolic.measure [--shapes] [MODEL.onnx...]`.

Each model runs once on random inputs, and its results are compared with those of target `llvm`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import mirlo
from mirlo.extend.runtime import DeviceStep
from mirlo_systolic import simulator
from mirlo_systolic.functions import Shape, window_products
from mirlo_systolic.layers import Layer, Tiling, parameters
from mirlo_systolic.queues import Program
from mirlo_systolic.regions import contiguous, dense
from mirlo_systolic.simulator import PARTS, Step

SHAPES = (
    (56, 64, 64, 1), (56, 64, 64, 3), (56, 64, 256, 1), (56, 256, 64, 1), (28, 128, 128, 3), (28, 512, 128, 1),
    (14, 256, 256, 3), (14, 1024, 256, 1), (14, 256, 1024, 1), (7, 512, 512, 3), (7, 2048, 512, 1), (7, 512, 2048, 1),
)  # fmt: skip
"""Convolutions of ResNet-50: rows and columns, channels, filters, rows and columns of the window."""


def measure(model: str | Path, options: str = "") -> tuple[bool, list[DeviceStep]]:
    """Return whether the unit computes the same results as the CPU, and the cycles of the model's layers."""
    executable, cpu = mirlo.compile(model, f"systolic{options},llvm", cache=False), mirlo.compile(model)
    inputs = cpu.random_inputs()
    found, expected = executable.run(inputs), cpu.run(inputs)
    steps = [step for region in executable.profile(**inputs, repeats=1).device.values() for step in region]
    return all(np.array_equal(found[name], expected[name]) for name in expected), steps


def convolve(size: int, channels: int, filters: int, window: int, tiling: Tiling | None = None) -> Step:
    """Return the cycles of a convolution on zeros."""
    weights = dense(np.zeros((window**2, channels, filters), np.int8))
    constants = parameters(np.ones(filters), np.zeros(filters))
    places = np.cumsum([0, size * size * channels, len(weights), len(constants), size * size * filters]).tolist()
    shape = Shape((size, size, channels), (size, size, filters), (window,) * 2, padding=(window // 2,) * 2)
    layer = Layer(
        window_products, shape, (contiguous(0, shape.image),), places[1], places[2], places[3], tiling or Tiling()
    )
    program = Program()
    program.step(layer.commands())
    (step,) = simulator.execute(np.zeros(places[4], np.uint8), program.content(), 1)
    return step


def main() -> None:
    parser = argparse.ArgumentParser(prog="mirlo_systolic.measure", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--options", default="", help="options of the target, such as '{rows=4}'")
    parser.add_argument("--shapes", action="store_true", help="measure convolutions of ResNet-50's shapes")
    arguments = parser.parse_args()
    for model in arguments.models:
        is_equal, steps = measure(model, arguments.options)
        print("| layer | cycles | loads | array | requantization | stores |\n| --- |" + " ---: |" * 5)
        for step in steps:
            print(f"| {step.name} | {step.amount:,} |" + "".join(f" {step.details[part]:,} |" for part in PARTS))
        cycles, array = sum(step.amount for step in steps), sum(step.details["array"] for step in steps)
        same = "equal" if is_equal else "NOT EQUAL"
        print(f"{Path(model).name}: {cycles:,} cycles, the array works in {array / cycles:.1%}; results {same}")
    if arguments.shapes:
        for size, channels, filters, window in SHAPES:
            step = convolve(size, channels, filters, window)
            used = size * size * channels * filters * window**2 / 256 / step.cycles
            print(f"| {size} x {size} x {channels} | {filters} | {window} x {window} | {step.cycles:,} | {used:.1%} |")


if __name__ == "__main__":
    main()
