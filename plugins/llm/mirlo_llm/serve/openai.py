"""OpenAI's API: models, chat and text completions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from mirlo.extend.ranks import RankError
from mirlo_llm.generate.errors import FormError
from mirlo_llm.serve.answer_items import ItemWriter
from mirlo_llm.serve.answer_reader import AnswerForm
from mirlo_llm.serve.body import BodyFields, Disconnected, Receive, Scope, Send
from mirlo_llm.serve.completions import CompletionWriter
from mirlo_llm.serve.engine_thread import STOPPING, AnswerJob
from mirlo_llm.serve.errors import RequestError, message_form, openai_form
from mirlo_llm.serve.generation_body import CHAT_KEYS, TEXT_KEYS, GenerationBody, read_chat, read_completion
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.messages_api import MESSAGE_KEYS, MessageWriter, read_message_body
from mirlo_llm.serve.models import ModelPool, ModelUse, ServedModel
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.requests import note, read_json_body
from mirlo_llm.serve.responses_api import RESPONSE_KEYS, ResponseWriter, read_response_body, response_error
from mirlo_llm.serve.sending import DATA, NAMED, ClientWatch, EventSender, send_json, send_large_json
from mirlo_llm.serve.state import ServerState

TOKEN_BYTES = 64
"""Estimated bytes of a token in an answer, and of each of its alternatives."""


@dataclass(frozen=True)
class GenerationApi:
    """The functions of an endpoint that read requests and write answers."""

    keys: Collection[str]
    read: Callable[[BodyFields, ServeOptions], GenerationBody]
    writer: Callable[[GenerationBody, AnswerJob, str, AnswerForm], ItemWriter] | None = None
    """Writes answers with named events; None for `CompletionWriter`."""
    error: Callable[[RequestError], dict[str, object]] = openai_form
    form: str = DATA
    """The format of streams."""
    name_of: Callable[[str], str] = str
    """Maps a client's model name to the server's."""


CHAT, COMPLETION = GenerationApi(CHAT_KEYS, read_chat), GenerationApi(TEXT_KEYS, read_completion)
RESPONSE = GenerationApi(RESPONSE_KEYS, read_response_body, ResponseWriter, response_error, NAMED)
MESSAGE = GenerationApi(MESSAGE_KEYS, read_message_body, MessageWriter, message_form, NAMED)


class OpenAIRoutes:
    """The endpoints below /v1."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    @property
    def _pool(self) -> ModelPool:
        return self._state.pool

    async def list_models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """List the models."""
        data = [
            _model_object(model, name)
            for model in self._pool.models.values()
            for name in (model.source.name, *model.source.adapters)
        ]
        await send_json(send, 200, {"object": "list", "data": data})

    async def show_model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe a model."""
        name = scope["path_params"]["name"]
        await send_json(send, 200, _model_object(self._pool.find(name), name))

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a conversation."""
        await self.generate(scope, receive, send, CHAT)

    async def complete(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Continue texts."""
        await self.generate(scope, receive, send, COMPLETION)

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a conversation in the format of the Responses API."""
        await self.generate(scope, receive, send, RESPONSE)

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a conversation in the format of the Messages API."""
        await self.generate(scope, receive, send, MESSAGE)

    async def generate(self, scope: Scope, receive: Receive, send: Send, api: GenerationApi) -> None:
        """Answer a request of an API."""
        start = time.perf_counter()

        def read(fields: BodyFields) -> tuple[str, GenerationBody]:
            name = api.name_of(fields.text("model", most=200))
            self._pool.find(name)
            note(scope, model=name)
            self._state.unknown.check(fields, api.keys)
            return name, api.read(fields, self._state.options)

        name, body = await read_json_body(self._state, scope, receive, read)
        async with self._language(name) as backend:
            template = backend.template if body.is_chat else None
            if body.is_chat and template is None:
                message = f"model '{name}' has no chat template: use /v1/completions"
                raise RequestError(400, message, code="unsupported_model", parameter="model")
            if template is not None and body.tools.mode != "none" and not template.takes_tools:
                message = f"tools: the chat template of model '{name}' does not show tools to the model"
                raise RequestError(400, message, code="unsupported_model", parameter="tools")
            with backend.admitted(body.call.answers):
                job = await backend.submit(replace(body.call, adapter=None if name == backend.name else name))
                try:
                    async with ClientWatch(receive, lambda: backend.leave(job)):
                        await self._answer(backend, body, job, send, start, api)
                finally:
                    job.cancel()
                    self._count(backend, job, scope)
            backend.took(time.perf_counter() - start)

    async def _answer(
        self,
        backend: LanguageBackend,
        body: GenerationBody,
        job: AnswerJob,
        send: Send,
        start: float,
        api: GenerationApi,
    ) -> None:
        tokenizer = backend.model.tokenizer
        assert tokenizer is not None
        tools = {tool.name: tool for tool in body.tools.tools} if body.tools.mode != "none" else {}
        form = AnswerForm({})
        if body.is_chat:
            form = backend.answer_form(tools, body.tools.mode == "required", job.requests[0].prompt)

        def decode(tokens: Sequence[int]) -> str:
            return tokenizer.decode(tokens, special=True)

        writer: CompletionWriter | ItemWriter
        if api.writer is None:
            writer = CompletionWriter(body, job, backend.name, decode, form)
        else:
            writer = api.writer(body, job, backend.name, form)
        if not body.call.is_streamed:
            while not writer.is_done:
                writer.take(await job.deliveries())
                _require_going(job)
            await send_large_json(send, 200, _answer_bytes(body, job), writer.whole)
            return
        events = EventSender(send, self._state.options.send_seconds, api.form)
        try:
            while not writer.is_done:
                deliveries = await job.deliveries()
                _require_going(job)
                if not events.is_begun:
                    self._state.metrics.first.observe(time.perf_counter() - start, backend.name)
                chunks = [*([] if events.is_begun else writer.first()), *writer.chunks(deliveries)]
                if writer.is_done:
                    chunks += writer.last()
                if chunks or writer.is_done:
                    await events.send(chunks, writer.is_done)
        except RequestError as error:
            if not events.is_begun:
                raise
            await events.end(api.error(error))

    def _count(self, backend: LanguageBackend, job: AnswerJob, scope: Scope) -> None:
        metrics, name = self._state.metrics, backend.name
        tokens = sum(len(request.tokens) for request in job.requests)
        prompt = sum(len(request.prompt) for request in job.requests)
        metrics.tokens.add(tokens, name)
        metrics.prompt_tokens.add(prompt, name)
        metrics.reused_tokens.add(max(0, sum(request.reused_tokens for request in job.requests)), name)
        note(scope, prompt_tokens=prompt, tokens=tokens)

    def _language(self, name: str) -> ModelUse[LanguageBackend]:
        return self._pool.use_as(name, LanguageBackend, f"is no language model: use /v2/models/{name}/infer")


def _answer_bytes(body: GenerationBody, job: AnswerJob) -> int:
    """Return the estimated bytes of an answer."""
    tokens = sum(len(request.tokens) for request in job.requests) * (1 + (body.call.logprobs or 0))
    if body.call.prompt_logprobs is not None:
        tokens += sum(len(request.prompt) for request in job.requests) * (1 + body.call.prompt_logprobs)
    return TOKEN_BYTES * tokens


def _require_going(job: AnswerJob) -> None:
    if job.is_gone:
        raise Disconnected
    if job.failure is not None:
        message = str(job.failure)
        if isinstance(job.failure, FormError):
            raise RequestError(400, message[:2000], code="invalid_form")
        is_stopping = message == STOPPING
        status = 503 if is_stopping or isinstance(job.failure, RankError) else 500
        raise RequestError(status, message[:2000], code="engine_error", retry=1 if is_stopping else 0)


def _model_object(model: ServedModel, name: str) -> dict[str, object]:
    """Describe a model, by its name or that of an adapter."""
    of_adapter = {"parent": model.source.name} if name != model.source.name else {}
    return {"id": name, "object": "model", "created": model.since, "owned_by": "mirlo", **of_adapter}
