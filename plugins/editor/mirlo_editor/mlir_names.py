"""The names in MLIR's text: definitions, and the names that refer to them.

The bindings have locations of operations but not of names, and an incomplete document has no operations at all. So this
module reads tokens: definitions are recognized by adjacent tokens, in scopes of braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mirlo_editor.document import Function, Name, TextSpan

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<value>%[\w$.-]+)(?P<pick>[:\#]\d+)?"""
    r"""|(?P<symbol>@(?:"(?:[^"\\\n]|\\.)*"|[\w$.-]+))|(?P<block>\^[\w$.-]+)|(?P<arrow>->)"""
    r"""|(?P<bare>[!\#]?[A-Za-z_][\w$.]*)|(?P<mark>[(){}\[\]<>=,:])|(?P<line>\n)""",
    re.VERBOSE,
)
_VISIBILITIES = frozenset(("private", "public", "nested", "constant"))
_DEFINING = re.compile(r"(\w+\.)?(func|module|global|extern|kernel)|builtin\.module")
"""Operations whose name is followed by the definition of a symbol."""
_LAUNCHES = frozenset(("blocks", "threads", "clusters"))
"""Keywords of `gpu.launch` before the values that it defines."""


@dataclass(frozen=True)
class Token:
    """A token of the text."""

    kind: str
    text: str
    span: TextSpan


@dataclass
class _Scope:
    """The names defined between two braces."""

    parent: _Scope | None = None
    defined: dict[str, list[tuple[int, TextSpan]]] = field(default_factory=dict)
    """The definitions of each name, as tokens in order."""


