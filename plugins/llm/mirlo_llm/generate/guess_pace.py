"""The number of tokens to guess per step, by how many guesses were accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

RATE = 0.25
"""Weight of the last guess in the acceptance."""
LEAST_CHANCE = 0.3
"""A token is guessed if all guesses up to it are accepted with this chance: a smaller one costs more than it saves."""
LEAST_ACCEPTANCE = 0.2
"""Lower bound of the acceptance, so that one accepted guess is enough to guess again."""
FIRST_PAUSE, LONGEST_PAUSE = 8, 64
"""Steps without guesses after which one token is guessed again; they double as long as it is wrong."""
SOURCES = LOOKUP, DRAFT = ("lookup", "draft")


class GuessPace:
    """Chooses the number of guesses of a step so that most of them are accepted.

    The acceptance is a moving average over the guesses that were compared with a chosen token. Where so few are
    accepted that one guess does not pay, there are none, but for one token after a pause.
    """

    def __init__(self, acceptance: float = 1.0) -> None:
        """Store the acceptance that is assumed at first."""
        self.acceptance = acceptance
        self._pause, self._wait = FIRST_PAUSE, 0

    @property
    def limit(self) -> float:
        """Return the largest number of guesses that pay; infinity if all are accepted."""
        if self.acceptance >= 1:
            return math.inf
        return float(int(math.log(LEAST_CHANCE) / math.log(self.acceptance)))

    def count(self, most: int) -> int:
        """Return the number of tokens to guess in the next step, up to `most`."""
        if most < 1:
            return 0
        limit = self.limit
        if limit >= 1:
            return int(min(most, limit))
        if self._wait > 0:
            self._wait -= 1
            return 0
        return 1

    def note(self, guessed: int, accepted: int) -> None:
        """Record how many guesses of a step were accepted; those after the first wrong one say nothing."""
        if guessed < 1:
            return
        for i in range(min(accepted + 1, guessed)):
            self.acceptance += RATE * ((i < accepted) - self.acceptance)
        self.acceptance = max(self.acceptance, LEAST_ACCEPTANCE)
        if self.limit >= 1:
            self._pause = FIRST_PAUSE
        else:
            self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)


class GuessPaces:
    """The paces of the guesses of one sequence, by their source."""

    def __init__(self, shared: GuessPaces | None = None, is_one: bool = False) -> None:
        """Begin with the acceptance of other sequences; if it `is_one`, with their pace itself."""
        self._shared = shared
        self._own = {source: GuessPace() for source in SOURCES}
        if shared is not None:
            self._own = {source: pace if is_one else GuessPace(pace.acceptance) for source, pace in shared._own.items()}
        self.source = LOOKUP
        """Where the last guesses come from."""

    def __getitem__(self, source: str) -> GuessPace:
        return self._own[source]

    def note(self, guessed: int, accepted: int) -> None:
        """Record how many of the last guesses were accepted, for this sequence and for all."""
        own = self._own[self.source]
        own.note(guessed, accepted)
        if self._shared is not None and self._shared[self.source] is not own:
            self._shared[self.source].note(guessed, accepted)


class SequencePaces(GuessPaces):
    """The paces of the guesses of a sequence whose next tokens another object chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: tuple[int, list[int]] = 0, []
        """The last guesses, after the number of tokens before them."""

    def compare(self, tokens: Sequence[int]) -> None:
        """Record how many of the last guesses were accepted, by the tokens that were chosen since."""
        start, guesses = self.expected
        pairs = list(zip(guesses, tokens[start:], strict=False))
        self.note(len(pairs), len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
        self.expected = 0, []
