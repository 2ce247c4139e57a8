"""Typed access to the attributes of a node.

An attribute that no converter reads is refused: it is never silently without effect.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mirlo.frontends.onnx.errors import NodeError
from mirlo.runtime.names import terminal

if TYPE_CHECKING:
    import onnx

# AttributeProto.AttributeType: code, word in messages, field
_KINDS = {
    1: ("a number", "f"), 2: ("an integer", "i"), 3: ("a string", "s"), 4: ("a tensor", "t"), 5: ("a graph", "g"),
    6: ("numbers", "floats"), 7: ("integers", "ints"), 8: ("strings", "strings"), 9: ("tensors", "tensors"),
    10: ("graphs", "graphs"), 11: ("a sparse tensor", "sparse_tensor"), 12: ("sparse tensors", "sparse_tensors"),
    13: ("a type", "tp"), 14: ("types", "type_protos"),
}  # fmt: skip
_MISSING: Any = object()

D = TypeVar("D")
Plain: TypeAlias = "float | str | list[int] | list[float] | list[str]"
Name = str
"""`str` under a name that the methods of `Attributes` do not shadow."""


def _rounded(value: builtins.float) -> builtins.float:
    return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]


class Attributes:
    """The attributes of one node."""

    def __init__(self, attributes: Iterable[onnx.AttributeProto]) -> None:
        self._by_name: dict[Name, onnx.AttributeProto] = {}
        for attribute in attributes:
            if attribute.name in self._by_name:
                raise NodeError(f"attribute '{attribute.name}' is given twice")
            self._by_name[attribute.name] = attribute
        self._read: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def names(self) -> list[Name]:
        return list(self._by_name)

    def int(self, name: Name, default: D = _MISSING) -> builtins.int | D:
        return self._get(name, 2, default)

    def bool(self, name: Name, default: builtins.int = _MISSING) -> builtins.bool:
        value = self._get(name, 2, default)
        if value not in (0, 1):
            raise NodeError(f"attribute '{name}' must be 0 or 1, got {value}")
        return bool(value)

    def float(self, name: Name, default: D = _MISSING) -> builtins.float | D:
        """Return a float. ONNX's floats are f32, defaults included: 0.2 is 0.200000003."""
        value: builtins.float | D = self._get(name, 1, default)
        return _rounded(value) if isinstance(value, (int, float)) else value

    def str(self, name: Name, default: D = _MISSING) -> Name | D:
        value = self._get(name, 3, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def ints(self, name: Name, default: D = _MISSING) -> list[builtins.int] | D:
        value = self._get(name, 7, default)
        return value if value is default else list(value)

    def floats(self, name: Name, default: D = _MISSING) -> list[builtins.float] | D:
        value = self._get(name, 6, default)
        return value if value is default else list(value)

    def strs(self, name: Name, default: D = _MISSING) -> list[Name] | D:
        value = self._get(name, 8, default)
        return value if value is default else [item.decode("utf-8", "replace") for item in value]

    def tensor(self, name: Name, default: D = _MISSING) -> onnx.TensorProto | D:
        return self._get(name, 4, default)

    def graph(self, name: Name, default: D = _MISSING) -> onnx.GraphProto | D:
        return self._get(name, 5, default)

    def type(self, name: Name, default: D = _MISSING) -> onnx.TypeProto | D:
        return self._get(name, 13, default)

    def choice(self, name: Name, default: Name | None, choices: tuple[Name, ...]) -> Name:
        """Return a string that must be one of these choices."""
        value = self.str(name, default)
        if value is None or value not in choices:
            allowed = ", ".join(f"'{choice}'" for choice in choices)
            raise NodeError(f"attribute '{name}' must be one of {allowed}, got '{terminal(str(value))}'")
        return value

    def plain(self, name: Name) -> Plain:
        """Return a number, a string, or a list of them, whichever the attribute is."""
        kind = self._by_name[name].type
        readers = {1: self.float, 2: self.int, 3: self.str, 6: self.floats, 7: self.ints, 8: self.strs}
        if kind not in readers:
            raise NodeError(f"attribute '{name}' is {_KINDS.get(kind, ('nothing',))[0]}: expected numbers or strings")
        return readers[kind](name)

    def ignore(self, *names: Name) -> None:
        """Declare that these attributes do not affect the result."""
        self._read.update(names)

    def unread(self) -> list[Name]:
        return [name for name in self._by_name if name not in self._read]

    def _get(self, name: Name, kind: builtins.int, default: object) -> Any:
        self._read.add(name)
        attribute = self._by_name.get(name)
        if attribute is None:
            if default is _MISSING:
                raise NodeError(f"attribute '{name}' is missing")
            return default
        if attribute.type != kind:
            found = _KINDS.get(attribute.type, ("nothing",))[0]
            raise NodeError(f"attribute '{name}' must be {_KINDS[kind][0]}, got {found}")
        return getattr(attribute, _KINDS[kind][1])
