"""The slots of an engine: shared prefixes, and the calls of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.generate.caches import EngineCaches
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.guess_pace import GuessPaces
from mirlo_llm.generate.request import Request

Guess = Callable[[Mapping[int, Request], int], Mapping[int, list[int]]]
"""Returns up to a number of tokens that may follow each request, by slot."""

STRIDE = 64
"""Number of tokens that are compared at once."""
Call = dict[int, int]
"""The number of tokens that a call computes, by slot."""


@dataclass
class EngineCounts:
    """Counters of an engine."""

    steps: int = 0
    calls: int = 0
    """Calls of the model. A step has up to one for the active sequences, and one for each chunk of a prompt, with
    contiguous caches; with caches in pages, one for all of them."""
    tokens: int = 0
    """Tokens of answers."""
    prompt_tokens: int = 0
    """Tokens of prompts that were computed."""
    reused_tokens: int = 0
    """Prompt tokens that were not computed, because another sequence has the same prefix."""
    guessed_tokens: int = 0
    """Tokens that were computed because a lookup or a draft model guessed them."""
    accepted_tokens: int = 0
    """Guessed tokens that were right: each saved a step of its sequence."""
    preempted: int = 0
    """How often a sequence lost its pages to an older one; it is recomputed when pages are free."""


@dataclass
class Slot:
    """Room for one sequence in the caches."""

    held: list[int] = field(default_factory=list)
    """The cached tokens; those of an ended sequence stay until the slot is needed."""
    request: Request | None = None
    adapter: str | None = None
    """The adapter that the caches were computed with."""
    since: int = 0
    """The number of requests that got a slot before the current, or last, request."""
    is_begun: bool = False
    """Whether a call has computed tokens of the request."""
    guesses: Sequence[int] = ()
    """Tokens that may follow those of the request, which the step computes, too."""
    paces: GuessPaces | None = None
    """The numbers of guesses of the request; None before its first guess."""

    def common(self, request: Request) -> int:
        """Return the number of a request's first tokens that are cached, without its last token."""
        is_same = request.adapter == self.adapter and not request.needs_prompt
        return common(request.sequence, self.held) if is_same else 0

    @property
    def pending(self) -> int:
        """Return the number of the request's tokens that are not cached."""
        return 0 if self.request is None else len(self.request.sequence) - len(self.held)

    def next_tokens(self, count: int) -> list[int]:
        """Return the next tokens to compute, without guesses."""
        return [] if self.request is None else self.request.sequence[len(self.held) :][:count]


