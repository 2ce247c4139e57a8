"""Decision trees: sums, ties and labels fall as in ONNX Runtime on one thread, bit for bit where it only adds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import mirlo
from mirlo.testing import oracle

FEATURES = 3
KINDS = {"f32": np.float32, "f64": np.float64}
WEIGHTS = {
    "tied": (-1.0, -0.5, 0.0, 0.5, 1.0),  # sums are exact, and often equal
    "rounded": (-0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.7),  # sums depend on the order and the type of accumulators
    "positive": (0.0, 0.1, 0.125, 0.25, 0.5),
}


def _trees(kind: str, targets: tuple[int, ...], weights: tuple[float, ...], sparse: bool, rng: Any) -> dict[str, Any]:
    """Return random trees with leaves for some targets, all of them unless `sparse`."""
    nodes: list[list[Any]] = []
    votes: list[tuple[Any, ...]] = []

    def grow(tree: int, depth: int) -> int:
        name = sum(row[0] == tree for row in nodes)
        if depth == 0 or rng.random() < 0.2:
            nodes.append([tree, name, 0, "LEAF", float(rng.choice((0.0, 0.25))), 0, 0])
            chosen = rng.permutation(targets)[: int(rng.integers(0 if sparse else len(targets), len(targets) + 1))]
            votes.extend((tree, name, int(target), float(rng.choice(weights))) for target in chosen)
            return name
        row = [tree, name, int(rng.integers(FEATURES)), str(rng.choice(("BRANCH_LEQ", "BRANCH_LT")))]
        row += [float(rng.choice((-0.5, 0.1, 0.5))), 0, 0]
        nodes.append(row)
        row[5], row[6] = grow(tree, depth - 1), grow(tree, depth - 1)
        return name

    for tree in range(int(rng.integers(1, 20))):
        grow(tree, 2)
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    made = {f"nodes_{name}": list(c) for name, c in zip(names, zip(*nodes, strict=True), strict=True)}
    if not votes:
        votes.append((0, nodes[0][1], targets[0], 0.5))
    columns = list(zip(*votes, strict=True))
    return made | {
        f"{kind}_{n}": list(c) for n, c in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)
    }


def _both(operator: str, kind: str, cases: list[dict[str, Any]], version: int = 3) -> Any:
    """Return what Mirlo and ONNX Runtime compute for a batch of rows: a model with a node for each case."""
    rng = np.random.default_rng(3)
    x = rng.choice(np.array([-1.0, -0.5, 0.1, 0.3, 0.5, 2.0], KINDS[kind]), (16, FEATURES)).astype(KINDS[kind])
    results = ("y", "z") if operator == "TreeEnsembleClassifier" else ("y",)
    names = [[f"{name}{i}" for name in results] for i in range(len(cases))]
    nodes = [
        helper.make_node(operator, ["x"], outputs, domain="ai.onnx.ml", **attributes)
        for outputs, attributes in zip(names, cases, strict=True)
    ]
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", element, ("n", FEATURES))],
        [helper.make_empty_tensor_value_info(name) for outputs in names for name in outputs],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    found = mirlo.compile(model, jobs=1).run({"x": x})
    by_name = zip((name for outputs in names for name in outputs), map(np.asarray, expected), strict=True)
    wanted = dict(by_name)
    return [([found[name] for name in outputs], [wanted[name] for name in outputs]) for outputs in names]


def _check(found: Any, expected: Any, exact: bool, written: slice = slice(None)) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if other.dtype.kind in "OUi":
            assert one.tolist() == other.tolist()
        elif exact:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        else:
            # PROBIT subtracts numbers that are nearly equal.
            np.testing.assert_allclose(one[:, written], other[:, written], rtol=2e-4, atol=2e-5)


CLASSES = {
    "one": (1, (0,)), "first of two": (2, (0,)), "second of two": (2, (1,)), "two": (2, (0, 1)),
    "three": (3, (0, 1, 2)), "two of three": (3, (0, 2)),
}  # fmt: skip
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@pytest.mark.sample(0)
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_classes(classes: str, weights: str) -> None:
    """Compare labels and scores of models with sparse and dense leaves, base values, labels of both kinds."""
    count, voted = CLASSES[classes]
    kinds = ("f32", "f64") if weights == "rounded" else ("f32",)
    cases = product((False, True), range(count + 1), kinds, (False, True))
    models: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for seed, (sparse, bases, kind, is_text) in enumerate(cases):
        if is_text and (sparse or kind == "f64"):
            continue  # a sample: each node is a kernel to compile
        if (is_text and count == 1) or (count > 2 and (bases not in (0, count) or (sparse and not bases))):
            continue  # ONNX Runtime reads a second label, takes no such bases, or stops where a row reaches no class
        given = _trees("class", voted, WEIGHTS[weights], sparse, np.random.default_rng([seed, count, len(voted)]))
        given |= (
            {"classlabels_strings": ["a", "b", "c"][:count]} if is_text else {"classlabels_int64s": [7, 3, 5][:count]}
        )
        if bases:
            given["base_values"] = np.random.default_rng(seed).choice((0.0, 0.5, -0.5), bases).tolist()
        models[kind].append(given)
    for kind, nodes in models.items():
        for found, expected in _both("TreeEnsembleClassifier", kind, nodes):
            _check(found, expected, exact=True)


@pytest.mark.sample(0)
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("transform", TRANSFORMS[1:])
def test_transforms_of_classes(classes: str, transform: str) -> None:
    count, voted = CLASSES[classes]
    nodes, is_written = [], []
    weights, sparse = "positive" if transform == "SOFTMAX_ZERO" else "rounded", count < 3
    for seed, bases in enumerate(sorted({0, 1, 2, count})):
        if (bases not in (0, count) if count > 2 else bases > count) or (count > 2 and sparse and not bases):
            continue
        given = _trees("class", voted, WEIGHTS[weights], sparse, np.random.default_rng([seed, count, len(voted)]))
        given |= {"classlabels_int64s": [7, 3, 5][:count], "post_transform": transform}
        if bases:
            given["base_values"] = [0.5, -0.25, 0.0][:bases]
        nodes.append(given)
        # Where one score is made two, ONNX Runtime may leave the second one unwritten.
        is_written.append(count != 2 or bases == 2 or (transform != "PROBIT" and not (bases and voted == (0, 1))))
    for (found, expected), both in zip(_both("TreeEnsembleClassifier", "f32", nodes), is_written, strict=True):
        _check(found, expected, exact=False, written=slice(None) if both else slice(0, 1))


@pytest.mark.sample(0)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2, 3])
def test_targets(targets: int, aggregate: str) -> None:
    voted = tuple(range(targets))
    models: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for seed, (weights, sparse, has_base, kind, transform) in enumerate(
        [
            *product(("tied",), (False, True), (False, True), ("f32",), ("NONE",)),
            *(("rounded", sparse, not sparse, kind, "NONE") for sparse, kind in product((False, True), KINDS)),
            *product(("rounded",), (True,), (targets > 1,), ("f32",), TRANSFORMS[1:] if aggregate == "SUM" else ()),
        ]
    ):
        given = _trees("target", voted, WEIGHTS[weights], sparse, np.random.default_rng([seed, targets]))
        given |= {"n_targets": targets, "aggregate_function": aggregate, "post_transform": transform}
        if has_base:
            given["base_values"] = [0.5, -0.25, 0.1][:targets]
        models[kind].append(given)
    for kind, nodes in models.items():
        for given, (found, expected) in zip(nodes, _both("TreeEnsembleRegressor", kind, nodes), strict=True):
            _check(found, expected, exact=given["post_transform"] == "NONE")


@oracle.needs_new
@pytest.mark.sample(0)
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("targets", [1, 3])
def test_targets_of_version_5(targets: int, aggregate: int) -> None:
    """Leave out SOFTMAX and LOGISTIC, for which ONNX Runtime takes the numbers of each other."""
    models: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for seed, (weights, kind, transform) in enumerate(product(("rounded",), KINDS, (0, 3, 4))):
        rng, trees = np.random.default_rng([seed, targets]), int(np.random.default_rng(seed).integers(1, 20))
        # Each tree: a root with a leaf and a node of two leaves.
        nodes = {
            "nodes_featureids": rng.integers(0, FEATURES, 2 * trees).tolist(),
            "nodes_truenodeids": [i for t in range(trees) for i in (3 * t, 3 * t + 1)],
            "nodes_trueleafs": [1, 1] * trees,
            "nodes_falsenodeids": [i for t in range(trees) for i in (2 * t + 1, 3 * t + 2)],
            "nodes_falseleafs": [0, 1] * trees,
            "tree_roots": list(range(0, 2 * trees, 2)),
            "leaf_targetids": rng.integers(0, targets, 3 * trees).tolist(),
        }
        dtype = KINDS[kind]
        tensors = {
            "nodes_modes": np.zeros(2 * trees, np.uint8),
            "nodes_splits": rng.choice((-0.5, 0.1, 0.5), 2 * trees).astype(dtype),
            "leaf_weights": rng.choice(WEIGHTS[weights], 3 * trees).astype(dtype),
        }
        given = nodes | {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
        given |= {"n_targets": targets, "aggregate_function": aggregate, "post_transform": transform}
        models[kind].append(given)
    for kind, cases in models.items():
        for given, (found, expected) in zip(cases, _both("TreeEnsemble", kind, cases, version=5), strict=True):
            _check(found, expected, exact=given["post_transform"] == 0)


@pytest.mark.sample(0)
def test_long_forests_add_in_order() -> None:
    """Sum enough trees that any other order of addition rounds differently."""
    rng = np.random.default_rng(0)
    for targets in (1, 4):
        trees = _trees("target", tuple(range(targets)), tuple(rng.standard_normal(50).tolist()), False, rng)
        one = {name: [] for name in trees}  # type: dict[str, list[Any]]
        for _ in range(20):
            more = _trees("target", tuple(range(targets)), tuple(rng.standard_normal(50).tolist()), False, rng)
            first = max(one["nodes_treeids"], default=-1) + 1
            for name, column in more.items():
                one[name] += [first + i for i in column] if name.endswith("treeids") else column
        ((found, expected),) = _both("TreeEnsembleRegressor", "f32", [one | {"n_targets": targets}])
        _check(found, expected, exact=True)
