"""Converters of operations, by name; and the operations that are refused, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import ConverterTable, UnsupportedOperation, register_in
from mirlo_tflite.names import NAMES

if TYPE_CHECKING:
    from mirlo.extend.frontend import Tensor
    from mirlo_tflite.operation import TosaOperation

Converter = Callable[["TosaOperation"], "Tensor | Sequence[Tensor]"]

CONVERTERS = ConverterTable("mirlo_tflite.ops", NAMES, stated="TOSA")
REFUSED: dict[str, str] = {}
"""Why an operation is not supported."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function that converts these operations: `add`, or `DOMAIN.NAME` for a custom one of a domain."""
    return register_in(CONVERTERS, names)


def find_converter(name: str) -> Converter:
    """Return the converter of an operation; raise `UnsupportedOperation` with the reason if there is none."""
    registered = CONVERTERS.get(name)
    if registered is None:
        raise UnsupportedOperation(REFUSED.get(name, "is not supported"))
    return registered