class EngineSlots:
    """The slots of an engine.

    With contiguous caches a slot keeps its tokens until another request needs it, and a new request copies rows. With
    caches in pages a slot is empty when its request has ended, and a new request shares pages. If pages run out, new
    requests wait, and an active sequence takes the pages of the youngest one, which is recomputed later.
    """

    def __init__(
        self,
        decoder: CompiledDecoder,
        pool: EngineCaches,
        count: int,
        counts: EngineCounts,
        report: Callable[[Request], None],
        guess: Guess,
        has_draft: bool,
        block: int,
    ) -> None:
        """Create the slots; `report` is called with a request before it fails.

        `guess` returns tokens that may follow a request with a lookup, or any if it `has_draft`. A call computes up to
        `block` new tokens of a sequence.
        """
        self.pool = pool
        self._guess, self._has_draft, self._block = guess, has_draft, block
        self._decoder, self._counts, self._report, self._admitted = decoder, counts, report, 0
        self._slots = [Slot() for _ in range(count)]

    def __getitem__(self, place: int) -> Slot:
        return self._slots[place]

    def needs_rows(self, place: int) -> bool:
        """Return whether a slot's request needs the logits of all tokens of its prompt."""
        request = self._slots[place].request
        return request is not None and request.needs_prompt

    @property
    def requests(self) -> list[Request]:
        """Return the requests that have a slot."""
        return [slot.request for slot in self._slots if slot.request is not None]

    @property
    def has_ready(self) -> bool:
        """Return whether some sequence needs only one more computed token for its next one."""
        return any(slot.pending == 1 for slot in self._slots)

    def end_those_done(self) -> None:
        """Free the slots of finished requests."""
        for i, slot in enumerate(self._slots):
            if slot.request is not None and slot.request.is_done:
                self.keep(i)
                slot.request = None
                if self.pool.is_ragged:
                    self._empty(i)

    def take(self, request: Request) -> bool:
        """Assign a slot to a request: the one with the longest common prefix, or the one that is free longest."""
        slots = self._slots
        free = [i for i, slot in enumerate(slots) if slot.request is None]
        if not free:
            return False
        same, chosen = {}, free[0]
        for i in free:
            same[i] = self._common(i, request)
            if same[i] > same[chosen]:
                chosen = i
            if same[chosen] == len(request.sequence) - 1:  # more there cannot be
                break
        if 2 * same[chosen] < len(slots[chosen].held):
            chosen = min(free, key=lambda i: (bool(slots[i].held), slots[i].since))
        slot, kept = slots[chosen], same[chosen] if chosen in same else self._common(chosen, request)
        self.pool.rewind(chosen, kept)
        del slot.held[kept:]
        self._admitted += 1
        slot.request, slot.adapter, slot.since, slot.is_begun = request, request.adapter, self._admitted, False
        slot.paces = None
        self._reuse(request, kept)
        return True

    def calls(self, budget: int) -> Iterator[Call]:
        """Yield the calls of a step, with up to `budget` tokens of prompts, the oldest request first.

        One call computes a token of each active sequence, others the chunks of prompts; a model that allows different
        numbers of tokens computes all in one call. Each adapter has a call of its own.
        """
        order = sorted(range(len(self._slots)), key=lambda i: self._slots[i].since)
        ready = {i: 1 for i in order if self._slots[i].pending == 1 and self._reserve(i)}
        is_ragged = self.pool.is_ragged
        self._add_guesses(ready)
        if not is_ragged:
            yield from self._by_adapter(ready)
        for i in order:
            slot, request = self._slots[i], self._slots[i].request
            if request is None or slot.pending < 2 or budget <= 0 or i in ready:
                continue
            if not request.needs_prompt and (not slot.is_begun or not is_ragged):
                self._share(i, request)
                self._restore(i, request)
            if is_ragged and self._waits(i, ready):
                continue
            if not self._begin(i):
                break
            count = min(budget, request.options.chunk_size)
            count = self._decoder.call_length(slot.next_tokens(slot.pending), count)
            budget -= count
            if is_ragged:
                ready[i] = count
            else:
                yield {i: count}
        if is_ragged:
            yield from self._by_adapter(ready)
            if not ready:
                self._fail_oldest(order)

    def keep(self, place: int) -> None:
        """Keep the rows of a slot's tokens for reuse as a prefix."""
        slot, pool = self._slots[place], self.pool
        states = (lambda: pool.states(place)) if self._decoder.states else None

        def rows(start: int, stop: int) -> Rows | None:
            return pool.rows(place, start, stop)

        self._decoder.prefixes.add(slot.adapter, slot.held, rows, states)

    def _by_adapter(self, ready: Call) -> Iterator[Call]:
        """Yield the calls for these numbers of tokens; states of a fixed size need as many guesses of each sequence."""
        groups: dict[tuple[str | None, int], Call] = {}
        for i, count in ready.items():
            guesses = len(self._slots[i].guesses) if self._decoder.states else 0
            groups.setdefault((self._slots[i].adapter, guesses), {})[i] = count
        yield from groups.values()

    def _add_guesses(self, ready: Call) -> None:
        """Guess tokens of sequences that get one, as far as there is memory for them.

        A sequence with fewer guesses than others of its call is padded, which counts as its tokens until the call ends.
        """
        requests: dict[int, Request] = {}
        for i, slot in enumerate(self._slots):
            slot.guesses, request = (), slot.request
            if i in ready and request is not None and (self._has_draft or request.options.lookup):
                requests[i] = request
        if not requests:
            return
        most, limit = self._block - 1, self.pool.limit
        if limit is not None:
            most = min([most, *(limit - len(self._slots[i].held) - 1 for i in ready)])
        for i, guesses in self._guess(requests, most).items() if most > 0 else ():
            if guesses and self.pool.reserve(i, 1 + len(guesses)):
                self._slots[i].guesses = guesses

    def _share(self, place: int, request: Request) -> None:
        """Copy a common prefix from another sequence, if it is longer than the slot's."""
        slot = self._slots[place]
        same = {i: self._common(i, request) for i in range(len(self._slots)) if i != place}
        source = max(same, key=lambda i: same[i], default=place)
        count = same.get(source, 0) - len(slot.held)
        if count > 0:
            self.pool.copy(source, place, same[source])
            slot.held = request.sequence[: same[source]]
            self._reuse(request, count)

    def _restore(self, place: int, request: Request) -> None:
        """Restore the rows of a request's first tokens from the prefix cache, if the slot has fewer."""
        slot, pool = self._slots[place], self.pool
        most, with_states = len(request.sequence) - 1, bool(self._decoder.states)
        known = self._decoder.prefixes.find(request.adapter, request.sequence, most, with_states)
        count = 0 if known is None else known.length - len(slot.held)
        if known is not None and count > 0:
            start = pool.rewind(place, 0 if with_states else len(slot.held))
            pool.extend(place, known.rows_from(start), known.length - start, known.states)
            slot.held = request.sequence[: known.length]
            self._reuse(request, count)

    def _waits(self, place: int, ready: Call) -> bool:
        """Return whether a new request should wait, because the call computes half of its tokens for another one."""
        slot, request = self._slots[place], self._slots[place].request
        if request is None or slot.is_begun or request.needs_prompt:
            return False
        most = 0
        for i, count in ready.items():
            other = self._slots[i]
            if other.request is not None and other.adapter == slot.adapter:
                known = other.request.sequence[: len(other.held) + count]
                most = max(most, common(request.sequence, known))
        return 2 * (most - len(slot.held)) >= slot.pending

    def _begin(self, place: int) -> bool:
        """Reserve memory for all tokens of a prompt, so that a page remains for each other sequence."""
        slot, request = self._slots[place], self._slots[place].request
        others = 0 if slot.is_begun else sum(other.is_begun for other in self._slots if other.request is not None)
        if self.pool.reserve(place, slot.pending, others):
            slot.is_begun = True
            return True
        if not slot.is_begun and request is not None:  # what it holds is of more use to others
            self._reuse(request, -min(len(slot.held), request.reused_tokens))
            self._empty(place)
        return False

    def _reserve(self, place: int) -> bool:
        """Reserve memory for one token of a sequence, if necessary by preempting younger ones."""
        while not self.pool.reserve(place, 1):
            younger = [
                i for i, slot in enumerate(self._slots) if slot.request and slot.since > self._slots[place].since
            ]
            holding = [i for i in younger if self._slots[i].held]
            if not holding:
                return False
            self._preempt(max(holding, key=lambda i: self._slots[i].since))
        return True

    def _preempt(self, place: int) -> None:
        """Preempt a sequence: its request waits for a slot again."""
        slot = self._slots[place]
        assert slot.request is not None
        self._counts.preempted += 1
        slot.request = None
        self._empty(place)

    def _empty(self, place: int) -> None:
        self.pool.rewind(place, 0)
        self._slots[place].held = []

    def _fail_oldest(self, order: Sequence[int]) -> None:
        """Fail the oldest request if no sequence can continue because users outside of the engine hold the pages."""
        for i in order:
            request = self._slots[i].request
            if request is not None:
                what = "there are no pages for the next token: generators and forks of this model have them"
                self._report(request)
                request.fail(GenerationError(f"pages: {what}; free them, or load the model with more pages"))
                return

    def _common(self, place: int, request: Request) -> int:
        """Return the length of the common prefix of a slot and a request that the caches can go back to."""
        count = self._slots[place].common(request)
        return self.pool.known(place, count) if count else 0

    def _reuse(self, request: Request, count: int) -> None:
        request.reused_tokens += count
        self._counts.reused_tokens += count


def common(sequence: Sequence[int], held: Sequence[int]) -> int:
    """Return the length of the common prefix, without the sequence's last token, whose logits are needed."""
    most = min(len(sequence) - 1, len(held))
    count = 0
    while count < most and sequence[count : min(count + STRIDE, most)] == held[count : min(count + STRIDE, most)]:
        count = min(count + STRIDE, most)
    while count < most and sequence[count] == held[count]:
        count += 1
    return count
