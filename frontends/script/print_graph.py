"""Printing of graphs: one statement per operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import REQUIRED, read_dense
from mirlo.dialects.core.dims import SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import DialectOp, OpError, infer_results
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.create import Constant
from mirlo.frontends.script.print_scalar import NotPrintable, quoted
from mirlo.frontends.script.print_tensor import INDENT, tuple_text
from mirlo.frontends.script.tvm_calls import OTHER_MEANING

if TYPE_CHECKING:
    import numpy as np


_NAMED = ("relax.call_tir", "relax.call_dps_packed", "relax.call_packed")

NestedNumbers: TypeAlias = "float | np.generic | list[NestedNumbers]"


def tensor_text(mlir_type: ir.Type, name: str | None = "") -> str:
    """Return `R.Tensor[(2, "n"), "f32"]`, with the user's name as the third part unless it is None."""
    tensor_type = TensorType.from_mlir(mlir_type)
    if tensor_type is None or tensor_type.to_mlir() != mlir_type:
        raise NotPrintable(f"{mlir_type} in a graph")
    dims = tuple_text([_python(dim) for dim in tensor_type.shape])
    return (
        f'R.Tensor[{dims}, "{tensor_type.dtype}"{"" if name == "" else f", {None if name is None else quoted(name)}"}]'
    )


def print_graph(function: ir.Operation | ir.OpView, name: str, callees: dict[str, str]) -> list[str]:
    """Return the definition without its decorator; `callees` are the names of symbols in the script."""
    op = function.operation
    entry = op.regions[0].blocks[0]
    printer = _GraphPrinter(callees)
    inputs = _names(op, "arg_attrs", len(entry.arguments))
    parameters = []
    for i, (argument, public_name) in enumerate(zip(entry.arguments, inputs, strict=True)):
        printer.names[argument] = f"x{i}"
        parameters.append(f"x{i}: {tensor_text(argument.type, public_name)}")
    operations = [o.operation for o in entry.operations]
    if operations[-1].name != "func.return" or not len(operations[-1].operands):
        raise NotPrintable("a graph without results")
    lines = [line for o in operations[:-1] for line in printer.line(o)]
    returned = list(operations[-1].operands)
    outputs = _names(op, "res_attrs", len(returned))
    notes = [tensor_text(v.type, public_name) for v, public_name in zip(returned, outputs, strict=True)]
    result = notes[0] if len(notes) == 1 else f"({', '.join(notes)})"
    values = [printer.names[v] for v in returned]
    lines.append(f"return {values[0] if len(values) == 1 else ', '.join(values)}")
    return [f"def {name}({', '.join(parameters)}) -> {result}:", *(INDENT + line for line in lines)]


def _names(op: ir.Operation | ir.OpView, attribute: str, count: int) -> list[str | None]:
    if attribute not in op.attributes:
        return [None] * count
    names = []
    for entry in ir.ArrayAttr(op.attributes[attribute]):
        facts = ir.DictAttr(entry)
        if len(facts) > 1 or (len(facts) == 1 and "relax.name" not in facts):
            raise NotPrintable("arguments with more attributes than a name")
        names.append(ir.StringAttr(facts["relax.name"]).value if len(facts) else None)
    return names


