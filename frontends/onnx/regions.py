"""Run-time branches: subgraphs of a node as regions of scf.if.

`body` is the import of the function that contains them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir, scf, tensor
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.kinds import join
from mirlo.frontends.onnx.loops import of_kind, scalar_of, value_of, without_dims
from mirlo.frontends.onnx.node import RegionImporter
from mirlo.frontends.onnx.values import AnyValue, TensorValue
from mirlo.runtime.kinds import Kind


def choose(body: RegionImporter, condition: TensorValue, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
    flag = tensor.ExtractOp(scalar_of(body, condition, "cond"), []).result
    # Result types are known when both branches are imported, and an operation cannot gain results: the branches are
    # built in a temporary operation and moved.
    draft = scf.IfOp(flag, has_else=True)
    blocks = [region.blocks[0] for region in draft.operation.regions]
    graphs = (then_graph, else_graph)
    results = [_branch_of(body, block, draft, graph) for block, graph in zip(blocks, graphs, strict=True)]
    kinds = _kinds_of_branches(*results)
    for block, values in zip(blocks, results, strict=True):
        with body.inside(draft, block):
            scf.YieldOp([of_kind(body, value, kind) for value, kind in zip(values, kinds, strict=True)])
    types = [value.type for value in list(blocks[0].operations)[-1].operands]
    op = ir.Operation.create("scf.if", operands=[flag], results=types, regions=2)
    for region, block in zip(op.regions, blocks, strict=True):
        block.append_to(region)
    draft.operation.erase()
    names = [value.name or "branch" for value in results[0]]
    return [value_of(body, *each) for each in zip(op.results, kinds, names, strict=True)]


def _branch_of(body: RegionImporter, block: ir.Block, op: ir.OpView, graph: GraphDef) -> list[AnyValue]:
    with body.inside(op, block):
        values = body.branch(graph)
        for value in values:
            if isinstance(value, TensorValue):
                body.ssa(value)
    return values


def _kinds_of_branches(one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """Return the kinds of an If's results, whichever branch makes them."""
    if len(one) != len(other):
        raise NodeError(
            f"'then_branch' gives {len(one)} outputs and 'else_branch' {len(other)}: both must give those of the node"
        )
    kinds = []
    for a, b in zip(one, other, strict=True):
        is_tensor = isinstance(a, TensorValue) and isinstance(b, TensorValue)
        kind = without_dims(a.kind, b.kind) if is_tensor else join(a.kind, b.kind)
        if kind is None:
            both = " and ".join("(" + ", ".join(map(str, side)) + ")" for side in (one, other))
            raise NodeError(f"the branches give different types: {both}")
        kinds.append(kind)
    return kinds
