"""From the text of PTX to a `Module`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace

from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.text import (
    Address,
    Bracket,
    Function,
    Imm,
    Module,
    Negated,
    Operand,
    Pair,
    PtxInstruction,
    PtxSymbol,
    PtxVariable,
    Reg,
    Vector,
)

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|/\*.*?\*/)|(?P<line>\n)|(?P<string>"[^"]*")
    |(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|\d+\.\d+(?:[eE][+-]?\d+)?)
    |(?P<number>0[xX][0-9a-fA-F]+U?|\d+U?)
    |(?P<name>%?[A-Za-z_$][\w$]*(?:\.[A-Za-z_]\w*|::\w+|\.\d\w*)*)
    |(?P<directive>\.[A-Za-z_]\w*)|(?P<mark>[-+{}()\[\],;:@!|<>=])""",
    re.VERBOSE | re.DOTALL,
)
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "28": 16}
_LIMITS = ("maxntid", "reqntid", "minnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank", "explicitcluster",
           "noreturn")  # fmt: skip
Token = tuple[str, str, int]


def parse(text: str) -> Module:
    """Parse the module of a text."""
    return _Parser(text).module()


def _tokens(text: str) -> Iterator[Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxError(f"line {line}: cannot read {text[at : at + 20]!r}")
        kind, parsed = str(match.lastgroup), match.group()
        if kind not in ("space", "line"):
            yield kind, parsed, line
        line += parsed.count("\n")
        at = match.end()
    yield "end", "", line


def _size_of(kind: str) -> int:
    return _SIZES[kind[-2:].lstrip("bsuf") if kind[-2:] != "28" else "28"]


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0

    # Tokens

    @property
    def token(self) -> str:
        return self.tokens[self.at][1]

    @property
    def line(self) -> int:
        return self.tokens[self.at][2]

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]

    def take(self, mark: str) -> bool:
        if self.token != mark:
            return False
        self.at += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise PtxError(f"line {self.line}: expected {mark!r}, found {self.token!r}")

    def number(self) -> int:
        negative = self.take("-")
        value = int(self.next().rstrip("U"), 0)
        return -value if negative else value

    # Modules

    def module(self) -> Module:
        result = Module()
        while self.token:
            word = self.next()
            if word == ".version":
                major, _, minor = self.next().partition(".")
                result.version = (int(major), int(minor))
            elif word == ".target":
                result.target = self.next()
                while self.take(","):
                    self.next()
            elif word == ".address_size":
                self.next()
            elif word in (".visible", ".extern", ".weak", ".common"):
                continue
            elif word in (".entry", ".func"):
                function = self._function(word == ".entry")
                result.functions[function.name] = function
            elif word in (".global", ".const", ".shared"):
                result.variables += self._variables(word[1:])
            else:
                raise PtxError(f"line {self.line}: unknown directive {word!r}")
        return result

    def _variables(self, space: str) -> list[PtxVariable]:
        """Parse a declaration after its state space."""
        alignment, size = self._kind_of_variable()
        parsed = []
        while True:
            name, count = self.next(), 1
            while self.take("["):
                count *= 0 if self.token == "]" else self.number()
                self.expect("]")
            initial = self._initial(size) if self.take("=") else b""
            parsed.append(PtxVariable(name, space, size * count, alignment or size, initial))
            if space == "param" or not self.take(","):
                break
        if space != "param":
            self.expect(";")
        return parsed

    def _kind_of_variable(self) -> tuple[int, int]:
        """Parse the alignment, 0 by default, and the bytes of an element."""
        alignment, size, lanes = 0, 0, 1
        while self.token.startswith("."):
            word = self.next()
            if word == ".align":
                alignment = self.number()
            elif word in (".v2", ".v4"):
                lanes = int(word[2:])
            elif word == ".ptr":
                # What it points to says nothing about the parameter itself.
                while self.token in (".global", ".shared", ".const", ".local"):
                    self.next()
                if self.take(".align"):
                    self.number()
            else:
                size = _size_of(word)
        return alignment, size * lanes

    def _initial(self, size: int) -> bytes:
        if not self.take("{"):
            return self._packed(size)
        result = b""
        while not self.take("}"):
            result += self._initial(size) if self.token == "{" else self._packed(size)
            self.take(",")
        return result

    def _packed(self, size: int) -> bytes:
        value = self._operand()
        if not isinstance(value, Imm):
            raise PtxError(f"line {self.line}: initial values of this kind are not known")
        return (value.bits & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    # Functions

    def _function(self, entry: bool) -> Function:
        results = self._params() if self.token == "(" else []
        result = Function(self.next(), entry, results=results)
        if self.token == "(":
            result.params = self._params()
        while self.token not in ("{", ";"):
            word = self.next()
            if word.lstrip(".") not in _LIMITS:
                raise PtxError(f"line {self.line}: unknown directive {word!r} of '{result.name}'")
            numbers = []
            while self.tokens[self.at][0] == "number":
                numbers.append(self.number())
                self.take(",")
            result.directives[word[1:]] = tuple(numbers)
        if not self.take(";"):
            self.expect("{")
            self._body(result, {})
        return result

    def _params(self) -> list[PtxVariable]:
        self.expect("(")
        parsed: list[PtxVariable] = []
        while not self.take(")"):
            self.expect(".param")
            parsed += self._variables("param")
            self.take(",")
        return parsed

    def _body(self, function: Function, renamed: dict[str, str]) -> None:
        """Parse statements up to the closing brace; `renamed` maps the registers of inner scopes."""
        while not self.take("}"):
            kind, word, line = self.tokens[self.at]
            if word == "{":
                self.next()
                self._scope(function, renamed)
            elif word == ";":
                self.next()
            elif word == ".reg":
                self._registers(function, renamed)
            elif word in (".local", ".shared", ".param"):
                self.next()
                function.variables += self._variables(word[1:]) if word != ".param" else self._call_params()
            elif word == ".pragma" or word == ".loc":
                while self.next() != ";":
                    pass
            elif kind == "name" and self.tokens[self.at + 1][1] == ":":
                self.at += 2
                if self.take(".branchtargets"):
                    function.tables[word] = self._labels()
                else:
                    function.labels[word] = len(function.body)
            else:
                function.body.append(self._instruction(line, renamed))

    def _scope(self, function: Function, renamed: dict[str, str]) -> None:
        """Parse statements between braces, which have their own labels."""
        outer, start = function.labels, len(function.body)
        function.labels = {}
        self._body(function, dict(renamed))
        own = {name: f"{name}${start}" for name in function.labels}
        function.labels = outer | {own[name]: at for name, at in function.labels.items()}
        for at in range(start, len(function.body)):
            operands = tuple(
                PtxSymbol(own[one.name]) if isinstance(one, PtxSymbol) and one.name in own else one
                for one in function.body[at].operands
            )
            function.body[at] = replace(function.body[at], operands=operands)

    def _call_params(self) -> list[PtxVariable]:
        parsed = self._variables("param")
        self.expect(";")
        return parsed

    def _labels(self) -> tuple[str, ...]:
        parsed = [self.next()]
        while self.take(","):
            parsed.append(self.next())
        self.expect(";")
        return tuple(parsed)

    def _registers(self, function: Function, renamed: dict[str, str]) -> None:
        self.next()
        kind = self.next()[1:]
        while True:
            name = self.next()
            if self.take("<"):
                self.number()
                self.expect(">")
            elif name in function.registers:
                # Of an inner scope: the same text of inline assembly declares it each time.
                renamed[name] = f"{name}${self.at}"
                name = renamed[name]
            elif not name.startswith("%"):
                renamed[name] = name
            function.registers[name] = kind
            if not self.take(","):
                break
        self.expect(";")

    def _instruction(self, line: int, renamed: dict[str, str]) -> PtxInstruction:
        guard: Reg | Negated | None = None
        if self.take("@"):
            negated = self.take("!")
            reg = Reg(renamed.get(self.token, self.token))
            self.next()
            guard = Negated(reg) if negated else reg
        name, *modifiers = re.split(r"\.(?!\d*$)", self._opcode())
        operands = []
        while self.token != ";":
            operands.append(self._renamed(self._operand(), renamed))
            self.take(",")
        self.expect(";")
        return PtxInstruction(name, tuple(modifiers), tuple(operands), guard, line)

    def _opcode(self) -> str:
        word = self.next()
        # `.1d` and the like are not part of the name for the tokenizer where a digit begins them.
        while self.tokens[self.at][0] == "directive":
            word += self.next()
        return word

    def _renamed(self, operand: Operand, renamed: dict[str, str]) -> Operand:
        if not renamed:
            return operand
        if isinstance(operand, Reg):
            return Reg(renamed.get(operand.name, operand.name))
        if isinstance(operand, PtxSymbol):
            return Reg(renamed[operand.name]) if operand.name in renamed else operand
        if isinstance(operand, Negated):
            return Negated(Reg(renamed.get(operand.reg.name, operand.reg.name)))
        if isinstance(operand, (Vector, Bracket)):
            return type(operand)(tuple(self._renamed(part, renamed) for part in operand.parts))
        if isinstance(operand, Pair):
            return Pair(self._renamed(operand.first, renamed), self._renamed(operand.second, renamed))
        if isinstance(operand, Address) and not isinstance(operand.base, Imm):
            base = self._renamed(operand.base, renamed)
            assert isinstance(base, (Reg, PtxSymbol))
            return Address(base, operand.offset)
        return operand

    # Operands

    def _operand(self) -> Operand:
        result = self._single()
        if self.take("|"):
            return Pair(result, self._single())
        return result

    def _single(self) -> Operand:
        kind, word, line = self.tokens[self.at]
        if word in ("{", "("):
            return Vector(self._parts("}" if word == "{" else ")"))
        if word == "[":
            return self._bracket()
        if word == "!":
            self.next()
            return Negated(Reg(self.next()))
        if word == "-" or kind in ("number", "float"):
            return self._immediate()
        if kind == "name":
            self.next()
            return Reg(word) if word.startswith("%") else PtxSymbol(word)
        raise PtxError(f"line {line}: expected an operand, found {word!r}")

    def _immediate(self) -> Imm:
        negative = self.take("-")
        kind, word, _ = self.tokens[self.at]
        self.next()
        if kind == "float":
            if word[1] in "fF":
                return Imm(int(word[2:], 16), 32)
            if word[1] in "dD":
                return Imm(int(word[2:], 16), 64)
            number = -float(word) if negative else float(word)
            return Imm(int.from_bytes(struct.pack("<d", number), "little"), 64)
        value = int(word.rstrip("U"), 0)
        return Imm((-value if negative else value) & ((1 << 64) - 1))

    def _parts(self, end: str) -> tuple[Operand, ...]:
        self.next()
        parts = []
        while not self.take(end):
            parts.append(self._operand())
            self.take(",")
        return tuple(parts)

    def _bracket(self) -> Operand:
        self.expect("[")
        base = self._operand()
        offset = 0
        if self.token in ("+", "-"):
            sign = 1 if self.next() == "+" else -1
            offset = sign * self.number()
        if self.token == ",":
            parts: list[Operand] = [Address(base, offset) if offset else base]  # type: ignore[arg-type]
            while self.take(","):
                parts.append(self._operand())
            self.expect("]")
            return Bracket(tuple(parts))
        self.expect("]")
        if not isinstance(base, (Reg, PtxSymbol, Imm)):
            raise PtxError(f"line {self.line}: no address: {base}")
        return Address(base, offset)
