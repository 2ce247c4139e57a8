"""Decision trees, several rows or trees at a time, compared with ONNX Runtime: all sizes and comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.passes.rules import Decline
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.targets.llvm.cpus import CPUS
from mirlo.targets.llvm.trees.layout import UpperLevels, upper_levels

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 6
COLUMNS = (
    *("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids"),
    "missing_value_tracks_true",
)


def _forest(
    trees: int, depth: int, modes: tuple[str, ...], missing: bool, seed: int, targets: int = 1, aggregate: str = "SUM"
) -> onnx.ModelProto:
    """Trees that are deeper on one side, one of nothing but a leaf among them."""
    rng = np.random.default_rng(seed)
    nodes: list[list[object]] = []
    votes: list[tuple[int, int, int, float]] = []

    def grow(tree: int, left: int) -> int:
        name = sum(row[0] == tree for row in nodes)
        if left == 0 or (name and rng.random() < 0.25):
            nodes.append([tree, name, 0, "LEAF", 0.0, 0, 0, 0])
            votes.extend((tree, name, target, float(rng.integers(-8, 8))) for target in range(targets))
            return name
        row = [tree, name, int(rng.integers(FEATURES)), str(rng.choice(modes)), float(rng.integers(-2, 3)), 0, 0, 0]
        row[7] = int(missing and rng.random() < 0.5)
        nodes.append(row)
        row[5], row[6] = grow(tree, left - 1), grow(tree, left - 1)
        return name

    for tree in range(trees):
        grow(tree, 0 if tree == 2 else depth)
    columns = {f"nodes_{name}": list(column) for name, column in zip(COLUMNS, zip(*nodes, strict=True), strict=True)}
    ids, leaves, places, weights = (list(column) for column in zip(*votes, strict=True))
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=targets, target_treeids=ids,
        target_nodeids=leaves, target_ids=places, target_weights=weights, aggregate_function=aggregate, **columns,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", targets])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "trees", [x], [y]), opset_imports=opsets, ir_version=9)


CASES = [
    *((count, 5, MODES[:1], False) for count in (1, 2, 7, 8, 9, 19)),
    *((9, 5, (mode,), False) for mode in MODES[1:]),
    *((9, 5, (mode,), True) for mode in MODES),
    # Trees with more leaves than masks: 64 at most, then the nodes below 32.
    *((9, depth, MODES[:1], missing) for depth in (8, 10, 13) for missing in (False, True)),
    (19, 5, MODES, False),
]


def _agree(model: onnx.ModelProto, missing: bool, compiled: mirlo.Executable) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for rows in (1, 3, 4, 16, 19, 20, 63, 64, 81, 200):
        # Whole numbers meet thresholds, and sums of whole numbers are the same in any order.
        x = rng.integers(-3, 4, (rows, FEATURES)).astype(np.float32)
        if missing:
            x[rng.random(x.shape) < 0.2] = np.nan
        np.testing.assert_array_equal(compiled(x), session.run(None, {"x": x})[0])


@pytest.mark.sample(12)
@pytest.mark.parametrize(("trees", "depth", "modes", "missing"), CASES)
def test_forests_are_as_onnxruntime_computes_them(
    trees: int, depth: int, modes: tuple[str, ...], missing: bool
) -> None:
    model = _forest(trees, depth, modes, missing, seed=trees + len(modes))
    compiled = mirlo.compile(model)
    _agree(model, missing, compiled)
    assert compiled(np.zeros((0, FEATURES), np.float32)).shape == (0, 1)


@pytest.mark.sample(8)
@pytest.mark.parametrize("depth", [4, 6, 9])
@pytest.mark.parametrize(("targets", "aggregate"), [(3, "SUM"), (1, "MIN"), (1, "MAX"), (2, "MAX"), (17, "AVERAGE")])
def test_all_targets_and_aggregates(targets: int, aggregate: str, depth: int) -> None:
    model = _forest(8, depth, MODES[:1], True, seed=depth, targets=targets, aggregate=aggregate)
    _agree(model, True, mirlo.compile(model))


@pytest.mark.sample(3)
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("depth", [5, 9])
def test_vectors_of_all_lengths(cpu: str, depth: int) -> None:
    model = _forest(9, depth, MODES[:1], True, seed=depth, targets=2)
    compiled = mirlo.compile(model, target=f"llvm{{cpu={cpu}}}")
    if isinstance(compiled, UnloadedModel):  # this machine has no such vectors
        assert not CPUS[cpu].features <= host_cpu().features and compiled.artifact.kernels
    else:
        _agree(model, True, compiled)


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_of_a_static_batch(threads: int) -> None:
    model = _forest(9, 7, MODES[:1], False, seed=3)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (2, 4, 5, 6, 15, 16, 17, 67, 79, 80):
        x = np.random.default_rng(rows).integers(-3, 4, (rows, FEATURES)).astype(np.float32)
        compiled = mirlo.compile(model, shapes={"x": (rows, FEATURES)}, threads=threads)
        np.testing.assert_array_equal(compiled(x), session.run(None, {"x": x})[0])


def _columns(model: onnx.ModelProto, *names: str) -> list[list[object]]:
    attributes = {each.name: helper.get_attribute_value(each) for each in model.graph.node[0].attribute}
    return [list(attributes[name]) for name in names]


@pytest.mark.parametrize("threads", [1, 2])
def test_features_that_do_not_fit_the_l1_cache(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FEATURES", 700)
    model = _forest(20, 6, MODES[:1], True, seed=3)
    used = {feature for feature, how in zip(*_columns(model, "nodes_featureids", "nodes_modes"), strict=True)
            if how != b"LEAF"}  # fmt: skip
    compiled = mirlo.compile(model, threads=threads)
    profile = compiled.profile(np.ones((16, FEATURES), np.float32))
    assert 256 < len(used) <= 1024 and "tree_ensemble_masks" in str(profile)
    _agree(model, True, compiled)


def _walked(tables: tuple[np.ndarray, ...], root: int, row: np.ndarray, mode: int) -> int:
    """Return the leaf that a row reaches, as -1 - its number."""
    thresholds, nodes = tables
    compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)[mode & 7]
    while root >= 0:
        feature, how, holds, fails = nodes[root]
        value = row[feature]
        nan = bool((how if mode & NAN_BY_NODE else mode) & 8) and np.isnan(value)
        root = int(holds if nan or compare(value, thresholds[root]) else fails)
    return root


@pytest.mark.parametrize("seed", range(30))
def test_the_first_exit_that_no_node_excludes_is_the_one_taken(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mode = int(rng.integers(6)) + int(rng.choice([0, 8, NAN_BY_NODE]))
    size, lanes = int(rng.choice([1, 20, 31, 40, 63, 64, 200])), int(rng.choice([4, 8, 16]))
    nodes = np.zeros((size, 4), np.int32)
    nodes[:, 0], nodes[:, 1] = rng.integers(FEATURES, size=size), rng.choice([0, 8], size)
    nodes[:, 2:] = -1 - np.arange(2 * size).reshape(size, 2)
    for node in range(1, size):  # each node takes the place of a leaf above it
        open_places = np.argwhere(nodes[:node, 2:] < 0)
        parent, side = open_places[rng.integers(len(open_places))]
        nodes[parent, 2 + side] = node
    thresholds = rng.integers(-2, 3, size).astype(np.float32)
    upper = upper_levels(thresholds, nodes, np.array([0, -1], np.int32), mode, FEATURES, 2 * size, lanes)
    assert isinstance(upper, UpperLevels)
    assert len(upper.words) == 3 and upper.exits[upper.words[1] :].tolist() == [[-1] * 32]
    rows = rng.integers(-3, 4, (50, FEATURES)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    for row in rows:
        groups = 2 if mode & NAN_BY_NODE else 1
        found = 0
        for word in range(upper.words[1]):
            mask = 0xFFFFFFFF
            for group in range(word * groups, (word + 1) * groups):
                how = 8 if group % groups else mode & 8
                for place, bits, left in upper.records[upper.starts[group] : upper.starts[group + 1]].reshape(-1, 3):
                    tables = np.array([bits]).view(np.float32), np.array([[0, how, -2, -1]])
                    feature = row[upper.columns[place // lanes] :]
                    if _walked(tables, 0, feature, mode) == -1:
                        mask &= int(left) & 0xFFFFFFFF
            if mask:
                found = int(upper.exits[word][32 - mask.bit_length()])
        lower = upper.lower.copy()
        lower[:, 1] = np.where(upper.lower[:, 0] < 0, 8, 0)
        lower[:, 0] = upper.columns[(upper.lower[:, 0] & 0x7FFFFFFF) // lanes]
        end = _walked((upper.lower[:, 1].copy().view(np.float32), lower), found, row, mode)
        assert end == _walked((thresholds, nodes), 0, row, mode)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t, n, r: n.__setitem__((0, 0), FEATURES), "a feature that does not exist"),
        (lambda t, n, r: n.__setitem__((0, 0), -1), "a feature that does not exist"),
        (lambda t, n, r: n.__setitem__((1, 2), 3), "lead out of the tables"),
        (lambda t, n, r: n.__setitem__((1, 3), -5), "lead out of the tables"),
        (lambda t, n, r: r.__setitem__(0, 3), "lead out of the tables"),
        (lambda t, n, r: r.__setitem__(0, -1), "nothing but leaves"),
        (lambda t, n, r: t.__setitem__(2, np.nan), "some thresholds are NaN"),
    ],
)
def test_tables_that_lead_elsewhere_are_declined(change: Callable[..., None], reason: str) -> None:
    thresholds = np.zeros(3, np.float32)
    nodes = np.array([[0, 0, 1, 2], [1, 0, -1, -2], [2, 0, -3, -4]], np.int32)
    roots = np.array([0], np.int32)
    assert isinstance(upper_levels(thresholds, nodes, roots, 0, FEATURES, 4, 16), UpperLevels)
    change(thresholds, nodes, roots)
    found = upper_levels(thresholds, nodes, roots, 0, FEATURES, 4, 16)
    assert isinstance(found, Decline) and reason in str(found)


def test_a_cycle_ends_while_compiling() -> None:
    nodes = np.array([[0, 0, 1, -1], [1, 0, 0, -2]], np.int32)
    upper = upper_levels(np.zeros(2, np.float32), nodes, np.array([0], np.int32), 0, FEATURES, 2, 16)
    assert isinstance(upper, UpperLevels) and len(upper.lower) == 2
