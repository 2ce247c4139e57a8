"""Bisection: from a model with wrong results to a node, a pass and a bundle that reproduces it."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.driver.models import is_ir_file
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.onnx import model as models
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.amplify import Amplified, amplified
from mirlo.tools.bisect.bundle import replays, write_bundle
from mirlo.tools.bisect.nodes import DepartingNode, ReportProgress, first_departing_node, stretch
from mirlo.tools.bisect.oracles import ORACLES, Oracle
from mirlo.tools.bisect.passes import Culprit, departing_generator, failing_pass, first_departing_pass
from mirlo.tools.bisect.stored import ValueFolder
from mirlo.tools.bisect.submodel import cut, in_order, message_of
from mirlo.tools.bisect.trial import Trial, TrialOptions, try_submodel
from mirlo.tools.bisect.units import DividedModel, divide

if TYPE_CHECKING:
    from mirlo.frontends.onnx.model import LoadedModel, Source
    from mirlo.tools.bisect.compare import ModelValue


NODES_AT_ONCE = 64
"""Nodes that the oracle computes at once: all of their values are in memory meanwhile."""


class BisectError(MirloError):
    """A model, or an array for it, that cannot be bisected."""

    error_code = "MIR0706"
    remedy = "Bisect a model with nodes that the oracle runs."


@dataclass(frozen=True)
class Departure:
    """The place where a model departs from its oracle."""

    node: str
    operator: str
    index: int
    nodes: int
    """Number of nodes of the model."""
    how: str
    part: tuple[str, ...]
    """The nodes of the smallest submodel that departs."""
    unit: tuple[str, ...]
    """The nodes that one pattern takes with it, or the node alone."""
    culprit: Culprit
    bundle: Path
    replay: str
    replays: bool
    """Whether the bundle reproduces the departure when it is read again."""


@dataclass(frozen=True)
class Rounding:
    """The result where no node departs on the oracle's inputs: one node amplifies the rounding of earlier nodes."""

    node: str
    operator: str
    began: str
    """The first node whose result is not bit-identical to the oracle's."""
    how: str
    """The difference at that node."""


@dataclass(frozen=True)
class Found:
    """A node that departs, and the values that its inputs are taken from."""

    node: DepartingNode
    values: Mapping[str, ModelValue]


def bisect(
    model: Source,
    feeds: Mapping[str, np.ndarray],
    *,
    against: str,
    settings: TrialOptions,
    bundle: Path,
    progress: ReportProgress,
) -> Departure | Rounding | None:
    """Return the first node whose result departs from the oracle's for these inputs; None if there is none.

    Nodes that only amplify the rounding of their inputs are skipped.
    """
    ordered = in_order(_opened(model))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        values = _values(ordered, feeds, against, progress, ValueFolder(Path(folder)))
        divided = divide(ordered, values, settings)
        result = _find_departure(divided, values, settings, ORACLES[against], progress)
        if result is None or isinstance(result, Rounding):
            return result
        culprit = _culprit(divided, result, settings, ORACLES[against], progress)
        return _departure(divided, result, culprit, settings, against, bundle)


def _culprit(
    divided: DividedModel, result: Found, settings: TrialOptions, oracle: Oracle, progress: ReportProgress
) -> Culprit:
    """Return the code generator, or the pass of the host, that makes a submodel depart."""
    departing, values = result.node, result.values
    inside = set(departing.part.nodes)

    def is_rounding(trial: Trial) -> bool:
        return amplified(divided, replace(departing, trial=trial), values, settings, oracle) is not None

    patterns = [unit.pattern for unit in divided.units if unit.pattern and inside >= set(unit.nodes)]
    generator = departing_generator(
        departing.part, list(dict.fromkeys(patterns)), departing.trial, values, settings, progress, is_rounding
    )
    if generator is not None:
        return generator
    if departing.trial.failed:
        return failing_pass(departing.trial, settings)
    return first_departing_pass(departing.part, values, settings, progress)


def is_rounding(model: Source, feeds: Mapping[str, np.ndarray], *, against: str, settings: TrialOptions) -> bool:
    """Return whether a model departs from an oracle by nothing but rounding that its nodes amplify."""
    ordered = in_order(_opened(model))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        values = _values(ordered, feeds, against, _ignore, ValueFolder(Path(folder)))
        divided = divide(ordered, values, settings)
        return isinstance(_find_departure(divided, values, settings, ORACLES[against], _ignore), Rounding)


def _ignore(text: str) -> None:
    """Report no progress."""


