"""Shardy's operations in text: written in MLIR's generic form, which parses without their dialect.

The dialect `sdy` is not among the bindings. Its attributes stay as they are, and are read as text.
"""

from __future__ import annotations

import re

from mirlo_stablehlo.errors import StablehloImportError

OPERATIONS = ("mesh", "manual_computation", "sharding_constraint", "reshard", "return")
_TOKEN = re.compile(rf'"(?:[^"\\\n]|\\.)*"|//[^\n]*|(?<![#!\w.$"])sdy\.({"|".join(OPERATIONS)})\b')
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}
MAX_DEPTH = 20
"""Deepest nesting of manual computations."""


def has_shardy(text: bytes) -> bool:
    """Return whether bytecode has operations or attributes of Shardy."""
    return b"\0sdy\0" in text or b"sdy." in text


def generic_form(text: str, depth: int = 0) -> str:
    """Return a program with Shardy's operations in generic form."""
    if depth > MAX_DEPTH:
        raise StablehloImportError(f"manual computations are nested more than {MAX_DEPTH} deep")
    pieces: list[str] = []
    at = 0
    while True:
        match = _TOKEN.search(text, at)
        if match is None:
            return "".join([*pieces, text[at:]])
        name = match.group(1)
        pieces.append(text[at : match.start()])
        if name is None:
            pieces.append(match.group())
            at = match.end()
            continue
        reader = _Reader(text, match.end(), f"sdy.{name}")
        pieces.append(getattr(reader, f"read_{name}")(depth))
        at = reader.at


class _Reader:
    """Reads the text after the name of an operation of Shardy."""

    def __init__(self, text: str, at: int, name: str) -> None:
        self.text, self.at, self.name = text, at, name

    def read_mesh(self, depth: int) -> str:
        """Read `@mesh = <["x"=2]>`, and attributes after it."""
        symbol = self._match(r"\s*@(\w+|\"[^\"]*\")\s*=\s*").group(1).strip('"')
        mesh = self._enclosed("<")
        self._skip_attributes()
        return f'"sdy.mesh"() {{sym_name = "{symbol}", mesh = #sdy.mesh<{mesh}>}} : () -> ()'

    def read_sharding_constraint(self, depth: int) -> str:
        """Read `%2 <@mesh, [{"x"}]> : tensor<8xf32>`."""
        operand = self._match(r"\s*(%[\w$.#-]+)\s*").group(1)
        sharding = self._enclosed("<")
        self._skip_attributes()
        kind = self._type()
        return f'"{self.name}"({operand}) {{sharding = #sdy.sharding<{sharding}>}} : ({kind}) -> {kind}'

    read_reshard = read_sharding_constraint

    def read_return(self, depth: int) -> str:
        """Read `%1, %2 : tensor<f32>, tensor<f32>`, or nothing."""
        operands = self._optional(r"\s*(%[\w$.#-]+(?:\s*,\s*%[\w$.#-]+)*)\s*:\s*")
        if operands is None:
            return '"sdy.return"() : () -> ()'
        types = [self._bare_type()]
        while self._optional(r"\s*,\s*") is not None:
            types.append(self._bare_type())
        return f'"sdy.return"({operands.group(1)}) : ({", ".join(types)}) -> ()'

    def read_manual_computation(self, depth: int) -> str:
        """Read operands, shardings, axes, the arguments and the body of the region, and the type.

        MLIR takes an unknown operation with one region for a symbol table, in which calls find no function, so an empty
        region is added.
        """
        self._match(r"\s*(?=\()")
        operands = self._enclosed("(")
        held = {}
        for name, opening in (("in_shardings", "["), ("out_shardings", "["), ("manual_axes", "{")):
            self._match(rf"\s*{name}\s*=\s*")
            held[name] = self._enclosed(opening)
        self._match(r"\s*(?=\()")
        arguments = self._enclosed("(")
        self._match(r"\s*(?=\{)")
        body = generic_form(self._enclosed("{"), depth + 1)
        self._skip_attributes()
        self._match(r"\s*:\s*(?=\()")
        inputs = self._enclosed("(")
        self._match(r"\s*->\s*")
        results = f"({self._enclosed('(')})" if self.text.startswith("(", self.at) else self._bare_type()
        label = f"^bb0({arguments}):" if arguments.strip() else ""
        attributes = ", ".join(
            [
                f"in_shardings = #sdy.shardings<[{held['in_shardings']}]>",
                f"out_shardings = #sdy.shardings<[{held['out_shardings']}]>",
                f"manual_axes = #sdy.axes<{{{held['manual_axes']}}}>",
            ]
        )
        return f'"{self.name}"({operands}) ({{{label}{body}}}, {{}}) {{{attributes}}} : ({inputs}) -> {results}'

    def _type(self) -> str:
        self._match(r"\s*:\s*")
        return self._bare_type()

    def _bare_type(self) -> str:
        """Read a type such as `tensor<8x!quant.uniform<...>>` or `!stablehlo.token`."""
        name = self._match(r"\s*([!\w.]+)").group(1)
        return f"{name}<{self._enclosed('<')}>" if self.text.startswith("<", self.at) else name

    def _skip_attributes(self) -> None:
        if self._optional(r"[ \t]*(?=\{)") is not None:
            self._enclosed("{")

    def _match(self, pattern: str) -> re.Match[str]:
        match = self._optional(pattern)
        if match is None:
            line = self.text.count("\n", 0, self.at) + 1
            raise StablehloImportError(
                f"'{self.name}' in line {line} is not written as Shardy does: expected {pattern!r}, found "
                f"{self.text[self.at : self.at + 40]!a}"
            )
        return match

    def _optional(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(pattern).match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def _enclosed(self, opening: str) -> str:
        """Read the text up to the closing bracket; brackets in strings do not count."""
        self._match(re.escape(opening))
        closing, begin, level = _CLOSING[opening], self.at, 1
        interesting = re.compile(rf'"|\{opening}|\{closing}')
        at = begin
        while True:
            match = interesting.search(self.text, at)
            if match is None:
                raise StablehloImportError(f"'{self.name}' has '{opening}' without '{closing}'")
            if match.group() == '"':
                string = _STRING.match(self.text, match.start())
                at = match.end() if string is None else string.end()
                continue
            at = match.end()
            if self.text[match.start() - 1 : at] == "->":
                continue
            level += 1 if match.group() == opening else -1
            if not level:
                self.at = at
                return self.text[begin : match.start()]


__all__ = ["generic_form", "has_shardy"]
