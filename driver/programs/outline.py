"""Operations of a function moved to a module of their own, as copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Dims
from mirlo.dialects.core.dims import SymbolicDim
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.surgery import captured
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.core.types import TensorType, dims_of_attribute
from mirlo.dialects.core.walk import walk
from mirlo.passes.memory.storage_assignment import BINDS, ERASE


def read_by(op: ir.OpView | ir.Operation) -> list[ir.Value]:
    """Return the operands of an operation and the values that its regions capture."""
    return list(dict.fromkeys((*op.operands, *captured(op))))


def symbols_in(op: ir.Operation) -> set[str]:
    """Return the symbols in types and attributes of an operation and of those nested in it."""
    symbols: set[str] = set()

    def visit(inner: ir.Operation) -> ir.WalkResult:
        symbols.update(name for value in (*inner.operands, *inner.results) for name in dim_symbols(value))
        if isinstance(inner.opview, DialectOp):
            for name, declared in type(inner.opview)._attributes.items():
                if isinstance(declared, Dims) and name in inner.attributes:
                    for dim in dims_of_attribute(inner.attributes[name]):
                        symbols.update(D.symbols_of(dim) if dim != D.UNKNOWN else ())
        return ir.WalkResult.ADVANCE

    walk(op, visit)
    return symbols


def dim_symbols(value: ir.Value) -> set[str]:
    """Return the symbols in the type of a value."""
    kind = TensorType.from_mlir(value.type)
    shape = () if kind is None else kind.shape
    return {name for dim in shape if isinstance(dim, SymbolicDim) for name in dim.symbols()}


def determined_symbols(value: ir.Value) -> set[str]:
    """Return the symbols that the shape of a tensor determines: those that are dims on their own."""
    kind = TensorType.from_mlir(value.type)
    shape = () if kind is None else kind.shape
    return {name for dim in shape if isinstance(dim, SymbolicDim) and dim.is_symbol for name in dim.symbols()}


class ProgramOutliner:
    """A module with a function `@main` of copies of these operations, and the values that it takes.

    `binders` are operations elsewhere that bind symbols: those that no tensor can carry here are copied, too.
    """

    def __init__(
        self,
        operations: Sequence[ir.Operation],
        results: Sequence[ir.Value],
        visible: Sequence[ir.Value],
        binders: Mapping[str, ir.Operation],
    ):
        self.inputs: list[ir.Value] = []
        self._own = {value for op in operations for value in op.results}
        for op in operations:
            self._collect(op)
        operations = [*self._add_carriers(operations, visible, binders), *operations]
        location = ir.Location.fused([op.location for op in operations])
        with location:
            self.module = ir.Module.create()
            types = [value.type for value in self.inputs], [value.type for value in results]
            with ir.InsertionPoint(self.module.body):
                function = func.FuncOp(ENTRY_NAME, types)
            mark_entry(function)
            entry = function.add_entry_block()
            self._env: dict[ir.Value, ir.Value] = dict(zip(self.inputs, entry.arguments, strict=True))
            with ir.InsertionPoint(entry):
                for op in operations:
                    self._copy(op)
                func.ReturnOp([self._env[value] for value in results])
        function.arg_attrs = ir.ArrayAttr.get([_named(f"input{i}") for i in range(len(self.inputs))])
        function.attributes["res_attrs"] = ir.ArrayAttr.get([_named(f"output{i}") for i in range(len(results))])

    def _collect(self, op: ir.OpView | ir.Operation) -> None:
        for value in read_by(op):
            if value in self._own or value in self.inputs:
                continue
            if _is_repeated(value):
                self._collect(value.owner)
            else:
                self.inputs.append(value)

    def _add_carriers(
        self, operations: Sequence[ir.Operation], visible: Sequence[ir.Value], binders: Mapping[str, ir.Operation]
    ) -> list[ir.Operation]:
        """Add tensors for symbols that no input determines, and return the binders of those without a tensor."""
        wanted = {name for op in operations for name in symbols_in(op)}
        for value in [*self.inputs, *visible]:
            determined = determined_symbols(value) & wanted
            if determined:
                wanted -= determined
                if value not in self.inputs:
                    self.inputs.append(value)
        wanted -= {name for op in operations if op.name in BINDS for name in op.opview.symbols}
        added = [op for op in dict.fromkeys(binders.values()) if wanted & {*op.opview.symbols}]
        for op in added:
            self._collect(op)
        return added

    def _copy(self, op: ir.OpView | ir.Operation) -> None:
        needed = read_by(op)
        for value in needed:
            if value not in self._env:
                self._copy(value.owner)
        copy = op.clone()
        self._redirect(copy)
        self._env.update(zip(op.results, copy.results, strict=True))

    def _redirect(self, op: ir.Operation | ir.OpView) -> None:
        """Replace the operands of a copy, and those in its regions, by their copies."""
        for i, value in enumerate(op.operands):
            if value in self._env:
                op.operands[i] = self._env[value]
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    self._redirect(inner.operation)


def _is_repeated(value: ir.Value) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.name in ("relax.constant", "tensor.extract", ERASE)


def _named(name: str) -> ir.Attribute:
    return ir.DictAttr.get({"relax.name": ir.StringAttr.get(name)})
