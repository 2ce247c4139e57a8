"""Types of the model's inputs: static, symbolic, or fixed by the caller."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.input_sizes import sized_shapes
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import OnnxImportError, nearest
from mirlo.frontends.onnx.graph import STRING_CODE, GraphDef, ValueDef
from mirlo.frontends.onnx.values import kind_of
from mirlo.runtime.kinds import Kind
from mirlo.runtime.names import unused_name
from mirlo.runtime.records import dataclass

Shapes = Mapping[str, Sequence[int | str] | None]
"""Input name to shape: numbers, or names of symbols; None for the shape that the model declares."""

MAX_DIGITS = 18
"""Digits that always fit 64 bits."""


def graph_inputs(graph: GraphDef, shapes: Shapes | None = None) -> list[ValueDef]:
    """Return the inputs of the main graph.

    An input with a default value, an initializer of its name, is a constant unless the caller gives it a shape.
    """
    constants = {tensor.name for tensor in graph.initializers} - set(shapes or ())
    return [value for value in graph.inputs if value.name not in constants]


@dataclass(frozen=True)
class InputTypes:
    """The types of the inputs of a model that are no constants."""

    given: Mapping[str, TensorType | Kind]
    """With the shapes that the caller gives."""
    declared: Mapping[str, TensorType | Kind]
    """As the model declares them."""

    def solved(self, solutions: Mapping[str, Dim]) -> tuple[dict[str, TensorType | Kind], bool]:
        """Return the types with solutions for their symbols, and whether they are those that the model declares."""
        types = _substituted(self.given, solutions)
        return types, self.given is self.declared or types == _substituted(self.declared, solutions)


def model_inputs(model: models.LoadedModel, shapes: Shapes | None) -> InputTypes:
    """Return the types of a model's inputs; a shape of None is the one that the model declares."""
    graph = model.content.graph
    if graph.has_sparse_initializers:
        raise OnnxImportError(f"{model.name}: sparse initializers are not supported; store these tensors dense")
    inputs = graph_inputs(graph, shapes)
    _refuse_duplicates([value.name for value in inputs], "input", model.name)
    _refuse_duplicates([tensor.name for tensor in graph.initializers], "initializer", model.name)
    types = input_types(inputs, shapes, model.name)
    return InputTypes(types, input_types(inputs, dict.fromkeys(shapes), model.name) if shapes else types)


def _substituted(types: Mapping[str, TensorType | Kind], solutions: Mapping[str, Dim]) -> dict[str, TensorType | Kind]:
    """Return the input types with solutions substituted for their symbols."""
    return {
        name: input_type.with_shape([D.substitute(dim, solutions) for dim in input_type.shape])
        if isinstance(input_type, TensorType)
        else input_type
        for name, input_type in types.items()
    }


