"""Import of a StableHLO program: one function `@main` of relax operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.stablehlo.body import ProgramImport
from mirlo.frontends.stablehlo.declared_names import load_converters
from mirlo.frontends.stablehlo.errors import StablehloImportError
from mirlo.frontends.stablehlo.parse import parse
from mirlo.frontends.stablehlo.parts import component_type, grouped, is_complex
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.params import ParameterStore


@dataclass(frozen=True)
class Interface:
    """What a program does not say itself: names of inputs and outputs, and dynamic dims with their names.

    The shapes are those of the program, without the last dim that complex inputs have in relax.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    shapes: Sequence[Sequence[D.Dim] | None] = ()


def import_stablehlo(
    content: bytes | str, name: str = "program", interface: Interface | None = None
) -> tuple[ir.Module, ParameterStore]:
    """Import a program given as text or portable bytecode; `name` is for errors.

    Raises `StablehloImportError`, which names the operation that is not supported.
    """
    load_converters()
    store = ParameterStore()
    with make_context(), ir.Location.file(name, 0, 0):
        source = parse(content, name)
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            _build_main(source, name, store, interface or Interface())
    return module, store


def _build_main(source: ir.Module, name: str, store: ParameterStore, interface: Interface) -> None:
    functions = {symbol_name(op): op.operation for op in source.body.operations if op.operation.name == "func.func"}
    entry = _entry(functions, name)
    block = entry.regions[0].blocks[0]
    body = ProgramImport(name, store, functions)
    names = _input_names(entry, block, interface)
    types = [_input_type(value, i, names[i], name, interface) for i, value in enumerate(block.arguments)]
    body.taken.update(symbol for found in types for dim in found.shape for symbol in D.symbols_of(dim))
    function = func.FuncOp("main", ([found.to_mlir() for found in types], []))
    inner = function.add_entry_block()
    with body.inside(inner):
        given = [
            part
            for value, argument in zip(block.arguments, inner.arguments, strict=True)
            for part in _parts(body, value.type, argument)
        ]
        body.calls.append(symbol_name(entry))
        try:
            result = _results(body, block, body.block(block, given, {}))
        except (UnsupportedOperation, OpError) as problem:
            raise StablehloImportError(f"{name}: {problem}") from None
        func.ReturnOp(result)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(function.type.inputs, [value.type for value in result])
    )
    outputs = _output_names(entry, len(result), interface)
    if names:
        function.arg_attrs = ir.ArrayAttr.get([_named(each) for each in names])
    if outputs:
        function.attributes["res_attrs"] = ir.ArrayAttr.get([_named(each) for each in outputs])


def _parts(body: ProgramImport, type_: ir.Type, argument: ir.Value) -> list[Tensor]:
    """Return an input as tensors: a complex one holds the real and the imaginary part in its last dim."""
    whole = body.tensor(argument)
    if not is_complex(type_):
        return [whole]
    return list(body.split_parts(whole))


def _results(body: ProgramImport, block: ir.Block, parts: Sequence[Tensor]) -> list[ir.Value]:
    """Return what the program returns; a complex result holds the real and the imaginary part in its last dim."""
    types = [value.type for value in block.operations[len(block.operations) - 1].operands]
    results = []
    for type_, given in zip(types, grouped(types, parts, "returns"), strict=True):
        if is_complex(type_):
            results.append(body.full(body.join_parts(*given)))
        elif len(given) == 1:
            results.append(body.full(given[0]))
        else:
            raise UnsupportedOperation(f"the program returns {type_}: return the tensors as results of their own")
    return results


def _entry(functions: dict[str, ir.Operation], name: str) -> ir.Operation:
    if "main" in functions:
        entry = functions["main"]
    else:
        public = [
            op for op in functions.values()
            if "sym_visibility" not in op.attributes or op.attributes["sym_visibility"].value == "public"
        ]  # fmt: skip
        if len(public) != 1:
            listed = ", ".join(f"@{each}" for each in functions) or "none"
            raise StablehloImportError(f"{name}: expected a function @main, found {listed}")
        entry = public[0]
    if len(entry.regions[0].blocks) != 1:
        raise StablehloImportError(f"{name}: the entry function has no body of one block")
    return entry


def _input_type(value: ir.Value, index: int, named: str, name: str, interface: Interface) -> TensorType:
    component = component_type(value.type)
    if component is not None:
        tensor_type = component.with_shape((*component.shape, 2))
    else:
        plain = TensorType.from_mlir(value.type)
        if plain is None:
            raise StablehloImportError(
                f"{name}: input '{named}' is {value.type}: expected a tensor of numbers or bools"
            )
        tensor_type = plain
    given = interface.shapes[index] if index < len(interface.shapes) else None
    if given is not None and component is not None:
        given = (*given, 2)
    if given is not None:
        return tensor_type.with_shape(tuple(given))
    base = named if D.is_symbol_name(named) else f"input{index}"
    dims = [D.symbol(f"{base}_{i}") if not isinstance(dim, int) else dim for i, dim in enumerate(tensor_type.shape)]
    return tensor_type.with_shape(dims)


def _input_names(entry: ir.Operation, block: ir.Block, interface: Interface) -> list[str]:
    if interface.inputs:
        return list(interface.inputs)
    found = [
        _text_attribute(entry, "arg_attrs", i, "mlir.name", "tf_saved_model.index_path")
        for i in range(len(block.arguments))
    ]
    names = [text or f"arg{i}" for i, text in enumerate(found)]
    return names if len(set(names)) == len(names) else [f"arg{i}" for i in range(len(names))]


def _output_names(entry: ir.Operation, count: int, interface: Interface) -> list[str]:
    if interface.outputs:
        return list(interface.outputs)
    found = [_text_attribute(entry, "res_attrs", i, "jax.result_info", "mlir.name") for i in range(count)]
    names = [text or f"result{i}" for i, text in enumerate(found)]
    return names if len(set(names)) == len(names) else [f"result{i}" for i in range(count)]


def _text_attribute(entry: ir.Operation, which: str, index: int, *names: str) -> str | None:
    """Return an attribute of an argument or result that is a text."""
    if which not in entry.attributes:
        return None
    held = ir.ArrayAttr(entry.attributes[which])[index]
    if not isinstance(held, ir.DictAttr):
        return None
    for name in names:
        if name in held and isinstance(held[name], ir.StringAttr) and held[name].value:
            return str(held[name].value)
    return None


def _named(name: str) -> ir.Attribute:
    return ir.DictAttr.get({"relax.name": ir.StringAttr.get(name)})
