"""Embeddings in the format of OpenAI's API, and document scores in that of reranking servers."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mirlo_llm.generate import GenerationError
from mirlo_llm.serve.body import BodyFields, Receive, Scope, Send
from mirlo_llm.serve.embedding_backend import EmbeddingBackend, Tokens
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.generation_body import read_texts
from mirlo_llm.serve.requests import note, read_json_body
from mirlo_llm.serve.sending import send_json, send_large_json
from mirlo_llm.serve.state import ServerState

T = TypeVar("T")
MAX_TEXTS = 2048
"""Most texts of a request, as in OpenAI's API."""
EMBEDDING_KEYS = {"model", "input", "encoding_format", "dimensions", "user"}
RERANKING_KEYS = {"model", "query", "documents", "top_n", "return_documents", "user"}
_CODE = "unsupported_model"


@dataclass(frozen=True)
class EmbeddingRequest:
    """The texts of a request, and how their embeddings are wanted."""

    texts: list[str | list[int]]
    dimensions: int | None = None
    form: str = "float"
    """How numbers are written: "float" or "base64"."""
    truncates: bool = False
    """Whether texts that are longer than the model takes lose their ends."""


@dataclass(frozen=True)
class Embedded:
    """The embeddings of a request."""

    model: str
    rows: np.ndarray
    tokens: int
    seconds: float


@dataclass(frozen=True)
class EmbeddingApi:
    """The format of requests and answers of embeddings."""

    keys: set[str]
    read: Callable[[BodyFields], EmbeddingRequest]
    write: Callable[[EmbeddingRequest, Embedded], object]
    model_name: Callable[[str], str] = str
    """Returns the name of a model as a request has it."""


def require_some(texts: list[str | list[int]], key: str) -> list[str | list[int]]:
    """Return the texts of a request, of which there must be some."""
    if not texts:
        raise refused(key, "there are no texts")
    if len(texts) > MAX_TEXTS:
        raise refused(key, f"expected up to {MAX_TEXTS} texts, found {len(texts)}")
    return texts


def read_dimensions(body: BodyFields) -> int | None:
    """Return the number of elements that are wanted of each embedding; None for all."""
    return body.count("dimensions", 1, 1 << 20)


def _read_openai(body: BodyFields) -> EmbeddingRequest:
    texts = require_some(read_texts(body, "input", 1 << 20), "input")
    return EmbeddingRequest(texts, read_dimensions(body), body.choice("encoding_format", ("float", "base64"), "float"))


def _write_openai(request: EmbeddingRequest, embedded: Embedded) -> object:
    listed = [
        {"object": "embedding", "index": i, "embedding": _written(row, request.form)}
        for i, row in enumerate(embedded.rows)
    ]
    return {"object": "list", "data": listed, "model": embedded.model, "usage": _usage(embedded.tokens)}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _written(row: np.ndarray, form: str) -> object:
    if form == "base64":
        return b64encode(row.astype("<f4").tobytes()).decode("ascii")
    return row.tolist()


OPENAI = EmbeddingApi(EMBEDDING_KEYS, _read_openai, _write_openai)


class EmbeddingRoutes:
    """The endpoints /v1/embeddings and /v1/rerank."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def embed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Embed texts."""
        await self.answer(scope, receive, send, OPENAI)

    async def answer(self, scope: Scope, receive: Receive, send: Send, api: EmbeddingApi) -> None:
        """Embed texts in the format of an API."""
        start = time.perf_counter()
        name, request = await self._read(scope, receive, api.keys, api.read, api.model_name)
        async with self._model(name) as backend:
            if backend.model.is_reranker:
                what = "scores pairs of texts: use /v1/rerank"
                raise RequestError(400, f"model '{name}' {what}", code=_CODE, parameter="model")
            with backend.admitted(1):
                encoded = await backend.encode(request.texts, truncate=request.truncates)
                try:
                    rows = backend.model.finished(await backend.rows(encoded), request.dimensions)
                except GenerationError as error:
                    raise refused("dimensions", str(error).partition(": ")[2]) from None
            count = self._count(scope, backend, encoded, start)
            embedded = Embedded(name, rows, count, time.perf_counter() - start)
            await send_large_json(send, 200, rows.nbytes, lambda: api.write(request, embedded))

    async def rerank(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Score documents by relevance to a query, and sort them."""
        start = time.perf_counter()

        def read(body: BodyFields) -> tuple[str, list[str], int | None, bool]:
            query, listed = body.text("query"), body.list("documents", MAX_TEXTS)
            documents = [str(each.get("text", "")) if isinstance(each, dict) else each for each in listed]
            texts = [each for each in documents if isinstance(each, str)]
            if not texts or len(texts) != len(documents):
                raise refused("documents", "expected an array of texts")
            return query, texts, body.count("top_n", 1, MAX_TEXTS, len(texts)), body.flag("return_documents")

        name, (query, texts, most, shows) = await self._read(scope, receive, RERANKING_KEYS, read)
        async with self._model(name) as backend:
            model = backend.model
            with backend.admitted(1):
                if model.is_reranker:
                    encoded = await backend.encode(texts, query)
                    try:
                        scores = model.scores_of(await backend.rows(encoded))
                    except GenerationError as error:
                        raise RequestError(400, str(error)[:2000], code=_CODE, parameter="model") from None
                else:
                    before, prompt = model.prompts_of_search()
                    encoded = await backend.encode([before + query, *(prompt + text for text in texts)])
                    rows = await backend.rows(encoded)
                    scores = model.cosines(rows[0], rows[1:])
            order = np.argsort(-scores, kind="stable")[:most].tolist()
            results = [
                {"index": i, "relevance_score": float(scores[i]), **({"document": {"text": texts[i]}} if shows else {})}
                for i in order
            ]
            usage = _usage(self._count(scope, backend, encoded, start))
            await send_json(send, 200, {"model": name, "results": results, "usage": usage})

    async def _read(
        self, scope: Scope, receive: Receive, known: set[str], read: Callable[[BodyFields], T],
        model_name: Callable[[str], str] = str,
    ) -> tuple[str, T]:  # fmt: skip
        """Return the model's name, and the result of a function of the body."""

        def read_all(body: BodyFields) -> tuple[str, T]:
            name = model_name(body.text("model", most=200))
            self._state.pool.find(name)
            note(scope, model=name)
            self._state.unknown.check(body, known)
            return name, read(body)

        return await read_json_body(self._state, scope, receive, read_all)

    def _count(self, scope: Scope, backend: EmbeddingBackend, encoded: Sequence[Tokens], start: float) -> int:
        """Return the number of tokens of a request, and record it."""
        count = sum(len(tokens) for tokens, _ in encoded)
        self._state.metrics.prompt_tokens.add(count, backend.name)
        note(scope, prompt_tokens=count)
        backend.took(time.perf_counter() - start)
        return count

    def _model(self, name: str) -> AbstractAsyncContextManager[EmbeddingBackend]:
        otherwise = "gives no embeddings: serve the folder of an encoder, or of an embedding model"
        return self._state.pool.use_as(name, EmbeddingBackend, otherwise)
