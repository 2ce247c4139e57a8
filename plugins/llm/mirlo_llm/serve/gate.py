"""Common processing of all requests before an endpoint: checks, errors as answers, metrics and traces."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from mirlo.extend.runtime import MirloError
from mirlo_llm.serve.body import BUDGET, BodyBudget, Disconnected, Message, Receive, Scope, Send, header
from mirlo_llm.serve.errors import RequestError, message_form, openai_form, protocol_form
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.ollama_api import PREFIX
from mirlo_llm.serve.options import LOOPBACK, ServeOptions
from mirlo_llm.serve.requests import notes
from mirlo_llm.serve.sending import send_json
from mirlo_llm.serve.tracing import Tracer, describe_span

LOG = logging.getLogger(__package__)
PUBLIC = ("/", "/health", "/v2/health/live", "/v2/health/ready")
"""Paths without authentication: the page, which asks for a key, and health checks."""
MESSAGES = "/v1/messages"
"""The path of Anthropic's API, whose clients use another header for keys and another format of errors."""


class Gate(ABC):
    """An ASGI application that checks, counts and traces requests, and converts errors to answers."""

    def __init__(self, options: ServeOptions, metrics: ServerMetrics) -> None:
        self.options, self.metrics = options, metrics
        self._tracer, self._bodies = Tracer(), BodyBudget(options.bodies)
        self._keys = [hashlib.sha256(key.encode()).digest() for key in options.keys]

    @property
    def is_stopping(self) -> bool:
        """Return whether the server is shutting down and refuses new requests."""
        return False

    @abstractmethod
    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that passed the checks."""

    @abstractmethod
    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the application's startup and shutdown events."""

    @abstractmethod
    def endpoint(self, scope: Scope) -> str:
        """Return the path of a request's endpoint without model names, to limit the number of metrics."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.live(scope, receive, send)
            return
        start, status, is_begun = time.perf_counter(), 499, False
        scope[BUDGET] = self._bodies

        async def send_noting(message: Message) -> None:
            nonlocal status, is_begun
            if message["type"] == "http.response.start":
                status, is_begun = message["status"], True
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        with self._tracer.span(scope) as span:
            try:
                self._check(scope)
                await self.respond(scope, receive, send_noting)
            except Disconnected:
                pass
            except Exception as error:
                if is_begun:  # what follows a beginning cannot be an error
                    LOG.error("%s: %s", type(error).__name__, error)
                else:
                    await _send_error(scope, send_noting, _known(error))
            finally:
                self._bodies.release(scope)
            endpoint = self.endpoint(scope)
            facts = notes(scope)
            model = str(facts.get("model", ""))
            self.metrics.requests.add(1, endpoint, model, str(status))
            self.metrics.seconds.observe(time.perf_counter() - start, endpoint, model)
            if span is not None:
                describe_span(span, f"{scope['method']} {endpoint}", _attributes(endpoint, status, facts))

    def _check(self, scope: Scope) -> None:
        """Raise an error for a request that is not allowed."""
        path = scope["path"]
        origin, host = header(scope, b"origin"), header(scope, b"host") or b""
        if origin is not None and origin.partition(b"://")[2] != host:
            raise RequestError(403, "Origin: pages of other sites may not use this server")
        if self.options.is_local and _host_name(host) not in (*LOOPBACK, "testserver"):
            raise RequestError(403, "Host: expected the address of this machine, as no API key is needed")
        if self._keys and path not in PUBLIC:
            authorization = header(scope, b"authorization") or b""
            kind, _, key = authorization.partition(b" ")
            own = header(scope, b"x-api-key") if path.startswith(MESSAGES) else None
            if own is not None and not authorization:
                kind, key = b"bearer", own
            digest = hashlib.sha256(key.strip()).digest()
            matches = [hmac.compare_digest(digest, known) for known in self._keys]
            if kind.lower() != b"bearer" or not any(matches):
                raise RequestError(401, "an API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
        if self.is_stopping and path not in PUBLIC:
            raise RequestError(503, "the server is stopping", code="stopping", retry=5)


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] or text if text.rpartition(":")[2].isdigit() else text


def _attributes(endpoint: str, status: int, facts: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    names = {
        "model": "gen_ai.request.model", "prompt_tokens": "gen_ai.usage.input_tokens",
        "tokens": "gen_ai.usage.output_tokens",
    }  # fmt: skip
    known = {names[key]: value for key, value in facts.items() if key in names}
    return {"http.route": endpoint, "http.response.status_code": status, **known}


def _known(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    if isinstance(error, MirloError):
        LOG.error("%s", error)
        return RequestError(500, str(error)[:2000])
    LOG.error("%s: %s", type(error).__name__, error, exc_info=LOG.isEnabledFor(logging.DEBUG))
    return RequestError(500, "internal error of the server; its log says more")


async def _send_error(scope: Scope, send: Send, error: RequestError) -> None:
    path = scope["path"]
    form = message_form if path.startswith(MESSAGES) else openai_form
    if path.startswith(("/v2", PREFIX)):
        form = protocol_form
    headers = [(b"retry-after", str(error.retry).encode())] if error.retry else []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (408, 413) or error.code == "bodies":  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    await send_json(send, error.status, form(error), headers)
