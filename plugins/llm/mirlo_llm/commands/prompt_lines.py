"""`mirlo generate --prompts FILE`: requests as lines of JSON, run together, with answers as lines of JSON."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirlo.extend.runtime import MirloError, open_regular

if TYPE_CHECKING:
    from mirlo_llm.generate import LanguageModel, Request, ServingEngine

MAX_LINE = 16 << 20
"""Bytes of the longest line: a prompt of some million tokens."""
BLOCK = 1 << 16
SOURCES = ("prompt", "messages", "tokens")
"""The keys of a prompt in a line: a text, messages of a conversation, or tokens."""
OTHERS = ("stop", "json_schema", "regex", "lark", "grammar")
Changes = Callable[[Mapping[str, object]], dict[str, object]]


class LineError(MirloError, ValueError):
    """A line that is not a request."""


@dataclass
class _Job:
    """A request and the names of its lines."""

    name: str | int
    request: Request


class PromptLines:
    """Runs the requests of a file, or of standard input as they come, and writes lines with answers."""

    def __init__(
        self,
        model: LanguageModel,
        slots: int,
        stop: list[str],
        adapter: str | None,
        options: Mapping[str, object],
        changes: Changes,
        form: Mapping[str, Any],
    ) -> None:
        """Store the default options and the default constraint on answers.

        `changes` returns the search options for the values of flags or of a line.
        """
        self._form = form
        self._model, self._stop, self._options, self._changes = model, stop, dict(options), changes
        self._adapter = adapter
        self._engine: ServingEngine = model.engine(slots)
        self._slots = slots
        self._jobs: list[_Job] = []
        self.is_failed = False
        """Whether a line had an error."""

    def run(self, path: str, is_streamed: bool) -> None:
        """Run all requests; `is_streamed` writes lines with pieces of text before those of whole answers."""
        lines: queue.Queue[tuple[int, bytes] | Exception | None] = queue.Queue(2 * self._slots)
        threading.Thread(target=_read, args=(path, lines), daemon=True).start()
        seconds, count, is_open = 0.0, 0, True
        while is_open or not self._engine.is_idle:
            while is_open and len(self._engine.waiting) < self._slots:
                try:
                    line = lines.get(block=self._engine.is_idle)
                except queue.Empty:
                    break
                if isinstance(line, Exception):
                    raise line
                if line is None:
                    is_open = False
                else:
                    count += 1
                    self._add(*line)
                    self._report(is_streamed)  # a request that is done at once
            start = time.perf_counter()
            if not self._engine.is_idle:
                self._engine.step()
                self._report(is_streamed)
            seconds += time.perf_counter() - start
        counts = self._engine.counts
        rate = counts.tokens / seconds if seconds else 0.0
        prompts = f"prompts of {counts.prompt_tokens + counts.reused_tokens} tokens, {counts.reused_tokens} reused"
        total = f"{counts.tokens} tokens in {seconds:.3f} s ({rate:.1f} tokens/s)"
        print(f"{count} requests: {prompts}, then {total}", file=sys.stderr)

    def _add(self, number: int, line: bytes) -> None:
        """Add the request of a line; write an error as a line."""
        name: str | int = number
        try:
            fields = _parsed(line)
            given = fields.pop("id", number)
            if isinstance(given, bool) or not isinstance(given, (str, int)):
                raise LineError(f"'id': expected a text or an integer, found {given!r:.40}")
            name = given
            self._jobs.append(_Job(name, self._request(fields)))
        except MirloError as error:
            self._fail(name, f"line {number}: {error}")

    def _request(self, fields: dict[str, object]) -> Request:
        sources = [key for key in SOURCES if key in fields]
        if len(sources) != 1:
            raise LineError(f"expected one of {', '.join(SOURCES)}, found {' and '.join(sources) or 'none'}")
        value = _checked(sources[0], fields.pop(sources[0]))
        stop = fields.pop("stop", self._stop)
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
            raise LineError(f"'stop': expected texts, found {stop!r:.40}")
        forms = {key: fields.pop(key) for key in OTHERS if key in fields} or self._form
        prompt = self._model.chat_tokens(value) if sources[0] == "messages" else value
        options: dict[str, Any] = {**forms, **self._changes(self._options | fields)}
        return self._engine.add(prompt, stops, adapter=self._adapter, **options)

    def _report(self, is_streamed: bool) -> None:
        """Write the new results."""
        for job in self._jobs:
            request, has_text = job.request, self._model.tokenizer is not None
            if is_streamed and has_text:
                piece = request.take()
                if piece:
                    _write({"id": job.name, "delta": piece})
            if not request.is_done:
                continue
            if request.error is not None:
                self._fail(job.name, str(request.error))
                continue
            text = {"text": request.text} if has_text else {"answer": request.tokens}
            counts = {
                "prompt_tokens": len(request.prompt),
                "reused_tokens": request.reused_tokens,
                "tokens": len(request.tokens),
            }
            _write({"id": job.name, **text, "reason": request.reason, **counts})
        self._jobs = [job for job in self._jobs if not job.request.is_done]

    def _fail(self, name: str | int, message: str) -> None:
        self.is_failed = True
        _write({"id": name, "error": message})


def _write(line: Mapping[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def _parsed(line: bytes) -> dict[str, object]:
    """Return the JSON object of a line; a JSON string is a prompt."""
    try:
        result = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f'expected JSON, such as {{"prompt": "..."}}: {error}') from None
    if isinstance(result, str):
        return {"prompt": result}
    if not isinstance(result, dict):
        raise LineError(f'expected a text or an object, such as {{"prompt": "..."}}, found {result!r:.40}')
    return result


def _checked(source: str, value: object) -> Any:
    """Check the type of a prompt's value, and return it."""
    if not isinstance(value, str if source == "prompt" else list):
        expected = "a text" if source == "prompt" else "a list"
        raise LineError(f"'{source}': expected {expected}, found {value!r:.40}")
    if source == "tokens" and not all(type(token) is int for token in value):
        raise LineError("'tokens': expected integers")
    return value


def _read(path: str, lines: queue.Queue[tuple[int, bytes] | Exception | None]) -> None:
    """Put each nonempty line with its number, counted from 1, into the queue; at the end None, or the error."""
    try:
        file = None if path == "-" else open_regular(path)
        with file or nullcontext():
            for number, line in enumerate(_lines((file or sys.stdin).fileno()), 1):
                if line.strip():
                    lines.put((number, line))
    except (OSError, MirloError) as error:
        lines.put(error)
        return
    lines.put(None)


def _lines(handle: int) -> Iterator[bytes]:
    """Yield lines as they arrive.

    It does not use the buffer of `sys.stdin`, which would be locked when the process ends during a read.
    """
    rest = b""
    while block := os.read(handle, BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE:
            raise LineError(f"a line of the prompts has more than {MAX_LINE >> 20} MiB")
    if rest:
        yield rest
