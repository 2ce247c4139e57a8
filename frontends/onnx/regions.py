"""Branches and loops that run time decides on: the graphs of a node as regions of scf.if and scf.while.

`body` is the import of the function that they are part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir, scf, tensor
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.kinds import join, kind_of_proto, tensor_type, without_shapes
from mirlo.frontends.onnx.node import relax_op, type_of
from mirlo.frontends.onnx.objects import object_of
from mirlo.frontends.onnx.values import AnyValue, ObjectValue, Value, constant
from mirlo.runtime.kinds import Kind


def choose(body: Any, condition: Value, then_graph: Any, else_graph: Any) -> list[Any]:
    flag = tensor.ExtractOp(_scalar(body, condition, "cond"), []).result
    # The types of the results are known when both branches are imported, and an operation cannot gain results:
    # the branches grow in one without, and move.
    draft = scf.IfOp(flag, has_else=True)
    blocks = [region.blocks[0] for region in draft.operation.regions]
    graphs = (then_graph, else_graph)
    results = [_branch_of(body, block, draft, graph) for block, graph in zip(blocks, graphs, strict=True)]
    kinds = _kinds_of_branches(*results)
    for block, values in zip(blocks, results, strict=True):
        with body.inside(draft, block):
            scf.YieldOp([_of_kind(body, value, kind) for value, kind in zip(values, kinds, strict=True)])
    types = [value.type for value in list(blocks[0].operations)[-1].operands]
    made = ir.Operation.create("scf.if", operands=[flag], results=types, regions=2)
    for region, block in zip(made.regions, blocks, strict=True):
        block.append_to(region)
    draft.operation.erase()
    return [_value_of(result, kind) for result, kind in zip(made.results, kinds, strict=True)]


def repeat(body: Any, graph: Any, limit: Value | None, going: Value | None, carried: Sequence[AnyValue]) -> list[Any]:
    """A loop of as many rounds as `limit` says, as long as `going`, and what the body gives first, is true."""
    most = None if limit is None else _scalar(body, limit, "M")
    flag = constant("", np.array(True)) if going is None else going
    kinds = [_carried_kind(value, graph_input) for value, graph_input in zip(carried, graph.input[2:], strict=True)]
    starts = [_of_kind(body, value, kind) for value, kind in zip(carried, kinds, strict=True)]
    inits = [body.ssa(constant("", np.array(0, np.int64))), _scalar(body, flag, "cond"), *starts]
    types = [value.type for value in inits]
    for _ in range(ATTEMPTS):
        made = ir.Operation.create("scf.while", operands=inits, results=types, regions=2)
        before, after = (region.blocks.append(*types) for region in made.regions)
        found = _round(body, graph, made, after, kinds)
        if found is not None and found != kinds:
            # An object carries less than was thought, such as elements of any shape: the body is imported anew.
            made.erase()
            _require_kept(carried, kinds, found)
            kinds = found
            continue
        with ir.InsertionPoint(before):
            count, goes_on = list(before.arguments)[:2]
            if most is not None:
                goes_on = relax_op("logical_and").make(relax_op("less").make(count, most), goes_on)
            scf.ConditionOp(tensor.ExtractOp(goes_on, []).result, list(before.arguments))
        return [_value_of(result, kind) for result, kind in zip(list(made.results)[2:], kinds, strict=True)]
    raise NodeError("what the loop carries changes its kind in every round")


ATTEMPTS = 8


def _round(body: Any, graph: Any, loop: Any, block: Any, kinds: list[Kind]) -> list[Kind] | None:
    """Import the body into its block. Where values of these kinds do not hold what it gives, the kinds that do."""
    with body.inside(loop, block):
        scalars, arguments = list(block.arguments)[:2], list(block.arguments)[2:]
        given: list[AnyValue] = [Value("", type_of(x), ir=x) for x in scalars]
        given += [_value_of(x, kind) for x, kind in zip(arguments, kinds, strict=True)]
        for value in given:
            value.region = body.depth
        condition, *results = body.branch(graph, given)
        if not isinstance(condition, Value):
            raise NodeError(f"the body's condition is {condition}, where a tensor is needed")
        joined = [
            new.kind if kind.is_tensor else join(kind, new.kind) or new.kind
            for kind, new in zip(kinds, results, strict=True)
        ]
        if joined != kinds:
            return joined
        values = [_of_kind(body, new, kind) for new, kind in zip(results, kinds, strict=True)]
        one = body.ssa(constant("", np.array(1, np.int64)))
        counted = relax_op("add").make(block.arguments[0], one)
        scf.YieldOp([counted, _scalar(body, condition, "cond"), *values])
    return None


def _require_kept(carried: Sequence[AnyValue], kinds: list[Kind], found: list[Kind]) -> None:
    for old, kind, new in zip(carried, kinds, found, strict=True):
        if new != kind and (kind.is_tensor or join(kind, new) != new):
            raise NodeError(
                f"'{old.name}' is {kind} before the loop and {new} after a round: what a loop whose rounds are counted "
                "at run time carries must keep its type"
            )


def _of_kind(body: Any, value: AnyValue, kind: Kind) -> Any:
    """The SSA value of a value where one of this kind is wanted, a tensor or an object."""
    return body.ssa(value) if tensor_type(kind) is not None else object_of(value, body.any_ssa)


def _scalar(body: Any, value: Value, name: str) -> Any:
    """A tensor of one element as one of rank 0."""
    if value.type.elements != 1:
        raise NodeError(f"'{name}' must have one element, got {value.type}")
    found = body.ssa(value)
    return relax_op("reshape").make(found, shape=()) if value.type.rank else found


def _branch_of(body: Any, block: Any, op: Any, graph: Any) -> list[AnyValue]:
    with body.inside(op, block):
        values = body.branch(graph)
        for value in values:
            if isinstance(value, Value):
                body.ssa(value)
    return values


def _value_of(made: Any, kind: Kind) -> AnyValue:
    found = tensor_type(kind)
    return ObjectValue("", kind, ir=made) if found is None else Value("", found, ir=made)


def _kinds_of_branches(one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """What the results of an If are, whichever branch makes them."""
    kinds = []
    for a, b in zip(one, other, strict=True):
        kind = join(a.kind, b.kind)
        if kind is None or (a.kind.is_tensor and a.kind != b.kind):
            both = " and ".join("(" + ", ".join(map(str, side)) + ")" for side in (one, other))
            raise NodeError(f"the branches give different types: {both}")
        kinds.append(kind)
    return kinds


def _carried_kind(value: AnyValue, graph_input: Any) -> Kind:
    """What a loop carries: of sequences, what the body says of their elements, else elements of any shape."""
    if isinstance(value, Value):
        return value.kind
    declared = graph_input.type
    if declared.WhichOneof("value") in ("sequence_type", "optional_type"):
        said = kind_of_proto(declared, f"'{graph_input.name}'")
        if join(said, value.kind) == said:
            return said
    return without_shapes(value.kind)
