"""Prim functions as C: loops and scalar operations over plain pointers.

A function in tensor form is scheduled, loops and intrinsics are lowered by the rules of target `c`, and what remains
is printed, one statement an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir, passmanager
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import c_identifier
from mirlo.targets.c.intrinsics import MATH
from mirlo.targets.c.scalars import EXPRESSIONS, ScalarError, c_scalar, constant_text
from mirlo.targets.c.types import symbol_name

if TYPE_CHECKING:
    from mirlo.passes.byoc.prim_view import ExternalPrim

LOWERING = "schedule{target=c},lower-loops,lower-intrinsics{target=c}"
COPY = "mirlo.copy"
TIDYING = "builtin.module(lower-affine,canonicalize,cse)"


class CLoopsError(MirloError, ValueError):
    """A prim function that has no C text: it is vectorized, or bound to hardware."""


@dataclass(frozen=True)
class CParameter:
    """A parameter of a C function."""

    name: str
    type: str
    """The C type, such as `const float *`."""
    kind: str
    """`input`, `output`, `workspace` or `size`."""
    symbol: str | None = None
    """For a size, the dim that it is the value of: a symbol, or a quotient of one that the dims of operands have."""

    def __str__(self) -> str:
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class CFunctionText:
    """A prim function as C."""

    name: str
    parameters: tuple[CParameter, ...]
    """Inputs, outputs, the workspace where there is one, and the values of dynamic dims."""
    text: str
    """The definition."""
    workspace: Dim
    """Bytes of scratch memory that the caller provides."""
    externs: tuple[str, ...] = ()
    """Prototypes of the C functions that it calls, other than those of math.h."""

    @property
    def declaration(self) -> str:
        """Return the declaration without a semicolon."""
        return f"void {self.name}({', '.join(map(str, self.parameters)) or 'void'})"


def c_function(prim: ExternalPrim | ir.Operation, name: str = "") -> CFunctionText:
    """Return a prim function as C, under a name of its own or the function's."""
    operation = prim if isinstance(prim, ir.Operation) else prim.operation.operation
    symbol = c_identifier(name or ir.StringAttr(operation.attributes["sym_name"]).value)
    with operation.context, operation.location:
        module, function = _lowered(operation)
        try:
            return _Printer(function, symbol, module).run(_result_count(operation))
        except ScalarError as error:
            raise CLoopsError(f"prim function '{symbol}' has no C text: {error}") from None


def _result_count(operation: ir.Operation) -> int:
    return len(ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value).results)


def _lowered(operation: ir.Operation) -> tuple[ir.Module, ir.Operation]:
    """Return a module with a lowered copy of a prim function, and the copy."""
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session

    module = ir.Module.create(operation.location)
    clone = operation.clone(ip=ir.InsertionPoint(module.body))
    clone.operation.attributes["sym_name"] = ir.StringAttr.get(COPY)  # its own may be that of a C function
    Pipeline(LOWERING).run(module, Session())
    passmanager.PassManager.parse(TIDYING).run(module.operation)
    functions = {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation for op in module.body.operations
    }
    return module, functions[COPY]


