"""Parses an answer as its text arrives: reasoning, text, and tool calls.

The result depends on the text alone, not on how it is split into pieces: text is returned only when later text cannot
change its meaning. Whole answers use the same parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mirlo_llm.serve.call_forms import BARE, DEEPSEEK_MARKS, FENCE, FORMS, CallForm, ToolCall, Tools, call_of

THINK = (("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("[THINK]", "[/THINK]"))
"""Delimiters of reasoning in the formats of models."""
CHANNEL, HEADER_END = "<|channel|>", "<|message|>"
"""Delimiters of gpt-oss: the start of a part, and the end of its header."""
HEADERS = (f"<|start|>assistant{CHANNEL}", f"assistant{CHANNEL}", CHANNEL)
PART_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL)
MARKS = tuple(
    dict.fromkeys(
        mark
        for mark in (
            *(x for form in FORMS for x in (form.begin, form.end)),
            *(x for pair in THINK for x in pair),
            CHANNEL,
            HEADER_END,
            *PART_ENDS,
            "<|constrain|>",
            "[ARGS]",
            "[CALL_ID]",
            *DEEPSEEK_MARKS,
        )
        if mark
    )
)
"""All delimiters, which may be special tokens of a tokenizer."""
_TOOL = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")


@dataclass(frozen=True)
class ReadText:
    """A part of an answer's text."""

    text: str
    is_reasoning: bool = False


Part: TypeAlias = "ReadText | ToolCall"


@dataclass(frozen=True)
class AnswerForm:
    """The format of an answer."""

    tools: Tools
    """The tools that calls may name; without tools there are no calls."""
    must_call: bool = False
    """Whether the answer must be a call, as JSON."""
    think: tuple[str, str] | None = None
    """The delimiters of reasoning, if the model uses any."""
    is_thinking: bool = False
    """Whether the answer begins within reasoning, since the prompt ends with its opening delimiter."""
    has_channels: bool = False
    """Whether the answer has parts with headers, as those of gpt-oss."""


