"""A converter's view of an operation of MLIR: operands, attributes, regions; and emission of relax operators."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder, OperationView, UnsupportedOperation
from mirlo.frontends.tensor import Tensor

Parts = tuple[Tensor, ...]
"""The tensors that a value of a program is imported as: one, unless it is no plain tensor."""
Scope = Mapping[ir.Value, Parts]
"""The values that operations see."""


class BodyImporter(GraphBuilder, ABC):
    """The interface of an import that operations use."""

    lifted = 0
    """The depth of regions on scalars that are being applied to whole tensors."""
    variables: dict[str, Tensor]
    """What states hold at this point of the program, by name."""

    @abstractmethod
    def call(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Import a function's body here, for the parts of its arguments; return the parts of its results."""

    @abstractmethod
    def block(self, block: ir.Block, operands: Sequence[Tensor], scope: Scope) -> list[Tensor]:
        """Import the operations of a block for the parts of its arguments; return the parts of its results."""

    @abstractmethod
    def grouped(self, types: Sequence[ir.Type], tensors: Sequence[Tensor], what: str) -> list[Parts]:
        """Divide a list of parts among values of these types; `what` is for the error."""

    @abstractmethod
    def part_types(self, type_: ir.Type) -> tuple[TensorType, ...]:
        """Return the types of the parts of a value; raise `UnsupportedOperation` for a type that is not supported."""


class MlirOperation(OperationView):
    """An operation of the program, ready to be converted."""

    builder: BodyImporter

    def __init__(self, op: ir.Operation, name: str, parts: Sequence[Parts], builder: BodyImporter) -> None:
        super().__init__(builder)
        self.op = op
        self.name = name
        self.parts = parts
        """By operand, the tensors that it is imported as."""
        self.operands = tuple(chain.from_iterable(parts))
        """All of these tensors: the operands, if each is one."""
        self.scope: Scope = {}
        """The values that regions of the operation see."""

    def __getitem__(self, index: int) -> ir.Value:
        """Return an operand as an SSA value of its whole shape."""
        return self.builder.full(self.operands[index])

    def type(self, index: int) -> TensorType:
        """Return the type of an operand, with symbolic dims."""
        return self.operands[index].type

    def declared(self, index: int = 0) -> TensorType:
        """Return the type of a part of the results as the program declares it: unknown dims are unknown."""
        return self.declared_parts()[index]

    def declared_parts(self) -> tuple[TensorType, ...]:
        """Return the types of the parts of the results."""
        return tuple(chain.from_iterable(self.builder.part_types(value.type) for value in self.op.results))

    # Attributes

    def has(self, name: str) -> bool:
        """Return whether an attribute is there."""
        return name in self.op.attributes

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute that is a list of integers, in any form that programs have used."""
        if name not in self.op.attributes:
            if default is None:
                raise UnsupportedOperation(f"has no attribute '{name}'")
            return list(default)
        attribute = self.op.attributes[name]
        if isinstance(attribute, ir.ArrayAttr):
            return [int(item.value) for item in attribute]
        if isinstance(attribute, (ir.DenseI32ArrayAttr, ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr)):
            return [int(item) for item in attribute]
        return [int(item) for item in np.array(attribute).reshape(-1)]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is an integer."""
        if name not in self.op.attributes and default is not None:
            return default
        return int(self.op.attributes[name].value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is a bool."""
        return bool(self.op.attributes[name].value) if name in self.op.attributes else default

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute that is a string or a symbol."""
        if name not in self.op.attributes and default is not None:
            return default
        return str(self.op.attributes[name].value)

    def bytes(self, name: str) -> bytes:
        """Return an attribute that is a string of any bytes."""
        held = self.op.attributes[name]
        return bytes(held.value_bytes)

    def word(self, name: str, default: str = "") -> str:
        """Return the value of an enumeration: `LT` of `#stablehlo<comparison_direction LT>`."""
        return enumeration(self.op, name) if name in self.op.attributes else default

    def attributes(self) -> dict[str, Any]:
        """Return the attributes, as Python values, of an operation that a plug-in's operator stands for."""
        return {}

    # Constants and sizes

    def scalar(self, index: int) -> np.generic | None:
        """Return the element of an operand if all its elements are one known number, else None."""
        array = self.operands[index].array
        if array is None:
            array = self.operands[index].constant
        if array is None or not array.size:
            return None
        first = array.reshape(-1)[0]
        same = array.size == 1 or bool(np.all((array == first) | ((array != array) & (first != first))))
        return first if same else None

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an operand that holds sizes; those known only at run time become symbols."""
        sizes = self.operands[index].known_sizes
        return self.builder.bind(self.operands[index], self.name) if sizes is None else sizes

    def numbers(self, index: int, what: str) -> list[int]:
        """Return the elements of an operand that holds sizes, all of which must be numbers; `what` is for the error."""
        dims = self.dims(index)
        result = [size for size in dims if isinstance(size, int)]
        if len(result) != len(dims):
            raise UnsupportedOperation(f"needs {what}")
        return result


def enumeration(op: ir.Operation, name: str) -> str:
    """Return the word of an attribute: `LT` of `#stablehlo<comparison_direction LT>`."""
    return str(re.findall(r"\w+", str(op.attributes[name]))[-1])
