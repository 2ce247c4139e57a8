"""Run-time branches: subgraphs of a node as regions of scf.if.

`body` is the import of the function that contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.kinds import join
from mirlo.frontends.onnx.loops import of_kind, scalar_of, value_of, without_dims
from mirlo.frontends.onnx.node import NodeImporter
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import Kind

Branch = Callable[[], list[AnyValue]]
"""Imports a branch at the insertion point; returns its results."""
JoinKinds = Callable[[NodeImporter, Sequence[AnyValue], Sequence[AnyValue]], list[Kind]]
"""Returns the kinds of results that two branches make."""


def choose(body: NodeImporter, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
    """Return the results of an scf.if of two graphs."""
    branches = [partial(body.branch, graph) for graph in (then_graph, else_graph)]
    return conditional(body, condition, branches, _kinds_of_branches)


def fork(body: NodeImporter, condition: Tensor, branches: Sequence[Branch]) -> list[AnyValue]:
    """Return the results of an scf.if whose branches are the rest of a graph; what differs in rank is an object."""
    return conditional(body, condition, branches, _kinds_of_ends)


def conditional(
    body: NodeImporter, condition: Tensor, branches: Sequence[Branch], join_kinds: JoinKinds
) -> list[AnyValue]:
    """Return the results of an scf.if; each branch inserts operations and returns its results."""
    kinds: list[Kind] = []
    names: list[str] = []

    def filled(branch: Branch) -> list[AnyValue]:
        values = branch()
        for value in values:
            if isinstance(value, Tensor):
                body.full(value)
        return values

    def joined(one: Sequence[AnyValue], other: Sequence[AnyValue]) -> Callable[[Sequence[AnyValue]], list[ir.Value]]:
        kinds.extend(join_kinds(body, one, other))
        names.extend(value.name or "branch" for value in one)
        return lambda values: [of_kind(body, value, kind) for value, kind in zip(values, kinds, strict=True)]

    made = body.branches(scalar_of(body, condition, "cond"), [partial(filled, each) for each in branches], joined)
    return [value_of(body, *each) for each in zip(made, kinds, names, strict=True)]


def _kinds_of_ends(body: NodeImporter, one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """Return the kinds of what the rest of a graph makes in either branch."""
    kinds = []
    for a, b in zip(one, other, strict=True):
        kind = without_dims(a.kind, b.kind) or join(a.kind, b.kind)
        if kind is None:
            raise NodeError(f"'{a.name}' is {a.kind} after one branch and {b.kind} after the other")
        kinds.append(kind)
    return kinds


def _kinds_of_branches(body: NodeImporter, one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """Return the kinds of an If's results, whichever branch makes them."""
    if len(one) != len(other):
        raise NodeError(
            f"'then_branch' gives {len(one)} outputs and 'else_branch' {len(other)}: both must give those of the node"
        )
    kinds = []
    for a, b in zip(one, other, strict=True):
        is_tensor = isinstance(a, Tensor) and isinstance(b, Tensor)
        kind = without_dims(a.kind, b.kind) if is_tensor else join(a.kind, b.kind)
        if kind is None:
            both = " and ".join("(" + ", ".join(map(str, side)) + ")" for side in (one, other))
            text = f"the branches give different types: {both}"
            if is_tensor and a.kind.name == b.kind.name:
                body.refuse_ranks(text)
            raise NodeError(text)
        kinds.append(kind)
    return kinds