class AnswerReader:
    """Parses one answer; `feed` and `finish` return the parts that are certain."""

    def __init__(self, form: AnswerForm) -> None:
        self._tools, self._must_call = form.tools, form.must_call
        self._think, self._has_channels = form.think, form.has_channels
        self._begins = [each.begin for each in FORMS] if form.tools else []
        self._marks = [*self._begins, *([] if form.think is None else form.think[:1])]
        self._buffer, self._space = "", ""
        """What is not read yet, and the white space before a call, which is text if the call is none."""
        self._is_thinking, self._is_start = form.is_thinking and form.think is not None, True
        self._drops_space = self._is_thinking
        """Whether white space is left out until other text comes."""
        self._call: CallForm | None = BARE if form.must_call else None
        self._channel: str | None = None
        self._json = JsonEnd()
        self.has_calls = False

    @property
    def is_waiting(self) -> bool:
        """Return whether there is text that was not returned yet."""
        return bool(self._buffer)

    def feed(self, text: str) -> list[Part]:
        """Add text; return the parts that it makes certain."""
        self._buffer += text
        return self._read(False)

    def finish(self) -> list[Part]:
        """End the answer; return the remaining parts."""
        return self._read(True)

    def _read(self, is_last: bool) -> list[Part]:
        parts: list[Part] = []
        while self._buffer:
            step = self._step(is_last)
            if step is None:
                break
            parts += step
        return parts

    def _step(self, is_last: bool) -> list[Part] | None:
        """Parse a part of the buffer; return None if that needs more text."""
        if self._drops_space:
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return []
            self._drops_space = False
        if self._has_channels:
            return self._step_in_header(is_last) if self._channel is None else self._step_in_part(is_last)
        if self._is_thinking:
            return self._step_in_reasoning(is_last)
        if self._call is not None:
            return self._step_in_call(self._call, is_last)
        return self._step_at_start(is_last) if self._is_start else self._step_in_text(is_last)

    # Reasoning and text

    def _step_in_reasoning(self, is_last: bool) -> list[Part] | None:
        assert self._think is not None
        end = self._think[1]
        at = self._buffer.find(end)
        if at < 0:
            return self._certain((end,), is_last, True)
        text, self._buffer = self._buffer[:at], self._buffer[at + len(end) :]
        self._is_thinking, self._is_start, self._drops_space = False, True, True
        return _text(text.rstrip(), True)

    def _certain(self, marks: Sequence[str], is_last: bool, is_reasoning: bool = False) -> list[Part] | None:
        """Return the text before any possible delimiter and the white space before that."""
        certain = self._buffer
        if not is_last and marks:
            certain = certain[: len(certain) - max(_begun(certain, mark) for mark in marks)].rstrip()
        if not certain:
            return None
        self._buffer = self._buffer[len(certain) :]
        return _text(certain, is_reasoning)

    def _step_at_start(self, is_last: bool) -> list[Part] | None:
        """Decide whether the answer, or the rest of it, begins with reasoning or is a call as a whole."""
        start = self._buffer.lstrip()
        if not start and not is_last and self._marks:
            return None
        wholes = [] if self._think is None else [self._think[0]]
        wholes += [FENCE.begin] if self._tools else []
        if start.startswith("[") or not start:
            wholes += [mark for mark in self._begins if mark.startswith("[")]
        if not is_last and any(mark.startswith(start) and mark != start for mark in wholes):
            return None
        self._is_start = False
        if self._think is not None and start.startswith(self._think[0]):
            return []
        if self._tools and start.startswith(FENCE.begin):
            self._open(FENCE, len(self._buffer) - len(start))
        elif self._tools and start[:1] in ("{", "[") and not start.startswith(tuple(self._begins)):
            self._open(BARE, len(self._buffer) - len(start))
        return []

    def _open(self, form: CallForm, at: int) -> list[Part]:
        """Start parsing calls whose delimiter is at a position of the buffer; return the text before it."""
        text, self._buffer = self._buffer[:at], self._buffer[at + len(form.begin) :]
        kept = text.rstrip()
        self._space, self._call, self._json = text[len(kept) :], form, JsonEnd()
        return _text(kept)

    def _step_in_text(self, is_last: bool) -> list[Part] | None:
        places = [(at, mark) for mark in self._marks if (at := self._buffer.find(mark)) >= 0]
        if not places:
            return self._certain(self._marks, is_last)
        at, mark = min(places)
        if self._think is not None and mark == self._think[0]:
            text, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
            self._is_thinking, self._drops_space = True, True
            return _text(text.rstrip())
        return self._open(next(form for form in FORMS if form.begin == mark), at)

    # Calls

    def _step_in_call(self, form: CallForm, is_last: bool) -> list[Part] | None:
        end = self._end_of_call(form, is_last)
        if end is None:
            return None
        body_end, whole_end = end
        body, whole = self._buffer[:body_end], self._buffer[:whole_end]
        self._buffer, self._call = self._buffer[whole_end:], None
        calls = form.parse(body, self._tools)
        if calls is None:
            return _text(f"{self._space}{form.begin}{whole}")
        self.has_calls, self._is_start, self._drops_space = True, True, True
        return list(calls)

    def _end_of_call(self, form: CallForm, is_last: bool) -> tuple[int, int] | None:
        """Return the end of the calls' text, and the end of their closing delimiter; None if unknown."""
        buffer, everything = self._buffer, (len(self._buffer), len(self._buffer))
        start = buffer.lstrip()[:1]
        if not start:
            return everything if is_last else None
        if form.is_closed_by_json and start in ("{", "["):
            return self._end_of_json(form, is_last)
        if form is BARE and start == "{" and not self._must_call:
            end = self._json.find(buffer)
            if end is not None and BARE.parse(buffer[:end], self._tools) is None:
                return end, end
        mark = form.end or form.begin
        at = buffer.find(mark) if mark else -1
        if at >= 0:
            return at, at + len(form.end)
        return everything if is_last else None

    def _end_of_json(self, form: CallForm, is_last: bool) -> tuple[int, int] | None:
        end = self._json.find(self._buffer)
        if end is None:
            return (len(self._buffer), len(self._buffer)) if is_last else None
        behind = self._buffer[end:].lstrip()
        if form.end and behind.startswith(form.end):
            return end, len(self._buffer) - len(behind) + len(form.end)
        return None if form.end.startswith(behind) and form.end and not is_last else (end, end)

    # Channels

    def _step_in_header(self, is_last: bool) -> list[Part] | None:
        """Parse `<|start|>assistant<|channel|>NAME<|message|>`; other text belongs to the answer."""
        begin = next((each for each in HEADERS if self._buffer.startswith(each)), "")
        if not begin:
            if not is_last and any(each.startswith(self._buffer) for each in HEADERS):
                return None
            self._channel = "final"
            return []
        at = self._buffer.find(HEADER_END)
        if at < 0 and not is_last:
            return None
        at = at if at >= 0 else len(self._buffer)
        self._channel, self._buffer = self._buffer[len(begin) : at], self._buffer[at + len(HEADER_END) :]
        return []

    def _step_in_part(self, is_last: bool) -> list[Part] | None:
        assert self._channel is not None
        places = [(at, mark) for mark in PART_ENDS if (at := self._buffer.find(mark)) >= 0]
        is_reasoning, match = self._channel.lstrip().startswith("analysis"), _TOOL.search(self._channel)
        if not places:
            if match is None:
                return self._certain(PART_ENDS, is_last, is_reasoning)
            if not is_last:
                return None
        at, mark = min(places, default=(len(self._buffer), ""))
        text, self._channel = self._buffer[:at], None
        self._buffer = self._buffer[at if mark == CHANNEL else at + len(mark) :]
        if match is None:
            return _text(text, is_reasoning)
        call = call_of({"name": match[1], "arguments": text.strip() or "{}"}, self._tools)
        self.has_calls = self.has_calls or call is not None
        return _text(text) if call is None else [call]


def read_answer(form: AnswerForm, text: str) -> list[Part]:
    """Parse a whole answer; adjacent texts of one kind are joined."""
    reader = AnswerReader(form)
    return joined([*reader.feed(text), *reader.finish()])


def joined(parts: Sequence[Part]) -> list[Part]:
    """Join adjacent texts of one kind."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, ReadText) and isinstance(last, ReadText) and part.is_reasoning == last.is_reasoning:
            result[-1] = ReadText(last.text + part.text, part.is_reasoning)
        else:
            result.append(part)
    return result


def _text(text: str, is_reasoning: bool = False) -> list[Part]:
    return [ReadText(text, is_reasoning)] if text else []


def _begun(text: str, mark: str) -> int:
    """Return the length of the longest suffix of a text that is a prefix of a delimiter."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:size])), 0)


class JsonEnd:
    """Finds the end of a JSON object or array in a growing text."""

    def __init__(self) -> None:
        self._at, self._depth, self._in_text, self._is_escaped = 0, 0, False, False
        self._end: int | None = None

    def find(self, text: str) -> int | None:
        """Return the position after the value at the start of the text; None if it is incomplete."""
        while self._end is None and self._at < len(text):
            letter = text[self._at]
            self._at += 1
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_text:
                self._is_escaped, self._in_text = letter == "\\", letter != '"'
            elif letter == '"':
                self._in_text = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                self._end = self._at if self._depth == 0 else None
        return self._end
