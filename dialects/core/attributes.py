"""Attributes of Mirlo's operations: declared on the class, read and written as plain Python values.

    axis = Int(-1)              op.axis -> -1        {axis = 1 : i64}
    mode = Str("nearest", choices=("nearest", "linear"))

An attribute with a default may be absent in the IR; one without is required. The verifier checks kinds and choices.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat, SupportsIndex

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_mlir
from mirlo.dialects.core.types import as_dim, dim_attributes, dims_of_attribute

REQUIRED = object()
"""The default of an attribute that must be given."""


class Attribute:
    """A declared attribute. Subclasses convert between Python values and MLIR attributes."""

    expected = "an attribute"

    def __init__(self, default: object = REQUIRED, doc: str = "", choices: Sequence[int | str] | None = None):
        self.default = default if default is REQUIRED or default is None else self.normalize(default)
        self.doc = doc
        self.choices = choices
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, op: ir.OpView, owner: type) -> Any:
        if op is None:
            return self
        attributes = op.operation.attributes
        if self.name not in attributes:
            return None if self.default is REQUIRED else self.default
        return self.decode(attributes[self.name])

    def normalize(self, value: Any) -> object:
        """Return the Python value in the form that `decode` returns; raise TypeError or ValueError for a wrong kind."""
        return value

    def encode(self, value: Any) -> ir.Attribute:
        """Return the MLIR attribute of a normalized value."""
        raise NotImplementedError

    def decode(self, attribute: ir.Attribute) -> object:
        raise NotImplementedError

    def accepts(self, attribute: ir.Attribute) -> bool:
        raise NotImplementedError

    def complaint(self, attribute: ir.Attribute) -> str | None:
        """Return what is wrong with this attribute in the IR, or None."""
        if not self.accepts(attribute):
            return f"attribute '{self.name}' must be {self.expected}, got {attribute}"
        value = self.decode(attribute)
        if self.choices is not None and value not in self.choices:
            allowed = ", ".join(map(repr, self.choices))
            return f"attribute '{self.name}' must be one of {allowed}, got {value!r}"
        return None


class Int(Attribute):
    expected = "an integer"

    def normalize(self, value: SupportsIndex) -> int:
        return operator.index(value)

    def encode(self, value: int) -> ir.IntegerAttr:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)

    def decode(self, attribute: ir.Attribute) -> int:
        return ir.IntegerAttr(attribute).value

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.IntegerAttr) and not isinstance(attribute, ir.BoolAttr)


class Float(Attribute):
    expected = "a number such as 0.5 : f64"

    def normalize(self, value: SupportsFloat | str) -> float:
        return float(value)

    def encode(self, value: float) -> ir.FloatAttr:
        return ir.FloatAttr.get(ir.F64Type.get(), value)

    def decode(self, attribute: ir.Attribute) -> float:
        return ir.FloatAttr(attribute).value

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.FloatAttr)


class Bool(Attribute):
    expected = "true or false"

    def normalize(self, value: SupportsIndex) -> bool:
        return bool(operator.index(value))

    def encode(self, value: bool) -> ir.BoolAttr:
        return ir.BoolAttr.get(value)

    def decode(self, attribute: ir.Attribute) -> bool:
        return ir.BoolAttr(attribute).value

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.BoolAttr)


class Str(Attribute):
    expected = "a string"

    def normalize(self, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError
        return value

    def encode(self, value: str) -> ir.StringAttr:
        return ir.StringAttr.get(value)

    def decode(self, attribute: ir.Attribute) -> str:
        return ir.StringAttr(attribute).value

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.StringAttr)


class Ints(Attribute):
    expected = "integers such as array<i64: 1, 1>"

    def normalize(self, value: Iterable[SupportsIndex]) -> tuple[int, ...]:
        return tuple(map(operator.index, value))

    def encode(self, value: tuple[int, ...]) -> ir.DenseI64ArrayAttr:
        return ir.DenseI64ArrayAttr.get(value)

    def decode(self, attribute: ir.Attribute) -> tuple[int, ...]:
        return tuple(ir.DenseI64ArrayAttr(attribute))

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.DenseI64ArrayAttr)


class Floats(Attribute):
    expected = "numbers such as array<f64: 0.5, 1.0>"

    def normalize(self, value: Iterable[SupportsFloat | str]) -> tuple[float, ...]:
        return tuple(map(float, value))

    def encode(self, value: tuple[float, ...]) -> ir.DenseF64ArrayAttr:
        return ir.DenseF64ArrayAttr.get(value)

    def decode(self, attribute: ir.Attribute) -> tuple[float, ...]:
        return tuple(ir.DenseF64ArrayAttr(attribute))

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.DenseF64ArrayAttr)


class Strs(Attribute):
    expected = 'strings such as ["spatial", "reduce"]'

    def normalize(self, value: Iterable[str]) -> tuple[str, ...]:
        return tuple(value)

    def encode(self, value: tuple[str, ...]) -> ir.ArrayAttr:
        return ir.ArrayAttr.get([ir.StringAttr.get(item) for item in value])

    def decode(self, attribute: ir.Attribute) -> tuple[str, ...]:
        return tuple(ir.StringAttr(item).value for item in ir.ArrayAttr(attribute))

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.ArrayAttr) and all(isinstance(item, ir.StringAttr) for item in attribute)


class Dims(Attribute):
    """A shape: integers, and strings for symbolic dims."""

    expected = 'dims such as [2, "batch"]'

    def normalize(self, value: Iterable[Dim | str]) -> tuple[Dim, ...]:
        return tuple(map(as_dim, value))

    def encode(self, value: tuple[Dim, ...]) -> ir.ArrayAttr:
        return dim_attributes(value)

    def decode(self, attribute: ir.Attribute) -> tuple[Dim, ...]:
        return dims_of_attribute(attribute)

    def accepts(self, attribute: ir.Attribute) -> bool:
        if not isinstance(attribute, ir.ArrayAttr):
            return False
        if not all(isinstance(item, (ir.IntegerAttr, ir.StringAttr)) for item in attribute):
            return False
        try:
            dims = dims_of_attribute(attribute)
        except ValueError:
            return False
        return all(dim >= 0 for dim in dims if isinstance(dim, int))


class ElementType(Attribute):
    """An element type, as a type attribute: `{dtype = f32}`."""

    expected = "an element type such as f32"

    def normalize(self, value: str | DType) -> DType:
        return dtype(value)

    def encode(self, value: DType) -> ir.TypeAttr:
        return ir.TypeAttr.get(value.to_mlir())

    def decode(self, attribute: ir.Attribute) -> DType | None:
        return dtype_of_mlir(ir.TypeAttr(attribute).value)

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, ir.TypeAttr) and self.decode(attribute) is not None


class Symbol(Attribute):
    """A reference to a function: `@name` or `@module::@name`. The Python value joins the names with '::'."""

    expected = "a symbol such as @name"

    def encode(self, value: str) -> ir.Attribute:
        names = value.split("::")
        return ir.FlatSymbolRefAttr.get(names[0]) if len(names) == 1 else ir.SymbolRefAttr.get(names)

    def decode(self, attribute: ir.Attribute) -> str:
        if isinstance(attribute, ir.FlatSymbolRefAttr):
            return attribute.value
        return "::".join(ir.SymbolRefAttr(attribute).value)

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, (ir.FlatSymbolRefAttr, ir.SymbolRefAttr))


class Raw(Attribute):
    """An MLIR attribute of one class, passed through unchanged."""

    def __init__(self, kind: str, default: object = REQUIRED, doc: str = ""):
        super().__init__(default, doc)
        self.kind = kind
        self.expected = f"a {kind}"

    def encode(self, value: ir.Attribute) -> ir.Attribute:
        return value

    def decode(self, attribute: ir.Attribute) -> ir.Attribute:
        return attribute

    def accepts(self, attribute: ir.Attribute) -> bool:
        return isinstance(attribute, getattr(ir, self.kind))
