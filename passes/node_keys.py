"""Keys such as `node:/encoder/softmax`, which stand for the operators of one node of the user's model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.locations import names_of
from mirlo.passes.registry import PassError
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step
    from mirlo.passes.session import Session

NODE = "node:"
"""Prefix of the name of a node in the user's model."""
MODEL_NODES = "model nodes"
"""Session option: all nodes of the model, with what became of those that no operator comes from any more."""
MAX_LISTED = 8
"""Nodes that an error names where none is similar."""


def named_nodes(keys: Iterable[str]) -> list[str]:
    """Return the nodes that are named among operators."""
    return [key.removeprefix(NODE) for key in keys if key.startswith(NODE)]


def nodes_of(op: ir.Module | ir.OpView | ir.Operation) -> list[str]:
    """Return the nodes that the operations of the whole module come from, in order."""
    root = op.operation
    while root.parent is not None:
        root = root.parent.operation
    nodes: dict[str, None] = {}

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nodes.update(dict.fromkeys(names_of(inner.location)))
        return ir.WalkResult.ADVANCE

    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    return list(nodes)


def check_nodes(keys: Iterable[str], what: str, op: ir.Module | ir.OpView, session: Session) -> None:
    """Reject nodes that the model does not have."""
    names = named_nodes(keys)
    if not names:
        return
    known = session.options.get(MODEL_NODES) or nodes_of(op)
    for name in names:
        if name not in known:
            raise PassError(f"{what}: {_unknown_node(name, known)}")


def _unknown_node(name: str, known: Collection[str]) -> str:
    hint = nearest(name, known)
    if not hint:
        listed = ", ".join(f"'{node}'" for node in list(known)[:MAX_LISTED])
        more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
        hint = f"; its nodes: {listed or 'none'}{more}"
    return f"the model has no node '{name}'{hint}"


def fate_of(name: str, session: Session) -> str:
    """Return the fate of a node of the model without an operator, or nothing if that is unknown."""
    return str(session.options.get(MODEL_NODES, {}).get(name, ""))


@dataclass
class NodeFates(Instrument):
    """Notes the pass after which no operator comes from a node any more."""

    session: Session
    _last: str = field(default="", init=False)
    _before: list[str] = field(default_factory=list, init=False)

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        self._compare(op)
        self._last = str(remaining[0])

    def end_run(self, op: ir.OpView) -> None:
        self._compare(op)
        self._before, self._last = [], ""

    def _compare(self, op: ir.OpView) -> None:
        here = nodes_of(op)
        fates = self.session.options.setdefault(MODEL_NODES, {})
        for name in here:
            fates.setdefault(name, "")
        for name in set(self._before).difference(here):
            fates[name] = f"after pass '{self._last}' there is none"
        self._before = here
