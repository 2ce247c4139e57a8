"""Parts of a module under construction: tensors and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import parse, substitute, symbols_of
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.surgery import blocks
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.sizes import SYMBOLS
from mirlo.dialects.tir.specialize import substitute_dims
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.frontends.script.prim import PrimFunc
from mirlo.frontends.script.symbols import MlirText
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


@dataclass(frozen=True)
class PendingGraph:
    """A graph that is defined further below and does not declare what it returns."""

    symbol: str


class ScriptFunctions:
    """The functions of a module; prim functions are instantiated by their first call with given types.

    A graph is copied for calls with other dims than its inputs declare: its symbols are its own.
    """

    def __init__(self, module: ir.Module):
        self.module = module
        self.made: dict[tuple[object, ...], tuple[str, list[TensorType]]] = {}
        self.graphs: dict[str, Callee] = {}
        self.pending: dict[str, Callable[[], None]] = {}
        """What defines the graphs that are not defined yet, by symbol; calls define them."""
        self.copies: dict[tuple[object, ...], str] = {}
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
        """Declare a prim function without symbols, which `define` replaces later."""
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

    def defined(self, symbol: str) -> Callee | None:
        """Return a graph, defined now where it was not before; None for one that is being defined."""
        if symbol in self.pending:
            self.pending.pop(symbol)()
        return self.graphs.get(symbol)

    def with_dims(self, callee: Callee, dims: Mapping[str, Dim]) -> Callee:
        """Return a graph whose symbols are these dims: a private copy."""
        self.defined(callee.symbol)
        symbol = self._copy(callee.symbol, dims)
        kind = ir.TypeAttr(ir.SymbolTable(self.module.operation)[symbol].attributes["function_type"]).value
        return Callee(symbol, tuple(kind.inputs), tuple(kind.results))

    def _copy(self, symbol: str, dims: Mapping[str, Dim]) -> str:
        """Return the symbol of a copy of a function, and of those that it calls with its symbols, for these dims."""
        key = (symbol, *((name, str(dim)) for name, dim in sorted(dims.items())))
        if key not in self.copies:
            copy = ir.SymbolTable(self.module.operation)[symbol].operation.clone(ip=False)
            if PRIM_FUNC not in copy.attributes:
                copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
            substitute_dims(copy, dims)
            if SYMBOLS in copy.attributes:
                sizes = [parse(ir.StringAttr(size).value) for size in ir.ArrayAttr(copy.attributes[SYMBOLS])]
                texts = [ir.StringAttr.get(str(substitute(size, dims))) for size in sizes]
                copy.attributes[SYMBOLS] = ir.ArrayAttr.get(texts)
            self.copies[key] = self.add(copy.opview)
            for op in (inner.operation for block in blocks(copy) for inner in block.operations):
                name = op.attributes.get("callee", None)
                called = ir.FlatSymbolRefAttr(name).value if isinstance(name, ir.FlatSymbolRefAttr) else ""
                if called in self.pending:
                    self.defined(called)
                if called and self._has_symbols(called, dims):
                    op.attributes["callee"] = ir.FlatSymbolRefAttr.get(self._copy(called, dims))
        return self.copies[key]

    def _has_symbols(self, symbol: str, dims: Mapping[str, Dim]) -> bool:
        """Return whether the types of a function, or the sizes that it takes, have one of these symbols."""
        attributes = ir.SymbolTable(self.module.operation)[symbol].attributes
        kind = ir.TypeAttr(attributes["function_type"]).value
        tensors = map(TensorType.from_mlir, (*kind.inputs, *kind.results))
        names = {name for tensor in tensors if tensor is not None for dim in tensor.shape for name in symbols_of(dim)}
        sizes = ir.ArrayAttr(attributes[SYMBOLS]) if SYMBOLS in attributes else ()
        names.update(name for size in sizes for name in symbols_of(parse(ir.StringAttr(size).value)))
        return not names.isdisjoint(dims)

    def add(self, function: ir.OpView) -> str:
        self.module.body.append(function.operation)
        return ir.StringAttr(ir.SymbolTable(self.module.operation).insert(function.operation)).value


def returned(op: ir.OpView) -> GraphResult:
    """Return the tensors of an operation: one, or a tuple."""
    tensors = tuple(GraphTensor.of(value) for value in op.operation.results)
    return tensors[0] if len(tensors) == 1 else tensors