@dataclass
class NamedText:
    """All names of a text."""

    names: list[Name] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    results: list[tuple[TextSpan, list[Name]]] = field(default_factory=list)
    """The name of each operation with results, and the names of these."""
    arguments: list[tuple[TextSpan, list[Name]]] = field(default_factory=list)
    """The name of each operation that defines values in its syntax, as loops do, and the names of these."""


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, without comments."""
    tokens = []
    line, begin = 0, 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "line":
            line, begin = line + 1, match.end()
            continue
        if kind == "pick":
            kind = "value"
        if kind != "comment":
            end = match.end("value") if kind == "value" else match.end()
            tokens.append(Token(kind, text[match.start() : end], TextSpan(line, match.start() - begin, end - begin)))
    return tokens


def names_of(text: str) -> NamedText:
    """Return the names of a text with their definitions."""
    return _Reader(text).read()


class _Reader:
    """Reads the tokens twice: definitions first, because blocks and functions may be used before."""

    def __init__(self, text: str):
        self.lines = text.split("\n")
        self.tokens = tokens_of(text)
        self.result = NamedText()
        self.scopes: list[_Scope] = []
        self.symbols: dict[str, TextSpan] = {}
        self.types: dict[TextSpan, str] = {}
        self.closing = _closing(self.tokens)

    def read(self) -> NamedText:
        defined = self._definitions()
        scope = _Scope()
        self.scopes = []
        for i, token in enumerate(self.tokens):
            if token.text == "{":
                scope = _Scope(scope)
            elif token.text == "}" and scope.parent is not None:
                scope = scope.parent
            self.scopes.append(scope)
            if i in defined:
                scope.defined.setdefault(token.text, []).append((i, token.span))
            if token.kind == "symbol" and self._defines_symbol(i):
                self.symbols.setdefault(_unquoted(token.text), token.span)
            elif token.text == "sym_name" and self._kind(i + 2) == "string":
                self.symbols.setdefault(_unquoted(self.tokens[i + 2].text), self.tokens[i + 2].span)
        self._name_all(defined)
        return self.result

    def _name_all(self, defined: frozenset[int]) -> None:
        by_span: dict[TextSpan, Name] = {}
        for i, token in enumerate(self.tokens):
            name = self._name(i, token)
            if name is not None:
                by_span[token.span] = name
                self.result.names.append(name)
        for name in self.result.names:
            if name.definition in by_span:
                name.type = by_span[name.definition].type
        self._operations(defined, by_span)
        self._functions()

    def _name(self, i: int, token: Token) -> Name | None:
        if token.kind in ("value", "block"):
            return Name(token.span, token.kind, token.text, self._lookup(i), self.types.get(token.span))
        if token.kind == "symbol":
            symbol = _unquoted(token.text)
            return Name(token.span, "function", symbol, self.symbols.get(symbol))
        if token.kind == "bare" and self._text(i - 1) == "{" and self._text(i - 3) == "tir.schedule":
            return Name(token.span, "rule", token.text)
        if token.kind == "bare" and "." in token.text and token.text[0] not in "!#" and not self._is_key(i):
            return Name(token.span, "operation", token.text)
        if token.kind == "string":
            kind = "operation" if self._text(i + 1) == "(" and self._text(i - 1) != "(" else "text"
            return Name(token.span, kind, token.text[1:-1], self.symbols.get(token.text[1:-1]))
        return None

    def _is_key(self, i: int) -> bool:
        """Return whether a word is an attribute name: in braces, unit attributes have no value."""
        return self._text(i + 1) == "=" or (self._text(i - 1) in "{," and self._text(i + 1) in (",", "}"))

    def _lookup(self, i: int) -> TextSpan | None:
        """Return the last definition of a name before its use in the innermost scope, else the first one after it."""
        text = self.tokens[i].text
        scope: _Scope | None = self.scopes[i]
        later: TextSpan | None = None
        while scope is not None:
            known = scope.defined.get(text, ())
            before = [span for at, span in known if at <= i]
            if before:
                return before[-1]
            later = later or (known[0][1] if known else None)
            scope = scope.parent
        return later

    # Definitions

    def _definitions(self) -> frozenset[int]:
        """Return the tokens that define a value or a block, and record the types next to them."""
        defined: set[int] = set()
        for i, token in enumerate(self.tokens):
            if token.kind == "value" and self._text(i + 1) == "=" and self._text(i - 1) != "=":
                defined.update(self._before(i))
            elif token.text == "(":
                close = self.closing.get(i, i)
                if self._binds(i, close):
                    defined.update(self._typed(i, close))
            elif token.kind == "block" and self._is_label(i):
                defined.add(i)
        return frozenset(defined)

    def _before(self, i: int) -> Iterator[int]:
        """Yield the values before `=`: `%a, %b = ...`."""
        yield i
        while self._text(i - 1) == "," and self._kind(i - 2) == "value" and self._text(i - 3) != "=":
            i -= 2
            yield i

    def _binds(self, i: int, close: int) -> bool:
        """Return whether values in parentheses are definitions."""
        if self._kind(i + 1) != "value":
            return False
        before = self._text(i - 1)
        if self._kind(i - 1) == "symbol":
            return self._defines_symbol(i - 1)
        if self._kind(i - 1) == "block":
            return self._is_label(i - 1)
        return before in _LAUNCHES or (self._text(close + 1) == "=" and self._text(i + 2) in (",", ")"))

    def _typed(self, i: int, close: int) -> Iterator[int]:
        """Yield the values that a list defines, and record their types."""
        depth = 0
        at = i + 1
        while at < close:
            text = self._text(at)
            depth += (text in "([{<") - (text in ")]}>")
            if depth == 0 and self._kind(at) == "value" and self._text(at - 1) in ("(", ","):
                yield at
                if self._text(at + 1) == ":":
                    self.types[self.tokens[at].span] = self._type(at + 2, close)
            at += 1

    def _type(self, i: int, close: int) -> str:
        """Return the text of a type: up to a comma or to an argument's attributes."""
        depth, last = 0, i
        for at in range(i, close):
            text = self._text(at)
            if depth == 0 and (text in (",", "{") or text == "loc"):
                break
            depth += (text in "([{<") - (text in ")]}>")
            last = at
        begin, end = self.tokens[i].span, self.tokens[last].span
        return self.lines[begin.line][begin.start : end.end] if begin.line == end.line else ""

    def _is_label(self, i: int) -> bool:
        """Return whether a block begins here: a label, with or without arguments, ends with a colon."""
        if self._text(i + 1) == ":":
            return True
        close = self.closing.get(i + 1)
        return self._text(i + 1) == "(" and close is not None and self._text(close + 1) == ":"

    def _defines_symbol(self, i: int) -> bool:
        before = i - 1
        while before >= 0 and (self._text(before) in _VISIBILITIES or self._kind(before) == "string"):
            before -= 1
        return before >= 0 and self._kind(before) == "bare" and bool(_DEFINING.fullmatch(self._text(before)))

    # Operations and functions

    def _operations(self, defined: frozenset[int], by_span: dict[TextSpan, Name]) -> None:
        operation: TextSpan | None = None
        for i, token in enumerate(self.tokens):
            name = by_span.get(token.span)
            if name is not None and name.kind == "operation":
                operation = token.span
            if i not in defined or token.kind != "value":
                continue
            if self._starts_statement(i):
                at = self._after_results(i)
                if at is not None:
                    # `%x:2` has one name for both results.
                    results = [by_span[self.tokens[j].span] for j in range(i, at) if self._kind(j) == "value"]
                    self.result.results.append((self.tokens[at].span, results))
            elif operation is not None and name is not None and name.type is None and not self._is_result(i):
                if not self.result.arguments or self.result.arguments[-1][0] != operation:
                    self.result.arguments.append((operation, []))
                self.result.arguments[-1][1].append(name)

    def _starts_statement(self, i: int) -> bool:
        return i == 0 or self.tokens[i - 1].span.line < self.tokens[i].span.line or self._text(i - 1) in "{}:"

    def _after_results(self, i: int) -> int | None:
        """Return the token of the operation after `%a, %b =`."""
        while self._kind(i) == "value" and self._text(i + 1) == ",":
            i += 2
        return i + 2 if self._text(i + 1) == "=" and i + 2 < len(self.tokens) else None

    def _is_result(self, i: int) -> bool:
        while self._text(i - 1) == "," and self._kind(i - 2) == "value":
            i -= 2
        return self._starts_statement(i)

    def _functions(self) -> None:
        for i, token in enumerate(self.tokens):
            if token.kind != "symbol" or self.symbols.get(_unquoted(token.text)) != token.span:
                continue
            keyword = next((self._text(j) for j in range(i - 1, -1, -1) if self._text(j) not in _VISIBILITIES), "")
            if not keyword.endswith("func"):
                continue
            self.result.functions.append(Function(_unquoted(token.text), token.span, self._last_line(i)))

    def _last_line(self, i: int) -> int:
        """Return the last line of a function: that of the closing brace of its body, not of its attributes."""
        at = i + 1
        while at < len(self.tokens) and self._text(at) != "{" and self.tokens[at].kind != "string":
            if self._text(at) == "attributes" and self._text(at + 1) == "{":
                at = self.closing.get(at + 1, at + 1)
            elif self._text(at) == "(":
                at = self.closing.get(at, at)
            at += 1
        close = self.closing.get(at)
        return self.tokens[close if close is not None else i].span.line

    def _text(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else "\n"

    def _kind(self, i: int) -> str:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else ""


def _closing(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the matching token of each parenthesis, brace and bracket."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token.kind == "mark" and token.text in "({[":
            opened.append(i)
        elif token.kind == "mark" and token.text in ")}]" and opened:
            pairs[opened.pop()] = i
    return pairs


def _unquoted(symbol: str) -> str:
    bare = symbol.removeprefix("@")
    return bare[1:-1] if bare.startswith('"') else bare
