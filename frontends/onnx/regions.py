"""Branches and loops that run time decides on: the graphs of a node as regions of scf.if and scf.while.

`body` is the import of the function that they are part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir, scf, tensor
from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.kinds import join, kind_of_proto, tensor_kind, tensor_type, without_shapes
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


def repeat(
    body: Any,
    graph: Any,
    limit: Value | None,
    going: Value | None,
    carried: Sequence[AnyValue],
    room: Dim | None = None,
) -> list[Any]:
    """A loop of as many rounds as `limit` says, as long as `going`, and what the body gives first, is true.

    With `room`, the most rounds that there can be, what the body gives beside what is carried is collected: the results
    are then followed by tensors of that many rows, and the number of rows that are used.
    """
    most = None if limit is None else _scalar(body, limit, "M")
    flag = constant("", np.array(True)) if going is None else going
    kinds = [_carried_kind(value, graph_input) for value, graph_input in zip(carried, graph.input[2:], strict=True)]
    starts = [_of_kind(body, value, kind) for value, kind in zip(carried, kinds, strict=True)]
    inits = [body.ssa(constant("", np.array(0, np.int64))), _scalar(body, flag, "cond"), *starts]
    if room is not None:
        inits += [_rows(room, found) for found in _collected_types(body, graph, inits, kinds)]
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
        results = list(made.results)
        values = [_value_of(result, kind) for result, kind in zip(results[2:], kinds, strict=False)]
        return values if room is None else [*values, *results[2 + len(kinds) :], results[0]]
    raise NodeError("what the loop carries changes its kind in every round")


ATTEMPTS = 8


def _collected_types(body: Any, graph: Any, inits: Sequence[Any], kinds: list[Kind]) -> list[TensorType]:
    """The types of what the body gives beside what is carried: it is imported once to see, and thrown away."""
    types = [value.type for value in inits]
    probe = ir.Operation.create("scf.while", operands=list(inits), results=types, regions=2)
    _, after = (region.blocks.append(*types) for region in probe.regions)
    with body.inside(probe, after):
        _, _, collected = _imported(body, graph, after, kinds)
        values = [value for value in collected if isinstance(value, Value)]
        if len(values) < len(collected):
            raise NodeError("a loop can collect tensors only, but its body gives objects beside what it carries")
        declared = graph.output[1 + len(kinds) :]
        found = [_as_declared(value.type, said) for value, said in zip(values, declared, strict=True)]
    probe.erase()
    return found


def _as_declared(found: TensorType, declared: Any) -> TensorType:
    """The type that the body declares, where its dims are known in a round only."""
    tensor = declared.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if found.is_static or not tensor.HasField("shape") or None in dims:
        return found
    wanted = found.with_shape(tuple(int(dim or 0) for dim in dims))
    return wanted if _may_be(found, wanted) else found


def _rows(room: Dim, row: TensorType) -> Any:
    return relax_op("full").make(shape=(room, *row.shape), value=0, dtype=row.dtype)


def _imported(body: Any, graph: Any, block: Any, kinds: list[Kind]) -> tuple[Value, list[AnyValue], list[AnyValue]]:
    """The body in its block: whether to go on, what is carried, what is collected."""
    arguments = list(block.arguments)
    given: list[AnyValue] = [Value("", type_of(x), ir=x) for x in arguments[:2]]
    given += [_value_of(x, kind) for x, kind in zip(arguments[2:], kinds, strict=False)]
    for value in given:
        value.region = body.depth
    condition, *results = body.branch(graph, given)
    if not isinstance(condition, Value):
        raise NodeError(f"the body's condition is {condition}, where a tensor is needed")
    return condition, results[: len(kinds)], results[len(kinds) :]


def _round(body: Any, graph: Any, loop: Any, block: Any, kinds: list[Kind]) -> list[Kind] | None:
    """Import the body into its block. Where values of these kinds do not hold what it gives, the kinds that do."""
    with body.inside(loop, block):
        condition, results, collected = _imported(body, graph, block, kinds)
        results = [_conformed(body, new, kind) for new, kind in zip(results, kinds, strict=True)]
        joined = [
            new.kind if kind.is_tensor else join(kind, new.kind) or new.kind
            for kind, new in zip(kinds, results, strict=True)
        ]
        if joined != kinds:
            return joined
        values = [_of_kind(body, new, kind) for new, kind in zip(results, kinds, strict=True)]
        place = relax_op("reshape").make(block.arguments[0], shape=(1, 1))
        for rows, new in zip(list(block.arguments)[2 + len(kinds) :], collected, strict=False):
            kind = type_of(rows)
            made = _conformed(body, new, tensor_kind(kind.with_shape(kind.shape[1:])))
            row = relax_op("expand_dims").make(body.ssa(made), axes=[0])
            values.append(relax_op("scatter_nd").make(rows, place, row))
        one = body.ssa(constant("", np.array(1, np.int64)))
        counted = relax_op("add").make(block.arguments[0], one)
        scf.YieldOp([counted, _scalar(body, condition, "cond"), *values])
    return None


def _conformed(body: Any, value: AnyValue, kind: Kind) -> AnyValue:
    """A tensor whose dims may well be those of the kind, but only run time tells, as one of that kind, checked."""
    wanted = tensor_type(kind)
    if wanted is None or not isinstance(value, Value) or value.type == wanted or not _may_be(value.type, wanted):
        return value
    found = body.ssa(value)
    actual = relax_op("dims_tensor").make(dims=value.type.shape)
    expected = relax_op("dims_tensor").make(dims=wanted.shape)
    wrong = body.ssa(constant("", np.array(-1, np.int64)))
    checked = relax_op("where").make(relax_op("equal").make(actual, expected), actual, wrong)
    names = [body.fresh_symbol(value.name or "carried") for _ in wanted.shape]
    what = f"what the loop carries as {wanted} is {value.type} after a round"
    relax_op("bind_dims").build(checked, symbols=names, bounds=[UNKNOWN] * wanted.rank, what=what, result_types=[])
    zeros, ones = [0] * wanted.rank, [1] * wanted.rank
    made = relax_op("slice_dims").make(found, begin=zeros, shape=wanted.shape, strides=ones)
    return Value(value.name, wanted, ir=made)


def _may_be(found: TensorType, wanted: TensorType) -> bool:
    pairs = zip(found.shape, wanted.shape, strict=False)
    return (
        found.dtype is wanted.dtype
        and found.rank == wanted.rank
        and all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    )


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
