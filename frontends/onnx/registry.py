"""The table of converters by domain, operator and opset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Generic, TypeVar

import numpy as np

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core import attributes as A
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.installed import ModuleIndex, import_modules
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.traits import OnnxName, Trait
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.base import RelaxOp
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.values import Converted, FoldedDims
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.callbacks import place_of
from mirlo.runtime.records import dataclass

Converter = Callable[[Node], Converted]
"""Takes a `Node` and returns its output value, a tuple of values, or NotImplemented to expand the operator's
function body."""
Folder = Callable[[Node], np.ndarray | list[np.ndarray] | FoldedDims]
"""Takes a `Node` of known inputs and returns the elements of its outputs."""
_READERS: tuple[tuple[type, str], ...] = (
    (A.Bool, "bool"), (A.Int, "int"), (A.Ints, "ints"), (A.Floats, "floats"), (A.Float, "float"),
    (A.ElementType, "type"), (A.Strs, "strs"), (A.Str, "str"),
)  # fmt: skip
F = TypeVar("F", Converter, Folder)
C = TypeVar("C", bound=Converter)


def _name(function: Converter | Folder | None) -> str:
    return f"{function.__module__}.{function.__qualname__}" if function is not None else "none"


def _is_same(left: Converter | Folder | None, right: Converter | Folder | None) -> bool:
    """Return whether both are the same definition."""
    return left is not None and right is not None and _name(left) == _name(right) and "<locals>" not in _name(left)


def _place(function: Converter | Folder | None) -> str:
    """Return the file and line of a definition."""
    return getattr(function, "place", "") or place_of(function) or "an unknown place"


@dataclass
class _Versions(Generic[F]):
    since: list[int] = field(default_factory=list)
    converters: list[F | None] = field(default_factory=list)
    traits: frozenset[NodeTrait] = frozenset()


class Registry(Generic[F]):
    """Converters by (domain, operator), each valid from one version until the next."""

    def __init__(self, kind: str = "") -> None:
        self.suffix = f"/{kind}" if kind else ""
        """The end of its keys in an index: of converters and of folders of one operator, one kind may be needed."""
        self._table: dict[tuple[str, str], _Versions[F]] = {}
        self._index: ModuleIndex | None = None

    def defer(self, index: ModuleIndex) -> None:
        """Import the modules of an index when their operators are asked for."""
        self._index = index

    def key(self, domain: str, operator: str) -> str:
        """Return what an index of modules calls an operator."""
        return f"{domain}:{operator}{self.suffix}" if domain else f"{operator}{self.suffix}"

    def _versions(self, domain: str, operator: str) -> _Versions[F] | None:
        if self._index is not None:
            self._index.load(self.key(domain, operator))
        return self._table.get((domain, operator))

    def add(self, domain: str, operator: str, since: int, function: F | None) -> None:
        versions = self._table.setdefault((domain, operator), _Versions())
        at = bisect_right(versions.since, since)
        if at and versions.since[at - 1] == since:
            present = versions.converters[at - 1]
            if _is_same(present, function):  # a module that is loaded again
                versions.converters[at - 1] = function
                return
            raise ValueError(
                f"operator {operator} of domain '{domain or 'ai.onnx'}' has two converters since version {since}: "
                f"{_name(present)} at {_place(present)} and {_name(function)} at {_place(function)}; keep one of them, "
                "or give the second another version, since="
            )
        versions.since.insert(at, since)
        versions.converters.insert(at, function)

    def declare(self, domain: str, operator: str, traits: Collection[NodeTrait]) -> None:
        """Add traits or other facts of an operator."""
        versions = self._table.setdefault((domain, operator), _Versions())
        versions.traits = versions.traits.union(traits)

    def traits(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        versions = self._versions(domain, operator)
        return frozenset() if versions is None else versions.traits

    def find(self, domain: str, operator: str, version: int) -> F | None:
        versions = self._versions(domain, operator)
        at = bisect_right(versions.since, version) if versions else 0
        return versions.converters[at - 1] if versions and at else None

    def began(self, domain: str, operator: str, version: int) -> int:
        """Return the first version of the converter that serves this version; 0 if there is none."""
        versions = self._versions(domain, operator)
        at = bisect_right(versions.since, version) if versions else 0
        return versions.since[at - 1] if versions and at else 0

    def since(self, domain: str, operator: str) -> tuple[int, ...]:
        """Return the versions from which the operator is supported."""
        versions = self._versions(domain, operator)
        if versions is None:
            return ()
        return tuple(s for s, c in zip(versions.since, versions.converters, strict=True) if c is not None)

    def operators(self) -> list[tuple[str, str]]:
        waiting = [key.partition("/") for key in (self._index.waiting() if self._index is not None else ())]
        names = [name for name, slash, kind in waiting if slash + kind == self.suffix]
        return sorted(self._table.keys() | {name.rpartition(":")[::2] for name in names})


class DeclaredNames:
    """The operators that classes name as ONNX does, and their converters; follows classes that are added."""

    def __init__(self) -> None:
        self._classes: Mapping[str, type[DialectOp]] = {}
        self._table: dict[tuple[str, str], type[DialectOp]] = {}

    def table(self) -> Mapping[tuple[str, str], type[DialectOp]]:
        """Return the classes by domain and operator."""
        classes = graph_operations()
        if classes is not self._classes:
            self._classes = classes
            named = [cls for cls in classes.values() if cls.ONNX is not None and cls.ONNX.imported]
            self._table = {(_onnx_name(cls).domain, _onnx_name(cls).operator): cls for cls in named}
        return self._table

    def find(self, domain: str, operator: str, version: int) -> Callable[[Node], Converted] | None:
        """Return the converter of an operator in a version, or None."""
        cls = self.table().get((domain, operator))
        if cls is None or version < _onnx_name(cls).since:
            return None
        return lambda node: _converted(node, cls)

    def since(self, domain: str, operator: str) -> tuple[int, ...]:
        cls = self.table().get((domain, operator))
        return () if cls is None else (_onnx_name(cls).since,)

    def traits(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        cls = self.table().get((domain, operator))
        if cls is None or Trait.ELEMENTWISE not in cls.TRAITS:
            return frozenset()
        kinds = [operand.kind for operand in cls._operand_layout.fields]
        return frozenset({NodeTrait.SAME_SHAPE} if kinds == ["single"] else ())


class Converters:
    """Mirlo's converters, preceded by those of users and followed by those that classes of operators declare."""

    def __init__(self) -> None:
        self.built_in = Registry[Converter]()
        self.users = Registry[Converter]()
        self.declared = DeclaredNames()

    def add(self, domain: str, operator: str, since: int, function: Converter | None) -> None:
        self.built_in.add(domain, operator, since, function)

    def find(self, domain: str, operator: str, version: int) -> list[Converter]:
        """Return the converters for an operator in a version, in the order in which they are tried.

        A class that names the form of a newer version comes before the converter of an older one.
        """
        own = [self.built_in.find(domain, operator, version), self.declared.find(domain, operator, version)]
        if max(self.declared.since(domain, operator), default=0) > self.built_in.began(domain, operator, version):
            own.reverse()
        candidates = (self.users.find(domain, operator, version), *own)
        return [function for function in candidates if function is not None]

    def since(self, domain: str, operator: str) -> tuple[int, ...]:
        own = {*self.built_in.since(domain, operator), *self.declared.since(domain, operator)}
        return self.users.since(domain, operator) or tuple(sorted(own))

    def traits(self, domain: str, operator: str) -> frozenset[NodeTrait]:
        """Return the facts that the converters of an operator, and its class, declare."""
        registries = (self.users, self.built_in, self.declared)
        return frozenset().union(*(registry.traits(domain, operator) for registry in registries))

    def operators(self) -> list[tuple[str, str]]:
        return sorted({*self.users.operators(), *self.own_operators(), *self.declared.table()})

    def own_operators(self) -> list[tuple[str, str]]:
        """Return the operators that Mirlo itself converts."""
        own = {key for key, cls in self.declared.table().items() if issubclass(cls, RelaxOp)}
        return sorted({*self.built_in.operators(), *own})


