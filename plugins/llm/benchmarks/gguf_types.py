"""Products of one row with weights of each type of GGUF: `python plugins/llm/benchmarks/gguf_types.py [--types T...]`.

Products with weights of one size, more than the caches hold, are computed one after the other by one thread, in turns
with a probe that only reads the bytes of the weights, where they are. The table shows the bytes of a weight in the
file and as products read it, the least time of a product in microseconds, and its ratio to reading: `read`, of the
bytes as products read them, and `file`, of as many bytes as the file has. 1.0 is the speed of memory.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.graph import BATCH, LENGTH, CheckpointGraph, CheckpointWeights, import_graph
from mirlo_llm.generate.gguf.blocks import TYPES, BlockType

import mirlo
from mirlo.benchmarks.kernels.nbits import ENOUGH, seconds
from mirlo.benchmarks.llm.reading import reader
from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType

KINDS = {kind.name: kind for kind in TYPES.values()}


def random_matrix(kind: BlockType, rows: int, depth: int, seed: int) -> np.ndarray | BlockWeights:
    """Return weights of a type; scales are neither large nor subnormal, which processors compute slowly."""
    random = np.random.default_rng(seed)
    if kind.decode is None:
        values = random.standard_normal((rows, depth), np.float32)
        data = (values.view(np.uint32) >> 16).astype("<u2") if kind.name == "BF16" else values
        data = values.astype("<f2") if kind.name == "F16" else data
        return kind.read(data.view(np.uint8).reshape(rows, -1), (rows, depth))
    raw = random.integers(16, 60, (rows * depth // kind.elements, kind.nbytes), np.uint8)
    if kind.name == "MXFP4":
        raw[:, 0] = 120  # the exponent
    if kind.name == "Q8_0":  # whose codes would need 6 bits
        raw[:, 2:] = random.integers(0, 256, raw[:, 2:].shape, np.uint8)
    return kind.read(raw.reshape(rows, -1), (rows, depth))


def products(kind: BlockType, rows: int, depth: int) -> tuple[ImportedModule, int]:
    """Return a graph that multiplies one input by several random matrices, and the number of their weights."""
    count = max(-(-ENOUGH * kind.elements // (rows * depth * kind.nbytes)), 2)
    tensors = {f"w{i}.weight": random_matrix(kind, rows, depth, i) for i in range(count)}
    weights = CheckpointWeights(Path("products"), tensors)

    def build(builder: GraphBuilder, x: Tensor) -> dict[str, Tensor]:
        graph = CheckpointGraph(builder, weights)
        return {f"y{i}": graph.product(f"w{i}", x, rows) for i in range(count)}

    return import_graph(weights, {"x": TensorType.of((BATCH, LENGTH, depth), "f32")}, build), count * rows * depth


def report(kind: BlockType, rows: int, depth: int, activations: str, repeat: int) -> str:
    """Return the table row of a type."""
    module, elements = products(kind, rows, depth)
    model = mirlo.compile(module, activations=activations, cache=False).resident()
    held = [model.weight(spec.name) for spec in model.artifact.params]
    read, x = reader(held), np.random.default_rng(0).standard_normal((1, 1, depth)).astype(np.float32)
    least = np.array([[seconds(step) for step in (partial(model, x), read)] for _ in range(repeat)]).min(0)
    size, bits = sum(array.nbytes for array in held), 8 * kind.nbytes / kind.elements
    own = 8 * size / elements
    file_seconds = least[1] * bits / own
    micros = 1e6 * least[0] * rows * depth / elements
    ratios = f"{least[0] / least[1]:6.2f} {least[0] / file_seconds:6.2f}"
    return f"{kind.name:8} {bits:6.2f} {own:6.2f} {micros:9.1f} {size / least[0] / 1e9:6.1f} {ratios}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python plugins/llm/benchmarks/gguf_types.py",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--types", nargs="*", choices=KINDS, default=list(KINDS), help="default: all")
    parser.add_argument("--rows", type=int, default=5632, help="columns of a product (default: 5632)")
    parser.add_argument("--depth", type=int, default=2048, help="elements of a row (default: 2048)")
    parser.add_argument("--activations", choices=("exact", "i8"), default="exact", help="default: exact")
    parser.add_argument("--repeat", type=int, default=30, help="turns (default: 30)")
    arguments = parser.parse_args()
    print(f"{'type':8} {'bits':>6} {'read':>6} {'us':>9} {'GB/s':>6} {'read':>6} {'file':>6}")
    for name in arguments.types:
        print(report(KINDS[name], arguments.rows, arguments.depth, arguments.activations, arguments.repeat), flush=True)


if __name__ == "__main__":
    main()
