"""Placement by cost: whole alternatives are compared, one of them made region by region, and the best one is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.driver.loaded import CallableModel
from mirlo.driver.models import open_model
from mirlo.driver.place.decision import Candidate, Decision, Nodes, RegionCost
from mirlo.driver.place.estimate import Estimate, figures_of
from mirlo.driver.place.measure import time_alternately
from mirlo.driver.place.regions import region_modules
from mirlo.driver.place.store import PlacementStore
from mirlo.driver.place.survey import Survey, place_parts
from mirlo.driver.programs import main_of
from mirlo.passes.byoc.records import RegionRecord
from mirlo.passes.byoc.restrict import as_text
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.targets import TargetError, find_target
from mirlo.runtime.errors import MirloError
from mirlo.runtime.extenders import compiler_version
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    pass

MAX_MEASURED_REGIONS = 24
"""Regions that are measured for themselves, those of the most work; others stay where priority puts them."""
CompileAs = Callable[[ir.Module, ParameterStore, str, Nodes | None, bool], "CallableModel"]
"""Compiles a module with its weights for targets, with the nodes that each may have; the flag says whether it is the
whole model."""


@dataclass
class Problem:
    """A model to place, as imported."""

    module: ir.Module
    params: ParameterStore
    targets: Targets
    threads: int
    compile_as: CompileAs
    before: str = ""
    """Passes that come before it is placed."""
    settings: str | None = ""
    """What else the times depend on; None where that is not known, and nothing is kept."""
    known: PlacementStore | None = None
    progress: Callable[[str], None] = field(default=lambda step: None)


def choose(problem: Problem, how: str) -> Decision:
    """Compare alternatives by estimated or measured cost."""
    if problem.targets.host is None:
        raise TargetError(f"placement by cost needs a target that compiles the rest: '{problem.targets},llvm'")
    _require_static_inputs(problem.module)
    chooser = _Chooser(problem)
    if how == "estimated":
        return chooser.estimated()
    key = _key(problem) if problem.known is not None else None
    entry = problem.known.find(key) if problem.known is not None and key is not None else None
    if entry is not None:
        return Decision.from_json(entry)
    decision = chooser.measured()
    if problem.known is not None and key is not None:
        problem.known.add(key, decision.to_json())
    return decision


def _key(problem: Problem) -> str | None:
    """Return a digest of the model's text and of everything that its times depend on."""
    assert problem.targets.host is not None
    host = problem.targets.host
    target = find_target(host.name)
    if problem.settings is None or not target.has("fingerprint"):
        return None
    parts = [problem.module.operation.get_asm(), problem.before, str(problem.targets), str(problem.threads)]
    parts += [problem.settings, target.fingerprint(host.options), compiler_version()]
    parts += [each.generator.fingerprint() for each in problem.targets.generators]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


