"""Columns of a batch as inputs of a model; Arrow columns are not copied if their layout is that of an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.runtime import STRING, numpy_dtype
from mirlo_llm.serve.ray.errors import RayError
from mirlo_llm.serve.tensors import TensorPort

if TYPE_CHECKING:
    import pyarrow


def arrays_of_table(table: pyarrow.Table, columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the arrays of a table's columns by the inputs that read them."""
    _require_columns(columns, table.column_names)
    return {name: _array_of_column(column, table.column(column)) for name, column in columns.items()}


def arrays_of_batch(batch: Mapping[str, np.ndarray], columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the arrays of a batch by the inputs that read them."""
    _require_columns(columns, batch)
    return {name: np.asarray(batch[column]) for name, column in columns.items()}


def as_input(port: TensorPort, array: np.ndarray, column: str) -> np.ndarray:
    """Return a column in the element type of an input; conversions must not change the kind of values."""
    if port.dtype == STRING:
        return array if array.dtype.kind in "OU" else _refuse(port, array, column)
    dtype = numpy_dtype(port.dtype)
    if array.dtype == dtype:
        return array
    if array.dtype == object:
        raise RayError(f"column '{column}': its rows have different shapes, input '{port.name}' needs one shape")
    is_float = array.dtype.kind == "f" and (dtype.kind == "f" or port.dtype == "bf16")
    if not is_float and not (array.dtype.kind in "iu" and dtype.kind in "iu"):
        return _refuse(port, array, column)
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if not is_float and not np.array_equal(result, array):
        return _refuse(port, array, column)
    return result


def _refuse(port: TensorPort, array: np.ndarray, column: str) -> np.ndarray:
    raise RayError(f"column '{column}': input '{port.name}' takes {port.dtype}, found values of {array.dtype}")


def _require_columns(columns: Mapping[str, str], names: object) -> None:
    known = [str(name) for name in names] if isinstance(names, (list, Mapping)) else []
    for name, column in columns.items():
        if column not in known:
            raise RayError(
                f"there is no column '{column}' for input '{name}'; there are {', '.join(known)}: "
                "pass columns={'INPUT': 'COLUMN'}"
            )


def _array_of_column(name: str, column: pyarrow.ChunkedArray) -> np.ndarray:
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if chunk.null_count:
        raise RayError(f"column '{name}': {chunk.null_count} of {len(chunk)} values are null: replace or drop them")
    shape: list[int] = [len(chunk)]
    import pyarrow

    while True:
        kind = chunk.type
        if hasattr(chunk, "to_numpy_ndarray"):  # an extension type of tensors, Arrow's or Ray's
            values: np.ndarray = chunk.to_numpy_ndarray()
            return values.reshape(*shape, *values.shape[1:])
        if not pyarrow.types.is_nested(kind):
            break
        chunk, size = _inner_values(name, chunk, kind)
        shape.append(size)
    if pyarrow.types.is_primitive(kind) and not pyarrow.types.is_temporal(kind):
        flat: np.ndarray = chunk.to_numpy(zero_copy_only=not pyarrow.types.is_boolean(kind))  # bits become bytes
    elif pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        flat = np.array(chunk.to_pylist(), object)
    else:
        raise RayError(f"column '{name}': Arrow's type {kind} is no input of a model")
    return flat.reshape(shape)


def _inner_values(name: str, chunk: pyarrow.Array, kind: pyarrow.DataType) -> tuple[pyarrow.Array, int]:
    """Return the values in the lists of a column, and the length of each list."""
    import pyarrow

    if pyarrow.types.is_fixed_size_list(kind):
        inner, size = chunk.flatten(), int(kind.list_size)
    elif pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        lengths = np.diff(chunk.offsets.to_numpy())
        size = int(lengths[0]) if len(lengths) else 0
        if (lengths != size).any():
            raise RayError(f"column '{name}': its lists have different lengths, {lengths.min()} to {lengths.max()}")
        inner = chunk.flatten()
    else:
        raise RayError(f"column '{name}': Arrow's type {kind} is no input of a model")
    if inner.null_count:
        raise RayError(f"column '{name}': {inner.null_count} values in its lists are null: replace them")
    return inner, size
