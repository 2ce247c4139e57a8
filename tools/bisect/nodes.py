"""Search for the first node that departs, and for the smallest submodel that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.tools.bisect.submodel import Submodel, ancestors, cut, live_after
from mirlo.tools.bisect.trial import Trial, TrialOptions, try_submodel

if TYPE_CHECKING:
    from mirlo.frontends.onnx.model import LoadedModel
    from mirlo.tools.bisect.compare import ModelValue

Tell = Callable[[str], None]

SHRINK_TRIALS = 40
"""Maximum trials for reducing a submodel."""


@dataclass(frozen=True)
class DepartingNode:
    """A node, and the submodel that shows that it departs."""

    node: int
    part: Submodel
    trial: Trial


def first_departing_node(
    model: LoadedModel,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    whole: Trial,
    tell: Tell,
    start: int = 0,
) -> DepartingNode:
    """Return the first node from `start` on that departs, by binary search; the model must depart.

    Invariant: all values that are live after node `low` are as expected, some after node `high` are not.
    """
    low, high, trial = start - 1, len(model.content.graph.nodes) - 1, whole
    part = stretch(model, start, high, values)
    while high - low > 1:
        middle = (low + high) // 2
        tried_part = stretch(model, start, middle, values)
        tried = try_submodel(tried_part, values, settings)
        tell(f"nodes {start} to {middle} of {len(model.content.graph.nodes)}: {tried.departs or 'as expected'}")
        if tried.departs is None:
            low = middle
        else:
            high, part, trial = middle, tried_part, tried
    return _smallest(model, DepartingNode(high, part, trial), values, settings, start, tell)


def stretch(model: LoadedModel, start: int, last: int, values: Mapping[str, ModelValue]) -> Submodel:
    """Return the nodes in a range, and all of their values that later nodes or the model's outputs read."""
    outputs = {name for node in model.content.graph.nodes[start : last + 1] for name in node.outputs}
    return cut(model, range(start, last + 1), [name for name in live_after(model, last) if name in outputs], values)


def _smallest(
    model: LoadedModel,
    found: DepartingNode,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    start: int,
    tell: Tell,
) -> DepartingNode:
    """Return the node alone if it departs, else with as few of the preceding nodes as needed."""
    outputs = [name for name in model.content.graph.nodes[found.node].outputs if name in values]
    before = [index for index in ancestors(model, found.node) if index >= start]
    count, budget = 1, SHRINK_TRIALS
    while budget:
        nodes = before[-count:]
        part, trial = _try(model, nodes, outputs, values, settings)
        budget -= 1
        tell(f"{'the node alone' if count == 1 else f'the last {len(nodes)} nodes'}: {trial.departs or 'as expected'}")
        if trial.departs is not None:
            return _without(model, DepartingNode(found.node, part, trial), outputs, values, settings, budget, tell)
        if count >= len(before):
            break
        count = min(2 * count, len(before))
    return found


def _without(
    model: LoadedModel,
    found: DepartingNode,
    outputs: Sequence[str],
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    budget: int,
    tell: Tell,
) -> DepartingNode:
    """Remove nodes one by one, as long as the rest still departs."""
    for node in found.part.nodes[:-1]:
        if not budget:
            break
        budget -= 1
        rest = [other for other in found.part.nodes if other != node]
        part, trial = _try(model, rest, outputs, values, settings)
        tell(f"without '{model.content.graph.nodes[node].name}': {trial.departs or 'as expected'}")
        if trial.departs is not None:
            found = DepartingNode(found.node, part, trial)
    return found


def _try(
    model: LoadedModel,
    nodes: Sequence[int],
    outputs: Sequence[str],
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
) -> tuple[Submodel, Trial]:
    part = cut(model, nodes, outputs, values)
    return part, try_submodel(part, values, settings)
