"""A served embedding model or reranker: texts of concurrent requests share calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from mirlo.extend.runtime import MirloError
from mirlo_llm.generate import EmbeddingModel
from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.batching import Arrays, CallQueue
from mirlo_llm.serve.engine_thread import STOPPING
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.language import INLINE_CHARACTERS
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ServeOptions

Tokens = tuple[list[int], list[int]]
"""The tokens of a text or a pair, and for each the text, 0 or 1, that it belongs to."""
TEXTS, ROWS = "texts", "rows"


class EmbeddingBackend(Backend):
    """A model that returns a vector for each text."""

    kind = "embedding"

    def __init__(
        self, name: str, model: EmbeddingModel, options: ServeOptions, metrics: ServerMetrics, executor: Executor
    ) -> None:
        super().__init__(name, options, metrics, options.workers)
        self.model = model
        self._executor = executor
        self._queue = CallQueue(
            self._run, executor, options.workers, options.batch, options.batch_delay / 1000,
            lambda rows: metrics.rows.observe(rows, name),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights and of the arenas of active calls."""
        memory = self.model.executable.memory
        return memory.weights_bytes + memory.arena_bytes * self.options.workers

    def warm(self) -> None:
        """Compute one short text."""
        self.model.rows_of([([0, 0], [0, 0])])

    async def encode(
        self, texts: Sequence[str | list[int]], query: str | None = None, truncate: bool = False
    ) -> list[Tokens]:
        """Return the tokens of texts, or of pairs of a query and each; a text may be given as its tokens.

        A text that is longer than the model takes is an error; with `truncate` its end is left out.
        """

        def tokens() -> list[Tokens]:
            try:
                return [self._encoded(text, query, truncate) for text in texts]
            except MirloError as error:
                raise RequestError(400, str(error)[:2000], code="context_length_exceeded") from None

        if sum(map(len, texts)) <= INLINE_CHARACTERS:
            return tokens()
        return await asyncio.get_running_loop().run_in_executor(self._executor, tokens)

    async def rows(self, texts: Sequence[Tokens]) -> np.ndarray:
        """Return the model's row for each text."""
        listed = np.empty(len(texts), object)
        listed[:] = texts
        try:
            return (await self._queue.call({TEXTS: listed}, len(texts)))[ROWS]
        except MemoryError as error:
            raise RequestError(507, f"not enough memory for texts of this length: {str(error)[:500]}") from None
        except RequestError:
            raise
        except MirloError as error:
            raise RequestError(400, str(error)[:2000]) from None

    def stop(self) -> None:
        """End the waiting calls."""
        self.fail_all()

    def fail_all(self) -> None:
        """End the waiting calls with an error."""
        self._queue.fail_all(RequestError(503, STOPPING, retry=1))

    def _run(self, inputs: Arrays) -> Arrays:
        return {ROWS: self.model.rows_of(list(inputs[TEXTS]), self.options.batch)}

    def _encoded(self, text: str | list[int], query: str | None, truncate: bool) -> Tokens:
        if isinstance(text, str):
            pair = (text, None) if query is None else (query, text)
            tokens, kinds = self.model.encode(*pair, truncate=truncate)
        else:
            tokens, kinds = text, [0] * len(text)
        most = min(filter(None, (self.options.max_prompt_tokens, self.model.config.longest)))
        if len(tokens) > most:
            message = f"a text has {len(tokens)} tokens, the server takes up to {most}"
            raise RequestError(400, message, code="context_length_exceeded")
        return tokens, kinds
