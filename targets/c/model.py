"""A planned module as C: its kernels, the function that calls them, and the entry function of `mirlo.h`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, passmanager
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.code_forms import KernelText
from mirlo.passes.locations import kernel_nodes
from mirlo.passes.memory import packed
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, POLL, SIZES_SUFFIX, SLOT, TICK
from mirlo.passes.registry import PassError
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.runtime.records import dataclass
from mirlo.targets.c.calls import packed_text, run_time_texts
from mirlo.targets.c.halves import is_half
from mirlo.targets.c.helpers import HELPED, HELPED_WRAPPING, helpers_of
from mirlo.targets.c.loops import FunctionPrinter
from mirlo.targets.c.printer import Printer, uses
from mirlo.targets.c.scalars import ScalarError, c_scalar, constant_value
from mirlo.targets.planned import planned_entry

if TYPE_CHECKING:
    from mirlo.targets.c.processor import CProcessor

ENTRY = "mirlo_entry"
TIDYING = "builtin.module(func.func(lower-affine,canonicalize,cse))"
INCLUDES = ("math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h")
BIG_ENDIAN = """#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || defined(__BIG_ENDIAN__)
#error "this model is for little-endian processors: its weights and its kernels have that order of bytes"
#endif
"""
STANDARD = BIG_ENDIAN + "".join(f"#include <{name}>\n" for name in INCLUDES)
"""The start of each file: the headers of C that kernels need, none of which reads or writes files."""
HEAD = STANDARD + '\n#include "mirlo.h"\n'
NUMBERS_PER_LINE = 12
SIZES_COMMENT = (
    "/* Checks the dims of the inputs in the call record, and computes the sizes that follow from them. */\n"
)


@dataclass(frozen=True)
class ModelText:
    """The functions of a planned module as C."""

    externs: tuple[str, ...]
    """Prototypes of C functions that kernels call, other than those of math.h."""
    run_time: tuple[str, ...]
    """Functions that every model with data-dependent sizes has."""
    functions: tuple[str, ...]
    """The constants, the kernels, `model_sizes` where sizes are dynamic, and `model_run`."""
    kernels: tuple[KernelText, ...]
    """The text of each kernel, and of the function that calls them."""
    has_sizes: bool
    is_profiled: bool

    @property
    def text(self) -> str:
        """Return static functions, of which `ENTRY` is the one that programs call."""
        return join_texts([*self.externs, *self.run_time, *self.functions, _entry(self.has_sizes, self.is_profiled)])


def join_texts(texts: Sequence[str]) -> str:
    """Return the text of several functions, each once, after the helpers that they call."""
    text = "\n".join(dict.fromkeys(texts))
    return "\n".join(filter(None, [helpers_of(text), text]))


def print_model(
    module: ir.Module, prefix: str = "", places: Mapping[str, int] | None = None, processor: CProcessor | None = None
) -> ModelText:
    """Print a planned module, which is consumed.

    `prefix` starts the names of functions; `places` are the places of parameters in the table of weights, which are
    otherwise in the order of the module. `processor` is the one without an operating system that runs the code.
    """
    nodes = kernel_nodes(module)
    passmanager.PassManager.parse(TIDYING).run(module.operation)
    try:
        return _ModelPrinter(module, nodes, prefix, places, processor).run()
    except ScalarError as error:
        raise PassError(f"the model has no C text: {error}") from None


@dataclass
class _ModelPrinter:
    module: ir.Module
    nodes: Mapping[str, Sequence[str]]
    prefix: str
    places: Mapping[str, int] | None
    processor: CProcessor | None

    def run(self) -> ModelText:
        main = planned_entry(self.module)
        name, prefix = symbol_name(main), self.prefix
        operations = {symbol_name(op.operation): op.operation for op in self.module.body.operations}
        sizes = operations.get(name + SIZES_SUFFIX)
        prims = [op for op in _callees_first(main, operations) if is_prim_func(op) and op is not sizes]
        functions = {symbol_name(op): f"{prefix}kernel_{c_identifier(symbol_name(op))}" for op in prims}
        functions |= {n: n for n in (ALLOCATE, CHECK, GROW, SLOT, POLL, TICK) if n in operations}
        calls = [op for op in operations.values() if packed.TYPES in op.attributes]
        functions |= {symbol_name(op): f"{prefix}call{i}" for i, op in enumerate(calls)}
        globals_ = {n: op for n, op in operations.items() if op.name == "memref.global"}
        constants = dict(zip(globals_, (f"{prefix}constant{i}" for i in count()), strict=False))
        texts = [_constant(op, constants[n]) for n, op in globals_.items()]
        names = packed.names_called(main)
        texts += [packed_text(op, functions[symbol_name(op)], names) for op in calls]
        externs: dict[str, None] = {}
        kernels: list[KernelText] = []
        for op in prims:
            printed = self._kernel(op, functions)
            externs.update(dict.fromkeys(printed.externs))
            texts.append(printed.comment + printed.text)
            kernels.append(_kernel_text(functions[symbol_name(op)], symbol_name(op), printed))
        if sizes is not None:
            printer = _HostPrinter(
                functions=functions, constants=constants, expressions=HELPED, wrapping=HELPED_WRAPPING
            )
            texts.append(_printed(printer, sizes, self._sizes))
        host = _HostPrinter(functions=functions, constants=constants, expressions=HELPED, wrapping=HELPED_WRAPPING)
        texts.append(_printed(host, main, self._main))
        kernels.insert(0, KernelText(f"{prefix}model_run", name, texts[-1].encode()))
        externs.update(dict.fromkeys(host.externs.values()))
        run_time = run_time_texts(operations, _record_words(main))
        return ModelText(
            tuple(externs), tuple(run_time), tuple(texts), tuple(kernels), sizes is not None, TICK in operations
        )

    def _kernel(self, op: ir.Operation, functions: Mapping[str, str]) -> _Printed:
        name = symbol_name(op)
        try:
            printer = FunctionPrinter(
                functions=functions,
                restrict=True,
                stored="y",
                read="x",
                scratch="int8_t *",
                index="int32_t" if self.processor is not None else "int64_t",
                included=self.processor.functions if self.processor is not None else (),
                expressions=HELPED,
                wrapping=HELPED_WRAPPING,
            ).run(op, functions[name], 0)
        except ScalarError as error:
            raise PassError(f"kernel '{name}' has no C text: {error}", op.location) from None
        listed = "".join(f"\n * node {c_comment(node)}" for node in self.nodes.get(name, ()))
        return _Printed(f"/* kernel {c_comment(name)}{listed} */\n", f"static {printer.text}", printer.externs)

    def _sizes(self, printer: _HostPrinter, function: ir.Operation) -> str:
        block = function.regions[0].blocks[0]
        printer.names[block.arguments[0]] = "record"
        printer.body(block)
        return f"{SIZES_COMMENT}static void {self.prefix}model_sizes(int64_t *record)"

    def _main(self, printer: _HostPrinter, function: ir.Operation) -> str:
        block = function.regions[0].blocks[0]
        _declare_arguments(printer, function, self.places)
        printer.body(block)
        profile = ", int64_t *profile" if _is_profiled(self.module) else ""
        return f"static void {self.prefix}model_run(void **tensors, void **params, int8_t *arena{profile})"


@dataclass(frozen=True)
class _Printed:
    comment: str
    text: str
    externs: tuple[str, ...]


def _kernel_text(symbol: str, name: str, printed: _Printed) -> KernelText:
    """Return the text of a kernel for readers: with the functions that it calls, without a comment."""
    parts = [*printed.externs, helpers_of(printed.text), printed.text]
    return KernelText(symbol, name, "\n".join(filter(None, parts)).encode())


@dataclass
class _HostPrinter(Printer):
    """The printer of the function that calls the kernels, and of the one that computes sizes."""

    constants: Mapping[str, str] = field(default_factory=dict)
    """The C names of the module's constants."""

    @cached_property
    def statements(self) -> Mapping[str, Callable[[ir.Operation], None]]:
        """Return the printers of operations that are not expressions; see `Printer`."""
        return {**super().statements, "func.call": self.host_call, "memref.get_global": self.get_global}

    def host_call(self, op: ir.Operation) -> None:
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        if callee not in self.functions:
            raise ScalarError(f"it calls '{callee}', which the module does not have")
        arguments = [self.argument(value) for value in op.operands]
        text = f"{self.functions[callee]}({', '.join(arguments)})"
        if not len(op.results):
            self.line(f"{text};")
        elif isinstance(op.results[0].type, ir.MemRefType):
            name = self.fresh()
            self.names[op.results[0]] = name
            self.line(f"int8_t *{name} = {text};")
            if callee != SLOT:
                self.line(f"if (!{name}) return;")
            elif not uses(op.results[0]):
                self.line(f"(void){name};")
        else:
            self.line(f"if ({text}) return;")

    def get_global(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["name"]).value
        self.names[op.results[0]] = f"(({self.element(op.results[0].type)} *){self.constants[name]})"

    def argument(self, value: ir.Value) -> str:
        """Return an argument of a call: pointers have the type of the buffer."""
        return self.names[value] if isinstance(value.type, ir.MemRefType) else super().argument(value)


