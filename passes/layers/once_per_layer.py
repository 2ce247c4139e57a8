"""The pass `once-per-layer`, and what a compilation does in its place: a few equal layers stand for all of them.

Two neighbours with equal layers around them must stay equal; one of them is repeated for the layers that were left
out. The constants that layers differ in are unknown meanwhile (`graph/unknown.py`), so that no pass decides from them.
Where this fails, the passes run on all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import clone_module
from mirlo.passes.entry import entry_or_none, find_entry
from mirlo.passes.graph.unknown import UNKNOWN, UnknownConstants
from mirlo.passes.instrumentation import Instrument, PassFailed
from mirlo.passes.layers.find import find_layers
from mirlo.passes.memory.weights import RELEASE, release_unnamed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.pipeline_parser import Nested, Step
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import PassDecision, Session
from mirlo.passes.upstream import UpstreamPass
from mirlo.runtime.records import dataclass

UPSTREAM = ("canonicalize", "cse")
"""The passes of MLIR that keep equal layers equal."""


@register_pass
@dataclass(frozen=True)
class OncePerLayer(Pass):
    """Run passes on a few of the equal layers of a model, and repeat one of these for the others.

    The result is that of running the passes on all layers, in less time. They do run on all of them where there are
    fewer than eight equal layers, where a layer reads values of others than the one before it, and where the elements
    of constants that differ from layer to layer lead a pass to different decisions.
    """

    name = "once-per-layer"
    contained = True
    passes: str = option("", "the passes to run")
    explain: bool = option(False, "print why the passes ran on all layers")

    def is_contained(self) -> bool:
        return all(step.is_contained() for step in Pipeline(self.passes))

    def run(self, op: ir.OpView, session: Session) -> None:
        pipeline = Pipeline(self.passes)
        reason = run_once_per_layer(op, session, lambda added: pipeline.run(op, session, added))
        if reason is not None and self.explain:
            session.remark(f"the passes run on all layers: {reason}", op.location)


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
            raise LayersDifferError(decline(self.unknown.asked, step=getattr(step, "name", "?")))


LEAST_STEPS = 4
"""Fewest steps for which it is worth to look for equal layers."""


def divide_steps(steps: Sequence[Step]) -> list[tuple[list[Step], bool]]:
    """Return the steps in sequences, and whether each keeps equal layers equal and takes long enough."""
    groups = [(list(group), keeps) for keeps, group in groupby(steps, _keeps_layers)]
    return [(group, keeps and len(group) >= LEAST_STEPS) for group, keeps in groups]


def _keeps_layers(step: Step) -> bool:
    if isinstance(step, Nested):
        return all(map(_keeps_layers, step.steps))
    return step.name in UPSTREAM if isinstance(step, UpstreamPass) else step.keeps_layers


def run_once_per_layer(
    module: ir.Module | ir.OpView, session: Session, run: Callable[[Sequence[Instrument]], None]
) -> Decline | None:
    """Run passes on a module in which a few equal layers stand for all; return why they ran on all of them.

    `run` is called with instruments, a second time where the passes changed equal layers to different ones: the module
    is as it was then.
    """
    reason = _run_on_some(module, session, run)
    if reason is not None:
        session.notes.append(PassDecision(OncePerLayer.name, reason))
        run(())
    return reason


def _run_on_some(
    module: ir.Module | ir.OpView, session: Session, run: Callable[[Sequence[Instrument]], None]
) -> Decline | None:
    function = entry_or_none(module)
    if function is None or len(function.operation.regions[0].blocks) != 1:
        return decline("the module has no function of one block that is the model")
    layers = find_layers(function.operation)
    if isinstance(layers, Decline):
        return layers
    constants = [layer.operations[group[0]].opview for layer in layers.layers for group in layer.constants]
    if not all(constant.param is None or constant.param in session.params for constant in constants):
        return decline("the parameters of the layers are not available")
    # For models with equal layers only.
    from mirlo.passes.layers.repeat import repeat_layer
    from mirlo.passes.layers.represent import keep_representatives

    original, notes, known = clone_module(module), len(session.notes), set(session.params)
    unknown = session.options[UNKNOWN] = UnknownConstants()
    try:
        removed = keep_representatives(function.operation, layers, unknown)
        run([_Asked(unknown)])
        reason = repeat_layer(replace(removed, function=find_entry(module)), unknown, session)
    except LayersDifferError as error:
        reason = error.reason
    except PassFailed as error:  # which fails on all layers, too, and says where
        reason = decline("a pass failed", step=error.pass_name)
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


def _restore(module: ir.Module | ir.OpView, original: ir.Module) -> None:
    """Make a module what another one is."""
    for op in reversed([op.operation for op in module.body.operations]):
        op.erase()
    for op in original.body.operations:
        op.operation.clone(ip=ir.InsertionPoint(module.body))
