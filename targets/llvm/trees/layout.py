"""The upper levels of decision trees as masks of the exits from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass

BLOCK = 4
"""Records that are compared in one iteration; groups of records are filled up to whole blocks."""
BITS = 32
"""Exits of a word: the bits of an element of a vector."""
MAX_EXITS = 64
"""Most exits of the upper levels of a tree; more masks take longer than to go from node to node."""
MAX_UPPER_EXITS = 32
"""Most exits of the upper levels of a tree with more leaves."""
FEATURE, COMPARISON, HOLDS, FAILS = range(4)
"""Columns of the nodes of `relax.tree_ensemble`."""
NAN_HOLDS = 8


@dataclass(frozen=True)
class UpperLevels:
    """The nodes of the upper levels of trees, and where rows leave these levels.

    The exits of a tree are leaves, or the nodes of lower levels, numbered from those of nodes that hold to those of
    nodes that fail. If the comparison of a node fails, no exit below its first child is reached. The possible exits of
    a row are those that no failing node excludes; the row takes the first of them. A word has the masks of 32 exits;
    the words of a tree are in reverse order.
    """

    columns: np.ndarray
    """[columns]: the features that nodes compare."""
    records: np.ndarray
    """[blocks, 4, 3]: a number of `columns` times the rows of a vector, the bits of the threshold, and a mask.

    The mask lacks the exits that are excluded if the comparison fails; the first exit of a word is the highest bit. A
    node has a record in each word in which it excludes exits.
    """
    starts: np.ndarray
    """[groups + 1]: the first block of each group: a word, or its nodes that NaN fails, then the others."""
    words: np.ndarray
    """[trees + 1]: the first word of each tree."""
    exits: np.ndarray
    """[words, 32]: the node at each exit, -1 - i for leaf i; the last one repeats."""
    lower: np.ndarray
    """[nodes, 4]: of each node the first two numbers of a record, and the next nodes.

    The nodes below an exit are adjacent. The highest bit of the first number says that the comparison holds for NaN,
    if nodes differ in that.
    """

    @property
    def reaches_leaves(self) -> bool:
        """Return whether all exits are leaves."""
        return bool((self.exits < 0).all())

    def leaf_weights(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights of the leaves at the exits, [words, targets, 32]."""
        return np.ascontiguousarray(weights[-1 - self.exits].transpose(0, 2, 1))


def upper_levels(
    thresholds: np.ndarray, nodes: np.ndarray, roots: np.ndarray, mode: int, features: int, leaves: int, lanes: int
) -> UpperLevels | Decline:
    """Return the upper levels of trees, as `relax.tree_ensemble` defines their nodes; decline if some do not exist.

    `lanes` are the rows of a vector, whose values of one feature are adjacent in memory.
    """
    if (nodes[:, FEATURE] < 0).any() or (nodes[:, FEATURE] >= features).any():
        return decline("some nodes compare a feature that does not exist", features=features)
    reached = np.concatenate([nodes[:, HOLDS:].reshape(-1), roots])
    if (reached >= len(nodes)).any() or (reached < -leaves).any():
        return decline("some nodes or roots lead out of the tables", nodes=len(nodes), leaves=leaves)
    if np.isnan(thresholds).any():
        return decline("some thresholds are NaN")
    if (roots < 0).all():
        return decline("the trees are nothing but leaves")
    columns, of_node = np.unique(nodes[:, FEATURE], return_inverse=True)
    table = _Table((of_node * lanes).tolist(), thresholds.view(np.int32).tolist(), mode & NAN_BY_NODE != 0)
    holds_for_nan = (nodes[:, COMPARISON] & NAN_HOLDS != 0).tolist()
    holds, fails = nodes[:, HOLDS].tolist(), nodes[:, FAILS].tolist()
    for root in roots.tolist():
        table.add_tree(_upper(holds, fails, root), holds_for_nan)
    exits = np.array(table.exits, np.int32).reshape(-1, BITS)
    lower, exits = _lower(_all_records(thresholds, nodes, of_node * lanes, mode), exits)
    return UpperLevels(
        columns.astype(np.int32),
        np.array(table.records, np.int64).reshape(-1, BLOCK, 3).astype(np.uint32).view(np.int32),
        np.array(table.starts, np.int32),
        np.array(table.words, np.int32),
        exits.astype(np.int32),
        lower,
    )


def _all_records(thresholds: np.ndarray, nodes: np.ndarray, places: np.ndarray, mode: int) -> np.ndarray:
    """Return the table of all nodes, in their order."""
    first = places.astype(np.int64)
    if mode & NAN_BY_NODE:
        first |= (nodes[:, COMPARISON] & NAN_HOLDS != 0).astype(np.int64) << 31
    columns = (first.astype(np.uint32).view(np.int32), thresholds.view(np.int32), nodes[:, HOLDS], nodes[:, FAILS])
    return np.stack(columns, 1)


