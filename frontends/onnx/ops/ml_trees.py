"""ai.onnx.ml: ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import replace

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN
from mirlo.frontends.onnx.ops.ml_scores import transformed
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, where
from mirlo.runtime.records import dataclass

MODES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5}
LEAF, MEMBER = "LEAF", 6
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MISSING = 8


@dataclass(frozen=True)
class Forest:
    """Trees as `relax.tree_ensemble` reads them."""

    thresholds: np.ndarray
    nodes: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    """[leaves, targets]: what each leaf adds to each target."""
    votes: np.ndarray
    """[leaves, targets]: whether a leaf has a weight for a target."""
    always: np.ndarray
    """[targets]: whether each row reaches a weight for the target, whatever its features are."""
    depth: int
    """Nodes of the longest path."""

    @property
    def is_complete(self) -> bool:
        """Return whether each row reaches weights for all targets."""
        return bool(self.always.all())

    def of_target(self, target: int) -> Forest:
        """Return the trees with the weights of one target only."""
        only = slice(target, target + 1)
        return replace(self, weights=self.weights[:, only], votes=self.votes[:, only], always=self.always[only])


@converter("TreeEnsemble", domain=DOMAIN, since=5)
def tree_ensemble(node: Node) -> Converted:
    forest = _forest(node)
    scores = _aggregated(node, forest, _AGGREGATES[_enum(node, "aggregate_function", 1, 4)], None)
    return _regressed(node, scores, TRANSFORMS[_enum(node, "post_transform", 0, 5)])


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
    count = _target_count(node)
    _require_range("leaf_targetids", targets, count)
    _require_weights(node, len(targets), count)
    weights = np.zeros((len(targets), count), leaf_weights.dtype)
    weights[np.arange(len(targets)), targets] = leaf_weights
    votes = np.zeros(weights.shape, bool)
    votes[np.arange(len(targets)), targets] = True
    table = np.stack([features, modes + MISSING * (missing != 0), *sides], 1)
    if (modes == MEMBER).any():
        members = node.tensor_attribute("membership_values").reshape(-1)
        table, splits = _without_members(table, splits, members)
    else:
        node.attr.ignore("membership_values")
    return _checked(splits, table, roots, weights, votes)


def _target_count(node: Node) -> int:
    count = node.attr.int("n_targets")
    if count < 1:
        raise NodeError(f"attribute 'n_targets' must be at least 1, got {count}")
    return count


def _require_weights(node: Node, leaves: int, targets: int) -> None:
    """Refuse trees whose weights, one for each leaf and target, are much larger than the trees."""
    lists = (attribute.value for attribute in node.attr.by_name.values())
    source = sum(8 * len(each) for each in lists if isinstance(each, tuple))
    require_table("the weights of leaves and targets", leaves, targets, source_bytes=source)


def _without_members(table: np.ndarray, splits: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rewrite membership tests to chains of equality tests; NaN ends the members of a node."""
    rows, bounds = list(map(list, table)), list(splits)
    sets: list[list[float]] = [[]]
    for value in members:
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    groups = iter(sets)
    for i, (feature, how, yes, no) in enumerate(table):
        if how & 7 != MEMBER:
            continue
        group = next(groups, [])
        if not group:
            raise NodeError("attribute 'membership_values' has no members for a node of mode BRANCH_MEMBER")
        mode = MODES["BRANCH_EQ"] + (how & MISSING)
        at = i
        for position, value in enumerate(group):
            is_last = position == len(group) - 1
            following = no if is_last else len(rows)
            rows[at], bounds[at] = [feature, mode, yes, following], value
            if not is_last:
                at = len(rows)
                rows.append([0, 0, 0, 0])
                bounds.append(value)
    return np.array(rows, np.int64), np.array(bounds, splits.dtype)


def _checked(
    thresholds: np.ndarray, nodes: np.ndarray, roots: np.ndarray, weights: np.ndarray, votes: np.ndarray
) -> Forest:
    """Refuse trees that lead out of the tables, or form cycles."""
    count, leaves = len(nodes), len(weights)
    targets = np.concatenate([nodes[:, 2:].reshape(-1), roots])
    if ((targets >= count) | (targets < -leaves)).any():
        raise NodeError(f"the trees name nodes or leaves that do not exist: there are {count} and {leaves}")
    if (nodes[:, 0] < 0).any() or not (nodes[:, 1] & 7 <= 5).all():
        raise NodeError("the trees have nodes with a feature or a mode that does not exist")
    levels = _levels(nodes)
    if sum(map(len, levels)) < count:
        raise NodeError("the trees have a cycle: a branch leads back to one of its ancestors")
    require_table("the nodes and leaves by targets", count + leaves, votes.shape[1], element_bytes=1,
                  source_bytes=nodes.nbytes + 8 * leaves)  # fmt: skip
    # Whether all leaves below a node have a weight: nodes first, then leaves from the last to the first, as indices
    # below zero count.
    below = np.concatenate([np.zeros((count, votes.shape[1]), bool), votes[::-1]])
    for level in reversed(levels):
        below[level] = below[nodes[level, 2]] & below[nodes[level, 3]]
    return Forest(thresholds, nodes, roots, weights, votes, below[roots].any(axis=0), len(levels) - 1)