@dataclass
class _Printer:
    """The printer of one function in buffer form."""

    function: ir.Operation
    symbol: str
    owner: ir.Module
    """The module that keeps the function alive."""
    lines: list[str] = field(default_factory=list)
    names: dict[ir.Value, str] = field(default_factory=dict)
    """The C expression of each value: a variable, or a constant."""
    externs: dict[str, str] = field(default_factory=dict)
    depth: int = 1
    count: int = 0
    loops: int = 0

    def run(self, results: int) -> CFunctionText:
        """Return the text; `results` is the number of outputs of the tensor form."""
        block = self.function.regions[0].blocks[0]
        symbols = symbols_of_function(self.function.opview)
        workspace = workspace_of(self.function.opview)
        buffers = len(block.arguments) - len(symbols) - (workspace != 0)
        parameters = []
        for i, argument in enumerate(block.arguments):
            if i < buffers:
                parameters.append(self._buffer(i, argument, buffers, results))
            elif i == buffers and workspace != 0:
                parameters.append(CParameter("workspace", "char *", "workspace"))
            else:
                symbol = str(symbols[i - len(block.arguments) + len(symbols)])
                parameters.append(CParameter(symbol_name(symbol), "int64_t", "size", symbol))
            self.names[argument] = parameters[-1].name
        self._body(block)
        made = CFunctionText(self.symbol, tuple(parameters), "", workspace, tuple(self.externs.values()))
        text = f"{made.declaration} {{\n" + "".join(f"{line}\n" for line in self.lines) + "}\n"
        return CFunctionText(made.name, made.parameters, text, made.workspace, made.externs)

    def _buffer(self, number: int, argument: Any, buffers: int, results: int) -> CParameter:
        kind = self._element(argument.type)
        # A function written over buffers does not say which are outputs: those that it stores to.
        is_output = number >= buffers - results if results else _is_stored(argument)
        if is_output:
            return CParameter(f"y{number - (buffers - results)}" if results else f"b{number}", f"{kind} *", "output")
        return CParameter(f"x{number}" if results else f"b{number}", f"const {kind} *", "input")

    # ------------------------------------------------------------------------------------------------- statements

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _body(self, block: ir.Block) -> ir.Operation:
        """Print the operations of a block; return its terminator."""
        *operations, last = [op.operation for op in block.operations]
        for op in operations:
            self._operation(op)
        return last

    def _nested(self, block: ir.Block) -> ir.Operation:
        self.depth += 1
        last = self._body(block)
        self.depth -= 1
        return last

    def _operation(self, op: ir.Operation) -> None:
        statement = _STATEMENTS.get(op.name)
        if statement is not None:
            statement(self, op)
            return
        if op.name == "arith.constant":
            self.names[op.results[0]] = constant_text(op)
            return
        if len(op.regions) or len(op.results) != 1 or op.name not in EXPRESSIONS:
            raise ScalarError(f"it has the operation '{op.name}'")
        text = EXPRESSIONS[op.name](op, [self.names[value] for value in op.operands])
        if isinstance(op.results[0].type, ir.IndexType) and _uses(op.results[0]) == 1:
            self.names[op.results[0]] = f"({text})"  # an index that is used once needs no variable
        else:
            self._define(op.results[0], text)

    def _define(self, value: ir.Value, text: str) -> None:
        name = self._fresh()
        self.names[value] = name
        self.line(f"const {c_scalar(value.type)} {name} = {text};")

    def _declare(self, values: Sequence[ir.Value], start: Sequence[str] = ()) -> list[str]:
        """Declare variables that are assigned later."""
        made = []
        for i, value in enumerate(values):
            name = self._fresh()
            made.append(name)
            self.line(f"{c_scalar(value.type)} {name}{f' = {start[i]}' if start else ''};")
        return made

    def _assign(self, variables: Sequence[str], values: Sequence[ir.Value]) -> None:
        """Assign values to variables, all at once."""
        texts = [self.names[value] for value in values]
        for i, (value, text) in enumerate(zip(values, texts, strict=True)):
            if text in variables and text != variables[i]:
                texts[i] = self._fresh()
                self.line(f"const {c_scalar(value.type)} {texts[i]} = {text};")
        for name, text in zip(variables, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def _fresh(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def _for(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        low, high, step, *start = (self.names[value] for value in op.operands)
        carried = self._declare(op.results, start)
        at = f"i{self.loops}"
        self.loops += 1
        self.names[block.arguments[0]] = at
        self.names.update(zip(list(block.arguments)[1:], carried, strict=True))
        self.line(f"for (int64_t {at} = {low}; {at} < {high}; {at} += {step}) {{")
        last = self._nested(block)
        self.depth += 1
        self._assign(carried, last.operands)
        self.depth -= 1
        self.line("}")
        self.names.update(zip(op.results, carried, strict=True))

    def _if(self, op: ir.Operation) -> None:
        made = self._declare(op.results)
        self.names.update(zip(op.results, made, strict=True))
        self.line(f"if ({self.names[op.operands[0]]}) {{")
        for number, region in enumerate(op.regions):
            if not len(region.blocks):
                continue
            if number:
                self.line("} else {")
            last = self._nested(region.blocks[0])
            self.depth += 1
            self._assign(made, last.operands)
            self.depth -= 1
        self.line("}")

    def _while(self, op: ir.Operation) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        state = self._declare(list(before.arguments), [self.names[value] for value in op.operands])
        results = self._declare(op.results)
        self.names.update(zip(before.arguments, state, strict=True))
        self.names.update(zip(after.arguments, results, strict=True))
        self.names.update(zip(op.results, results, strict=True))
        self.line("for (;;) {")
        condition = self._nested(before)
        self.depth += 1
        self._assign(results, list(condition.operands)[1:])
        self.line(f"if (!({self.names[condition.operands[0]]})) break;")
        self.depth -= 1
        last = self._nested(after)
        self.depth += 1
        self._assign(state, last.operands)
        self.depth -= 1
        self.line("}")

    # ----------------------------------------------------------------------------------------------------- memory

    def _element(self, kind: Any) -> str:
        if not isinstance(kind, ir.MemRefType) or not isinstance(kind.layout, ir.AffineMapAttr):
            raise ScalarError(f"it has a parameter of type {kind}")
        if isinstance(kind.element_type, ir.VectorType) or not _is_contiguous(kind):
            raise ScalarError(f"it has a buffer of type {kind}: schedule it for scalars in rows")
        return c_scalar(kind.element_type)

    def _place(self, buffer: Any, indices: Sequence[ir.Value]) -> str:
        """Return the expression of an element."""
        self._element(buffer.type)
        at = ""
        for extent, index in zip(buffer.type.shape, indices, strict=True):
            if extent == 1:
                continue
            place = _bare(self.names[index])
            row = at if at.isidentifier() else f"({at})"
            at = place if at in ("", "0") else f"{row} * {extent} + {place}"
        return f"{self.names[buffer]}[{at or '0'}]"

    def _load(self, op: ir.Operation) -> None:
        buffer, *indices = op.operands
        self._define(op.results[0], self._place(buffer, indices))

    def _store(self, op: ir.Operation) -> None:
        value, buffer, *indices = op.operands
        self.line(f"{self._place(buffer, indices)} = {_bare(self.names[value])};")

    def _view(self, op: ir.Operation) -> None:
        if len(op.operands) != 2:
            raise ScalarError("it has a view of a dynamic size")
        kind, name = self._element(op.results[0].type), self._fresh()
        self.names[op.results[0]] = name
        source, offset = (self.names[value] for value in op.operands)
        self.line(f"{kind} *{name} = ({kind} *)((char *){source} + {offset});")

    def _alloca(self, op: ir.Operation) -> None:
        kind, name = self._element(op.results[0].type), self._fresh()
        self.names[op.results[0]] = name
        size = 1
        for dim in op.results[0].type.shape:
            size *= dim
        self.line(f"_Alignas(64) {kind} {name}[{max(size, 1)}];")

    def _pointer(self, op: ir.Operation) -> None:
        self.names[op.results[0]] = f"((int64_t)(intptr_t){self.names[op.operands[0]]})"

    def _extent(self, op: ir.Operation) -> None:
        self.names[op.results[0]] = self.names[op.operands[0]]

    def _argument(self, value: ir.Value) -> str:
        """Return an argument of a C function: buffers are pointers, const or not."""
        name = self.names[value]
        return f"(void *){name}" if isinstance(value.type, ir.MemRefType) else _bare(name)

    def _call(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        text = f"{name}({', '.join(self._argument(value) for value in op.operands)})"
        returned = c_scalar(op.results[0].type) if len(op.results) else "void"
        if name not in MATH:
            kinds = ("void *" if isinstance(v.type, ir.MemRefType) else c_scalar(v.type) for v in op.operands)
            listed = ", ".join(kinds) or "void"
            self.externs[name] = f"extern {returned} {name}({listed});"
        if len(op.results):
            self._define(op.results[0], text)
        else:
            self.line(f"{text};")


_STATEMENTS: dict[str, Callable[[_Printer, ir.Operation], None]] = {
    "scf.for": _Printer._for,
    "scf.if": _Printer._if,
    "scf.while": _Printer._while,
    "memref.load": _Printer._load,
    "memref.store": _Printer._store,
    "memref.view": _Printer._view,
    "memref.alloca": _Printer._alloca,
    "memref.extract_aligned_pointer_as_index": _Printer._pointer,
    "func.call": _Printer._call,
}


def _is_contiguous(kind: Any) -> bool:
    strides, offset = kind.get_strides_and_offset()
    expected: list[int] = []
    size = 1
    for dim in reversed(kind.shape):
        expected.append(size)
        size *= dim
    return offset == 0 and all(
        a == b or d == 1 for a, b, d in zip(strides, reversed(expected), kind.shape, strict=True)
    )


def _is_stored(argument: ir.Value) -> bool:
    for use in argument.uses:
        owner = use.owner.operation
        if owner.name not in ("memref.load", "memref.view") and not (
            owner.name == "memref.store" and use.operand_number == 0
        ):
            return True
    return False


def _uses(value: ir.Value) -> int:
    return sum(1 for _ in value.uses)


def _bare(text: str) -> str:
    """Return an expression without parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]
