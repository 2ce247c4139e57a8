"""Converters of operations whose classes say what StableHLO calls them (`DialectOp.STABLEHLO`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.installed import import_modules
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.relax.elementwise import Elementwise
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.registry import CONVERTERS, Converter
from mirlo.frontends.tensor import Tensor

_entered: Mapping[str, type[DialectOp]] = {}
"""The classes whose names are among the converters."""


def load_converters() -> None:
    """Import all converters, and enter those that follow from classes; a converter of its own comes first."""
    global _entered
    import_modules("mirlo.frontends.stablehlo.ops")
    classes = graph_operations()
    if classes is not _entered:
        for cls in classes.values():
            for name in cls.STABLEHLO:
                CONVERTERS.setdefault(name, _converter_of(cls))
        _entered = classes


def _converter_of(cls: type[DialectOp]) -> Converter:
    _, _, operator = cls.OPERATION_NAME.rpartition(".")

    def convert(op: StablehloOperation) -> Tensor | Sequence[Tensor]:
        if issubclass(cls, Elementwise):
            first, *others = op.operands
            return first.elementwise(operator, *others)
        types = None if cls.infers else op.declared_parts()
        built = cls.build(*map(op.builder.full, op.operands), result_types=types, **_attributes(op, cls))
        return [op.tensor(value) for value in built.operation.results]

    return convert


def _attributes(op: StablehloOperation, cls: type[DialectOp]) -> dict[str, Any]:
    """Return the attributes of an operator of a plug-in."""
    result = op.attributes()
    for name in result:
        if name not in cls._attributes:
            raise UnsupportedOperation(
                f"has the attribute '{name}', which is not one of '{cls.OPERATION_NAME}'; those are: "
                f"{', '.join(cls._attributes) or 'none'}"
            )
    return result
