"""The answer of a replica to a client, resumed by another replica after a loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirlo_llm.serve.body import Message, Send
from mirlo_llm.serve.errors import RequestError

EVENTS = b"text/event-stream"
PREFIX, LAST, SEPARATOR = b"data: ", b"[DONE]", b"\n\n"
NAMED = b"event: "
"""Prefixes of numbered events of responses and messages, which another stream cannot continue."""
RETRY_STATUS = 503
"""Statuses of a replica that temporarily cannot answer, such as one that shuts down."""


class NotNow(Exception):
    """Raised when a replica asks to try again; the message is the text of its answer."""


@dataclass
class ChoiceProgress:
    """The progress of the stream of one choice."""

    texts: dict[str, str] = field(default_factory=dict)
    """The text sent so far, by key."""
    tokens: int = 0
    """Number of tokens whose probabilities were sent."""
    once: set[str] = field(default_factory=set)
    """Keys that occur once and were sent: the role, tool calls, the finish reason."""


class ResumableAnswer:
    """Passes on an answer, without what was sent before `restart`.

    A request is repeated with its seed, so that the second stream repeats the first one: only the text that was not
    sent is passed on. Other answers are passed on when they are complete.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._is_stream = self.is_begun = False
        self._sent: dict[int, ChoiceProgress] = {}
        self._seen: dict[int, ChoiceProgress] = {}
        self._names: dict[str, object] = {}
        self._ends: set[str] = set()
        """Which events without choices were sent."""
        self._has_named = self._is_again = False
        """Whether events with names were sent; whether that was before another replica answered."""

    def restart(self) -> None:
        """Restart with another replica's messages, from the beginning."""
        self._start, self._parts, self._seen = None, [], {}
        self._is_again = self._has_named

    async def take(self, message: Message) -> None:
        """Process a message of a replica."""
        if message["type"] == "http.response.start":
            self._start = message
            headers = dict(message["headers"])
            self._is_stream = message["status"] == 200 and headers.get(b"content-type", b"").startswith(EVENTS)
            if self.is_begun and not self._is_stream:
                raise NotNow(f"status {message['status']}")
            return
        content, more = message.get("body", b""), message.get("more_body", False)
        if self._is_stream:
            await self._take_events(content, more)
            return
        self._parts.append(content)
        if more:
            return
        assert self._start is not None
        content = b"".join(self._parts)
        if self._start["status"] == RETRY_STATUS:
            raise NotNow(content.decode("utf-8", "replace")[:500])
        await self._begin()
        await self._send({"type": "http.response.body", "body": content})

    async def end(self, value: object) -> None:
        """End a stream with an error."""
        content = PREFIX + json.dumps(value).encode() + SEPARATOR
        await self._send({"type": "http.response.body", "body": content})

    async def _begin(self) -> None:
        if self.is_begun:
            return
        assert self._start is not None
        self.is_begun = True
        hidden = b"x-content-type-options"  # the front adds it
        headers = [(name, value) for name, value in self._start["headers"] if name != hidden]
        await self._send({**self._start, "headers": headers})

    async def _take_events(self, content: bytes, more: bool) -> None:
        await self._begin()
        events = [kept for event in content.split(SEPARATOR) if event and (kept := self._left_of(event)) is not None]
        if events or not more:
            body = b"".join(event + SEPARATOR for event in events)
            await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def _left_of(self, event: bytes) -> bytes | None:
        """Return the part of an event that was not sent."""
        if event.startswith(NAMED):
            if self._is_again:
                message = (
                    "the replica was lost, and streams of this API do not go on at another: send the request again"
                )
                raise RequestError(503, message, code="engine_error")
            self._has_named = True
            return event
        content = event.removeprefix(PREFIX)
        if content == LAST:
            return event
        value = json.loads(content)
        if not isinstance(value, dict) or "choices" not in value:  # an error
            return event
        self._names = self._names or {key: value[key] for key in ("id", "created") if key in value}
        value |= self._names
        if not value["choices"]:
            return None if self._came("usage", self._ends) else PREFIX + _compact(value)
        left = [self._take_choice(choice) for choice in value["choices"]]
        return PREFIX + _compact(value) if any(left) else None

    def _take_choice(self, choice: dict[str, Any]) -> bool:
        """Remove the part of a choice that was sent; return whether something remains."""
        place = choice["index"]
        sent = self._sent.setdefault(place, ChoiceProgress())
        seen = self._seen.setdefault(place, ChoiceProgress())
        holder, key = (choice["delta"], "content") if "delta" in choice else (choice, "text")
        is_left = _take_once(choice, holder, sent)
        for each in (key, "reasoning_content"):
            text = holder.get(each)
            if text:
                holder[each] = _take_text(text, each, sent, seen)
                is_left |= bool(holder[each])
        if choice.get("logprobs"):
            is_left |= _take_tokens(choice["logprobs"], sent, seen)
        return is_left

    def _came(self, name: str, names: set[str]) -> bool:
        """Return whether a key was sent before, and record it."""
        if name in names:
            return True
        names.add(name)
        return False


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _take_once(choice: dict[str, Any], holder: dict[str, Any], sent: ChoiceProgress) -> bool:
    """Remove keys that occur once and were sent; return whether some are new."""
    is_new = False
    for where, key in ((holder, "role"), (holder, "tool_calls"), (choice, "finish_reason")):
        if where.get(key) is None:
            continue
        name = f"{key} {where[key][0]['index']}" if key == "tool_calls" else key
        if name in sent.once:
            where[key] = None
        else:
            sent.once.add(name)
            is_new = True
    return is_new


def _take_text(text: str, key: str, sent: ChoiceProgress, seen: ChoiceProgress) -> str:
    start = len(seen.texts.get(key, ""))
    seen.texts[key] = seen.texts.get(key, "") + text
    known = sent.texts.get(key, "")[start : start + len(text)]
    if not text.startswith(known):
        raise RequestError(500, "the replica was lost, and another one answers differently", code="engine_error")
    sent.texts[key] = sent.texts.get(key, "") + text[len(known) :]
    return text[len(known) :]


def _take_tokens(logprobs: Mapping[str, Any], sent: ChoiceProgress, seen: ChoiceProgress) -> bool:
    """Remove list elements of tokens that were sent; return whether some remain."""
    lists = [value for value in logprobs.values() if isinstance(value, list)]
    count = max(map(len, lists), default=0)
    drop = min(count, max(0, sent.tokens - seen.tokens))
    seen.tokens += count
    sent.tokens = max(sent.tokens, seen.tokens)
    for value in lists:
        del value[:drop]
    return count > drop
