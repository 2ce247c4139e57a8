"""`TensorType`: the static type of a tensor as a plain Python value."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import SupportsIndex
from weakref import WeakKeyDictionary

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_mlir
from mirlo.dialects.core.errors import OpError
from mirlo.runtime.records import dataclass

DIMS_ATTRIBUTE = "relax.dims"


def _element_of(mlir_type: ir.Type) -> DType:
    """Return the element type of a tensor, a vector or a buffer; raise `OpError` where Mirlo has no such type."""
    element = mlir_type.element_type if isinstance(mlir_type, ir.ShapedType) else mlir_type
    known = dtype_of_mlir(element)
    if known is None:
        raise OpError(f"{mlir_type} has elements of a type that Mirlo does not know: {element}")
    return known


def _shape_of_value(value: ir.Value) -> tuple[Dim, ...]:
    """Return the dims of a tensor, a vector or a buffer: numbers, and symbolic ones."""
    if not isinstance(value.type, ir.ShapedType) or not value.type.has_rank:
        raise OpError(f"a value of type {value.type} has no shape")
    return dims_of(value.type)


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor. Dims are integers or symbolic expressions."""

    shape: tuple[Dim, ...]
    dtype: DType

    @staticmethod
    def of(shape: Iterable[object], element: str | DType) -> TensorType:
        """Create a type from a shape whose dims may also be text (`"batch"`, `"2*batch + 1"`, `"?"`)."""
        return TensorType(tuple(map(as_dim, shape)), dtype(element))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """Return the shape, which must be static."""
        if not self.is_static:
            raise ValueError(f"{self} has dims that are not numbers")
        return self.shape  # type: ignore[return-value]

    @property
    def elements(self) -> Dim:
        return D.product(self.shape)

    @property
    def bytes(self) -> int:
        """Return the bytes of a contiguous tensor of this (static) type."""
        count = 1
        for dim in self.static_shape:
            count *= dim
        return count * self.dtype.bytes

    def with_shape(self, shape: tuple[Dim, ...] | list[Dim]) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, element: str | DType) -> TensorType:
        return TensorType(self.shape, dtype(element))

    def to_mlir(self) -> ir.Type:
        """Return the `tensor<...>` type; symbolic dims are in its encoding, `#relax.dims<[...]>`."""
        return ranked_tensor(self.shape, self.dtype.to_mlir())

    @staticmethod
    def from_mlir(mlir_type: ir.Type) -> TensorType | None:
        """Convert an MLIR type, or return None if it is not a ranked tensor of a known element type."""
        if not isinstance(mlir_type, ir.RankedTensorType):
            return None
        known = _known_types.setdefault(mlir_type.context, {})
        address = hash(mlir_type)
        result = known.get(address)
        if result is None:
            element = dtype_of_mlir(mlir_type.element_type)
            if element is None:
                return None
            result = known[address] = TensorType(dims_of(mlir_type), element)
        return result

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def as_dim(dim: object) -> Dim:
    """Return a dim from an integer of any type, from its text, or from a dim; raise TypeError for anything else."""
    if isinstance(dim, str):
        return D.parse(dim)
    if isinstance(dim, D.SymbolicDim):
        return dim
    if isinstance(dim, (int, SupportsIndex)):
        return operator.index(dim)
    raise TypeError(f"'{type(dim).__name__}' object cannot be interpreted as an integer")


def _dim_of(attribute: ir.Attribute) -> Dim:
    if isinstance(attribute, ir.IntegerAttr):
        return attribute.value
    return D.parse(ir.StringAttr(attribute).value)


def _dims_encoding(encoding: ir.Attribute | None) -> ir.DynamicAttr | None:
    """Return the encoding of a tensor type if it is `#relax.dims`, else None."""
    try:
        dynamic = None if encoding is None else ir.DynamicAttr(encoding)
    except ValueError:
        return None
    return dynamic if dynamic is not None and dynamic.attr_name == DIMS_ATTRIBUTE else None


def _encoded_dims(mlir_type: ir.Type, encoding: ir.Attribute, sizes: list[Dim]) -> tuple[Dim, ...]:
    """Return the dims in the encoding of a tensor type; raise ValueError if they contradict its sizes."""
    dims = encoding.params[0].maybe_downcast()
    if not isinstance(dims, ir.ArrayAttr):
        raise ValueError(f"{mlir_type} has an encoding that is not a list of dims")
    try:
        shape = dims_of_attribute(dims)
    except ValueError as error:
        raise ValueError(f"{mlir_type} has an encoding that is not a list of dims: {error}") from None
    if len(shape) != len(sizes):
        raise ValueError(f"{mlir_type} has {len(sizes)} dims, but its encoding lists {len(shape)}")
    for i, (dim, size) in enumerate(zip(shape, sizes, strict=True)):
        if isinstance(size, int) != isinstance(dim, int) or (isinstance(size, int) and dim != size):
            raise ValueError(f"dim {i} of {mlir_type} is {size}, but its encoding has {dim}")
    return shape


MAX_RANK = 256
"""The most dims of a tensor. Arrays have at most 64; each dim is a loop, and loops are in each other."""
LARGEST_DIM = 1 << 62
LARGEST_TENSOR = 1 << 58
"""The most elements of a tensor: with up to 16 bytes each, larger sizes in bytes overflow 64 bits."""


