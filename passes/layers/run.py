"""Passes over a graph with equal layers: they change a few of them, and one is repeated for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import clone_module
from mirlo.passes.entry import entry_or_none, find_entry
from mirlo.passes.graph.unknown import UNKNOWN, UnknownConstants
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.layers.find import find_layers
from mirlo.passes.layers.repeat import repeat_layer
from mirlo.passes.layers.represent import keep_representatives
from mirlo.passes.memory.weights import RELEASE, release_unnamed
from mirlo.passes.pipeline_parser import Nested, Step
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import PassDecision, Session
from mirlo.passes.upstream import UpstreamPass
from mirlo.runtime.records import dataclass

DECIDED_BY = "equal-layers"


class LayersDifferError(Exception):
    """A pass made a decision that other layers may not share."""

    def __init__(self, reason: Decline) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass
class _Asked(Instrument):
    """Stops the passes as soon as one asked for the elements of a constant that differs in each layer."""

    unknown: UnknownConstants

    def after_pass(self, step: object, op: ir.OpView) -> None:
        if self.unknown.asked is not None:
            raise LayersDifferError(
                decline("a pass reads constants of the layers", step=getattr(step, "name", "?"))
            )


UPSTREAM = ("canonicalize", "cse")
"""The passes of MLIR that keep equal layers equal."""


def steps_on_layers(steps: Sequence[Step]) -> tuple[int, int]:
    """Return the begin and the end of the longest sequence of steps that keep equal layers equal."""
    best, begin = (0, 0), 0
    for i, step in enumerate(steps):
        if not _keeps_layers(step):
            begin = i + 1
        elif i + 1 - begin > best[1] - best[0]:
            best = begin, i + 1
    return best


def _keeps_layers(step: Step) -> bool:
    if isinstance(step, Nested):
        return all(map(_keeps_layers, step.steps))
    return step.name in UPSTREAM if isinstance(step, UpstreamPass) else step.keeps_layers


def run_once_per_layer(
    module: ir.Module, session: Session, run: Callable[[Sequence[Instrument]], None]
) -> Decline | None:
    """Run passes on a module in which a few equal layers stand for all; return why they ran on all of them.

    `run` is called with instruments, a second time where the passes changed equal layers to different ones: the module
    is as it was then.
    """
    reason = _run_on_some(module, session, run)
    if reason is not None:
        session.notes.append(PassDecision(DECIDED_BY, reason))
        run(())
    return reason


def _run_on_some(module: ir.Module, session: Session, run: Callable[[Sequence[Instrument]], None]) -> Decline | None:
    function = entry_or_none(module)
    if function is None or len(function.operation.regions[0].blocks) != 1:
        return decline("the module has no function of one block that is the model")
    layers = find_layers(function.operation)
    if isinstance(layers, Decline):
        return layers
    params = [op.opview.param for layer in layers.layers for group in layer.constants
              for op in [layer.operations[group[0]]] if op.opview.param is not None]
    if not all(name in session.params for name in params):
        return decline("the parameters of the layers are not available")
    original, notes, known = clone_module(module), len(session.notes), set(session.params)
    unknown = session.options[UNKNOWN] = UnknownConstants()
    try:
        removed = keep_representatives(function.operation, layers, unknown)
        run([_Asked(unknown)])
        reason = repeat_layer(replace(removed, function=find_entry(module)), unknown, session)
    except LayersDifferError as error:
        reason = error.reason
    finally:
        del session.options[UNKNOWN]
    if reason is None and session.options.get(RELEASE):
        release_unnamed(module.operation.opview, session)
    if reason is not None:
        _restore(module, original)
        del session.notes[notes:]
        for name in set(session.params) - known:
            session.params.discard(name)
    return reason


def _restore(module: ir.Module, original: ir.Module) -> None:
    """Make a module what another one is."""
    for op in reversed([op.operation for op in module.body.operations]):
        op.erase()
    for op in original.body.operations:
        op.operation.clone(ip=ir.InsertionPoint(module.body))
