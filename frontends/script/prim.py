"""`@mirlo.prim_func`: a function over buffers in Python syntax; a template for the shapes of its uses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import LoopFunction, PrimBuilder
from mirlo.dialects.tir.view import NAMES, PrimView
from mirlo.frontends.script.buffer_form import BufferForm
from mirlo.frontends.script.describe import kind_of
from mirlo.frontends.script.errors import NotRegular, ScriptError
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.memory_buffer import MemoryBuffer
from mirlo.frontends.script.source import Located, ScriptSource
from mirlo.frontends.script.symbols import AttributeSymbol, DimSymbol, ShapeSymbol, TypeSymbol
from mirlo.frontends.script.tensor_form import TensorBuffer, TensorForm
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.tir.compute.loops import Buffer, LoopBuilder

KIND = "tir.kind"
SYMBOLS = (DimSymbol, ShapeSymbol, TypeSymbol, AttributeSymbol)
ShapePart = int | DimSymbol | ShapeSymbol | ast.expr
"""A number, a symbol, or an expression of symbols as syntax."""
Bindings = dict[str, object]
"""Values of a template's symbols at one use: numbers, shapes, element types."""


@dataclass(frozen=True)
class Parameter:
    """A buffer parameter, annotated `T.Buffer[shape, dtype]` or `T.Out[shape, dtype]`."""

    name: str
    is_output: bool
    shape: tuple[ShapePart, ...]
    dtype: DType | TypeSymbol
    node: Located


