"""The pass `partition`: divide a model among targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.codegen import CodeGenerator, generator_of
from mirlo.passes.byoc.fuse_by_pattern import explain, fuse
from mirlo.passes.byoc.inline import Inliner, all_operations
from mirlo.passes.byoc.outline import callee_of, functions_of
from mirlo.passes.byoc.records import Placement, RegionRecord
from mirlo.passes.byoc.regions import Merger
from mirlo.passes.byoc.restrict import check_numbers, restriction
from mirlo.passes.byoc.select import Decide
from mirlo.passes.byoc.tables import CALL_TIR, PatternEntry, entries_of, has_generator, is_host, split_options
from mirlo.passes.byoc.work import total
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@dataclass(frozen=True)
class RegionLimits:
    """Requirements of a region; 0 sets no limit."""

    max_nodes: int = 0
    max_regions: int = 0
    min_nodes: int = 0
    min_flops: int = 0

    def objection(self, region: RegionRecord) -> str | None:
        """Return why a region is not worth its call, or None."""
        if len(region.nodes) < self.min_nodes:
            return f"it has {len(region.nodes)} operators, at least {self.min_nodes} are wanted"
        if region.flops is not None and region.flops < self.min_flops:
            return f"it does {region.flops} operations, at least {self.min_flops} are wanted"
        return None


@dataclass
class Partitioner:
    """A partitioner of one module; the tables of targets are in order of priority."""

    module: ir.Operation
    session: Session
    tables: dict[str, list[PatternEntry]]
    limits: RegionLimits = field(default_factory=RegionLimits)
    bind_constants: bool = True
    functions: tuple[str, ...] = ()
    decide: Decide | None = None
    generators: Mapping[str, CodeGenerator] = field(default_factory=dict)
    """The code generators of the targets that have one, which may decline regions."""
    locations: list[ir.Location] = field(default_factory=list)
    """The locations of the placement's nodes, after a run."""

    def run(self) -> Placement:
        placement = Placement(tuple(self.tables))
        self.locations = fuse(
            self.module, self.tables, self.session, placement, self.bind_constants, self.functions, self.decide
        )
        nodes = {taken.function: taken.nodes for taken in placement.taken}
        for target in self.tables:
            start = len(placement.regions)
            Merger(self.module, target, placement, self.limits.max_nodes).run(self.session)
            for region in placement.regions[start:]:
                region.nodes = tuple(sorted(n for name in region.composites for n in nodes.get(name, ())))
                region.flops = total([placement.nodes[n].flops for n in region.nodes])
            self._limit(placement.regions[start:], placement)
        self.session.notes.append(placement)
        return placement

    def _limit(self, regions: Sequence[RegionRecord], placement: Placement) -> None:
        """Inline regions that miss the limits, and the smallest where there are too many."""
        kept = []
        functions = functions_of(self.module)
        for region in regions:
            region.reason = self.limits.objection(region) or self._refusal(region, functions)
            if not region.reason:
                kept.append(region)
        if self.limits.max_regions and len(kept) > self.limits.max_regions:
            kept.sort(key=lambda r: (-(r.flops or 0), -len(r.nodes), r.nodes))
            for region in kept[self.limits.max_regions :]:
                larger = f"{self.limits.max_regions} regions are allowed, that many do more"
                region.reason = larger
        dropped = [region for region in regions if region.reason]
        inliner = Inliner(self.module)
        for region in dropped:
            region.kept = False
            self._dissolve(region, inliner)
            gone = set(region.composites)
            placement.taken = [taken for taken in placement.taken if taken.function not in gone]
        inliner.drop_unused()

    def _refusal(self, region: RegionRecord, functions: Mapping[str, ir.Operation]) -> str:
        """Return why the code generator of a region declines it, or nothing."""
        generator = self.generators.get(region.target)
        accepted = generator is None or generator.accepts_region(functions[region.function].opview)
        return "" if accepted is True else str(accepted)

    def _dissolve(self, region: RegionRecord, inliner: Inliner) -> None:
        functions = functions_of(self.module)
        for function in functions.values():
            for op in all_operations(function):
                if callee_of(op) == region.function:
                    inliner.put_back(op, functions[region.function], self.module)
                    return


@register_pass
@dataclass(frozen=True)
class Partition(Pass):
    """Divide a model among targets: composites of what their patterns match, merged to regions.

    The targets are tried in the order given; what the first one takes is not offered to the next. A target that
    compiles whole models may come last: it gets the operators that no other takes. Options of a code generator follow
    its name, `targets=mine{fast-math},llvm`. Regions are convex, and the limits hold for each target. Why each node
    went where it did is appended to the session's notes.
    """

    name = "partition"
    contained = True
    targets: tuple[str, ...] = option((), "targets in the order of their priority")
    max_nodes: int = option(0, "most operators in a region; 0 for any number")
    max_regions: int = option(0, "most regions of a target, the largest are kept; 0 for any number")
    min_nodes: int = option(0, "fewest operators in a region")
    min_flops: int = option(0, "least work in a region, in floating point operations")
    bind_constants: bool = option(True, "move the constants that a match reads into the composite")
    functions: tuple[str, ...] = option((), "functions to divide; all when none is named")
    nodes: tuple[str, ...] = option((), "the nodes that targets may have, by their numbers: one=0-3+7,two=4; else all")
    explain: bool = option(False, "print for each operator in patterns why a target declined it")

    def run(self, op: ir.OpView, session: Session) -> None:
        limits = RegionLimits(self.max_nodes, self.max_regions, self.min_nodes, self.min_flops)
        tables = tables_of(self.targets)
        decide = restriction(self.nodes, tables) if self.nodes else None
        partitioner = Partitioner(
            op.operation,
            session,
            tables,
            limits,
            self.bind_constants,
            self.functions,
            decide,
            generators_of(self.targets),
        )
        _warn_of_loops(op.operation, tables, session)
        placement = partitioner.run()
        check_numbers(self.nodes, len(placement.nodes))
        if self.explain:
            explain(placement, partitioner.locations, session)


def _warn_of_loops(module: ir.Operation, tables: dict[str, list[PatternEntry]], session: Session) -> None:
    """Warn of targets that match prim functions only, where there are none yet."""
    functions = functions_of(module).values()
    if any(op.name == CALL_TIR for function in functions for op in all_operations(function)):
        return
    for target, entries in tables.items():
        if all(entry.is_of_loops for entry in entries):
            session.warning(
                f"the patterns of target '{target}' match calls of prim functions, and there are none: run 'legalize' "
                "before 'partition'",
                module.location,
            )


def tables_of(targets: Sequence[str]) -> dict[str, list[PatternEntry]]:
    """Return the patterns of targets named with options; the last target may take the rest of the model."""
    if not targets:
        raise PassError("'partition' needs the option 'targets': the code generators that may take parts of the model")
    tables: dict[str, list[PatternEntry]] = {}
    for i, text in enumerate(targets):
        target, options = split_options(text)
        if target in tables:
            raise PassError(f"target '{target}' is named twice")
        if is_host(target):
            if i != len(targets) - 1:
                raise PassError(f"target '{target}' takes all that is left: nothing would come to '{targets[i + 1]}'")
            continue
        tables[target] = entries_of(target, options)
    return tables


def generators_of(targets: Sequence[str]) -> dict[str, CodeGenerator]:
    """Return the code generators of those targets, named with options, that have one."""
    named = map(split_options, targets)
    return {name: generator_of(name, options) for name, options in named if has_generator(name)}
