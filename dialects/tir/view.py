"""Read-only views of prim functions and blocks for analyses, fusion and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.tir.block import REDUCE, SPATIAL, split_operands
from mirlo.runtime.records import dataclass

PRIM_FUNC = "tir.prim_func"
NAMES = "tir.names"
"""Attribute of a prim function in tensor form: what its author calls each argument and each result of an operation, in
order; empty for those without a name."""
OPERATOR = "tir.operator"
"""Attribute of a prim function that is written as loops: the operator that it computes, a dictionary with its `name`,
its `attributes` and the types of its `operands` and `results`. It is the definition of the function."""
RULES = "tir.rules"
"""Attribute of a prim function: the target whose rules lower its intrinsics before those of the host."""


def describe_operator(
    name: str, attributes: Mapping[str, ir.Attribute], operands: Sequence[ir.Type], results: Sequence[ir.Type]
) -> ir.DictAttr:
    """Return the description of an operator that a prim function computes."""
    kinds = (ir.ArrayAttr.get([ir.TypeAttr.get(each) for each in types]) for types in (operands, results))
    described = dict(zip(("operands", "results"), kinds, strict=True))
    return ir.DictAttr.get(
        {"name": ir.StringAttr.get(name), "attributes": ir.DictAttr.get(dict(attributes)), **described}
    )


@dataclass(frozen=True)
class OperandView:
    """An operand or output of a block."""

    value: ir.Value
    map: Any
    """`ir.AffineMap` from the axes to the dims, or None for a tensor that the body reads with `tensor.extract`."""
    outside: ir.Attribute | None = None
    """Attribute with the value beyond the edges, or None."""

    def __eq__(self, other: object) -> bool:
        # The bindings raise an error if a map or an attribute is compared with None.
        return isinstance(other, OperandView) and self.value == other.value and all(
            (a is None) == (b is None) and (a is None or a == b)
            for a, b in ((self.map, other.map), (self.outside, other.outside))
        )  # fmt: skip

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the shape: integers and symbolic dims."""
        return dims_of(self.value.type)

    @property
    def element_type(self) -> ir.Type:
        return ir.ShapedType(self.value.type).element_type

    @property
    def is_opaque(self) -> bool:
        return self.map is None


class BlockView:
    """A decomposed `tir.block`."""

    def __init__(self, op: ir.Operation | ir.OpView):
        self.op = op.operation
        view = op.operation.opview
        self.name: str = view.name
        self.axes: tuple[str, ...] = view.axes
        self.domain: tuple[Any, ...] = view.domain
        ins, outs = split_operands(view)
        maps = [None if isinstance(a, ir.UnitAttr) else a.value for a in view.maps]
        outside = list(view.outside) if view.outside is not None else [None] * len(ins)
        outside = [None if o is None or isinstance(o, ir.UnitAttr) else o for o in outside]
        self.inputs = [OperandView(v, m, o) for v, m, o in zip(ins, maps[: len(ins)], outside, strict=True)]
        self.outputs = [OperandView(v, m) for v, m in zip(outs, maps[len(ins) :], strict=True)]
        self.init = [None if isinstance(a, ir.UnitAttr) else a for a in view.init]

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def is_reduction(self) -> bool:
        return REDUCE in self.axes

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Return the positions of the spatial axes."""
        return tuple(i for i, kind in enumerate(self.axes) if kind == SPATIAL)

    @cached_property
    def reduce(self) -> tuple[int, ...]:
        """Return the positions of the reduction axes."""
        return tuple(i for i, kind in enumerate(self.axes) if kind == REDUCE)

    @cached_property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def body_ops(self) -> list[ir.Operation]:
        """Return the operations of the body without the final yield."""
        return [op.operation for op in self.body.operations][:-1]

    @property
    def yielded(self) -> list[ir.Value]:
        return list(self.body.operations[-1].operation.operands)

    @property
    def index_arguments(self) -> list[ir.Value]:
        return [*self.body.arguments][: self.rank]

    @property
    def input_arguments(self) -> list[ir.Value]:
        return [*self.body.arguments][self.rank : self.rank + len(self.inputs)]

    @property
    def accumulators(self) -> list[ir.Value]:
        return [*self.body.arguments][self.rank + len(self.inputs) :]

    def uses_index(self, axis: int) -> bool:
        """Return whether the body uses the index of this axis as a value."""
        return any(True for _ in self.index_arguments[axis].uses)


class PrimView:
    """A prim function in tensor form: its blocks in order, and the returned values."""

    def __init__(self, function: ir.Operation | ir.OpView, blocks: Sequence[BlockView] = ()):
        """View a function, of which all `blocks` may have been read before."""
        self.op = function.operation
        self.name: str = symbol_name(self.op)
        self.entry = self.op.regions[0].blocks[0]
        operations = list(self.entry.operations)
        self.blocks = list(blocks) or [BlockView(op) for op in operations if op.operation.name == "tir.block"]
        self.others = [op for op in operations[:-1] if op.operation.name != "tir.block"]
        self.arguments: list[ir.Value] = list(self.entry.arguments)
        self.returned = list(operations[-1].operation.operands)

    def name_of(self, block: BlockView) -> str:
        """Return the name of a block in schedules; blocks of the same name are numbered."""
        return block.name

    @property
    def default_names(self) -> dict[ir.Value, str]:
        """Return names for the buffers that have none: inputs `x0`, outputs `y0`, others `t2`."""
        names: dict[ir.Value, str] = {argument: f"x{i}" for i, argument in enumerate(self.arguments)}
        names.update({value: f"y{i}" for i, value in enumerate(self.returned) if value not in names})
        for output in (output.value for block in self.blocks for output in block.outputs):
            names.setdefault(output, f"t{len(names)}")
        return names

    @property
    def names(self) -> dict[ir.Value, str]:
        """Return the names that the author gave the buffers, where they are known; each name once."""
        stored = self.op.attributes.get(NAMES)
        if not isinstance(stored, ir.ArrayAttr):
            return {}
        listed = [attribute.value if isinstance(attribute, ir.StringAttr) else "" for attribute in stored]
        values = [*self.arguments, *(value for op in self.entry.operations for value in op.operation.results)]
        pairs = zip(values, listed, strict=False)
        return {value: name for value, name in pairs if name.isidentifier() and listed.count(name) == 1}


def is_prim_func(op: ir.OpView | ir.Operation) -> bool:
    return op.operation.name == "func.func" and PRIM_FUNC in op.operation.attributes


def is_tensor_form(function: ir.Operation | ir.OpView) -> bool:
    """Return whether a prim function is in tensor form (blocks over tensors): not where it is only declared."""
    if not len(function.operation.regions[0].blocks):
        return False
    kind = ir.TypeAttr(function.operation.attributes["function_type"]).value
    return not any(isinstance(t, ir.MemRefType) for t in (*kind.inputs, *kind.results))


def prim_functions(module: ir.Operation | ir.OpView) -> list[ir.OpView]:
    """Return the prim functions of a module."""
    return [op for op in module.operation.regions[0].blocks[0].operations if is_prim_func(op)]


class PrimTemplate(Protocol):
    """A prim function with symbols (`@mirlo.prim_func`), specialized for the types of each use."""

    @property
    def name(self) -> str: ...

    def specialize(
        self,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType] | None,
        name: str,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[ir.OpView, list[TensorType]]:
        """Return the `func.func` for these types and attributes, and the types of its outputs."""
