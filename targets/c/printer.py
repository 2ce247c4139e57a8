"""The printer of functions over buffers: loops and scalar operations as statements of C, one an operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.runtime.records import dataclass
from mirlo.targets.c.halves import WidenedOperation, computes_halves, rounded, widened
from mirlo.targets.c.intrinsics import MATH
from mirlo.targets.c.scalars import EXPRESSIONS, WRAPPING, Expression, ScalarError, c_scalar, constant_text

_LOOSE = re.compile(r"[?<>=&|^]")
"""Operators that bind less than a sum."""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Printer:
    """The printer of the statements of one function."""

    lines: list[str] = field(default_factory=list)
    names: dict[ir.Value, str] = field(default_factory=dict)
    """The C expression of each value: a variable, or a constant."""
    externs: dict[str, str] = field(default_factory=dict)
    """The prototypes of C functions that it calls, other than those of math.h."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """The C names of functions that the same file defines."""
    bounded: set[ir.Value] = field(default_factory=set)
    """Indices whose sums and products do not overflow: constants, loop indices, sizes that the caller has checked."""
    expressions: Mapping[str, Expression] = field(default_factory=lambda: EXPRESSIONS)
    wrapping: Mapping[str, Expression] = field(default_factory=lambda: WRAPPING)
    """The expressions of operations on indices that may overflow."""
    pure: set[str] = field(default_factory=set)
    """Variables whose definitions have no effect, and go where nothing reads them."""
    index: str = "int64_t"
    """The C type of indices."""
    included: Collection[str] = ()
    """The functions that the file's headers declare, other than those of math.h."""
    depth: int = 1
    count: int = 0
    loops: int = 0

    @cached_property
    def statements(self) -> Mapping[str, Callable[[ir.Operation], None]]:
        """Return the printers of operations that are not expressions, by name."""
        return {
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.while": self._while,
            "memref.load": self._load,
            "memref.store": self._store,
            "memref.view": self._view,
            "memref.alloca": self._alloca,
            "memref.alloca_scope": self._scope,
            "memref.copy": self._copy,
            "memref.reinterpret_cast": self._alias,
            "memref.cast": self._alias,
            "memref.extract_aligned_pointer_as_index": self._pointer,
            "func.call": self._call,
        }

    # ------------------------------------------------------------------------------------------------- statements

    def scalar(self, kind: ir.Type) -> str:
        """Return the C type of a scalar."""
        return self.index if isinstance(kind, ir.IndexType) else c_scalar(kind)

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def body(self, block: ir.Block) -> ir.Operation:
        """Print the operations of a block; return its terminator."""
        *operations, last = [op.operation for op in block.operations]
        for op in operations:
            self._operation(op)
        return last

    def nested(self, block: ir.Block) -> ir.Operation:
        self.depth += 1
        last = self.body(block)
        self.depth -= 1
        return last

    def _operation(self, op: ir.Operation) -> None:
        statement = self.statements.get(op.name)
        if statement is not None:
            statement(op)
            return
        if op.name == "arith.constant":
            self.names[op.results[0]] = constant_text(op)
            self.bounded.add(op.results[0])
            return
        if len(op.regions) or len(op.results) != 1 or op.name not in self.expressions:
            raise ScalarError(f"it has the operation '{op.name}'")
        if not uses(op.results[0]):
            return
        if op.name == "arith.index_cast" and self.scalar(op.operands[0].type) == self.scalar(op.results[0].type):
            self.names[op.results[0]] = self.names[op.operands[0]]
            if op.operands[0] in self.bounded:
                self.bounded.add(op.results[0])
            return
        expression = self.expressions[op.name]
        if all(value in self.bounded for value in op.operands):
            self.bounded.add(op.results[0])
        elif isinstance(op.results[0].type, ir.IndexType):
            expression = self.wrapping.get(op.name, expression)
        texts = [self.names[value] for value in op.operands]
        if computes_halves(op):
            wide = [widened(text, value.type) for text, value in zip(texts, op.operands, strict=True)]
            text = rounded(expression(WidenedOperation(op), wide), op.results[0].type)
        else:
            text = expression(op, texts)
        if isinstance(op.results[0].type, ir.IndexType) and uses(op.results[0]) == 1:
            self.names[op.results[0]] = (
                text if is_call(text) else f"({text})"
            )  # an index that is used once needs no variable
        else:
            self.define(op.results[0], text)

    def used_lines(self) -> list[str]:
        """Return the lines without definitions that nothing reads, such as those of indices of dims of size 1."""
        read: set[str] = set()
        kept = []
        for line in reversed(self.lines):
            words = _WORD.findall(line)
            if len(words) > 2 and words[0] == "const" and words[2] in self.pure - read:
                continue
            read.update(words[3:] if words[:1] == ["const"] else words)
            kept.append(line)
        return kept[::-1]

    def define(self, value: ir.Value, text: str, pure: bool = True) -> None:
        name = self.fresh()
        if pure:
            self.pure.add(name)
        self.names[value] = name
        kind = self.scalar(value.type)
        self.line(f"{kind}const {name} = {text};" if kind.endswith("*") else f"const {kind} {name} = {text};")

    def declare(self, values: Sequence[ir.Value], start: Sequence[str] = ()) -> list[str]:
        """Declare variables that are assigned later."""
        result = []
        for i, value in enumerate(values):
            name = self.fresh()
            result.append(name)
            self.line(f"{self.scalar(value.type)} {name}{f' = {start[i]}' if start else ''};")
        return result

    def _assign(self, variables: Sequence[str], values: Sequence[ir.Value]) -> None:
        """Assign values to variables, all at once."""
        texts = [self.names[value] for value in values]
        for i, (value, text) in enumerate(zip(values, texts, strict=True)):
            if text in variables and text != variables[i]:
                texts[i] = self.fresh()
                self.line(f"const {self.scalar(value.type)} {texts[i]} = {text};")
        for name, text in zip(variables, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def _for(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        low, high, step, *start = (self.names[value] for value in op.operands)
        carried = self.declare(op.results, start)
        at = f"i{self.loops}"
        self.loops += 1
        self.names[block.arguments[0]] = at
        self.bounded.add(block.arguments[0])
        self.names.update(zip(list(block.arguments)[1:], carried, strict=True))
        self.line(f"for ({self.index} {at} = {low}; {at} < {high}; {at} += {step}) {{")
        last = self.nested(block)
        self.depth += 1
        self._assign(carried, last.operands)
        self.depth -= 1
        self.line("}")
        self.names.update(zip(op.results, carried, strict=True))

    def _if(self, op: ir.Operation) -> None:
        names = self.declare(op.results)
        self.names.update(zip(op.results, names, strict=True))
        self.line(f"if ({self.names[op.operands[0]]}) {{")
        for number, region in enumerate(op.regions):
            if not len(region.blocks):
                continue
            if number:
                self.line("} else {")
            last = self.nested(region.blocks[0])
            self.depth += 1
            self._assign(names, last.operands)
            self.depth -= 1
        self.line("}")

    def _scope(self, op: ir.Operation) -> None:
        """Print a block: what is on the stack in it is there for this computation."""
        names = self.declare(op.results)
        self.names.update(zip(op.results, names, strict=True))
        self.line("{")
        last = self.nested(op.regions[0].blocks[0])
        self.depth += 1
        self._assign(names, last.operands)
        self.depth -= 1
        self.line("}")

    def _while(self, op: ir.Operation) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        state = self.declare(list(before.arguments), [self.names[value] for value in op.operands])
        used = [i for i, pair in enumerate(zip(after.arguments, op.results, strict=True)) if any(map(uses, pair))]
        results = self.declare([op.results[i] for i in used])
        self.names.update(zip(before.arguments, state, strict=True))
        self.names.update((after.arguments[i], name) for i, name in zip(used, results, strict=True))
        self.names.update((op.results[i], name) for i, name in zip(used, results, strict=True))
        self.line("for (;;) {")
        condition = self.nested(before)
        self.depth += 1
        self._assign(results, [condition.operands[i + 1] for i in used])
        self.line(f"if (!({self.names[condition.operands[0]]})) break;")
        self.depth -= 1
        last = self.nested(after)
        self.depth += 1
        self._assign(state, last.operands)
        self.depth -= 1
        self.line("}")

    # ----------------------------------------------------------------------------------------------------- memory

    def element(self, kind: ir.Type) -> str:
        if not isinstance(kind, ir.MemRefType) or not isinstance(kind.layout, ir.AffineMapAttr):
            raise ScalarError(f"it has a parameter of type {kind}")
        if isinstance(kind.element_type, ir.VectorType) or not _is_contiguous(kind):
            raise ScalarError(f"it has a buffer of type {kind}: schedule it for scalars in rows")
        return self.scalar(kind.element_type)

    def _place(self, buffer: ir.Value, indices: Sequence[ir.Value]) -> str:
        """Return the expression of an element."""
        self.element(buffer.type)
        at = ""
        for extent, index in zip(buffer.type.shape, indices, strict=True):
            if extent == 1:
                continue
            place = self.names[index]
            if not at or not _LOOSE.search(place):
                place = bare(place)
            row = at if at.isidentifier() else f"({at})"
            at = place if at in ("", "0") else f"{row} * {extent} + {place}"
        return f"{self.names[buffer]}[{at or '0'}]"

    def _load(self, op: ir.Operation) -> None:
        buffer, *indices = op.operands
        if uses(op.results[0]):
            self.define(op.results[0], self._place(buffer, indices))

    def _store(self, op: ir.Operation) -> None:
        value, buffer, *indices = op.operands
        self.line(f"{self._place(buffer, indices)} = {bare(self.names[value])};")

    def _view(self, op: ir.Operation) -> None:
        if len(op.operands) != 2:
            raise ScalarError("it has a view of a dynamic size")
        if not uses(op.results[0]):
            return
        kind, name = self.element(op.results[0].type), self.fresh()
        self.names[op.results[0]] = name
        source, offset = (self.names[value] for value in op.operands)
        start = source if self.scalar(op.operands[0].type.element_type) == "int8_t" else f"(char *){source}"
        place = start if offset == "0" else f"({start} + {bare(offset)})"
        self.line(f"{kind} *{name} = ({kind} *){place};")

    def _alloca(self, op: ir.Operation) -> None:
        kind, name = self.element(op.results[0].type), self.fresh()
        self.names[op.results[0]] = name
        size = 1
        for dim in op.results[0].type.shape:
            size *= dim
        self.line(f"{kind} {name}[{max(size, 1)}];")

    def _alias(self, op: ir.Operation) -> None:
        self.names[op.results[0]] = self.names[op.operands[0]]

    def _copy(self, op: ir.Operation) -> None:
        source, target = op.operands
        self.element(source.type)
        self.line(f"memmove({self.names[target]}, {self.names[source]}, {buffer_bytes(target.type)});")

    def _pointer(self, op: ir.Operation) -> None:
        self.names[op.results[0]] = f"((int64_t)(intptr_t){self.names[op.operands[0]]})"

    def argument(self, value: ir.Value) -> str:
        """Return an argument of a C function: buffers are pointers, const or not."""
        name = self.names[value]
        return f"(void *){name}" if isinstance(value.type, ir.MemRefType) else bare(name)

    def _call(self, op: ir.Operation) -> None:
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        name = MATH.get(callee) or self.functions.get(callee, callee)
        text = f"{name}({', '.join(self.argument(value) for value in op.operands)})"
        returned = self.scalar(op.results[0].type) if len(op.results) else "void"
        if callee not in MATH and callee not in self.functions and callee not in self.included:
            kinds = ("void *" if isinstance(v.type, ir.MemRefType) else self.scalar(v.type) for v in op.operands)
            listed = ", ".join(kinds) or "void"
            self.externs[name] = f"extern {returned} {name}({listed});"
        if len(op.results) and uses(op.results[0]):
            self.define(op.results[0], text, pure=callee in MATH)
        else:
            self.line(f"{text};")


def _is_contiguous(kind: ir.MemRefType) -> bool:
    strides, offset = kind.get_strides_and_offset()
    expected: list[int] = []
    size = 1
    for dim in reversed(kind.shape):
        expected.append(size)
        size *= dim
    return offset == 0 and all(
        a == b or d == 1 for a, b, d in zip(strides, reversed(expected), kind.shape, strict=True)
    )


def is_stored(argument: ir.Value) -> bool:
    """Return whether a function may store to a buffer."""
    for use in argument.uses:
        owner = use.owner.operation
        if owner.name in ("memref.view", "memref.cast", "memref.reinterpret_cast"):
            if is_stored(owner.results[0]):
                return True
        elif owner.name not in ("memref.load", "memref.extract_aligned_pointer_as_index") and not (
            owner.name in ("memref.store", "memref.copy") and use.operand_number == 0
        ):
            return True
    return False


def uses(value: ir.Value) -> int:
    """Return the number of uses of a value."""
    return sum(1 for _ in value.uses)


def is_call(text: str) -> bool:
    """Return whether an expression is a call of a function."""
    name, parenthesis, rest = text.partition("(")
    return name.isidentifier() and bool(parenthesis) and bare(f"({rest}") == rest[:-1]


def bare(text: str) -> str:
    """Return an expression without parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]
