"""Reduction of a run of equal layers to a few that stand for all."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of, erase_op, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import with_nested
from mirlo.dialects.relax.create import Constant
from mirlo.passes.graph.unknown import LayerConstant, UnknownConstants
from mirlo.passes.layers.find import RETURN, Layer, LayerRun, set_read
from mirlo.runtime.records import dataclass

FIRST, SECOND = 1, 2
"""The layers that are compared: both have an equal layer on each side. The second one is repeated."""
LAST = 2
"""The layers that stay at the end: the second layer is read by an equal one, which is not the last."""


@dataclass(frozen=True)
class RemovedLayers:
    """What it takes to repeat a layer for those that were removed."""

    function: ir.Operation
    arguments: int
    kind: ir.Type
    """The type of the function."""
    results: ir.Attribute | None
    """The attributes of its results."""
    kept: tuple[int, ...]
    """The results that the function still returns."""
    compared: tuple[int, int, int]
    """The numbers of the two layers that are compared, and of the one after them."""
    removed: tuple[int, ...]
    """The numbers of those that are no longer there."""
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    locations: dict[int, list[ir.Location]]
    """The locations of the operations of removed and compared layers."""


def keep_representatives(function: ir.Operation, run: LayerRun, unknown: UnknownConstants) -> RemovedLayers:
    """Remove the layers in the middle of a run; make the constants unknown that those beside them differ in."""
    layers, count = run.layers, len(run.layers)
    removed = tuple(range(SECOND + 1, count - LAST))
    compared = FIRST, SECOND, count - LAST
    described = (*compared, *removed)
    for n in described:
        unknown.leaves[n] = [_constant(layers[n].operations[group[0]]) for group in layers[n].constants]
    locations = {n: [op.location for top in layers[n].operations for op in with_nested(top)] for n in described}
    kind, results = ir.TypeAttr(function.attributes["function_type"]).value, attributes_of(function).get("res_attrs")
    arguments = len(function.regions[0].blocks[0].arguments)
    _read_from(layers[count - LAST], layers[SECOND], run)
    gone = {position for n in removed for position in layers[n].outputs}
    kept = tuple(i for i in range(len(ir.FunctionType(kind).results)) if i not in gone)
    block = function.regions[0].blocks[0]
    last = [op.operation for op in block.operations][-1]
    attributes = None if results is None else [ir.ArrayAttr(results)[i] for i in kept]
    return_values(function, [last.operands[i] for i in kept], attributes)
    for n in reversed(removed):
        for op in reversed(layers[n].operations):
            erase_op(op)
    for n in compared:
        _make_unknown(n, layers[n], unknown)
    return RemovedLayers(
        function, arguments, kind, results, kept, compared, removed, tuple(each.inputs for each in layers),
        tuple(each.outputs for each in layers), locations,
    )  # fmt: skip


def return_values(
    function: ir.Operation, values: Sequence[ir.Value], attributes: Sequence[ir.Attribute] | None
) -> None:
    """Make a function return these values, with the attributes of its results."""
    block = function.regions[0].blocks[0]
    last = [op.operation for op in block.operations][-1]
    assert last.name == RETURN
    with last.context, last.location:
        ir.Operation.create(RETURN, operands=values, ip=ir.InsertionPoint(last))
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in values])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if attributes is not None:
            function.attributes["res_attrs"] = ir.ArrayAttr.get(list(attributes))
    last.erase()


def _constant(op: ir.Operation) -> LayerConstant:
    return LayerConstant(op.opview.param, op.opview.value, op.location)


def _read_from(layer: Layer, other: Layer, run: LayerRun) -> None:
    """Make a layer read the results of another one in place of those of the layer before it."""
    for (i, j), (place, number) in run.carried.items():
        set_read(layer.operations[i], j, other.operations[place].results[number])


def _make_unknown(number: int, layer: Layer, unknown: UnknownConstants) -> None:
    for i, group in enumerate(layer.constants):
        name = f"unknown.{len(unknown.layers)}"
        unknown.layers[name] = number, i
        for place in group:
            op = layer.operations[place]
            kind = TensorType.from_mlir(op.results[0].type)
            with ir.InsertionPoint(op), op.location:
                replace_op(op, [Constant.make(param=name, result_types=[kind])])
