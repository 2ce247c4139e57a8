"""Converters of operators whose classes say what ONNX calls them (`DialectOp.ONNX`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core import attributes as A
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.traits import OnnxName, Trait
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor

_READERS: tuple[tuple[type, str], ...] = (
    (A.Bool, "bool"), (A.Int, "int"), (A.Ints, "ints"), (A.Floats, "floats"), (A.Float, "float"),
    (A.ElementType, "type"), (A.Strs, "strs"), (A.Str, "str"),
)  # fmt: skip


class DeclaredNames:
    """The operators of ONNX that classes name, and their converters; follows classes that are added."""

    def __init__(self) -> None:
        self._classes: Mapping[str, type[DialectOp]] = {}
        self._table: dict[tuple[str, str], type[DialectOp]] = {}

    def table(self) -> Mapping[tuple[str, str], type[DialectOp]]:
        """Return the classes by domain and operator."""
        classes = graph_operations()
        if classes is not self._classes:
            self._classes = classes
            named = [cls for cls in classes.values() if cls.ONNX is not None and cls.ONNX.imported]
            self._table = {(_name(cls).domain, _name(cls).operator): cls for cls in named}
        return self._table

    def find(self, domain: str, operator: str, version: int) -> Callable[[Node], Converted] | None:
        """Return the converter of an operator in a version, or None."""
        cls = self.table().get((domain, operator))
        if cls is None or version < _name(cls).since:
            return None
        return lambda node: convert(node, cls)

    def since(self, domain: str, operator: str) -> tuple[int, ...]:
        cls = self.table().get((domain, operator))
        return () if cls is None else (_name(cls).since,)

    def traits(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        cls = self.table().get((domain, operator))
        if cls is None or Trait.ELEMENTWISE not in cls.TRAITS:
            return frozenset()
        kinds = [operand.kind for operand in cls._operand_layout.fields]
        return frozenset({NodeTrait.SAME_SHAPE} if kinds == ["single"] else ())


def _name(cls: type[DialectOp]) -> OnnxName:
    assert cls.ONNX is not None
    return cls.ONNX


def convert(node: Node, cls: type[DialectOp]) -> Converted:
    """Convert a node to the operator of a class: its inputs in order, its attributes by name."""
    operands: list[Tensor | Sequence[Tensor] | None] = []
    for i, field in enumerate(cls._operand_layout.fields):
        if field.kind == "variadic":
            operands.append(node.all(i))
            break
        operands.append(node[i] if field.kind == "single" else node.optional(i))
    names = dict(_name(cls).attributes)
    given = {name: _read(node, names.get(name, name), declared) for name, declared in cls._attributes.items()}
    return node.emit(cls, *operands, **given)


def _read(node: Node, name: str, declared: A.Attribute) -> object:
    """Return an attribute; a default is rounded to f32, as all floats of ONNX."""
    default = () if declared.default is REQUIRED else (declared.default,)
    if isinstance(declared, A.Str) and declared.choices:
        first = default[0] if default else ""
        return node.attr.choice(name, first if first is None else str(first), tuple(map(str, declared.choices)))
    reader = next((reader for kind, reader in _READERS if isinstance(declared, kind)), "")
    if reader:
        return getattr(node.attr, reader)(name, *default)
    return node.attr.plain(name) if name in node.attr else declared.default
