"""Types of ONNX other than numeric tensors, as kinds of run-time values."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.dims import parse as parse_dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.dtypes import onnx_dtype, onnx_type_name
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.graph import STRING_CODE, TypeDef
from mirlo.runtime.kinds import KEYS, MAP, OPTIONAL, SEQUENCE, STRING, Kind, map_of, optional_of, sequence_of


def tensor_kind(type_: TensorType) -> Kind:
    return Kind(type_.dtype.name, tuple(dim if isinstance(dim, int) else str(dim) for dim in type_.shape))


def tensor_type(kind: Kind) -> TensorType | None:
    """Return the type of a numeric tensor of known rank, else None."""
    if not kind.is_tensor or kind.shape is None:
        return None
    dims: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else parse_dim(dim) for dim in kind.shape)
    return TensorType(dims, DTYPES[kind.name])


def kind_of(declared: TypeDef, what: str, dim_of: Callable[[str | None], Dim] | None = None) -> Kind:
    """Return the kind of a declared type; `dim_of` maps the name of a dim that is not a number."""
    if declared.case == "sequence" and declared.element is not None:
        return sequence_of(kind_of(declared.element, what, dim_of))
    if declared.case == "optional" and declared.element is not None:
        return optional_of(kind_of(declared.element, what, dim_of))
    if declared.case == "map" and declared.element is not None:
        return _map_kind(declared.key, declared.element, what)
    if declared.case != "tensor":
        raise OnnxImportError(
            f"{what} is not a tensor but {declared.case or 'no type'}; tensors, sequences, maps and optional values "
            "are supported"
        )
    name = _element_name(declared.code, what)
    if declared.dims is None:
        return Kind(name)
    dims = [_dim(dim, dim_of) for dim in declared.dims]
    if UNKNOWN in dims and name != STRING:
        return Kind(name)
    return Kind(name, tuple(dim if isinstance(dim, int) else str(dim) for dim in dims))


def _dim(dim: int | str | None, dim_of: Callable[[str | None], Dim] | None) -> Dim:
    if isinstance(dim, int):
        if dim >= 0:
            return dim
        dim = None
    return dim_of(dim) if dim_of else UNKNOWN


def _map_kind(key_code: int, element: TypeDef, what: str) -> Kind:
    """Return the kind of a map: from strings or i64 to scalars."""
    key = _element_name(key_code, f"the key type of {what}")
    if key not in KEYS:
        raise OnnxImportError(f"{what} is a map from {key}; keys must be {' or '.join(KEYS)}")
    # Exporters write scalars as [1] as well.
    if element.case != "tensor" or any(isinstance(dim, int) and dim > 1 for dim in element.dims or ()):
        raise OnnxImportError(f"{what} is a map to other values than scalars, which is not supported")
    return map_of(key, _element_name(element.code, f"the value type of {what}"))


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
