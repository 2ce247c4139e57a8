"""Continuous batching: requests that come and go at any time share the steps of one model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo.generate.decoder import CompiledDecoder, PaddedTokens
from mirlo.generate.errors import GenerationError
from mirlo.generate.guidance import Grammar
from mirlo.generate.prompt import Prompt, encode_prompt, require_length, require_texts
from mirlo.generate.request import Request
from mirlo.generate.search import SearchOptions, with_options
from mirlo.generate.sequences import FIRST_CAPACITY
from mirlo.generate.text import TokenTexts
from mirlo.runtime.cache_arrays import Rows

MAX_SLOTS = 4096
STRIDE = 64
"""Tokens that are compared at once."""


@dataclass
class EngineCounts:
    """What an engine did so far."""

    steps: int = 0
    calls: int = 0
    """Calls of the model: up to one for the active sequences, and one for each part of a prompt, in a step."""
    tokens: int = 0
    """Tokens of answers."""
    prompt_tokens: int = 0
    """Tokens of prompts that were computed."""
    reused_tokens: int = 0
    """Tokens of prompts that were not computed, as another sequence began with them."""


@dataclass
class _Slot:
    """Room for one sequence in the caches."""

    held: list[int] = field(default_factory=list)
    """The tokens that the caches hold; those of a sequence that has ended stay until the slot is needed."""
    request: Request | None = None
    adapter: str | None = None
    """What the caches were computed with."""
    since: int = 0
    """The number of requests that had a slot before the request, or the last one."""

    def common(self, request: Request) -> int:
        """Return how many tokens that the caches hold a request begins with, without its last one."""
        return _common(request.sequence, self.held) if request.adapter == self.adapter else 0

    @property
    def pending(self) -> int:
        """Return how many tokens of the request the caches do not hold."""
        return 0 if self.request is None else len(self.request.sequence) - len(self.held)


class ServingEngine:
    """Runs requests together.

    `add` takes a request at any time, from any thread. Each `step` computes a token of every active sequence in one
    call of the model, and up to `chunk_size` tokens of prompts. What ends makes room for what waits. Every request gets
    the tokens that it would get alone. A prompt that begins like another sequence, active or ended, takes over the part
    that is the same: from the caches of that sequence, or from the pages that the model keeps.
    """

    def __init__(
        self,
        decoder: CompiledDecoder,
        search: SearchOptions,
        texts: TokenTexts | None,
        slots: int,
        grammar: Callable[[Mapping[str, object]], Grammar | None],
    ) -> None:
        if not isinstance(slots, int) or not 1 <= slots <= MAX_SLOTS:
            raise GenerationError(f"slots: expected 1 to {MAX_SLOTS}, found {slots!r:.40}")
        self.counts = EngineCounts()
        self._decoder, self._search, self._texts, self._grammar = decoder, search, texts, grammar
        self._pool = decoder.new_pool(FIRST_CAPACITY, slots, search.chunk_size)
        self._slots = [_Slot() for _ in range(slots)]
        self._waiting: deque[Request] = deque()
        self._admitted = 0
        self._lock = threading.Lock()
        """Held by a step."""

    @property
    def active(self) -> list[Request]:
        """Return the requests that have a slot."""
        return [slot.request for slot in self._slots if slot.request is not None and not slot.request.is_done]

    @property
    def waiting(self) -> list[Request]:
        """Return the requests that wait for a slot."""
        return [request for request in list(self._waiting) if not request.is_done]

    @property
    def is_idle(self) -> bool:
        """Return whether there is nothing to compute."""
        return not self.active and not self.waiting

    def add(
        self,
        prompt: Prompt,
        stop: Sequence[str] | str = (),
        *,
        json_schema: Mapping[str, object] | str | None = None,
        regex: str | None = None,
        lark: str | None = None,
        adapter: str | None = None,
        **search: object,
    ) -> Request:
        """Return a request to continue a text or tokens; the arguments are those of `LanguageModel.generator`."""
        options = with_options(self._search, search)
        self._decoder.with_adapter(adapter)  # raises an error if there is none of the name
        for name, other in (("num_beams", 1), ("lookup", 0)):
            if getattr(options, name) != other:
                raise GenerationError(f"{name}: an engine computes one token of a sequence in a step: use a generator")
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if stops:
            require_texts(self._texts)
        tokens = encode_prompt(self._texts, self._decoder.vocabulary, prompt, is_start=True)
        if not tokens:
            raise GenerationError("a prompt has no tokens")
        require_length(options, self._decoder.config, len(tokens))
        grammar = self._grammar({"json_schema": json_schema, "regex": regex, "lark": lark})
        request = Request(tokens, options, self._decoder.config, self._texts, stops, grammar, adapter, self.step)
        if not request.is_done:
            self._waiting.append(request)
        return request

    def step(self) -> list[Request]:
        """Compute a token of each active sequence and a part of the prompts; return the requests that got a token."""
        with self._lock:
            self._admit()
            self.counts.steps += 1
            try:
                changed = self._decode() + self._prefill()
            except BaseException:  # of a call that was interrupted, the caches may hold a part
                self._forget()
                raise
            self.counts.tokens += len(changed)
        return changed

    def run(self) -> Iterator[Request]:
        """Step until there is nothing to compute; yield each request as it is done."""
        while not self.is_idle:
            yield from (request for request in self.step() if request.is_done)

    def _forget(self) -> None:
        """Let the caches hold nothing: active sequences are computed anew."""
        self._pool = self._decoder.new_pool(FIRST_CAPACITY, len(self._slots), self._search.chunk_size)
        for slot in self._slots:
            slot.held = []

    def _admit(self) -> None:
        """Free the slots of requests that are done, and give them to those that wait, in their order."""
        for i, slot in enumerate(self._slots):
            if slot.request is not None and slot.request.is_done:
                self._keep(i)
                slot.request = None
        while self._waiting:
            free = [i for i, slot in enumerate(self._slots) if slot.request is None]
            if not free:
                return
            request = self._waiting.popleft()
            if not request.is_done:
                self._take(request, free)

    def _take(self, request: Request, free: list[int]) -> None:
        """Give a request a free slot: one most of which it begins with, or the one that is free for longest."""
        slots = self._slots
        same = {i: self._common(i, request) for i in free}
        chosen = max(free, key=lambda i: same[i])
        if 2 * same[chosen] < len(slots[chosen].held):
            chosen = min(free, key=lambda i: (bool(slots[i].held), slots[i].since))
        slot, kept = slots[chosen], same[chosen]
        self._pool.rewind(chosen, kept)
        del slot.held[kept:]
        self._admitted += 1
        slot.request, slot.adapter, slot.since = request, request.adapter, self._admitted
        self._reuse(request, kept)

    def _share(self, place: int, request: Request) -> None:
        """Copy what another sequence has in common with a request, if that is more than its slot holds."""
        slot = self._slots[place]
        same = {i: self._common(i, request) for i in range(len(self._slots)) if i != place}
        source = max(same, key=lambda i: same[i], default=place)
        count = same.get(source, 0) - len(slot.held)
        if count > 0:
            self._pool.copy(source, place, same[source])
            slot.held = request.sequence[: same[source]]
            self._reuse(request, count)

    def _restore(self, place: int, request: Request) -> None:
        """Take the rows of the first tokens of a request from an earlier sequence, if its slot holds fewer."""
        slot, pool = self._slots[place], self._pool
        most, with_states = len(request.sequence) - 1, bool(self._decoder.states)
        found = self._decoder.prefixes.find(request.adapter, request.sequence, most, with_states)
        count = 0 if found is None else found.length - len(slot.held)
        if found is not None and count > 0:
            start = pool.rewind(place, 0 if with_states else len(slot.held))
            pool.extend(place, found.rows_from(start), found.length - start, found.states)
            slot.held = request.sequence[: found.length]
            self._reuse(request, count)

    def _keep(self, place: int) -> None:
        """Keep the rows of a slot's tokens for sequences that begin like them."""
        slot, pool = self._slots[place], self._pool
        states = (lambda: pool.states(place)) if self._decoder.states else None

        def rows(start: int, stop: int) -> Rows | None:
            return pool.rows(place, start, stop)

        self._decoder.prefixes.add(slot.adapter, slot.held, rows, states)

    def _common(self, place: int, request: Request) -> int:
        """Return how many tokens of a slot a request begins with, of those that the caches can go back to."""
        return self._pool.known(place, self._slots[place].common(request))

    def _reuse(self, request: Request, count: int) -> None:
        request.reused_tokens += count
        self.counts.reused_tokens += count

    def _decode(self) -> list[Request]:
        """Compute the only token that is pending of each sequence: all in one call, those of an adapter in another."""
        ready: dict[str | None, list[int]] = {}
        for i, slot in enumerate(self._slots):
            if slot.pending == 1:
                ready.setdefault(slot.adapter, []).append(i)
        changed = []
        for adapter, places in ready.items():
            decoder = self._decoder.with_adapter(adapter)
            selection = self._pool.select(places, decoder.constants)
            chosen = [self._slots[i] for i in selection.sequences]
            requests = [slot.request for slot in chosen if slot.request is not None]
            tokens = np.array([[request.sequence[-1]] for request in requests], np.int64)
            self.counts.calls += 1
            self.counts.prompt_tokens += sum(len(request.sequence) == len(request.prompt) for request in requests)
            logits = decoder.run(selection, PaddedTokens(tokens, selection.mask(1), selection.lengths[:, None]))
            for slot, request, row in zip(chosen, requests, logits[:, -1], strict=True):
                slot.held.append(request.sequence[-1])
                request.choose(row)
            changed += requests
        return changed

    def _prefill(self) -> list[Request]:
        """Compute parts of prompts, the oldest request first; return the requests that got their first token."""
        budget, changed = self._search.chunk_size, list[Request]()
        new = [i for i, slot in enumerate(self._slots) if slot.pending > 1]
        for i in sorted(new, key=lambda i: self._slots[i].since):
            slot, request = self._slots[i], self._slots[i].request
            if request is None or budget <= 0:
                continue
            self._share(i, request)
            self._restore(i, request)
            first = len(slot.held)
            part = request.sequence[first : first + min(budget, request.options.chunk_size)]
            decoder = self._decoder.with_adapter(request.adapter)
            selection = self._pool.select([i], decoder.constants)
            positions = np.arange(first, first + len(part), dtype=np.int64)[None]
            self.counts.calls += 1
            self.counts.prompt_tokens += len(part)
            tokens = np.array([part], np.int64)
            logits = decoder.run(selection, PaddedTokens(tokens, selection.mask(len(part)), positions))
            slot.held.extend(part)
            self._keep(i)
            budget -= len(part)
            if slot.pending == 0:
                request.choose(logits[0, -1])
                changed.append(request)
        return changed


def _common(sequence: Sequence[int], held: Sequence[int]) -> int:
    """Return how many first tokens are the same, without the last one of the sequence, whose logits are needed."""
    most = min(len(sequence) - 1, len(held))
    count = 0
    while count < most and sequence[count : min(count + STRIDE, most)] == held[count : min(count + STRIDE, most)]:
        count = min(count + STRIDE, most)
    while count < most and sequence[count] == held[count]:
        count += 1
    return count
