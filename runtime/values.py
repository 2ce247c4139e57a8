"""Conversion of arguments to the values that a program works with, and tests of their kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from mirlo.runtime.artifact import TensorSpec, describe
from mirlo.runtime.dtypes import element_type_of, numpy_dtype
from mirlo.runtime.errors import InputError
from mirlo.runtime.inputs import as_array, convert
from mirlo.runtime.kinds import MAP, OPTIONAL, SEQUENCE, STRING, Kind

MapItem = int | float | str
ProgramValue: TypeAlias = "np.ndarray | tuple[ProgramValue, ...] | dict[int | str, MapItem] | None"
"""A value of a program: a tensor, a sequence, a map, or an optional value that is absent."""


def value_of(kind: Kind, value: object, name: str, dims: dict[str, int]) -> ProgramValue:
    """Convert an argument for an input to a value of a program; `dims` are the sizes of symbols."""
    if kind.name == OPTIONAL:
        return None if value is None else value_of(_element(kind), value, name, {})
    if kind.name == SEQUENCE:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input '{name}': expected a list for {kind}, found {type(value).__name__}")
        return tuple(value_of(_element(kind), item, f"{name}[{i}]", {}) for i, item in enumerate(value))
    if kind.name == MAP:
        return _mapping(kind, value, name)
    if kind.name == STRING:
        return _strings(kind, value, name)
    if kind.is_tensor and _all_names(kind.shape):
        return convert(TensorSpec(name, kind.name, kind.shape or ()), value, dims)
    array = np.ascontiguousarray(as_array(value))
    _require_element(kind, array, name)
    return array


def converter_of(kind: Kind, name: str) -> Callable[[object, dict[str, int]], ProgramValue]:
    """Return `value_of` of an input, as a function of the value and of the sizes of symbols."""
    if kind.is_tensor and _all_names(kind.shape):
        return partial(convert, TensorSpec(name, kind.name, kind.shape or ()))
    return lambda value, dims: value_of(kind, value, name, dims)


def _element(kind: Kind) -> Kind:
    assert kind.element is not None
    return kind.element


def _all_names(shape: Sequence[int | str] | None) -> bool:
    return all(isinstance(dim, int) or dim.isidentifier() for dim in shape or ())


def _require_element(kind: Kind, array: np.ndarray, name: str) -> None:
    element = element_type_of(array.dtype)
    if element is None or element.name != kind.name:
        raise InputError(f"input '{name}': expected {kind}, found {array.dtype}")


def _strings(kind: Kind, value: object, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as problem:  # lists of different lengths
        raise InputError(
            f"input '{name}': expected strings for {kind}, found lists that are no array: {problem}"
        ) from None
    if array.dtype.kind not in "UO" and array.size:
        raise InputError(f"input '{name}': expected strings for {kind}, found numpy type {array.dtype}")
    result = array if array.dtype == object else array.astype(object)
    if not holds_strings(result):
        other = next(item for item in result.flat if not isinstance(item, str))
        raise InputError(f"input '{name}': expected strings for {kind}, found {other!r} among them")
    if kind.shape is not None and not _fits(kind.shape, result.shape):
        raise InputError(f"input '{name}': expected {kind}, found {describe(STRING, result.shape)}")
    return result


def holds_strings(array: np.ndarray) -> bool:
    """Return whether all elements of an array of objects are strings."""
    try:
        "".join(array.ravel().tolist())  # the fastest test
    except TypeError:
        return False
    return True


def _mapping(kind: Kind, value: object, name: str) -> dict[int | str, MapItem]:
    """Return a copy of a map that a caller passed, with keys and values as Python's own scalars."""
    if not isinstance(value, Mapping):
        raise InputError(f"input '{name}': expected a dictionary for {kind}, found {type(value).__name__}")
    result: dict[Any, Any] = {_unwrap(key): _unwrap(item) for key, item in value.items()}
    problem = _map_type_error(kind, result)
    if problem is not None:
        raise InputError(f"input '{name}': {problem}")
    return result


def _unwrap(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _map_type_error(kind: Kind, value: object) -> str | None:
    if type(value) is not dict:
        return f"expected a dictionary for {kind}, found {type(value).__name__}"
    assert kind.key is not None
    key_fits, item_fits = _scalar_test(kind.key), _scalar_test(_element(kind).name)
    if all(map(key_fits, value)) and all(map(item_fits, value.values())):
        return None
    for key, item in value.items():
        if not key_fits(key):
            return f"expected {kind}, found the key {key!r}"
        if not item_fits(item):
            return f"expected {kind}, found the value {item!r}"
    return None


@cache
def _scalar_test(name: str) -> Callable[[object], bool]:
    """Return a test of whether a Python scalar is of an element type; an integer does for a float."""
    if name == STRING:
        return lambda value: isinstance(value, str)
    wanted = numpy_dtype(name)
    if wanted.kind == "b":
        return lambda value: isinstance(value, bool)
    if wanted.kind in "iu":
        low, high = int(np.iinfo(wanted).min), int(np.iinfo(wanted).max)
        return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return lambda value: type(value) is float or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _fits(wanted: Sequence[int | str], sizes: Sequence[int]) -> bool:
    return len(wanted) == len(sizes) and all(
        isinstance(dim, str) or dim == size for dim, size in zip(wanted, sizes, strict=True)
    )


def test_of(kind: Kind) -> Callable[[object], bool]:
    """Return a quick test of whether a value of a host function is of a kind."""
    if not kind.is_tensor and kind.name != STRING:
        return lambda value: type_error(kind, value) is None
    dtype = np.dtype(object) if kind.name == STRING else numpy_dtype(kind.name)
    rank = None if kind.shape is None else len(kind.shape)
    sizes = [(axis, dim) for axis, dim in enumerate(kind.shape or ()) if isinstance(dim, int)]

    def fits(value: object) -> bool:
        if type(value) is not np.ndarray or value.dtype != dtype:
            return False
        shape = value.shape
        return rank is None or (len(shape) == rank and all([shape[axis] == dim for axis, dim in sizes]))

    return fits


def type_error(kind: Kind, value: object) -> str | None:
    """Return why a value of a host function is not of its kind; None if it is."""
    if kind.name == OPTIONAL:
        return None if value is None else type_error(_element(kind), value)
    if kind.name == SEQUENCE:
        if not isinstance(value, tuple):
            return f"expected a tuple for {kind}, found {type(value).__name__}"
        return next((text for item in value if (text := type_error(_element(kind), item))), None)
    if kind.name == MAP:
        return _map_type_error(kind, value)
    if not isinstance(value, np.ndarray):
        return f"expected an array for {kind}, found {type(value).__name__}"
    element = element_type_of(value.dtype)
    name = STRING if value.dtype == object else element.name if element else str(value.dtype)
    if name != kind.name or (kind.shape is not None and not _fits(kind.shape, value.shape)):
        return f"expected {kind}, found {describe(name, value.shape)}"
    return None