def _require_sizes(shape: Sequence[Dim]) -> None:
    """Check that MLIR, which counts in 64 bits, can represent the sizes; its own error does not name them."""
    if len(shape) > MAX_RANK:
        raise OpError(f"a tensor of {len(shape)} dims is not supported: at most {MAX_RANK} are; reshape it")
    for dim in shape:
        if isinstance(dim, int) and not -LARGEST_DIM < dim < LARGEST_DIM:
            raise OpError(f"a dim of {dim} elements is beyond any memory")


def _require_elements(shape: Sequence[Dim]) -> None:
    """Check that the size of a tensor in bytes can be computed for all values of its symbols."""
    known = prod(dim for dim in shape if isinstance(dim, int))
    if known >= LARGEST_TENSOR:
        listed = ", ".join(map(str, shape))
        raise OpError(f"a tensor of shape [{listed}] is beyond any memory: it has {known} elements or more")


def require_memory(shape: Sequence[Dim]) -> None:
    """Raise an error if no memory holds a tensor of this shape."""
    _require_sizes(shape)
    _require_elements(shape)


def dim_attributes(shape: tuple[Dim, ...]) -> ir.ArrayAttr:
    """Return an array attribute of dims: integers, and strings for symbolic ones."""
    _require_sizes(shape)
    i64 = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get(
        [ir.IntegerAttr.get(i64, dim) if isinstance(dim, int) else ir.StringAttr.get(str(dim)) for dim in shape]
    )


def dims_of_attribute(attribute: ir.Attribute) -> tuple[Dim, ...]:
    return tuple(_dim_of(entry) for entry in ir.ArrayAttr(attribute))


def dims_attribute(shape: tuple[Dim, ...]) -> ir.Attribute:
    """Return `#relax.dims<["batch", 128]>` for a shape."""
    return ir.DynamicAttr.get(DIMS_ATTRIBUTE, [dim_attributes(shape)])


_BARE_SHAPE = vars(ir.ShapedType)["shape"].fget
"""Reads the shape as MLIR has it, with -2**63 for a dynamic dim."""


def dims_of(mlir_type: ir.Type) -> tuple[Dim, ...]:
    """Return the dims of a ranked tensor (symbols come from its encoding), a vector or a buffer."""
    bare: list[int] = _BARE_SHAPE(mlir_type)
    if mlir_type.has_static_shape:
        return tuple(bare)
    if not isinstance(mlir_type, ir.RankedTensorType):
        return tuple(D.UNKNOWN if mlir_type.is_dynamic_dim(i) else size for i, size in enumerate(bare))
    known = _known_dims.setdefault(mlir_type.context, {})
    address = hash(mlir_type)
    if address not in known:
        known[address] = _dims_of_encoding(mlir_type, bare)
    return known[address]


_known_dims: WeakKeyDictionary[ir.Context, dict[int, tuple[Dim, ...]]] = WeakKeyDictionary()
"""The dims of the tensor types of each context, by address: passes ask for those of a type hundreds of times.

A context has each type once, at one address, which is its hash in the bindings, until the context is freed. The types
themselves would keep their context alive here.
"""


_known_types: WeakKeyDictionary[ir.Context, dict[int, TensorType]] = WeakKeyDictionary()
"""The tensor types that Mirlo knows of each context, by address as in `_known_dims`."""


def _dims_of_encoding(mlir_type: ir.Type, bare: Sequence[int]) -> tuple[Dim, ...]:
    """Return the dims of a tensor type some of which are dynamic."""
    sizes: list[Dim] = [D.UNKNOWN if mlir_type.is_dynamic_dim(i) else size for i, size in enumerate(bare)]
    encoding = _dims_encoding(mlir_type.encoding)
    return tuple(sizes) if encoding is None else _encoded_dims(mlir_type, encoding, sizes)


# The bindings give a dynamic dim as -2**63, with which arithmetic goes on: -2**63 % 8 is 0. Tensors have symbolic dims
# instead, and values the shape and the element type that an array of numpy has.
for _class, _shape, _dtype in (
    (ir.RankedTensorType, dims_of, _element_of),
    (ir.Value, _shape_of_value, lambda value: _element_of(value.type)),
):
    setattr(_class, "shape", property(_shape))  # noqa: B010 (declared in `stubs/ir.pyi`)
    setattr(_class, "dtype", property(_dtype))  # noqa: B010
setattr(ir.RankedTensorType, "get_dim_size", lambda kind, dim: dims_of(kind)[dim])  # noqa: B010


def ranked_tensor(shape: Sequence[Dim], element: ir.Type) -> ir.Type:
    """Return a `tensor<...>` of this MLIR element type; symbolic dims are in its encoding."""
    require_memory(shape)
    sizes = [dim if isinstance(dim, int) else ir.ShapedType.get_dynamic_size() for dim in shape]
    if all(isinstance(dim, int) for dim in shape):
        return ir.RankedTensorType.get(sizes, element)
    return ir.RankedTensorType.get(sizes, element, dims_attribute(tuple(shape)))


def compatible(declared: TensorType, inferred: TensorType) -> bool:
    """Return whether a declared result type accepts the inferred one: dims are equal, or unknown on one side."""
    if declared.dtype is not inferred.dtype or declared.rank != inferred.rank:
        return False
    return all(d is D.UNKNOWN or i is D.UNKNOWN or d == i for d, i in zip(declared.shape, inferred.shape, strict=True))