def _values(
    model: LoadedModel, feeds: Mapping[str, np.ndarray], against: str, progress: ReportProgress, files: ValueFolder
) -> dict[str, ModelValue]:
    """Return the inputs of a model and all values that the oracle computes of them, some nodes at a time."""
    nodes = model.content.graph.nodes
    values: dict[str, ModelValue] = {name: np.asarray(array) for name, array in feeds.items()}
    for first in range(0, len(nodes), NODES_AT_ONCE):
        indices = range(first, min(first + NODES_AT_ONCE, len(nodes)))
        names = list(dict.fromkeys(name for index in indices for name in nodes[index].outputs if name))
        progress(f"computing {len(names)} values with {against}, up to node {indices.stop} of {len(nodes)}")
        if len(nodes) <= NODES_AT_ONCE:
            message, operands = message_of(model), values
        else:
            part = cut(model, indices, (), values)
            message, operands = part.model, part.feeds
        computed = ORACLES[against](message, operands, names)
        values |= {name: files.stored(value) for name, value in computed.items()}
    return values


def _find_departure(
    divided: DividedModel,
    values: Mapping[str, ModelValue],
    settings: TrialOptions,
    oracle: Oracle,
    progress: ReportProgress,
) -> Found | Rounding | None:
    graph = divided.model.content.graph
    whole = cut(divided.model, range(len(graph.nodes)), [value.name for value in graph.outputs], values)
    trial = try_submodel(whole, values, settings)
    progress(f"the model: {trial.departs or 'as expected'}")
    return None if trial.departs is None else _first_departure(divided, values, settings, trial, oracle, progress)


def _first_departure(
    divided: DividedModel, values: Mapping[str, ModelValue], settings: TrialOptions, trial: Trial, oracle: Oracle,
    progress: ReportProgress,
) -> Found | Rounding:  # fmt: skip
    """Return the first node that departs for its own inputs, or that all of them only amplify rounding.

    After a node that amplifies rounding, the oracle continues from the result of that node.
    """
    nodes = divided.model.content.graph.nodes
    first: Amplified | None = None
    start, last = 0, len(divided.units) - 1
    while True:
        result = first_departing_node(divided, values, settings, trial, progress, start)
        passed = amplified(divided, result, values, settings, oracle)
        if passed is None:
            return Found(result, values)
        progress(f"'{nodes[result.node].name}' amplifies rounding")
        first = first or passed
        start = result.unit + 1
        if start > last:
            return _rounding(divided.model, first)
        values = _continued(divided, start, {**values, **result.trial.values}, oracle)
        rest = stretch(divided, start, last, values)
        trial = try_submodel(rest, values, settings) if rest.outputs else Trial(None)
        if trial.departs is None:
            return _rounding(divided.model, first)


def _continued(
    divided: DividedModel, start: int, values: Mapping[str, ModelValue], oracle: Oracle
) -> dict[str, ModelValue]:
    """Return the values of a model with those of the units from `start` on computed again by the oracle."""
    later, graph = divided.nodes(start, len(divided.units) - 1), divided.model.content.graph
    names = [name for index in later for name in graph.nodes[index].outputs if name in values]
    rest = cut(divided.model, later, names, values)
    return {**values, **oracle(rest.model, rest.feeds, names)}


def _rounding(model: LoadedModel, origin: Amplified) -> Rounding:
    node, began = model.content.graph.nodes[origin.node], model.content.graph.nodes[origin.began]
    return Rounding(node.name, node.operator, began.name, origin.how)


def _departure(
    divided: DividedModel,
    result: Found,
    culprit: Culprit,
    settings: TrialOptions,
    against: str,
    bundle: Path,
) -> Departure:
    model, departing, values = divided.model, result.node, result.values
    node = model.content.graph.nodes[departing.node]
    part = tuple(model.content.graph.nodes[index].name for index in departing.part.nodes)
    facts = {
        "node": node.name,
        "operator": node.operator,
        "how": departing.trial.departs,
        "against": against,
        "part": list(part),
    }
    replay = write_bundle(bundle, departing.part, values, culprit, settings, against, facts)
    return Departure(
        node.name, node.operator, departing.node, len(model.content.graph.nodes), departing.trial.departs or "", part,
        tuple(model.content.graph.nodes[index].name for index in divided.units[departing.unit].nodes), culprit,
        bundle, replay, replays(bundle, departing.part, settings, ORACLES[against]),
    )  # fmt: skip


def require_onnx(model: object) -> None:
    """Raise BisectError for a module, a file of IR or an exported program, whose nodes no oracle computes."""
    if isinstance(model, (str, os.PathLike)):
        is_other = is_ir_file(model) or zipfile.is_zipfile(model)
    else:
        is_other = isinstance(model, (ir.Module, ImportedModule))
    if is_other:
        name = str(model) if isinstance(model, (str, os.PathLike)) else "the module"
        raise BisectError(
            f"{name} is no ONNX model, whose nodes the oracles compute: bisect an export of it to ONNX, such as "
            "torch.onnx.export makes"
        )


def _opened(model: Source) -> LoadedModel:
    """Return the model; one without outputs cannot be bisected."""
    require_onnx(model)
    loaded = models.load(model)
    if not loaded.content.graph.outputs:
        raise BisectError(f"{loaded.name}: the model has no outputs")
    return loaded
