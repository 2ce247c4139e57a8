"""Conversion of a caller's arguments to the arrays that the entry function reads and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import numpy as np

from mirlo.runtime.artifact import TensorSpec, describe
from mirlo.runtime.container import READABLE
from mirlo.runtime.dlpack import DLPackError, from_dlpack
from mirlo.runtime.dtypes import ELEMENT_TYPES, element_type_of, numpy_dtype
from mirlo.runtime.errors import InputError, nearest

T = TypeVar("T")
GivenOutputs: TypeAlias = "np.ndarray | Sequence[np.ndarray | None] | Mapping[str, np.ndarray] | None"
"""A caller's arrays for outputs: the only one, one for each (None for a new one), or some by name."""


def bind(specs: Sequence[TensorSpec], positional: Sequence[T], named: Mapping[str, T]) -> list[T]:
    """Return one value per input, in order."""
    if len(positional) == len(specs) and not named:
        return list(positional)
    require_names(named)
    expected = f"the model has {len(specs)} input{'s' if len(specs) != 1 else ''} ({', '.join(map(str, specs))})"
    if len(positional) > len(specs):
        raise InputError(f"{expected}, found {len(positional)} arrays")
    values: dict[str, T] = {spec.name: value for spec, value in zip(specs, positional, strict=False)}
    for name, value in named.items():
        if name in values:
            raise InputError(f"input '{name}' is given twice, by position and by name")
        if not any(spec.name == name for spec in specs):
            hint = nearest(name, [spec.name for spec in specs])
            raise InputError(f"no input is named '{name}': {expected}{hint}")
        values[name] = value
    missing = [str(spec) for spec in specs if spec.name not in values]
    if missing:
        raise InputError(f"{expected}, found {len(values)}: missing {', '.join(missing)}")
    return [values[spec.name] for spec in specs]


def require_names(named: Mapping[str, object]) -> None:
    """Raise an error unless the inputs that are given by name are a mapping from names."""
    if not isinstance(named, Mapping):
        what = f"found a {type(named).__name__}: pass arrays in order to the model itself"
        raise InputError(f"inputs: expected a dict of arrays by input name, {what}")
    for name in named:
        if not isinstance(name, str):
            raise InputError(f"inputs: expected the names of inputs as keys, found {name!r:.80}")


def as_array(value: object) -> np.ndarray:
    """Return an array over the memory of a numpy array, a DLPack tensor, or an object with numpy's array interface."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ndarray):
        # Of a subclass only the base array is used: its attributes are not trusted, not even the address.
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return from_dlpack(value)
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return np.asarray(value)
    raise DLPackError(f"a {type(value).__name__} is not an array: pass numpy.asarray(...) of it")


def convert(spec: TensorSpec, value: object, dims: dict[str, int]) -> np.ndarray:
    """Return the input's array, contiguous and of the right type.

    Sizes of symbolic dims are looked up in `dims`, or added to it.
    """
    try:
        array = as_array(value)
    except DLPackError as problem:
        raise InputError(f"input '{spec.name}': expected an array {_type(spec)}: {problem}") from None
    except Exception as problem:  # methods of the caller's own object may raise anything
        description = f"a {type(value).__name__}, which raised {type(problem).__name__}: {problem}"
        raise InputError(f"input '{spec.name}': expected an array {_type(spec)}, found {description}") from problem
    _check_dtype(spec, array)
    check_shape(spec, array.shape, dims)
    if not array.size:
        result: np.ndarray = np.zeros(READABLE, np.uint8)[:0].view(array.dtype.newbyteorder("=")).reshape(array.shape)
        return result
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    return np.array(array, dtype=numpy_dtype(spec.dtype), order="C", copy=True, subok=False)


def outputs_given(specs: Sequence[TensorSpec], out: object) -> list[object]:
    """Return the caller's array for each output, None to allocate a new one."""
    if out is None:
        return [None] * len(specs)
    if isinstance(out, Mapping):
        for name in out:
            if not any(spec.name == name for spec in specs):
                raise InputError(f"out: no output is named '{name}'; outputs: {', '.join(map(str, specs))}")
        return [_base(out.get(spec.name)) for spec in specs]
    arrays = list(map(_base, out)) if isinstance(out, (list, tuple)) else [_base(out)]
    if len(arrays) != len(specs):
        raise InputError(f"out: expected {len(specs)} arrays ({', '.join(map(str, specs))}), found {len(arrays)}")
    return arrays


