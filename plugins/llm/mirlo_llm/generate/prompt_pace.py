"""How many tokens of prompts a step computes while other sequences wait for their next token."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median

STRETCH = 3.0
"""The most that a part of a prompt may stretch a step: times the duration of a step without one."""
MARGIN = 0.8
"""The part of that time which is planned: calls vary."""
FIRST_CHUNK = 16
"""Tokens of the first part of a prompt whose duration is unknown."""
LEAST_CHUNK = 4
"""Tokens that a step computes of prompts in any case, so that they advance."""
GROWTH = 2
"""Times as many tokens as the last part had: what a call takes is no multiple of its tokens."""
BLOCK = 8
"""Rows that products compute together."""
LARGE_CHUNK = 4 * BLOCK
"""Tokens above which parts are multiples of `BLOCK`; smaller ones would not grow by less than a factor."""
RECENT_STEPS = 9
"""Steps without prompts whose median is what such a step takes."""


class PromptPace:
    """Chooses the parts of prompts so that other sequences get their tokens in time.

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
        """Return how many tokens of prompts a step may compute, of at most `budget`.

        `is_shared` says whether other sequences wait for a token.
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
        """Record what a call took that computed so many tokens of each sequence."""
        tokens = sum(count for count in call.values() if count > 1)
        if not tokens:
            self._steps.append(seconds)
            return
        is_joint = any(count == 1 for count in call.values()) and bool(self._steps)
        self._chunk = tokens, max(seconds - median(self._steps), 0.0) if is_joint else seconds
