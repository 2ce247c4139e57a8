"""Conversion between dense attributes and numpy arrays, for all element types."""

from __future__ import annotations

import math
import re

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType

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
