"""ai.onnx.ml: ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN
from mirlo.frontends.onnx.ops.ml_scores import classified, transformed
from mirlo.frontends.onnx.registry import converter

MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5}
LEAF, MEMBER = "LEAF", 6
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MISSING = 8


@dataclass(frozen=True)
class Forest:
    """Trees as `relax.tree_leaves` wants them, and what each leaf adds to each target."""

    thresholds: np.ndarray
    nodes: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    """[leaves, targets]; NaN where a leaf says nothing of a target."""


@converter("TreeEnsemble", domain=DOMAIN, since=5)
def tree_ensemble(node: Node) -> Any:
    forest = _forest(node)
    scores = _scores(node, forest, _AGGREGATES[_enum(node, "aggregate_function", 1, 4)], None)
    return transformed(node, scores, _TRANSFORMS[_enum(node, "post_transform", 0, 5)])


def _enum(node: Node, name: str, default: int, count: int) -> int:
    value = node.attr.int(name, default)
    if not 0 <= value < count:
        raise NodeError(f"attribute '{name}' must be 0 to {count - 1}, got {value}")
    return int(value)


def _forest(node: Node) -> Forest:
    node.attr.ignore("nodes_hitrates")
    features = np.array(node.attr.ints("nodes_featureids"), np.int64)
    count = len(features)
    modes = node.tensor_attribute("nodes_modes").astype(np.int64).reshape(-1)
    splits = node.tensor_attribute("nodes_splits").reshape(-1)
    missing = np.array(node.attr.ints("nodes_missing_value_tracks_true", [0] * count), np.int64)
    sides = []
    for side in ("true", "false"):
        ids = np.array(node.attr.ints(f"nodes_{side}nodeids"), np.int64)
        leaves = np.array(node.attr.ints(f"nodes_{side}leafs"), np.int64)
        _same_length(count, **{f"nodes_{side}nodeids": ids, f"nodes_{side}leafs": leaves})
        sides.append(np.where(leaves != 0, -1 - ids, ids))
    _same_length(count, nodes_modes=modes, nodes_splits=splits, nodes_missing_value_tracks_true=missing)
    roots = np.array(node.attr.ints("tree_roots"), np.int64)
    # A tree of nothing but a leaf is a node whose sides are that leaf.
    leaf_weights, targets = node.tensor_attribute("leaf_weights").reshape(-1), node.attr.ints("leaf_targetids")
    _same_length(len(targets), leaf_weights=leaf_weights)
    count = node.attr.int("n_targets")
    if count < 1:
        raise NodeError(f"attribute 'n_targets' must be at least 1, got {count}")
    weights = np.full((len(targets), count), np.nan, leaf_weights.dtype)
    _require_range("leaf_targetids", targets, weights.shape[1])
    weights[np.arange(len(targets)), targets] = leaf_weights
    table = np.stack([features, modes + MISSING * (missing != 0), *sides], 1)
    if (modes == MEMBER).any():
        members = node.tensor_attribute("membership_values").reshape(-1)
        table, splits = _without_members(table, splits, members)
    else:
        node.attr.ignore("membership_values")
    return _checked(Forest(splits, table, roots, weights))


def _without_members(table: np.ndarray, splits: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rewrite membership tests to chains of equality tests; NaN ends the members of a node."""
    rows, bounds = list(map(list, table)), list(splits)
    sets: list[list[Any]] = [[]]
    for value in members:
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    groups = iter(sets)
    for i, (feature, how, yes, no) in enumerate(table):
        if how & 7 != MEMBER:
            continue
        found = next(groups, [])
        if not found:
            raise NodeError("attribute 'membership_values' has no members for a node of mode BRANCH_MEMBER")
        mode = MODES["BRANCH_EQ"] + (how & MISSING)
        at = i
        for position, value in enumerate(found):
            is_last = position == len(found) - 1
            following = no if is_last else len(rows)
            rows[at], bounds[at] = [feature, mode, yes, following], value
            if not is_last:
                at = len(rows)
                rows.append([0, 0, 0, 0])
                bounds.append(value)
    return np.array(rows, np.int64), np.array(bounds, splits.dtype)


