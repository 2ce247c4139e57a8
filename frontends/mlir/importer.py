"""Import of a program: one function `@main` of relax operators, with the names of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry, named_value, symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.mlir.body import ProgramImport
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.callbacks import Expected, checked
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Interface:
    """The interface that a program does not state itself: names of inputs and outputs, and names of dynamic dims.

    The shapes are those of the program, without dims that only relax has.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    shapes: Sequence[Sequence[D.Dim] | None] = ()


_IMPORT = Expected("a ProgramImport", lambda value: isinstance(value, ProgramImport))


def import_program(
    source: ir.Module,
    name: str,
    interface: Interface,
    start: Callable[[str, ParameterStore, dict[str, ir.Operation]], ProgramImport],
) -> tuple[ir.Module, ParameterStore]:
    """Import a module of the current context; `name` is for errors."""
    store = ParameterStore()
    with ir.Location.file(name, 0, 0):
        module = ir.Module.create()
        functions = {symbol_name(op): op.operation for op in source.body.operations if op.operation.name == "func.func"}
        with ir.InsertionPoint(module.body):
            begun = checked(start, _IMPORT, name, UnsupportedOperation)(name, store, functions)
            _build_main(begun, interface)
    return module, store


def _build_main(body: ProgramImport, interface: Interface) -> None:
    entry = _entry(body)
    block = entry.regions[0].blocks[0]
    names = _names(entry, "inputs", len(block.arguments), interface.inputs, body.INPUT_NAMES)
    types = [_input_type(body, value, i, names[i], interface) for i, value in enumerate(block.arguments)]
    states = body.states
    body.taken.update(symbol for type_ in types for dim in type_.shape for symbol in D.symbols_of(dim))
    try:
        own = [body.own_input(entry, i, type_) for i, type_ in enumerate(types)]
    except UnsupportedOperation as problem:
        raise body.ERROR(f"{body.name}: an input {problem}") from None
    function = func.FuncOp(ENTRY_NAME, ([type_.to_mlir() for type_ in (*own, *states.values())], []))
    mark_entry(function)
    inner = function.add_entry_block()
    with body.inside(inner):
        arguments = list(map(body.tensor, inner.arguments))
        body.variables.update(zip(states, arguments[len(types) :], strict=True))
        parts = [
            part
            for i, (value, argument) in enumerate(zip(block.arguments, arguments[: len(types)], strict=True))
            for part in body.input_parts(value.type, body.whole_input(entry, i, types[i], argument))
        ]
        body.calls.append(symbol_name(entry))
        try:
            result = _results(body, entry, body.block(block, parts, {}))
        except (UnsupportedOperation, OpError) as problem:
            raise body.ERROR(f"{body.name}: {problem}") from None
        result += [body.full(body.variables[name]) for name in states]
        func.ReturnOp(result)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(function.type.inputs, [value.type for value in result])
    )
    outputs = _names(entry, "outputs", len(result) - len(states), interface.outputs, body.OUTPUT_NAMES)
    outputs = [*outputs, *states]
    names = [*names, *states]
    if names:
        function.arg_attrs = ir.ArrayAttr.get([named_value(each) for each in names])
    if outputs:
        function.attributes["res_attrs"] = ir.ArrayAttr.get([named_value(each) for each in outputs])


def _results(body: ProgramImport, entry: ir.Operation, parts: Sequence[Tensor]) -> list[ir.Value]:
    """Return what the program returns."""
    block = entry.regions[0].blocks[0]
    types = [value.type for value in block.operations[len(block.operations) - 1].operands]
    grouped = body.grouped(types, parts, "returns")
    results = [body.result(type_, each) for type_, each in zip(types, grouped, strict=True)]
    return [body.full(body.own_result(entry, i, result)) for i, result in enumerate(results)]


def _entry(body: ProgramImport) -> ir.Operation:
    functions = body.functions
    if ENTRY_NAME in functions:
        entry = functions[ENTRY_NAME]
    else:
        public = [
            op for op in functions.values()
            if "sym_visibility" not in op.attributes or op.attributes["sym_visibility"].value == "public"
        ]  # fmt: skip
        if len(public) != 1:
            listed = ", ".join(f"@{each}" for each in functions) or "none"
            raise body.ERROR(f"{body.name}: expected a function @main, found {listed}")
        entry = public[0]
    if len(entry.regions[0].blocks) != 1:
        raise body.ERROR(f"{body.name}: the entry function has no body of one block")
    return entry


def _input_type(body: ProgramImport, value: ir.Value, index: int, named: str, interface: Interface) -> TensorType:
    type_ = body.input_type(value.type)
    if type_ is None:
        raise body.ERROR(f"{body.name}: input '{named}' is {value.type}: expected a tensor of numbers or bools")
    shape = interface.shapes[index] if index < len(interface.shapes) else None
    if shape is not None:
        return type_.with_shape((*shape, *type_.shape[len(shape) :]))
    base = named if D.is_symbol_name(named) else f"input{index}"
    dims = [D.symbol(f"{base}_{i}") if not isinstance(dim, int) else dim for i, dim in enumerate(type_.shape)]
    return type_.with_shape(dims)


def _names(entry: ir.Operation, which: str, count: int, stated: Sequence[str], attributes: Sequence[str]) -> list[str]:
    """Return the names of the inputs or outputs: those that the caller states, or those of the program."""
    if stated:
        return list(stated)
    held, base = {"inputs": ("arg_attrs", "arg"), "outputs": ("res_attrs", "result")}[which]
    listed, plain = _listed(entry, which, count), [f"{base}{i}" for i in range(count)]
    names = [_text_attribute(entry, held, i, attributes) or listed[i] or plain[i] for i in range(count)]
    return names if len(set(names)) == count else plain


def _listed(entry: ir.Operation, which: str, count: int) -> list[str | None]:
    """Return the names that TensorFlow's attribute of the function lists: `serving_default_x:0` is `x`."""
    held = entry.attributes.get("tf.entry_function", None)
    if not isinstance(held, ir.DictAttr) or which not in held or not isinstance(held[which], ir.StringAttr):
        return [None] * count
    names = [name.removeprefix("serving_default_").partition(":")[0] for name in held[which].value.split(",")]
    return list(names) if len(names) == count else [None] * count


def _text_attribute(entry: ir.Operation, which: str, index: int, names: Sequence[str]) -> str | None:
    """Return an attribute of an argument or result that is a text, or a list of one text."""
    if which not in entry.attributes:
        return None
    held = ir.ArrayAttr(entry.attributes[which])[index]
    if not isinstance(held, ir.DictAttr):
        return None
    for name in names:
        if name not in held:
            continue
        value = held[name]
        if isinstance(value, ir.ArrayAttr) and len(value) == 1:
            value = value[0]
        if isinstance(value, ir.StringAttr) and value.value:
            return str(value.value)
    return None
