"""A served model of speech: each transcript is computed by itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor

import numpy as np

from mirlo.extend.runtime import MirloError
from mirlo_llm.generate import SpeechModel, Transcript
from mirlo_llm.generate.speech.audio import Sound
from mirlo_llm.generate.speech.model import Segment
from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.engine_thread import STOPPING
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ServeOptions


class Gone(MirloError):
    """Raised when a transcript is no longer needed."""


class SpeechBackend(Backend):
    """A speech model; transcripts are computed separately."""

    kind = "speech"

    def __init__(
        self, name: str, model: SpeechModel, options: ServeOptions, metrics: ServerMetrics, executor: Executor
    ) -> None:
        super().__init__(name, options, metrics, options.workers)
        self.model = model
        self._executor = executor
        self._free = asyncio.Semaphore(options.workers)
        self._is_stopping = False

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights, and of the arenas and states of active calls."""
        return self.model.nbytes(self.options.workers)

    def warm(self) -> None:
        """Transcribe a moment of silence."""
        self.model.transcribe(np.zeros(self.model.config.spectrum.rate // 10, np.float32), language=self._any_language)

    async def transcribe(
        self, sound: Sound, language: str | None, task: str, words: bool, leaves: threading.Event
    ) -> Transcript:
        """Return the transcript, with word timestamps if requested; `leaves` is set when the client disconnects."""

        def check(segment: Segment) -> None:
            if leaves.is_set() or self._is_stopping:
                raise Gone

        def run() -> Transcript:
            return self.model.transcribe(sound, language=language, task=task, words=words, on_segment=check)

        async with self._free:
            if self._is_stopping:
                raise RequestError(503, STOPPING, retry=1)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._executor, run)
            except Gone:
                raise RequestError(503, STOPPING, retry=1) from None
            except MirloError as error:
                raise RequestError(400, str(error)[:2000]) from None

    def stop(self) -> None:
        """End active calls."""
        self.fail_all()

    def fail_all(self) -> None:
        """End waiting and active calls with an error."""
        self._is_stopping = True

    @property
    def _any_language(self) -> str | None:
        return next(iter(self.model.languages), None)