def _checked(forest: Forest) -> Forest:
    """Refuse trees that lead out of the tables, or in circles: the compiled code follows them blindly."""
    nodes, count, leaves = forest.nodes, len(forest.nodes), len(forest.weights)
    targets = np.concatenate([nodes[:, 2:].reshape(-1), forest.roots])
    if ((targets >= count) | (targets < -leaves)).any():
        raise NodeError(f"the trees name nodes or leaves that do not exist: there are {count} and {leaves}")
    if (nodes[:, 0] < 0).any() or not (nodes[:, 1] & 7 <= 5).all():
        raise NodeError("the trees have nodes with a feature or a mode that does not exist")
    waiting = np.bincount(nodes[:, 2:][nodes[:, 2:] >= 0], minlength=count)
    ready, seen = list(np.flatnonzero(waiting == 0)), 0
    for at in ready:
        seen += 1
        for following in nodes[at, 2:]:
            if following >= 0:
                waiting[following] -= 1
                if not waiting[following]:
                    ready.append(following)
    if seen < count:
        raise NodeError("the trees have a cycle: a branch leads back to one of its ancestors")
    return forest


def _scores(node: Node, forest: Forest, aggregate: str, base: np.ndarray | None) -> Any:
    x = node.type(0)
    is_double = forest.thresholds.dtype == np.float64
    wanted, thresholds = "f64" if is_double else "f32", forest.thresholds
    if x.dtype.name == "f16" and thresholds.dtype == np.float16:
        wanted = "f16"
    elif not is_double:
        thresholds = thresholds.astype(np.float32)
    data = node[0] if x.dtype.name == wanted else node.emit("cast", node[0], dtype=wanted)
    nodes, thresholds, roots = _breadth_first(forest.nodes, thresholds, forest.roots)
    kinds = np.unique(nodes[:, 1])
    table = [node.constant(array) for array in (thresholds, nodes, roots)]
    leaves = node.emit("tree_leaves", data, *table, mode=int(kinds[0]) if len(kinds) == 1 else -1)
    silent = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    weights = np.where(np.isnan(forest.weights), silent, forest.weights).astype(forest.weights.dtype)
    found = node.emit("gather", node.constant(weights), leaves, axis=0)
    name = {"SUM": "reduce_sum", "AVERAGE": "reduce_mean", "MIN": "reduce_min", "MAX": "reduce_max"}[aggregate]
    scores = node.emit(name, found, axes=[1])
    if silent:
        is_silent = node.emit("isinf", scores)
        scores = node.emit("where", is_silent, node.constant(0, weights.dtype.name.replace("float", "f")), scores)
    if base is not None:
        scores = node.emit("add", scores, node.constant(base.astype(weights.dtype)))
    return scores