@cache
def _relax_classes() -> Mapping[str, type[DialectOp]]:
    return {cls.ONNX.operator: cls for cls in OPS.values() if cls.ONNX is not None and not cls.ONNX.domain}


def relax_class(operator: str) -> type[DialectOp]:
    """Return the operator of relax with this name in ONNX, whether it also has a converter or not."""
    return _relax_classes()[operator]


def relax_name(operator: str) -> str | None:
    """Return the name in relax of an operator of ONNX that relax has, or None."""
    cls = _relax_classes().get(operator)
    return None if cls is None else cls.OPERATION_NAME.rpartition(".")[2]


def meaning_of(operator: str) -> Callable[..., np.ndarray]:
    """Return the meaning in numpy of an operator that relax has."""
    meaning = relax_class(operator).meaning
    assert meaning is not None, operator
    return meaning


CONVERTERS = Converters()
DYNAMIC = Registry[Converter]("dynamic")
"""Converters of operators whose parameters, such as a shape, are values that only a call knows."""
FOLDERS = Registry[Folder]("fold")
"""Operators that can be folded on known values; their functions return numpy arrays."""

_BUILT_IN = f"{__package__}.ops."


def _onnx_name(cls: type[DialectOp]) -> OnnxName:
    assert cls.ONNX is not None
    return cls.ONNX


