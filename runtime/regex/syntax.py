"""Regular expressions in RE2's syntax, as trees."""

from __future__ import annotations

from typing import NamedTuple

from mirlo.runtime.errors import MirloError
from mirlo.runtime.regex.charset import (
    ALL,
    LAST,
    NO_NEWLINE,
    PERL,
    POSIX,
    Ranges,
    folded,
    negated,
    union,
)
from mirlo.runtime.regex.unicode_groups import unicode_group

MAX_REPEAT = 1000
"""Most repetitions of a counted part, also of parts in each other together."""
MAX_DEPTH = 100
"""Groups in each other."""
TEXT_START, TEXT_END, LINE_START, LINE_END, BOUNDARY, NO_BOUNDARY = (1 << bit for bit in range(6))
"""What may be true of a place in a text."""


class RegexError(MirloError, ValueError):
    """A text that is no regular expression of RE2's syntax."""

    error_code = "MIR0114"
    remedy = "Correct the regular expression at the place that the message names."


class CharacterSet(NamedTuple):
    """One character of a set."""

    ranges: Ranges


class Assertion(NamedTuple):
    """A place with some flags."""

    flag: int


class Concatenation(NamedTuple):
    """Parts one after the other."""

    parts: tuple[Node, ...]


class Alternation(NamedTuple):
    """One of some parts."""

    parts: tuple[Node, ...]


class Repetition(NamedTuple):
    """A part, `least` to `most` times; any number without `most`."""

    part: Node
    least: int
    most: int | None


Node = CharacterSet | Assertion | Concatenation | Alternation | Repetition


class _Flags(NamedTuple):
    """The flags that `(?i)`, `(?m)` and `(?s)` set."""

    folds: bool = False
    multiline: bool = False
    dot_all: bool = False


class _Group:
    """An open group: its choices so far, and the parts of the last one."""

    def __init__(self, outer: _Flags) -> None:
        self.outer = outer
        self.choices: list[Node] = []
        self.parts: list[Node] = []

    def close_choice(self) -> None:
        self.choices.append(self.parts[0] if len(self.parts) == 1 else Concatenation(tuple(self.parts)))
        self.parts = []

    def close(self) -> Node:
        self.close_choice()
        return self.choices[0] if len(self.choices) == 1 else Alternation(tuple(self.choices))


def parse(pattern: str) -> Node:
    """Return the tree of a regular expression."""
    return _Parser(pattern).parse()