def _breadth_first(
    nodes: np.ndarray, thresholds: np.ndarray, roots: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order the nodes of the trees by level, so that nodes of most rows are close; use small integers if they fit."""
    order: list[int] = []
    seen = np.zeros(len(nodes), bool)
    for root in roots[roots >= 0]:
        level = np.array([root])
        while len(level):
            level = np.unique(level[~seen[level]])
            seen[level] = True
            order += level.tolist()
            level = nodes[level, 2:].reshape(-1)
            level = level[level >= 0]
    order += np.flatnonzero(~seen).tolist()
    place = np.empty(len(nodes), np.int64)
    place[order] = np.arange(len(nodes))
    kept = nodes[order]
    sides = kept[:, 2:]
    kept = np.concatenate([kept[:, :2], np.where(sides >= 0, place[sides.clip(0)], sides)], 1)
    first = np.where(roots >= 0, place[roots.clip(0)], roots)
    kind = np.int32 if max(np.abs(kept).max(initial=0), np.abs(first).max(initial=0)) < 2**31 else np.int64
    return kept.astype(kind), thresholds[order], first.astype(kind)


# The operators before version 5, which list leaves among the nodes.


@converter("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: Node) -> Any:
    count = node.attr.int("n_targets")
    forest = _old_forest(node, "target", count)
    aggregate = node.attr.choice("aggregate_function", "SUM", _AGGREGATES)
    scores = _scores(node, forest, aggregate, _base(node, count))
    made = transformed(node, scores, node.attr.choice("post_transform", "NONE", _TRANSFORMS))
    return node.emit("cast", made, dtype="f32")


@converter("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: Node) -> Any:
    words, numbers = node.attr.strs("classlabels_strings", None), node.attr.ints("classlabels_int64s", None)
    labels = words or numbers
    if not labels:
        raise NodeError("attribute 'classlabels_strings' or 'classlabels_int64s' must be given")
    voted = set(node.attr.ints("class_ids"))
    forest = _old_forest(node, "class", len(labels))
    is_single = len(labels) == 2 and len(voted) == 1
    if is_single:
        forest = Forest(forest.thresholds, forest.nodes, forest.roots, forest.weights[:, list(voted)])
    base = _base(node, None)
    scores = _scores(node, forest, "SUM", base)
    is_positive = bool((np.nan_to_num(forest.weights) >= 0).all())
    transform = node.attr.choice("post_transform", "NONE", _TRANSFORMS)
    return classified(node, node.emit("cast", scores, dtype="f32"), labels, transform, 0.5 if is_positive else 0.0)


def _base(node: Node, count: int | None) -> np.ndarray | None:
    if "base_values_as_tensor" in node.attr:
        found = node.tensor_attribute("base_values_as_tensor").reshape(-1)
    else:
        found = np.array(node.attr.floats("base_values", []), np.float32)
    if not len(found):
        return None
    if count is not None and len(found) != count:
        raise NodeError(f"attribute 'base_values' must have {count} numbers, got {len(found)}")
    return found


def _numbers(node: Node, name: str) -> np.ndarray:
    if f"{name}_as_tensor" in node.attr:
        return node.tensor_attribute(f"{name}_as_tensor").reshape(-1)
    return np.array(node.attr.floats(name), np.float32)


def _old_forest(node: Node, kind: str, count: int) -> Forest:
    node.attr.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees, ids = node.attr.ints("nodes_treeids"), node.attr.ints("nodes_nodeids")
    features, modes = node.attr.ints("nodes_featureids"), node.attr.strs("nodes_modes")
    values = _numbers(node, "nodes_values")
    missing = node.attr.ints("nodes_missing_value_tracks_true", None) or [0] * len(ids)
    yes, no = node.attr.ints("nodes_truenodeids"), node.attr.ints("nodes_falsenodeids")
    _same_length(
        len(ids), nodes_treeids=trees, nodes_featureids=features, nodes_modes=modes, nodes_values=values,
        nodes_missing_value_tracks_true=missing, nodes_truenodeids=yes, nodes_falsenodeids=no,
    )  # fmt: skip
    unknown = set(modes) - {LEAF, *MODES}
    if unknown:
        raise NodeError(f"attribute 'nodes_modes' has '{min(unknown)}', which is no mode")
    is_leaf = [mode == LEAF for mode in modes]
    place: dict[tuple[int, int], int] = {}
    inner = leaves = 0
    for key, leaf in zip(zip(trees, ids, strict=True), is_leaf, strict=True):
        place[key] = -1 - leaves if leaf else inner
        leaves, inner = leaves + leaf, inner + (not leaf)

    def at(tree: int, name: int) -> int:
        if (tree, name) not in place:
            raise NodeError(f"node {name} of tree {tree} is named, but does not exist")
        return place[tree, name]

    rows = [
        (features[i], MODES[modes[i]] + MISSING * bool(missing[i]), at(trees[i], yes[i]), at(trees[i], no[i]))
        for i in range(len(ids))
        if not is_leaf[i]
    ]
    thresholds = values[[i for i in range(len(ids)) if not is_leaf[i]]]
    weights = _votes(node, kind, count, leaves, at)
    first = {tree: at(tree, name) for tree, name in reversed(list(zip(trees, ids, strict=True)))}
    roots = np.array([first[tree] for tree in dict.fromkeys(trees)], np.int64)
    table = np.array(rows, np.int64).reshape(-1, 4)
    if not len(table):  # nothing but leaves
        table, thresholds = np.array([[0, 0, -1, -1]], np.int64), np.zeros(1, values.dtype)
    return _checked(Forest(thresholds, table, roots, weights))


def _votes(node: Node, kind: str, count: int, leaves: int, at: Any) -> np.ndarray:
    trees, ids, targets = (node.attr.ints(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids"))
    given = _numbers(node, f"{kind}_weights")
    _same_length(len(ids), **{f"{kind}_treeids": trees, f"{kind}_ids": targets, f"{kind}_weights": given})
    _require_range(f"{kind}_ids", targets, count)
    weights = np.full((max(leaves, 1), count), np.nan, given.dtype)
    for tree, name, target, weight in zip(trees, ids, targets, given, strict=True):
        place = at(tree, name)
        if place >= 0:
            raise NodeError(f"attribute '{kind}_nodeids' names node {name} of tree {tree}, which is no leaf")
        known = weights[-1 - place, target]
        weights[-1 - place, target] = weight if np.isnan(known) else known + weight
    return weights


def _same_length(count: int, **given: Any) -> None:
    for name, values in given.items():
        if len(values) != count:
            raise NodeError(f"attribute '{name}' must have {count} elements, got {len(values)}")


def _require_range(name: str, values: Sequence[int], count: int) -> None:
    if any(not 0 <= value < count for value in values):
        raise NodeError(f"attribute '{name}' must name targets 0 to {count - 1}")
