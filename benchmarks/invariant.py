"""What the option `invariant` costs: models and kernels with and without it, in turns.

    python -m benchmarks.invariant [--rounds 15] [NAME...]

prints a table: milliseconds of a call without the option and with it, and the median of their ratios in each round.
Names select rows that contain them. Times are those of the process's CPU, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import mirlo
from mirlo.benchmarks.llm.engines import Mirlo
from mirlo.benchmarks.llm.model import LLAMA, DecoderConfig, save
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


Step = Callable[[], Any]
Case = tuple[str, Callable[[bool], Step]]
"""A name, and a function that returns what is measured, without the option or with it."""


def model_case(name: str, make: Callable[[], Any], sizes: dict[str, int] | None = None) -> Case:
    """Return the case of a call of a model, with these sizes of dims."""

    def step(invariant: bool) -> Step:
        executable = mirlo.compile(make(), invariant=invariant)
        inputs = executable.random_inputs(dims=sizes or {})
        return lambda: executable(**inputs)

    return name, step


def decoder_cases(folder: Path) -> Iterator[Case]:
    """Yield cases of decoders of a language model, with caches in place."""
    for name, config in (
        ("decoder, 4-bit weights", LLAMA),
        ("decoder, f32 weights", replace(LLAMA, layers=2, weights="f32")),
        ("decoder, heads of 128", replace(LLAMA, layers=2, heads=16, size=128)),
    ):
        path = folder / name.replace(" ", "_")
        opened: dict[bool, Mirlo] = {}

        def engine(invariant: bool, path: Path = path, config: DecoderConfig = config, opened: Any = opened) -> Mirlo:
            if not path.exists():
                path.mkdir(parents=True)
                save(config, path)
            if invariant not in opened:
                opened[invariant] = Mirlo(config, path / "model.onnx", 1, invariant=invariant)
            return opened[invariant]

        for tokens, past in ((1, 128), (1, 2046), (1, 8190), (64, 0), (512, 0)):
            what = f"1 token after {past}" if past else f"prompt of {tokens}"
            yield f"{name}, {what}", lambda each, e=engine, t=tokens, p=past: e(each).call(t, p, 1)  # type: ignore[misc]


def cases(folder: Path) -> Iterator[Case]:
    """Yield all cases."""
    for name in SAMPLES:
        yield model_case(name, lambda name=name: samples.path(name))  # type: ignore[misc]
    for rows in (1, 4, 64):
        yield model_case(f"4-bit weights, {rows} rows", lambda rows=rows: product(4, rows))  # type: ignore[misc]
    for rows, keys in ((1, 128), (1, 2048), (4, 2048), (64, 512), (512, 512)):
        name = f"attention, {rows} rows to {keys} keys"
        yield model_case(name, lambda r=rows, k=keys: attention(r, k), {"keys": keys})  # type: ignore[misc]
    yield from decoder_cases(folder)


def seconds_of(step: Step, count: int) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print("| case | ms | with `invariant` | ratio |\n| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for name, step in cases(Path(folder)):
            if not arguments.names or any(each in name for each in arguments.names):
                measure(name, (step(False), step(True)), arguments.rounds)


def measure(name: str, both: Sequence[Step], rounds: int) -> None:
    """Print the row of a case, measured in turns."""
    count = max(1, int(SHORTEST / max(1e-6, min(seconds_of(each, 2) for each in both))))
    times = []
    for turn in range(rounds):
        plain, invariant = (seconds_of(each, count) for each in (both if turn % 2 else both[::-1]))
        times.append((plain, invariant) if turn % 2 else (invariant, plain))
    plain, invariant = (1e3 * median(each) for each in zip(*times, strict=True))
    print(f"| {name} | {plain:.2f} | {invariant:.2f} | {median(b / a for a, b in times):.2f} |", flush=True)


if __name__ == "__main__":
    main()
