"""ai.onnx.ml: models made at random, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError
from mirlo.testing import oracle

KINDS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64}
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def model(operator: str, given: dict[str, Any], outputs: dict[str, int], version: int, **attributes: Any) -> Any:
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for name, x in given.items()
    ]
    node = helper.make_node(operator, list(given), list(outputs), domain="ai.onnx.ml", **attributes)
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "g", inputs, results)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def same(
    operator: str, *given: Any, outputs: dict[str, int] | None = None, version: int = 3, **attributes: Any
) -> None:
    """Check that Mirlo and ONNX Runtime compute the same for one node."""
    named = {f"x{i}": array for i, array in enumerate(given)}
    made = model(operator, named, outputs or {"y": TensorProto.FLOAT}, version, **attributes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, named)
    found = mirlo.compile(made)(*given)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        other = np.asarray(other)
        assert one.shape == other.shape
        if other.dtype.kind in "OUi":
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def grid(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers that often are equal to thresholds."""
    return np.float32(np.random.default_rng(seed).integers(-4, 5, shape) / 2)


X = grid(40, 3)
LABELS = {"y": TensorProto.INT64, "z": TensorProto.FLOAT}
WORDS = {"y": TensorProto.STRING, "z": TensorProto.FLOAT}


def forest(kind: str, targets: int, trees: int = 4, seed: int = 0, positive: bool = False) -> dict[str, Any]:
    """Return random trees, as the operators before version 5 store them."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    votes: list[tuple[Any, ...]] = []

    def grow(tree: int, depth: int) -> int:
        name = sum(row[0] == tree for row in rows)
        at = len(rows)
        if depth == 0 or rng.random() < 0.2:
            rows.append((tree, name, 0, "LEAF", 0.0, 0, 0, 0))
            for target in rng.choice(targets, rng.integers(1, targets + 1), replace=False):
                votes.append((tree, name, int(target), float(rng.uniform(0 if positive else -1, 1))))
            return name
        rows.append(())
        rows[at] = (tree, name)
        mode = str(rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]))
        split, feature, missing = float(rng.integers(-2, 3) / 2), int(rng.integers(3)), int(rng.integers(2))
        sides = grow(tree, depth - 1), grow(tree, depth - 1)
        rows[at] = (tree, name, feature, mode, split, missing, *sides)
        return name

    for tree in range(trees):
        grow(tree, 3)
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "modes",
        "values",
        "missing_value_tracks_true",
        "truenodeids",
        "falsenodeids",
    )
    made: dict[str, Any] = {
        f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    columns = list(zip(*votes, strict=True))
    return made | {
        f"{kind}_{name}": list(c) for name, c in zip(("treeids", "nodeids", "ids", "weights"), columns, strict=True)
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressor(aggregate: str) -> None:
    trees = forest("target", 2, seed=3)
    x = X.copy()
    x[::7, 1] = np.nan
    same("TreeEnsembleRegressor", x, n_targets=2, aggregate_function=aggregate, **trees)
    same("TreeEnsembleRegressor", X, n_targets=2, aggregate_function=aggregate, base_values=[0.5, -2.0], **trees)


@pytest.mark.sample(4)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_classifier(transform: str) -> None:
    trees = forest("class", 3, seed=4, positive=transform == "PROBIT")
    same("TreeEnsembleClassifier", X, outputs=LABELS, classlabels_int64s=[7, 3, 5], post_transform=transform, **trees)
    same("TreeEnsembleClassifier", X, outputs=WORDS, classlabels_strings=["a", "b", "c"], **trees)


@pytest.mark.sample(2)
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes_of_one_score(transform: str, positive: bool) -> None:
    if transform == "LOGISTIC" and positive and oracle.is_old():
        pytest.skip("this ONNX Runtime does not transform two scores")
    trees = forest("class", 1, seed=5, positive=positive)
    same("TreeEnsembleClassifier", X, outputs=LABELS, classlabels_int64s=[0, 1], post_transform=transform, **trees)


@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
def test_nodes_and_weights_in_any_order(aggregate: str) -> None:
    """Nodes follow the root of their tree in any order, with any names; trees have any numbers."""
    trees, rng = forest("target", 2, seed=5), np.random.default_rng(5)
    names = rng.permutation(len(trees["nodes_nodeids"]))
    numbers = np.array([7, -3, 12, 5])
    for name in [name for name in trees if name.endswith("nodeids")]:
        trees[name] = names[trees[name]].tolist()
    members = [np.flatnonzero(np.array(trees["nodes_treeids"]) == tree) for tree in range(4)]
    order = np.concatenate([[nodes[0], *rng.permutation(nodes[1:])] for nodes in members])
    weights = rng.permutation(len(trees["target_ids"]))
    for name, values in trees.items():
        values = numbers[values] if name.endswith("treeids") else values
        trees[name] = np.array(values)[order if name.startswith("nodes") else weights].tolist()
    same("TreeEnsembleRegressor", X, n_targets=2, aggregate_function=aggregate, **trees)


def test_trees_in_double_and_on_integers() -> None:
    trees = forest("target", 1, seed=6)
    same("TreeEnsembleRegressor", np.float64(X), n_targets=1, **trees)
    same("TreeEnsembleClassifier", np.int64(X), outputs=LABELS, classlabels_int64s=[1, 2, 3], **forest("class", 3))


def test_hostile_trees_are_refused() -> None:
    trees = forest("target", 1, seed=6)
    at = trees["nodes_modes"].index("LEAF")
    inner = next(i for i, mode in enumerate(trees["nodes_modes"]) if mode != "LEAF")
    circle = trees | {"nodes_truenodeids": list(trees["nodes_truenodeids"])}
    circle["nodes_truenodeids"][inner] = trees["nodes_nodeids"][inner]
    with pytest.raises(OnnxImportError, match="the trees have a cycle"):
        mirlo.compile(model("TreeEnsembleRegressor", {"x": X}, {"y": 1}, 3, n_targets=1, **circle))
    lost = trees | {"nodes_falsenodeids": list(trees["nodes_falsenodeids"])}
    lost["nodes_falsenodeids"][inner] = 999
    with pytest.raises(OnnxImportError, match="node 999 of tree 0 is named, but does not exist"):
        mirlo.compile(model("TreeEnsembleRegressor", {"x": X}, {"y": 1}, 3, n_targets=1, **lost))
    assert at >= 0


BRANCHES: dict[str, list[int]] = {
    "nodes_featureids": [0, 2], "nodes_truenodeids": [1, 1], "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [0, 2],
    "nodes_falseleafs": [1, 1], "tree_roots": [0], "leaf_targetids": [0, 1, 1],
}  # fmt: skip
"""A root with a leaf and a node of two leaves."""
ENDS = {
    "nodes_featureids": [(0, X.shape[1]), (1, X.shape[1])], "nodes_truenodeids": [(0, 2), (1, 3)],
    "nodes_falsenodeids": [(0, 3), (1, 3)], "tree_roots": [(0, 2)], "leaf_targetids": [(0, 2), (2, 2)],
}  # fmt: skip
"""The first number after those that each place of these may have."""


def branches(**changed: list[int]) -> onnx.ModelProto:
    """Return a model of BRANCHES with other numbers."""
    tables = {
        "nodes_modes": np.zeros(2, np.uint8), "nodes_splits": np.float32([0.5, -1]),
        "leaf_weights": np.float32([1, 2, 4]),
    }  # fmt: skip
    tensors = {name: numpy_helper.from_array(array, name) for name, array in tables.items()}
    return model("TreeEnsemble", {"x": X}, {"y": 1}, 5, n_targets=2, **{**BRANCHES, **changed}, **tensors)


@pytest.mark.parametrize(("name", "at", "end"), [(name, *place) for name, places in ENDS.items() for place in places])
def test_numbers_of_trees_at_their_limits(name: str, at: int, end: int) -> None:
    """The compiled code follows what the tables of a file say without a test."""
    values = list(BRANCHES[name])
    for value in (end, end + 1, 2**31, 2**40, -(2**31), -99):
        values[at] = value
        with pytest.raises(OnnxImportError):
            mirlo.compile(branches(**{name: values}))(X)
    values[at] = end - 1
    if name in ("nodes_truenodeids", "tree_roots") and at == 0:
        values[at] = 1  # the last node
    assert mirlo.compile(branches(**{name: values}))(X).shape == (len(X), 2)


def test_features_that_the_rows_of_a_call_lack() -> None:
    trees = branches()
    shape = trees.graph.input[0].type.tensor_type.shape
    for dim, name in zip(shape.dim, ("rows", "columns"), strict=True):
        dim.dim_param = name
    compiled = mirlo.compile(trees)
    with pytest.raises(ValueError, match=r"the trees compare feature 2, counted from 0, and the input has columns col"):
        compiled(X[:, :2])
    np.testing.assert_array_equal(compiled(np.concatenate([X, X], 1)), compiled(X))


@pytest.mark.sample(3)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear(transform: str) -> None:
    rng = np.random.default_rng(1)
    coefficients, intercepts = rng.uniform(-1, 1, 9).tolist(), [0.1, -0.2, 0.3]
    if transform != "PROBIT":
        same(
            "LinearRegressor", X, coefficients=coefficients, intercepts=intercepts, targets=3, post_transform=transform
        )
        given = {"coefficients": coefficients, "intercepts": intercepts, "post_transform": transform}
        same("LinearClassifier", X, outputs=LABELS, classlabels_ints=[4, 5, 6], **given)
    if transform == "NONE" or (transform == "LOGISTIC" and not oracle.is_old()):
        given = {"coefficients": coefficients[:3], "intercepts": [0.5], "post_transform": transform}
        same("LinearClassifier", X, outputs=WORDS, classlabels_strings=["no", "yes"], **given)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_vectors(kernel: str) -> None:
    rng = np.random.default_rng(2)
    shared = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0]}
    vectors = rng.uniform(-1, 1, 18).tolist()
    given = shared | {"support_vectors": vectors, "coefficients": rng.uniform(-1, 1, 6).tolist(), "n_supports": 6}
    same("SVMRegressor", X, rho=[0.2], **given)
    same("SVMRegressor", X, rho=[0.2], one_class=1, **given)
    for labels in ([3, 1], [5, 6, 7]):
        count = len(labels)
        sizes = [6 // count] * count
        given = shared | {
            "support_vectors": vectors,
            "coefficients": rng.uniform(-1, 1, 6 * (count - 1)).tolist(),
            "rho": rng.uniform(-0.1, 0.1, count * (count - 1) // 2).tolist(),
        }
        for transform in ("NONE", "LOGISTIC") if count > 2 else ("NONE",):
            shared_given = given | {"post_transform": transform, "vectors_per_class": sizes}
            same("SVMClassifier", X, outputs=LABELS, classlabels_ints=labels, **shared_given)


@pytest.mark.sample(0)
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_votes_that_tie(classes: int) -> None:
    """Compare labels where comparisons are exactly 0 and classes have as many votes: all values are exact."""
    for seed in range(3):
        rng = np.random.default_rng([seed, classes])
        sizes = [int(size) for size in rng.integers(1, 4, classes)]
        given: dict[str, Any] = {
            "kernel_type": "LINEAR",
            "kernel_params": [0.0, 0.0, 0.0],
            "vectors_per_class": sizes,
            "support_vectors": rng.choice([-0.5, 0.0, 0.5, 1.0], sum(sizes) * 3).tolist(),
            "coefficients": rng.choice([-1.0, -0.5, 0.5, 1.0], sum(sizes) * (classes - 1)).tolist(),
            "rho": [0.0] * (classes * (classes - 1) // 2),
        }
        same("SVMClassifier", X, outputs=LABELS, classlabels_ints=list(range(classes)), **given)


@pytest.mark.sample(4)
@pytest.mark.parametrize("probable", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_vectors_of_classes(classes: int, probable: bool) -> None:
    """Compare classes, scores and probabilities of all kernels and transforms."""
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    cases = list(zip(("LINEAR", "POLY", "RBF", "SIGMOID", "RBF"), TRANSFORMS, strict=True))
    for kernel, transform in cases if classes == 3 else cases[1 + classes % 2 :: 2]:
        sizes = [int(size) for size in rng.integers(1, 5, classes)]
        given: dict[str, Any] = {
            "kernel_type": kernel,
            "kernel_params": [0.3, 0.5, 2.0],
            "post_transform": transform if probable or transform != "PROBIT" or classes > 2 else "NONE",
            "vectors_per_class": sizes,
            "support_vectors": rng.uniform(-1, 1, sum(sizes) * 3).tolist(),
            "coefficients": rng.uniform(-1, 1, sum(sizes) * (classes - 1)).tolist(),
            "rho": rng.uniform(-0.2, 0.2, pairs).tolist(),
        }
        if probable:
            given |= {"prob_a": rng.uniform(-3, -0.5, pairs).tolist(), "prob_b": rng.uniform(-0.3, 0.3, pairs).tolist()}
        text, words, numbers = kernel == "POLY", list("abcde"[:classes]), list(range(classes))
        labels = {"classlabels_strings": words} if text else {"classlabels_ints": numbers}
        x = rng.normal(size=(17, 3)).astype(np.float32)
        same("SVMClassifier", x, outputs=WORDS if text else LABELS, **given, **labels)


@pytest.mark.sample(2)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_classes_without_vectors(classes: int) -> None:
    rng = np.random.default_rng(classes)
    for least, transform, probable in ((-1, "NONE", False), (0, "NONE", False), (-1, "SOFTMAX", True)):
        pairs = classes * (classes - 1) // 2
        given: dict[str, Any] = {
            "coefficients": rng.uniform(least, 1, classes * 3).tolist(),
            "rho": [float(rng.normal())],
            "post_transform": transform,
            "classlabels_ints": [7, 3, 5][:classes],
            "kernel_type": "LINEAR",
            "kernel_params": [0.0, 0.0, 0.0],
        }
        if probable and pairs:
            given |= {"prob_a": [-1.0] * pairs, "prob_b": [0.5] * pairs}
        same("SVMClassifier", X, outputs=LABELS, **given)


def test_hostile_vectors_are_refused() -> None:
    good: dict[str, Any] = {
        "classlabels_ints": [1, 2],
        "vectors_per_class": [1, 1],
        "support_vectors": [0.5] * 6,
        "coefficients": [0.5, -0.5],
        "rho": [0.1],
    }
    for wrong, said in (
        ({"prob_a": [1.0]}, "'prob_a' and 'prob_b' must be of one length, got 1 and 0"),
        ({"prob_a": [1.0, 2.0], "prob_b": [1.0, 2.0]}, "'prob_a' must have 1 numbers"),
        ({"vectors_per_class": [3, -1]}, "'vectors_per_class' must have 2 sizes"),
        ({"rho": []}, "'rho' must have 1 numbers"),
        ({"support_vectors": [0.5]}, "'support_vectors' must have 2 x 3 numbers, got 1"),
        ({"post_transform": "PROBIT"}, "'PROBIT' needs probabilities"),
    ):
        given = {name: value for name, value in (good | wrong).items() if value != []}
        with pytest.raises(OnnxImportError, match=said if wrong != {"rho": []} else "rho"):
            mirlo.compile(model("SVMClassifier", {"x": X}, LABELS, 3, **given))


def test_features() -> None:
    same("Scaler", X, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0])
    same("Scaler", np.int64(X), offset=[1.0], scale=[0.5])
    for norm in ("MAX", "L1", "L2"):
        same("Normalizer", np.abs(X) + (norm != "MAX"), norm=norm)
    same("Normalizer", np.zeros((2, 3), np.float32), norm="L2")
    same("Binarizer", X, threshold=0.5)
    holes = X.copy()
    holes[3:9] = np.nan
    same("Imputer", holes, replaced_value_float=float("nan"), imputed_value_floats=[1.0, 2.0, 3.0])
    same("Imputer", np.int64(X), outputs={"y": TensorProto.INT64}, replaced_value_int64=1, imputed_value_int64s=[9])
    same("FeatureVectorizer", X, grid(40, 2), inputdimensions=[3, 2])
    same("ArrayFeatureExtractor", X, np.int64([2, 0]))
    words = np.array(["a", "b", "c"], object)
    same("ArrayFeatureExtractor", words, np.int64([2, 0, 0]), outputs={"y": TensorProto.STRING})


def test_encoders() -> None:
    words = np.array([["a", "b"], ["c", "zz"]], object)
    numbers = np.int64([[1, 2], [3, 9]])
    whole, text = {"y": TensorProto.INT64}, {"y": TensorProto.STRING}
    keys = {"keys_strings": ["a", "b", "c"]}
    same("LabelEncoder", words, outputs=whole, version=2, values_int64s=[5, 6, 7], default_int64=-3, **keys)
    same("LabelEncoder", words, version=2, values_floats=[0.5, 6.0, 7.0], default_float=2.5, **keys)
    same("LabelEncoder", words, outputs=text, version=2, values_strings=["x", "y", "z"], **keys)
    same("LabelEncoder", numbers, outputs=text, version=2, keys_int64s=[3, 1, 2], values_strings=["x", "y", "z"])
    classes = {"classes_strings": ["b", "a", "zz", "b"]}
    same("LabelEncoder", words, outputs=whole, version=1, default_int64=-3, **classes)
    same("LabelEncoder", np.int64([[0, 3], [-1, 4]]), outputs=text, version=1, default_string="none", **classes)
    floats = np.float32([1.5, np.nan, 2.5])
    given = {"keys_floats": [2.5, float("nan")], "values_int64s": [4, 8], "default_int64": 1}
    same("LabelEncoder", floats, outputs=whole, version=4, **given)
    mapping = {"cats_strings": ["a", "b", "c"], "cats_int64s": [9, 3, 1]}
    same("CategoryMapper", words, outputs=whole, default_int64=-1, **mapping)
    same("CategoryMapper", numbers, outputs=text, default_string="none", **mapping)
    same("OneHotEncoder", numbers, cats_int64s=[3, 1, 2], zeros=1)
    same("OneHotEncoder", words, cats_strings=["b", "a"], zeros=1)


def test_find_sorted_in_many_keys() -> None:
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context

    x = np.int64([-5, 0, 1, 2, 996, 998, 999, 5000])
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse("""
          func.func @main(%x: tensor<8xi64>, %keys: tensor<500xi64>) -> tensor<8xi64> {
            %0 = "relax.find_sorted"(%x, %keys) : (tensor<8xi64>, tensor<500xi64>) -> tensor<8xi64>
            return %0 : tensor<8xi64>
          }""")
        found = mirlo.compile(module)(x, np.arange(500) * 2)
    assert found.tolist() == [-1, 0, -1, 1, 498, 499, -1, -1]
