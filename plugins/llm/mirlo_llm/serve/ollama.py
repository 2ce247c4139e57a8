"""The endpoints of Ollama's API, which an option enables."""

from __future__ import annotations

from datetime import datetime, timezone

from mirlo_llm.serve.body import BodyFields, Receive, Scope, Send
from mirlo_llm.serve.embedding_backend import EmbeddingBackend
from mirlo_llm.serve.embeddings import EmbeddingApi, EmbeddingRoutes
from mirlo_llm.serve.errors import protocol_form
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.models import ServedModel
from mirlo_llm.serve.ollama_api import (
    OLLAMA_CHAT_KEYS,
    OLLAMA_EMBED_KEYS,
    OLLAMA_EMBEDDING_KEYS,
    OLLAMA_TEXT_KEYS,
    SHOW_KEYS,
    OllamaTextWriter,
    OllamaWriter,
    model_name,
    read_ollama_chat,
    read_ollama_embed,
    read_ollama_embedding,
    read_ollama_text,
    write_ollama_embed,
    write_ollama_embedding,
)
from mirlo_llm.serve.openai import GenerationApi, OpenAIRoutes
from mirlo_llm.serve.requests import read_json_body
from mirlo_llm.serve.sending import LINES, send_json
from mirlo_llm.serve.state import ServerState

CHAT = GenerationApi(OLLAMA_CHAT_KEYS, read_ollama_chat, OllamaWriter, protocol_form, LINES, model_name)
TEXT = GenerationApi(OLLAMA_TEXT_KEYS, read_ollama_text, OllamaTextWriter, protocol_form, LINES, model_name)
EMBED = EmbeddingApi(OLLAMA_EMBED_KEYS, read_ollama_embed, write_ollama_embed, model_name)
EMBEDDING = EmbeddingApi(OLLAMA_EMBEDDING_KEYS, read_ollama_embedding, write_ollama_embedding, model_name)


class OllamaRoutes:
    """The endpoints below /api."""

    def __init__(self, state: ServerState, openai: OpenAIRoutes, embeddings: EmbeddingRoutes, version: str) -> None:
        self._state, self._openai, self._embeddings, self._version = state, openai, embeddings, version

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a conversation in the format of Ollama's API."""
        await self._openai.generate(scope, receive, send, CHAT)

    async def generate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Continue a text in the format of Ollama's API."""
        await self._openai.generate(scope, receive, send, TEXT)

    async def embed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Embed texts in the format of Ollama's API."""
        await self._embeddings.answer(scope, receive, send, EMBED)

    async def embedding(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Embed one text in the format of Ollama's earlier API."""
        await self._embeddings.answer(scope, receive, send, EMBEDDING)

    async def tags(self, scope: Scope, receive: Receive, send: Send) -> None:
        """List the models in the format of Ollama's API."""
        models = [
            _described(model, name)
            for model in self._state.pool.models.values()
            for name in (model.source.name, *model.source.adapters)
        ]
        await send_json(send, 200, {"models": models})

    async def running(self, scope: Scope, receive: Receive, send: Send) -> None:
        """List the loaded models in the format of Ollama's API."""
        models = [{**_described(model, model.source.name), "size_vram": 0} for model in self._state.pool.loaded]
        await send_json(send, 200, {"models": models})

    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Describe a model in the format of Ollama's API."""

        def read(fields: BodyFields) -> str:
            self._state.unknown.check(fields, SHOW_KEYS)
            return model_name(fields.text("model" if fields.has("model") or not fields.has("name") else "name"))

        name = await read_json_body(self._state, scope, receive, read)
        model = self._state.pool.find(name)
        described = _described(model, name)
        capabilities = ["embedding"] if isinstance(model.backend, EmbeddingBackend) else []
        if isinstance(model.backend, LanguageBackend):
            template = model.backend.template
            capabilities = ["completion", *(["tools"] if template is not None and template.takes_tools else [])]
        answer = {key: described[key] for key in ("details", "modified_at")}
        info = {"general.basename": model.source.name}
        await send_json(send, 200, {**answer, "capabilities": capabilities, "model_info": info})

    async def version(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the server's version in the format of Ollama's API."""
        await send_json(send, 200, {"version": self._version})


def _described(model: ServedModel, name: str) -> dict[str, object]:
    changed = datetime.fromtimestamp(model.since, timezone.utc).isoformat().replace("+00:00", "Z")
    form = "gguf" if model.source.path.suffix == ".gguf" else "safetensors"
    details = {"format": form, "family": model.kind, "families": [], "parameter_size": "", "quantization_level": ""}
    return {
        "name": name, "model": name, "modified_at": changed, "size": model.nbytes, "digest": "", "details": details,
    }  # fmt: skip
