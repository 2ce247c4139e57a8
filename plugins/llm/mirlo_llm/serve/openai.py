"""OpenAI's API: models, chat and text completions."""

from __future__ import annotations

import time

from mirlo.extend.ranks import RankError
from mirlo_llm.generate.errors import FormError
from mirlo_llm.serve.answer_reader import AnswerForm
from mirlo_llm.serve.body import BodyFields, Disconnected, Receive, Scope, Send
from mirlo_llm.serve.completions import CompletionWriter
from mirlo_llm.serve.engine_thread import STOPPING, AnswerJob
from mirlo_llm.serve.errors import RequestError, openai_form
from mirlo_llm.serve.generation_body import CHAT_KEYS, TEXT_KEYS, GenerationBody, read_chat, read_completion
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.models import ModelPool, ModelUse, ServedModel
from mirlo_llm.serve.requests import note, read_json_body
from mirlo_llm.serve.sending import ClientWatch, EventSender, send_json, send_large_json
from mirlo_llm.serve.state import ServerState

TOKEN_BYTES = 64
"""Bytes of a token in an answer, about, and of each of its alternatives."""


class OpenAIRoutes:
    """The endpoints below /v1."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    @property
    def _pool(self) -> ModelPool:
        return self._state.pool

    async def list_models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """List the models."""
        data = [_model_object(model) for model in self._pool.models.values()]
        await send_json(send, 200, {"object": "list", "data": data})

    async def show_model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe a model."""
        await send_json(send, 200, _model_object(self._pool.find(scope["path_params"]["name"])))

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a conversation."""
        await self._generate(scope, receive, send, True)

    async def complete(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Continue texts."""
        await self._generate(scope, receive, send, False)

    async def _generate(self, scope: Scope, receive: Receive, send: Send, is_chat: bool) -> None:
        start = time.perf_counter()

        def read(fields: BodyFields) -> tuple[str, GenerationBody]:
            name = fields.text("model", most=200)
            self._pool.find(name)
            note(scope, model=name)
            self._state.unknown.check(fields, CHAT_KEYS if is_chat else TEXT_KEYS)
            return name, (read_chat if is_chat else read_completion)(fields, self._state.options)

        name, body = await read_json_body(self._state, scope, receive, read)
        async with self._language(name) as backend:
            template = backend.template if is_chat else None
            if is_chat and template is None:
                message = f"model '{name}' has no chat template: use /v1/completions"
                raise RequestError(400, message, code="unsupported_model", parameter="model")
            if template is not None and body.tools.mode != "none" and not template.takes_tools:
                message = f"tools: the chat template of model '{name}' does not show tools to the model"
                raise RequestError(400, message, code="unsupported_model", parameter="tools")
            with backend.admitted(body.call.answers):
                job = await backend.submit(body.call)
                try:
                    async with ClientWatch(receive, lambda: backend.leave(job)):
                        await self._answer(backend, body, job, send, start)
                finally:
                    job.cancel()
                    self._count(backend, job, scope)
            backend.took(time.perf_counter() - start)

    async def _answer(
        self, backend: LanguageBackend, body: GenerationBody, job: AnswerJob, send: Send, start: float
    ) -> None:
        tokenizer = backend.model.tokenizer
        assert tokenizer is not None
        tools = {tool.name: tool for tool in body.tools.tools} if body.tools.mode != "none" else {}
        form = AnswerForm({})
        if body.is_chat:
            form = backend.answer_form(tools, body.tools.mode == "required", job.requests[0].prompt)

        def text_of(token: int) -> str:
            return tokenizer.decode([token], special=True)

        writer = CompletionWriter(body, job, backend.name, text_of, form)
        if not body.call.is_streamed:
            while not writer.is_done:
                writer.take(await job.deliveries())
                _require_going(job)
            tokens = sum(len(request.tokens) for request in job.requests)
            nbytes = TOKEN_BYTES * tokens * (1 + (body.call.logprobs or 0))
            await send_large_json(send, 200, nbytes, writer.whole)
            return
        events = EventSender(send, self._state.options.send_seconds)
        try:
            while not writer.is_done:
                deliveries = await job.deliveries()
                _require_going(job)
                if not events.is_begun:
                    self._state.metrics.first.observe(time.perf_counter() - start, backend.name)
                chunks = writer.chunks(deliveries)
                if not events.is_begun:
                    chunks = writer.first() + chunks
                if writer.is_done:
                    chunks += writer.last()
                if chunks or writer.is_done:
                    await events.send(chunks, writer.is_done)
        except RequestError as error:
            if not events.is_begun:
                raise
            await events.end(openai_form(error))

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


def _model_object(model: ServedModel) -> dict[str, object]:
    return {"id": model.source.name, "object": "model", "created": model.since, "owned_by": "mirlo"}