_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX = frozenset("0123456789abcdefABCDEF")
_ASSERTIONS = {"A": TEXT_START, "z": TEXT_END, "b": BOUNDARY, "B": NO_BOUNDARY}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0
        self._flags = _Flags()
        self._groups = [_Group(self._flags)]
        self._operator = ""
        """The repetition that was read last, if nothing is after it."""

    def parse(self) -> Node:
        while self._at < len(self._text):
            operator, self._operator = self._operator, ""
            letter = self._text[self._at]
            if letter in "*+?{" and self._repeat(operator):
                continue
            self._at += 1
            self._read(letter)
        if len(self._groups) > 1:
            raise RegexError("missing ')'")
        return self._groups[0].close()

    def _read(self, letter: str) -> None:
        parts = self._groups[-1].parts
        if letter == "(":
            self._open()
        elif letter == ")":
            self._close()
        elif letter == "|":
            self._groups[-1].close_choice()
        elif letter == "[":
            parts.append(CharacterSet(self._class()))
        elif letter == ".":
            parts.append(CharacterSet(ALL if self._flags.dot_all else NO_NEWLINE))
        elif letter == "^":
            parts.append(Assertion(LINE_START if self._flags.multiline else TEXT_START))
        elif letter == "$":
            parts.append(Assertion(LINE_END if self._flags.multiline else TEXT_END))
        elif letter == "\\":
            self._escape()
        else:
            parts.append(self._literal(ord(letter)))

    def _literal(self, code: int) -> CharacterSet:
        ranges: Ranges = ((code, code),)
        return CharacterSet(folded(ranges) if self._flags.folds else ranges)

    def _open(self) -> None:
        if len(self._groups) > MAX_DEPTH:
            raise RegexError(f"more than {MAX_DEPTH} groups in each other")
        outer = self._flags
        if self._text.startswith("?", self._at) and not self._open_special():
            return
        self._groups.append(_Group(outer))

    def _open_special(self) -> bool:
        """Read what follows `(?`; return whether a group begins, and not only flags are set."""
        text, start = self._text, self._at
        if text.startswith(("?P<", "?<"), start) and not text.startswith(("?<=", "?<!"), start):
            begin = text.index("<", start) + 1
            end = text.find(">", begin)
            name = text[begin:end]
            if end < 0 or not all(each == "_" or each.isalnum() for each in name) or not name:
                raise RegexError(f"invalid named group: ({text[start : end + 1 if end >= 0 else None]}")
            self._at = end + 1
            return True
        is_set, has_flags, flags, place = True, False, self._flags, start + 1
        while place < len(text):
            letter = text[place]
            place += 1
            if letter in "imsU":
                has_flags = True
                if letter != "U":  # which part is taken first does not matter
                    key = {"i": "folds", "m": "multiline", "s": "dot_all"}[letter]
                    flags = flags._replace(**{key: is_set})
            elif letter == "-" and is_set:
                is_set, has_flags = False, False
            elif letter in ":)" and (is_set or has_flags):
                self._flags, self._at = flags, place
                return letter == ":"
            else:
                break
        if place >= len(text) and text[-1:] not in ":)":
            raise RegexError("missing ')'")
        raise RegexError(f"invalid perl operator: ({text[start:place]}")

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise RegexError("unexpected ')'")
        group = self._groups.pop()
        self._flags = group.outer
        self._groups[-1].parts.append(group.close())

    def _repeat(self, operator: str) -> bool:
        """Read a repetition; return False for a brace that is none."""
        text, start = self._text, self._at
        letter = text[start]
        least, most, end = {"*": (0, None, start + 1), "+": (1, None, start + 1), "?": (0, 1, start + 1)}.get(
            letter, (0, None, -1)
        )
        if letter == "{":
            counted = self._counts(start + 1)
            if counted is None:
                return False
            least, most, end = counted
        if text.startswith("?", end):  # the shorter one first, which does not matter
            end += 1
        written = text[start:end]
        if operator:
            raise RegexError(f"bad repetition operator: {operator}{written}")
        parts = self._groups[-1].parts
        if not parts:
            raise RegexError(f"no argument for repetition operator: {written}")
        if letter == "{" and (max(least, most or 0) > MAX_REPEAT or (most is not None and least > most)):
            raise RegexError(f"invalid repetition size: {written}")
        parts[-1] = Repetition(parts[-1], least, most)
        if letter == "{" and not _may_repeat(parts[-1], MAX_REPEAT):
            raise RegexError(f"invalid repetition size: {written}")
        self._operator, self._at = written, end
        return True

    def _counts(self, start: int) -> tuple[int, int | None, int] | None:
        """Return the bounds of a counted repetition and where it ends; None if it is none."""
        least, at = self._number(start)
        if least is None:
            return None
        most: int | None = least
        if self._text.startswith(",", at):
            at += 1
            if self._text.startswith("}", at):
                most = None
            else:
                most, at = self._number(at)
                if most is None:
                    return None
        return (least, most, at + 1) if self._text.startswith("}", at) else None

    def _number(self, start: int) -> tuple[int | None, int]:
        end = start
        while self._text[end : end + 1] in _DECIMAL:
            end += 1
        digits = self._text[start:end]
        if not digits or (len(digits) > 1 and digits[0] == "0"):
            return None, start
        return (int(digits) if len(digits) < 9 else 10**8), end

    def _escape(self) -> None:
        """Read what follows a backslash outside of a class."""
        parts, letter = self._groups[-1].parts, self._text[self._at : self._at + 1]
        if letter == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at + 1 : end if end >= 0 else None]
            parts += [self._literal(ord(each)) for each in quoted]
            self._at = end + 2 if end >= 0 else len(self._text)
        elif letter in _ASSERTIONS:
            parts.append(Assertion(_ASSERTIONS[letter]))
            self._at += 1
        elif letter == "C":
            raise RegexError(r"\C is not supported: texts are characters here, not bytes")
        else:
            group = self._class_escape()
            parts.append(CharacterSet(group) if group is not None else self._literal(self._code()))

    def _class_escape(self) -> Ranges | None:
        r"""Return the set of an escape such as `\d` or `\pN`; None for other escapes."""
        letter = self._text[self._at : self._at + 1]
        if letter and letter in "dswDSW":
            self._at += 1
            return self._signed(PERL[letter.lower()], letter.islower())
        if not letter or letter not in "pP":
            return None
        self._at += 1
        name = self._text[self._at : self._at + 1]
        end = self._at + 1
        if name == "{":
            end = self._text.find("}", self._at) + 1
            name = self._text[self._at + 1 : end - 1] if end else ""
        is_positive = letter == "p"
        if name.startswith("^"):
            name, is_positive = name[1:], not is_positive
        ranges = unicode_group(name)
        if ranges is None:
            raise RegexError(f"invalid character class range: \\{self._text[self._at - 1 : end or None]}")
        self._at = end
        return self._signed(ranges, is_positive)

    def _signed(self, ranges: Ranges, is_positive: bool) -> Ranges:
        ranges = folded(ranges) if self._flags.folds else ranges
        return ranges if is_positive else negated(ranges)

    def _code(self) -> int:
        """Return the character of an escape."""
        text, start = self._text, self._at
        letter = text[start : start + 1]
        if not letter:
            raise RegexError("trailing \\")
        self._at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter.isascii() and not letter.isalnum():
            return ord(letter)
        if letter in "01234567" and (letter == "0" or text[self._at : self._at + 1] in _OCTAL):
            while self._at < start + 3 and text[self._at : self._at + 1] in _OCTAL:
                self._at += 1
            return int(text[start : self._at], 8)
        if letter == "x":
            digits = text[self._at : self._at + 2]
            end = self._at + 2
            if digits.startswith("{"):
                close = text.find("}", self._at)
                digits, end = text[self._at + 1 : close] if close >= 0 else "", close + 1
            elif len(digits) < 2:
                digits = ""
            if digits and set(digits) <= _HEX and int(digits, 16) <= LAST:
                self._at = end
                return int(digits, 16)
        raise RegexError(f"invalid escape sequence: {text[start - 1 : self._at]}")

    def _class(self) -> Ranges:
        """Read a class after its bracket."""
        text, start = self._text, self._at - 1
        is_negated = text.startswith("^", self._at)
        self._at += is_negated
        ranges, is_first = list[tuple[int, int]](), True
        while is_first or not text.startswith("]", self._at):
            if self._at >= len(text):
                raise RegexError(f"missing ]: {text[start:]}")
            is_first = False
            named = self._posix()
            if named is None and text.startswith("\\", self._at):
                self._at += 1
                named = self._class_escape()
                self._at -= named is None
            if named is None:
                named = self._range(start)
            ranges += named
        self._at += 1
        result = union(ranges)
        return negated(result) if is_negated else result

    def _posix(self) -> Ranges | None:
        if not self._text.startswith("[:", self._at):
            return None
        end = self._text.find(":]", self._at + 2)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        ranges = POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise RegexError(f"invalid character class range: [:{name}:]")
        self._at = end + 2
        return self._signed(ranges, not name.startswith("^"))

    def _range(self, start: int) -> Ranges:
        """Return a character of a class, or a range of characters."""
        text, begin = self._text, self._at
        low = high = self._class_character(start)
        if text.startswith("-", self._at) and self._at + 1 < len(text) and text[self._at + 1] != "]":
            self._at += 1
            high = self._class_character(start)
            if high < low:
                raise RegexError(f"invalid character class range: {text[begin : self._at]}")
        return folded(((low, high),)) if self._flags.folds else ((low, high),)

    def _class_character(self, start: int) -> int:
        letter = self._text[self._at : self._at + 1]
        if not letter:
            raise RegexError(f"missing ]: {self._text[start:]}")
        self._at += 1
        return self._code() if letter == "\\" else ord(letter)


_DECIMAL, _OCTAL = frozenset("0123456789"), frozenset("01234567")


def _may_repeat(node: Node, most: int) -> bool:
    """Return whether repetitions in each other are few enough, as RE2 counts them."""
    waiting = [(node, most)]
    while waiting:
        each, left = waiting.pop()
        if isinstance(each, Repetition):
            times = each.least if each.most is None else each.most
            is_counted = each.most is not None and (each.least, each.most) != (0, 1) or each.least > 1
            if is_counted and times > 0:
                left //= times
            waiting.append((each.part, left))
        elif isinstance(each, (Concatenation, Alternation)):
            waiting += [(part, left) for part in each.parts]
        if left == 0:
            return False
    return True
