"""Key/value caches of 8 bits: the integers of each row, and its scale in a cache of its own."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import erase_op, operations
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.cache_updates import CacheUpdate
from mirlo.passes.registry import PassError
from mirlo.runtime.names import CACHE_SCALE
from mirlo.runtime.records import dataclass

LARGEST = 127.0
"""The integer that the largest element of a row becomes."""
LEAST = 1e-30
"""Least magnitude that a row is scaled by: a row of zeros has no other."""
ATTENTIONS = ("relax.attention", "relax.attention_with_sinks")
PAGED = "relax.paged_attention"


@dataclass(frozen=True)
class _ScaledRows:
    """Rows that are read from a cache: their integers, these as f32, and their scales."""

    integers: ir.Value
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

    def narrow(self, cache: CacheUpdate) -> None:
        """Rebuild a write of a cache as one of integers and one of scales."""
        kind = TensorType.from_mlir(cache.input.type)
        assert kind is not None
        own = self._add_input(cache.input, kind.with_shape((*kind.shape[:3], 1)))
        cache.input.set_type(kind.with_dtype(DTYPES["i8"]).to_mlir())
        with ir.InsertionPoint(cache.write), cache.write.location:
            rows, scales = _written_pages(cache, own) if cache.views else _written(cache, own)
        for use in list(cache.result.uses):
            self._replace_use(use, rows, scales)
        for op in (*cache.views[1:], cache.write, *cache.views[:1]):
            erase_op(op)

    def finish(self) -> None:
        """Replace the caches that attentions read by the integers; return the scales."""
        for op in operations(self.function):
            if op.name not in (*ATTENTIONS, PAGED) or not all(op.operands[i] in self.rows for i in (1, 2)):
                continue
            if op.name == PAGED:
                self._scale_pages(op)
            else:
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
            # Attention reads the first rows: what is after them is not converted.
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
        self.rows[result] = _ScaledRows(rows, values, scales)
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

    def _scale_pages(self, op: ir.Operation) -> None:
        """Replace an attention to rows in pages by one that reads integers and scales."""
        view = op.opview
        if view.key_scale is not None or not isinstance(view.query.type.element_type, ir.F32Type):
            return
        key, value = self.rows[view.key_cache], self.rows[view.value_cache]
        with ir.InsertionPoint(op), op.location:
            result = OPS["paged_attention"].make(
                view.query, key.integers, value.integers, view.table, view.lengths, view.mask, key.scales, value.scales,
                view.sinks, **view.attribute_values(),
            )  # fmt: skip
        op.results[0].replace_all_uses_with(result)
        erase_op(op)

    def _add_input(self, cache: ir.Value, kind: TensorType) -> ir.Value:
        """Add an input for the scales of a cache."""
        own = self.block.add_argument(kind.to_mlir(), self.function.location)
        attributes = self.function.attributes
        if "arg_attrs" in attributes:
            entries = list(ir.ArrayAttr(attributes["arg_attrs"]))
            number = next(i for i, argument in enumerate(self.block.arguments) if argument == cache)
            attributes["arg_attrs"] = ir.ArrayAttr.get([*entries, _scale_name(entries, number)])
        return own

    def _name_outputs(self) -> None:
        attributes = self.function.attributes
        if "res_attrs" in attributes:
            existing = list(ir.ArrayAttr(attributes["res_attrs"]))
            names = [_scale_name(existing, number) for number, _ in self.results]
            attributes["res_attrs"] = ir.ArrayAttr.get([*existing, *names])


def _written(cache: CacheUpdate, own: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit the writes of new rows [B, H, S, D] and of their scales; return the caches."""
    _, new, positions = cache.write.operands
    shape = tuple(cache.write.opview.shape)
    kind = TensorType.from_mlir(new.type)
    assert kind is not None
    scales = _scales(new)
    codes = OPS["quantize"].make(new, scales, None, axis=3, block=kind.shape[3], dtype=DTYPES["i8"])
    rows = OPS["cache_write"].make(cache.input, codes, positions, shape=shape)
    return rows, OPS["cache_write"].make(own, scales, positions, shape=(*shape[:3], 1))


def _written_pages(cache: CacheUpdate, own: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Emit the writes of new rows [1, 1, T, H * D], whose heads have a scale each; return the caches in pages."""
    _, new, positions = cache.write.operands
    kind, pages = (TensorType.from_mlir(value.type) for value in (new, cache.input))
    assert kind is not None and pages is not None
    heads, size = pages.shape[2:]
    tokens, room = kind.shape[2], pages.shape[0] * pages.shape[1]
    scales = _scales(OPS["reshape"].make(new, shape=(1, tokens, heads, size)))
    scales = OPS["reshape"].make(scales, shape=(1, 1, tokens, heads))
    codes = OPS["quantize"].make(new, scales, None, axis=3, block=size, dtype=DTYPES["i8"])
    results = []
    for source, rows, width in ((cache.input, codes, heads * size), (own, scales, heads)):
        shape = (1, 1, room, width)
        flat = OPS["reshape"].make(source, shape=shape)
        written = OPS["cache_write"].make(flat, rows, positions, shape=shape)
        results.append(OPS["reshape"].make(written, shape=(*pages.shape[:3], width // heads)))
    return results[0], results[1]


def _scales(rows: ir.Value) -> ir.Value:
    """Emit the scale of each row: the largest element becomes the largest integer."""
    size = OPS["reduce_max"].make(OPS["abs"].make(rows), axes=(3,), keepdims=True)
    kind = TensorType.from_mlir(size.type)
    assert kind is not None
    least, largest = (OPS["full"].make(shape=(), value=number, dtype=kind.dtype) for number in (LEAST, LARGEST))
    result: ir.Value = OPS["divide"].make(OPS["maximum"].make(size, least), largest)
    return result


def _keeps_rows_whole(op: ir.Operation) -> bool:
    """Return whether a slice keeps the rows complete."""
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


def _scale_name(entries: list[ir.Attribute], number: int) -> ir.DictAttr:
    """Return the attributes of the scales of an input or output; refuse a name that exists."""
    names = [
        ir.StringAttr(ir.DictAttr(each)["relax.name"]).value for each in entries if "relax.name" in ir.DictAttr(each)
    ]
    facts = ir.DictAttr(entries[number])
    if "relax.name" not in facts:
        return ir.DictAttr.get({})
    name = ir.StringAttr(facts["relax.name"]).value + CACHE_SCALE
    if name in names:
        raise PassError(f"the model has an input or output '{name}' already: rename it")
    same = {key: facts[key] for key in ("relax.window", "relax.pages") if key in facts}
    return ir.DictAttr.get({"relax.name": ir.StringAttr.get(name), **same})