@dataclass(frozen=True, eq=False)
class PrimFunc:
    """A prim function, or a template if its annotations have symbols (`T.dims`, `T.shapes`, `T.types`)."""

    name: str
    parameters: tuple[Parameter, ...]
    tree: ast.FunctionDef = field(repr=False)
    source: ScriptSource = field(repr=False)
    captured: dict[str, object] = field(repr=False)
    attributes: dict[str, str] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    """The attributes that each use provides (`T.attrs`)."""
    buffers: bool = False
    """Whether it is kept as loops, even if it could be raised to blocks."""

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if not p.is_output)

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_output)

    @property
    def is_template(self) -> bool:
        """Return whether its types have symbols."""
        return bool(self.numbers) or any(
            isinstance(part, SYMBOLS) or not isinstance(part, (int, DType))
            for p in self.parameters
            for part in (*p.shape, p.dtype)
        )

    def renamed(self, name: str) -> PrimFunc:
        return replace(self, name=name)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise ScriptError(
            f"prim function '{self.name}' is not called from Python: use it with R.call_tir in a @mirlo.script, "
            "with b.call_prim_func in a legalization, or for an ONNX operator"
        )

    def bind(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType] | None = None) -> Bindings:
        """Bind the symbols for these types; outputs may be omitted if the inputs determine everything."""
        bindings: Bindings = {}
        _count(self, "inputs", self.inputs, inputs)
        pairs = list(zip(self.inputs, inputs, strict=True))
        if outputs is not None:
            _count(self, "outputs", self.outputs, outputs)
            pairs += zip(self.outputs, outputs, strict=True)
        for parameter, type_ in pairs:
            self._unify(parameter, type_, bindings)
        for parameter, type_ in pairs:
            wanted = self.type_of(parameter, bindings)
            if wanted != type_ and not _is_stored_as(type_, wanted):
                raise self._misfit(parameter, type_, f"it takes {wanted}")
        return bindings

    def type_of(self, parameter: Parameter, bindings: Bindings) -> TensorType:
        """Return the type of a parameter for given symbols."""
        shape = [
            d for dim in parameter.shape
            for d in self._dims(parameter, dim, bindings)
        ]  # fmt: skip
        element = parameter.dtype
        if isinstance(element, TypeSymbol):
            bound = self._bound(parameter, element.name, bindings)
            assert isinstance(bound, DType)
            element = bound
        return TensorType(tuple(shape), element)

    def output_types(self, bindings: Bindings) -> list[TensorType]:
        return [self.type_of(parameter, bindings) for parameter in self.outputs]

    def specialize(
        self,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType] | None,
        name: str,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[ir.OpView, list[TensorType]]:
        """Return the `func.func` for these types and attributes, outside of any module, and its output types."""
        bindings = {**self.bind(inputs, outputs), **self.attribute_values(attributes or {})}
        return self.build(bindings, name), self.output_types(bindings)

    def attribute_values(self, values: Mapping[str, object]) -> Bindings:
        """Return the values of the attributes (`T.attrs`), checked for completeness."""
        for name in values:
            if name not in self.numbers:
                known = f"its attributes are {', '.join(self.numbers)}" if self.numbers else "it has none (T.attrs)"
                raise self.source.error(self.tree, f"'{self.name}' has no attribute '{name}'; {known}")
        for name in self.numbers:
            if name not in values:
                raise self.source.error(
                    self.tree,
                    f"'{self.name}' needs its attribute '{name}': give it where the function is attached, "
                    f"attributes={{'{name}': ...}}, or where a rule calls it, b.call_prim_func(..., {name}=...)",
                )
            if not isinstance(values[name], (bool, int, float)):
                raise self.source.error(
                    self.tree, f"attribute '{name}' must be a number, found {kind_of(values[name])}"
                )
        return dict(values)

    def build(
        self, bindings: Bindings, name: str | None = None, strides: Mapping[str, Sequence[int]] = MappingProxyType({})
    ) -> ir.OpView:
        """Build the `func.func` for these bindings: in tensor form if it is regular, else in buffer form.

        `strides` are those of parameters that are tiles of larger buffers, for `T.stride`.
        """
        reason = "it is declared buffers=True"
        if not self.buffers:
            try:
                return self._finished(self._tensor_form(bindings, name or self.name))
            except NotRegular as refusal:
                reason = str(refusal)
        if KIND in self.attributes and self.attributes[KIND] != '"opaque"':
            raise self.source.error(
                self.tree,
                f"kind={self.attributes[KIND]} is for functions that are blocks, but '{self.name}' is not: {reason}",
            )
        return self._finished(self._buffer_form(bindings, name or self.name, strides))

    def why_loops(self, *inputs: TensorType) -> str | None:
        """Return why the function is kept as loops over buffers; None if it is raised to blocks."""
        with _current_or_new_context(), ir.Location.unknown():
            try:
                self._tensor_form(self.bind(inputs), self.name)
            except NotRegular as refusal:
                return str(refusal)
        return None

    def _finished(self, function: ir.OpView) -> ir.OpView:
        for name, text in self.attributes.items():
            function.operation.attributes[name] = ir.Attribute.parse(text)
        if self.attributes.get(NAMES) == "[]" and NAMES in function.operation.attributes:
            del function.operation.attributes[NAMES]
        return function

    def _tensor_form(self, bindings: Bindings, name: str) -> ir.OpView:
        types = [self.type_of(p, bindings) for p in self.parameters]
        if [p.is_output for p in self.parameters] != sorted(p.is_output for p in self.parameters):
            raise NotRegular("outputs come before inputs")
        count = len(self.inputs)
        builder = PrimBuilder(name, types[:count], self.source.location(self.tree))
        buffers = [TensorBuffer(p.name, t) for p, t in zip(self.parameters, types, strict=True)]
        for buffer, tensor in zip(buffers, builder.inputs, strict=False):
            buffer.tensor = tensor
        form = TensorForm(self.source, {**bindings, **{b.name: b for b in buffers}}, self.captured)
        form.builder = builder
        form.body(self.tree.body)
        outputs = []
        for buffer in buffers[count:]:
            if buffer.tensor is None:
                raise NotRegular(f"no block writes '{buffer.name}'")
            outputs.append(buffer.tensor)
        builder.loc = self.source.location(self.tree)
        known = [b for b in (*buffers, *form.names.values()) if isinstance(b, TensorBuffer)]
        named = {b.tensor.value: b.name for b in known if b.tensor is not None}
        function = builder.finish(*outputs)
        names = names_of_script(PrimView(function), named)
        if any(names):
            function.operation.attributes[NAMES] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])
        return function

    def _buffer_form(self, bindings: Bindings, name: str, strides: Mapping[str, Sequence[int]]) -> ir.OpView:
        inputs = [self.type_of(p, bindings) for p in self.inputs]
        outputs = [self.type_of(p, bindings) for p in self.outputs]
        names = [p.name for p in (*self.inputs, *self.outputs)]
        function = LoopFunction(name, inputs, outputs, self.source.location(self.tree), names)
        form = BufferForm(self.source, {}, self.captured)

        def body(loops: LoopBuilder, *buffers: Buffer) -> None:
            named = zip((*self.inputs, *self.outputs), buffers, strict=True)
            memory = {p.name: MemoryBuffer(p.name, buffer, not p.is_output, strides.get(p.name)) for p, buffer in named}
            form.names = {**bindings, **memory}
            form.builder = loops
            form.body(self.tree.body)
            for parameter in self.outputs:
                if memory[parameter.name] not in form.written:
                    raise self.source.error(
                        parameter.node, f"'{parameter.name}' is an output, but nothing is stored to it"
                    )

        return function.build(body)

    # Symbols

    def _unify(self, parameter: Parameter, type_: TensorType, bindings: Bindings) -> None:
        if isinstance(parameter.dtype, TypeSymbol):
            self._set(parameter, parameter.dtype.name, type_.dtype, bindings, type_)
        shape = parameter.shape
        whole = [(i, dim) for i, dim in enumerate(shape) if isinstance(dim, ShapeSymbol)]
        if not whole and len(shape) != type_.rank:
            raise self._misfit(parameter, type_, f"it takes rank {len(shape)}")
        if not whole:
            pairs = list(zip(shape, type_.shape, strict=True))
        else:
            at, symbol = whole[0]
            after = len(shape) - at - 1
            if type_.rank < len(shape) - 1:
                raise self._misfit(parameter, type_, f"it takes rank {len(shape) - 1} or more")
            self._set(parameter, symbol.name, type_.shape[at : type_.rank - after], bindings, type_)
            pairs = list(zip(shape[:at], type_.shape, strict=False))
            pairs += zip(shape[at + 1 :], type_.shape[type_.rank - after :], strict=True)
        for dim, size in pairs:
            if isinstance(dim, DimSymbol):
                self._set(parameter, dim.name, size, bindings, type_)

    def _set(self, parameter: Parameter, name: str, value: object, bindings: Bindings, type_: TensorType) -> None:
        known = bindings.setdefault(name, value)
        if known != value:
            raise self._misfit(
                parameter, type_, f"{name} is {_shown(known)} in another parameter, and {_shown(value)} here"
            )

    def _dims(self, parameter: Parameter, dim: ShapePart, bindings: Bindings) -> Sequence[Dim]:
        if isinstance(dim, int):
            return (dim,)
        if isinstance(dim, DimSymbol):
            size = self._bound(parameter, dim.name, bindings)
            assert isinstance(size, (int, SymbolicDim))
            return (size,)
        if isinstance(dim, ShapeSymbol):
            result = self._bound(parameter, dim.name, bindings)
            assert isinstance(result, tuple)
            return result
        reader = Interpreter(self.source, dict(bindings), _without_symbols(self.captured))
        value = reader.value(dim)
        return (value if isinstance(value, SymbolicDim) else reader.static(dim, f"a dim of '{parameter.name}'"),)

    def _bound(self, parameter: Parameter, name: str, bindings: Bindings) -> object:
        if name not in bindings:
            raise self.source.error(
                parameter.node, f"'{name}' in the type of '{parameter.name}' is not known from the inputs: "
                "give the types of the outputs too",
            )  # fmt: skip
        return bindings[name]

    def _misfit(self, parameter: Parameter, type_: TensorType, why: str) -> ScriptError:
        return self.source.error(parameter.node, f"'{parameter.name}' of '{self.name}' cannot be {type_}: {why}")


