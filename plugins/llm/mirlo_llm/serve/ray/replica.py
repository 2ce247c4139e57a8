"""A replica of served models: a server without a network port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from mirlo_llm.serve.application import Server
from mirlo_llm.serve.body import Message
from mirlo_llm.serve.models import ModelPool
from mirlo_llm.serve.options import ModelSource, ServeOptions
from mirlo_llm.serve.ray.forwarding import ForwardedRequest, answer_of


class ModelReplica:
    """The models of a deployment in one process."""

    async def __init__(  # type: ignore[misc]  # Ray awaits it before the replica gets requests
        self, sources: Sequence[ModelSource], options: ServeOptions, compile_options: Mapping[str, Any]
    ) -> None:
        self._server = Server(sources, options, compile_options)
        pool = self._server.state.pool
        await pool.start()
        self._bring = _multiplexed(pool, options.loaded) if options.is_lazy else None

    async def answer(self, request: ForwardedRequest) -> AsyncIterator[Message]:
        """Yield the answer to a request as messages of ASGI."""
        if self._bring is not None and request.model:
            await self._bring(request.model)
        async for message in answer_of(self._server, request):
            yield message

    def __del__(self) -> None:
        """Unload the models when Ray ends the replica."""
        if hasattr(self, "_server"):
            self._server.state.pool.stop()


def _multiplexed(pool: ModelPool, most: int) -> Callable[[str], Awaitable[str]]:
    """Return a function that loads a model; Ray routes later requests for the model to the same replica."""
    from ray import serve

    async def bring(name: str) -> str:
        async with pool.use(name):
            return name

    result: Callable[[str], Awaitable[str]] = serve.multiplexed(max_num_models_per_replica=most)(bring)
    return result
