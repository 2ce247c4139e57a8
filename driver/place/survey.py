"""The placement of a model's parts: the passes that place them, run without code generation, and their records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.driver.models import ModelError, OpenedModel, open_model
from mirlo.driver.place.decision import Decision
from mirlo.driver.programs import needs_program
from mirlo.driver.request import open_database
from mirlo.passes.byoc.hoist_layouts import LayoutRecord
from mirlo.passes.byoc.records import AttemptRecord, CompositeRecord, Placement, RegionRecord
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.tuned import TUNING
from mirlo.passes.targets import TargetError
from mirlo.runtime.records import dataclass


@dataclass
class Indexed(Placement):
    """A placement with an index by node."""

    def owner(self, node: int) -> CompositeRecord | None:
        return self._owners.get(node)

    def about(self, node: int) -> list[AttemptRecord]:
        return self._about[node]

    def region_of(self, node: int) -> RegionRecord | None:
        """Return the region of a node, or None."""
        return self._regions.get(node)

    @cached_property
    def _owners(self) -> dict[int, CompositeRecord]:
        return {node: taken for taken in self.taken for node in taken.nodes}

    @cached_property
    def _regions(self) -> dict[int, RegionRecord]:
        return {node: region for region in self.regions if region.kept for node in region.nodes}

    @cached_property
    def _about(self) -> dict[int, list[AttemptRecord]]:
        result: dict[int, list[AttemptRecord]] = defaultdict(list)
        for attempt in self.attempts:
            members = {attempt.root, *attempt.nodes} | ({attempt.at} if attempt.at is not None else set())
            for node in members:
                result[node].append(attempt)
        return result

    @staticmethod
    def of(placement: Placement) -> Indexed:
        return Indexed(**vars(placement))


@dataclass(frozen=True)
class Share:
    """The share of one target of a model."""

    nodes: int
    flops: int | None
    bytes: int | None
    """What its operators read and write."""
    composites: int = 0
    regions: int = 0
    bytes_in: int | None = 0
    """What a run of the model hands to its regions, constants not included."""
    bytes_out: int | None = 0
    tensors: int = 0
    """Tensors that are handed over, in both directions."""
    permutes: int = 0
    """Transposes that its layouts need, in its regions and around them."""
    boundary_permutes: int = 0
    """Those between its regions and the rest of the model."""
    copies: int = 0
    """Tensors that are copied from and to a memory of its own."""


@dataclass(frozen=True)
class Survey:
    """A model that was placed."""

    targets: Targets
    placement: Indexed
    layouts: Mapping[str, LayoutRecord] = field(default_factory=dict)
    nodes: str = ""
    """The restriction under which it was placed, as the option `nodes` of `partition` says it."""
    decision: Decision | None = None
    """What was compared before; None where targets were tried by priority."""

    @property
    def rest(self) -> str:
        """Return the name of the target that compiles what no code generator took; empty if none does."""
        return self.targets.host.name if self.targets.host is not None else ""

    def target_of(self, node: int) -> str:
        """Return the target of a node."""
        taken = self.placement.owner(node)
        return taken.target if taken is not None else self.rest

    @cached_property
    def shares(self) -> dict[str, Share]:
        """Return the shares by target, in their order; the rest is last, under the host's name or ''."""
        members: dict[str, list[int]] = {target.name: [] for target in self.targets.generators}
        members[self.rest] = []
        for node in self.placement.nodes:
            members[self.target_of(node.id)].append(node.id)
        return {name: self._share(name, nodes) for name, nodes in members.items()}

    @property
    def total(self) -> Share:
        """Return the sum over the whole model."""
        return self._share("", [node.id for node in self.placement.nodes])

    def _share(self, name: str, members: Sequence[int]) -> Share:
        nodes = [self.placement.nodes[i] for i in members]
        flops, size = _sum(n.flops for n in nodes), _sum(n.bytes for n in nodes)
        chosen = next((target for target in self.targets.generators if target.name == name), None)
        if chosen is None:
            return Share(len(nodes), flops, size)
        regions = [r for r in self.placement.regions if r.target == name and r.kept]
        tensors = sum(region.tensors for region in regions)
        layout = self.layouts.get(name)
        return Share(
            len(nodes), flops, size,
            composites=sum(taken.target == name for taken in self.placement.taken),
            regions=len(regions),
            bytes_in=_sum(r.bytes_in for r in regions),
            bytes_out=_sum(r.bytes_out for r in regions),
            tensors=tensors,
            permutes=layout.left if layout is not None else 0,
            boundary_permutes=layout.at_boundary if layout is not None else 0,
            copies=tensors if chosen.generator.copies else 0,
        )  # fmt: skip


def survey(
    model: object,
    target: str | Sequence[str],
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    nodes: str = "",
) -> Survey:
    """Place the parts of a model, with tuned choices; `nodes` restricts the nodes of each target, as in `partition`."""
    return place_parts(open_model(model, shapes), divided(target), nodes)


def divided(target: str | Sequence[str]) -> Targets:
    """Return the targets of these names; raise an error if none of them takes parts of models."""
    targets = Targets.parse(target)
    if not targets.generators:
        raise TargetError(
            f"target '{targets}' compiles whole models, there is nothing to divide: name a code generator before it, "
            f"such as 'onednn,{targets}'"
        )
    return targets


def place_parts(opened: OpenedModel, targets: Targets, nodes: str = "", before: str = "") -> Survey:
    """Place the parts of a model that is open, after these passes; its module is changed."""
    if needs_program(opened.module):
        raise ModelError(
            "the model works on strings, sequences or optional values: its parts on tensors are compiled one by one, "
            "and placed then; 'mirlo explain' shows them"
        )
    first = len(opened.session.notes)
    if TUNING not in opened.session.options:
        opened.session.options[TUNING] = open_database(tune=True)
    with opened.module.context, ir.Location.unknown():
        placing = targets.placing_for_good(nodes) if targets.of_operators else targets.placing_loops()
        Pipeline(",".join(filter(None, [before, placing]))).run(opened.module, opened.session)
    if targets.of_operators and targets.of_loops:
        opened.session.warning(
            f"the prim functions that '{targets.of_loops[0].name}' matches are placed after legalization: "
            "'mirlo explain' shows them"
        )
    notes = opened.session.notes[first:]
    placement = next(note for note in notes if isinstance(note, Placement))
    layouts = {note.target: note for note in notes if isinstance(note, LayoutRecord)}
    return Survey(targets, Indexed.of(placement), layouts, nodes)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a part is unknown."""
    values = list(numbers)
    known = [number for number in values if number is not None]
    return sum(known) if len(known) == len(values) else None
