"""Grouping on random graphs: what holds for every grouping, whatever it chooses."""

from __future__ import annotations

import numpy as np
import pytest

from mirlo.passes.fuse.groups import MAX_NODES, FusionNode, Groups
from mirlo.passes.fuse.kinds import FusionKind

KINDS = [FusionKind.ELEMENTWISE] * 5 + [
    FusionKind.BROADCAST,
    FusionKind.BROADCAST,
    FusionKind.INJECTIVE,
    FusionKind.INJECTIVE,
]
KINDS += [FusionKind.REDUCE, FusionKind.ROW, FusionKind.CONTRACTION, FusionKind.OPAQUE]


def random_nodes(seed: int) -> list[FusionNode]:
    """Return a graph whose nodes read up to three of the values before them; some are returned."""
    random = np.random.default_rng(seed)
    nodes: list[FusionNode] = []
    for i in range(int(random.integers(2, 80))):
        near = range(max(0, i - 6), i)
        inputs = sorted({int(random.choice(near)) for _ in range(int(random.integers(0, 4)))}) if i else []
        kind = KINDS[int(random.integers(0, len(KINDS)))]
        shape = ((4, 8), (4, 8), (8,))[int(random.integers(0, 3))]
        reads = frozenset(inputs) | ({-1 - int(random.integers(0, 5))} if random.random() < 0.3 else set())
        node = FusionNode(i, kind, shape, inputs, reads, frozenset([i]), escapes=bool(random.random() < 0.1))
        for source in inputs:
            nodes[source].users.append(i)
        nodes.append(node)
    return nodes


def groups_of(seed: int, max_inputs: int = 5) -> tuple[list[FusionNode], list[list[int]]]:
    nodes = random_nodes(seed)
    return nodes, Groups(nodes, max_inputs).members()


@pytest.mark.parametrize("seed", range(150))
def test_only_the_last_value_leaves_a_group(seed: int) -> None:
    nodes, groups = groups_of(seed)
    for group in groups:
        for member in group[:-1]:
            assert not nodes[member].escapes
            assert set(nodes[member].users) <= set(group)


@pytest.mark.parametrize("seed", range(150))
def test_groups_do_not_wait_for_each_other(seed: int) -> None:
    """A group runs where its last member stood: all that it reads from outside must be computed before."""
    nodes, groups = groups_of(seed)
    ends = {member: group[-1] for group in groups for member in group}
    for node in nodes:
        for source in node.inputs:
            if ends.get(source, source) != ends.get(node.index, node.index):
                assert ends.get(source, source) < ends.get(node.index, node.index)


@pytest.mark.parametrize("seed", range(150))
def test_limits(seed: int) -> None:
    nodes, groups = groups_of(seed)
    members = [member for group in groups for member in group]
    assert len(members) == len(set(members))
    for group in groups:
        kinds = [nodes[i].kind for i in group]
        assert FusionKind.OPAQUE not in kinds
        assert sum(kind > FusionKind.INJECTIVE for kind in kinds) <= 1
        assert len(group) <= MAX_NODES
        assert len(set().union(*(nodes[i].reads for i in group)) - set(group)) <= 5


def test_the_same_graph_gives_the_same_groups() -> None:
    for seed in range(20):
        assert groups_of(seed)[1] == groups_of(seed)[1]


def test_something_is_fused() -> None:
    assert sum(len(group) for seed in range(20) for group in groups_of(seed)[1]) > 50