def _base(value: object) -> object:
    """Return a base-class view of an array of a subclass, whose attributes are not trusted."""
    return np.asarray(value) if isinstance(value, np.ndarray) and type(value) is not np.ndarray else value


def check_output(spec: TensorSpec, shape: tuple[int, ...], array: object, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the array if the entry function can write the output to it."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"output '{spec.name}': out must be a numpy array, found {type(array).__name__}")
    if array.dtype != numpy_dtype(spec.dtype) or array.shape != shape:
        actual = describe(_dtype_name(array), array.shape)
        raise InputError(f"output '{spec.name}': out must be {describe(spec.dtype, shape)}, found {actual}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise InputError(f"output '{spec.name}': out must be contiguous, aligned and writeable: pass a new array")
    if any(np.may_share_memory(array, other) for other in inputs):
        raise InputError(f"output '{spec.name}': out shares memory with an input or another output: pass a new array")
    return array


def is_same_memory(array: object, other: np.ndarray) -> TypeGuard[np.ndarray]:
    """Return whether two arrays are one: the same elements of the same memory."""
    if type(array) is not np.ndarray or not array.size:
        return False
    mine, theirs = array.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(mine == theirs) and (array.shape, array.dtype, array.strides) == (
        other.shape,
        other.dtype,
        other.strides,
    )


def random_input(spec: TensorSpec, dims: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    """Return normally distributed floats, or integers 0 and 1, as these may be indices."""
    missing = [dim for dim in spec.shape if isinstance(dim, str) and dim not in dims]
    if missing:
        raise InputError(f"input {spec}: give the size of its dim '{missing[0]}', dims={{'{missing[0]}': ...}}")
    shape = tuple(dims[dim] if isinstance(dim, str) else dim for dim in spec.shape)
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype.startswith(("f", "bf")):
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _check_dtype(spec: TensorSpec, array: np.ndarray) -> None:
    if array.dtype == numpy_dtype(spec.dtype):
        return
    dtype = _dtype_name(array)
    if dtype == spec.dtype:  # of foreign byte order
        return
    wanted = ELEMENT_TYPES[spec.dtype].numpy_name
    library = "numpy" if hasattr(np, wanted) else "ml_dtypes"
    raise InputError(
        f"input '{spec.name}': expected {_type(spec)}, found {describe(dtype, array.shape)}: "
        f"pass array.astype({library}.{wanted})"
    )


def check_shape(spec: TensorSpec, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    """Raise an error unless a shape fits; look symbolic dims up in `dims`, or add them to it."""
    fits = len(shape) == len(spec.shape)
    for axis, (expected, actual) in enumerate(zip(spec.shape, shape, strict=False)):
        if isinstance(expected, str):
            bound = dims.setdefault(expected, actual) if fits else actual
            if bound != actual:
                raise InputError(
                    f"input '{spec.name}': dim {axis} ('{expected}') is {actual}, an earlier input has {bound} there"
                )
        else:
            fits = fits and expected == actual
    if not fits:
        hint = f"pass array.reshape({spec.shape})" if _same_size(spec, shape) else "pass an array of that shape"
        raise InputError(f"input '{spec.name}': expected {_type(spec)}, found {describe(spec.dtype, shape)}: {hint}")


def _same_size(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    size = 1
    for dim in spec.shape:
        if isinstance(dim, str):
            return False
        size *= dim
    return size == math.prod(shape)


def _type(spec: TensorSpec) -> str:
    return describe(spec.dtype, spec.shape)


def _dtype_name(array: np.ndarray) -> str:
    element = element_type_of(array.dtype)
    return element.name if element else f"numpy type {array.dtype}"
