"""WGSL of a kernel in MLIR's SPIR-V dialect: each operation is a `let`, each structured region a `loop` or an `if`.

Integers are `u32`, whose arithmetic wraps; what depends on the sign converts to `i32` and back. Buffers that the kernel
updates atomically, since it stores parts of words, are arrays of `atomic<u32>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.extend.ops import ir, walk
from mirlo.extend.target import PassError
from mirlo_webgpu.exactness import must_round
from mirlo_webgpu.expressions import EXPRESSIONS, MULTIPLY_EXTENDED, Operand, literal, shielded, type_name

_ARRAY = re.compile(r"!spirv\.(?:array<(\d+) x |rtarray<)(vector<[^>]+>|\w+)(?:, stride=\d+)?>")
_BUILTINS = {
    "LocalInvocationId": "local_invocation_id", "WorkgroupId": "workgroup_id", "NumWorkgroups": "num_workgroups",
}  # fmt: skip
_ATOMICS = {"spirv.AtomicAnd": "atomicAnd", "spirv.AtomicOr": "atomicOr"}


@dataclass(frozen=True)
class WgslKernel:
    """A kernel as text, and its requirements on the device."""

    text: str
    shared: int
    """Bytes of the memory that the threads of a block share."""


OPAQUE = "opaque_zero"
"""A zero that drivers cannot fold."""
ENTRY = "main"
"""The entry point of every kernel."""


def print_wgsl(shader: ir.Operation, reads_scalars: bool) -> WgslKernel:
    """Return a module of the SPIR-V dialect as WGSL; the last buffer of a kernel that takes scalars is read-only."""
    return _Printer(shader, reads_scalars).print()


class _Printer:
    def __init__(self, shader: ir.Operation, reads_scalars: bool) -> None:
        self._operations = [op.operation for op in shader.regions[0].blocks[0].operations]
        self._reads_scalars = reads_scalars
        self._globals: dict[str, str] = {}
        """What global variables are called."""
        self._atomic: set[str] = set()
        """Names of arrays of atomics."""
        self._names: dict[ir.Value, str] = {}
        self._constants: dict[ir.Value, Operand] = {}
        self._special: dict[int, str] = {}
        """Variables with the bits of numbers that have no literal."""
        self._lines: list[str] = []
        self._rounds = False
        self._depth = 1
        self._count = 0

    def print(self) -> WgslKernel:
        functions = [op for op in self._operations if op.name == "spirv.func"]
        if len(functions) != 1:
            raise PassError(f"a kernel in WGSL has one function, found {len(functions)}")
        (function,) = functions
        self._find_atomics(function)
        head, shared = self._declarations()
        self._block(function.regions[0].blocks[0])
        if self._rounds:
            # Grids have fewer than 2^16 blocks along each dim.
            self._globals[OPAQUE] = "num_workgroups"
            self._lines.insert(0, f"  let {OPAQUE} = num_workgroups.z >> 16u;")
        used = set(self._globals.values())
        arguments = [f"@builtin({word}) {word}: vec3<u32>" for word in _BUILTINS.values() if word in used]
        special = [f"var<private> {name}: u32 = {bits}u;" for bits, name in self._special.items()]
        if any("multiply_extended" in line for line in self._lines):
            special.append(MULTIPLY_EXTENDED)
        threads = list(ir.DenseI32ArrayAttr(function.attributes["known_block_size"]))
        lines = [
            *head, *special, "", f"@compute @workgroup_size({', '.join(map(str, threads))})",
            f"fn {ENTRY}({', '.join(arguments)}) {{", *self._lines, "}", "",
        ]  # fmt: skip
        return WgslKernel("\n".join(lines), shared)

    # Declarations

    def _find_atomics(self, function: ir.Operation) -> None:
        """Find the global variables of whose words parts are stored."""
        pointers: dict[ir.Value, str] = {}

        def visit(op: ir.Operation) -> ir.WalkResult:
            if op.name == "spirv.mlir.addressof":
                pointers[op.results[0]] = _symbol(op, "variable")
            elif op.name == "spirv.AccessChain" and op.operands[0] in pointers:
                pointers[op.results[0]] = pointers[op.operands[0]]
            elif op.name in _ATOMICS and op.operands[0] in pointers:
                self._atomic.add(pointers[op.operands[0]])
            return ir.WalkResult.ADVANCE

        walk(function, visit, ir.WalkOrder.PRE_ORDER)

    def _declarations(self) -> tuple[list[str], int]:
        """Return the declarations of global variables, and the size of shared memory in bytes."""
        lines, shared = [], 0
        variables = [op for op in self._operations if op.name == "spirv.GlobalVariable"]
        last = max((_binding(op) for op in variables if "binding" in op.attributes), default=-1)
        for op in variables:
            symbol, kind = _symbol(op, "sym_name"), str(ir.TypeAttr(op.attributes["type"]).value)
            if "built_in" in op.attributes:
                self._globals[symbol] = self._builtin(op)
                continue
            atomic = symbol in self._atomic
            array, size = _array(kind, atomic, op.location)
            if "binding" in op.attributes:
                number = _binding(op)
                access = "read" if self._reads_scalars and number == last else "read_write"
                self._globals[symbol] = f"buffer{number}"
                lines.append(f"@group(0) @binding({number}) var<storage, {access}> buffer{number}: {array};")
            else:
                self._globals[symbol] = f"shared{len(lines)}"
                lines.append(f"var<workgroup> shared{len(lines)}: {array};")
                shared += size
        self._atomic = {self._globals[symbol] for symbol in self._atomic}
        return lines, shared

    @staticmethod
    def _builtin(op: ir.Operation) -> str:
        name = str(ir.StringAttr(op.attributes["built_in"]).value)
        if name not in _BUILTINS:
            raise PassError(f"'{name}' has no counterpart in WGSL", op.location)
        return _BUILTINS[name]

    # Statements

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _block(self, block: ir.Block) -> ir.Operation | None:
        """Print the operations of a block; return the branch that ends it."""
        for op in (each.operation for each in block.operations):
            if op.name in ("spirv.Branch", "spirv.BranchConditional", "spirv.mlir.merge"):
                return op
            if op.name != "spirv.Return":
                self._operation(op)
        return None

    def _operation(self, op: ir.Operation) -> None:
        special: dict[str, Callable[[ir.Operation], None]] = {
            "spirv.Constant": self._constant, "spirv.mlir.addressof": self._address, "spirv.Variable": self._variable,
            "spirv.AccessChain": self._element, "spirv.Load": self._load, "spirv.Store": self._store,
            "spirv.mlir.loop": self._loop, "spirv.mlir.selection": self._selection,
            "spirv.ControlBarrier": self._barrier, **dict.fromkeys(_ATOMICS, self._atomic_update),
        }  # fmt: skip
        if op.name in special:
            special[op.name](op)
            return
        if op.name not in EXPRESSIONS:
            raise PassError(f"'{op.name}' has no counterpart in WGSL", op.location)
        expression = EXPRESSIONS[op.name](op, [self._operand(value) for value in op.operands])
        if must_round(op):
            self._rounds = True
            expression = shielded(expression, str(op.results[0].type), OPAQUE)
        self._let(op.results[0], expression)

    def _let(self, value: ir.Value, expression: str) -> None:
        self._names[value] = self._fresh("v")
        self._line(f"let {self._names[value]} = {expression};")

    def _operand(self, value: ir.Value) -> Operand:
        if value in self._constants:
            return self._constants[value]
        return Operand(self._names[value], str(value.type))

    def _text(self, value: ir.Value) -> str:
        return self._operand(value).text

    def _constant(self, op: ir.Operation) -> None:
        value = op.results[0]
        self._constants[value] = literal(op.attributes["value"], str(value.type), self._bits_variable)

    def _bits_variable(self, bits: int) -> str:
        """Return a variable with the bits of a float: a constant expression must not be infinite."""
        return self._special.setdefault(bits, f"bits_{bits:08x}")

    def _address(self, op: ir.Operation) -> None:
        self._names[op.results[0]] = self._globals[_symbol(op, "variable")]

    def _variable(self, op: ir.Operation) -> None:
        kind = str(op.results[0].type).removeprefix("!spirv.ptr<").rpartition(",")[0]
        name = self._names[op.results[0]] = self._fresh("x")
        self._line(f"var {name}: {_array(kind, False, op.location)[0] if 'array' in kind else type_name(kind)};")

    def _element(self, op: ir.Operation) -> None:
        pointer, member, *indices = op.operands
        if member not in self._constants or self._text(member) != "0u" or len(indices) != 1:
            raise PassError("an access in WGSL has one index", op.location)
        self._names[op.results[0]] = f"{self._names[pointer]}[{self._text(indices[0])}]"

    def _is_atomic(self, pointer: str) -> bool:
        return pointer.partition("[")[0] in self._atomic

    def _load(self, op: ir.Operation) -> None:
        pointer = self._names[op.operands[0]]
        if pointer in _BUILTINS.values():
            self._names[op.results[0]] = pointer
            return
        self._let(op.results[0], f"atomicLoad(&{pointer})" if self._is_atomic(pointer) else pointer)

    def _store(self, op: ir.Operation) -> None:
        pointer, value = self._names[op.operands[0]], self._text(op.operands[1])
        self._line(f"atomicStore(&{pointer}, {value});" if self._is_atomic(pointer) else f"{pointer} = {value};")

    def _atomic_update(self, op: ir.Operation) -> None:
        pointer, value = self._names[op.operands[0]], self._text(op.operands[1])
        self._let(op.results[0], f"{_ATOMICS[op.name]}(&{pointer}, {value})")

    def _barrier(self, _: ir.Operation) -> None:
        self._line("storageBarrier();")
        self._line("workgroupBarrier();")

    # Structured regions

    def _selection(self, op: ir.Operation) -> None:
        """Print `if`: the first block branches to one or two blocks, which branch to the merge block."""
        blocks = list(op.regions[0].blocks)
        branch, merge = self._block(blocks[0]), blocks[-1]
        if branch is None or branch.name != "spirv.BranchConditional":
            raise PassError("a selection in WGSL begins with a condition", op.location)
        condition, (yes, no) = self._text(branch.operands[0]), branch.successors
        sides = [(f"if ({condition}) {{", yes), ("} else {", no)]
        if yes == merge:
            sides = [(f"if (!{condition}) {{", no)]
        for opening, side in sides:
            if side != merge:
                self._line(opening)
                self._side(side, merge)
        self._line("}")

    def _side(self, block: ir.Block, merge: ir.Block) -> None:
        self._depth += 1
        end = self._block(block)
        if end is not None and (end.name != "spirv.Branch" or end.successors[0] != merge):
            raise PassError("a side of a selection in WGSL is one block", end.location)
        self._depth -= 1

    def _loop(self, op: ir.Operation) -> None:
        """Print `loop`: entry block, header with a condition, body, empty continue block, merge block."""
        blocks = list(op.regions[0].blocks)
        if len(blocks) != 5:
            raise PassError(f"a loop in WGSL has five blocks, found {len(blocks)}", op.location)
        entry, header, body, continues, _ = blocks
        start = self._block(entry)
        carried = [self._fresh("c") for _ in header.arguments]
        assert start is not None
        for name, argument, value in zip(carried, header.arguments, start.operands, strict=True):
            self._line(f"var {name}: {type_name(str(argument.type))} = {self._text(value)};")
        self._line("loop {")
        self._depth += 1
        for name, argument in zip(carried, header.arguments, strict=True):
            self._let(argument, name)
        end = self._block(header)
        if end is None or end.name != "spirv.BranchConditional" or end.successors[0] != body:
            raise PassError("a loop in WGSL begins with its condition", op.location)
        self._line(f"if (!{self._text(end.operands[0])}) {{ break; }}")
        last = self._block(body)
        if last is None or last.name != "spirv.Branch" or last.successors[0] != continues:
            raise PassError("a loop in WGSL ends with its body", op.location)
        self._next_iteration(carried, list(last.operands), continues)
        self._depth -= 1
        self._line("}")

    def _next_iteration(self, carried: Sequence[str], values: Sequence[ir.Value], continues: ir.Block) -> None:
        """Assign the carried values of the next iteration, in the order of the continue block."""
        (branch,) = (op.operation for op in continues.operations)
        latest = dict(zip(continues.arguments, values, strict=True))
        for name, value in zip(carried, branch.operands, strict=True):
            self._line(f"{name} = {self._text(latest.get(value, value))};")


def _symbol(op: ir.Operation, attribute: str) -> str:
    return str(op.attributes[attribute].value)


def _binding(op: ir.Operation) -> int:
    return int(ir.IntegerAttr(op.attributes["binding"]).value)


def _array(kind: str, atomic: bool, location: ir.Location) -> tuple[str, int]:
    """Return the type of an array, and its size in bytes if known."""
    match = _ARRAY.search(kind)
    if match is None:
        raise PassError(f"memory of type '{kind}' has no counterpart in WGSL", location)
    element = type_name(match[2])
    size = (8 if element.startswith("vec2") else 4) * int(match[1] or 0)
    inner = f"atomic<{element}>" if atomic else element
    return (f"array<{inner}, {match[1]}>" if match[1] else f"array<{inner}>"), size
