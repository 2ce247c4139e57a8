"""Parts of a module under construction: tensors and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.script.prim import PrimFunc
from mirlo.frontends.script.words import MlirText
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.core.dims import Dim


@dataclass(frozen=True, eq=False)
class GraphTensor:
    """A tensor of the graph."""

    value: ir.Value
    type: TensorType

    @staticmethod
    def of(value: ir.Value) -> GraphTensor:
        tensor_type = TensorType.from_mlir(value.type)
        assert tensor_type is not None
        return GraphTensor(value, tensor_type)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


GraphResult = GraphTensor | tuple[GraphTensor, ...]
"""What an operator returns: a tensor, or several."""


@dataclass(frozen=True)
class Callee:
    """A function of the module that graphs may call."""

    symbol: str
    inputs: tuple[ir.Type, ...]
    results: tuple[ir.Type, ...]


class ScriptFunctions:
    """The functions of a module; prim functions are instantiated by their first call with given types."""

    def __init__(self, module: ir.Module):
        self.module = module
        self.made: dict[tuple[object, ...], tuple[str, list[TensorType]]] = {}
        self.graphs: dict[str, Callee] = {}
        self.symbols: dict[MlirText, str] = {}

    def call(
        self,
        template: PrimFunc,
        inputs: list[TensorType],
        outputs: list[TensorType] | None,
        attributes: dict[str, object],
    ) -> tuple[str, list[TensorType]]:
        """Return the symbol of a prim function for these types and attributes, and its output types."""
        bindings = {**template.bind(inputs, outputs), **template.attribute_values(attributes)}
        types = tuple(template.type_of(p, bindings) for p in template.parameters)
        key = (template, types, tuple(sorted(attributes.items(), key=lambda item: item[0])))
        if key not in self.made:
            self.made[key] = (self.add(template.build(bindings)), template.output_types(bindings))
        symbol, declared = self.made[key]
        return symbol, declared if outputs is None else outputs

    def declare(self, template: PrimFunc) -> None:
        """Let graphs call a prim function without symbols, which `define` makes later in its place."""
        types = tuple(template.type_of(p, {}) for p in template.parameters)
        self.made[(template, types, ())] = (template.name, template.output_types({}))

    def define(self, template: PrimFunc) -> None:
        self.add(template.build({}))

    def symbol_of(self, text: MlirText) -> str:
        """Return the name of the function that IR text defines."""
        if text not in self.symbols:
            parsed = ir.Module.parse(text.text)
            self.symbols[text] = symbol_name(parsed.body.operations[0])
        return self.symbols[text]

    def add(self, function: ir.OpView) -> str:
        self.module.body.append(function.operation)
        return ir.StringAttr(ir.SymbolTable(self.module.operation).insert(function.operation)).value


def returned(op: ir.OpView) -> GraphResult:
    """Return the tensors of an operation: one, or a tuple."""
    tensors = tuple(GraphTensor.of(value) for value in op.operation.results)
    return tensors[0] if len(tensors) == 1 else tensors
