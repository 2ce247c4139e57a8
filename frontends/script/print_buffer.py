"""Printing of prim functions in buffer form: loops, conditions, loads and stores as statements."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import is_constant
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.block import CallExtern, For
from mirlo.dialects.tir.buffers import PARALLEL, START, WORKSPACE
from mirlo.dialects.tir.own_intrinsics import OWN, is_scalar_function
from mirlo.frontends.script.print_scalar import NotPrintable, ScalarPrinter, scalar_dtype
from mirlo.frontends.script.print_tensor import INDENT, buffer_type, index_text

_ENDS = ("func.return", "scf.yield", "tir.yield")
_LOOPS = {"serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}


def print_buffer_form(function: ir.OpView | ir.Operation, name: str, inputs: int | None) -> list[str]:
    """Return the definition without its decorator; `inputs` is the number of read-only parameters, if known."""
    op = function.operation
    entry = op.regions[0].blocks[0]
    arguments = list(entry.arguments)
    workspace = arguments.pop() if WORKSPACE in op.attributes else None
    count = inputs if inputs is not None else _first_written(op, arguments)
    printer = _BufferPrinter(workspace)
    parameters = []
    for i, argument in enumerate(arguments):
        printer.buffers[argument] = f"x{i}" if i < count else f"y{i - count}"
        keyword = "Buffer" if i < count else "Out"
        parameters.append(f"{printer.buffers[argument]}: T.{keyword}[{buffer_type(argument.type)}]")
    body = [*printer.allocations(entry), *printer.block(entry)]
    return [f"def {name}({', '.join(parameters)}):", *(INDENT + line for line in body or ["pass"])]


def _first_written(function: ir.Operation | ir.OpView, arguments: Sequence[ir.Value]) -> int:
    """Return the first output: the first parameter that is stored to, at the latest the last one."""
    written: set[ir.Value] = set()

    def visit(op: ir.Operation | ir.OpView) -> ir.WalkResult:
        if op.name == "memref.store" or op.name == "memref.copy":
            written.add(op.operands[1])
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return next((i for i, argument in enumerate(arguments) if argument in written), max(len(arguments) - 1, 0))


class _BufferPrinter:
    """Prints the statements of a function; a load is part of its user's statement unless a store intervenes."""

    def __init__(self, workspace: ir.Value | None):
        self.workspace = workspace
        self.buffers: dict[ir.Value, str] = {}
        self.scalars = ScalarPrinter(self.leaf)
        self.pending: list[ir.Value] = []
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, -1) + 1
        return f"{prefix}{self.counts[prefix]}"

    def allocations(self, entry: ir.Block) -> list[str]:
        """Return scratch memory: on the stack, and parts of the workspace by offset."""
        local, views = [], []
        for wrapped in entry.operations:
            op = wrapped.operation
            if op.name == "memref.alloca":
                local.append(op.results[0])
            elif op.name == "memref.view" and op.operands[0] == self.workspace:
                offset = op.operands[1].owner.attributes["value"].value
                views.append((offset, op.results[0]))
        lines = []
        # Each allocation is inserted at the start of the function, so the last one made is first.
        for value in reversed(local):
            self.buffers[value] = self.fresh("local")
            scope = "local" if value.type.memory_space is None else "shared"
            lines.append(f'{self.buffers[value]} = T.alloc({buffer_type(value.type)}, scope="{scope}")')
        for _, value in sorted(views, key=lambda item: item[0]):
            self.buffers[value] = self.fresh("scratch")
            lines.append(f"{self.buffers[value]} = T.alloc({buffer_type(value.type)})")
        return lines

    # Scalars

    def leaf(self, value: ir.Value) -> str | None:
        op = value.owner if isinstance(value, ir.OpResult) else None
        if op is None or op.name != "memref.load":
            return None
        return self.element(op.operands[0], list(op.operands)[1:])

    def element(self, buffer: ir.Value, indices: list[ir.Value]) -> str:
        return f"{self.buffer(buffer)}[{index_text([self.scalars.text(v, typed=False) for v in indices])}]"

    def buffer(self, value: ir.Value) -> str:
        if value not in self.buffers:
            raise NotPrintable(f"a view of memory: {value}")
        return self.buffers[value]

    # Statements

    def block(self, block: ir.Block) -> list[str]:
        outer, self.lines = self.lines, []
        pending, self.pending = self.pending, []
        for wrapped in block.operations:
            op = wrapped.operation
            if op.name in _ENDS:
                continue
            handler = getattr(self, "_print_" + op.name.replace(".", "_"), None)
            if handler is not None:
                handler(op)
            elif op.name in OWN and not is_scalar_function(OWN[op.name]):
                self._print_own_intrinsic(op)
            else:
                self._scalar(op)
        self.flush()
        lines, self.lines, self.pending = self.lines, outer, pending
        return lines

    def _scalar(self, op: ir.Operation | ir.OpView) -> None:
        if len(op.results) != 1 or len(op.regions) or op.name.startswith(("memref.", "vector.")):
            raise NotPrintable(f"'{op.name}'")
        scalar_dtype(op.results[0].type)
        if not is_constant(op.results[0]) and _uses(op.results[0]) != 1:
            self._name(op.results[0])
        elif not is_constant(op.results[0]):
            self.pending.append(op.results[0])

    def _name(self, value: ir.Value) -> None:
        text = self.scalars.text(value)
        self._forget(value)
        self.scalars.names[value] = self.fresh("s")
        self.lines.append(f"{self.scalars.names[value]} = {text}")

    def _forget(self, value: ir.Value) -> None:
        """Remove values from the pending ones after a statement has included them."""
        if value in self.pending:
            self.pending.remove(value)
        if isinstance(value, ir.OpResult) and value not in self.scalars.names:
            for operand in value.owner.operands:
                self._forget(operand)

    def flush(self, *used: ir.Value) -> None:
        """Assign names to pending values that the next statement does not use: they may be used later."""
        for value in used:
            self._forget(value)
        for value in list(self.pending):
            if value in self.pending and _reads_memory(value):
                self._name_pending(value)
        self.pending = []

    def _name_pending(self, value: ir.Value) -> None:
        if value not in self.scalars.names:
            text = self.scalars.text(value)
            self.scalars.names[value] = self.fresh("s")
            self.lines.append(f"{self.scalars.names[value]} = {text}")

    def _print_memref_load(self, op: ir.Operation | ir.OpView) -> None:
        value = op.results[0]
        self.pending.append(value)
        if _uses(value) != 1:
            self._name(value)

    def _print_memref_store(self, op: ir.Operation | ir.OpView) -> None:
        value, buffer, *indices = op.operands
        self.flush(value, *indices)
        self.lines.append(f"{self.element(buffer, indices)} = {self.scalars.text(value, typed=not is_constant(value))}")

    def _print_memref_copy(self, op: ir.Operation | ir.OpView) -> None:
        self.flush()
        start = ", start=True" if START in op.attributes else ""
        self.lines.append(f"T.copy({self.buffer(op.operands[0])}, {self.buffer(op.operands[1])}{start})")

    def _print_memref_alloca(self, op: ir.Operation | ir.OpView) -> None:
        self.buffer(op.results[0])

    def _print_memref_view(self, op: ir.Operation | ir.OpView) -> None:
        self.buffer(op.results[0])

    def _print_scf_for(self, op: ir.Operation | ir.OpView) -> None:
        if len(op.results):
            raise NotPrintable("'scf.for' with values that it carries")
        _no_attributes(op, PARALLEL)
        bounds = list(op.operands)
        self.flush(*bounds)
        low, high, step = (self.scalars.text(v, typed=False) for v in bounds)
        listed = [high] if (low, step) == ("0", "1") else [low, high] if step == "1" else [low, high, step]
        keyword = "T.parallel_range" if PARALLEL in op.attributes else "range"
        self._nested(op.regions[0].blocks[0], f"{keyword}({', '.join(listed)})")

    def _nested(self, body: ir.Block, loop: str) -> None:
        name = self.fresh("i")
        self.scalars.names[body.arguments[0]] = name
        self.lines.append(f"for {name} in {loop}:")
        self._indented(self.block(body))

    def _indented(self, lines: list[str]) -> None:
        self.lines += [INDENT + line for line in lines or ["pass"]]

    def _print_tir_for(self, op: ir.Operation) -> None:
        view = op.opview
        assert isinstance(view, For)
        bounds = list(op.operands)
        self.flush(*bounds)
        low, high = (self.scalars.text(v, typed=False) for v in bounds)
        if view.kind == "bound":
            if low != "0":
                raise NotPrintable("a bound loop that starts at another number than 0")
            self._nested(op.regions[0].blocks[0], f'T.thread_binding({high}, "{view.thread}")')
            return
        listed = high if low == "0" else f"{low}, {high}"
        self._nested(op.regions[0].blocks[0], f"T.{_LOOPS[view.kind]}({listed})")

    def _print_scf_if(self, op: ir.Operation | ir.OpView) -> None:
        if len(op.results):
            raise NotPrintable("'scf.if' with results")
        self.flush(op.operands[0])
        self.lines.append(f"if {self.scalars.text(op.operands[0])}:")
        self._indented(self.block(op.regions[0].blocks[0]))
        if len(op.regions[1].blocks):
            otherwise = self.block(op.regions[1].blocks[0])
            if otherwise:
                self.lines.append("else:")
                self._indented(otherwise)

    def _print_scf_while(self, op: ir.Operation | ir.OpView) -> None:
        if len(op.results) or len(op.operands):
            raise NotPrintable("'scf.while' with values that it carries")
        self.flush()
        before, after = (region.blocks[0] for region in op.regions)
        operations = [o.operation for o in before.operations]
        if any(o.name not in ("memref.load", "scf.condition") and not o.name.startswith("arith.") for o in operations):
            raise NotPrintable("'scf.while' with a condition that is more than an expression")
        self.lines.append(f"while {self.scalars.text(operations[-1].operands[0])}:")
        self._indented(self.block(after))

    def _print_own_intrinsic(self, op: ir.Operation | ir.OpView) -> None:
        self.flush(*op.operands)
        arguments = [f'"{op.name}"']
        for value in op.operands:
            arguments.append(self.buffer(value) if isinstance(value.type, ir.MemRefType) else self.scalars.text(value))
        call = f"T.call_intrin({', '.join(arguments)})"
        if len(op.results):
            self.scalars.names[op.results[0]] = self.fresh("s")
            call = f"{self.scalars.names[op.results[0]]} = {call}"
        self.lines.append(call)

    def _print_tir_call_extern(self, op: ir.Operation) -> None:
        view = op.opview
        assert isinstance(view, CallExtern)
        self.flush(*op.operands)
        arguments = [f'"{view.function}"']
        for value in op.operands:
            arguments.append(self.buffer(value) if isinstance(value.type, ir.MemRefType) else self.scalars.text(value))
        if len(op.results):
            arguments.append(f'dtype="{scalar_dtype(op.results[0].type)}"')
        if view.pure:
            arguments.append("pure=True")
        call = f"T.call_extern({', '.join(arguments)})"
        if len(op.results):
            self.scalars.names[op.results[0]] = self.fresh("s")
            call = f"{self.scalars.names[op.results[0]]} = {call}"
        self.lines.append(call)


def _uses(value: ir.Value) -> int:
    return sum(1 for _ in value.uses)


def _reads_memory(value: ir.Value) -> bool:
    if not isinstance(value, ir.OpResult):
        return False
    if value.owner.name == "memref.load":
        return True
    return not len(value.owner.regions) and any(_reads_memory(operand) for operand in value.owner.operands)


def _no_attributes(op: ir.Operation | ir.OpView, *known: str) -> None:
    for i in range(len(op.attributes)):
        if op.attributes[i].name not in ("operandSegmentSizes", *known):
            raise NotPrintable(f"'{op.name}' with the attribute '{op.attributes[i].name}'")
