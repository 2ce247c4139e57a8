"""Detection of nodes that depart only because they amplify the rounding of their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from mirlo.frontends.onnx.order import read_names
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.compare import ModelValue, Tolerance, difference, wrong_elements
from mirlo.tools.bisect.nodes import DepartingNode, unit_outputs
from mirlo.tools.bisect.oracles import Oracle, OracleError
from mirlo.tools.bisect.submodel import cut
from mirlo.tools.bisect.trial import TrialOptions, try_submodel
from mirlo.tools.bisect.units import DividedModel

if TYPE_CHECKING:
    from mirlo.frontends.onnx.model import LoadedModel

RANDOM_ROUNDINGS = 6
"""Patterns of inputs rounded up and down for which the oracle computes a node, besides all up and all down."""
EXACT = Tolerance(0.0, 0.0)


@dataclass(frozen=True)
class Amplified:
    """A node whose result departs although it agrees with the oracle on its own inputs."""

    node: int
    began: int
    """The first node before it whose result is not bit-identical to the oracle's."""
    how: str
    """The difference at that node."""


def amplified(
    divided: DividedModel,
    departing: DepartingNode,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    oracle: Oracle,
) -> Amplified | None:
    """Return the origin of the rounding that explains a departure; None if rounding does not explain it.

    It does if every element that departs also departs in the oracle's results for inputs that differ by rounding. The
    nodes before it are compiled without those code generators whose composite it ends.
    """
    model = divided.model
    node = model.content.graph.nodes[departing.node]
    before = departing.part.nodes[:-1]
    if departing.trial.failed or departing.part.nodes[-1] != departing.node or not before:
        return None
    computed = [name for index in before for name in model.content.graph.nodes[index].outputs if name in values]
    inputs = [name for name in dict.fromkeys(read_names(node)) if name in computed]
    outputs = [name for name in node.outputs if name in values]
    others = set(unit_outputs(divided, departing.unit, values)) - set(outputs)
    if any(difference(departing.trial.values.get(name), values[name], settings.tolerance) for name in others):
        return None
    upstream = try_submodel(cut(model, before, inputs, values), values, settings)
    if upstream.departs is not None or not inputs:
        return None
    alone = cut(model, [departing.node], outputs, values)
    near: dict[str, list[ModelValue]] = {name: [] for name in outputs}
    for feeds in _roundings({name: values[name] for name in inputs}, upstream.values):
        try:
            results = oracle(alone.model, alone.feeds | feeds, outputs)
        except OracleError:
            return None
        for name in outputs:
            near[name].append(results[name])
    for name in outputs:
        if not _explains(near[name], departing.trial.values.get(name), values[name], settings.tolerance):
            return None
    return _beginning(model, departing, values, settings)


def _roundings(
    expected: Mapping[str, ModelValue], computed: Mapping[str, ModelValue]
) -> Iterator[dict[str, ModelValue]]:
    """Yield candidate inputs: as computed by compiled code, and the oracle's values rounded up and down."""
    yield {name: computed[name] for name in expected}
    rng = np.random.default_rng(0)
    for pattern in range(2 + RANDOM_ROUNDINGS):
        roundings = {}
        for name, array in expected.items():
            direction = (1, -1)[pattern] if pattern < 2 else rng.choice((-1, 1), np.asarray(array).shape)
            roundings[name] = _rounded(array, computed[name], direction)
        yield roundings


def _rounded(expected: ModelValue, computed: ModelValue, direction: np.ndarray | int) -> ModelValue:
    """Move floats by the distance of the computed ones, at least to the next float; return others as computed."""
    if isinstance(expected, (list, tuple)):
        return computed
    array = np.asarray(expected)
    try:
        epsilon = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    except ValueError:
        return computed
    wide, other = array.astype(np.float64), np.asarray(computed).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.nan_to_num(np.maximum(np.abs(wide - other), epsilon * np.abs(wide)), nan=0.0, posinf=0.0)
        return np.asarray(wide + direction * distance).astype(array.dtype)


def _explains(near: list[ModelValue], actual: ModelValue, expected: ModelValue, tolerance: Tolerance) -> bool:
    """Return whether each departing element departs for rounded inputs too, or is between their results."""
    wrong = wrong_elements(actual, expected, tolerance)
    if wrong is None:
        return False
    arrays = [np.asarray(array) for array in near]
    if any(array.shape != np.asarray(expected).shape for array in arrays):  # even the shape depends on rounding
        return True
    departs = np.zeros(wrong.shape, bool)
    for array in arrays:
        departs |= wrong_elements(array, expected, tolerance)
    if np.asarray(expected).dtype.kind not in "OSUbc":
        stacked, value = np.stack([array.astype(np.float64) for array in arrays]), np.asarray(actual).astype(np.float64)
        departs |= (stacked.min(0) <= value) & (value <= stacked.max(0))
    return bool((departs | ~wrong).all())


def _beginning(
    model: LoadedModel, departing: DepartingNode, values: Mapping[str, ModelValue], settings: TrialOptions
) -> Amplified:
    """Return the first node of the part whose result is not bit-identical to the oracle's."""
    before = departing.part.nodes[:-1]
    shown = [name for index in before for name in model.content.graph.nodes[index].outputs if name in values]
    computed = try_submodel(cut(model, before, shown, values), values, settings).values
    for index in before:
        for name in model.content.graph.nodes[index].outputs:
            how = difference(computed[name], values[name], EXACT) if name in computed else None
            if how is not None:
                return Amplified(departing.node, index, f"'{name}': {how}")
    return Amplified(departing.node, before[-1], "it is not rounded where it is fused with what reads it")
