"""Import of StableHLO: the parts that programs of other dialects do not need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from mirlo.extend.frontend import Dim, Parts, ProgramImport, RankLayout, Scope, Tensor, TensorType, convert_by, ir
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.ops.sharding import from_parts, to_parts
from mirlo_stablehlo.parts import component_type, is_complex, part_types
from mirlo_stablehlo.ranked import RankedProgram
from mirlo_stablehlo.registry import find_converter
from mirlo_stablehlo.sizes import evaluate


class StablehloImport(ProgramImport):
    """The import of one program; complex tensors are pairs of tensors inside, and have a last dim of 2 outside."""

    NAMESPACE = "stablehlo"
    RETURNS = ("func.return", "stablehlo.return", "sdy.return")
    ERROR = StablehloImportError
    INPUT_NAMES = ("mlir.name", "tf_saved_model.index_path")
    OUTPUT_NAMES = ("jax.result_info", "mlir.name")

    def convert(self, op: ir.Operation, name: str, scope: Scope) -> Tensor | Sequence[Tensor]:
        """Compute an operation on known sizes, or convert it."""
        view = StablehloOperation(op, name, [scope[value] for value in op.operands], self)
        view.scope, view.program = scope, self._ranked
        folded = evaluate(view)
        return convert_by(find_converter(view), view) if folded is None else folded

    @cached_property
    def _ranked(self) -> RankedProgram:
        return RankedProgram(self.functions)

    def own_input(self, entry: ir.Operation, index: int, whole: TensorType) -> TensorType:
        """Return this rank's part of an input, as the program shards it."""
        layout = self._entry_layout(entry, "arg_attrs", index, whole.shape)
        return whole if layout is None else whole.with_shape(layout.shape(whole.shape))

    def whole_input(self, entry: ir.Operation, index: int, whole: TensorType, argument: Tensor) -> Tensor:
        """Gather a whole input of which ranks have parts."""
        layout = self._entry_layout(entry, "arg_attrs", index, whole.shape)
        return argument if layout is None else from_parts(argument, layout, self._ranked.grid.ranks)

    def own_result(self, entry: ir.Operation, index: int, result: Tensor) -> Tensor:
        """Return this rank's part of a result."""
        layout = self._entry_layout(entry, "res_attrs", index, result.shape)
        return result if layout is None else to_parts(result, layout, self._ranked.grid.ranks)

    def _entry_layout(self, entry: ir.Operation, which: str, index: int, shape: Sequence[Dim]) -> RankLayout | None:
        held = ir.ArrayAttr(entry.attributes[which])[index] if which in entry.attributes else None
        if not isinstance(held, ir.DictAttr):
            return None
        return self._ranked.interface_layout({each.name: each.attr for each in held}, shape)

    def part_types(self, type_: ir.Type) -> tuple[TensorType, ...]:
        """Return the types of a value's parts: two for a complex tensor, those of the elements for a tuple."""
        return part_types(type_)

    def input_type(self, type_: ir.Type) -> TensorType | None:
        """Return the type of an input; that of a complex tensor has a last dim of 2."""
        component = component_type(type_)
        return super().input_type(type_) if component is None else component.with_shape((*component.shape, 2))

    def input_parts(self, type_: ir.Type, argument: Tensor) -> Sequence[Tensor]:
        """Return the parts of an input."""
        return self.split_parts(argument) if is_complex(type_) else [argument]

    def result(self, type_: ir.Type, parts: Parts) -> Tensor:
        """Return a result of the program; a complex one has a last dim of 2."""
        return self.join_parts(*parts) if is_complex(type_) else super().result(type_, parts)
