"""Parser of pipelines: `legalize{target=llvm},func.func(cse),canonicalize{max-iterations=3}`.

Python passes and upstream passes may be mixed. An operation's name with parentheses nests: the inner steps run on
each such operation directly below. The outermost `builtin.module(...)` may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mirlo.passes.options import OptionError, make_pass
from mirlo.passes.registry import ROOT_ANCHOR, UPSTREAM_NAMES, Pass, find_pass, load_all
from mirlo.passes.upstream import UpstreamPass, find_upstream
from mirlo.runtime.errors import MirloError, nearest_name
from mirlo.runtime.records import dataclass

CONTAINERS = (ROOT_ANCHOR, "gpu.module", "spirv.module")
"""Operations that hold functions: a pass over functions runs on each of their functions without explicit nesting."""

ANY_ANCHOR = "any"
"""Stands for every operation that passes run on: `any(cse)`."""
ANCHORS = (*CONTAINERS, ANY_ANCHOR, "func.func", "gpu.func", "llvm.func", "spirv.func")
"""Operations on which a pipeline may nest."""


MAX_NESTING = 64
"""Levels of a pipeline: operations of the IR are nested less deep."""


class PipelineError(MirloError, ValueError):
    """Raised for an invalid pipeline; the message shows the position."""

    error_code = "MIR0403"
    remedy = "Correct the text of the pipeline at the column that the message names; `mirlo-opt --help` lists passes."

    def __init__(self, message: str, text: str = "", at: int = 0):
        super().__init__(f"{message}\n{caret(text, at)}" if text else message)
        self.message = message
        self.at = at


@dataclass(frozen=True)
class Nested:
    """Steps that run on each operation of a kind, directly below the operation that the pipeline runs on."""

    anchor: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        return self.anchor

    def __str__(self) -> str:
        return f"{self.anchor}({join_steps(self.steps)})"


Leaf = Pass | UpstreamPass
Step = Leaf | Nested


def join_steps(steps: Iterable[Step]) -> str:
    return ",".join(str(step) for step in steps)


def parse_steps(text: str, anchor: str = ROOT_ANCHOR) -> tuple[Step, ...]:
    """Parse the steps of a pipeline on operations of kind `anchor`."""
    parser = _Parser(text)
    steps = parser.elements(anchor) if text.strip() else ()
    parser.skip_space()
    if parser.at < len(text):
        raise parser.error(f"expected ',' or the end, found '{text[parser.at]}'")
    outermost = steps[0] if anchor == ROOT_ANCHOR and len(steps) == 1 else None
    if isinstance(outermost, Nested) and outermost.anchor in (ROOT_ANCHOR, ANY_ANCHOR):
        return outermost.steps
    return steps


def misplaced(step: Step, anchor: str) -> str | None:
    """Return the reason why a step is invalid in a pipeline on `anchor`, or None."""
    if isinstance(step, Nested) or step.anchor in (None, anchor):
        return None
    if step.anchor != ROOT_ANCHOR and anchor in CONTAINERS:
        return None
    return f"pass '{step.name}' runs on {step.anchor}, and cannot stand in {anchor}(...)"


def unknown_pass(name: str) -> str:
    """Return the message for an unknown pass, with the nearest known name."""
    near = nearest_name(name, [*load_all(), *UPSTREAM_NAMES])
    hint = f"did you mean '{near}'?" if near else "'mirlo-opt --list-passes' lists them all"
    return f"unknown pass '{name}'; {hint}"


_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.depth = 0

    def error(self, message: str, at: int | None = None) -> PipelineError:
        return PipelineError(message, self.text, self.at if at is None else at)

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def accept(self, char: str) -> bool:
        self.skip_space()
        result = self.text[self.at : self.at + 1] == char
        self.at += result
        return result

    def elements(self, anchor: str) -> tuple[Step, ...]:
        steps = [self.element(anchor)]
        while self.accept(","):
            steps.append(self.element(anchor))
        return tuple(steps)

    def element(self, anchor: str) -> Step:
        self.skip_space()
        start = self.at
        match = _NAME.match(self.text, start)
        if match is None:
            got = f"'{self.text[start]}'" if start < len(self.text) else "the end"
            raise self.error(f"expected the name of a pass, found {got}")
        name = match[0]
        self.at = match.end()
        if self.accept("("):
            return self.nested(name, start)
        options, options_at = self.options()
        step = self.find(name, start, options, options_at)
        complaint = misplaced(step, anchor)
        if complaint:
            raise self.error(complaint, start)
        return step

    def nested(self, anchor: str, start: int) -> Nested:
        opened = self.at - 1
        if anchor not in ANCHORS:
            if "." not in anchor and (find_pass(anchor) or find_upstream(anchor)):
                raise self.error(f"'{anchor}' is a pass: its options go in braces, '{anchor}{{...}}'", opened)
            near = nearest_name(anchor, ANCHORS)
            hint = f"did you mean '{near}'?" if near else f"it can be {', '.join(ANCHORS)}"
            raise self.error(f"a pipeline cannot nest on '{anchor}'; {hint}", start)
        if self.accept(")"):
            return Nested(anchor, ())
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error(f"a pipeline is nested at most {MAX_NESTING} deep", opened)
        steps = self.elements(anchor)
        self.depth -= 1
        if not self.accept(")"):
            if self.at < len(self.text):
                raise self.error(f"expected ',' or ')', found '{self.text[self.at]}'")
            raise self.error(f"'{anchor}(' is not closed", opened)
        return Nested(anchor, steps)

    def options(self) -> tuple[str, int]:
        """Return the text between the braces that follow, and its start."""
        if not self.accept("{"):
            return "", self.at
        start = self.at
        closers = ["}"]
        while self.at < len(self.text) and closers:
            char = self.text[self.at]
            if closers[-1] in "\"'":
                if char == "\\":
                    self.at += 1
                elif char == closers[-1]:
                    closers.pop()
            elif char == closers[-1]:
                closers.pop()
            elif char in "\"'{":
                closers.append("}" if char == "{" else char)
            self.at += 1
        if closers:
            what = "brace" if closers[-1] == "}" else "quote"
            raise self.error(f"the {what} of these options is not closed", start - 1)
        return self.text[start : self.at - 1].strip(), _after_space(self.text, start)

    def find(self, name: str, start: int, options: str, options_at: int) -> Step:
        try:
            cls = find_pass(name)
            if cls is not None:
                return make_pass(cls, options)
            upstream = find_upstream(name, options)
        except OptionError as error:
            raise self.error(str(error), options_at + error.at) from None
        if upstream is None:
            raise self.error(unknown_pass(name), start)
        return upstream


def _after_space(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def caret(text: str, at: int, width: int = 100) -> str:
    """Return the text around a position, with a caret under it."""
    text = text.replace("\n", " ").replace("\t", " ")
    start = max(0, min(at - width // 2, len(text) - width))
    end = min(len(text), start + width)
    left, right = "..." if start else "", "..." if end < len(text) else ""
    return f"  {left}{text[start:end]}{right}\n  {' ' * (len(left) + at - start)}^"