def _lower(table: np.ndarray, exits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the table of nodes with those below an exit next to each other, and the exits in its numbers."""
    level = exits.reshape(-1)
    place, below, levels, origins = np.full(len(table), -1), np.arange(len(level)), [], []
    while True:
        fresh = level >= 0
        fresh[fresh] = place[level[fresh]] < 0
        first = np.sort(np.unique(level[fresh], return_index=True)[1])
        if not len(first):
            break
        level, below = level[fresh][first], below[fresh][first]
        place[level] = 0
        levels.append(level)
        origins.append(below)
        level, below = table[level, HOLDS:].reshape(-1), np.repeat(below, 2)
    order = np.zeros(0, np.int64)
    if levels:
        order = np.concatenate(levels)[np.argsort(np.concatenate(origins), kind="stable")]
    place[order] = np.arange(len(order))
    ordered = table[order]
    ordered[:, HOLDS:] = _renumbered(ordered[:, HOLDS:], place)
    return ordered, _renumbered(exits, place)


def _renumbered(reached: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return nodes, -1 - i for leaf i, with other numbers."""
    return np.where(reached < 0, reached, place[reached.clip(0)])


@dataclass
class _Upper:
    """The upper levels of a tree: nodes with the range of exits that each excludes where it fails, and all exits."""

    excluded: list[tuple[int, range]]
    exits: list[int]


def _upper(holds: Sequence[int], fails: Sequence[int], root: int) -> _Upper:
    """Return the upper levels of a tree, level by level: all of a tree with few leaves."""
    result = _expanded(holds, fails, root, MAX_EXITS)
    if any(exit_ >= 0 for exit_ in result.exits):
        return _expanded(holds, fails, root, MAX_UPPER_EXITS)
    return result


def _expanded(holds: Sequence[int], fails: Sequence[int], root: int, most: int) -> _Upper:
    """Replace nodes by their children until there are `most` exits; `holds` and `fails` are the children of nodes."""
    # Positions in the tree, level by level; nodes with two parents have several. A child is a position, 0 for none.
    nodes, child = [root], [0]
    at, count = 0, 1
    while at < len(nodes) and count < most:
        node = nodes[at]
        if node >= 0:
            child[at] = len(nodes)
            nodes += (holds[node], fails[node])
            child += (0, 0)
            count += 1
        at += 1
    sizes = [1] * len(nodes)
    for at in reversed(range(len(nodes))):
        if child[at]:
            sizes[at] = sizes[child[at]] + sizes[child[at] + 1]
    first = [0] * len(nodes)
    exits = [0] * count
    excluded: list[tuple[int, range]] = [(0, range(0))] * (count - 1)
    for at, node in enumerate(nodes):
        begin, left = first[at], child[at]
        if left:
            end = begin + sizes[left]
            first[left], first[left + 1] = begin, end
            excluded[end - 1] = node, range(begin, end)
        else:
            exits[begin] = node
    return _Upper(excluded, exits)


_FILLER = (0, 0, 0xFFFFFFFF)
"""A record that excludes no exits."""


class _Table:
    """The records of all trees."""

    def __init__(self, columns: Sequence[int], thresholds: Sequence[int], is_split: bool):
        self.columns, self.thresholds, self.is_split = columns, thresholds, is_split
        self.records: list[tuple[int, int, int]] = []
        self.starts, self.words = [0], [0]
        self.exits: list[int] = []

    def add_tree(self, tree: _Upper, holds_for_nan: Sequence[bool]) -> None:
        count = -(-len(tree.exits) // BITS)
        of_word: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for node, excluded in tree.excluded:
            for word in range(excluded.start // BITS, (excluded.stop - 1) // BITS + 1):
                low, high = max(excluded.start - word * BITS, 0), min(excluded.stop - word * BITS, BITS)
                mask = ((1 << (high - low)) - 1) << (BITS - high)
                of_word[word].append((node, mask ^ 0xFFFFFFFF))
        for word in reversed(range(count)):
            for nan in (False, True) if self.is_split else (None,):
                self.records += [
                    (self.columns[node], self.thresholds[node], mask)
                    for node, mask in of_word[word]
                    if nan is None or holds_for_nan[node] == nan
                ]
                self.records += [_FILLER] * (-len(self.records) % BLOCK)
                self.starts.append(len(self.records) // BLOCK)
            exits = tree.exits[word * BITS : (word + 1) * BITS]
            self.exits += exits + exits[-1:] * (BITS - len(exits))
        self.words.append(self.words[-1] + count)
