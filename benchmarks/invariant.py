"""What the option `invariant` costs: models and kernels with and without it, in turns.

    python -m benchmarks.invariant [--rounds 15] [NAME...]

prints a table: milliseconds of a call without the option and with it, and the median of their ratios in each round.
Names select rows that contain them. Times are those of the process's CPU, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import mirlo
from mirlo.tools import samples

SAMPLES = ("mobilenetv2", "resnet50", "bert_base", "vit_base", "gpt2")
SHORTEST = 0.05
"""Seconds of a measurement, at least."""


def product(bits: int, rows: int, size: int = 2048) -> onnx.ModelProto:
    """Return a product with weights of a few bits."""
    random = np.random.default_rng(0)
    blocks = size // 32
    constants = {
        "w": random.integers(0, 256, (size, blocks, 32 * bits // 8)).astype(np.uint8),
        "s": random.uniform(0.005, 0.015, (size, blocks)).astype(np.float32),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=size, N=size, bits=bits, block_size=32
    )
    return _model([node], {"x": [rows, size]}, constants)


def attention(rows: int, keys: int, heads: int = 12, size: int = 64) -> onnx.ModelProto:
    """Return attention of some rows to keys, whose number only the run time knows."""
    nodes = [
        helper.make_node("Transpose", ["b"], ["k"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["a", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "c"], ["y"]),
    ]
    shapes = {"a": [1, heads, rows, size], "b": [1, heads, "keys", size], "c": [1, heads, "keys", size]}
    return _model(nodes, shapes, {})


def _model(nodes: list[Any], shapes: dict[str, list[Any]], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def cases() -> Iterator[tuple[str, Callable[[], Any], dict[str, int]]]:
    """Yield names, functions that return models, and sizes of dims of their calls."""
    for name in SAMPLES:
        yield name, lambda name=name: samples.path(name), {}  # type: ignore[misc]
    for rows in (1, 4, 64):
        yield f"4-bit weights, {rows} rows", lambda rows=rows: product(4, rows), {}  # type: ignore[misc]
    for rows, keys in ((1, 128), (1, 2048), (64, 512)):
        yield (
            f"attention, {rows} rows to {keys} keys",
            lambda rows=rows, keys=keys: attention(rows, keys),  # type: ignore[misc]
            {"keys": keys},
        )


def seconds_of(executable: Any, inputs: dict[str, np.ndarray], count: int) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    for _ in range(count):
        executable(**inputs)
    return (time.process_time() - start) / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print("| case | ms | with `invariant` | ratio |\n| --- | ---: | ---: | ---: |")
    for name, make, sizes in cases():
        if arguments.names and not any(each in name for each in arguments.names):
            continue
        both = [mirlo.compile(make(), invariant=invariant) for invariant in (False, True)]
        inputs = both[0].random_inputs(dims=sizes)
        count = max(1, int(SHORTEST / max(1e-6, min(seconds_of(each, inputs, 2) for each in both))))
        rounds = [[seconds_of(each, inputs, count) for each in both] for _ in range(arguments.rounds)]
        plain, invariant = (1e3 * median(times) for times in zip(*rounds, strict=True))
        print(f"| {name} | {plain:.2f} | {invariant:.2f} | {median(b / a for a, b in rounds):.2f} |", flush=True)


if __name__ == "__main__":
    main()
