"""Ensembles of decision trees beside ONNX Runtime, one thread, for batches of all sizes: processor time.

python -m benchmarks.trees          # other rows in each call
python -m benchmarks.trees --same   # the same rows again and again
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

FEATURES = 20
FORESTS = ((10, 4, 0.0), (100, 6, 0.0), (300, 8, 0.0), (300, 10, 0.3))
"""Trees, their depth, and the share of nodes above the last two levels that are leaves already."""
ROWS = (1, 4, 8, 16, 256, 5000, 100_000)
DISTINCT_ROWS = 16_384
"""Rows of all batches of a size: processors remember the branches of few rows, of 16 in 300 trees for example."""
COLUMNS = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")


def forest(trees: int, depth: int, early: float) -> onnx.ModelProto:
    """Return a regressor of random trees."""
    rng = np.random.default_rng(0)
    nodes: list[list[Any]] = []
    votes: list[tuple[int, int, float]] = []

    def grow(tree: int, name: int, left: int) -> int:
        """Add a node and what is below it; return the next name."""
        if left == 0 or (left < depth and left > 2 and rng.random() < early):
            nodes.append([tree, name, 0, "LEAF", 0.0, 0, 0])
            votes.append((tree, name, float(rng.normal())))
            return name + 1
        row = [tree, name, int(rng.integers(FEATURES)), "BRANCH_LEQ", float(rng.normal()), name + 1, 0]
        nodes.append(row)
        row[6] = grow(tree, name + 1, left - 1)
        return grow(tree, row[6], left - 1)

    for tree in range(trees):
        grow(tree, 0, depth)
    columns = {f"nodes_{name}": list(column) for name, column in zip(COLUMNS, zip(*nodes, strict=True), strict=True)}
    ids, leaves, weights = (list(column) for column in zip(*votes, strict=True))
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, target_treeids=ids,
        target_nodeids=leaves, target_ids=[0] * len(ids), target_weights=weights, **columns,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "trees", [x], [y]), opset_imports=opsets, ir_version=9)


def microseconds(
    calls: Sequence[Callable[[np.ndarray], Any]], batches: Sequence[np.ndarray], seconds: float = 0.6
) -> list[float]:
    """Return the processor time of each call, the mean over batches: the least of rounds in turns."""
    best = [float("inf")] * len(calls)
    end, count = time.perf_counter() + seconds, 0
    while count < 2 or time.perf_counter() < end:
        count += 1
        for index, call in enumerate(calls):
            start = time.thread_time()
            for batch in batches:
                call(batch)
            best[index] = min(best[index], time.thread_time() - start)
    return [1e6 * each / len(batches) for each in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--same", action="store_true", help="call with the same rows again and again")
    same = parser.parse_args().same
    import onnxruntime

    import mirlo

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    print("trees  depth    rows   Mirlo us   ONNX Runtime us   ratio")
    for trees, depth, early in FORESTS:
        model = forest(trees, depth, early)
        compiled = mirlo.compile(model, threads=1)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for rows in ROWS:
            count = 1 if same else max(1, DISTINCT_ROWS // rows)
            batches = np.random.default_rng(1).standard_normal((count, rows, FEATURES), dtype=np.float32)
            x = batches[0]
            np.testing.assert_allclose(compiled(x), session.run(None, {"x": x})[0], rtol=1e-3, atol=1e-4)
            own, other = microseconds([compiled, lambda x: session.run(None, {"x": x})], list(batches))  # noqa: B023
            print(f"{trees:5d} {depth:6d} {rows:7d} {own:10.1f} {other:17.1f} {own / other:7.2f}", flush=True)


if __name__ == "__main__":
    main()
