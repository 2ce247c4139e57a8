"""Tables of converters, among them those of operations whose classes say what a dialect calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.installed import import_modules
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.relax.elementwise import Elementwise
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.mlir.operation import MlirOperation
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.callbacks import describe_raised, describe_value, is_foreign, name_of
from mirlo.runtime.errors import MirloError

Converter = Callable[[Any], "Tensor | Sequence[Tensor]"]
"""Takes the view of an operation that the front end has."""


class ConverterTable(dict[str, Converter]):
    """Converters of operations by name: those of the modules of a package, and those of operators by other names.

    `names` has the operations of the dialect that mean the same as an operator of relax, and `stated` is the attribute
    with which classes of plug-ins state such names. A converter of its own comes first. A plug-in that adds operators
    is seen by the next import.
    """

    def __init__(self, package: str, names: Mapping[str, Sequence[str]], stated: str) -> None:
        super().__init__()
        self._package, self._names, self._stated = package, names, stated
        self._entered: Mapping[str, type[DialectOp]] = {}

    def load(self) -> None:
        """Import all converters, and enter those that follow from classes."""
        import_modules(self._package)
        classes = graph_operations()
        if classes is self._entered:
            return
        for full_name, cls in classes.items():
            for name in (*self._names.get(full_name.removeprefix("relax."), ()), *getattr(cls, self._stated, ())):
                self.setdefault(name, _converter_of(cls))
        self._entered = classes


def convert_by(converter: Converter, op: MlirOperation) -> list[Tensor]:
    """Call the converter of an operation and check its result; errors name the converter and where it is defined."""
    converted = call_converter(converter, op)
    results = [converted] if isinstance(converted, Tensor) else converted
    if isinstance(results, (list, tuple)) and all(isinstance(each, Tensor) for each in results):
        return list(results)
    raise unexpected_result(converter, converted)


def call_converter(converter: Callable[..., object], *arguments: Any, **named: Any) -> object:
    """Call a converter and return its result; exceptions name the converter and where it is defined."""
    try:
        return converter(*arguments, **named)
    except (MirloError, MemoryError):
        raise
    except Exception as error:
        if not is_foreign(type(error)):
            raise
        raise UnsupportedOperation(f"its converter {name_of(converter)} raised {describe_raised(error)}") from error


def unexpected_result(converter: Callable[..., object], converted: object) -> UnsupportedOperation:
    """Return the error for a converter that did not return tensors."""
    return UnsupportedOperation(
        f"its converter {name_of(converter)} returned {describe_value(converted)}: expected a Tensor, or a list of one "
        "for each result"
    )


def _converter_of(cls: type[DialectOp]) -> Converter:
    _, _, operator = cls.OPERATION_NAME.rpartition(".")

    def convert(op: MlirOperation) -> Tensor | Sequence[Tensor]:
        if issubclass(cls, Elementwise):
            first, *others = op.operands
            return first.elementwise(operator, *others)
        types = None if cls.infers else op.declared_parts()
        built = cls.build(*map(op.builder.full, op.operands), result_types=types, **_attributes(op, cls))
        return [op.tensor(value) for value in built.operation.results]

    return convert


def _attributes(op: MlirOperation, cls: type[DialectOp]) -> dict[str, Any]:
    """Return the attributes of an operator of a plug-in."""
    result = op.attributes()
    for name in result:
        if name not in cls._attributes:
            raise UnsupportedOperation(
                f"has the attribute '{name}', which is not one of '{cls.OPERATION_NAME}'; those are: "
                f"{', '.join(cls._attributes) or 'none'}"
            )
    return result
