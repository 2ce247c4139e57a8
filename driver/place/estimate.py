"""The cost of a placement by the figures of targets: a roofline for each composite, calls, transfers, permutes.

Nodes of the host are grouped roughly as its fusion does: an operator joins the producer of its operand, unless other
nodes read that operand or both are contractions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from mirlo.dialects.context import operation_class
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.driver.place.survey import Survey
from mirlo.passes.byoc.records import NodeRecord, Placement, RegionRecord
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.figures import Cost, Figures, RegionWork
from mirlo.passes.targets import TargetError, find_target
from mirlo.runtime.records import dataclass

_TYPE = re.compile(r"^(\w+)\[([\d, ]*)\]$")


def figures_of(targets: Targets) -> dict[str, Figures]:
    """Return the figures of all targets; raise an error that names a target without figures."""
    host = targets.host
    assert host is not None
    by_target = {target.name: target.generator.figures_beside(host.name, host.options) for target in targets.generators}
    by_target[host.name] = find_target(host.name).speed(host.options)
    missing = [name for name, figures in by_target.items() if figures is None]
    if missing:
        raise TargetError(
            f"target '{missing[0]}' declares no figures of its speed (CodeGenerator.figures): placement by estimated "
            "cost needs them; placement by measured cost does not"
        )
    return {name: figures for name, figures in by_target.items() if figures is not None}


@dataclass
class Estimate:
    """Costs in microseconds, of the nodes of one model."""

    placement: Placement
    figures: dict[str, Figures]
    host: str
    threads: int = 1

    def whole(self, survey: Survey) -> float:
        """Return the cost of a model that was placed."""
        rest = [node.id for node in survey.placement.nodes if survey.placement.owner(node.id) is None]
        regions = [region for region in survey.placement.regions if region.kept]
        return self.on_host(rest) + sum(self.region(survey, region) for region in regions)

    def reasons(self, survey: Survey, region: RegionRecord) -> dict[str, str]:
        """Return the bottleneck of a region's costliest composite, on its target and on the host."""
        composites = frozenset(region.composites)
        groups = [taken.nodes for taken in survey.placement.taken if taken.function in composites]
        heaviest = max(groups, key=lambda nodes: sum(self.placement.nodes[i].flops or 0 for i in nodes), default=())
        names = (region.target, self.host) if heaviest else ()
        return {name: self._cost(heaviest, self.figures[name]).why for name in names}

    def region(self, survey: Survey, region: RegionRecord) -> float:
        """Return the cost of one region on its target: its composites, its call, and transfers across its boundary."""
        return self._region_cost(survey, region, region.target, frozenset(region.composites))

    def elsewhere(self, single: Survey, region: RegionRecord, target: str) -> float:
        """Return the cost of a region on another target: the part that the target takes, and the rest on the host."""
        inside = set(region.nodes)
        selected = [taken for taken in single.placement.taken if inside.issuperset(taken.nodes)]
        rest = inside.difference(*(taken.nodes for taken in selected))
        cost = self._region_cost(single, region, target, frozenset(taken.function for taken in selected))
        return cost + self.on_host(sorted(rest))

    def _region_cost(self, survey: Survey, region: RegionRecord, target: str, composites: frozenset[str]) -> float:
        figures = self.figures[target]
        groups = [taken.nodes for taken in survey.placement.taken if taken.function in composites]
        known = region.microseconds if region.target == target and composites == set(region.composites) else None
        cost = figures.call_us + (sum(self._group(nodes, figures) for nodes in groups) if known is None else known)
        moved = (region.bytes_in or 0) + (region.bytes_out or 0)
        if figures.transfer_gbytes:
            cost += moved / figures.transfer_gbytes / 1e3
        layout = survey.layouts.get(target)
        if layout is not None and layout.left:
            # Which tensors are permuted is not recorded: an even part of what crosses boundaries, read and written.
            tensors = sum(r.tensors for r in survey.placement.regions if r.kept and r.target == target)
            permuted = min(1.0, layout.left / tensors) if tensors else 0.0
            cost += 2 * moved * permuted / self.figures[self.host].gbytes / 1e3
        return cost

    def on_host(self, nodes: Sequence[int]) -> float:
        """Return the cost of nodes that the host compiles."""
        figures = self.figures[self.host]
        return sum(figures.call_us + self._group(group, figures) for group in self._fused(nodes))

    def _group(self, nodes: Sequence[int], figures: Figures) -> float:
        return self._cost(nodes, figures).microseconds

    def _cost(self, nodes: Sequence[int], figures: Figures) -> Cost:
        members = [self.placement.nodes[i] for i in nodes]
        heaviest = max(members, key=lambda node: node.flops or 0)
        flops = sum(node.flops or 0 for node in members)
        size = self._external_bytes(members)
        return figures.cost(
            RegionWork(heaviest.operator, heaviest.operands, heaviest.results, flops, size), self.threads
        )

    def _external_bytes(self, members: Sequence[NodeRecord]) -> int:
        """Return the bytes that a group reads and writes: values between its nodes stay in registers or caches."""
        inside = Counter(read for node in members for read in node.reads)
        size = sum(2 * bytes_of_types(n.results) if _has(n, Trait.SUBSET) else n.bytes or 0 for n in members)
        for node in members:
            readers = inside[node.id]
            if readers:
                written = readers == self._readers[node.id]
                size -= bytes_of_types(node.results) * (readers + written)
        return max(0, size)

    @cached_property
    def _readers(self) -> Counter[int]:
        return Counter(read for node in self.placement.nodes for read in node.reads)

    def _fused(self, nodes: Collection[int]) -> Iterator[list[int]]:
        groups: dict[int, list[int]] = {}
        heavy: set[int] = set()
        leader: dict[int, int] = {}
        for i in sorted(nodes):
            node = self.placement.nodes[i]
            is_heavy = _has(node, Trait.CONTRACTION)
            first = None
            for other in node.reads:
                leaders = leader.get(other)
                fits = leaders is not None and self._readers[other] == 1 and not (is_heavy and leaders in heavy)
                if fits and first is None:
                    first = leaders
            leader[i] = i if first is None else first
            groups.setdefault(leader[i], []).append(i)
            if is_heavy:
                heavy.add(leader[i])
        yield from groups.values()


def _has(node: NodeRecord, trait: Trait) -> bool:
    cls = operation_class(node.operator)
    return cls is not None and trait in traits_of(cls)


def bytes_of_types(types: Sequence[str]) -> int:
    """Return the bytes of tensors, given the text of their types; dynamic ones count as 0."""
    total = 0
    for text in types:
        match = _TYPE.match(text)
        if match is not None:
            total += (
                math.prod(int(dim) for dim in match.group(2).split(",") if dim.strip()) * dtype(match.group(1)).bytes
            )
    return total
