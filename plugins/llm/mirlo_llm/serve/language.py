"""A served language model: API requests become requests of its engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from mirlo.extend.runtime import MirloError
from mirlo_llm.generate import GenerationError, LanguageModel, Request
from mirlo_llm.generate.chat import ChatTemplate
from mirlo_llm.generate.request import NO_RULES, TokenRules
from mirlo_llm.serve.answer_reader import CHANNEL, THINK, AnswerForm
from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.call_forms import Tools
from mirlo_llm.serve.engine_thread import STOPPING, AnswerJob, EngineThread
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.rank_processes import RankProcesses

LOG = logging.getLogger(__package__)
PROMPT_END = 16
"""Last tokens of a prompt that are searched for the opening delimiter of reasoning."""
INLINE_CHARACTERS = 1024
"""Most characters of prompts that are encoded in the event loop, since that is faster than a thread."""


@dataclass(frozen=True)
class GenerationCall:
    """A request to a language model."""

    prompts: Sequence[str | Sequence[int]] = ()
    messages: Sequence[Mapping[str, object]] | None = None
    """A conversation; None if there are prompts."""
    template: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the chat template."""
    count: int = 1
    """Number of answers to each prompt."""
    max_tokens: int | None = None
    """Maximum number of tokens of an answer; 0 for no answer."""
    stop: tuple[str, ...] = ()
    form: Mapping[str, Any] = field(default_factory=dict)
    """The constraint on answers: `json_schema`, `regex`, `lark` or `grammar`."""
    search: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    is_streamed: bool = False
    kept: tuple[str, ...] = ()
    """Special tokens that are kept in the texts of answers."""
    rules: TokenRules = NO_RULES
    adapter: str | None = None
    """The adapter of the model that computes the answers."""

    @property
    def answers(self) -> int:
        """Return the number of answers."""
        return self.count * (1 if self.messages is not None else len(self.prompts))

    @property
    def is_light(self) -> bool:
        """Return whether preparing the request is fast."""
        return self.messages is None and not self.form and sum(map(len, self.prompts)) * self.count <= INLINE_CHARACTERS


