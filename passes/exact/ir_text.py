"""LLVM IR as text, under construction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mirlo.passes.exact.values import llvm_type
from mirlo.runtime.records import dataclass

ROUND_TABLES = 12
"""Position of the first table in the constants of a round (`rounds.py`)."""
WINDOW, WINDOWS = 6, 5
"""Powers are products of five entries of tables of 64."""
TABLE_WORDS = ROUND_TABLES + (WINDOWS << WINDOW)
"""The constants of a round; cases of loops and branches follow."""


@dataclass(frozen=True)
class HelperText:
    """A function that kernels call; it is compiled once in a process, and has the same name for all."""

    declaration: str
    definition: str


class ModuleText:
    """A module: declarations, helper functions and kernels."""

    def __init__(self, is_inline: bool = False) -> None:
        self.is_inline = is_inline
        """Whether products and accesses are no calls: faster code, which takes longer to compile."""
        self.has_inline_loops = False
        """The same for some innermost loops, which take most of the time of a kernel, and few lines of it."""
        self.declarations: dict[str, None] = {}
        self.helpers: dict[str, HelperText] = {}
        self.functions: list[str] = []
        self._tables: dict[str, str] = {}

    def __str__(self) -> str:
        helpers = (helper.declaration for helper in self.helpers.values())
        tables = (f"@{name} = private unnamed_addr constant {text}" for text, name in self._tables.items())
        return "\n".join([*sorted(self.declarations), *helpers, *tables, *self.functions])

    def table(self, words: Sequence[int]) -> str:
        """Return the name of a constant array of these integers of 64 bits."""
        text = f"[{len(words)} x i64] [{', '.join(f'i64 {word}' for word in words)}]"
        return self._tables.setdefault(text, f"exact.table{len(self._tables)}")


_NAMES = re.compile(r"%v\d+")
"""Results of instructions."""


def without_dead_code(*parts: list[str]) -> list[list[str]]:
    """Return the lines of a function without those whose results no line with an effect depends on.

    Instructions with results have no effects, calls of helpers included.
    """
    operands: dict[str, list[str]] = {}
    live: list[str] = []
    for line in (each for part in parts for each in part):
        result = _result(line)
        if result:
            operands[result] = _NAMES.findall(line)[1:]
        else:
            live += _NAMES.findall(line)
    reached = {""}
    while live:
        name = live.pop()
        if name not in reached:
            reached.add(name)
            live += operands[name]
    return [[line for line in part if _result(line) in reached] for part in parts]


def _result(line: str) -> str:
    """Return the name of the result of an instruction, empty if it has none."""
    name, is_result, _ = line.partition(" = ")
    return name.strip() if is_result else ""


class FunctionText:
    """A function of a module: `void name(ptr %args, ptr %round, i64 %reverse)`."""

    def __init__(self, module: ModuleText, name: str):
        self.module, self.name = module, name
        self.declarations: dict[str, None] = {}
        self.entry: list[str] = []
        """What is computed once, before the body."""
        self.lines: list[str] = []
        self.is_inline = module.is_inline
        """Whether products and accesses are no calls."""
        self.takes_round = True
        """Whether a helper reads constants of the round."""
        self.block = "body"
        """The label of the block under construction."""
        self._count = 0
        self._constants: dict[tuple[int, int | None], str] = {}
        self._entered: dict[str, str] = {}

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def op(self, text: str) -> str:
        """Append an instruction; return the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def effect(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def at_entry(self, text: str) -> str:
        """Emit a computation once, before the body; return its name."""
        if text not in self._entered:
            self._entered[text] = self.fresh()
            self.entry.append(f"  {self._entered[text]} = {text}")
        return self._entered[text]

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def new_label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def constant(self, value: int, bits: int, lanes: int | None) -> str:
        """Return an integer constant, in all lanes."""
        if bits == 1:
            text = "true" if value else "false"
        else:
            text = str((value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))
        return text if lanes is None else f"splat (i{bits} {text})"

    def splat(self, name: str, element: str, lanes: int | None, is_at_entry: bool = False) -> str:
        """Return a vector with a scalar in all lanes."""
        if lanes is None:
            return name
        if not name.startswith(("%", "<")):
            return f"splat ({element} {name})"
        emit = self.at_entry if is_at_entry else self.op
        one = emit(f"insertelement <{lanes} x {element}> poison, {element} {name}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return emit(f"shufflevector <{lanes} x {element}> {one}, <{lanes} x {element}> poison, {zeros}")

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a function of (type, value) arguments, which is declared."""
        self.declare(result, name, [kind for kind, _ in arguments])
        return self.op(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def call_effect(self, name: str, *arguments: tuple[str, str]) -> None:
        self.declare("void", name, [kind for kind, _ in arguments])
        self.effect(f"call void @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def declare(self, result: str, name: str, kinds: list[str]) -> None:
        self.declarations[f"declare {result} @{name}({', '.join(kinds)})"] = None

    def extreme(self, what: str, left: str, right: str, bits: int = 64, lanes: int | None = None) -> str:
        """Return the result of `llvm.umin` and the like."""
        kind = llvm_type(f"i{bits}", lanes)
        suffix = f"i{bits}" if lanes is None else f"v{lanes}i{bits}"
        return self.call(kind, f"llvm.{what}.{suffix}", (kind, left), (kind, right))

    def round_constant(self, index: int, lanes: int | None = None) -> str:
        """Return a constant of the round, which is loaded once."""
        if (index, None) not in self._constants:
            pointer = self.at_entry(f"getelementptr i64, ptr %round, i64 {index}")
            self._constants[index, None] = self.at_entry(f"load i64, ptr {pointer}, align 8")
        if (index, lanes) not in self._constants:
            self._constants[index, lanes] = self.splat(self._constants[index, None], "i64", lanes, is_at_entry=True)
        return self._constants[index, lanes]

    def loop(
        self, count: str, kinds: Sequence[str], start: Sequence[str], body: Callable[[str, list[str]], Sequence[str]]
    ) -> list[str]:
        """Emit a loop over 0, 1, ...; return the values of these types that it carries."""
        head, inside, after = (self.new_label(hint) for hint in ("head", "loop", "after"))
        before = self.block
        self.effect(f"br label %{head}")
        self.label(head)
        index, carried = self.fresh(), [self.fresh() for _ in start]
        place = len(self.lines)
        more = self.op(f"icmp ult i64 {index}, {count}")
        self.effect(f"br i1 {more}, label %{inside}, label %{after}")
        self.label(inside)
        results = body(index, carried)
        following, end = self.op(f"add i64 {index}, 1"), self.block
        self.effect(f"br label %{head}")
        phis = [f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{end} ]"]
        for name, kind, first, again in zip(carried, kinds, start, results, strict=True):
            phis.append(f"  {name} = phi {kind} [ {first}, %{before} ], [ {again}, %{end} ]")
        self.lines[place:place] = phis
        self.label(after)
        return carried

    def each(self, count: str, body: Callable[[str], None]) -> None:
        """Emit a loop that carries nothing."""

        def once(index: str, carried: list[str]) -> Sequence[str]:
            body(index)
            return carried

        self.loop(count, [], [], once)

    def finish(self, has_dead_code: bool = False) -> None:
        """Append the function to its module, without dead code if there may be any."""
        if has_dead_code:
            self.entry, self.lines = without_dead_code(self.entry, self.lines)
        head = f"define void @{self.name}(ptr %args, ptr %round, i64 %reverse) {{\nentry:\n"
        entry, body = "\n".join(self.entry), "\n".join(self.lines)
        self.module.declarations |= self.declarations
        self.module.functions.append(f"{head}{entry}\n  br label %body\nbody:\n{body}\n  ret void\n}}\n")

    def finish_helper(self, result: str, **parameters: str) -> None:
        """Make this a helper of its module, with parameters of these types; its body returns.

        The constants of the round are the last parameter if it takes them.
        """
        kinds = {**parameters, "round": "ptr"} if self.takes_round else parameters
        named = ", ".join(f"{kind} %{name}" for name, kind in kinds.items())
        body = "\n".join([*self.entry, "  br label %body", "body:", *self.lines])
        self.module.helpers[self.name] = HelperText(
            f"declare {result} @{self.name}({', '.join(kinds.values())})",
            "\n".join([*self.declarations, f"define {result} @{self.name}({named}) {{\nentry:\n{body}\n}}\n"]),
        )
