"""A converter's view of an operation: operands, attributes, regions; and emission of relax operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.stablehlo.enumerations import enumeration
from mirlo.frontends.stablehlo.errors import UnsupportedOperation
from mirlo.frontends.stablehlo.tensor import Tensor, known, of_array


class BodyImporter(Protocol):
    """The interface of an import that operations use."""

    lifted: int
    """The depth of regions on scalars that are being applied to whole tensors."""

    def full(self, tensor: Tensor) -> ir.Value:
        """Return the SSA value with the whole shape of a tensor."""

    def compact(self, tensor: Tensor) -> ir.Value:
        """Return an SSA value that broadcasts to the shape of a tensor."""

    def tensor(self, value: ir.Value) -> Tensor:
        """Wrap an SSA value of relax."""

    def elementwise(self, name: str, operands: Sequence[Tensor], attributes: Mapping[str, object]) -> Tensor:
        """Make an elementwise operator on tensors of one shape, or of rank 0, without expanding any."""

    def bind(self, tensor: Tensor, what: str) -> tuple[Dim, ...]:
        """Bind symbols to the elements of a tensor that holds sizes known at run time."""

    def new_symbol(self, base: str) -> str:
        """Return a name for a dim that no other has."""

    def call(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Import a function's body here."""

    def block(self, block: ir.Block, operands: Sequence[Tensor], scope: Mapping[ir.Value, Tensor]) -> list[Tensor]:
        """Import the operations of a block for these arguments; return what it returns."""

    def inside(self, block: ir.Block) -> AbstractContextManager[None]:
        """Insert at the end of a block of a region."""


class StablehloOperation:
    """An operation of the program, ready to be converted."""

    def __init__(self, op: ir.Operation, name: str, operands: Sequence[Tensor], body: BodyImporter) -> None:
        self.op = op
        self.name = name
        self.operands = operands
        self.body = body
        self.scope: Mapping[ir.Value, Tensor] = {}
        """The values that regions of the operation see."""

    def __getitem__(self, index: int) -> ir.Value:
        """Return an operand as an SSA value of its whole shape."""
        return self.body.full(self.operands[index])

    def type(self, index: int) -> TensorType:
        """Return the type of an operand, with symbolic dims."""
        return self.operands[index].type

    def declared(self, index: int = 0) -> TensorType:
        """Return the type of a result as the program declares it: unknown dims are unknown."""
        found = TensorType.from_mlir(self.op.results[index].type)
        if found is None:
            raise UnsupportedOperation(f"its result is {self.op.results[index].type}, which is not supported")
        return found

    # Attributes

    def has(self, name: str) -> bool:
        """Return whether an attribute is there."""
        return name in self.op.attributes

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute that is a list of integers, in any of the forms that have been in use."""
        if name not in self.op.attributes:
            if default is None:
                raise UnsupportedOperation(f"has no attribute '{name}'")
            return list(default)
        attribute = self.op.attributes[name]
        if isinstance(attribute, ir.ArrayAttr):
            return [int(item.value) for item in attribute]
        if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr)):
            return [int(item) for item in attribute]
        return [int(item) for item in np.array(attribute).reshape(-1)]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is an integer."""
        if name not in self.op.attributes and default is not None:
            return default
        return int(self.op.attributes[name].value)

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute that is a string or a symbol."""
        if name not in self.op.attributes and default is not None:
            return default
        return str(self.op.attributes[name].value)

    def word(self, name: str, default: str = "") -> str:
        """Return the value of an enumeration: `LT` of `#stablehlo<comparison_direction LT>`."""
        return enumeration(self.op, name) if name in self.op.attributes else default

    # Constants and sizes

    def scalar(self, index: int) -> Any:
        """Return the element of an operand if all its elements are one known number, else None."""
        found = self.operands[index].array
        if found is None:
            found = self.operands[index].constant
        if found is None or not found.size:
            return None
        first = found.reshape(-1)[0]
        same = found.size == 1 or bool(np.all((found == first) | ((found != found) & (first != first))))
        return first if same else None

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an operand that holds sizes; those known only at run time become symbols."""
        found = self.operands[index].known_sizes
        return self.body.bind(self.operands[index], self.name) if found is None else found

    def numbers(self, index: int, what: str) -> list[int]:
        """Return the elements of an operand that holds sizes, all of which must be numbers; `what` is for the error."""
        found = self.dims(index)
        made = [size for size in found if isinstance(size, int)]
        if len(made) != len(found):
            raise UnsupportedOperation(f"needs {what}")
        return made

    # Emission

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """Make a relax operator; operands are SSA values or tensors, or lists of them."""
        return OPS[name].make(*map(self._value, operands), **attributes)

    def _value(self, item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [self._value(each) for each in item]
        return self.body.full(item) if isinstance(item, Tensor) else item

    def tensor(self, value: ir.Value) -> Tensor:
        """Wrap an SSA value."""
        return self.body.tensor(value)

    def constant(self, array: Any, dtype: DType, shape: Sequence[Dim] = ()) -> Tensor:
        """Return a constant that broadcasts to a shape."""
        return of_array(np.asarray(array).astype(dtype.to_numpy()), TensorType(tuple(shape), dtype))

    def sizes(self, values: Sequence[Dim], dtype: str = "i64") -> Tensor:
        """Return a vector of sizes."""
        return known(TensorType.of((len(values),), dtype), tuple(values))

    def elementwise(self, name: str, *operands: Tensor, **attributes: Any) -> Tensor:
        """Make an elementwise operator of relax on tensors of one shape, without expanding any."""
        return self.body.elementwise(name, operands, attributes)
