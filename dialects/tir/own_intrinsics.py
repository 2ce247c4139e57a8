"""Intrinsics of plug-ins: operations of their own dialects that rules of targets lower, as they do `tir.exp`.

    VTA = register_dialect("vta")
    define_intrinsic(VTA, "dep_pop", "ii", None, pure=False, doc="wait for a token of another queue")
    define_intrinsic(VTA, "peak", "f", doc="x, clamped to the range of the unit")
    define_intrinsic(VTA, "open", "i", "handle", pure=False, doc="a channel to the unit")

A declaration says what the operands are, a letter each: `f` a float, `i` an integer, `h` a handle (a buffer, or what an
intrinsic returned as one). The result is `same` as the first operand, `bool` with its shape, an element type such as
`i64`, a `handle`, or None. Floats and integers are scalars, or vectors of one shape. An intrinsic with side effects is
not pure: it stays where it is, and is neither shared nor dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.dtypes import DTYPES, dtype
from mirlo.dialects.core.errors import DialectError
from mirlo.dialects.core.op import DialectOp, OpError, operand
from mirlo.dialects.core.op import result as declared_result
from mirlo.dialects.core.values import ValueDeclaration
from mirlo.runtime.callbacks import Expected, checked
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

_ARRAY = Expected("an array with a result for each element", lambda value: len(getattr(value, "shape", ())) > 0)
_LETTERS = {"f": "float", "i": "int", "h": "handle"}
SAME, BOOL, HANDLE = "same", "bool", "handle"
_WORDS = {"float": "a float", "int": "an integer", "handle": "a buffer or a handle"}
_POINTER = "!llvm.ptr"


@dataclass(frozen=True)
class OwnIntrinsic:
    """The declaration of an intrinsic of a plug-in."""

    name: str
    """With the namespace of its dialect."""
    operand_kinds: tuple[str, ...]
    """'float', 'int' or 'handle', of each operand."""
    result: str | None
    pure: bool = True
    doc: str = ""
    meaning: Callable[..., np.ndarray] | None = field(default=None, compare=False)
    """A function of numpy arrays that computes the same, in the widest float there is; for `check-target`."""
    near: tuple[tuple[float, float], ...] = field(default=((-10.0, 10.0),), compare=False)
    """Intervals that `check-target` samples densely."""
    ulp: float = field(default=4.0, compare=False)
    """The largest error that a target may make, in units in the last place."""

    @property
    def arity(self) -> int:
        return len(self.operand_kinds)

    def result_types(self, operands: list[ir.Type]) -> list[ir.Type]:
        """Return the types of the results for operands of these types."""
        if self.result is None:
            return []
        if self.result == HANDLE:
            return [ir.Type.parse(_POINTER)]
        shaped = next((t for t in operands if isinstance(t, ir.VectorType)), None)
        if self.result == SAME:
            return [operands[0]]
        element = ir.Type.parse("i1" if self.result == BOOL else dtype(self.result).storage)
        return [element if shaped is None else ir.VectorType.get(shaped.shape, element)]


OWN: dict[str, OwnIntrinsic] = {}
"""The intrinsics of plug-ins by their full names."""


_MODULES: dict[str, str] = {}
"""The module that declared each: declared again from there, it is replaced."""


class OwnIntrinsicOp(DialectOp):
    """The base of operations that are intrinsics of plug-ins."""

    ROW: OwnIntrinsic

    def check(self) -> None:
        types = [value.type for value in self.operation.operands]
        for i, (kind, operand_type) in enumerate(zip(self.ROW.operand_kinds, types, strict=True)):
            if not _is_kind(kind, operand_type):
                raise OpError(f"operand #{i} must be {_WORDS[kind]}, got {operand_type}")
        shapes = {str(t.shape) for t in types if isinstance(t, ir.VectorType)}
        scalars = [t for t in types if not isinstance(t, (ir.VectorType, ir.MemRefType)) and str(t) != _POINTER]
        if len(shapes) > 1 or shapes and scalars:
            raise OpError(f"operands must be scalars, or vectors of one shape, got {', '.join(map(str, types))}")
        with self.operation.location:
            expected = self.ROW.result_types(types)
        found_types = [value.type for value in self.operation.results]
        if found_types != expected:
            raise OpError(f"results must be ({_listed(expected)}), got ({_listed(found_types)})")


def _declaration_problem(dialect: Dialect, operands: str, result: str | None, pure: bool) -> str | None:
    """Return what is wrong with the declaration of an intrinsic, as the end of a sentence."""
    if dialect.namespace in ("relax", "tir"):
        return ": register a dialect of your own"
    if set(operands) - set(_LETTERS):
        expected = ", ".join(f"'{letter}' ({word})" for letter, word in _LETTERS.items())
        return f": operands are letters: expected {expected}, found '{operands}'"
    if result not in (None, SAME, BOOL, HANDLE, *DTYPES):
        return f": expected the result same, bool, handle, None or a type, found {result!r}"
    if result == SAME and not operands:
        return " has no operand that its result could be the same as"
    if pure and result is None:
        return " has no result, so it would be removed: declare it with pure=False"
    return None


def define_intrinsic(
    dialect: Dialect,
    name: str,
    operands: str = "",
    result: str | None = SAME,
    *,
    pure: bool = True,
    doc: str = "",
    meaning: Callable[..., np.ndarray] | None = None,
    near: Sequence[tuple[float, float]] = ((-10.0, 10.0),),
    ulp: float = 4.0,
) -> OwnIntrinsic:
    """Declare an intrinsic of a plug-in's dialect: `operands` has a letter each, `result` a type or None.

    With `meaning`, the same in numpy, `mirlo check-target` checks it: on random bits and in the intervals `near`, with
    errors of at most `ulp` units in the last place.
    """
    full = f"{dialect.namespace}.{name}"
    if problem := _declaration_problem(dialect, operands, result, pure):
        raise DialectError(f"intrinsic '{full}'{problem}")
    if meaning is not None:
        meaning = checked(meaning, _ARRAY, f"intrinsic '{full}'", DialectError)
    kinds = tuple(_LETTERS[letter] for letter in operands)
    row = OwnIntrinsic(full, kinds, result, pure, doc, meaning, tuple(near), ulp)
    module = str(sys._getframe(1).f_globals.get("__name__", "?"))
    if OWN.get(full, row) != row and _MODULES[full] != module:
        raise DialectError(f"intrinsic '{full}' is already declared, by module '{_MODULES[full]}'")
    known = OWN.get(full)
    OWN[full], _MODULES[full] = row, module
    if known != row:
        _define(dialect, name, row)
    return row


def forget_intrinsics(module: str) -> None:
    """Remove the intrinsics that a module declared."""
    for name in [name for name, owner in _MODULES.items() if owner == module]:
        del OWN[name], _MODULES[name]


def _define(dialect: Dialect, name: str, row: OwnIntrinsic) -> None:
    fields: dict[str, ValueDeclaration] = {f"x{i}": operand() for i in range(row.arity)}
    if row.result is not None:
        fields["output"] = declared_result()
    for key, declared in fields.items():
        declared.__set_name__(OwnIntrinsicOp, key)
    body = {**fields, "ROW": row, "PURE": row.pure, "__module__": __name__, "__doc__": row.doc}
    type(f"{dialect.namespace}_{name}", (OwnIntrinsicOp,), body, name=name, dialect=dialect)


def is_scalar_function(row: OwnIntrinsic) -> bool:
    """Return whether an intrinsic is a function of scalars: it may be part of an expression, and of any block."""
    if not row.pure or "handle" in row.operand_kinds or row.result in (None, HANDLE):
        return False
    if row.result in (SAME, BOOL):
        return True
    return dtype(row.result).compute == dtype(row.result).storage


def emit_own(name: str, *values: ir.Value) -> ir.Operation:
    """Emit an intrinsic of a plug-in at the insertion point."""
    row = OWN[name]
    if len(values) != row.arity:
        raise ValueError(f"intrinsic '{name}' takes {row.arity} operands, found {len(values)}")
    types = row.result_types([value.type for value in values])
    return ir.Operation.create(name, results=types, operands=list(values))


def _is_kind(kind: str, operand_type: ir.Type) -> bool:
    if kind == "handle":
        return isinstance(operand_type, ir.MemRefType) or str(operand_type) == _POINTER
    element = operand_type.element_type if isinstance(operand_type, ir.VectorType) else operand_type
    return isinstance(element, ir.FloatType if kind == "float" else (ir.IntegerType, ir.IndexType))


def _listed(types: list[ir.Type]) -> str:
    return ", ".join(map(str, types))