def _levels(nodes: np.ndarray) -> list[np.ndarray]:
    """Return the nodes by the length of the longest path from a root, without those of cycles and below cycles."""
    parents = np.bincount(nodes[:, 2:][nodes[:, 2:] >= 0], minlength=len(nodes))
    levels = [np.flatnonzero(parents == 0)]
    while len(levels[-1]):
        following = nodes[levels[-1], 2:]
        following, counts = np.unique(following[following >= 0], return_counts=True)
        parents[following] -= counts
        levels.append(following[parents[following] == 0])
    return levels


def tree_scores(node: Node, forest: Forest, aggregate: str, needs_votes: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return the scores of each row and target, and whether the row reached a weight: None where each row does.

    Without `needs_votes`, it is None too.
    """
    x = node.type(0)
    if x.rank == 2:  # as its inference requires
        _require_features(node, forest, x.shape[1])
    wanted = "f64" if x.dtype.name == "f64" or forest.thresholds.dtype == np.float64 else "f32"
    if x.dtype.name == "f16" and forest.thresholds.dtype == np.float16:
        wanted = "f16"
    numbers = np.float64 if wanted == "f64" or forest.weights.dtype == np.float64 else np.float32
    kind = "f64" if numbers is np.float64 else "f32"
    data = node[0] if x.dtype.name == wanted else node[0].cast(wanted)
    nodes, thresholds, roots = _breadth_first(forest.nodes, forest.thresholds, forest.roots)
    modes = set(nodes[:, 1].tolist())
    shared = {mode & ~MISSING for mode in modes}
    mode = -1 if len(shared) > 1 else modes.pop() if len(modes) == 1 else shared.pop() + NAN_BY_NODE
    nothing = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    weights = np.where(forest.votes, forest.weights, nothing).astype(numbers)
    count, has_votes = weights.shape[1], needs_votes and not forest.is_complete
    if has_votes:
        # As many columns again say which scores there are: sums and largest values of 1, or least ones of -1.
        weights = np.concatenate([weights, forest.votes * numbers(-1 if aggregate == "MIN" else 1)], axis=1)
    result = node.emit(
        "tree_ensemble", data, node.constant(thresholds, wanted), node.constant(nodes), node.constant(roots),
        node.constant(weights, kind), mode=mode,
        aggregate={"MIN": "min", "MAX": "max"}.get(aggregate, "sum"), depth=forest.depth,
    )  # fmt: skip
    if not has_votes:
        return result, None
    counts = columns(node, result, count, 2 * count)
    name = "less" if aggregate == "MIN" else "greater"
    return columns(node, result, 0, count), node.emit(name, counts, node.constant(0, kind))


def _require_features(node: Node, forest: Forest, columns: Dim) -> None:
    """Refuse rows that lack a feature that nodes compare; a node with one target on both sides compares nothing."""
    compared = forest.nodes[forest.nodes[:, 2] != forest.nodes[:, 3], 0]
    count = int(compared.max(initial=-1)) + 1
    if D.is_nonnegative(columns - count):
        return
    what = f"the trees compare feature {count - 1}, counted from 0, and the input has {columns} columns"
    if isinstance(columns, int):
        raise NodeError(what)
    where = f"node '{node.outputs[0]}' ({node.operator})"
    RequireDims.build(dims=(count,), bounds=(columns,), what=f"{where}: {what}", result_types=[])


def columns(node: Node, values: Tensor, begin: int, end: int) -> Tensor:
    """Return some of the columns of values [N, columns]."""
    if (begin, end) == (0, values.type.shape[1]):
        return values
    return values.slice(1, begin, end - begin)


def _aggregated(node: Node, forest: Forest, aggregate: str, base: np.ndarray | None) -> Tensor:
    """Return the scores of all targets with the base values; 0 without them where a row reaches no weight."""
    scores, is_voted = tree_scores(node, forest, aggregate, needs_votes=aggregate in ("MIN", "MAX") or base is not None)
    kind = scores.type
    if aggregate == "AVERAGE":
        scores = scores / (max(len(forest.roots), 1))
    if base is not None:
        scores = scores + node.constant(base, kind.dtype.name)
    return scores if is_voted is None else where(is_voted, scores, node.constant(0, kind))


def _breadth_first(
    nodes: np.ndarray, thresholds: np.ndarray, roots: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order the nodes of the trees by level, so that nodes of most rows are close; use small integers if they fit."""
    seen = np.zeros(len(nodes), bool)
    level, levels, trees = roots, [], []
    tree = np.arange(len(roots))
    while True:
        fresh = level >= 0
        fresh[fresh] = ~seen[level[fresh]]
        level, first = np.unique(level[fresh], return_index=True)
        if not len(level):
            break
        tree = tree[fresh][first]
        seen[level] = True
        levels.append(level)
        trees.append(tree)
        level, tree = nodes[level, 2:].reshape(-1), np.repeat(tree, 2)
    levels.append(np.flatnonzero(~seen))
    trees.append(np.full(len(levels[-1]), len(roots)))
    order = np.concatenate(levels)[np.argsort(np.concatenate(trees), kind="stable")]
    position = np.empty(len(nodes), np.int64)
    position[order] = np.arange(len(nodes))
    kept = nodes[order]
    sides = kept[:, 2:]
    kept = np.concatenate([kept[:, :2], np.where(sides >= 0, position[sides.clip(0)], sides)], 1)
    first = np.where(roots >= 0, position[roots.clip(0)], roots)
    kind = np.int32 if max(np.abs(kept).max(initial=0), np.abs(first).max(initial=0)) < 2**31 else np.int64
    return kept.astype(kind), thresholds[order], first.astype(kind)


def _regressed(node: Node, scores: Tensor, transform: str) -> Tensor:
    """Transform scores as ONNX Runtime does: in f32; of a single target, PROBIT is the only transform."""
    kind = scores.type
    if transform == "NONE" or (kind.shape[1] == 1 and transform != "PROBIT"):
        return scores
    wide = transformed(node, scores.cast("f32"), transform)
    return wide.cast(kind.dtype.name)


# The operators before version 5, which list leaves among the nodes.


@converter("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: Node) -> Converted:
    count = _target_count(node)
    aggregate = node.attr.choice("aggregate_function", "SUM", _AGGREGATES)
    scores = _aggregated(node, old_forest(node, "target", count, aggregate), aggregate, base_values(node, count))
    scores = scores.cast("f32")
    return _regressed(node, scores, node.attr.choice("post_transform", "NONE", TRANSFORMS))


def base_values(node: Node, count: int | None) -> np.ndarray | None:
    if "base_values_as_tensor" in node.attr:
        result = node.tensor_attribute("base_values_as_tensor").reshape(-1)
    else:
        result = np.array(node.attr.floats("base_values", []), np.float32)
    if not len(result):
        return None
    if count is not None and len(result) != count:
        raise NodeError(f"attribute 'base_values' must have {count} numbers, got {len(result)}")
    return result


def numbers_of(node: Node, name: str) -> np.ndarray:
    if f"{name}_as_tensor" in node.attr:
        return node.tensor_attribute(f"{name}_as_tensor").reshape(-1)
    return np.array(node.attr.floats(name), np.float32)


def old_forest(node: Node, kind: str, count: int, aggregate: str) -> Forest:
    """Read the trees of an operator that lists leaves among the nodes."""
    node.attr.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees, ids = node.attr.ints("nodes_treeids"), node.attr.ints("nodes_nodeids")
    features, modes = node.attr.ints("nodes_featureids"), node.attr.strs("nodes_modes")
    values = numbers_of(node, "nodes_values")
    missing = node.attr.ints("nodes_missing_value_tracks_true", None) or [0] * len(ids)
    yes, no = node.attr.ints("nodes_truenodeids"), node.attr.ints("nodes_falsenodeids")
    _same_length(
        len(ids), nodes_treeids=trees, nodes_featureids=features, nodes_modes=modes, nodes_values=values,
        nodes_missing_value_tracks_true=missing, nodes_truenodeids=yes, nodes_falsenodeids=no,
    )  # fmt: skip
    unknown = set(modes) - {LEAF, *MODES}
    if unknown:
        raise NodeError(f"attribute 'nodes_modes' has '{min(unknown)}', which is not a mode")
    codes = {LEAF: -1, **MODES}
    mode = np.array([codes[name] for name in modes], np.int64)
    is_leaf, is_split = mode < 0, mode >= 0
    # The numbers of nodes: those of leaves are -1 - n, others count on their own.
    numbers = np.where(is_leaf, 0 - np.cumsum(is_leaf), np.cumsum(is_split) - 1)
    tree_ids = np.array(trees, np.int64)
    places = _Places.of(tree_ids, np.array(ids, np.int64), numbers)
    sides = (places.find(tree_ids[is_split], np.array(side, np.int64)[is_split]) for side in (yes, no))
    comparison = mode + MISSING * (np.array(missing, np.int64) != 0)
    table = np.stack([np.array(features, np.int64)[is_split], comparison[is_split], *sides], 1)
    thresholds = values[is_split]
    weights, votes = _votes(node, kind, count, int(is_leaf.sum()), places, aggregate)
    if count == 1:
        # As in ONNX Runtime, where a leaf without a weight counts as what the list of thresholds has for it.
        leaf_values = (values[is_leaf] if is_leaf.any() else np.zeros(1)).astype(weights.dtype)
        weights, votes = np.where(votes, weights, leaf_values[:, None]), np.ones(votes.shape, bool)
    first = np.sort(np.unique(tree_ids, return_index=True)[1])
    roots = places.find(tree_ids[first], np.array(ids, np.int64)[first])
    if not len(table):  # nothing but leaves
        table, thresholds = np.array([[0, 0, -1, -1]], np.int64), np.zeros(1, values.dtype)
    return _checked(thresholds, table, roots, weights, votes)


@dataclass(frozen=True)
class _Places:
    """The numbers of nodes by the tree and the name of each; of several nodes of a name, the last one counts."""

    trees: np.ndarray
    names: np.ndarray
    """The trees and the names that exist, in ascending order."""
    keys: np.ndarray
    """In ascending order: the index of a tree times the count of names, and the index of a name."""
    numbers: np.ndarray
    """The number of the node of each key."""

    @staticmethod
    def of(trees: np.ndarray, names: np.ndarray, numbers: np.ndarray) -> _Places:
        """Return the numbers of these nodes."""
        known_trees, tree = np.unique(trees, return_inverse=True)
        known_names, name = np.unique(names, return_inverse=True)
        keys = tree * len(known_names) + name
        order = np.argsort(keys, kind="stable")
        return _Places(known_trees, known_names, keys[order], numbers[order])

    def find(self, trees: np.ndarray, names: np.ndarray) -> np.ndarray:
        """Return the numbers of nodes of these trees and names; one that does not exist is an error."""
        tree, is_tree = _index(self.trees, trees)
        name, is_name = _index(self.names, names)
        keys = tree * len(self.names) + name
        place = np.searchsorted(self.keys, keys, "right") - 1
        exists = is_tree & is_name & (place >= 0)
        exists[exists] = self.keys[place[exists]] == keys[exists]
        if not exists.all():
            at = int(np.argmin(exists))
            raise NodeError(f"node {names[at]} of tree {trees[at]} is named, but does not exist")
        result: np.ndarray = self.numbers[place]
        return result


def _index(known: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each value among those in ascending order, and whether it is one of them."""
    index = np.searchsorted(known, values).clip(0, max(len(known) - 1, 0))
    return index, known[index] == values if len(known) else np.zeros(len(values), bool)


def _votes(
    node: Node, kind: str, count: int, leaves: int, places: _Places, aggregate: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of leaves [leaves, targets], and which of them are given."""
    trees, ids, targets = (node.attr.ints(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids"))
    leaf_weights = numbers_of(node, f"{kind}_weights")
    columns: dict[str, Sized] = {f"{kind}_treeids": trees, f"{kind}_ids": targets, f"{kind}_weights": leaf_weights}
    _same_length(len(ids), **columns)
    _require_range(f"{kind}_ids", targets, count)
    _require_weights(node, leaves, count)
    weights, votes = np.zeros((max(leaves, 1), count), leaf_weights.dtype), np.zeros((max(leaves, 1), count), bool)
    leaf = -1 - places.find(np.array(trees, np.int64), np.array(ids, np.int64))
    # Old converters give inner nodes weights, which no row reaches.
    at = (leaf * count + np.array(targets, np.int64))[leaf >= 0]
    leaf_weights = leaf_weights[leaf >= 0]
    first = np.unique(at, return_index=True)[1]
    weights.reshape(-1)[at[first]], votes.reshape(-1)[at[first]] = leaf_weights[first], True
    if count > 1:  # of a single target, ONNX Runtime reads the first weight
        later = np.ones(len(at), bool)
        later[first] = False
        combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        combine.at(weights.reshape(-1), at[later], leaf_weights[later])
    return weights, votes


def _same_length(count: int, **lists: Sized) -> None:
    for name, values in lists.items():
        if len(values) != count:
            raise NodeError(f"attribute '{name}' must have {count} elements, got {len(values)}")


def _require_range(name: str, values: Sequence[int], count: int) -> None:
    numbers = np.array(values, np.int64)
    if ((numbers < 0) | (numbers >= count)).any():
        raise NodeError(f"attribute '{name}' must name targets 0 to {count - 1}")
