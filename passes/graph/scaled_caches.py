"""Key/value caches of 8 bits: the integers of each row, and its scale in a cache of its own."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import erase_op, operations
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.registry import PassError
from mirlo.runtime.names import CACHE_SCALE

LARGEST = 127.0
"""The integer that the largest element of a row becomes."""
LEAST = 1e-30
"""Least magnitude that a row is scaled by: a row of zeros has no other."""
ATTENTIONS = ("relax.attention", "relax.attention_with_sinks")


@dataclass(frozen=True)
class _ScaledRows:
    """Rows that are read from a cache: their integers, as f32, and their scales."""

    values: ir.Value
    scales: ir.Value


class ScaledCaches:
    """The caches of a function that get 8 bits."""

    def __init__(self, function: ir.OpView) -> None:
        self.function = function.operation
        self.block = function.operation.regions[0].blocks[0]
        self.rows: dict[ir.Value, _ScaledRows] = {}
        """What is read from the caches, by the values in f32 that stand for it."""
        self.results: list[tuple[int, ir.Value]] = []
        """The scales that become outputs, with the numbers of the outputs that they belong to."""

    def narrow(self, write: ir.Operation) -> None:
        """Rebuild a write of a cache as one of integers and one of scales."""
        cache, new, positions = write.operands
        kind = TensorType.from_mlir(cache.type)
        assert kind is not None
        own = self._add_input(cache, kind.with_shape((*kind.shape[:3], 1)))
        cache.set_type(kind.with_dtype(DTYPES["i8"]).to_mlir())
        shape = tuple(write.opview.shape)
        with ir.InsertionPoint(write), write.location:
            scales = _scales(new)
            size = kind.shape[3]
            codes = OPS["quantize"].make(new, scales, None, axis=3, block=size, dtype=DTYPES["i8"])
            rows = OPS["cache_write"].make(cache, codes, positions, shape=shape)
            scale_rows = OPS["cache_write"].make(own, scales, positions, shape=(*shape[:3], 1))
        (result,) = write.results
        for use in list(result.uses):
            self._replace_use(use, rows, scale_rows)
        erase_op(write)

    def finish(self) -> None:
        """Let attentions read the integers, and return the scales."""
        for op in operations(self.function):
            if op.name in ATTENTIONS and all(op.operands[i] in self.rows for i in (1, 2)):
                self._scale(op)
        for value in self.rows:
            if not any(True for _ in value.uses):
                erase_op(value.owner.operation)
        terminator = operations(self.function)[-1]
        with ir.InsertionPoint(terminator), terminator.location:
            ir.Operation.create("func.return", operands=[*terminator.operands, *(value for _, value in self.results)])
        erase_op(terminator)
        self._name_outputs()

    def _replace_use(self, use: ir.OpOperand, rows: ir.Value, scales: ir.Value) -> None:
        user = use.owner.operation
        if user.name == "func.return":
            user.operands[use.operand_number] = rows
            self.results.append((use.operand_number, scales))
        elif user.name in ("relax.slice_dims", "relax.strided_slice") and _keeps_rows_whole(user):
            # Attention reads the first rows: what is behind them is not converted.
            with ir.InsertionPoint(user), user.location:
                parts = [class_of(user).make(part, **_slice_of(user, part)) for part in (rows, scales)]
            user.results[0].replace_all_uses_with(self._read(parts[0], parts[1], user))
            erase_op(user)
        else:
            user.operands[use.operand_number] = self._read(rows, scales, user)

    def _read(self, rows: ir.Value, scales: ir.Value, before: ir.Operation) -> ir.Value:
        """Emit the rows in f32."""
        with ir.InsertionPoint(before), before.location:
            values = OPS["cast"].make(rows, dtype=DTYPES["f32"])
            result: ir.Value = OPS["multiply"].make(values, scales)
        self.rows[result] = _ScaledRows(values, scales)
        return result

    def _scale(self, op: ir.Operation) -> None:
        """Replace an attention to rows of caches by one that multiplies the scores and the weights."""
        view = op.opview
        key, value = self.rows[view.key], self.rows[view.value]
        sinks = view.sinks if op.name == ATTENTIONS[1] else None
        with ir.InsertionPoint(op), op.location:
            result = OPS["attention_with_scales"].make(
                view.query, key.values, value.values, view.mask, key.scales, value.scales, sinks,
                **view.attribute_values(),
            )  # fmt: skip
        op.results[0].replace_all_uses_with(result)
        erase_op(op)

    def _add_input(self, cache: ir.Value, kind: TensorType) -> ir.Value:
        """Add an input for the scales of a cache."""
        own = self.block.add_argument(kind.to_mlir(), self.function.location)
        attributes = self.function.attributes
        if "arg_attrs" in attributes:
            given = list(ir.ArrayAttr(attributes["arg_attrs"]))
            number = next(i for i, argument in enumerate(self.block.arguments) if argument == cache)
            attributes["arg_attrs"] = ir.ArrayAttr.get([*given, _scale_name(given, number)])
        return own

    def _name_outputs(self) -> None:
        attributes = self.function.attributes
        if "res_attrs" in attributes:
            given = list(ir.ArrayAttr(attributes["res_attrs"]))
            names = [_scale_name(given, number) for number, _ in self.results]
            attributes["res_attrs"] = ir.ArrayAttr.get([*given, *names])


def _scales(rows: ir.Value) -> ir.Value:
    """Emit the scale of each row: the largest element becomes the largest integer."""
    size = OPS["reduce_max"].make(OPS["abs"].make(rows), axes=(3,), keepdims=True)
    kind = TensorType.from_mlir(size.type)
    assert kind is not None
    least, largest = (OPS["full"].make(shape=(), value=number, dtype=kind.dtype) for number in (LEAST, LARGEST))
    result: ir.Value = OPS["divide"].make(OPS["maximum"].make(size, least), largest)
    return result


def _keeps_rows_whole(op: ir.Operation) -> bool:
    """Return whether a slice leaves the elements of rows as they are."""
    before, after = (TensorType.from_mlir(value.type) for value in (op.operands[0], op.results[0]))
    if before is None or after is None or before.shape[3] != after.shape[3]:
        return False
    return op.name == "relax.slice_dims" or 3 not in op.opview.axes


def _slice_of(op: ir.Operation, source: ir.Value) -> dict[str, object]:
    """Return the attributes of a slice of the same rows of another cache."""
    values: dict[str, object] = dict(op.opview.attribute_values())
    kind = TensorType.from_mlir(source.type)
    assert kind is not None
    if op.name == "relax.slice_dims":
        values["shape"] = (*op.opview.shape[:3], kind.shape[3])
    return values


def _scale_name(given: list[ir.Attribute], number: int) -> ir.DictAttr:
    """Return the attributes of the scales of an input or output; their name must be new."""
    names = [
        ir.StringAttr(ir.DictAttr(each)["relax.name"]).value for each in given if "relax.name" in ir.DictAttr(each)
    ]
    facts = ir.DictAttr(given[number])
    if "relax.name" not in facts:
        return ir.DictAttr.get({})
    name = ir.StringAttr(facts["relax.name"]).value + CACHE_SCALE
    if name in names:
        raise PassError(f"the model has an input or output '{name}' already: rename it")
    window = {"relax.window": facts["relax.window"]} if "relax.window" in facts else {}
    return ir.DictAttr.get({"relax.name": ir.StringAttr.get(name), **window})
