"""Quotient graphs: groups of nodes that form no cycle among each other."""

from __future__ import annotations

import heapq

from mirlo.passes.byoc.graph import BlockGraph, BlockNode, bits


class QuotientGraph:
    """A partition of a graph's nodes; every node starts as a group of its own."""

    def __init__(self, graph: BlockGraph):
        self.graph = graph
        self.mask_of = [1 << node.index for node in graph.nodes]
        """The mask of each node's group."""

    def closure(self, mask: int) -> int:
        """Return the union of the groups of a set's nodes."""
        result = 0
        for index in bits(mask):
            result |= self.mask_of[index]
        return result

    def path_back(self, mask: int) -> BlockNode | None:
        """Return a node outside a set on a path that leaves and re-enters the set, or None.

        The set can become one group exactly if there is none.
        """
        mask = self.closure(mask)
        pending = self._followers(mask) & ~mask
        seen = pending
        while pending:
            index = (pending & -pending).bit_length() - 1
            group = self.mask_of[index]
            pending &= ~group
            followers = self._followers(group)
            if followers & mask:
                return self.graph.nodes[index]
            fresh = followers & ~seen & ~group
            seen |= group | fresh
            pending |= fresh
        return None

    def join(self, mask: int) -> None:
        """Merge the groups of these nodes."""
        mask = self.closure(mask)
        for index in bits(mask):
            self.mask_of[index] = mask

    def leave(self, mask: int) -> None:
        """Split a whole group into single nodes."""
        for index in bits(mask):
            self.mask_of[index] = 1 << index

    def order(self) -> list[BlockNode]:
        """Return a topological order in which groups are contiguous and that otherwise keeps program order."""
        groups = {mask: i for i, mask in enumerate(dict.fromkeys(self.mask_of))}
        waiting = [0] * len(groups)
        followers: list[set[int]] = []
        for mask in groups:
            after = {groups[self.mask_of[i]] for i in bits(self._followers(mask) & ~mask)}
            followers.append(after)
            for group in after:
                waiting[group] += 1
        masks = list(groups)
        ready = [(mask.bit_length(), group) for mask, group in groups.items() if not waiting[group]]
        heapq.heapify(ready)
        ordered: list[BlockNode] = []
        while ready:
            _, group = heapq.heappop(ready)
            ordered += self.graph.members(masks[group])
            for follower in followers[group]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (masks[follower].bit_length(), follower))
        if len(ordered) != len(self.graph.nodes):
            raise AssertionError("the groups form a cycle")
        return ordered

    def _followers(self, mask: int) -> int:
        result = 0
        for index in bits(mask):
            result |= self.graph.successors[index]
        return result