class _GraphPrinter:
    def __init__(self, callees: dict[str, str]):
        self.names: dict[ir.Value, str] = {}
        self.callees = callees

    def line(self, op: ir.Operation | ir.OpView) -> list[str]:
        """Return the statement of an operator, and the names of its results."""
        targets = []
        for value in op.results:
            self.names[value] = f"v{len(self.names)}"
            targets.append(self.names[value])
        if not targets:
            raise NotPrintable(f"'{op.name}' in a graph")
        return [f"{', '.join(targets)} = {self._call(op)}"]

    def _call(self, op: ir.Operation | ir.OpView) -> str:
        if op.name == "relax.constant":
            return _constant_text(op.opview)
        operands = [self.names[v] for v in op.operands]
        if op.name == "func.call":
            return f"{self._callee(ir.FlatSymbolRefAttr(op.attributes['callee']).value)}({', '.join(operands)})"
        out = _out_text([v.type for v in op.results])
        if op.name == "relax.call_tir":
            _only(op, ("callee",))
            return f"R.call_tir({', '.join([self._callee(op.opview.callee), *operands, out])})"
        if op.name in _NAMED:
            _only(op, ("function",))
            return f"R.{op.name[6:]}({', '.join([quoted(op.opview.function), *operands, out])})"
        return self._operator(op, out)

    def _callee(self, symbol: str) -> str:
        if symbol not in self.callees:
            raise NotPrintable(f"a call of '@{symbol}', which is not in the module")
        return self.callees[symbol]

    def _operator(self, op: ir.Operation | ir.OpView, out: str) -> str:
        short = op.name.partition(".")[2]
        cls = OPS.get(short) if op.name.startswith("relax.") else None
        if cls is None:
            raise NotPrintable(f"'{op.name}' in a graph")
        view = op.opview
        _only(op, tuple(cls._attributes))
        parts: list[str] = []
        operands: list[ir.Value | list[ir.Value] | None] = []
        by_name = False
        for field in cls._operand_layout.fields:
            value = getattr(view, field.name)
            operands.append(value)
            if value is None:
                by_name = True
                continue
            text = f"[{', '.join(self.names[v] for v in value)}]" if isinstance(value, list) else self.names[value]
            parts.append(f"{field.name}={text}" if by_name else text)
        attributes = view.attribute_values()
        for name, value in attributes.items():
            default = cls._attributes[name].default
            is_ambiguous = name in OTHER_MEANING.get(short, ())
            if value is not None and (is_ambiguous or default is REQUIRED or value != default):
                parts.append(f"{name}={_python(value)}")
        if not cls.infers or self._inferred(cls, operands, attributes) != [v.type for v in op.results]:
            parts.append(out)
        return f"R.{short}({', '.join(parts)})"

    def _inferred(
        self, cls: type[DialectOp], operands: list[ir.Value | list[ir.Value] | None], attributes: dict[str, object]
    ) -> list[ir.Type]:
        try:
            return [t.to_mlir() for t in infer_results(cls, operands, attributes)]
        except OpError:
            return []


def _only(op: ir.Operation | ir.OpView, allowed: tuple[str, ...]) -> None:
    for i in range(len(op.attributes)):
        name = op.attributes[i].name
        if name not in allowed and name not in ("operandSegmentSizes", "resultSegmentSizes"):
            raise NotPrintable(f"'{op.name}' with the attribute '{name}'")


def _out_text(types: list[ir.Type]) -> str:
    texts = [tensor_text(t) for t in types]
    return f"out={texts[0] if len(texts) == 1 else '(' + ', '.join(texts) + ')'}"


def _constant_text(view: ir.OpView) -> str:
    assert isinstance(view, Constant)
    kind = TensorType.from_mlir(view.output.type)
    if kind is None:
        raise NotPrintable(f"a constant of {view.output.type}")
    if view.param is not None:
        return f'R.param({quoted(view.param)}, {tuple_text([_python(d) for d in kind.shape])}, "{kind.dtype}")'
    array = read_dense(view.value, kind)
    if array.size > 1 and view.value.is_splat:
        number = _number_text(array.reshape(-1)[0].item())
        return f'R.const({number}, "{kind.dtype}", shape={tuple_text([str(d) for d in kind.static_shape])})'
    if 0 in array.shape:
        return f'R.const(0, "{kind.dtype}", shape={tuple_text([str(d) for d in kind.static_shape])})'
    return f'R.const({_nested(array.astype(object).tolist())}, "{kind.dtype}")'


def _nested(value: NestedNumbers) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return _number_text(value.item() if hasattr(value, "item") else value)


def _number_text(value: float) -> str:
    if isinstance(value, (bool, int)):
        return repr(value)
    number = float(value)
    return repr(number) if number - number == 0 else f'float("{number}")'


def _python(value: object) -> str:
    """Return an attribute's value as Python."""
    if isinstance(value, SymbolicDim):
        return quoted(str(value))
    if isinstance(value, DType):
        return quoted(value.name)
    if isinstance(value, (tuple, list)):
        return tuple_text([_python(item) for item in value])
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (bool, int)):
        return repr(value)
    raise NotPrintable(f"an attribute of type {type(value).__name__}")