@dataclass
class _Chooser:
    problem: Problem

    @property
    def host(self) -> str:
        assert self.problem.targets.host is not None
        return self.problem.targets.host.name

    def survey(self, targets: Targets, nodes: str = "") -> Survey:
        """Return the survey of a copy of the model, placed anew."""
        opened = open_model(self.problem.module, None, self.problem.params)
        return place_parts(opened, targets, nodes, self.problem.before)

    @cached_property
    def by_priority(self) -> Survey:
        return self.survey(self.problem.targets)

    @cached_property
    def singles(self) -> dict[str, Survey]:
        """Return, for each code generator, the model with it alone."""
        targets = self.problem.targets
        if len(targets.generators) == 1:
            return {targets.generators[0].name: self.by_priority}
        return {target.name: self.survey(Targets((target,), targets.host)) for target in targets.generators}

    def candidates(self, by_region: Nodes | None) -> list[Candidate]:
        """Return the alternatives: the host, each target as much as possible, by priority, by region; each once."""
        candidates = [Candidate(f"all on {self.host}", self._full({}))]
        candidates += [
            Candidate(f"{name}, {self.host}", self._full({name: _assigned_nodes(survey, name)}))
            for name, survey in self.singles.items()
        ]
        names = [target.name for target in self.problem.targets.generators]
        split = {name: _assigned_nodes(self.by_priority, name) for name in names}
        candidates.append(Candidate("by priority", self._full(split)))
        if by_region is not None:
            candidates.append(Candidate("by region", self._full(by_region)))
        unique = {as_text(candidate.nodes): candidate for candidate in reversed(candidates)}
        return [candidate for candidate in candidates if unique[as_text(candidate.nodes)] is candidate]

    def _full(self, nodes: Nodes) -> dict[str, list[int]]:
        return {target.name: sorted(nodes.get(target.name, ())) for target in self.problem.targets.generators}

    def _elsewhere(self, region: RegionRecord) -> Iterator[str]:
        """Yield the alternatives of a region: other code generators that take some of its nodes, and the host."""
        for name, survey in self.singles.items():
            if name != region.target and set(_assigned_nodes(survey, name)) & set(region.nodes):
                yield name
        yield self.host

    def _assigned(self, winners: Sequence[tuple[RegionRecord, str]]) -> Nodes:
        """Return the nodes of each target if every region goes to its winner."""
        nodes: dict[str, list[int]] = {}
        for region, winner in winners:
            if winner == region.target:
                nodes.setdefault(winner, []).extend(region.nodes)
            elif winner != self.host:
                taken = set(_assigned_nodes(self.singles[winner], winner))
                nodes.setdefault(winner, []).extend(node for node in region.nodes if node in taken)
        return nodes

    @property
    def regions(self) -> list[RegionRecord]:
        """Return the regions that are compared one by one; a single one is compared as a whole."""
        kept_regions = [region for region in self.by_priority.placement.regions if region.kept]
        return kept_regions if len(kept_regions) > 1 else []

    def estimated(self) -> Decision:
        """Return the placement of least cost by the figures that targets declare."""
        figures = figures_of(self.problem.targets)
        estimate = Estimate(self.by_priority.placement, figures, self.host, self.problem.threads)
        regions = []
        for region in self.regions:
            costs = {region.target: estimate.region(self.by_priority, region)}
            for name in self._elsewhere(region):
                costs[name] = self._estimated_on(estimate, region, name)
            costs = {name: round(cost, 3) for name, cost in costs.items()}
            best = min(costs, key=lambda name: costs[name])
            why = estimate.reasons(self.by_priority, region)
            regions.append(RegionCost(region.function, region.target, len(region.nodes), costs, best, why=why))
        winners = [(region, cost.best) for region, cost in zip(self.regions, regions, strict=True)]
        candidates: list[Candidate] = []
        for candidate in self.candidates(self._assigned(winners) if regions else None):
            survey = self.survey(self.problem.targets, as_text(candidate.nodes))
            cost = round(estimate.whole(survey), 3)
            first = candidates[0].microseconds if candidates else cost
            candidates.append(replace(candidate, microseconds=cost, ratio=round(cost / (first or 1.0), 4)))
        return self._decide("estimated", candidates, regions)

    def _estimated_on(self, estimate: Estimate, region: RegionRecord, name: str) -> float:
        if name == self.host:
            return estimate.on_host(region.nodes)
        return estimate.elsewhere(self.singles[name], region, name)

    def measured(self) -> Decision:
        """Return the fastest of the alternatives, which are compiled and timed alternately."""
        regions = self._measured_regions() if self.regions else []
        winners = [(region, cost.best) for region, cost in zip(self.regions, regions, strict=True)]
        candidates = self.candidates(self._assigned(winners) if regions else None)
        compiled, problems = {}, {}
        for candidate in candidates:
            self.problem.progress(f"compile {candidate.name}")
            try:
                compiled[candidate.name] = self._compiled(candidate)
            except MirloError as error:
                problems[candidate.name] = error
        if not compiled:
            raise problems[candidates[-1].name]
        self.problem.progress("measure")
        timings = time_alternately(compiled)
        measured = []
        for candidate in candidates:
            timing = timings.get(candidate.name)
            if timing is None:
                reason = str(problems[candidate.name]).splitlines()[0]
                measured.append(replace(candidate, problem=f"cannot be compiled: {reason}"))
                continue
            wrong = "" if timing.agrees else "not taken: its results differ from the first one's"
            microseconds = round(timing.microseconds, 1)
            measured.append(replace(candidate, microseconds=microseconds, ratio=round(timing.ratio, 4), problem=wrong))
        return self._decide("measured", measured, regions)

    def _compiled(self, candidate: Candidate) -> CallableModel:
        if not any(candidate.nodes.values()):
            return self._whole(str(self.problem.targets.host), None)
        return self._whole(str(self.problem.targets), candidate.nodes)

    def _whole(self, target: str, nodes: Nodes | None) -> CallableModel:
        return self.problem.compile_as(self.problem.module, self.problem.params, target, nodes, True)

    def _measured_regions(self) -> list[RegionCost]:
        opened = open_model(self.problem.module, None, self.problem.params)
        largest = sorted(self.regions, key=lambda region: -(region.flops or 0))[:MAX_MEASURED_REGIONS]
        wanted = {region.function for region in largest}
        modules = region_modules(opened, self.problem.targets, self.problem.before, wanted)
        timed: dict[str, tuple[dict[str, float], str]] = {}
        costs = []
        for region in self.regions:
            if region.function not in wanted:
                reason = f"not measured: {MAX_MEASURED_REGIONS} others do more"
                costs.append(RegionCost(region.function, region.target, len(region.nodes), {}, region.target, reason))
                continue
            module = modules[region.function]
            names = [region.target, *self._elsewhere(region)]
            # Equal regions are timed once.
            key = f"{names}\n{module.operation.get_asm()}"
            if key not in timed:
                self.problem.progress(f"measure {region.function}")
                # Its constants may be folded ones, which the model that was given does not have.
                timed[key] = self._timed(module, opened.session.params, names)
            microseconds, problem = timed[key]
            best = min(microseconds, key=lambda name: microseconds[name], default=region.target)
            costs.append(RegionCost(region.function, region.target, len(region.nodes), microseconds, best, problem))
        return costs

    def _timed(self, module: ir.Module, params: ParameterStore, names: Sequence[str]) -> tuple[dict[str, float], str]:
        """Return the microseconds of a region by target, and the reasons why other targets are left out."""
        chosen = {target.name: str(target) for target in self.problem.targets.generators}
        compiled, problems = {}, []
        for name in names:
            text = f"{chosen[name]},{self.problem.targets.host}" if name in chosen else str(self.problem.targets.host)
            try:
                compiled[name] = self.problem.compile_as(module, params, text, None, False)
            except MirloError as error:
                problems.append(f"{name} cannot compile it: {str(error).splitlines()[0]}")
        timings = time_alternately(compiled) if compiled else {}
        problems += [f"results of {name} differ" for name, timing in timings.items() if not timing.agrees]
        return {name: round(t.microseconds, 1) for name, t in timings.items() if t.agrees}, "; ".join(problems)

    def _decide(self, how: str, candidates: Sequence[Candidate], regions: Sequence[RegionCost]) -> Decision:
        usable = [measured for measured in candidates if measured.microseconds is not None and not measured.problem]
        best = min(usable, key=lambda candidate: candidate.microseconds or 0.0)
        return Decision(how, self.problem.threads, best.name, tuple(candidates), tuple(regions))


def _require_static_inputs(module: ir.Module) -> None:
    """Raise an error if inputs have dynamic dims: the best placement depends on their sizes."""
    with module.context:
        main = main_of(module)
        for number, input_type in enumerate(main.type.inputs if main is not None else ()):
            kind = TensorType.from_mlir(input_type)
            if kind is not None and not kind.is_static:
                raise TargetError(
                    f"input {number} is {kind}: placement by cost needs a number for each dim; "
                    "give the shapes of the inputs (--shape, in Python shapes=)"
                )


def _assigned_nodes(survey: Survey, target: str) -> list[int]:
    return sorted(node for taken in survey.placement.taken if taken.target == target for node in taken.nodes)
