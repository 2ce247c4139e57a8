"""The number of prompt tokens per step while other sequences wait for their next token."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median

STRETCH = 3.0
"""The largest duration of a step with prompt tokens, relative to a step without."""
MARGIN = 0.8
"""The planned part of that duration, since durations vary."""
FIRST_CHUNK = 16
"""Tokens of a prompt's first chunk, whose duration is unknown."""
LEAST_CHUNK = 4
"""Fewest prompt tokens of a step, so that prompts advance."""
GROWTH = 2
"""Largest growth of a chunk over the last one, since the duration is not proportional."""
BLOCK = 8
"""Rows that matrix products compute together."""
LARGE_CHUNK = 4 * BLOCK
"""Chunks above this size are multiples of `BLOCK`."""
RECENT_STEPS = 9
"""Number of steps without prompts whose median duration is used."""


class PromptPace:
    """Chooses the chunk sizes of prompts so that other sequences get their tokens in time.

    A prompt without other active sequences is computed in chunks of the largest size. Otherwise a chunk takes at most
    `STRETCH - 1` times the duration of a step without prompts, estimated from the last chunk and steps.

    Alone, a prompt is computed in parts that are as large as a step may have. Beside sequences that get a token in each
    step, a part takes at most `STRETCH - 1` times as long as their step, by what the last part and steps took.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)
        """Seconds of the last calls without prompts."""
        self._chunk: tuple[int, float] | None = None
        """Tokens and seconds of the last part of a prompt."""

    def most(self, budget: int, is_shared: bool) -> int:
        """Return the number of prompt tokens, at most `budget`, for the next step.

        `is_shared` is whether other sequences wait for a token.
        """
        if not is_shared:
            return budget
        if not self._steps:  # the next step shows what one without a prompt takes
            return 0
        if self._chunk is None:
            return min(budget, FIRST_CHUNK)
        tokens, seconds = self._chunk
        planned = (STRETCH - 1) * MARGIN * median(self._steps)
        most = GROWTH * max(tokens, BLOCK)
        fitting = most if seconds <= 0 else min(most, int(tokens * planned / seconds))
        if fitting > LARGE_CHUNK:
            fitting -= fitting % BLOCK
        return min(budget, max(fitting, LEAST_CHUNK))

    def note(self, call: Mapping[int, int], seconds: float) -> None:
        """Record the duration of a call with these numbers of tokens by sequence."""
        tokens = sum(count for count in call.values() if count > 1)
        if not tokens:
            self._steps.append(seconds)
            return
        is_joint = any(count == 1 for count in call.values()) and bool(self._steps)
        self._chunk = tokens, max(seconds - median(self._steps), 0.0) if is_joint else seconds
