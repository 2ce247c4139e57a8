"""Import of function bodies: operations are converted in order, calls in place, regions where their operation is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import ClassVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.locations import describe
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.foreign import FrontendError
from mirlo.frontends.mlir.operation import BodyImporter, Parts, Scope
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore

MAX_OPERATIONS = 200_000
"""Operations that calls may come to, as they are copied at each place."""
MAX_DEPTH = 100


class ProgramImport(BodyImporter):
    """The import of one program; a front end says what is special to its dialect."""

    NAMESPACE: ClassVar[str]
    """What names of the dialect's operations begin with."""
    RETURNS: ClassVar[tuple[str, ...]]
    """The operations that end functions and regions."""
    ERROR: ClassVar[type[FrontendError]]
    INPUT_NAMES: ClassVar[tuple[str, ...]]
    """Attributes of arguments that name an input."""
    OUTPUT_NAMES: ClassVar[tuple[str, ...]]
    """Attributes of results that name an output."""

    def __init__(self, name: str, store: ParameterStore, functions: Mapping[str, ir.Operation]) -> None:
        super().__init__(name, store)
        self.functions = functions
        self.calls: list[str] = []
        self.variables = {}
        self._count = 0

    # The dialect

    @abstractmethod
    def convert(self, op: ir.Operation, name: str, scope: Scope) -> Tensor | Sequence[Tensor]:
        """Convert an operation, whose name is without the namespace; return the parts of its results."""

    @property
    def states(self) -> Mapping[str, TensorType]:
        """Return the names of the states that a program keeps between calls, which become inputs and outputs."""
        return {}

    def input_type(self, type_: ir.Type) -> TensorType | None:
        """Return the type of an input of relax for one of the program; None if it is not supported."""
        return TensorType.from_mlir(type_)

    def input_parts(self, type_: ir.Type, argument: Tensor) -> Sequence[Tensor]:
        """Return the parts of an input."""
        return [argument]

    def result(self, type_: ir.Type, parts: Parts) -> Tensor:
        """Return a result of the program, given its parts."""
        if len(parts) != 1:
            raise UnsupportedOperation(f"the program returns {type_}: return the tensors as results of their own")
        return parts[0]

    # Ranks

    def own_input(self, entry: ir.Operation, index: int, whole: TensorType) -> TensorType:
        """Return the part of an input that the program takes: all of it, or the part of this rank."""
        return whole

    def whole_input(self, entry: ir.Operation, index: int, whole: TensorType, argument: Tensor) -> Tensor:
        """Return the whole input, given the part that the program takes."""
        return argument

    def own_result(self, entry: ir.Operation, index: int, result: Tensor) -> Tensor:
        """Return the part of a result that the program returns."""
        return result

    # Operations

    def call(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Import a function's body here."""
        function = self.functions.get(name)
        if function is None:
            raise UnsupportedOperation(f"calls @{name}, which the module does not have")
        if name in self.calls or len(self.calls) >= MAX_DEPTH:
            raise UnsupportedOperation(f"calls @{name}, which calls itself: @{' -> @'.join((*self.calls, name))}")
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            raise UnsupportedOperation(f"calls @{name}, which has {len(blocks) or 'no'} blocks: expected one")
        self.calls.append(name)
        try:
            return self.block(blocks[0], operands, {})
        finally:
            self.calls.pop()

    def block(self, block: ir.Block, operands: Sequence[Tensor], scope: Scope) -> list[Tensor]:
        """Import the operations of a block for the parts of its arguments; return the parts of its results."""
        inner = dict(scope)
        types = [value.type for value in block.arguments]
        inner.update(zip(block.arguments, self.grouped(types, operands, "a block takes"), strict=True))
        for op in block.operations:
            operation = op.operation
            if operation.name in self.RETURNS:
                return list(chain.from_iterable(inner[value] for value in operation.operands))
            results = self._converted(operation, inner)
            inner.update(zip(operation.results, results, strict=True))
        raise UnsupportedOperation("a block ends without a return")

    def grouped(self, types: Sequence[ir.Type], tensors: Sequence[Tensor], what: str) -> list[Parts]:
        """Divide a list of parts among values of these types; `what` is for the error."""
        counts = [len(self.part_types(type_)) for type_ in types]
        if sum(counts) != len(tensors):
            raise UnsupportedOperation(f"{what} {sum(counts)} values, found {len(tensors)}")
        remaining = iter(tensors)
        return [tuple(next(remaining) for _ in range(count)) for count in counts]

    def _converted(self, op: ir.Operation, scope: Scope) -> list[Parts]:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise self._problem(op, f"calls, copied at each place, come to more than {MAX_OPERATIONS} operations")
        name = op.name.removeprefix(f"{self.NAMESPACE}.").removeprefix("func.")
        try:
            with op.location:
                converted = self.convert(op, name, scope)
            results = [converted] if isinstance(converted, Tensor) else list(converted)
            types = [value.type for value in op.results]
            parts = self.grouped(types, results, "its conversion makes a value for each of")
            declared = chain.from_iterable(map(self.part_types, types))
            for declared_type, tensor in zip(declared, results, strict=True) if not self.lifted else ():
                _require_declared(declared_type, tensor)
            return parts
        except (UnsupportedOperation, OpError) as problem:
            raise self._problem(op, str(problem)) from None

    def _problem(self, op: ir.Operation, text: str) -> FrontendError:
        operands = ", ".join(str(value.type) for value in op.operands)
        where = describe(op.location, terminal)
        return self.ERROR(f"{self.name}: operation '{op.name}' at {where}: {text} [operands: {operands or 'none'}]")


def _require_declared(declared: TensorType, tensor: Tensor) -> None:
    agree = len(declared.shape) == len(tensor.shape) and all(
        one == other for one, other in zip(declared.shape, tensor.shape, strict=True)
        if isinstance(one, int) and isinstance(other, int)
    )  # fmt: skip
    if declared.dtype is not tensor.dtype or not agree:
        raise UnsupportedOperation(f"is declared {declared}, but its operands make it {tensor.type}")
