"""Search for the first node that departs, and for the smallest submodel that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.submodel import Submodel, ancestors, cut, live_after
from mirlo.tools.bisect.trial import Trial, TrialOptions, try_submodel
from mirlo.tools.bisect.units import DividedModel

if TYPE_CHECKING:
    from mirlo.tools.bisect.compare import ModelValue

ReportProgress = Callable[[str], None]

SHRINK_TRIALS = 40
"""Maximum trials for reducing a submodel."""


@dataclass(frozen=True)
class DepartingNode:
    """A node, the last of its unit, and the submodel that shows that it departs."""

    node: int
    unit: int
    part: Submodel
    trial: Trial


def first_departing_node(
    divided: DividedModel,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    whole: Trial,
    progress: ReportProgress,
    start: int = 0,
) -> DepartingNode:
    """Return the first node from the unit `start` on that departs, by binary search; the model must depart.

    Invariant: all values that are live after unit `low` are as expected, some after unit `high` are not.
    """
    low, high, trial = start - 1, len(divided.units) - 1, whole
    part = stretch(divided, start, high, values)
    while high - low > 1:
        middle = (low + high) // 2
        tried_part = stretch(divided, start, middle, values)
        tried = try_submodel(tried_part, values, settings)
        first, last = divided.units[start].nodes[0], divided.units[middle].nodes[-1]
        count = len(divided.model.content.graph.nodes)
        progress(f"nodes {first} to {last} of {count}: {tried.departs or 'as expected'}")
        if tried.departs is None:
            low = middle
        else:
            high, part, trial = middle, tried_part, tried
    return _smallest(
        divided, DepartingNode(divided.units[high].nodes[-1], high, part, trial), values, settings, progress
    )


def stretch(divided: DividedModel, start: int, last: int, values: Mapping[str, ModelValue]) -> Submodel:
    """Return the nodes in a range of units, and all of their values that later nodes or the model's outputs read."""
    nodes, model = divided.nodes(start, last), divided.model
    outputs = {name for index in nodes for name in model.content.graph.nodes[index].outputs}
    live = [name for name in live_after(model, nodes[-1]) if name in outputs]
    return cut(model, nodes, live, values)


def _smallest(
    divided: DividedModel,
    departing: DepartingNode,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    progress: ReportProgress,
) -> DepartingNode:
    """Return the unit alone if it departs, else with as few of the preceding units as needed."""
    outputs = unit_outputs(divided, departing.unit, values)
    before = _units_before(divided, departing)
    count, budget = 1, SHRINK_TRIALS
    while budget:
        units = before[-count:]
        part, trial = _try(divided, units, outputs, values, settings)
        budget -= 1
        progress(
            f"{'the node alone' if count == 1 else f'the last {len(units)} nodes'}: {trial.departs or 'as expected'}"
        )
        if trial.departs is not None:
            smaller = DepartingNode(departing.node, departing.unit, part, trial)
            return _without(divided, smaller, units, outputs, values, settings, budget, progress)
        if count >= len(before):
            break
        count = min(2 * count, len(before))
    return departing


def unit_outputs(divided: DividedModel, unit: int, values: Mapping[str, ModelValue]) -> list[str]:
    """Return the values of a unit that others read, or the model returns."""
    graph = divided.model.content.graph
    own = divided.units[unit].nodes
    live = set(live_after(divided.model, own[-1]))
    listed = [name for index in own for name in graph.nodes[index].outputs if name in values and name in live]
    return listed or [name for name in graph.nodes[own[-1]].outputs if name in values]


def _units_before(divided: DividedModel, departing: DepartingNode) -> list[int]:
    """Return the unit that departs, and those of the part that it depends on, in order."""
    place = {index: i for i, unit in enumerate(divided.units) for index in unit.nodes}
    inside = {place[index] for index in departing.part.nodes}
    needed = {place[index] for own in divided.units[departing.unit].nodes for index in ancestors(divided.model, own)}
    return sorted((needed & inside) | {departing.unit})


def _without(
    divided: DividedModel,
    departing: DepartingNode,
    units: Sequence[int],
    outputs: Sequence[str],
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    budget: int,
    progress: ReportProgress,
) -> DepartingNode:
    """Remove units one by one, as long as the rest still departs."""
    left = list(units)
    for unit in units:
        if unit == departing.unit or not budget:
            continue
        budget -= 1
        rest = [other for other in left if other != unit]
        part, trial = _try(divided, rest, outputs, values, settings)
        name = divided.model.content.graph.nodes[divided.units[unit].nodes[-1]].name
        progress(f"without '{name}': {trial.departs or 'as expected'}")
        if trial.departs is not None:
            left, departing = rest, DepartingNode(departing.node, departing.unit, part, trial)
    return departing


def _try(
    divided: DividedModel,
    units: Sequence[int],
    outputs: Sequence[str],
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
) -> tuple[Submodel, Trial]:
    part = cut(divided.model, [index for unit in units for index in divided.units[unit].nodes], outputs, values)
    return part, try_submodel(part, values, settings)
