"""Selection of fusion groups along post-dominators, as in TVM, on a plain graph of nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import field

from mirlo.dialects.core.dims import Dim
from mirlo.passes.fuse.kinds import FusionKind
from mirlo.runtime.records import dataclass

MAX_NODES = 64
TAKES_ELEMENTS = (FusionKind.REDUCE, FusionKind.ROW, FusionKind.COLUMNS)
"""Kinds of reductions that compute elements of their operands where they read them."""
MAX_INPUTS = 14
"""Most operands of a call of a fused function: IRDL's variadic operands allow this many runs of types."""


@dataclass
class FusionNode:
    """A value of the graph: its producer and its users."""

    index: int
    kind: FusionKind
    shape: tuple[Dim, ...]
    inputs: list[int] = field(default_factory=list)
    """The nodes that it reads."""
    reads: frozenset[int] = frozenset()
    """All values that it reads, including those that are not nodes."""
    makes: frozenset[int] = frozenset()
    users: list[int] = field(default_factory=list)
    is_move: bool = False
    """Whether it only permutes dims other than the innermost."""
    is_read: bool = False
    """Whether it does only that, and perhaps converts elements to a wider type."""
    widens_constant: bool = False
    """Whether it is a read of a constant and converts it: a product converts elements where it reads them."""
    takes_moves: bool = False
    """Whether its operands and its result may have their outer dims in any order in memory: attention."""
    escapes: bool = False
    """Returned from the function, or used by an operation that is not a node."""
    is_cheap: bool = False
    """Whether it computes elements with few operations, so that they may be computed again for each reader."""
    columns: Hashable | None = None
    """The domain of a reduction of columns, equal for those that may be one block."""
    rules: str = ""
    """The target whose rules lower its intrinsics, empty for the host: a kernel has those of one target."""


@dataclass
class _Dominator:
    parent: int | None
    kind: FusionKind
    depth: int


