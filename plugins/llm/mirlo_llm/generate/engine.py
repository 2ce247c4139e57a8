"""Continuous batching: requests that arrive and finish at any time share the steps of one model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import numpy as np

from mirlo.extend.runtime import make_lock, release_held_locks
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.draft import EngineDraft
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.guess_pace import DRAFT, LOOKUP, GuessPaces
from mirlo_llm.generate.guidance import Grammar
from mirlo_llm.generate.json_file import is_count
from mirlo_llm.generate.led_caches import LedCaches, NewCaches, SendOperation
from mirlo_llm.generate.lookup import guess
from mirlo_llm.generate.prompt import Prompt, encode_prompt, require_length, require_texts, stop_texts
from mirlo_llm.generate.prompt_pace import PromptPace
from mirlo_llm.generate.request import NO_RULES, Request, TokenRules
from mirlo_llm.generate.search import MAX_SLOTS, SearchOptions, with_options
from mirlo_llm.generate.sequences import FIRST_CAPACITY
from mirlo_llm.generate.slots import EngineCounts, EngineSlots, Slot
from mirlo_llm.generate.text import DecodedTexts, KeptTokens, TokenTexts

GUESSED_ROWS = 32
"""Most tokens of a step with guesses: they share the reading of weights, beyond these each takes time of its own."""
MAX_LOGPROBS = 64
"""Most alternatives of a token with their probabilities; APIs allow up to 20."""


class StepResults(threading.local):
    """The results of one thread's steps."""

    def __init__(self) -> None:
        self.changed: dict[Request, None] = {}
        """The requests that got a token, until the call after the one that returned them."""
        self.returned: list[Request] = []
        """Those that were returned."""

    def forget_returned(self) -> None:
        """Forget the requests that were returned, since another call shows that the caller has them."""
        while self.returned:
            self.changed.pop(self.returned[-1], None)
            self.returned.pop()


