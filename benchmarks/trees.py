"""Ensembles of decision trees beside ONNX Runtime, one thread, for batches of all sizes: processor time.

python -m benchmarks.trees          # other rows in each call
python -m benchmarks.trees --same   # the same rows again and again
python -m benchmarks.trees --labels # classifiers of few rows whose labels are strings, with and without ZipMap
python -m benchmarks.trees --paths  # the paths of few rows through each tree, as strings (decision_path of skl2onnx)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
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
LABELLED = ((10, 4, 2), (10, 4, 10), (100, 6, 2), (100, 6, 10))
"""Trees, their depth and the labels of classifiers."""
PATHS = ((1, 6), (10, 6), (30, 6), (100, 8))
"""Trees and their depth whose paths are results."""
FEW_ROWS = (1, 2, 10, 100)
COLUMNS = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")


def forest(trees: int, depth: int, early: float, seed: int = 0) -> onnx.ModelProto:
    """Return a regressor of random trees."""
    rng = np.random.default_rng(seed)
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


def classifier(trees: int, depth: int, labels: int, zipped: bool) -> onnx.ModelProto:
    """Return a classifier of random trees with strings as labels, whose scores are dictionaries if `zipped`."""
    model = forest(trees, depth, 0.0)
    (regressor,) = model.graph.node
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in regressor.attribute}
    votes = {
        name.replace("target_", "class_"): value for name, value in attributes.items() if name.startswith("target_")
    }
    votes["class_ids"] = [i % labels for i in range(len(votes["class_ids"]))]
    names = [f"label {i}" for i in range(labels)]
    nodes = [
        helper.make_node(
            "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_strings=names,
            **votes, **{name: value for name, value in attributes.items() if name.startswith("nodes_")},
        )
    ]  # fmt: skip
    outputs = [helper.make_tensor_value_info("label", TensorProto.STRING, ["n"])]
    if zipped:
        nodes.append(helper.make_node("ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", classlabels_strings=names))
        kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        outputs.append(helper.make_value_info("y", helper.make_sequence_type_proto(kind)))
    else:
        outputs.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", labels]))
    graph = helper.make_graph(nodes, "classes", list(model.graph.input), outputs)
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=9)


def paths(trees: int, depth: int) -> onnx.ModelProto:
    """Return a model of the path of each row through random trees: a string of 0 and 1 by node, a column for a tree."""
    nodes = []
    for tree in range(trees):
        model = forest(1, depth, 0.0, seed=tree)
        (regressor,) = model.graph.node
        leaves = next(each for each in regressor.attribute if each.name == "target_nodeids").ints
        for attribute in regressor.attribute:
            if attribute.name == "target_weights":
                attribute.floats[:] = [float(leaf) for leaf in leaves]
        regressor.output[0] = f"leaf{tree}"
        words = [f"{tree:03d}{leaf:0{2**depth}b}" for leaf in leaves]
        encoder = helper.make_node(
            "LabelEncoder", [f"leaf{tree}"], [f"path{tree}"], domain="ai.onnx.ml", default_string="0",
            keys_floats=[float(leaf) for leaf in leaves], values_strings=words,
        )  # fmt: skip
        nodes += [regressor, encoder]
    nodes.append(helper.make_node("Concat", [f"path{tree}" for tree in range(trees)], ["y"], axis=1))
    y = helper.make_tensor_value_info("y", TensorProto.STRING, ["n", trees])
    graph = helper.make_graph(nodes, "paths", list(model.graph.input), [y])
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=9)


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


def compare_labels() -> None:
    """Print the times of classifiers, both called by the interface of ONNX Runtime."""
    print("trees  depth  labels  ZipMap  rows   Mirlo us   ONNX Runtime us   ratio")
    for trees, depth, labels in LABELLED:
        for zipped in (False, True):
            label = f"{trees:5d} {depth:6d} {labels:7d} {'yes' if zipped else 'no':>7s}"
            _compare_sessions(classifier(trees, depth, labels, zipped), label)


def compare_paths() -> None:
    """Print the times of the paths through trees, both called by the interface of ONNX Runtime."""
    print("trees  depth  rows   Mirlo us   ONNX Runtime us   ratio")
    for trees, depth in PATHS:
        _compare_sessions(paths(trees, depth), f"{trees:5d} {depth:6d}")


def _compare_sessions(model: onnx.ModelProto, label: str) -> None:
    """Print the times of a model for few rows, whose first result is strings."""
    import onnxruntime

    import mirlo

    content = model.SerializeToString()
    own, other = mirlo.SessionOptions(), onnxruntime.SessionOptions()
    own.intra_op_num_threads = other.intra_op_num_threads = 1
    sessions = [
        mirlo.InferenceSession(content, own),
        onnxruntime.InferenceSession(content, other, providers=["CPUExecutionProvider"]),
    ]
    for rows in FEW_ROWS:
        batches = np.random.default_rng(1).standard_normal((300, rows, FEATURES), dtype=np.float32)
        actual, expected = (session.run(None, {"x": batches[0]}) for session in sessions)
        assert np.array_equal(actual[0], expected[0]), "the strings differ"
        calls = [partial(_run, session) for session in sessions]
        mine, theirs = microseconds(calls, list(batches))
        print(f"{label} {rows:5d} {mine:10.1f} {theirs:17.1f} {mine / theirs:7.2f}", flush=True)


def _run(session: Any, x: np.ndarray) -> Any:
    return session.run(None, {"x": x})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--same", action="store_true", help="call with the same rows again and again")
    parser.add_argument("--labels", action="store_true", help="classifiers whose labels are strings")
    parser.add_argument("--paths", action="store_true", help="paths through trees as strings")
    arguments = parser.parse_args()
    if arguments.labels or arguments.paths:
        compare_labels() if arguments.labels else compare_paths()
        return
    same = arguments.same
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
