"""Import of StableHLO: what is special to it beside programs of other dialects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.mlir.body import ProgramImport
from mirlo.frontends.mlir.operation import Parts, Scope
from mirlo.frontends.stablehlo.errors import StablehloImportError
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.parts import component_type, is_complex, part_types
from mirlo.frontends.stablehlo.processes import ProcessGrid, process_grid
from mirlo.frontends.stablehlo.registry import find_converter
from mirlo.frontends.stablehlo.sizes import evaluate
from mirlo.frontends.tensor import Tensor


class StablehloImport(ProgramImport):
    """The import of one program, in which complex tensors are two, and hold both parts in a last dim outside of it."""

    NAMESPACE = "stablehlo"
    RETURNS = ("func.return", "stablehlo.return")
    ERROR = StablehloImportError
    INPUT_NAMES = ("mlir.name", "tf_saved_model.index_path")
    OUTPUT_NAMES = ("jax.result_info", "mlir.name")

    def convert(self, op: ir.Operation, name: str, scope: Scope) -> Tensor | Sequence[Tensor]:
        """Compute an operation on known sizes, or convert it."""
        view = StablehloOperation(op, name, [scope[value] for value in op.operands], self)
        view.scope, view.find_grid = scope, lambda: self._grid
        folded = evaluate(view)
        return find_converter(view)(view) if folded is None else folded

    @cached_property
    def _grid(self) -> ProcessGrid:
        module = next(iter(self.functions.values())).parent
        assert module is not None
        return process_grid(module.operation)

    def part_types(self, type_: ir.Type) -> tuple[TensorType, ...]:
        """Return the types of the parts of a value: two of a complex tensor, those of its elements of a tuple."""
        return part_types(type_)

    def input_type(self, type_: ir.Type) -> TensorType | None:
        """Return the type of an input: that of a complex tensor has a last dim with both parts."""
        component = component_type(type_)
        return super().input_type(type_) if component is None else component.with_shape((*component.shape, 2))

    def input_parts(self, type_: ir.Type, argument: Tensor) -> Sequence[Tensor]:
        """Return the parts of an input."""
        return self.split_parts(argument) if is_complex(type_) else [argument]

    def result(self, type_: ir.Type, parts: Parts) -> Tensor:
        """Return a result of the program: a complex one has a last dim with both parts."""
        return self.join_parts(*parts) if is_complex(type_) else super().result(type_, parts)
