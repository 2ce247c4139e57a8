"""Decision trees, several of a row at a time: beside ONNX Runtime, of all numbers of trees and ways to compare."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 6
COLUMNS = (
    *("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids"),
    "missing_value_tracks_true",
)


def _forest(trees: int, depth: int, modes: tuple[str, ...], missing: bool, seed: int) -> onnx.ModelProto:
    """Trees that are deeper on one side, one of nothing but a leaf among them."""
    rng = np.random.default_rng(seed)
    nodes: list[list[object]] = []
    votes: list[tuple[int, int, float]] = []

    def grow(tree: int, left: int) -> int:
        name = sum(row[0] == tree for row in nodes)
        if left == 0 or (name and rng.random() < 0.25):
            nodes.append([tree, name, 0, "LEAF", 0.0, 0, 0, 0])
            votes.append((tree, name, float(rng.integers(-8, 8))))
            return name
        row = [tree, name, int(rng.integers(FEATURES)), str(rng.choice(modes)), float(rng.integers(-2, 3)), 0, 0, 0]
        row[7] = int(missing and rng.random() < 0.5)
        nodes.append(row)
        row[5], row[6] = grow(tree, left - 1), grow(tree, left - 1)
        return name

    for tree in range(trees):
        grow(tree, 0 if tree == 2 else depth)
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


@pytest.mark.parametrize(
    ("trees", "modes", "missing"),
    [
        *((count, MODES[:1], False) for count in (1, 2, 7, 8, 9, 19)),
        *((9, (mode,), False) for mode in MODES[1:]),
        (9, MODES[:1], True),
        (19, MODES, False),
    ],
)
def test_forests_are_as_onnxruntime_computes_them(trees: int, modes: tuple[str, ...], missing: bool) -> None:
    model = _forest(trees, 5, modes, missing, seed=trees + len(modes))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = mirlo.compile(model)
    rng = np.random.default_rng(0)
    for rows in (1, 3, 200):
        # Whole numbers meet thresholds, and sums of whole numbers are the same in any order.
        x = rng.integers(-3, 4, (rows, FEATURES)).astype(np.float32)
        if missing:
            x[rng.random(x.shape) < 0.2] = np.nan
        np.testing.assert_array_equal(compiled(x), session.run(None, {"x": x})[0])
    assert compiled(np.zeros((0, FEATURES), np.float32)).shape == (0, 1)
