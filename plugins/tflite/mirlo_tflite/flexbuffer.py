"""Maps of flexbuffers, in which custom operators have their attributes: numbers and vectors of numbers by name."""

from __future__ import annotations

import struct

import numpy as np

from mirlo.extend.frontend import UnsupportedOperation
from mirlo_tflite.flatbuffer import array, unpack

_INT, _UINT, _FLOAT, _BOOL, _MAP = 1, 2, 3, 26, 9
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
"""Scalar types that are stored indirectly."""
_VECTORS = {11: _INT, 12: _UINT, 13: _FLOAT, 36: _BOOL}
_FIXED = {16: (_INT, 2), 17: (_UINT, 2), 18: (_FLOAT, 2), 19: (_INT, 3), 20: (_UINT, 3), 21: (_FLOAT, 3),
          22: (_INT, 4), 23: (_UINT, 4), 24: (_FLOAT, 4)}  # fmt: skip
"""Vectors of a fixed length."""
_DTYPES = {_INT: "<i", _UINT: "<u", _BOOL: "<u", _FLOAT: "<f"}
_SIZES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
Value = float | np.ndarray


def read_map(content: bytes) -> dict[str, Value]:
    """Return the numbers and vectors of a map; raise `UnsupportedOperation` for anything else."""
    try:
        return _read_map(content)
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise UnsupportedOperation(f"has attributes that are no map of a flexbuffer ({error})") from None


def _read_map(content: bytes) -> dict[str, Value]:
    if len(content) < 3:
        raise ValueError(f"{len(content)} bytes")
    kind, width = content[-2] >> 2, content[-1]
    if kind != _MAP:
        raise ValueError(f"its type is {kind}")
    root = len(content) - 2 - width
    start = _follow(content, root, width)
    child = 1 << (content[-2] & 3)
    count = _size(content, start - child, child)
    keys, key_width = _follow(content, start - 3 * child, child), _size(content, start - 2 * child, child)
    if _size(content, keys - key_width, key_width) != count:
        raise ValueError("it has other keys than values")
    kinds = array(content, "u1", start + count * child, count).tolist()
    result: dict[str, Value] = {}
    for index, packed in enumerate(kinds):
        name = _text(content, _follow(content, keys + index * key_width, key_width))
        result[name] = _value(content, start + index * child, child, packed >> 2, 1 << (packed & 3))
    return result


def _value(content: bytes, position: int, width: int, kind: int, child: int) -> Value:
    """Return a value of a type, stored as a number of this width or as an offset."""
    if kind in _DTYPES:
        return _number(content, position, width, kind)
    start = _follow(content, position, width)
    if kind in _INDIRECT:
        return _number(content, start, child, _INDIRECT[kind])
    if kind in _VECTORS:
        return array(content, f"{_DTYPES[_VECTORS[kind]]}{child}", start, _size(content, start - child, child))
    if kind in _FIXED:
        element, count = _FIXED[kind]
        return array(content, f"{_DTYPES[element]}{child}", start, count)
    raise ValueError(f"a value has the type {kind}")


def _number(content: bytes, position: int, width: int, kind: int) -> float:
    return array(content, f"{_DTYPES[kind]}{width}", position, 1)[0].item()  # type: ignore[no-any-return]


def _size(content: bytes, position: int, width: int) -> int:
    return unpack(content, _SIZES[width], position)


def _follow(content: bytes, position: int, width: int) -> int:
    """Return the target of a backward offset."""
    return position - _size(content, position, width)


def _text(content: bytes, position: int) -> str:
    if not 0 <= position < len(content):
        raise ValueError(f"a name is at byte {position} of {len(content)}")
    return content[position : content.index(0, position)].decode("utf-8", "replace")
