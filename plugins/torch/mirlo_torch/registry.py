"""Converters of ATen's operators by name, and the operators that are not supported, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from mirlo.extend.frontend import DialectOp, UnsupportedOperation, register_in
from mirlo_torch.names import NAMES

Converter = Callable[..., object]
"""Takes an `AtenOperation` and the operator's arguments, and returns a tensor or a sequence of tensors.

Arguments that the schema lists before `*` come by position, with their defaults; others by name, if they are given.
"""
CONVERTERS: dict[str, Converter] = {}
COMPLEX: dict[str, Converter] = {}
"""Converters of operators on complex tensors, which are `Complex` values."""
NO_VALUE = object()
"""The result of a converter for a token, which orders effects and is not a value of the program."""
USERS: dict[str, Converter] = {}
"""Converters of operators declared with `torch_operator`, which take precedence."""
DECOMPOSITIONS: dict[str, Callable[..., object]] = {}
"""Functions of PyTorch tensors that decompose operators for which PyTorch has no decomposition."""
OWN_NAMESPACES = (
    "aten", "prims", "prim", "higher_order", "_operator", "number", "torch", "math", "quantized_decomposed",
)  # fmt: skip
"""Namespaces of PyTorch and of Mirlo; others belong to libraries."""
REFUSED: dict[str, str] = {}
"""The reasons why operators are not supported, by name without overload."""


F = TypeVar("F", bound=Converter)


class OperatorValue:
    """A result that stands for a tensor of the trace, which only operators of one namespace read."""

    namespace = ""
    what = ""
    """What it stands for, in errors."""


def converter(*names: str) -> Callable[[F], F]:
    """Register a function that converts these operators: `aten.add.Tensor`."""
    return register_in(CONVERTERS, names)


def complex_converter(*names: str) -> Callable[[F], F]:
    """Register a function that converts these operators where they have complex tensors."""
    return register_in(COMPLEX, names)


def decomposition(*names: str) -> Callable[[F], F]:
    """Register a function that computes these operators by other operators."""
    return register_in(DECOMPOSITIONS, names)


def aten_names(cls: type[DialectOp]) -> Iterator[str]:
    """Yield the names, with overloads, of the ATen operators of a class: `aten.exp.default`.

    The class of a plug-in states them: `ATEN = ("exp", "acme::scale")`.
    """
    overloads = ("default",) if len(cls._operand_layout.fields) == 1 else ("Tensor", "Scalar")
    relax = cls.OPERATION_NAME.removeprefix("relax.")
    for name in (*NAMES.get(relax, ()), *getattr(cls, "ATEN", ())):
        namespace, _, operator = name.rpartition("::")
        if "." in operator:
            yield f"{namespace or 'aten'}.{operator}"
        else:
            yield from (
                f"{namespace or 'aten'}.{operator}.{each}" for each in (("default",) if namespace else overloads)
            )


def has_converter(name: str) -> bool:
    """Return whether an operator is converted without decomposition, for real or for complex tensors."""
    return name in USERS or name in CONVERTERS or name in COMPLEX


def find_converter(name: str, is_complex: bool) -> Converter:
    """Return the converter of an operator; raise `UnsupportedOperation` with the reason if there is none."""
    if name in USERS:
        return USERS[name]
    converter = (COMPLEX if is_complex else CONVERTERS).get(name)
    if converter is None and is_complex and name in CONVERTERS:
        raise UnsupportedOperation("is not supported for complex numbers")
    if converter is None and name in COMPLEX:
        raise UnsupportedOperation("is supported for complex64 and complex128 only")
    if converter is None:
        raise UnsupportedOperation(reason_of(name))
    return converter


def reason_of(name: str) -> str:
    """Return why an operator is not supported."""
    return REFUSED.get(name) or REFUSED.get(name.rpartition(".")[0]) or f"has no converter{_remedy(name)}"


def _remedy(name: str) -> str:
    """Return a remedy for an operator of a library."""
    namespace, _, rest = name.partition(".")
    if namespace in OWN_NAMESPACES:
        return ""
    operator = f"{namespace}::{rest.removesuffix('.default')}"
    return f": give it a kernel or an operator, mirlo_torch.custom.torch_operator('{operator}', prim_func=...)"