class Groups:
    """Union-find over nodes: each group becomes one prim function."""

    def __init__(self, nodes: list[FusionNode], max_inputs: int = MAX_INPUTS):
        self.nodes = nodes
        self.max_inputs = max_inputs
        self.parent = list(range(len(nodes)))
        self.kind = [node.kind for node in nodes]
        self.inside: list[list[int]] = [[i] for i in range(len(nodes))]
        """The members of each group, at its root."""
        self.dominators = post_dominators(nodes)
        for sweep in (0, 1):
            self._sweep(sweep)

    def find(self, index: int) -> int:
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def members(self) -> list[list[int]]:
        """Return the groups with more than one node, each in program order."""
        roots = dict.fromkeys(self.find(node.index) for node in self.nodes)
        return [sorted(self.inside[root]) for root in roots if len(self.inside[root]) > 1]

    def _sweep(self, sweep: int) -> None:
        for node in self.nodes:
            dominator = self.dominators[node.index]
            if node.kind is FusionKind.OPAQUE or dominator.parent is None:
                continue
            if self.find(node.index) == self.find(dominator.parent):
                continue
            if self._wants(node, dominator, sweep):
                self._join(node.index, dominator.parent)

    def _wants(self, node: FusionNode, dominator: _Dominator, sweep: int) -> bool:
        assert dominator.parent is not None
        end = self.nodes[dominator.parent]
        group = self.kind[self.find(node.index)]
        if (node.is_read and end.takes_moves) or (node.takes_moves and end.is_move):
            return sweep == 0 and node.users == [end.index]
        if node.widens_constant and end.kind is FusionKind.CONTRACTION:
            return sweep == 0 and node.users == [end.index]
        if node.kind in (FusionKind.CONTRACTION, *TAKES_ELEMENTS):
            # An epilogue runs on the tile or the row while it is in registers.
            return (
                sweep == 0
                and dominator.kind <= FusionKind.BROADCAST
                and end.shape == node.shape
                and self._path_is(node.index, end.index, FusionKind.BROADCAST, shape=node.shape)
            )
        if node.kind <= FusionKind.BROADCAST:
            if dominator.kind > FusionKind.INJECTIVE and end.kind not in TAKES_ELEMENTS:
                return False
            if group > FusionKind.INJECTIVE and not self._continues(group, node, end):
                return False
            allowed = end.kind <= FusionKind.INJECTIVE or end.kind in TAKES_ELEMENTS
            return allowed and self._path_is(node.index, end.index, FusionKind.INJECTIVE)
        if node.kind is FusionKind.INJECTIVE and sweep == 1:
            return end.kind <= FusionKind.INJECTIVE and self._path_is(node.index, end.index, FusionKind.INJECTIVE)
        return False

    def _continues(self, group: FusionKind, node: FusionNode, end: FusionNode) -> bool:
        """Return whether the epilogue of a contraction, a reduction or a row operation may grow."""
        if end.kind > FusionKind.BROADCAST or self.kind[self.find(end.index)] > FusionKind.INJECTIVE:
            return False
        return group is not FusionKind.CONTRACTION or end.shape == node.shape

    def _between(self, start: int, end: int) -> Iterator[int]:
        """Yield the nodes strictly between two, on the paths along users."""
        seen = {end}
        stack = list(self.nodes[start].users)
        while stack:
            index = stack.pop()
            if index not in seen:
                seen.add(index)
                stack += self.nodes[index].users
                yield index

    def _path_is(self, start: int, end: int, limit: FusionKind, shape: tuple[Dim, ...] | None = None) -> bool:
        for index in self._between(start, end):
            if self.nodes[index].kind > limit or self.kind[self.find(index)] > max(limit, FusionKind.INJECTIVE):
                return False
            if shape is not None and self.nodes[index].shape != shape:
                return False
        return not (shape is not None and self.nodes[end].kind > limit)

    def _join(self, start: int, end: int) -> None:
        joined = {self.find(i) for i in (start, end, *self._between(start, end))}
        heavy = [root for root in joined if self.kind[root] > FusionKind.INJECTIVE]
        members = [i for root in joined for i in self.inside[root]]
        if len(heavy) > 1 or len(members) > MAX_NODES:
            return
        if self._inputs(members) > self.max_inputs or self._escapes(set(members)):
            return
        if len({self.nodes[i].rules for i in members}) > 1 or not self._columns_are_cheap(set(members)):
            return
        root = self.find(end)
        self.kind[root] = max(self.kind[r] for r in joined)
        for other in joined:
            self.parent[other], self.inside[other] = root, []
        self.inside[root] = members

    def _columns_are_cheap(self, members: set[int]) -> bool:
        """Return whether a reduction of columns in a group computes its operands' elements with few operations."""
        waiting = [i for i in members if self.nodes[i].kind is FusionKind.COLUMNS]
        sources: set[int] = set()
        while waiting:
            new = {i for i in self.nodes[waiting.pop()].inputs if i in members} - sources
            sources |= new
            waiting += new
        return all(self.nodes[i].is_cheap for i in sources)

    def _inputs(self, members: list[int]) -> int:
        """Return how many values a group reads."""
        nodes = [self.nodes[i] for i in members]
        return len({v for node in nodes for v in node.reads} - {v for node in nodes for v in node.makes})

    def _escapes(self, members: set[int]) -> bool:
        """Return whether a member other than the last is used outside the group."""
        last = max(members)
        nodes = [self.nodes[i] for i in members if i != last]
        return any(node.escapes or any(user not in members for user in node.users) for node in nodes)


def post_dominators(nodes: list[FusionNode]) -> list[_Dominator]:
    """Return each node's immediate post-dominator, and the largest kind on the paths to it."""
    result: list[_Dominator] = [_Dominator(None, FusionKind.ELEMENTWISE, 1)] * len(nodes)
    for node in reversed(nodes):
        if node.escapes or not node.users:
            result[node.index] = _Dominator(None, FusionKind.OPAQUE if node.escapes else FusionKind.ELEMENTWISE, 1)
            continue
        parent: int | None = node.users[0]
        kind = nodes[parent].kind  # type: ignore[index]
        for user in node.users[1:]:
            parent, way = _common(result, parent, user)
            kind = max(kind, nodes[user].kind, way)
        depth = 1 if parent is None else result[parent].depth + 1
        result[node.index] = _Dominator(parent, kind, depth)
    return result


def _common(dominators: list[_Dominator], left: int | None, right: int | None) -> tuple[int | None, FusionKind]:
    """Return the lowest common post-dominator of two nodes, and the largest kind on the paths to it."""
    kind = FusionKind.ELEMENTWISE
    while left != right:
        if left is None or right is None:
            return None, kind
        if dominators[left].depth < dominators[right].depth:
            kind = max(kind, dominators[right].kind)
            right = dominators[right].parent
        elif dominators[right].depth < dominators[left].depth:
            kind = max(kind, dominators[left].kind)
            left = dominators[left].parent
        else:
            kind = max(kind, dominators[left].kind, dominators[right].kind)
            left, right = dominators[left].parent, dominators[right].parent
    return left, kind
