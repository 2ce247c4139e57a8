"""Selection of elementwise maps that each kernel which reads them computes again, on the graph of nodes of `groups.py`.

The result of such a map is never stored: `x - mean` is computed by the sum of its squares and by the normalization,
which read `x` instead. A map is selected where that moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mirlo.passes.fuse.groups import TAKES_ELEMENTS, Groups
from mirlo.passes.fuse.kinds import FusionKind
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Recomputation:
    """A map, and the nodes that read it, in the kernels that they are in."""

    members: list[int]
    """The nodes of the map in program order; the last one has its result."""
    readers: list[list[int]]
    """The users of the result, one list per kernel."""


def select_recomputed(groups: Groups, nbytes: Sequence[int], stored: Collection[int]) -> list[Recomputation]:
    """Return maps to compute again in each reader, none of which reads another; those that end at `stored` are not."""
    selected: list[Recomputation] = []
    taken: set[int] = set()
    for members in _maps(groups):
        last = groups.nodes[members[-1]]
        if last.index in stored or last.escapes or taken.intersection(last.users):
            continue
        by_kernel: dict[int, list[int]] = {}
        for user in last.users:
            by_kernel.setdefault(groups.find(user), []).append(user)
        if len(by_kernel) < 2 or not all(_takes_elements(groups, user) for user in last.users):
            continue
        read, (result,) = _reads(groups, members), last.makes
        once = sum(nbytes[value] for value in read) + (1 + len(by_kernel)) * nbytes[result]
        again = sum(nbytes[v] for kernel in by_kernel for v in read - _reads(groups, groups.inside[kernel]))
        if again < once:
            selected.append(Recomputation(members, list(by_kernel.values())))
            taken.update(members)
    return selected


def _maps(groups: Groups) -> Iterator[list[int]]:
    """Yield the kernels that are cheap elementwise maps, the last one first."""
    for node in reversed(groups.nodes):
        members = groups.inside[groups.find(node.index)]
        if node.kind > FusionKind.BROADCAST or node.index != max(members):
            continue
        if all(groups.nodes[i].is_cheap and groups.nodes[i].kind <= FusionKind.BROADCAST for i in members):
            yield sorted(members)


def _takes_elements(groups: Groups, user: int) -> bool:
    """Return whether a node computes elements of its operands where it reads them."""
    kind = groups.nodes[user].kind
    return kind <= FusionKind.INJECTIVE or kind in TAKES_ELEMENTS


def _reads(groups: Groups, members: Collection[int]) -> set[int]:
    """Return the values that a kernel reads from memory."""
    nodes = [groups.nodes[i] for i in members]
    return {v for node in nodes for v in node.reads} - {v for node in nodes for v in node.makes}