class ServingEngine:
    """Runs requests together.

    `add` accepts a request at any time, from any thread. Each `step` computes a token of every active sequence in one
    call of the model, and up to `chunk_size` tokens of prompts: in the same call if caches are in pages. Beside active
    sequences it computes so few that a step takes at most three times as long. What ends makes room for what waits.
    With `lookup`, or a draft model, a step also computes tokens that may follow, and takes over those that are right;
    of a request of which few guesses are right, it computes fewer, or none.
    Every request gets the tokens that it would get alone. A prompt that begins like another sequence, active or ended,
    takes over the part that is the same: from the caches of that sequence, or from the pages that the model keeps.
    """

    def __init__(
        self,
        decoder: CompiledDecoder,
        search: SearchOptions,
        texts: DecodedTexts | None,
        slots: int,
        grammar: Callable[[Mapping[str, object]], Grammar | None],
        lead: SendOperation | None = None,
        draft: CompiledDecoder | None = None,
    ) -> None:
        """Store the model and the options.

        `lead` sends changes of the caches to the model's other ranks. `draft` guesses what follows.
        """
        if not is_count(slots, 1, MAX_SLOTS):
            raise GenerationError(f"slots: expected 1 to {MAX_SLOTS}, found {slots!r:.40}")
        self.counts = EngineCounts()
        self.pace = PromptPace()
        self.guess_paces = GuessPaces()
        """The numbers of guesses by the acceptance of all requests."""
        self._decoder, self._search, self._texts, self._grammar = decoder, search, texts, grammar
        self._count, self._lead, self._drafting = slots, lead, draft
        self._slots = self._new_slots()
        self._requests: dict[Request, None] = {}
        """The requests that are not done, in their order. Slots and caches are derived from them: after an interrupt
        these are made anew."""
        self._results = StepResults()
        self._kept: dict[tuple[str, ...], KeptTokens] = {}
        self._lock = make_lock()
        """Held by a step."""

    @property
    def active(self) -> list[Request]:
        """Return the requests that have a slot."""
        return [request for request in self._slots.requests if not request.is_done]

    @property
    def waiting(self) -> list[Request]:
        """Return the requests that wait for a slot."""
        active = set(self._slots.requests)
        return [request for request in list(self._requests) if not request.is_done and request not in active]

    @property
    def guess_counts(self) -> dict[str, tuple[float, int]]:
        """Return the share of guesses that are accepted, and the number of tokens that a step guesses, by source."""
        search = self._search
        most = {LOOKUP: search.lookup, DRAFT: 0 if self._drafting is None else search.draft_tokens}
        paces = {source: self.guess_paces[source] for source, count in most.items() if count}
        return {source: (pace.acceptance, int(min(most[source], pace.limit))) for source, pace in paces.items()}

    @property
    def has_forms(self) -> bool:
        """Return whether a step may wait for the process that computes the allowed tokens of constrained answers."""
        return any(request.has_form for request in list(self._requests))

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
        grammar: str | None = None,
        adapter: str | None = None,
        logprobs: int | None = None,
        kept: Sequence[str] = (),
        rules: TokenRules = NO_RULES,
        prompt_logprobs: int | None = None,
        has_answer: bool = True,
        **search: object,
    ) -> Request:
        """Return a request to continue a text or tokens; the arguments are those of `LanguageModel.generator`.

        `logprobs` requests log probabilities of tokens, with those of this many alternatives. The text of the answer
        has the special tokens `kept`. `rules` are those of single tokens. `prompt_logprobs` requests the
        same of the tokens of the prompt; without `has_answer` no tokens follow.
        """
        for name, count in (("logprobs", logprobs), ("prompt_logprobs", prompt_logprobs)):
            if count is not None and not is_count(count, 0, MAX_LOGPROBS):
                raise GenerationError(f"{name}: expected 0 to {MAX_LOGPROBS}, found {count!r:.40}")
        wrong = next((token for token in (*rules.bias, *rules.ends) if not self._decoder.is_token(token)), None)
        if wrong is not None:
            raise GenerationError(f"a token must be from 0 to {self._decoder.vocabulary - 1}, found {wrong}")
        options = with_options(self._search, search)
        self._decoder.with_adapter(adapter)  # raises an error if there is none of the name
        if options.num_beams != 1:
            raise GenerationError("num_beams: an engine continues a request by one sequence: use a generator")
        stops = stop_texts(stop)
        if stops:
            require_texts(self._texts)
        tokens = encode_prompt(self._texts, self._decoder, prompt, is_start=True)
        if not tokens:
            raise GenerationError("a prompt has no tokens")
        require_length(options, self._decoder.config, len(tokens))
        form = self._grammar({"json_schema": json_schema, "regex": regex, "lark": lark, "grammar": grammar})
        request = Request(
            tokens, options, self._decoder.config, self._texts_with(tuple(kept)), stops, form, adapter, logprobs,
            self.step, rules, prompt_logprobs, has_answer,
        )  # fmt: skip
        if not request.is_done:
            self._requests[request] = None
        return request

    def _texts_with(self, kept: tuple[str, ...]) -> TokenTexts | None:
        """Return a decoder of tokens that keeps some special tokens as texts."""
        if not kept or self._texts is None:
            return self._texts
        if kept not in self._kept:
            self._kept[kept] = KeptTokens(self._texts, kept)
        return self._kept[kept]

    @property
    def changed(self) -> list[Request]:
        """Return the requests that the last `step` of this thread returned, or `run` yielded last.

        A request is listed from its new token until the next call of `step` or `run` begins. A caller that was
        interrupted before it stored the result of a call reads them here; it may have received some of them already.
        """
        return list(self._results.changed)

    def step(self) -> list[Request]:
        """Compute a token of each active sequence and a part of the prompts; return the requests that got a token.

        If it is interrupted, no request is lost or changed: the next step computes again what the caches held, and
        returns the requests that had their token already as well. See `changed` for what may be lost on its way from
        here to the caller.
        """
        results = self._results
        results.forget_returned()
        self._step()
        results.returned = list(results.changed)
        return list(results.returned)

    def run(self) -> Iterator[Request]:
        """Run steps until there is nothing to compute; yield each request when it is done.

        After an interrupt, another call continues; see `changed` for the request that was yielded last.
        """
        results = self._results
        results.forget_returned()
        while results.changed or not self.is_idle:
            for request in list(results.changed):
                try:
                    if request.is_done:
                        yield request
                except GeneratorExit:  # the caller leaves the loop, or was interrupted before it had the request
                    results.returned.append(request)
                    raise
                results.changed.pop(request, None)
            if not self.is_idle:
                self._step()

    def _step(self) -> None:
        try:
            with self._lock:
                self._compute_step()
        except BaseException:
            release_held_locks()
            raise

    def _compute_step(self) -> None:
        try:
            self._admit()
            self.counts.steps += 1
            budget = self.pace.most(self._search.chunk_size, self._slots.has_ready)
            for call in self._slots.calls(budget):
                start = self.pace.clock()
                self._compute(call)
                self.pace.note(call, self.pace.clock() - start)
            self._drop_those_done()
        except BaseException:  # of a call that was interrupted, the caches may hold a part
            self._slots = self._new_slots()
            raise

    def _new_slots(self) -> EngineSlots:
        first = NewCaches(FIRST_CAPACITY, self._count, self._search.chunk_size)
        if self._lead is not None:
            self._lead(first)
        pool = self._decoder.new_pool(first.capacity, first.count, first.block)
        if self._lead is not None:
            pool = LedCaches(pool, self._lead)
        chunk = self._search.chunk_size
        self._draft = None if self._drafting is None else EngineDraft(self._drafting, self._count, chunk)
        has_draft = self._draft is not None
        return EngineSlots(self._decoder, pool, self._count, self.counts, self._report, self._guess, has_draft, chunk)

    def _guess(self, requests: Mapping[int, Request], most: int) -> Mapping[int, list[int]]:
        """Return up to `most` tokens that may follow requests: those of a lookup, else of the draft model."""
        most = min(most, GUESSED_ROWS // len(requests) - 1)
        rooms = {i: 0 if each.needs_prompt else min(most, each.room - 1) for i, each in requests.items()}
        paces = {i: self._paces_of(self._slots[i]) for i in requests}
        result = {}
        for i, each in requests.items():
            found = guess(each.sequence, min(each.options.lookup, rooms[i]))
            result[i] = found[: paces[i][LOOKUP].count(len(found))]
            paces[i].source = LOOKUP if result[i] else DRAFT
        if self._draft is not None:
            others = {i: each for i, each in requests.items() if not result[i]}
            counts = {i: paces[i][DRAFT].count(min(each.options.draft_tokens, rooms[i])) for i, each in others.items()}
            result |= self._draft.guess({i: each.sequence for i, each in others.items()}, counts)
        texts = self._decoder.vocabulary  # numbers above are parts of images
        return {i: list(takewhile(lambda token: token < texts, tokens)) for i, tokens in result.items()}

    def _paces_of(self, slot: Slot) -> GuessPaces:
        """Return the numbers of guesses of a slot's request.

        States of a fixed size need as many guesses of each sequence of a call: all requests have one pace.
        """
        if slot.paces is None:
            slot.paces = GuessPaces(self.guess_paces, is_one=bool(self._decoder.states))
        return slot.paces

    def _admit(self) -> None:
        """Free the slots of finished requests, and assign them to waiting requests in order."""
        self._drop_those_done()  # a caller may have ended some since the last step
        for request in self.waiting:
            if not self._slots.take(request):
                return

    def _drop_those_done(self) -> None:
        self._slots.end_those_done()
        for request in list(self._requests):
            if request.is_done:
                self._requests.pop(request, None)

    def _compute(self, call: Mapping[int, int]) -> None:
        """Compute tokens of some sequences."""
        slots, pool = self._slots, self._slots.pool
        decoder = self._decoder.with_adapter(slots[next(iter(call))].adapter)
        selection = pool.select(list(call), decoder.constants)
        parts = [[*slots[i].next_tokens(call[i]), *slots[i].guesses] for i in selection.sequences]
        self.counts.calls += 1
        rows = max(
            len(part) if slots.needs_rows(i) else 1 + len(slots[i].guesses)
            for i, part in zip(selection.sequences, parts, strict=True)
        )
        logits = decoder.run_selected(selection, parts, [slots[i].held for i in selection.sequences], rows)
        longest = max(map(len, parts))
        for i, part, own in zip(selection.sequences, parts, logits, strict=True):
            slot, request = slots[i], slots[i].request
            assert request is not None  # a call has slots with requests only
            before, count = len(slot.held), len(part) - len(slot.guesses)
            if slots.needs_rows(i):
                request.read_prompt(before, own[-len(part) :])
            self.counts.prompt_tokens += max(0, min(len(request.prompt) - before, count))
            slot.held.extend(part[:count])
            if count > 1:
                slots.keep(i)
            if slot.pending == 0:
                self._report(request)
                self._choose(slot, request, own[len(own) - 1 - len(slot.guesses) :])
            if len(slot.held) - before < (len(part) if pool.is_ragged else longest):  # guesses that are wrong, padding
                del slot.held[pool.rewind(i, len(slot.held)) :]

    def _choose(self, slot: Slot, request: Request, logits: np.ndarray) -> None:
        """Choose the next token of a request by the first row of logits, and more while the guesses are right."""
        guessed, accepted = len(slot.guesses), 0
        self.counts.guessed_tokens += guessed
        for row, expected in zip(logits, (*slot.guesses, None), strict=True):
            count = len(request.sequence)
            request.choose(row)
            self.counts.tokens += 1
            if request.sequence[count:] != [expected]:
                break
            accepted += 1
            self.counts.accepted_tokens += 1
            if request.is_done:
                guessed = accepted  # no token was chosen after these
                break
            slot.held.append(request.sequence[-1])
        if guessed:
            self._paces_of(slot).note(guessed, accepted)

    def _report(self, request: Request) -> None:
        """Record a request that is about to get a token or an error, so that an interrupt cannot lose it."""
        self._results.changed[request] = None
