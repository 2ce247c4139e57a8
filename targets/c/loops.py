"""Prim functions as C: loops and scalar operations over plain pointers.

A function in tensor form is scheduled, loops and intrinsics are lowered by the rules of target `c`, and each remaining
operation is printed as a statement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, passmanager
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.tir.buffers import INPLACE, workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import c_identifier
from mirlo.runtime.records import dataclass
from mirlo.targets.c.halves import HALVES
from mirlo.targets.c.printer import Printer, is_stored, uses
from mirlo.targets.c.scalars import ScalarError

if TYPE_CHECKING:
    from mirlo.passes.byoc.prim_view import ExternalPrim

LOWERING = "schedule{target=c},lower-loops,lower-intrinsics{target=c}"
COPY = "mirlo.copy"
TIDYING = "builtin.module(lower-affine,canonicalize,cse)"


class CLoopsError(MirloError, ValueError):
    """A prim function that has no C text: it is vectorized, or bound to hardware."""

    error_code = "MIR0506"
    remedy = "Write the loops with what C functions of accelerators may contain, as the message says."


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
        return f"{self.type}{'' if self.type.endswith(('*', ' ')) else ' '}{self.name}"


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
    symbol = c_identifier(name or symbol_name(operation))
    with operation.context, operation.location:
        module, function = _lowered(operation)
        try:
            result = FunctionPrinter().run(function, symbol, _result_count(operation))
            del module  # it keeps the function alive
            half = next((kind for kind in HALVES.values() if kind in result.text), None)
            if half is not None:
                raise ScalarError(f"it computes with {half}, of which it has no definition")
        except ScalarError as error:
            raise CLoopsError(f"prim function '{symbol}' has no C text: {error}") from None
        return result


def _result_count(operation: ir.Operation) -> int:
    return len(ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value).results)


def _lowered(operation: ir.Operation) -> tuple[ir.Module, ir.Operation]:
    """Return a module with a lowered copy of a prim function, and the copy."""
    module = ir.Module.create(operation.location)
    clone = operation.clone(ip=ir.InsertionPoint(module.body))
    rename_symbol(clone, COPY)  # its own may be that of a C function
    Pipeline(LOWERING).run(module, Session())
    passmanager.PassManager.parse(TIDYING).run(module.operation)
    functions = {symbol_name(op): op.operation for op in module.body.operations}
    return module, functions[COPY]


@dataclass
class FunctionPrinter(Printer):
    """The printer of one function in buffer form."""

    restrict: bool = False
    """Whether buffers that are stored to overlap no others, unless the function is marked as working in place."""
    stored: str = "b"
    """The first letter of the buffers that are stored to, where the tensor form does not distinguish them."""
    read: str = "b"
    """The first letter of the others."""
    scratch: str = "char *"
    """The type of the workspace."""

    def run(self, function: ir.Operation, symbol: str, results: int) -> CFunctionText:
        """Return the text; `results` is the number of outputs of the tensor form."""
        block = function.regions[0].blocks[0]
        symbols = symbols_of_function(function.opview)
        workspace = workspace_of(function.opview)
        buffers = len(block.arguments) - len(symbols) - (workspace != 0)
        only = "restrict " if self.restrict and INPLACE not in function.attributes else ""
        parameters = []
        for i, argument in enumerate(block.arguments):
            if i < buffers:
                parameters.append(self._buffer(i, argument, buffers, results, only))
            elif i == buffers and workspace != 0:
                parameters.append(CParameter("workspace", self.scratch, "workspace"))
            else:
                dim = str(symbols[i - len(block.arguments) + len(symbols)])
                parameters.append(CParameter(f"dim_{c_identifier(dim)}", "int64_t", "size", dim))
                self.bounded.add(argument)
            self.names[argument] = parameters[-1].name
            if not uses(argument):
                self.line(f"(void){parameters[-1].name};")
        self.body(block)
        printed = CFunctionText(symbol, tuple(parameters), "", workspace, tuple(self.externs.values()))
        text = f"{printed.declaration} {{\n" + "".join(f"{line}\n" for line in self.used_lines()) + "}\n"
        return replace(printed, text=text)

    def _buffer(self, number: int, argument: ir.BlockArgument, buffers: int, results: int, only: str) -> CParameter:
        kind = self.element(argument.type)
        # A function written over buffers does not say which are outputs: those that it stores to.
        is_output = number >= buffers - results if results else is_stored(argument)
        if is_output:
            name = f"y{number - (buffers - results)}" if results else f"{self.stored}{number}"
            return CParameter(name, f"{kind} *{only}", "output")
        return CParameter(f"x{number}" if results else f"{self.read}{number}", f"const {kind} *", "input")