def _converted(node: Node, cls: type[DialectOp]) -> Converted:
    """Convert a node to the operator of a class: its inputs in order, its attributes by name."""
    operands: list[Tensor | Sequence[Tensor] | None] = []
    for i, operand in enumerate(cls._operand_layout.fields):
        if operand.kind == "variadic":
            operands.append(node.all(i))
            break
        operands.append(node[i] if operand.kind == "single" else node.optional(i))
    names = dict(_onnx_name(cls).attributes)
    attributes = {name: _read(node, names.get(name, name), declared) for name, declared in cls._attributes.items()}
    return node.emit_all(cls, *operands, **attributes)


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


def converter(
    *operators: str, since: int = 1, domain: str = "", traits: Collection[NodeTrait] = ()
) -> Callable[[C], C]:
    """Register a function as the converter of these operators, from opset `since` on, and traits of theirs.

    It takes a `Node` and returns the output value or a tuple of values. A user's converter is tried before Mirlo's
    own, which is used if it returns NotImplemented.
    """
    domain = "" if domain == "ai.onnx" else domain

    def register(function: C) -> C:
        is_built_in = function.__module__.startswith(_BUILT_IN)
        registry = CONVERTERS.built_in if is_built_in else CONVERTERS.users
        for operator in operators:
            registry.add(domain, operator, since, function)
            registry.declare(domain, operator, traits)
        return function

    return register


def removed(operator: str, since: int) -> None:
    """Register that newer operator sets no longer have an operator."""
    CONVERTERS.add("", operator, since, None)


def folder(*operators: str) -> Callable[[Folder], Folder]:
    """Register a function that folds these operators on known values."""

    def register(function: Folder) -> Folder:
        for operator in operators:
            FOLDERS.add("", operator, 1, function)
        return function

    return register


def dynamic_converter(operator: str) -> Callable[[C], C]:
    """Register a function as the converter of nodes whose parameters are values that only a call knows."""

    def register(function: C) -> C:
        DYNAMIC.add("", operator, 1, function)
        return function

    return register


def convert_dynamic(node: Node) -> Converted:
    """Convert a node whose parameters are values that only a call knows."""
    function = DYNAMIC.find(node.domain, node.operator, node.opset)
    assert function is not None, node.operator
    return function(node)


_OPS = ModuleIndex("mirlo.frontends.onnx.ops")
for _registry in (CONVERTERS.built_in, DYNAMIC, FOLDERS):
    _registry.defer(_OPS)


def load_converters() -> None:
    """Import every file of `ops/`, which registers its converters."""
    import_modules("mirlo.frontends.onnx.ops")
