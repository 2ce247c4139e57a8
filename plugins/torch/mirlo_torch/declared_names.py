"""Converters of operators of relax with another name in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.extend.frontend import BOOL, FLOAT, Compare, DialectOp, Tensor, graph_operations, import_modules
from mirlo_torch.custom import operator_converter
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import CONVERTERS, Converter, aten_names

_entered: Mapping[str, type[DialectOp]] = {}
"""The classes whose names have converters."""


def load_converters() -> None:
    """Import all converters, then derive the missing ones from operator classes."""
    global _entered
    import_modules("mirlo_torch.ops")
    classes = graph_operations()
    if classes is not _entered:
        for cls in classes.values():
            for name in aten_names(cls):
                CONVERTERS.setdefault(name, _converter_of(cls, name))
        _entered = classes


def _converter_of(cls: type[DialectOp], name: str) -> Converter:
    return _elementwise(cls) if name.startswith("aten.") else operator_converter(cls)


def _elementwise(cls: type[DialectOp]) -> Converter:
    """Return the converter of an operator of ATen, which promotes its operands.

    Comparisons promote them to one type, operators of bools read them as bools, others compute in the type of the
    result. Rounding operators leave integers unchanged.
    """
    _, _, operator = cls.OPERATION_NAME.rpartition(".")
    kinds = getattr(cls, "KINDS", ())

    def convert(op: AtenOperation, *operands: Operand) -> Tensor:
        if issubclass(cls, Compare):
            first, *others = op.promoted(*operands)
        else:
            kind = "bool" if kinds == BOOL else op.dtype
            first, *others = (op.operand(x, kind) for x in operands)
        return first if kinds == FLOAT and not first.dtype.is_float else first.elementwise(operator, *others)

    return convert
