"""The models of a server, loaded at startup, and reloaded on demand after another model has replaced them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.errors import RequestError, ServeError
from mirlo_llm.serve.options import ModelSource, ServeOptions

B = TypeVar("B", bound=Backend)
Loader = Callable[[ModelSource], Backend]


class ServedModel:
    """A model, and whether it is loaded."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.backend: Backend | None = None
        self.kind = ""
        self.nbytes = 0
        self.users = 0
        self.last_use = 0.0
        self.since = int(time.time())

    def end_use(self) -> None:
        """Record that a user no longer needs the model."""
        self.users -= 1
        self.last_use = time.monotonic()


class ModelUse(Generic[B]):
    """A loaded model of a kind, which stays loaded while this context is entered."""

    def __init__(self, pool: ModelPool, name: str, kind: type[B], otherwise: str) -> None:
        self._pool, self._name, self._kind, self._otherwise = pool, name, kind, otherwise

    async def __aenter__(self) -> B:
        model = self._model = await self._pool.begin_use(self._name)
        backend = model.backend
        assert backend is not None
        if backend.problem is None and isinstance(backend, self._kind):
            return backend
        model.end_use()
        if backend.problem is not None:
            raise RequestError(503, str(backend.problem), code="engine_error")
        message = f"model '{self._name}' {self._otherwise}"
        raise RequestError(400, message, code="unsupported_model", parameter="model")

    async def __aexit__(self, *error: object) -> None:
        self._model.end_use()


class ModelPool:
    """Loads models; unloads the least recently used ones when memory or their number is limited."""

    def __init__(self, sources: Sequence[ModelSource], options: ServeOptions, load: Loader, executor: Executor) -> None:
        self.models = {source.name: ServedModel(source) for source in sources}
        self._adapted = {adapter: source.name for source in sources for adapter in source.adapters}
        """The models of adapters, by the names of these."""
        self._is_started = False
        """Whether each model has answered a first call."""
        self._memory, self._most = options.memory, options.loaded or len(sources)
        self._is_lazy, self._load, self._executor = options.is_lazy, load, executor
        self._lock = asyncio.Lock()

    @property
    def is_ready(self) -> bool:
        """Return whether each model has answered a first call, and the loaded ones can answer."""
        return self._is_started and all(model.backend is None or model.backend.problem is None for model in self.loaded)

    @property
    def loaded(self) -> list[ServedModel]:
        """Return the loaded models."""
        return [model for model in self.models.values() if model.backend is not None]

    async def start(self) -> None:
        """Load each model and make a first call; models that do not fit together replace each other."""
        for model in () if self._is_lazy else self.models.values():
            async with self._lock:
                await self._bring(model)
        self._is_started = True

    def find(self, name: str) -> ServedModel:
        """Return a model by its name, or by that of one of its adapters."""
        model = self.models.get(self._adapted.get(name, name))
        if model is None:
            names = ", ".join([*self.models, *self._adapted])
            message = f"there is no model {name[:80]!a}; there are: {names}"
            raise RequestError(404, message, code="model_not_found", parameter="model")
        return model

    def use(self, name: str) -> ModelUse[Backend]:
        """Return a context with a loaded model."""
        return ModelUse(self, name, Backend, "")  # type: ignore[type-abstract]

    def use_as(self, name: str, kind: type[B], otherwise: str) -> ModelUse[B]:
        """Return a context with a loaded model of a kind; `otherwise` is the error for a model of another kind."""
        return ModelUse(self, name, kind, otherwise)

    async def begin_use(self, name: str) -> ServedModel:
        """Return a model once it is loaded; it stays loaded until `end_use`."""
        model = self.find(name)
        if not self._is_started:
            raise RequestError(503, "the models are being loaded", code="loading", retry=2)
        model.users += 1
        try:
            if model.backend is None:
                async with self._lock:
                    await self._bring(model)
        except BaseException:
            model.end_use()
            raise
        return model

    async def _bring(self, model: ServedModel) -> None:
        """Load a model, if necessary; the caller holds the lock."""
        if model.backend is not None:
            return
        if model.nbytes or len(self.loaded) >= self._most:
            self._make_room(model)
        loop = asyncio.get_running_loop()
        backend = await loop.run_in_executor(self._executor, self._loaded, model.source)
        model.backend, model.kind, model.nbytes = backend, backend.kind, backend.nbytes
        model.last_use = time.monotonic()
        if self._memory and model.nbytes > self._memory:
            self._unload(model)
            raise ServeError(
                f"model '{model.source.name}' takes up to {model.nbytes >> 20} MiB (weights and caches), the server "
                f"may have {self._memory >> 20} MiB: raise --memory, or lower --slots or --max-prompt-tokens"
            )
        self._make_room(model)

    def _loaded(self, source: ModelSource) -> Backend:
        backend = self._load(source)
        try:
            backend.warm()
        except BaseException:
            backend.stop()
            raise
        return backend

    def _make_room(self, model: ServedModel) -> None:
        while self._is_full(others := [other for other in self.loaded if other is not model], model):
            idle = [other for other in others if not other.users]
            if not idle:
                if model.backend is not None:
                    self._unload(model)
                names = ", ".join(other.source.name for other in self.loaded)
                message = f"model '{model.source.name}' waits for memory that others use: {names}"
                raise RequestError(503, message, code="no_memory", retry=5)
            self._unload(min(idle, key=lambda other: other.last_use))

    def _is_full(self, others: Sequence[ServedModel], model: ServedModel) -> bool:
        """Return whether a model does not fit beside others."""
        if len(others) >= self._most:
            return True
        return bool(self._memory) and model.nbytes + sum(other.nbytes for other in others) > self._memory

    def _unload(self, model: ServedModel) -> None:
        backend, model.backend = model.backend, None
        if backend is not None:
            backend.stop()
        del backend
        gc.collect()

    def fail_all(self) -> None:
        """End waiting requests with errors."""
        for model in self.loaded:
            if model.backend is not None:
                model.backend.fail_all()

    def stop(self) -> None:
        """Unload all models."""
        self._is_started = False
        for model in self.loaded:
            self._unload(model)
