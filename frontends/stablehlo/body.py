"""Import of function bodies: operations are converted in order, calls in place, regions where their operation is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.locations import describe
from mirlo.dialects.core.op import OpError
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.stablehlo.errors import StablehloImportError
from mirlo.frontends.stablehlo.operation import BodyImporter, Scope, StablehloOperation
from mirlo.frontends.stablehlo.parts import Parts, grouped
from mirlo.frontends.stablehlo.registry import find_converter
from mirlo.frontends.stablehlo.sizes import evaluate
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore

MAX_OPERATIONS = 200_000
"""Operations that calls may come to, as they are copied at each place."""
MAX_DEPTH = 100
RETURNS = ("func.return", "stablehlo.return")


class ProgramImport(BodyImporter):
    """The import of one program."""

    def __init__(self, name: str, store: ParameterStore, functions: Mapping[str, ir.Operation]) -> None:
        super().__init__(name, store)
        self.functions = functions
        self.calls: list[str] = []
        self._count = 0

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
        """Import the operations of a block for the parts of its arguments; return those of what it returns."""
        inner = dict(scope)
        types = [value.type for value in block.arguments]
        inner.update(zip(block.arguments, grouped(types, operands, "a block takes"), strict=True))
        for op in block.operations:
            operation = op.operation
            if operation.name in RETURNS:
                return list(chain.from_iterable(inner[value] for value in operation.operands))
            results = self._converted(operation, inner)
            inner.update(zip(operation.results, results, strict=True))
        raise UnsupportedOperation("a block ends without a return")

    def _converted(self, op: ir.Operation, scope: Scope) -> list[Parts]:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise self._problem(op, f"calls, copied at each place, come to more than {MAX_OPERATIONS} operations")
        name = op.name.removeprefix("stablehlo.").removeprefix("func.")
        try:
            view = StablehloOperation(op, name, [scope[value] for value in op.operands], self)
            view.scope = scope
            folded = evaluate(view)
            if folded is not None:
                return [(folded,)]
            with op.location:
                converted = find_converter(view)(view)
            results = [converted] if isinstance(converted, Tensor) else list(converted)
            parts = grouped([value.type for value in op.results], results, "its conversion makes a value for each of")
            for index, tensor in enumerate(results if not self.lifted else ()):
                self._require_declared(view, index, tensor)
            return parts
        except (UnsupportedOperation, OpError) as problem:
            raise self._problem(op, str(problem)) from None

    def _require_declared(self, view: StablehloOperation, index: int, made: Tensor) -> None:
        declared = view.declared(index)
        agree = len(declared.shape) == len(made.shape) and all(
            said == is_ for said, is_ in zip(declared.shape, made.shape, strict=True)
            if isinstance(said, int) and isinstance(is_, int)
        )  # fmt: skip
        if declared.dtype is not made.dtype or not agree:
            raise UnsupportedOperation(f"is declared {declared}, but its operands make it {made.type}")

    def _problem(self, op: ir.Operation, text: str) -> StablehloImportError:
        operands = ", ".join(str(value.type) for value in op.operands)
        where = describe(op.location, terminal)
        return StablehloImportError(
            f"{self.name}: operation '{op.name}' at {where}: {text} [operands: {operands or 'none'}]"
        )