class LanguageBackend(Backend):
    """A language model and the engine that runs its requests."""

    kind = "language"

    def __init__(
        self,
        name: str,
        model: LanguageModel,
        options: ServeOptions,
        metrics: ServerMetrics,
        executor: Executor,
        ranks: RankProcesses | None = None,
        draft: LanguageModel | None = None,
    ) -> None:
        """Start the engine; `ranks` are the other processes of the model, `draft` guesses what follows."""
        super().__init__(name, options, metrics, options.slots)
        self.model, self._ranks, self._draft = model, ranks, draft
        if model.tokenizer is None:
            raise RequestError(500, f"model '{name}': its folder has no tokenizer.json, which serving it needs")
        for text in model.deviations:
            LOG.warning("model '%s': %s", name, text)
        context = model.config.context
        self.longest = options.max_prompt_tokens + options.max_tokens
        if context:
            self.longest = min(self.longest, context)
        self._most_characters = min(options.max_prompt_tokens, self.longest - 1) * model.tokenizer.longest
        """More characters than tokens can hold: such prompts are not encoded."""
        model.tokenizer.most_characters = self._most_characters
        requested = {name: getattr(options, name) for name in ("chunk_size", "lookup", "draft_tokens")}
        search = {name: value for name, value in requested.items() if value is not None}
        send = None if ranks is None else ranks.send
        self._engine = model.engine(options.slots, send, draft=draft, max_length=self.longest, **search)

        def on_failure() -> None:
            metrics.failures.add(1, name)

        if ranks is None:
            self._thread = EngineThread(self._engine, name, on_failure)
        else:  # the event loop waits for no other process
            self._thread = EngineThread(self._engine, name, on_failure, 0.0, ranks.explain)
        self._executor = executor
        self._template: ChatTemplate | None = None
        self._template_problem: MirloError | None = None
        if ranks is not None:
            ranks.on_end = self._thread.fail_all

    @property
    def template(self) -> ChatTemplate | None:
        """Return the chat template, if there is one; raise an error if it cannot be read."""
        if self._template_problem is not None:
            raise self._template_problem
        return self._template

    def _read_template(self) -> None:
        try:
            self._template = self.model.template
        except MirloError as error:  # which a request without a conversation need not know
            self._template_problem = error

    @property
    def problem(self) -> MirloError | None:
        """Return the reason why the model cannot answer any more, if any."""
        return None if self._ranks is None else self._ranks.problem

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights and of full caches, with those of the draft model."""
        models = [self.model, *([] if self._draft is None else [self._draft])]
        slots = self.options.slots
        sizes = (each.executable.memory.weights_bytes + each.cache_bytes(slots, self.longest) for each in models)
        return sum(sizes) + (64 << 20)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of active and waiting requests."""
        return len(self._engine.active), len(self._engine.waiting)

    @property
    def guesses(self) -> tuple[int, int]:
        """Return the numbers of tokens that were guessed, and of those that were right."""
        return self._engine.counts.guessed_tokens, self._engine.counts.accepted_tokens

    @property
    def guess_counts(self) -> dict[str, tuple[float, int]]:
        """Return the share of guesses that are accepted, and the number of tokens that a step guesses, by source."""
        return self._engine.guess_counts

    def warm(self) -> None:
        """Generate two tokens, and start the process of the chat template."""
        self._read_template()
        first = self.model.config.start or 0
        request = self._engine.add([first], adapter=self.model.first_adapter, max_new_tokens=2, max_length=0)
        while not request.is_done:  # the thread of the engine sees no job; it steps, as this does
            self._engine.step()
        if request.error is not None:
            raise request.error

    def answer_form(self, tools: Tools, must_call: bool, prompt: Sequence[int]) -> AnswerForm:
        """Return the format of answers in a conversation, from the delimiters in the template."""
        template, tokenizer = self.template, self.model.tokenizer
        if template is None or tokenizer is None:
            return AnswerForm(tools, must_call)
        think = next((pair for pair in THINK if any(map(template.mentions, pair))), None)
        end = tokenizer.decode(prompt[-PROMPT_END:], special=True).rstrip() if think is not None else ""
        is_thinking = think is not None and end.endswith(think[0]) and not must_call
        has_channels = template.mentions(CHANNEL) and not must_call
        return AnswerForm(tools, must_call, think, is_thinking, has_channels)

    async def submit(self, call: GenerationCall) -> AnswerJob:
        """Start answering a call."""
        if call.is_light:
            requests = self._requests(call)
        else:
            future = self._executor.submit(self._requests, call)
            try:
                requests = await asyncio.shield(asyncio.wrap_future(future))
            except asyncio.CancelledError:
                future.add_done_callback(_cancel_all)
                raise
        job = AnswerJob(requests, call.is_streamed)
        self._thread.submit(job)
        return job

    def leave(self, job: AnswerJob) -> None:
        """End the job of a disconnected client."""
        job.leave()
        self.metrics.cancelled.add(1, self.name)
        self._thread.wake()

    def stop(self) -> None:
        """End the thread of the engine, and the other ranks."""
        self._thread.stop()
        if self._ranks is not None:
            self._ranks.stop()

    def fail_all(self) -> None:
        """End all requests with an error."""
        self._thread.fail_all(GenerationError(STOPPING))

    def _requests(self, call: GenerationCall) -> list[Request]:
        """Create the requests of a call; if one is invalid, cancel the others."""
        result: list[Request] = []
        try:
            prompts: Sequence[str | Sequence[int]] = call.prompts
            self._require_length(call)
            for prompt in prompts:
                self._require_text(prompt)
            if call.messages is not None:
                prompts = [self.model.chat_tokens(call.messages, **call.template)]
            for prompt in prompts:
                tokens = prompt
                for i in range(call.count):
                    seed = {} if call.seed is None else {"seed": (call.seed + i) % (1 << 63)}
                    request = self._add(tokens, call, seed)
                    result.append(request)
                    tokens = request.prompt
        except BaseException as error:
            for request in result:
                request.cancel()
            self._thread.wake()
            if isinstance(error, MirloError) and not isinstance(error, RequestError):
                raise _client_error(error) from None
            raise
        return result

    def _require_length(self, call: GenerationCall) -> None:
        """Raise an error for texts that exceed the maximum length in any tokenization, before encoding."""
        longest = max((len(prompt) for prompt in call.prompts if isinstance(prompt, str)), default=0)
        if call.messages is not None:
            longest = sum(_characters(message) for message in call.messages) + _characters(call.template)
        if longest > self._most_characters:
            message = f"the prompt has {longest} characters, the tokens that the server takes have up to"
            raise RequestError(400, f"{message} {self._most_characters}", code="context_length_exceeded")

    def _require_text(self, prompt: str | Sequence[int]) -> None:
        """Raise an error for tokens above the vocabulary, which would be images of other requests."""
        most = self.model.config.vocabulary
        if self.model.config.images is not None and not isinstance(prompt, str) and max(prompt, default=0) >= most:
            raise refused("prompt", f"a token must be from 0 to {most - 1}, found {max(prompt)}")

    def _add(self, prompt: str | Sequence[int], call: GenerationCall, seed: Mapping[str, int]) -> Request:
        tokens = prompt
        if isinstance(prompt, str):
            assert self.model.tokenizer is not None
            tokens = self.model.tokenizer.encode(prompt, special=True)
        if len(tokens) > self.options.max_prompt_tokens or len(tokens) >= self.longest:
            most = min(self.options.max_prompt_tokens, self.longest - 1)
            message = f"the prompt has {len(tokens)} tokens, the server takes up to {most}"
            raise RequestError(400, message, code="context_length_exceeded")
        most = self.options.max_tokens if call.max_tokens is None else call.max_tokens
        return self._engine.add(
            tokens, call.stop, **call.form, adapter=call.adapter, logprobs=call.logprobs, kept=call.kept,
            rules=call.rules, prompt_logprobs=call.prompt_logprobs, has_answer=most > 0, max_new_tokens=most,
            **{**call.search, **seed},
        )  # fmt: skip


def _characters(value: object) -> int:
    """Return the number of characters of all texts in a JSON value."""
    count, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return count


def _client_error(error: MirloError) -> RequestError:
    return RequestError(400, str(error)[:2000])


def _cancel_all(future: Future[list[Request]]) -> None:
    """End the requests of a call that was abandoned while it was prepared."""
    if future.exception() is None:
        for request in future.result():
            request.cancel()
