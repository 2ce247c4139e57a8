"""Endpoints for tools: tokenization, health and properties."""

from __future__ import annotations

from urllib.parse import parse_qs

from mirlo_llm.generate.chat import ChatTemplate
from mirlo_llm.serve.body import BodyFields, Receive, Scope, Send
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.generation_body import MAX_MESSAGES, is_tokens
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.messages_api import COUNT_KEYS, chat_of_messages
from mirlo_llm.serve.requests import note, read_json_body
from mirlo_llm.serve.sending import send_json
from mirlo_llm.serve.state import ServerState
from mirlo_llm.serve.threads import run_in_thread
from mirlo_llm.serve.tools import read_tools, template_messages

TOKENIZE_KEYS = {
    "model", "prompt", "content", "messages", "tools", "tool_choice", "add_special_tokens", "add_special",
    "add_generation_prompt", "return_token_strs", "with_pieces", "chat_template_kwargs",
}  # fmt: skip
DETOKENIZE_KEYS = {"model", "tokens"}


class TokenRoutes:
    """Endpoints of vLLM and llama.cpp; `model` is optional if one language model is served."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Report whether the models answer."""
        is_ready = self._state.pool.is_ready and not self._state.is_stopping
        await send_json(send, 200 if is_ready else 503, {"status": "ok" if is_ready else "loading"})

    async def properties(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe a language model and its server options."""
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=16)
        async with self._state.pool.use_as(self._name(query.get("model", [""])[0]), LanguageBackend, _OTHER) as backend:
            config, template = backend.model.config, backend.template
            await send_json(
                send,
                200,
                {
                    "model": backend.name, "architecture": config.kind, "total_slots": self._state.options.slots,
                    "n_ctx": backend.longest, "n_ctx_train": config.context or None, "n_vocab": config.vocabulary,
                    "bos_token_id": config.start, "eos_token_ids": list(config.ends),
                    "deviations": backend.model.deviations,
                    "has_chat_template": template is not None, "takes_tools": bool(template and template.takes_tools),
                },
            )  # fmt: skip

    async def tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the tokens of a text or of a conversation."""
        fields = await self._read(scope, receive, TOKENIZE_KEYS)
        async with self._state.pool.use_as(self._named(scope, fields), LanguageBackend, _OTHER) as backend:
            template = backend.template if fields.has("messages") else None
            tokens = await run_in_thread(1 << 20, lambda: _tokens(backend, template, fields))
            answer: dict[str, object] = {"tokens": tokens, "count": len(tokens), "max_model_len": backend.longest}
            if fields.flag("return_token_strs") or fields.flag("with_pieces"):
                tokenizer = backend.model.tokenizer
                assert tokenizer is not None
                answer["token_strs"] = [tokenizer.text(token) for token in tokens]
            await send_json(send, 200, answer)

    async def count_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the tokens of a conversation in the format of the Messages API."""
        fields = await self._read(scope, receive, COUNT_KEYS)
        chat = BodyFields(chat_of_messages(fields))
        async with self._state.pool.use_as(self._named(scope, fields), LanguageBackend, _OTHER) as backend:
            template = backend.template
            tokens = await run_in_thread(1 << 20, lambda: _tokens(backend, template, chat))
            await send_json(send, 200, {"input_tokens": len(tokens)})

    async def detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the text of tokens, with special ones."""
        fields = await self._read(scope, receive, DETOKENIZE_KEYS)
        async with self._state.pool.use_as(self._named(scope, fields), LanguageBackend, _OTHER) as backend:
            tokens = fields.list("tokens", backend.longest)
            vocabulary, tokenizer = backend.model.config.vocabulary, backend.model.tokenizer
            assert tokenizer is not None
            if tokens and not is_tokens(tokens):
                raise fields.fail("tokens", "an array of tokens")
            numbers = [each for each in tokens if isinstance(each, int)]
            if vocabulary and max(numbers, default=0) >= vocabulary:
                raise refused("tokens", f"a token must be from 0 to {vocabulary - 1}, found {max(numbers)}")
            text = await run_in_thread(len(numbers) * 8, lambda: tokenizer.decode(numbers, special=True))
            await send_json(send, 200, {"prompt": text, "content": text})

    async def _read(self, scope: Scope, receive: Receive, known: set[str]) -> BodyFields:
        def read(fields: BodyFields) -> BodyFields:
            self._state.unknown.check(fields, known)
            return fields

        return await read_json_body(self._state, scope, receive, read)

    def _named(self, scope: Scope, fields: BodyFields) -> str:
        name = self._name(fields.text("model", "", most=200))
        note(scope, model=name)
        return name

    def _name(self, name: str) -> str:
        """Return the name of a model; an empty name stands for the only one."""
        models = self._state.pool.models
        if not name and len(models) == 1:
            return next(iter(models))
        if not name:
            raise RequestError(400, f"model: expected one of {', '.join(models)}", parameter="model")
        self._state.pool.find(name)
        return name


_OTHER = "is no language model"


def _tokens(backend: LanguageBackend, template: ChatTemplate | None, fields: BodyFields) -> list[int]:
    """Return the tokens of the text or the conversation in a body."""
    tokenizer = backend.model.tokenizer
    assert tokenizer is not None
    if fields.has("messages"):
        messages = template_messages(fields.list("messages", MAX_MESSAGES))
        if template is None:
            raise refused("messages", "the model has no chat template: give a prompt")
        variables = dict(fields.mapping("chat_template_kwargs")) if fields.has("chat_template_kwargs") else {}
        _, shown = read_tools(fields)
        if shown:
            variables["tools"] = shown
        if fields.flag("add_generation_prompt", True):
            text = template.render_beginning(messages, **variables)
        else:
            text = template.render(messages, True, **variables)
        return tokenizer.encode(text, special=fields.flag("add_special_tokens"))
    key = "content" if fields.has("content") else "prompt"
    is_special = fields.flag("add_special_tokens" if key == "prompt" else "add_special", key == "prompt")
    return tokenizer.encode(fields.text(key), special=is_special)
