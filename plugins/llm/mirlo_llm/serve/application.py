"""The ASGI application: the endpoints of a server and its models."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mirlo_llm.serve.body import Receive, Scope, Send
from mirlo_llm.serve.embeddings import EmbeddingRoutes
from mirlo_llm.serve.errors import RequestError, ServeError
from mirlo_llm.serve.gate import Gate
from mirlo_llm.serve.json_pieces import encode_json
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.loading import Loading
from mirlo_llm.serve.metrics import CONTENT_TYPE, Gauge, ServerMetrics
from mirlo_llm.serve.models import ModelPool
from mirlo_llm.serve.ollama import OllamaRoutes
from mirlo_llm.serve.openai import OpenAIRoutes
from mirlo_llm.serve.openapi import openapi_document
from mirlo_llm.serve.options import ModelSource, ServeOptions
from mirlo_llm.serve.protocol import ProtocolRoutes
from mirlo_llm.serve.rank_processes import require_no_ranks
from mirlo_llm.serve.sending import send_bytes
from mirlo_llm.serve.state import ServerState
from mirlo_llm.serve.tokens import TokenRoutes
from mirlo_llm.serve.transcriptions import TranscriptionRoutes
from mirlo_llm.serve.unknown import UnknownKeys

PREPARERS = 16
"""Threads that load models, encode prompts and wait for bounded processes."""
EndpointFunction = Callable[[Scope, Receive, Send], Any]


class AsgiEndpoint:
    """An endpoint that starlette calls with scope, receive and send."""

    def __init__(self, function: EndpointFunction) -> None:
        self._function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._function(scope, receive, send)


class Server(Gate):
    """A server's models and endpoints as an ASGI application."""

    def __init__(
        self, sources: Sequence[ModelSource], options: ServeOptions, compile_options: Mapping[str, Any] | None = None
    ) -> None:
        try:
            from starlette.exceptions import HTTPException
            from starlette.routing import Route, Router
        except ImportError:
            raise ServeError("a server needs the packages of an extra: pip install 'mirlo-llm[serve]'") from None
        from importlib.metadata import version

        if (compile_options or {}).get("ranks", 1) > 1:
            require_no_ranks()
            if len(sources) > 1:
                raise ServeError(f"--ranks: a server of several ranks has one model, found {len(sources)}")
        metrics = ServerMetrics()
        super().__init__(options, metrics)
        self._executor = ThreadPoolExecutor(PREPARERS + options.workers * len(sources), "mirlo serve")
        loading = Loading(options, metrics, self._executor, compile_options or {})
        loading.require_pages(sources)
        pool = ModelPool(sources, options, loading.load, self._executor)
        self.state = ServerState(options, metrics, pool, UnknownKeys(options.is_strict))
        self.on_failure: Callable[[], None] = lambda: None
        """Called if the models cannot be loaded."""
        self._add_gauges()
        self._add_guess_gauges()
        self._page, self._page_headers = _read_page()
        openai, protocol = OpenAIRoutes(self.state), ProtocolRoutes(self.state, version("mirlo"))
        embeddings, speech = EmbeddingRoutes(self.state), TranscriptionRoutes(self.state)
        tokens = TokenRoutes(self.state)
        model = "/v2/models/{name}"
        routes: list[tuple[str, str, EndpointFunction]] = [
            ("GET", "/", self._show_page),
            ("GET", "/metrics", self._show_metrics),
            ("GET", "/openapi.json", self._show_document),
            ("GET", "/v1/models", openai.list_models),
            ("GET", "/v1/models/{name}", openai.show_model),
            ("POST", "/v1/chat/completions", openai.chat),
            ("POST", "/v1/completions", openai.complete),
            ("POST", "/v1/responses", openai.respond),
            ("POST", "/v1/messages", openai.message),
            ("POST", "/v1/messages/count_tokens", tokens.count_message),
            ("POST", "/v1/embeddings", embeddings.embed),
            ("POST", "/v1/rerank", embeddings.rerank),
            ("POST", "/v1/audio/transcriptions", speech.transcribe),
            ("POST", "/v1/audio/translations", speech.translate),
            ("GET", "/health", tokens.health),
            ("GET", "/props", tokens.properties),
            ("POST", "/tokenize", tokens.tokenize),
            ("POST", "/detokenize", tokens.detokenize),
            ("GET", "/v2", protocol.server),
            ("GET", "/v2/health/live", protocol.live),
            ("GET", "/v2/health/ready", protocol.ready),
        ]
        if options.has_ollama:
            ollama = OllamaRoutes(self.state, openai, embeddings, version("mirlo"))
            routes += [
                ("POST", "/api/chat", ollama.chat),
                ("POST", "/api/generate", ollama.generate),
                ("POST", "/api/embed", ollama.embed),
                ("POST", "/api/embeddings", ollama.embedding),
                ("POST", "/api/show", ollama.show),
                ("GET", "/api/tags", ollama.tags),
                ("GET", "/api/ps", ollama.running),
                ("GET", "/api/version", ollama.version),
            ]
        for place in (model, f"{model}/versions/{{version}}"):
            routes += [
                ("GET", place, protocol.model),
                ("GET", f"{place}/ready", protocol.model_ready),
                ("POST", f"{place}/infer", protocol.infer),
            ]
        described = [(method, path, (function.__doc__ or "").partition("\n")[0]) for method, path, function in routes]
        self._document = encode_json(openapi_document(described, version("mirlo"), [source.name for source in sources]))
        self._http_error = HTTPException
        self._fixed = {(method, path): function for method, path, function in routes if "{" not in path}
        """Endpoints that are found without a search."""
        self._router = Router(
            [Route(path, AsgiEndpoint(function), methods=[method]) for method, path, function in routes],
            redirect_slashes=False,
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: object) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(self._load())
        try:
            yield
        finally:
            loading.cancel()
            self.state.pool.stop()
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _load(self) -> None:
        try:
            await self.state.pool.start()
        except Exception as error:
            self.state.failure = error
            self.on_failure()

    def begin_stop(self) -> None:
        """Refuse new requests; active ones have `grace` seconds to finish."""
        if not self.state.is_stopping:
            self.state.is_stopping = True
            asyncio.get_running_loop().call_later(self.state.options.grace, self.state.pool.fail_all)

    @property
    def is_stopping(self) -> bool:
        """Return whether the server is shutting down and refuses new requests."""
        return self.state.is_stopping

    @property
    def is_ready(self) -> bool:
        """Return whether each model has answered a first call and the server accepts requests."""
        return self.state.pool.is_ready and not self.is_stopping

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by its endpoint."""
        scope["app"] = (
            self  # starlette raises errors of HTTP then: for what is no form, and for unknown paths and methods
        )
        function = self._fixed.get((scope["method"], scope["path"]))
        if function is not None:
            scope["endpoint"] = function
            await function(scope, receive, send)
            return
        try:
            await self._router(scope, receive, send)
        except self._http_error as error:
            raise _refused_by_router(scope, error) from None

    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Load the models at startup, and unload them at shutdown."""
        await self._router(scope, receive, send)

    def endpoint(self, scope: Scope) -> str:
        """Return the path of a request's endpoint without model names, to limit the number of metrics."""
        path, parameters = scope["path"], scope.get("path_params")
        if scope.get("endpoint") is None:
            return "other"
        parts = path.split("/")
        for key in ("name", "version"):
            if parameters and key in parameters and parameters[key] in parts:
                parts[parts.index(parameters[key])] = f"{{{key}}}"
        return "/".join(parts)

    async def _show_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the page with a chat and metrics."""
        await send_bytes(send, 200, self._page, b"text/html; charset=utf-8", self._page_headers)

    async def _show_document(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the OpenAPI document."""
        await send_bytes(send, 200, self._document)

    async def _show_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send metrics in Prometheus's text format."""
        await send_bytes(send, 200, self.state.metrics.text().encode(), CONTENT_TYPE.encode())

    def _add_gauges(self) -> None:
        pool, metrics = self.state.pool, self.state.metrics

        def engines(read: Callable[[LanguageBackend], int]) -> dict[tuple[str, ...], float]:
            backends = [model.backend for model in pool.loaded]
            return {(b.name,): float(read(b)) for b in backends if isinstance(b, LanguageBackend)}

        def pending() -> dict[tuple[str, ...], float]:
            return {(m.source.name,): float(m.backend.pending) for m in pool.loaded if m.backend is not None}

        def loaded() -> dict[tuple[str, ...], float]:
            return {(name,): float(model.backend is not None) for name, model in pool.models.items()}

        def memory() -> dict[tuple[str, ...], float]:
            return {(model.source.name,): float(model.nbytes) for model in pool.loaded}

        def active() -> dict[tuple[str, ...], float]:
            return engines(lambda backend: backend.counts[0])

        def waiting() -> dict[tuple[str, ...], float]:
            return engines(lambda backend: backend.counts[1])

        def guessed() -> dict[tuple[str, ...], float]:
            return engines(lambda backend: backend.guesses[0])

        def accepted() -> dict[tuple[str, ...], float]:
            return engines(lambda backend: backend.guesses[1])

        for name, purpose, read in (
            ("mirlo_guessed_tokens_total", "Tokens that a lookup or a draft model guessed.", guessed),
            ("mirlo_accepted_tokens_total", "Guessed tokens that were right.", accepted),
        ):
            metrics.add(Gauge(name, purpose, ("model",), read, "counter"))
        for name, purpose, read in (
            ("mirlo_active_sequences", "Sequences that an engine computes.", active),
            ("mirlo_waiting_sequences", "Sequences that wait for a slot of an engine.", waiting),
            ("mirlo_pending_requests", "Requests that are not answered.", pending),
            ("mirlo_model_loaded", "Whether a model is in memory.", loaded),
            ("mirlo_model_bytes", "Bytes that a loaded model may take, with full caches.", memory),
        ):
            metrics.add(Gauge(name, purpose, ("model",), read))

    def _add_guess_gauges(self) -> None:
        pool, metrics = self.state.pool, self.state.metrics

        def guesses(at: int) -> Callable[[], dict[tuple[str, ...], float]]:
            def read() -> dict[tuple[str, ...], float]:
                backends = [b for model in pool.loaded if isinstance(b := model.backend, LanguageBackend)]
                return {
                    (b.name, source): float(found[at]) for b in backends for source, found in b.guess_counts.items()
                }

            return read

        for name, purpose, read in (
            ("mirlo_guess_acceptance", "Share of the last guesses that were right.", guesses(0)),
            (
                "mirlo_guess_tokens",
                "Tokens that a step guesses, by their acceptance; 0 where it seldom tries.",
                guesses(1),
            ),
        ):
            metrics.add(Gauge(name, purpose, ("model", "source"), read))


def _read_page() -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the page and its headers, whose policy allows its own script only."""
    page = Path(__file__).with_name("page.html").read_bytes()
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    style = page.partition(b"<style>")[2].partition(b"</style>")[0]
    digests = [b"'sha256-" + b64encode(hashlib.sha256(text).digest()) + b"'" for text in (script, style)]
    policy = (
        b"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'; script-src " + digests[0] + b"; style-src " + digests[1]
    )
    headers = [
        (b"content-security-policy", policy), (b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-cache")
    ]  # fmt: skip
    return page, headers


def _refused_by_router(scope: Scope, error: Any) -> RequestError:
    """Return the error for an unknown path or method."""
    known = {404: f"there is nothing at {scope['path'][:200]!a}", 405: f"{scope['method']}: not for this path"}
    return RequestError(int(error.status_code), known.get(error.status_code, "the request is refused"))
