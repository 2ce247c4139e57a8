"""Products with packed weights by the number of rows: `python -m benchmarks.kernels.nbits [--bits B] [--rows M...]`.

Products with weights of one size, more than the caches hold, are computed one after the other; Mirlo and ONNX Runtime
take turns with a probe that only reads the weights. The table shows the least time of a product in microseconds, its
ratio to that of one row, to reading, and to ONNX Runtime at the same `accuracy_level`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.llm.reading import reader
from mirlo.benchmarks.turns import onnxruntime_session

LEVELS = {"exact": 0, "i8": 4}
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 64)
ENOUGH = 96 << 20
"""Bytes of weights that no cache holds."""


def model(columns: int, depth: int, bits: int, block: int, level: int, count: int | None = None) -> Any:
    """Return a model that multiplies its input with this many weights; without, as many as the caches do not hold."""
    random = np.random.default_rng(0)
    blocks = depth // block
    count = count or -(-ENOUGH * 8 // (columns * depth * bits))
    nodes, constants = [], []
    for i in range(count):
        codes = random.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8)
        scales = random.uniform(0.005, 0.015, (columns, blocks)).astype(np.float32)
        constants += [numpy_helper.from_array(codes, f"w{i}"), numpy_helper.from_array(scales, f"s{i}")]
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                ["x", f"w{i}", f"s{i}"],
                [f"y{i}"],
                domain="com.microsoft",
                K=depth,
                N=columns,
                bits=bits,
                block_size=block,
                accuracy_level=level,
            )  # fmt: skip
        )
    infos = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["m", columns]) for i in range(count)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", depth])
    graph = helper.make_graph(nodes, "products", [x], infos, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def report(columns: int, depth: int, bits: int, block: int, activations: str, rows: list[int], repeat: int) -> None:
    """Print a line for each number of rows."""
    onnx_model = model(columns, depth, bits, block, LEVELS[activations])
    session = onnxruntime_session(onnx_model.SerializeToString(), 1)
    ours = mirlo.compile(onnx_model, activations=activations).resident()
    count = len(ours.outputs)
    read = reader([ours.weight(spec.name) for spec in ours.artifact.params])
    one = 0.0
    print(f"{columns} x {depth}, {bits} bits, {activations}: {'rows':>4} {'us':>8} {'one':>6} {'read':>6} {'ort':>6}")
    for m in rows:
        x = np.random.default_rng(m).standard_normal((m, depth)).astype(np.float32)
        steps = (partial(ours, x), read, partial(session.run, None, {"x": x}))
        turns = np.array([[seconds(step) for step in steps] for _ in range(repeat)])
        least = turns.min(0)
        one = one or least[0]
        ort = statistics.median(turns[:, 0] / turns[:, 2])
        print(
            f"{'':40} {m:4} {1e6 * least[0] / count:8.1f} {least[0] / one:6.2f} {least[0] / least[1]:6.2f} {ort:6.2f}",
            flush=True,
        )


def seconds(step: Any) -> float:
    """Return the CPU time that the thread takes for a step."""
    before = time.thread_time()
    step()
    return time.thread_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.nbits", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--columns", type=int, default=5632, help="columns of the weights (default: 5632)")
    parser.add_argument("--depth", type=int, default=2048, help="rows of K (default: 2048)")
    parser.add_argument("--bits", type=int, choices=(2, 4, 8), default=4, help="bits of a weight (default: 4)")
    parser.add_argument("--block", type=int, default=32, help="rows of K with one scale (default: 32)")
    parser.add_argument("--activations", nargs="*", choices=LEVELS, default=list(LEVELS), help="default: both")
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS), help="numbers of rows")
    parser.add_argument("--repeat", type=int, default=30, help="turns (default: 30)")
    arguments = parser.parse_args()
    for activations in arguments.activations:
        report(
            arguments.columns,
            arguments.depth,
            arguments.bits,
            arguments.block,
            activations,
            arguments.rows,
            arguments.repeat,
        )


if __name__ == "__main__":
    main()