def _without_symbols(captured: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in captured.items() if not isinstance(value, SYMBOLS)}


def _is_stored_as(type_: TensorType, wanted: TensorType) -> bool:
    """Return whether a parameter has the storage type: i8 for bool, signless integers for unsigned."""
    return type_.shape == wanted.shape and type_.dtype.storage == wanted.dtype.mlir


def _shown(value: object) -> str:
    return str(tuple(value)) if isinstance(value, (tuple, list)) else str(value)


def _count(prim: PrimFunc, what: str, parameters: Sequence[Parameter], types: Sequence[TensorType]) -> None:
    if len(parameters) != len(types):
        names = ", ".join(p.name for p in parameters)
        raise prim.source.error(
            prim.tree, f"'{prim.name}' has {len(parameters)} {what} ({names}), but is used with {len(types)}"
        )


def _current_or_new_context() -> ir.Context:
    from mirlo.dialects.context import make_context

    return ir.Context.current or make_context()


def names_of_script(view: PrimView, written: Mapping[ir.Value, str]) -> list[str]:
    """Return the names of a function's buffers, in the order of `tir.names`, as its script has them.

    Names that the printer gives to buffers without one are left out.
    """
    default = view.default_names
    values = [*view.arguments, *(value for op in view.entry.operations for value in op.operation.results)]
    return ["" if written.get(value) == default.get(value) else written.get(value, "") for value in values]
