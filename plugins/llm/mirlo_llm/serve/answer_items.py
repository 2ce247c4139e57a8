"""The items of an answer, for APIs whose answers are lists of reasoning, text and tool calls."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from mirlo_llm.serve.answer_reader import AnswerForm, AnswerReader, Part, ReadText, joined
from mirlo_llm.serve.completions import new_name
from mirlo_llm.serve.engine_thread import AnswerJob, Delivery
from mirlo_llm.serve.generation_body import GenerationBody

TEXT, REASONING, CALL = "text", "reasoning", "call"
Event = dict[str, object]


@dataclass
class AnswerItem:
    """A part of an answer of one kind."""

    kind: str
    id: str
    name: str = ""
    """The name of the called tool."""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the text so far, or the arguments of the call so far."""
        return "".join(self.pieces)


class ItemWriter(ABC):
    """Writes the answer to a request, whole or as events, from the same items."""

    def __init__(self, body: GenerationBody, job: AnswerJob, model: str, form: AnswerForm) -> None:
        self._body, self._job, self._model = body, job, model
        self._reader, self._reason = AnswerReader(form), ""
        self._created = int(time.time())
        self._items: list[AnswerItem] = []
        self._is_open = False

    @property
    def is_done(self) -> bool:
        """Return whether the answer is complete."""
        return bool(self._reason)

    @property
    def _has_calls(self) -> bool:
        return any(item.kind == CALL for item in self._items)

    @property
    def _counts(self) -> tuple[int, int, int]:
        """Return the numbers of prompt tokens, of cached prompt tokens, and of answer tokens."""
        (request,) = self._job.requests
        prompt = len(request.prompt)
        return prompt, max(0, min(request.reused_tokens, prompt)), len(request.tokens)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries to a whole answer."""
        self.chunks(deliveries)

    def chunks(self, deliveries: Sequence[Delivery]) -> list[Event]:
        """Return the events for deliveries."""
        return [event for delivery in deliveries for event in self._events_of(delivery)]

    def _events_of(self, delivery: Delivery) -> list[Event]:
        parts = self._reader.feed(delivery.text)
        if delivery.reason is not None:
            parts = [*parts, *self._reader.finish()]
        events = [event for part in joined(parts) for event in self._add(part)]
        if delivery.reason is not None:
            events += self._close()
            self._reason = delivery.reason
        return events

    def _add(self, part: Part) -> list[Event]:
        events: list[Event] = []
        kind = CALL if not isinstance(part, ReadText) else REASONING if part.is_reasoning else TEXT
        if not self._is_open or kind == CALL or self._items[-1].kind != kind:
            events += self._close()
            self._items.append(AnswerItem(kind, new_name(kind), "" if isinstance(part, ReadText) else part.name))
            self._is_open = True
            events += self._begun(self._items[-1])
        piece = part.text if isinstance(part, ReadText) else part.arguments
        self._items[-1].pieces.append(piece)
        return [*events, *self._added(self._items[-1], piece)]

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        return self._ended(self._items[-1])

    @abstractmethod
    def whole(self) -> Event:
        """Return the whole answer."""

    @abstractmethod
    def first(self) -> list[Event]:
        """Return the first events of a stream."""

    @abstractmethod
    def last(self) -> list[Event]:
        """Return the last events of a stream."""

    @abstractmethod
    def _begun(self, item: AnswerItem) -> list[Event]:
        """Return the events for the start of an item."""

    @abstractmethod
    def _added(self, item: AnswerItem, piece: str) -> list[Event]:
        """Return the events for a piece of the last item."""

    @abstractmethod
    def _ended(self, item: AnswerItem) -> list[Event]:
        """Return the events for the end of an item."""
