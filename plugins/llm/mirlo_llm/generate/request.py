"""A request to an engine: a prompt, the options of its continuation, and the answer so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo.extend.runtime import MirloError
from mirlo_llm.generate.config import ModelConfig
from mirlo_llm.generate.guidance import Grammar, Guide
from mirlo_llm.generate.logprobs import TokenLogprob, token_logprob
from mirlo_llm.generate.prompt import require_texts, room_for
from mirlo_llm.generate.sampler import Sampler
from mirlo_llm.generate.search import SearchOptions
from mirlo_llm.generate.text import AnswerText, TokenTexts

END, STOP, LENGTH, CANCELLED, FAILED = "end", "stop", "length", "cancelled", "error"


@dataclass(frozen=True)
class TokenRules:
    """Rules of a request for single tokens."""

    bias: Mapping[int, float] = field(default_factory=dict)
    """Terms added to the logits of tokens."""
    ends: tuple[int, ...] = ()
    """Tokens that end the answer, in addition to the model's."""
    ignores_end: bool = False
    """Whether the answer continues after tokens that would end it."""


NO_RULES = TokenRules()


class Request:
    """A sequence that an engine continues. `ServingEngine.add` makes one."""

    def __init__(
        self,
        prompt: Sequence[int],
        options: SearchOptions,
        config: ModelConfig,
        texts: TokenTexts | None,
        stops: Sequence[str],
        grammar: Grammar | None,
        adapter: str | None,
        logprobs: int | None,
        step: Callable[[], object],
        rules: TokenRules,
        prompt_logprobs: int | None = None,
        has_answer: bool = True,
    ) -> None:
        self.prompt = tuple(prompt)
        """The tokens of the prompt."""
        self.options = options
        self.adapter = adapter
        self.reason: str | None = None
        """Why no more tokens follow: "end" (the model's token), "stop" (a text), "length", "cancelled" or "error"."""
        self.error: Exception | None = None
        """What went wrong, if the reason is "error"."""
        self.reused_tokens = 0
        """Tokens of the prompt that were not computed, as another sequence began with them."""
        self.logprobs: list[TokenLogprob] = []
        """Of each token of the answer, if they were requested."""
        self.prompt_logprobs: list[TokenLogprob | None] = [None] * len(self.prompt)
        """Of each token of the prompt, if they were requested; None for the first, which nothing predicts."""
        self._most_logprobs, self._most_of_prompt, self._has_answer = logprobs, prompt_logprobs, has_answer
        self.has_form = grammar is not None
        """Whether another process says which tokens may follow."""
        self._config, self._texts, self._step = config, texts, step
        self._ends = (*(() if rules.ignores_end else config.ends), *rules.ends)
        self._sampler = Sampler(options, self._ends, 0, None if grammar is None else Guide(grammar), rules.bias)
        self._answer = None if texts is None else AnswerText(texts, self.prompt, stops)
        self._pieces: list[str] = []
        self._taken = 0
        self.sequence = list(prompt)
        """The tokens of the prompt and of the answer."""
        if self.room <= 0 and not self.needs_prompt:
            self._finish(LENGTH)

    @property
    def needs_prompt(self) -> bool:
        """Return whether all prompt tokens must be computed, because probabilities of some are missing."""
        return self._most_of_prompt is not None and None in self.prompt_logprobs[1:]

    def read_prompt(self, first: int, logits: np.ndarray) -> None:
        """Record the probabilities of prompt tokens from their logits; `first` is the index of the first row."""
        for place, row in enumerate(logits, first + 1):
            if self._most_of_prompt is not None and place < len(self.prompt):
                self.prompt_logprobs[place] = token_logprob(row, self.prompt[place], self._most_of_prompt)

    @property
    def is_done(self) -> bool:
        """Return whether no more tokens follow."""
        return self.reason is not None

    @property
    def tokens(self) -> list[int]:
        """Return the tokens of the answer so far, with the one that ends it."""
        return self.sequence[len(self.prompt) :]

    @property
    def text(self) -> str:
        """Return the text of the answer so far, without incomplete characters."""
        require_texts(self._texts)
        return "".join(self._pieces)

    def take(self) -> str:
        """Return the text generated since the last call."""
        require_texts(self._texts)
        taken, self._taken = self._pieces[self._taken :], len(self._pieces)
        return "".join(taken)

    def stream(self) -> Iterator[str]:
        """Yield the text of the answer; steps the engine, with all its requests, until this one is done."""
        require_texts(self._texts)
        while True:
            count = len(self._pieces)
            text = "".join(self._pieces[self._taken : count])
            if text:
                try:
                    yield text
                except GeneratorExit:  # the caller has the text, and leaves the loop
                    self._taken = count
                    raise
                self._taken = count
            elif self.is_done:
                break
            else:
                self._step()
        if self.error is not None:
            raise self.error

    def result(self) -> list[int]:
        """Return the tokens of the answer; steps the engine, with all its requests, until this one is done."""
        while not self.is_done:
            self._step()
        if self.error is not None:
            raise self.error
        return self.tokens

    def cancel(self) -> None:
        """End the request; keep the text so far."""
        if not self.is_done:
            self._finish(CANCELLED)

    def fail(self, error: MirloError) -> None:
        """End the request with an error."""
        self.reason, self.error = FAILED, error

    def choose(self, logits: np.ndarray) -> None:
        """Choose the next token; after an interrupt the request is unchanged."""
        count, pieces, logprobs = len(self.sequence), len(self._pieces), len(self.logprobs)
        answer = None if self._answer is None else self._answer.fork()
        state = self._sampler.state
        try:
            self._choose(logits)
        except MirloError as error:
            self.fail(error)
        except BaseException:
            del self.sequence[count:], self._pieces[pieces:], self.logprobs[logprobs:]
            self._answer, self._sampler.state = answer, state
            if self.reason != CANCELLED:
                self.reason = None
            raise

    def _choose(self, logits: np.ndarray) -> None:
        if self.room <= 0:
            self._finish(LENGTH)
            return
        token = self._sampler.choose(logits, self.sequence, len(self.prompt))
        self.sequence.append(token)
        if self._most_logprobs is not None:
            self.logprobs.append(token_logprob(logits, token, self._most_logprobs))
        if token in self._ends:
            self._finish(END)
            return
        if self._answer is not None:
            self._add_text(self._answer.add(token))
            if self._answer.is_stopped:
                self.reason = STOP
                return
        if self.room <= 0:
            self._finish(LENGTH)

    @property
    def room(self) -> int:
        """Return the number of tokens that may still follow."""
        if not self._has_answer:
            return 0
        return room_for(self.options, self._config, len(self.sequence), len(self.sequence) - len(self.prompt))

    def _finish(self, reason: str) -> None:
        self.reason = reason
        if self._answer is not None:
            self._add_text(self._answer.finish())
            if self._answer.is_stopped:
                self.reason = STOP

    def _add_text(self, text: str) -> None:
        if text:
            self._pieces.append(text)

    def __repr__(self) -> str:
        generated = len(self.sequence) - len(self.prompt)
        return f"<Request of {len(self.prompt)} tokens: {generated} more, {self.reason or 'not done'}>"
