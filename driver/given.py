"""The rules and schedules that the user passes to one compilation by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.driver.models import OpenedModel, is_ir_file
from mirlo.frontends.foreign import ImportedModule
from mirlo.passes.byoc.records import Placement
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.legalize.legalize import CUSTOM_RULES, SEEN
from mirlo.passes.lower.intrinsics import CUSTOM_RULES as CUSTOM_INTRINSICS
from mirlo.passes.node_keys import MODEL_NODES, NODE, NodeFates, check_nodes, fate_of, named_nodes, nodes_of
from mirlo.passes.schedule.schedule import SCHEDULES, check_given

if TYPE_CHECKING:
    from mirlo.driver.options import GivenSchedule, RuleFunction
    from mirlo.passes.session import Session


def give(
    opened: OpenedModel,
    model: object,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    *,
    legalize: Mapping[str, RuleFunction] | None = None,
    intrinsics: Mapping[str, RuleFunction] | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
    pipeline: str = "",
) -> None:
    """Register the user's rules and schedules for an opened model; reject unknown nodes.

    `model` and `shapes` are those that were opened; `pipeline` may name nodes too.
    """
    session = opened.session
    session.options[CUSTOM_RULES] = dict(legalize or {})
    session.options[CUSTOM_INTRINSICS] = dict(intrinsics or {})
    session.options[SCHEDULES] = dict(schedules or {})
    names = named_nodes(legalize or {})
    if not names and NODE not in pipeline:
        return
    nodes = dict.fromkeys(nodes_of(opened.module), "")
    if not set(names) <= nodes.keys() or NODE in pipeline:
        nodes = _nodes_of_model(model, shapes) | nodes
    session.options[MODEL_NODES] = nodes
    check_nodes(legalize or {}, "legalize", opened.module, session)


def _nodes_of_model(model: object, shapes: Mapping[str, Sequence[int | str] | None] | None) -> dict[str, str]:
    """Return the nodes of a model's file, including those without an operator after import."""
    if isinstance(model, (ir.Module, ImportedModule)) or (isinstance(model, (str, os.PathLike)) and is_ir_file(model)):
        return {}
    from mirlo.frontends.onnx.importer import model_nodes

    return model_nodes(model, shapes)


def node_watch(session: Session) -> list[Instrument]:
    """Return an instrument that records which pass removes a node, if the user names nodes."""
    return [NodeFates(session)] if MODEL_NODES in session.options else []


def check_used(session: Session) -> None:
    """Reject schedules that were not used, and warn about rules that were not tried, with the reason."""
    check_given(session)
    seen = session.options.get(SEEN, ())
    for key in session.options.get(CUSTOM_RULES) or ():
        if key not in seen:
            session.warning(f"the rule given for '{key}' was never tried: {_why(key, session)}")


def _why(key: str, session: Session) -> str:
    if not key.startswith(NODE):
        return "there is no such operator here"
    name = key.removeprefix(NODE)
    for placement in (note for note in session.notes if isinstance(note, Placement)):
        for taken in placement.taken:
            if any(name in placement.nodes[at].names for at in taken.nodes):
                return f"the code generator of '{taken.target}' took the node, with pattern '{taken.pattern}'"
    return f"no operator comes from this node: {fate_of(name, session) or 'no pass of the pipeline tries rules for it'}"
