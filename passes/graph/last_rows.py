"""The pass `keep-last-rows`: computes only the last rows of an output, where a call needs no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import erase_dead
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.memory.names import PAGES
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.names import LAST_ROWS
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class KeepLastRows(Pass):
    """Compute the last rows of an output [batch, rows, columns] only: as many as a new input has elements.

    The input `last_rows` is a vector of i8 whose elements are not read. The rows are cut off before the product that
    makes the output, as logits are a large part of the work for many rows, and of the memory. A model without this
    output, or with a fixed number of rows in it, stays as it is, without that input.

    Of a model that attends to caches in pages, whose sequences are packed, the output is [rows, columns]: the elements
    of the input, i64, are the numbers of the rows. A model whose rows are not those of its tokens, but one for each
    sequence, stays as it is.
    """

    name = "keep-last-rows"
    contained = True
    anchor = "func.func"
    output: str = option("logits", "the name of the output")

    def run(self, op: ir.OpView, session: Session) -> None:
        attributes = op.operation.attributes
        if "tir.prim_func" in attributes or "res_attrs" not in attributes:
            return
        names = _names(attributes["res_attrs"])
        if self.output not in names:
            session.remark(f"there is no output '{self.output}': the outputs are {', '.join(names)}", op.location)
            return
        block = op.operation.regions[0].blocks[0]
        terminator = list(block.operations)[-1].operation
        number = names.index(self.output)
        value = terminator.operands[number]
        kind = TensorType.from_mlir(value.type)
        packed = _packed_dims(op, block)
        if kind is None or kind.rank != (2 if packed else 3):
            expected = "[rows, columns]" if packed else "[batch, rows, columns]"
            raise PassError(f"output '{self.output}' must be a tensor {expected}, got {value.type}")
        rows = kind.shape[-2]
        if isinstance(rows, int) or (packed and rows not in packed):
            return
        _require_new(op, block)
        count = D.symbol(LAST_ROWS)
        dtype = "i64" if packed else "i8"
        numbers = block.add_argument(TensorType.of((count,), dtype).to_mlir(), op.operation.location)
        select = _Gathered(numbers) if packed else _Sliced(D.minimum(rows, count))
        terminator.operands[number] = _selected(value, rows, select)
        erase_dead(block, is_pure_relax)
        _declare(op, block, terminator)


def _names(attributes: ir.Attribute) -> list[str]:
    """Return the names of arguments or results; empty for those without one."""
    facts = [ir.DictAttr(each) for each in ir.ArrayAttr(attributes)]
    return [ir.StringAttr(each["relax.name"]).value if "relax.name" in each else "" for each in facts]


def _packed_dims(op: ir.OpView, block: ir.Block) -> list[Dim]:
    """Return the dims of inputs that may count packed tokens; empty if the model does not attend to pages."""
    declared = ir.ArrayAttr(op.attributes["arg_attrs"]) if "arg_attrs" in op.attributes else ()
    facts = [ir.DictAttr(each) for each in declared]
    if not any(PAGES in each for each in facts):
        return []
    others = [argument for argument, each in zip(block.arguments, facts, strict=True) if PAGES not in each]
    kinds = [TensorType.from_mlir(argument.type) for argument in others]
    return [dim for kind in kinds if kind is not None for dim in kind.shape]


def _selected(value: ir.Value, rows: Dim, select: _Sliced | _Gathered) -> ir.Value:
    """Return some rows of a value, computed from rows of its operands through products and elementwise operators.

    There is no recursion: a graph may be tens of thousands of operators deep.
    """
    chain: list[tuple[ir.OpView, int]] = []
    while (producer := _sliceable(value, rows)) is not None:
        chain.append(producer)
        op, at = producer
        value = op.operands[at]
    result = _rows_of(value, rows, select)
    for op, at in reversed(chain):
        operands = [*op.operands]
        operands[at] = result
        with ir.InsertionPoint(op), op.location:
            result = class_of(op).make(*operands, **op.opview.attribute_values())
    return result


def _sliceable(value: ir.Value, rows: Dim) -> tuple[ir.OpView, int] | None:
    """Return the operation of a value and the operand to slice in its place; None if the value itself is sliced."""
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    op = value.owner if isinstance(value, ir.OpResult) else None
    if op is None or sum(1 for _ in value.uses) != 1:  # what others need as a whole is not computed twice
        return None
    at = _operand_with_rows(op.opview, kind, rows)
    return None if at is None else (op, at)


@dataclass(frozen=True)
class _Sliced:
    """The last rows of [batch, rows, columns]."""

    count: Dim

    def of(self, value: ir.Value, kind: TensorType, rows: Dim) -> ir.Value:
        begin, shape = (0, rows - self.count, 0), (kind.shape[0], self.count, kind.shape[2])
        rows_at_end: ir.Value = OPS["slice_dims"].make(value, begin=begin, shape=shape, strides=(1, 1, 1))
        return rows_at_end


@dataclass(frozen=True)
class _Gathered:
    """Rows of [rows, columns] by their numbers."""

    numbers: ir.Value

    def of(self, value: ir.Value, kind: TensorType, rows: Dim) -> ir.Value:
        chosen: ir.Value = OPS["gather"].make(value, self.numbers, axis=0)
        return chosen


def _rows_of(value: ir.Value, rows: Dim, select: _Sliced | _Gathered) -> ir.Value:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    op = value.owner if isinstance(value, ir.OpResult) else None
    insertion_point = ir.InsertionPoint.at_block_begin(value.owner) if op is None else ir.InsertionPoint.after(op)
    with insertion_point, value.location:
        return select.of(value, kind, rows)


def _operand_with_rows(op: ir.OpView, kind: TensorType, rows: Dim) -> int | None:
    """Return the number of the only operand whose rows are those of the result; None if there is no such operand."""
    if op.operation.name == "relax.matmul":
        lhs, rhs = (TensorType.from_mlir(operand.type) for operand in list(op.operation.operands)[:2])
        is_table = rhs is not None and rhs.rank == 2 and lhs is not None and not op.transpose_lhs
        return 0 if is_table and lhs is not None and lhs.rank == kind.rank and lhs.shape[-2] == rows else None
    if Trait.ELEMENTWISE not in traits_of(op):
        return None
    indices = []
    for i, operand in enumerate(op.operation.operands):
        operand_type = TensorType.from_mlir(operand.type)
        if operand_type is None:
            return None
        if operand_type.rank == kind.rank and operand_type.shape[-2] != 1:
            indices.append(i)
    return indices[0] if len(indices) == 1 else None


def _require_new(op: ir.OpView, block: ir.Block) -> None:
    """Refuse a function that has a dim or an input of the name."""
    types = [TensorType.from_mlir(argument.type) for argument in block.arguments]
    symbols = {name for kind in types if kind is not None for dim in kind.shape for name in D.symbols_of(dim)}
    if LAST_ROWS in symbols or LAST_ROWS in _names(op.attributes["arg_attrs"]):
        raise PassError(f"the model has a dim or an input '{LAST_ROWS}' already")


def _declare(op: ir.OpView, block: ir.Block, terminator: ir.Operation) -> None:
    """Set the type of a function from its block, and the name of its last argument."""
    types = [argument.type for argument in block.arguments]
    results = [value.type for value in terminator.operands]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
    named = ir.DictAttr.get({"relax.name": ir.StringAttr.get(LAST_ROWS)})
    op.attributes["arg_attrs"] = ir.ArrayAttr.get([*ir.ArrayAttr(op.attributes["arg_attrs"]), named])
