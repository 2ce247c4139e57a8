"""Names of the script languages: symbols of templates, names such as `T.grid`, MLIR text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from mirlo.dialects.core.dtypes import DTYPES
from mirlo.frontends.script.errors import ScriptError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class ScriptName:
    """A name of the language: `T.grid`."""

    language: str
    name: str

    def __str__(self) -> str:
        return f"{self.language}.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name in ("Buffer", "Out", "Tensor"):
            return self  # an annotation as TVM writes it, which Python evaluates
        raise ScriptError(
            f"{self} has a meaning only inside a script: is the function decorated with @mirlo.prim_func or "
            "@mirlo.script?"
        )

    def __enter__(self) -> Any:
        return self()

    def __exit__(self, *error: object) -> None:
        return None

    def __getitem__(self, what: object) -> ScriptName:
        """Support annotations, which Python evaluates and the parser reads from the source."""
        return self


@dataclass(frozen=True)
class DimSymbol:
    """A dim of a template, a number at each use."""

    name: str

    def _refuse(self, *_: object) -> DimSymbol:
        return self

    # Python evaluates annotations such as T.Buffer[(M // 4, 2 * N), "f32"], so any arithmetic must work.
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = _refuse


@dataclass(frozen=True)
class ShapeSymbol:
    """A whole shape of a template."""

    name: str

    def __iter__(self) -> Iterator[ShapeSymbol]:
        yield self


@dataclass(frozen=True)
class TypeSymbol:
    """An element type of a template."""

    name: str


@dataclass(frozen=True)
class AttributeSymbol:
    """A number that each use of a template provides: an attribute of an operator."""

    name: str


LOOPS = ("serial", "parallel", "parallel_range", "vectorized", "unrolled", "thread_binding", "grid")
TYPES = tuple(name for name in DTYPES)


@dataclass(frozen=True)
class MlirText:
    """Operations given as MLIR, without script syntax."""

    text: str


class Language:
    """`T` or `R`: its attributes are names."""

    def __init__(self, name: str, names: tuple[str, ...]):
        self._name = name
        self._names = frozenset(names)

    def __getattr__(self, name: str) -> ScriptName:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._names:
            return ScriptName(self._name, name)
        raise AttributeError(f"there is no {self._name}.{name}{self.nearest(name)}")

    def mlir(self, text: str) -> MlirText:
        """Embed operations of a module given as MLIR text."""
        return MlirText(text)

    def nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._names, n=1)
        return f"; did you mean {self._name}.{near[0]}?" if near else ""
