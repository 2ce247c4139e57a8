"""The thread that steps an engine, and jobs that deliver results to an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from mirlo.extend.runtime import MirloError
from mirlo_llm.generate import Request, ServingEngine
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.logprobs import TokenLogprob

STOPPING = "the server is stopping"
INLINE_SECONDS = 0.001
"""Steps below this duration run in the event loop, which they block."""
INLINE_TOKENS = 64
"""Most prompt tokens of a step in the event loop, since longer steps would delay other requests."""
MAX_FAILURES = 2
"""Number of consecutive failed steps after which requests get the error; the first may be out of memory."""


Post = Callable[["AnswerJob", Callable[[], None]], None]
"""Calls a function in the event loop of a job."""


@dataclass(frozen=True)
class Delivery:
    """The results of a request since the last delivery."""

    choice: int
    text: str
    logprobs: Sequence[TokenLogprob]
    reason: str | None


class AnswerJob:
    """The requests of one API call, whose results are delivered to an event loop."""

    def __init__(self, requests: Sequence[Request], is_streamed: bool) -> None:
        self.requests, self.is_streamed = tuple(requests), is_streamed
        self.failure: Exception | None = None
        """The error of one of the requests; it ends the others."""
        self.is_gone = False
        """Whether the client has gone."""
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        self._deliveries: list[Delivery] = []
        self._open = set(range(len(self.requests)))
        self._lengths = [0] * len(self.requests)
        self._logprobs = [0] * len(self.requests)

    async def deliveries(self) -> list[Delivery]:
        """Wait for results, and return them; nothing if the client has disconnected."""
        await self._came.wait()
        self._came.clear()
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def leave(self) -> None:
        """End the requests of a disconnected client; called in the event loop."""
        self.is_gone = True
        self.cancel()
        self._came.set()

    def cancel(self) -> None:
        """End the requests."""
        for request in self.requests:
            request.cancel()

    def receive(self, deliveries: Sequence[Delivery], failure: Exception | None) -> None:
        """Receive results; called in the event loop."""
        self._deliveries += deliveries
        self.failure = self.failure or failure
        self._came.set()

    # What follows is called in the thread of the engine.

    def collect(self) -> list[Delivery]:
        """Return new results: those of streamed requests at once, others when they are done."""
        result = []
        for choice in list(self._open):
            request = self.requests[choice]
            reason = request.reason
            count = len(request.sequence)
            if reason is None and (not self.is_streamed or count == self._lengths[choice]):
                continue
            self._lengths[choice] = count
            if request.error is not None:
                self.failure = request.error
                self.cancel()
            if reason is not None:
                self._open.discard(choice)
            logprobs = request.logprobs[self._logprobs[choice] :]
            self._logprobs[choice] += len(logprobs)
            result.append(Delivery(choice, request.take(), logprobs, reason))
        return result

    @property
    def is_done(self) -> bool:
        """Return whether all results were collected."""
        return not self._open

    def post(self, send: Callable[[], None]) -> None:
        """Call a function in the event loop, if it is still running."""
        try:
            self._loop.call_soon_threadsafe(send)
        except RuntimeError:  # the loop is closed
            self.cancel()


class EngineThread:
    """Steps an engine while there is something to compute.

    Short steps run in the event loop, which is faster than passing their results from a thread. The thread or the loop
    that runs a step holds `_driving`.
    """

    def __init__(
        self,
        engine: ServingEngine,
        name: str,
        on_failure: Callable[[], None],
        inline_seconds: float = INLINE_SECONDS,
        explain: Callable[[MirloError], MirloError] = lambda error: error,
    ) -> None:
        """Store the engine; steps that take less than `inline_seconds` run in the event loop.

        `explain` converts the error of a failed step to the error that requests get.
        """
        self.engine, self._inline_seconds, self._explain = engine, inline_seconds, explain
        self._on_failure, self._failures = on_failure, 0
        self._new: deque[AnswerJob] = deque()
        self._jobs: dict[AnswerJob, None] = {}
        self._wake: SimpleQueue[None] = SimpleQueue()
        """Has an element when there may be something to do; of the ways to wake a thread the one that costs least."""
        self._is_ending = False
        self._driving = threading.Lock()
        self._seconds = float("inf")
        """What the last steps took; a step that takes much longer than the one before is taken to be interrupted."""
        self._has_long = False
        """Whether a prompt waits that the event loop does not compute."""
        self._is_scheduled = False
        """Whether the event loop is about to compute a step."""
        self._thread = threading.Thread(target=self._run, name=f"engine of {name}", daemon=True)
        self._thread.start()

    def submit(self, job: AnswerJob) -> None:
        """Register a job whose requests the engine already has; called in the event loop."""
        self._new.append(job)
        if sum(len(request.prompt) for request in job.requests) > INLINE_TOKENS:
            self._has_long = True
        self._continue()

    def wake(self) -> None:
        """Wake the thread after requests were cancelled."""
        self._wake.put(None)

    def fail_all(self, error: MirloError) -> None:
        """End all requests with an error; thread-safe."""
        for job in [*self._new, *self._jobs]:
            _fail(job, error)
        self._wake.put(None)

    def stop(self, seconds: float | None = 10.0) -> None:
        """End the thread."""
        self._is_ending = True
        self._wake.put(None)
        self._thread.join(seconds)

    def _continue(self) -> None:
        """Run the next step in the event loop if it is short and no other step is in flight."""
        if self._is_scheduled:
            return
        if self._has_long or self._seconds >= self._inline_seconds or self._driving.locked():
            self._wake.put(None)
            return
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._step_inline)

    def _step_inline(self) -> None:
        """Run a step in the event loop, which handles pending events before the next step."""
        self._is_scheduled = False
        if self._has_long or self.engine.has_forms or not self._driving.acquire(blocking=False):
            self._wake.put(None)
            return
        try:
            is_idle = self._is_ending or self._step(lambda job, send: send())
        finally:
            self._driving.release()
        if not is_idle:
            self._continue()

    def _run(self) -> None:
        while not self._is_ending:
            self._wake.get()
            with self._driving:
                is_idle = False
                while not (self._is_ending or is_idle):
                    while not (self._is_ending or self._step(AnswerJob.post)):
                        pass
                    self._has_long = False  # a job that set it since is in `_new`
                    is_idle = not self._new

    def _step(self, post: Post) -> bool:
        """Run a step and deliver the results; return whether there is nothing more to compute."""
        self._take_new()
        if not self.engine.is_idle:
            start = time.perf_counter()
            try:
                self.engine.step()
                self._failures = 0
                self._seconds = min(time.perf_counter() - start, 2 * self._seconds)
            except Exception as error:
                self._on_failure()
                self._failures += 1
                if self._failures >= MAX_FAILURES:
                    self._failures = 0
                    self._fail_active(error)
        self._deliver(post)
        return self.engine.is_idle and not self._new

    def _take_new(self) -> None:
        while self._new:
            self._jobs[self._new.popleft()] = None

    def _fail_active(self, error: Exception) -> None:
        self._take_new()
        known = error if isinstance(error, MirloError) else GenerationError(f"{type(error).__name__}: {error}")
        known = self._explain(known)
        for request in self.engine.waiting:  # an error takes the slots from all
            if not request.is_done:
                request.fail(known)

    def _deliver(self, post: Post) -> None:
        """Deliver new results by one call to each event loop."""
        self._take_new()
        ready: list[tuple[AnswerJob, list[Delivery], Exception | None]] = []
        for job in list(self._jobs):
            deliveries = job.collect()
            if job.is_done:
                self._jobs.pop(job)
            if deliveries:
                ready.append((job, deliveries, job.failure))
        if not ready:
            return

        def send() -> None:
            for job, deliveries, failure in ready:
                job.receive(deliveries, failure)

        post(ready[0][0], send)


def _fail(job: AnswerJob, error: MirloError) -> None:
    for request in job.requests:
        if not request.is_done:
            request.fail(error)
