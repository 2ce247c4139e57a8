"""The front of a cluster: it checks requests and forwards them to replicas, to another one if one is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mirlo_llm.serve.body import Message, Receive, Scope, Send, read_body
from mirlo_llm.serve.errors import RequestError, openai_form
from mirlo_llm.serve.gate import LOG, Gate
from mirlo_llm.serve.metrics import CONTENT_TYPE, Counter, ServerMetrics
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.ray.forwarding import ForwardedRequest, forwarded
from mirlo_llm.serve.ray.resuming import NotNow, ResumableAnswer
from mirlo_llm.serve.requests import note
from mirlo_llm.serve.sending import ClientWatch, send_bytes, send_json

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

PAUSE_SECONDS = 0.2
"""First pause before a request is sent again; it grows to `MAX_PAUSE_SECONDS`."""
MAX_PAUSE_SECONDS = 2.0


class Front(Gate):
    """An application of ASGI that sends each request to a replica of the models."""

    def __init__(
        self, replicas: DeploymentHandle, models: Sequence[str], options: ServeOptions, retry_seconds: float
    ) -> None:
        super().__init__(options, ServerMetrics())
        self._replicas, self._models, self._retry_seconds = replicas, tuple(models), retry_seconds
        self._retried = Counter("mirlo_retried_requests_total", "Requests that were sent to a replica again.")
        self.metrics.add(self._retried)

    async def live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the application's startup and shutdown events; nothing is loaded here."""
        if scope["type"] != "lifespan":
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})

    def endpoint(self, scope: Scope) -> str:
        """Return the path of a request's endpoint without model names, to limit the number of metrics."""
        parts = scope["path"].split("/")
        if len(parts) > 3 and parts[2] == "models":
            parts[3] = "{name}" if parts[3] in self._models else "other"
        return "/".join(parts[:7]) if len(scope["path"]) < 100 else "other"

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests for metrics here, and forward all others to a replica."""
        path = scope["path"]
        if path == "/metrics":
            await send_bytes(send, 200, self.metrics.text().encode(), CONTENT_TYPE.encode())
            return
        if path == "/v2/health/live":
            await send_json(send, 200, {"live": True})
            return
        body = await read_body(scope, receive, self.options.max_body, self.options.body_seconds)
        request = await forwarded(scope, body, self._models)
        if request.model:
            note(scope, model=request.model)
        answering = asyncio.ensure_future(self._answer(request, ResumableAnswer(send)))
        async with ClientWatch(receive, answering.cancel):
            with suppress(asyncio.CancelledError):  # the client has gone
                await answering

    async def _answer(self, request: ForwardedRequest, answer: ResumableAnswer) -> None:
        end, pause, reason = time.monotonic() + self._retry_seconds, PAUSE_SECONDS, ""
        while True:
            try:
                async for message in self._messages(request):
                    await answer.take(message)
                return
            except RequestError as error:
                if not answer.is_begun:
                    raise
                await answer.end(openai_form(error))
                return
            except NotNow as error:
                reason = str(error)
            except Exception as error:
                if not _is_loss(error):
                    raise
                reason = type(error).__name__
            if time.monotonic() + pause > end:
                await self._give_up(answer, reason)
                return
            LOG.warning("%s is sent to another replica: %s", request.path, reason)
            self._retried.add(1)
            answer.restart()
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _give_up(self, answer: ResumableAnswer, reason: str) -> None:
        message = f"no replica answered in {self._retry_seconds:g} s: {reason}"
        error = RequestError(503, message, code="no_replica", retry=5)
        if not answer.is_begun:
            raise error
        await answer.end(openai_form(error))

    async def _messages(self, request: ForwardedRequest) -> AsyncIterator[Message]:
        """Yield the messages of a replica; cancel its call if they are not read to the end."""
        from ray.serve.exceptions import BackPressureError

        handle = self._replicas.options(stream=True, multiplexed_model_id=request.model)
        response = handle.answer.remote(request)
        is_done = False
        try:
            async for message in response:
                yield message
            is_done = True
        except BackPressureError:
            raise RequestError(429, "too many requests wait: try again", code="rate_limit_exceeded", retry=1) from None
        finally:
            if not is_done:
                response.cancel()


def _is_loss(error: Exception) -> bool:
    """Return whether an error means that the replica was lost."""
    from ray.exceptions import (
        NodeDiedError,
        ObjectLostError,
        OutOfMemoryError,
        RayActorError,
        RaySystemError,
        RayTaskError,
        WorkerCrashedError,
    )
    from ray.serve.exceptions import DeploymentUnavailableError

    losses = (NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, RaySystemError, WorkerCrashedError)
    if isinstance(error, RayTaskError):  # raised by the replica's code
        return isinstance(error.cause, losses)
    return isinstance(error, (*losses, DeploymentUnavailableError))
