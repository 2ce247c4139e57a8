"""Converters of operations by name, and the operations that are not supported, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import ConverterTable, UnsupportedOperation, register_in
from mirlo_stablehlo.names import NAMES

if TYPE_CHECKING:
    from mirlo.extend.frontend import Tensor
    from mirlo_stablehlo.operation import StablehloOperation

Converter = Callable[["StablehloOperation"], "Tensor | Sequence[Tensor]"]

CONVERTERS = ConverterTable("mirlo_stablehlo.ops", NAMES, stated="STABLEHLO")
COMPLEX: dict[str, Converter] = {}
"""Converters of operations on complex tensors, which are pairs of tensors."""
OF_PARTS: set[str] = set()
"""Operations whose converters take the parts of any value, such as calls and loops."""
REFUSED: dict[str, str] = {}
"""The reasons why operations are not supported."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function that converts these operations: `add`, or `chlo.erf` for a composite of that name."""
    return register_in(CONVERTERS, names)


def complex_converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function that converts these operations where they have complex tensors."""
    return register_in(COMPLEX, names)


def of_parts(function: Converter) -> Converter:
    """Declare that a registered converter takes the parts of any value: complex tensors, tuples, tokens."""
    OF_PARTS.update(name for name, registered in CONVERTERS.items() if registered is function)
    return function


def find_converter(op: StablehloOperation) -> Converter:
    """Return the converter of an operation; raise `UnsupportedOperation` with the reason if there is none."""
    converter = CONVERTERS.get(op.name)
    if op.is_complex and op.name not in OF_PARTS:
        converter = COMPLEX.get(op.name)
        if converter is None and op.name in CONVERTERS:
            raise UnsupportedOperation("is not supported for complex numbers")
    if converter is None:
        raise UnsupportedOperation(REFUSED.get(op.name, "is not supported"))
    return converter