def _printed(printer: _HostPrinter, function: ir.Operation, body: Callable[[_HostPrinter, ir.Operation], str]) -> str:
    try:
        head = body(printer, function)
    except ScalarError as error:
        raise PassError(f"the function of the model has no C text: {error}", function.location) from None
    lines = "".join(f"{line}\n" for line in printer.used_lines())
    return f"{head} {{\n{lines}}}\n"


def _declare_arguments(printer: _HostPrinter, main: ir.Operation, places: Mapping[str, int] | None) -> None:
    """Declare the tensors, weights and tables that the function uses as pointers, each with its name as a comment."""
    inputs, outputs = (ir.IntegerAttr(main.attributes[f"relax.{n}"]).value for n in ("inputs", "outputs"))
    block = main.regions[0].blocks[0]
    printer.lines += ["  (void)tensors;", "  (void)params;", "  (void)arena;"]
    entries = ir.ArrayAttr(main.attributes["arg_attrs"])
    params = sum("relax.param" in ir.DictAttr(entry) for entry in entries)
    for i, (argument, entry) in enumerate(zip(block.arguments, entries, strict=True)):
        facts = ir.DictAttr(entry)
        if "relax.arena" in facts or not len(facts):
            printer.names[argument] = "arena" if len(facts) else "profile"
            continue
        if packed.FUNCTIONS in facts:
            printer.names[argument] = f"(params + {params})"
            continue
        if packed.RECORD in facts:
            printer.names[argument] = "record"
            if uses(argument):
                printer.line(f"int64_t *record = (int64_t *)tensors[{inputs + outputs}];")
            continue
        number = i - inputs - outputs
        if number >= 0 and places is not None:
            number = places[ir.StringAttr(facts["relax.param"]).value]
        name = f"input{i}" if i < inputs else f"output{i - inputs}" if number < 0 else f"weight{number}"
        place = f"tensors[{i}]" if number < 0 else f"params[{number}]"
        printer.names[argument] = name
        if uses(argument):
            kind = printer.element(argument.type)
            printer.line(f"{kind} *{name} = ({kind} *){place}; /* {_described(facts)} */")


