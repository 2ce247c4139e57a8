"""The attributes of one node, read by kind; which of them were read is recorded, so that others can be refused."""

from __future__ import annotations

import builtins
import struct
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

from mirlo.frontends.onnx import graph as G
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import KIND_NAMES, AttributeDef, GraphDef, TensorDef, TypeDef, wrong_kind
from mirlo.runtime.names import terminal

_MISSING: Any = object()

D = TypeVar("D")
Plain: TypeAlias = "float | str | list[int] | list[float] | list[str]"
Name = str
"""`str` under a name that the methods of `Attributes` do not shadow."""


def _rounded(value: builtins.float) -> builtins.float:
    return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]


class Attributes:
    """The attributes of one node."""

    def __init__(self, attributes: Iterable[AttributeDef]) -> None:
        self.by_name = {attribute.name: attribute for attribute in attributes}
        self.read: set[Name] = set()
        """The attributes that were read, or that do not affect the result."""

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def names(self) -> list[Name]:
        return list(self.by_name)

    def int(self, name: Name, default: D = _MISSING) -> builtins.int | D:
        result: builtins.int | D = self._get(name, G.INT, default)
        return result

    def bool(self, name: Name, default: builtins.int = _MISSING) -> builtins.bool:
        value = self._get(name, G.INT, default)
        if value not in (0, 1):
            raise NodeError(f"attribute '{name}' must be 0 or 1, got {value}")
        return bool(value)

    def float(self, name: Name, default: D = _MISSING) -> builtins.float | D:
        """Return a float. ONNX's floats are f32, defaults included: 0.2 is 0.200000003."""
        value: builtins.float | D = self._get(name, G.FLOAT, default)
        return _rounded(value) if isinstance(value, (int, float)) else value

    def str(self, name: Name, default: D = _MISSING) -> Name | D:
        value = self._get(name, G.STRING, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def ints(self, name: Name, default: D = _MISSING) -> list[builtins.int] | D:
        value = self._get(name, G.INTS, default)
        return value if value is default else list(value)

    def floats(self, name: Name, default: D = _MISSING) -> list[builtins.float] | D:
        value = self._get(name, G.FLOATS, default)
        return value if value is default else list(value)

    def strs(self, name: Name, default: D = _MISSING) -> list[Name] | D:
        value = self._get(name, G.STRINGS, default)
        if value is default:
            return value
        texts = {item: item.decode("utf-8", "replace") for item in set(value)}  # forests repeat few words often
        return [texts[item] for item in value]

    def tensor(self, name: Name, default: D = _MISSING) -> TensorDef | D:
        result: TensorDef | D = self._get(name, G.TENSOR, default)
        return result

    def graph(self, name: Name, default: D = _MISSING) -> GraphDef | D:
        result: GraphDef | D = self._get(name, G.GRAPH, default)
        return result

    def type(self, name: Name, default: D = _MISSING) -> TypeDef | D:
        result: TypeDef | D = self._get(name, G.TYPE, default)
        return result

    def choice(self, name: Name, default: Name | None, choices: tuple[Name, ...]) -> Name:
        """Return a string that must be one of these choices."""
        value = self.str(name, default)
        if value is None or value not in choices:
            allowed = ", ".join(f"'{choice}'" for choice in choices)
            raise NodeError(f"attribute '{name}' must be one of {allowed}, got '{terminal(str(value))}'")
        return value

    def plain(self, name: Name) -> Plain:
        """Return a number, a string, or a list of them, whichever the attribute is."""
        kind = self.by_name[name].kind
        readers = {
            G.FLOAT: self.float, G.INT: self.int, G.STRING: self.str, G.FLOATS: self.floats, G.INTS: self.ints,
            G.STRINGS: self.strs,
        }  # fmt: skip
        if kind not in readers:
            raise NodeError(f"attribute '{name}' is {KIND_NAMES.get(kind, 'nothing')}: expected numbers or strings")
        return readers[kind](name)

    def ignore(self, *names: Name) -> None:
        """Declare that these attributes do not affect the result."""
        self.read.update(names)

    def _get(self, name: Name, kind: builtins.int, default: object) -> Any:
        self.read.add(name)
        attribute = self.by_name.get(name)
        if attribute is None:
            if default is _MISSING:
                raise NodeError(f"attribute '{name}' is missing")
            return default
        if attribute.kind != kind:
            raise NodeError(wrong_kind(attribute, kind))
        return attribute.value