def _refuse_duplicates(names: list[str], what: str, model: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise OnnxImportError(f"{model}: an {what} of the graph has no name")
        if name in seen:
            raise OnnxImportError(
                f"{model}: the name '{name}' is defined twice: the graph has two {what}s of this name"
            )
        seen.add(name)


def input_types(inputs: Sequence[ValueDef], shapes: Shapes | None, model: str) -> dict[str, TensorType | Kind]:
    """Return the type of each input of the main graph, or its kind if it is not a numeric tensor.

    If the caller fixes a symbol of one input, it is fixed in the others too.
    """
    symbols = _Symbols()
    texts = [dim for value in inputs for dim in value.type.dims or () if isinstance(dim, str) and not is_unnamed(dim)]
    for text in sorted(texts, key=lambda text: not is_dim(text)):  # names that are kept precede generated ones
        symbols.of(text)
    objects = {value.name: _object_kind(value, symbols, model) for value in inputs if _is_object(value)}
    given_shapes = {name: shape for name, shape in (shapes or {}).items() if shape is not None}
    for name in given_shapes:
        if name in objects:
            raise OnnxImportError(
                f"{model}: a shape is given for '{name}', which is {objects[name]}, no tensor of numbers"
            )
    declared = {value.name: _declared(value, symbols, model) for value in inputs if value.name not in objects}
    for name in shapes or {}:
        if name not in declared and name not in objects:
            what = f"a shape is given for '{name}', which is not an input"
            raise OnnxImportError(f"{model}: {what}: {nearest(name, declared)}")
    requested = {name: _with_shape(name, shape, declared, symbols, model) for name, shape in given_shapes.items()}
    bound: dict[str, Dim] = {}
    for name, shape in requested.items():
        for axis, (old, new) in enumerate(zip(declared[name].shape, shape, strict=True)):
            _bind(old, new, bound, f"{model}: the shape given for input '{name}': dim {axis}")
    types: dict[str, TensorType | Kind] = {}
    for value in inputs:
        if value.name in objects:
            types[value.name] = _bound_kind(objects[value.name], bound)
            continue
        declared_type = declared[value.name]
        shape = requested.get(value.name) or tuple(D.substitute(dim, bound) for dim in declared_type.shape)
        types[value.name] = declared_type.with_shape(shape)
    return types


def _is_object(value: ValueDef) -> bool:
    case = value.type.case
    return case in ("sequence", "optional", "map") or (case == "tensor" and value.type.code == STRING_CODE)


def _object_kind(value: ValueDef, symbols: _Symbols, model: str) -> Kind:
    def dim_of(name: str | None) -> Dim:
        return symbols.fresh(f"{value.name}_dim") if name is None or is_unnamed(name) else symbols.of(name)

    return kind_of(value.type, f"{model}: input '{value.name}'", dim_of)


def _bound_kind(kind: Kind, bound: Mapping[str, Dim]) -> Kind:
    """Return the kind with the dims that the caller fixed."""
    if kind.element is not None:
        return Kind(kind.name, element=_bound_kind(kind.element, bound), key=kind.key)
    if kind.shape is None:
        return kind
    dims = [dim if isinstance(dim, int) else D.substitute(D.parse(dim), bound) for dim in kind.shape]
    return Kind(kind.name, tuple(dim if isinstance(dim, int) else str(dim) for dim in dims))


class _Symbols:
    """Names of dims, made valid, and unique where the model gives none."""

    def __init__(self) -> None:
        self._by_text: dict[str, Dim] = {}
        self._taken: set[str] = set()

    def of(self, text: str) -> Dim:
        """Return the dim for a model's `dim_param`, which may be any text: equal texts are equal dims."""
        if text not in self._by_text:
            self._by_text[text] = self._parsed(text)
        return self._by_text[text]

    def fresh(self, base: str) -> Dim:
        name = unused_name(identifier(base), self._taken)
        self._taken.add(name)
        return D.symbol(name)

    def _parsed(self, text: str) -> Dim:
        if not is_dim(text):
            return self.fresh(text)
        dim = D.parse(text)
        self._taken |= D.symbols_of(dim)
        return dim


UNNAMED = frozenset({"none", "null", "unk", "unknown", "-1"})
"""What exporters write for a dim that they know no name of, in lower case; equal texts are not equal dims."""


def is_unnamed(text: str) -> bool:
    """Return whether the text of a dim names none: `None`, `-1`, or no letters and digits at all, as `?`."""
    return text.strip().lower() in UNNAMED or not any(map(str.isalnum, text))


def is_dim(text: str) -> bool:
    """Return whether a text is a valid symbolic dim."""
    try:
        dim = D.parse(text)
    except ValueError:
        return False
    return not isinstance(dim, int) and dim is not D.UNKNOWN and _is_countable(dim)


def _is_countable(dim: D.SymbolicDim) -> bool:
    """Return whether the numbers in a dim fit the 64 bits of compiled code."""
    return all(len(digits) <= MAX_DIGITS for digits in re.findall("[0-9]+", str(dim)))


def identifier(text: str) -> str:
    """Return a valid name of a dim that resembles this text, which may be any."""
    if D.is_symbol_name(text):
        return text
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if D.is_symbol_name(name) else f"d_{name}"


def _declared(value: ValueDef, symbols: _Symbols, model: str) -> TensorType:
    what = f"{model}: input '{value.name}'"
    if value.type.case != "tensor":
        kind_of(value.type, what)
    element = onnx_dtype(value.type.code, what)
    if value.type.dims is None:
        raise OnnxImportError(f"{what} has no shape, not even a rank; export the model with shapes for its inputs")
    shape: list[Dim] = []
    for axis, dim in enumerate(value.type.dims):
        if isinstance(dim, int) and dim >= 0:
            shape.append(dim)
        elif isinstance(dim, str) and not is_unnamed(dim):
            shape.append(symbols.of(dim))
        else:
            shape.append(symbols.fresh(f"{value.name}_dim{axis}"))
    return TensorType(tuple(shape), element.dtype)


def _with_shape(
    name: str, shape: Sequence[int | str], declared: Mapping[str, TensorType], symbols: _Symbols, model: str
) -> tuple[Dim, ...]:
    if isinstance(shape, (str, bytes)) or len(shape) != declared[name].rank:
        raise OnnxImportError(
            f"{model}: the shape given for input '{name}' is {shape}, but the input is {declared[name]}: "
            f"expected {declared[name].rank} dims"
        )
    result: list[Dim] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, str) and is_unnamed(dim):
            result.append(symbols.fresh(f"{name}_dim{axis}"))
        elif isinstance(dim, str):
            result.append(symbols.of(dim))
        elif isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0:
            result.append(dim)
        else:
            raise OnnxImportError(
                f"{model}: the shape given for input '{name}' has the dim {dim!r}; expected a number or a name"
            )
    return tuple(result)


def _bind(old: Dim, new: Dim, bound: dict[str, Dim], what: str) -> None:
    """Record what a given dim implies for the symbol that the model declares."""
    if isinstance(old, int):
        if old != new:
            raise OnnxImportError(f"{what} is {new}, but the model fixes it to {old}")
        return
    names = old.symbols()
    if len(names) != 1 or old != D.symbol(next(iter(names))):
        return
    name = next(iter(names))
    if bound.setdefault(name, new) != new:
        raise OnnxImportError(f"{what} is {new}, but the symbol '{name}' is given as {bound[name]} already")


def shapes_with_dims(
    model: models.Source, shapes: Shapes | None, dims: Mapping[str, int]
) -> dict[str, Sequence[int | str]]:
    """Return input shapes in which these dims have these sizes, in addition to `shapes`."""
    loaded = models.load(model)
    inputs = graph_inputs(loaded.content.graph, shapes)
    declared = _only_tensors(input_types(inputs, None, loaded.name))
    requested = _only_tensors(input_types(inputs, shapes, loaded.name))
    try:
        return sized_shapes(loaded.name, declared, requested, dims, {text: identifier(text) for text in dims})
    except ValueError as error:
        raise OnnxImportError(str(error)) from None


def _only_tensors(types: Mapping[str, object]) -> dict[str, TensorType]:
    return {name: kind for name, kind in types.items() if isinstance(kind, TensorType)}
