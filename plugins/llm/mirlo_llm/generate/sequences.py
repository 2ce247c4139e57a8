"""The tokens of a batch, and their caches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from mirlo_llm.generate.caches import BatchCaches
from mirlo_llm.generate.decoder import CompiledDecoder, PaddedTokens, pad
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.json_file import is_count

FIRST_CAPACITY = 256
"""Capacity of new caches in rows; they grow on demand."""


class Sequences:
    """The tokens of a batch and their caches.

    `tokens` may be changed freely: `logits` rewinds the caches to the common prefix and runs the model on the remaining
    tokens. The sequences of a batch grow together; prompts of different lengths are padded.
    """

    def __init__(self, decoder: CompiledDecoder, batch: int, chunk: int) -> None:
        self.decoder = decoder
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.steps = 0
        """How many times the model was called."""
        self.reused = 0
        """How many tokens were not computed, as an earlier sequence began with them."""
        self._chunk = chunk
        self._state = decoder.new_state(FIRST_CAPACITY, batch, chunk)
        self._held: list[list[int]] = [[] for _ in range(batch)]
        """The tokens that the caches hold."""
        self._agreed = [0] * batch
        """How many of the first tokens of each sequence are known to be those that the caches hold."""
        self._mask = np.zeros((batch, 0), np.int64)
        """Of a batch: which rows of the caches are tokens."""
        self._rows = np.zeros((0, decoder.vocabulary), np.float32)
        """Logits of the last tokens that the caches hold."""

    @property
    def batch(self) -> int:
        return len(self.tokens)

    def logits(self, guess: Callable[[], Sequence[int]] | None = None) -> np.ndarray:
        """Return the logits of what follows the tokens, [batch, vocabulary].

        `guess` returns tokens that may follow: the model computes with them at once, and if they are appended, the
        logits after them need no call. Batches are not guessed.
        """
        if not all(self.tokens):
            raise GenerationError("there are no tokens yet: append a prompt first")
        if self.batch > 1:
            return self._logits_of_batch()
        (tokens,), (held,) = self.tokens, self._held
        agreed, first = self._agree(0), len(held) - len(self._rows)
        if agreed == len(tokens) and agreed > first:
            return self._rows[agreed - first - 1 : agreed - first]
        # The logits of the last token are needed, so it is computed again if the caches hold it.
        kept = self._forget(min(agreed, len(tokens) - 1))
        if kept < len(tokens) - 1:
            kept = self._reuse(tokens, kept)
        guessed = [] if guess is None else guess()
        pending, last = [*tokens[kept:], *guessed], len(tokens) - kept - 1
        is_prompt = last > 0
        while True:
            count = self.decoder.call_length(pending, self._chunk)
            part, pending = pending[:count], pending[count:]
            wanted = max(1, len(part) - last)
            rows = self._run(part, wanted)
            held.extend(part)
            if is_prompt:
                self._keep(min(len(held), len(tokens)))
            if last < len(part):  # guesses that do not fit are left out
                self._rows = np.array(rows)
                return self._rows[:1]
            last -= len(part)

    def keep(self) -> None:
        """Keep the rows of an ended sequence for reuse; those of a batch are not kept."""
        if self.batch == 1:
            self._keep(self._agree(0))

    def _keep(self, length: int) -> None:
        """Keep the rows of the first tokens of the only sequence."""
        (held,), state = self._held, self._state
        # States are those after the last token.
        states = (lambda: state.states) if state.is_recurrent and length == state.length else None
        if states is not None or not state.is_recurrent:
            self.decoder.prefixes.add(self.decoder.adapter, held[:length], state.rows, states)

    def _reuse(self, tokens: Sequence[int], kept: int) -> int:
        """Take the rows of the first tokens from an earlier sequence, if there are more than `kept`; return how many.

        The last token is computed in any case: its logits are needed.
        """
        decoder, state = self.decoder, self._state
        prefix = decoder.prefixes.find(decoder.adapter, tokens, len(tokens) - 1, state.is_recurrent)
        if prefix is None or prefix.length <= kept:
            return kept
        start = self._forget(kept)
        state.extend(prefix.rows_from(start), prefix.length - start, prefix.states)
        (held,) = self._held
        held.extend(tokens[start : prefix.length])
        self.reused += prefix.length - start
        return prefix.length

    def select(self, chosen: Sequence[int]) -> None:
        """Keep these sequences of the batch, in this order; one may be kept several times."""
        self.tokens = [list(self.tokens[i]) for i in chosen]
        self._held = [list(self._held[i]) for i in chosen]
        self._agreed = [self._agreed[i] for i in chosen]
        self._mask, self._rows = self._mask[list(chosen)], self._rows[list(chosen)]
        self._state.select(chosen)

    def fork(self) -> Sequences:
        """Return a copy that continues separately without computing anything again."""
        clone = copy.copy(self)
        clone.tokens, clone._held = ([list(row) for row in rows] for rows in (self.tokens, self._held))
        clone._agreed = list(self._agreed)
        clone._state = self._state.fork()
        return clone

    def rewind(self, length: int) -> None:
        """Drop all tokens of each sequence but the first `length`."""
        shortest = min(map(len, self.tokens))
        if not is_count(length, 0, shortest):
            raise GenerationError(f"cannot go back to {length!r:.40} tokens: there are {shortest}")
        for i, tokens in enumerate(self.tokens):
            del tokens[length:]
            self._agreed[i] = min(self._agreed[i], length)

    def _agree(self, sequence: int) -> int:
        """Return the length of the common prefix of a sequence and its caches."""
        tokens, held, count = self.tokens[sequence], self._held[sequence], self._agreed[sequence]
        while count < len(tokens) and count < len(held) and tokens[count] == held[count]:
            count += 1
        self._agreed[sequence] = count
        return count

    def _forget(self, length: int) -> int:
        """Truncate the caches to this length, or to a shorter one if the model cannot go back there; return it."""
        (held,) = self._held
        self._rows = self._rows[:0]
        length = min(length, self._state.length)  # an interrupted call may have lost tokens of a window
        if length < self._state.length:  # also what an interrupted call added
            length = self._state.rewind(length)
        del held[length:]
        self._agreed[0] = min(self._agreed[0], length)
        return length

    def _run(self, new: Sequence[int], rows: int) -> np.ndarray:
        """Return the logits of the last `rows` new tokens of the only sequence, [rows, vocabulary]."""
        past, after = self._state.length, self._state.length + len(new)
        positions = np.arange(past, after, dtype=np.int64)[None]
        self.steps += 1
        tokens, mask = np.array([new], np.int64), np.ones((1, after), np.int64)
        step = PaddedTokens(tokens, mask, positions, (len(new),), self._held)
        logits = self.decoder.run(self._state, step, rows)
        result: np.ndarray = logits[0]
        return result

    def _logits_of_batch(self) -> np.ndarray:
        """Run the model on the tokens of all sequences that are not cached."""
        agreed = [self._agree(i) for i in range(self.batch)]
        is_continued = agreed == list(map(len, self._held))
        new = [tokens[count:] for tokens, count in zip(self.tokens, agreed, strict=True)]
        if is_continued and not any(new) and len(self._rows):
            return self._rows
        if is_continued and all(agreed) and len(set(map(len, new))) == 1:
            self._rows = self._continue_batch(new)
        else:
            self._rows = self._start_batch()
        return self._rows

    def _start_batch(self) -> np.ndarray:
        """Recompute all sequences."""
        if self._state.is_recurrent and len(set(map(len, self.tokens))) > 1:
            lengths = ", ".join(str(len(row)) for row in self.tokens)
            raise GenerationError(
                f"prompts of one length are expected, found {lengths} tokens: padding would change the model's "
                "recurrent states; use a generator for each"
            )
        self._state.rewind(0)
        left = self.decoder.pads_left
        if self._starts_apart(left):
            return self._start_each()
        tokens, self._mask = pad(self.tokens, self.decoder.config.pad, left)
        positions = np.maximum(self._mask.cumsum(1) - 1, 0)
        self._held = [[] for _ in self.tokens]
        self.steps += 1
        counts = tuple(map(len, self.tokens))
        logits = self.decoder.run(self._state, PaddedTokens(tokens, self._mask, positions, counts, self._held, left))
        self._held = [list(row) for row in self.tokens]
        rows: np.ndarray = logits[:, -1]
        return rows

    def _starts_apart(self, left: bool) -> bool:
        """Return whether to compute each prompt of a batch separately.

        That is the case if prompts are equal or begin with many cached tokens, or if one call cannot compute all tokens
        because the windows of the caches have too few rows.
        """
        if len({tuple(row) for row in self.tokens}) == 1:
            return True
        longest = max(map(len, self.tokens))
        if left or not self._state.is_in_place:
            return False
        return longest > self._chunk or 2 * sum(map(self._known, self.tokens)) > sum(map(len, self.tokens))

    def _known(self, tokens: Sequence[int]) -> int:
        """Return the number of first tokens of a prompt that are cached."""
        decoder = self.decoder
        prefix = decoder.prefixes.find(decoder.adapter, tokens, len(tokens) - 1, self._state.is_recurrent)
        return 0 if prefix is None else prefix.length

    def _start_each(self) -> np.ndarray:
        """Compute each distinct prompt separately, in chunks."""
        done: dict[tuple[int, ...], tuple[BatchCaches, np.ndarray]] = {}
        for row in self.tokens:
            if tuple(row) not in done:
                single = Sequences(self.decoder, 1, self._chunk)
                single.tokens = [list(row)]
                done[tuple(row)] = single._state, single.logits()
                self.steps, self.reused = self.steps + single.steps, self.reused + single.reused
        states = [done[tuple(row)] for row in self.tokens]
        self._state.join([state for state, _ in states])
        self._held = [list(row) for row in self.tokens]
        lengths = np.array(list(map(len, self.tokens)))
        self._mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        return np.concatenate([logits for _, logits in states])

    def _continue_batch(self, new: list[list[int]]) -> np.ndarray:
        """Append the same number of tokens to each sequence, in chunks."""
        while new[0]:
            counts = {self.decoder.call_length(row, self._chunk) for row in new}
            count = counts.pop() if len(counts) == 1 else len(new[0])  # images of one row may be where others have text
            rows = self._extend_batch([row[:count] for row in new])
            new = [row[count:] for row in new]
        return rows

    def _extend_batch(self, new: list[list[int]]) -> np.ndarray:
        """Append the same number of tokens to each sequence in one call."""
        count = len(new[0])
        first = np.array([len(held) for held in self._held], np.int64)
        if self.decoder.pads_left:
            self._mask = np.concatenate([self._mask, np.ones((self.batch, count), np.int64)], 1)
        else:  # the tokens of a sequence are the first rows of its cache
            self._mask = (np.arange(first.max() + count) < (first + count)[:, None]).astype(np.int64)
        self.steps += 1
        positions = first[:, None] + np.arange(count)
        step = PaddedTokens(np.array(new, np.int64), self._mask, positions, (count,) * self.batch, self._held)
        logits = self.decoder.run(self._state, step)
        for held, row in zip(self._held, new, strict=True):
            held.extend(row)
        rows: np.ndarray = logits[:, -1]
        return rows
