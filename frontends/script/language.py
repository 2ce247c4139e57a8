"""The names of scripts, `T` for prim functions and `R` for graphs.

They are names for the parser. Python itself evaluates only annotations, `T.dims` and the decorators; calling one
outside of a script is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.frontends.script.symbols import (
    LOOPS,
    TYPES,
    AttributeSymbol,
    DimSymbol,
    Language,
    ScriptName,
    ShapeSymbol,
    TypeSymbol,
)
from mirlo.frontends.script.syntax import TVM_TYPES

if TYPE_CHECKING:
    from mirlo.frontends.script.inline import InlineFunction
    from mirlo.frontends.script.prim import PrimFunc

_TIR = (
    *LOOPS, *TYPES, *INTRINSICS, "Buffer", "Out", "block", "axes", "init", "alloc", "select", "max", "min",
    "call_extern", "call_intrin", "copy", "op", "reads", "stride", "handle", *TVM_TYPES,
)  # fmt: skip
_RELAX = ("Tensor", "call_tir", "call_dps_packed", "call_packed", "const", "param", *TYPES)

F = TypeVar("F")


UNSUPPORTED = {
    "match_buffer": "a buffer is contiguous, as (8, 1) is for (8, 8); a view is of slices, A[i:i + 4, j:j + 4]",
    "truncdiv": "// rounds down, which is the same where no operand is negative",
    "truncmod": "% rounds down, which is the same where no operand is negative",
    "tvm_storage_sync": "threads wait at the end of a loop that is bound to them",
    "realize": "a buffer is made by T.alloc",
    "ptr": "a buffer has a shape: T.Buffer",
    "comm_reducer": "a reduction is a block with T.init",
}
"""Names of TVM without a meaning in a prim function, and what to write."""


class TirLanguage(Language):
    """The names of prim functions."""

    def __getattr__(self, name: str) -> ScriptName:
        if name in UNSUPPORTED:
            raise AttributeError(f"T.{name} has no meaning here: {UNSUPPORTED[name]}")
        return super().__getattr__(name)

    def dims(self, *names: str) -> Any:
        """Make symbols for dims of a template: `M, N = T.dims("M", "N")`. Equal names give the same symbol."""
        return _symbols(DimSymbol, names)

    def shapes(self, *names: str) -> Any:
        """Make symbols for whole shapes: `S = T.shapes("S")`, then `T.Buffer[S, "f32"]`."""
        return _symbols(ShapeSymbol, names)

    def types(self, *names: str) -> Any:
        """Make symbols for element types: `DT = T.types("DT")`, then `T.Buffer[S, DT]`."""
        return _symbols(TypeSymbol, names)

    def attrs(self, *names: str) -> AttributeSymbol:
        """Make symbols for numbers that each use provides: `epsilon = T.attrs("epsilon")`."""
        result: AttributeSymbol = _symbols(AttributeSymbol, names)
        return result

    def inline(self, function: Callable[..., object]) -> InlineFunction:
        """Decorate a helper that is inlined where prim functions call it."""
        from mirlo.frontends.script.inline import InlineFunction

        return InlineFunction.of(function)

    def prim_func(
        self, function: Callable[..., object] | None = None, **options: Any
    ) -> PrimFunc | Callable[[Callable[..., object]], PrimFunc]:
        """Decorate a prim function, as `@mirlo.prim_func` does."""
        from mirlo.frontends.script.parse_prim import prim_func

        return prim_func(function, **options, _depth=2)


class RelaxLanguage(Language):
    """The names of graphs, and every relax operator by its name."""

    def __init__(self) -> None:
        super().__init__("R", _RELAX)

    def __getattr__(self, name: str) -> ScriptName:
        from mirlo.dialects.relax import OPS
        from mirlo.frontends.script.tvm_calls import NOT_OF_GRAPHS
        from mirlo.frontends.script.tvm_operators import TVM_OPERATORS

        if (name in OPS or name in TVM_OPERATORS) and name not in self._names:
            return ScriptName("R", name)
        if name in NOT_OF_GRAPHS:
            raise AttributeError(f"R.{name} has no meaning here: {NOT_OF_GRAPHS[name]}")
        return super().__getattr__(name)

    def nearest(self, name: str) -> str:
        from mirlo.dialects.relax import OPS

        near = difflib.get_close_matches(name, [*self._names, *OPS], n=1)
        return f"; did you mean R.{near[0]}?" if near else ""

    def function(self, function: F | None = None, **options: object) -> F | Callable[[F], F]:
        """Mark a graph of a module of `@mirlo.script`; it is parsed, never executed."""
        return function if function is not None else lambda f: f


def _symbols(kind: type, names: tuple[str, ...]) -> Any:
    symbols = tuple(kind(name) for name in names)
    return symbols[0] if len(symbols) == 1 else symbols


T = TirLanguage("T", _TIR)
R = RelaxLanguage()
