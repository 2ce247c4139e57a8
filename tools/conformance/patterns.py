"""Comparison of code generators with their patterns: cases drawn from each pattern, taken, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.tables import PatternEntry
from mirlo.passes.byoc.target_list import Targets
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.case_search import CaseCheck, CaseSearch
from mirlo.tools.conformance.derivations import PatternGraph, graphs_of, producing
from mirlo.tools.conformance.programs import taken_patterns


def check_patterns(
    target: str, only: Sequence[str] | None = None, report: Callable[[str], None] = lambda step: None
) -> Iterator[CaseCheck]:
    """Check each pattern of each code generator of the target list; of `only`: itself, or one with such an operator."""
    targets = Targets.parse(target).or_host()
    for chosen in targets.generators:
        beside = f"{chosen},{targets.host}"
        entries: dict[str, list[PatternEntry]] = {}
        for entry in chosen.entries:
            if not entry.is_of_loops and (only is None or {entry.full_name, *entry.operators} & set(only)):
                entries.setdefault(entry.full_name, []).append(entry)
        for i, (name, same) in enumerate(entries.items()):
            report(f"pattern {name}, {i + 1} of {len(entries)}")
            others = [entry for other, listed in entries.items() if other != name for entry in listed]
            yield PatternSearch(name, beside, str(targets.host), entries=same, others=others).check()


def operator_patterns(target: str) -> list[str]:
    """Return the patterns of operators of the target list, `target.pattern` each."""
    generators = Targets.parse(target).generators
    return list(dict.fromkeys(e.full_name for chosen in generators for e in chosen.entries if not e.is_of_loops))


def loop_patterns(target: str) -> list[str]:
    """Return the patterns of prim functions of the target list, `target.pattern` each."""
    generators = Targets.parse(target).generators
    return list(dict.fromkeys(e.full_name for chosen in generators for e in chosen.entries if e.is_of_loops))


@dataclass
class PatternSearch(CaseSearch):
    """The search for cases of one pattern of a code generator."""

    entries: Sequence[PatternEntry] = field(default_factory=list)
    """The entries of that name."""
    others: Sequence[PatternEntry] = ()
    """The other entries of the code generator, whose results it may have to read to be taken."""

    def graphs(self) -> tuple[list[PatternGraph], str]:
        return graphs_of([entry.pattern for entry in self.entries])

    def beside_others(self, graphs: Sequence[PatternGraph]) -> list[PatternGraph]:
        entries = (*self.others, *self.entries)
        producers = [graph for entry in entries for graph in graphs_of([entry.pattern])[0][:1]]
        produced = (producing(producer, graph) for graph in graphs for producer in producers)
        return [graph for graph in produced if graph is not None]

    def passes(self) -> str:
        return Targets.parse(self.target).dividing()

    def taken_names(self, notes: Sequence[object]) -> frozenset[str]:
        return frozenset(name for name, patterns in taken_patterns(notes).items() if self.name in patterns)

    def declined(self, notes: Sequence[object]) -> Iterator[str]:
        target, _, pattern = self.name.partition(".")
        for placement in notes:
            if isinstance(placement, Placement):
                for attempt in placement.attempts:
                    if not attempt.accepted and (attempt.target, attempt.pattern) == (target, pattern):
                        yield attempt.reason
                yield from (region.reason for region in placement.regions if region.reason)