def _described(facts: ir.DictAttr) -> str:
    key = "relax.name" if "relax.name" in facts else "relax.param"
    tensor = TensorType.from_mlir(ir.TypeAttr(facts["relax.type"]).value)
    return c_comment(f"{ir.StringAttr(facts[key]).value}: {tensor}")


def _entry(has_sizes: bool, is_profiled: bool) -> str:
    ask = """  if (!tensors) { /* only sizes are wanted */
    model_sizes((int64_t *)arena);
    return;
  }
"""
    lines = [
        f"static void {ENTRY}(void **tensors, void **params, void *arena, uint64_t *profile) {{\n",
        "" if is_profiled else "  (void)profile;\n",
        ask if has_sizes else "",
        f"  model_run(tensors, params, (int8_t *)arena{', (int64_t *)profile' if is_profiled else ''});\n}}\n",
    ]
    return "".join(lines)


def _is_profiled(module: ir.Module) -> bool:
    return any(symbol_name(op.operation) == TICK for op in module.body.operations)


def _record_words(main: ir.Operation) -> int:
    """Return the number of words of the call record; 0 if there is none."""
    block = main.regions[0].blocks[0]
    for argument, entry in zip(block.arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True):
        if packed.RECORD in ir.DictAttr(entry):
            return int(argument.type.shape[0])
    return 0


def _constant(op: ir.Operation, name: str) -> str:
    """Return the definition of a constant of the module."""
    kind = ir.TypeAttr(op.attributes["type"]).value
    element = kind.element_type
    dtype = dtype_of_mlir(element)
    if dtype is None:
        raise PassError(f"the constant '{symbol_name(op)}' has elements of type {element}")
    array = read_dense(op.attributes["initial_value"], TensorType(tuple(kind.shape), dtype))
    listed = [constant_value(value, element) for value in array.reshape(-1).tolist()]
    if is_half(element):  # an initializer has no compound literals
        listed = [value.partition(")")[2] for value in listed]
    rows = [", ".join(listed[i : i + NUMBERS_PER_LINE]) for i in range(0, len(listed), NUMBERS_PER_LINE)]
    inside = ",\n  ".join(rows) or "0"
    return f"static const {c_scalar(element)} {name}[{max(array.size, 1)}] = {{\n  {inside}}};\n"


def _callees_first(root: ir.Operation, operations: Mapping[str, ir.Operation]) -> list[ir.Operation]:
    """Return the functions that a function calls, those that are called by others before them."""
    ordered: dict[str, ir.Operation] = {}

    def visit(op: ir.Operation) -> None:
        called: list[str] = []

        def note(inner: ir.Operation) -> ir.WalkResult:
            if inner.name == "func.call":
                called.append(ir.FlatSymbolRefAttr(inner.attributes["callee"]).value)
            return ir.WalkResult.ADVANCE

        walk(op, note, ir.WalkOrder.PRE_ORDER)
        for name in called:
            callee = operations.get(name)
            if callee is not None and name not in ordered and len(callee.regions[0].blocks):
                visit(callee)
                ordered[name] = callee

    visit(root)
    return list(ordered.values())
