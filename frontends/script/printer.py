"""`script_of`: prints IR of graphs and prim functions as script that parses to the same IR."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import NAMES, PRIM_FUNC, PrimView, is_prim_func, is_tensor_form
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.module import parse_script
from mirlo.frontends.script.prim import names_of_script
from mirlo.frontends.script.print_buffer import print_buffer_form
from mirlo.frontends.script.print_graph import print_graph
from mirlo.frontends.script.print_scalar import NotPrintable, quoted
from mirlo.frontends.script.print_tensor import INDENT, names_in_script, print_tensor_form
from mirlo.frontends.script.same import same_ir

HEADER = "import mirlo\nfrom mirlo import R, T\n"
_PRINTED_ATTRIBUTES = (
    PRIM_FUNC,
    "sym_name",
    "sym_visibility",
    "function_type",
    "arg_attrs",
    "res_attrs",
    "tir.workspace",
    NAMES,
)


def script_of(thing: ir.Module | ir.OpView | ir.Operation) -> str:
    """Return a module or a function as script.

    Each function is parsed again to verify that it is the same; one that differs, or has operations without script
    syntax, is embedded as MLIR text in `T.mlir(...)`.
    """
    op = thing.operation
    with op.context, ir.Location.unknown():
        if op.name == "builtin.module":
            return _module(op)
        if op.name == "func.func":
            lines = _Printer({}, {}).function(op, "")
            return "\n".join([HEADER, "", *lines]) + "\n"
    raise ScriptError(f"script_of takes a module or a function, got '{op.name}'")


def _module(op: ir.Operation) -> str:
    members = [o.operation for o in op.regions[0].blocks[0].operations]
    names: dict[str, str] = {}
    for member in members:
        symbol = symbol_name(member)
        if symbol:
            names[symbol] = _identifier(symbol, set(names.values()))
    calls = _calls_of(members)
    printer = _Printer(names, calls)
    attributes = _attribute_texts(op, ())
    lines = [f"@mirlo.script(attrs={{{', '.join(attributes)}}})" if attributes else "@mirlo.script", "class Module:"]
    for i, member in enumerate(members):
        lines += [""] * (i > 0) + [f"{INDENT}{line}" if line else "" for line in printer.function(member, "T.")]
    if not members:
        lines.append(f"{INDENT}pass")
    return "\n".join([HEADER, "", *lines]) + "\n"


def _identifier(symbol: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", symbol)
    name = f"_{name}" if name[:1].isdigit() or not name else name
    while keyword.iskeyword(name) or name in taken or name in ("T", "R", "mirlo"):
        name += "_"
    return name


def _calls_of(members: list[ir.Operation]) -> dict[str, list[ir.Operation]]:
    """Return the calls of prim functions in a graph, by their symbols."""
    calls: dict[str, list[ir.Operation]] = defaultdict(list)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "relax.call_tir":
            calls[op.opview.callee].append(op)
        return ir.WalkResult.ADVANCE

    for member in members:
        walk(member, visit)
    return calls


def _require_shapes(function: ir.Operation, call: ir.Operation) -> None:
    """Require that the buffers of a prim function have the shapes of the tensors: scripts have no views of these."""
    buffers = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    tensors = [value.type for value in (*call.operands, *call.results)]
    for buffer, tensor in zip(buffers, tensors, strict=False):
        is_pair = isinstance(buffer, ir.MemRefType) and isinstance(tensor, ir.RankedTensorType)
        if is_pair and list(buffer.shape) != list(tensor.shape):
            raise NotPrintable(f"a buffer {buffer} of a tensor {tensor}")


class _Printer:
    def __init__(self, names: dict[str, str], calls: Mapping[str, list[ir.Operation]]):
        self.names = names
        self.calls = calls

    def function(self, op: ir.Operation, prefix: str) -> list[str]:
        """Return a definition with its decorator, or MLIR text."""
        symbol = symbol_name(op)
        name = self.names.get(symbol) or _identifier(symbol or "ir", set())
        try:
            if op.name != "func.func" or not len(op.regions[0].blocks) or len(op.regions[0].blocks) != 1:
                raise NotPrintable(f"'{op.name}'")
            if is_prim_func(op):
                return self._prim(op, symbol, name, prefix)
            lines = [self._decorator(op, "R.function", symbol, name), *print_graph(op, name, self.names)]
            return lines if prefix else [line.replace("@R.function", "@mirlo.script") for line in lines]
        except NotPrintable:
            return _mlir_lines(op, name)

    def _prim(self, op: ir.Operation, symbol: str, name: str, prefix: str) -> list[str]:
        tensors = is_tensor_form(op)
        calls = self.calls.get(symbol, [])
        for call in [] if tensors else calls:
            _require_shapes(op, call)
        inputs = len(calls[-1].operands) if calls else None
        body = print_tensor_form(op, name) if tensors else print_buffer_form(op, name, inputs)
        decorator = self._decorator(
            op, "T.prim_func", symbol, name, () if tensors else ("buffers=True",), _names_text(op)
        )
        lines = [decorator if prefix else decorator.replace("@T.", "@mirlo."), *body]
        try:
            # Use a new context, so that the result does not depend on the current one.
            again = parse_script("\n".join(lines))
        except ScriptError as error:
            raise NotPrintable(str(error)) from None
        function = again.body.operations[0]
        with again.context:
            text = op.get_asm(assume_verified=True, print_generic_op_form=True)
            original = ir.Operation.parse(text)
            if not same_ir(original, function):
                raise NotPrintable("its script parses to something else")
        return lines

    def _decorator(
        self, op: ir.Operation, keyword: str, symbol: str, name: str, options: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        parts = list(options)
        if symbol != name:
            parts.append(f"name={quoted(symbol)}")
        private = (
            "sym_visibility" in op.attributes and ir.StringAttr(op.attributes["sym_visibility"]).value == "private"
        )
        if private != is_prim_func(op):
            if is_prim_func(op):
                raise NotPrintable("a prim function that is public")
            parts.append("private=True")
        attributes = [*_attribute_texts(op, _PRINTED_ATTRIBUTES), *texts]
        if attributes:
            parts.append(f"attrs={{{', '.join(attributes)}}}")
        return f"@{keyword}({', '.join(parts)})" if parts else f"@{keyword}"


def _names_text(op: ir.Operation) -> tuple[str, ...]:
    """Return the attribute with the names of a prim function's buffers, where its script has other names."""
    attribute = op.attributes[NAMES] if NAMES in op.attributes else ir.ArrayAttr.get([])
    if is_tensor_form(op):
        view = PrimView(op)
        names = names_of_script(view, names_in_script(view))
        written = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names] if any(names) else [])
    else:
        written = ir.ArrayAttr.get([])
    return () if attribute == written else (f"{quoted(NAMES)}: {quoted(str(attribute))}",)


def _attribute_texts(op: ir.Operation, printed: tuple[str, ...]) -> list[str]:
    texts = []
    for i in range(len(op.attributes)):
        named = op.attributes[i]
        if named.name not in printed:
            texts.append(f"{quoted(named.name)}: {quoted(str(named.attr))}")
    return texts


def _mlir_lines(op: ir.Operation, name: str) -> list[str]:
    text = op.get_asm(assume_verified=True, use_local_scope=True)
    if op.name == "builtin.module":
        text = f"module {{\n{text}\n}}"  # the outermost module of a text is that of the script
    if '"""' in text or "\\" in text:
        return [f"{name} = T.mlir({text!r})"]
    lines = text.splitlines()
    return [f'{name} = T.mlir("""', *lines, '""")']
