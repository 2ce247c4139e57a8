"""Where steps of a served engine are computed: brief ones in the event loop, others in the thread of the engine."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from mirlo_llm.serve.engine_thread import INLINE_TOKENS, AnswerJob, EngineThread

STEPS, SECONDS = 6, 0.001


class TimedEngine:
    """An engine whose requests need this many steps."""

    def __init__(self) -> None:
        self.threads = list[bool]()
        """Whether each step was computed in the main thread, which has the event loop."""
        self.requests: list[SimpleNamespace] = []
        self.has_forms = False

    def add(self, prompt: int) -> Any:
        request = SimpleNamespace(
            prompt=[0] * prompt, sequence=[0] * prompt, reason=None, error=None, logprobs=[], take=lambda: "x"
        )  # fmt: skip
        self.requests.append(request)
        return request

    @property
    def is_idle(self) -> bool:
        return all(request.reason for request in self.requests)

    def step(self) -> None:
        self.threads.append(threading.current_thread() is threading.main_thread())
        time.sleep(SECONDS)
        for request in self.requests:
            request.sequence.append(0)
            if len(request.sequence) - len(request.prompt) == STEPS:
                request.reason = "length"


@pytest.mark.parametrize(
    ("most", "prompt", "has_forms", "is_inline"),
    [
        (10.0, 3, False, True),
        (SECONDS, 3, False, False),
        (10.0, INLINE_TOKENS + 1, False, False),
        (10.0, 3, True, False),
    ],
)
def test_brief_steps_are_computed_in_the_event_loop(most: float, prompt: int, has_forms: bool, is_inline: bool) -> None:
    engine = TimedEngine()
    engine.has_forms = has_forms
    thread = EngineThread(engine, "test", lambda: None, most)  # type: ignore[arg-type]

    async def answer(length: int) -> int:
        job = AnswerJob([engine.add(length)], True)
        thread.submit(job)
        count, reason = 0, None
        while reason is None:  # a job is done for the engine before its last delivery has come
            deliveries = await job.deliveries()
            count, reason = count + len(deliveries), deliveries[-1].reason
        return count

    async def answer_all() -> None:
        assert await answer(1) == STEPS  # the first steps say how long they take
        while thread._driving.locked():  # the last step was posted before the thread left the engine
            await asyncio.sleep(0.001)
        engine.threads.clear()
        counts = await asyncio.gather(answer(prompt), answer(prompt))
        assert max(counts) <= STEPS

    try:
        asyncio.run(asyncio.wait_for(answer_all(), 20))
    finally:
        thread.stop()
    assert engine.threads == [is_inline] * STEPS
