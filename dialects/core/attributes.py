"""Attributes of Mirlo's operations: declared on the class, read and written as plain Python values.

    axis = Int(-1)              op.axis -> -1        {axis = 1 : i64}
    mode = Str("nearest", choices=("nearest", "linear"))

An attribute with a default may be absent in the IR; one without is required. The verifier checks kinds and choices.

Dense attributes are converted to numpy arrays and back, for all element types.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_mlir
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType, as_dim, dim_attributes, dims_of_attribute

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


_ALIGNMENT_BYTES = 4
"""Bytes before the elements of a resource, which say on which addresses they were."""
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+\w.]+")


def read_dense(attribute: ir.Attribute, kind: TensorType) -> np.ndarray:
    """Return the elements of a dense attribute as an array of the element type's numpy type."""
    target = kind.dtype.to_numpy()
    resource = resource_bytes(attribute, math.prod(kind.static_shape) * target.itemsize)
    if resource is not None:
        return np.frombuffer(resource, target).reshape(kind.static_shape)
    try:
        array = np.array(attribute)
    except (TypeError, ValueError, BufferError):
        array = np.array(None)
    if array.dtype == object:
        array = _from_text(attribute, kind)
    if getattr(attribute, "is_splat", False):  # the bindings give f16 all elements, others one
        array = np.broadcast_to(array.reshape(-1)[:1].reshape(()), kind.static_shape)
    return array.reshape(kind.static_shape).astype(target, copy=False)


def resource_bytes(attribute: ir.Attribute, expected: int) -> bytes | None:
    """Return the bytes of an attribute that names a resource of its file; None for one that holds its elements.

    Raise `OpError` if the file has other than the `expected` number of bytes.
    """
    try:
        ir.DenseResourceElementsAttr(attribute)
    except (TypeError, ValueError):
        return None
    # The bindings do not read resources: they are taken from the text of a module that has this one only.
    holder = ir.Module.create(ir.Location.unknown(attribute.context))
    holder.operation.attributes["value"] = attribute
    text = holder.operation.get_asm().rstrip()
    name = str(attribute).partition("> :")[0] + ">"
    if not text.endswith("#-}"):
        raise OpError(f"the constant {name:.80} is not in the file: write the file with its resources")
    content = bytes.fromhex(text[text.rindex(': "0x') + 5 : text.rindex('"')])[_ALIGNMENT_BYTES:]
    if len(content) != expected:
        raise OpError(f"the constant {name:.80} has {len(content)} bytes in the file, expected {expected} for its type")
    return content


def dense_attribute(array: np.ndarray, kind: TensorType) -> ir.Attribute:
    """Return a dense attribute of this type with the array's elements."""
    plain = np.array(array, order="C", copy=True)
    if array.dtype != np.bool_:  # the bindings know few numpy types, but accept the bits of any
        plain = plain.view(f"u{array.dtype.itemsize}")
    return ir.DenseElementsAttr.get(plain, type=kind.to_mlir())


def _from_text(attribute: ir.Attribute, kind: TensorType) -> np.ndarray:
    """Parse the elements from MLIR's text, for element types that the bindings do not support, such as bf16."""
    target = kind.dtype.to_numpy()
    if not isinstance(attribute, ir.DenseElementsAttr):
        raise OpError(f"its elements are '{str(attribute):.60}', expected dense<...> or dense_resource<...>")
    if attribute.is_splat:
        number = attribute.get_splat_value().value
        filled: np.ndarray = np.broadcast_to(np.array(number).astype(target), kind.static_shape).copy()
        return filled
    text = str(attribute)
    listed = text[text.index("<") + 1 : text.rindex("> :")]
    if listed.startswith('"0x'):
        result: np.ndarray = np.frombuffer(bytes.fromhex(listed.strip('"')[2:]), target).copy()
        return result
    unsigned = np.dtype(f"u{target.itemsize}")
    return np.array([_bits(word, target, unsigned) for word in _NUMBER.findall(listed)], unsigned).view(target)


def _bits(word: str, target: np.dtype, unsigned: np.dtype) -> int:
    """Return the bits of an element as MLIR prints it; infinities and NaN are printed as bits."""
    if word.startswith("0x"):
        return int(word, 16)
    number = int(word) if target.kind in "iu" else float(word)
    return int(np.array(number).astype(target).view(unsigned))
