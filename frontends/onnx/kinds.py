"""Types of ONNX other than numeric tensors, as kinds of run-time values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.dims import parse as parse_dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_code, onnx_dtype, onnx_type_name
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.runtime.kinds import KEYS, MAP, OPTIONAL, SEQUENCE, STRING, Kind, map_of, optional_of, sequence_of

if TYPE_CHECKING:
    import onnx

STRING_CODE = 8


def tensor_kind(found: TensorType) -> Kind:
    return Kind(found.dtype.name, tuple(dim if isinstance(dim, int) else str(dim) for dim in found.shape))


def tensor_type(kind: Kind) -> TensorType | None:
    """Return the type of a numeric tensor of known rank, else None."""
    if not kind.is_tensor or kind.shape is None:
        return None
    dims: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else parse_dim(dim) for dim in kind.shape)
    return TensorType(dims, DTYPES[kind.name])


def kind_of_proto(
    proto: onnx.TypeProto, what: str, dim_of: Callable[[onnx.TensorShapeProto.Dimension], Dim] | None = None
) -> Kind:
    """Return the kind of a TypeProto; `dim_of` maps a Dimension that is not a number."""
    case = proto.WhichOneof("value")
    if case == "sequence_type":
        return sequence_of(kind_of_proto(proto.sequence_type.elem_type, what, dim_of))
    if case == "optional_type":
        return optional_of(kind_of_proto(proto.optional_type.elem_type, what, dim_of))
    if case == "map_type":
        return _map_kind(proto.map_type, what)
    if case != "tensor_type":
        found = (case or "no type").replace("_type", "").replace("_", " ")
        raise OnnxImportError(
            f"{what} is not a tensor but {found}; tensors, sequences, maps and optional values are supported"
        )
    tensor = proto.tensor_type
    name = _element_name(tensor.elem_type, what)
    if not tensor.HasField("shape"):
        return Kind(name)
    dims = [
        dim.dim_value
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else dim_of(dim)
        if dim_of
        else UNKNOWN
        for dim in tensor.shape.dim
    ]
    if UNKNOWN in dims and name != STRING:
        return Kind(name)
    return Kind(name, tuple(dim if isinstance(dim, int) else str(dim) for dim in dims))


def _map_kind(proto: onnx.TypeProto, what: str) -> Kind:
    """Return the kind of a TypeProto.Map: from strings or i64 to scalars."""
    key = _element_name(proto.key_type, f"the key type of {what}")
    if key not in KEYS:
        raise OnnxImportError(f"{what} is a map from {key}; keys must be {' or '.join(KEYS)}")
    tensor = proto.value_type.tensor_type
    # Exporters write scalars as [1] as well.
    if proto.value_type.WhichOneof("value") != "tensor_type" or any(dim.dim_value > 1 for dim in tensor.shape.dim):
        raise OnnxImportError(f"{what} is a map to other values than scalars, which is not supported")
    return map_of(key, _element_name(tensor.elem_type, f"the value type of {what}"))


def _element_name(code: int, what: str) -> str:
    return STRING if code == STRING_CODE else onnx_dtype(code, what).dtype.name


def onnx_type_of(kind: Kind) -> str:
    """Format a kind as ONNX's schemas do: `seq(tensor(float))`."""
    if kind.name == MAP and kind.key is not None and kind.element is not None:
        key = STRING if kind.key == STRING else onnx_type_name(DTYPES[kind.key])
        return f"map({key},{onnx_type_of(kind.element)})"
    if kind.element is not None:
        return f"{'seq' if kind.name == SEQUENCE else OPTIONAL}({onnx_type_of(kind.element)})"
    return f"tensor({STRING if kind.name == STRING else onnx_type_name(DTYPES[kind.name])})"


def type_proto(kind: Kind) -> onnx.TypeProto:
    """Return the TypeProto of a kind."""
    from onnx import helper

    if kind.name == MAP and kind.key is not None and kind.element is not None:
        key_code = STRING_CODE if kind.key == STRING else onnx_code(DTYPES[kind.key])
        return helper.make_map_type_proto(key_code, type_proto(kind.element))
    if kind.element is not None:
        make = helper.make_sequence_type_proto if kind.name == SEQUENCE else helper.make_optional_type_proto
        return make(type_proto(kind.element))
    code = STRING_CODE if kind.name == STRING else onnx_code(DTYPES[kind.name])
    return helper.make_tensor_type_proto(code, None if kind.shape is None else list(kind.shape))


def join(a: Kind, b: Kind) -> Kind | None:
    """Return the most specific kind of both values; None if they are incompatible."""
    if a == b:
        return a
    if OPTIONAL in (a.name, b.name) and a.name != b.name:  # a value is also an optional that is present
        inner, other = (a.element, b) if a.name == OPTIONAL else (b.element, a)
        joined = None if inner is None else join(inner, other)
        return None if joined is None else optional_of(joined)
    if a.name != b.name or a.name == MAP or (a.element is None) != (b.element is None):
        return None
    if a.element is not None and b.element is not None:
        element = join(a.element, b.element)
        return None if element is None else Kind(a.name, element=element)
    return Kind(a.name)


def without_shapes(kind: Kind) -> Kind:
    return Kind(kind.name, element=None if kind.element is None else without_shapes(kind.element), key=kind.key)
