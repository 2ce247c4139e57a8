"""Generation: a loop over calls of the model and choices of the next token."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo_llm.generate.beams import search_beams
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.draft import DraftModel
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.guess_pace import DRAFT, LOOKUP, SequencePaces
from mirlo_llm.generate.guidance import Grammar, Guide
from mirlo_llm.generate.json_file import is_count
from mirlo_llm.generate.lookup import guess
from mirlo_llm.generate.prompt import UNLIMITED, Prompt, encode_prompt, require_length, require_texts, room_for
from mirlo_llm.generate.sampler import Sampler
from mirlo_llm.generate.search import SearchOptions, with_options
from mirlo_llm.generate.sequences import Sequences
from mirlo_llm.generate.text import AnswerText, TokenTexts

MAX_BATCH = 4096
"""Sequences of a generator; each has caches for its tokens from the first one on."""


@dataclass
class Timing:
    """Counters and durations of a generator."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    """Seconds from the prompt to the first token."""
    tokens: int = 0
    """Number of generated tokens, without the first one after each prompt."""
    seconds: float = 0.0
    """Seconds for these tokens."""
    steps: int = 0
    """Calls of the model for these tokens; fewer than tokens if guesses were right."""
    reused_tokens: int = 0
    """Prompt tokens that were not computed, since their rows were cached."""

    @property
    def rate(self) -> float:
        """Return the generated tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def prompt_rate(self) -> float:
        """Return the tokens of prompts per second."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    def __str__(self) -> str:
        reused = f", {self.reused_tokens} of them reused," if self.reused_tokens else ""
        prompt = f"prompt: {self.prompt_tokens} tokens{reused}"
        first = f"{prompt} in {self.prompt_seconds:.3f} s ({self.prompt_rate:.1f} tokens/s)"
        return f"{first}, then {self.tokens} tokens in {self.seconds:.3f} s ({self.rate:.1f} tokens/s)"


class Generator:
    """Token sequences that a model continues.

    `append` adds a prompt, or the next message of a conversation; the caches of earlier tokens are kept. `next` returns
    the next token, `stream` yields text as soon as it is complete, `rewind` drops tokens from the end. Use a generator
    in one thread only.

    `append` adds a prompt, or the next message of a conversation: the caches of what came before are kept. `next`
    returns the next token, `stream` yields text as it comes, `rewind` goes back. One generator serves one thread.
    """

    def __init__(
        self,
        decoder: CompiledDecoder,
        options: SearchOptions,
        texts: TokenTexts | None = None,
        batch: int = 1,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        draft: CompiledDecoder | None = None,
    ) -> None:
        if not is_count(batch, 1, MAX_BATCH):
            raise GenerationError(f"batch: expected 1 to {MAX_BATCH} sequences, found {batch!r:.40}")
        if stop and (batch > 1 or options.num_beams > 1):
            raise GenerationError("stop: strings that end a sequence need batch=1, and no beams")
        if options.num_beams > 1 and batch > 1:
            raise GenerationError("num_beams: a search with beams needs batch=1")
        self.options = options
        self.timing = Timing()
        self._decoder, self._texts = decoder, texts
        self._sequences = Sequences(decoder, batch, options.chunk_size)
        self._grammar = grammar
        self._draft = None if draft is None or batch > 1 else DraftModel(draft, options.chunk_size)
        self._paces = SequencePaces()
        self._samplers = self._new_samplers(batch)
        self._stop = tuple(stop)
        self._prompt = [0] * batch
        """Tokens of each sequence that were given."""
        self._ended = [False] * batch
        self._is_first = True
        """Whether the next token is the first one after a prompt."""

    @property
    def tokens(self) -> list[int] | list[list[int]]:
        """Return the tokens of the prompt and of the answer: a list, or one per sequence of a batch."""
        copies = [list(row) for row in self._sequences.tokens]
        return copies[0] if len(copies) == 1 else copies

    @property
    def text(self) -> str:
        """Return the text that was generated since the last prompt."""
        (row,) = self._one("text")
        return self._texts_of().decode(row[self._prompt[0] :])

    @property
    def is_done(self) -> bool:
        """Return whether no token follows: all sequences have ended, or one has reached its maximum length."""
        return all(self._ended) or self._room() <= 0

    def append(self, *prompts: Prompt) -> None:
        """Append text or tokens: one prompt for each sequence of the batch."""
        rows = self._sequences.tokens
        if len(prompts) != len(rows):
            raise GenerationError(f"expected {len(rows)} prompts, one for each sequence, found {len(prompts)}")
        encoded = [self._encoded(prompt, not row) for prompt, row in zip(prompts, rows, strict=True)]
        for row, new in zip(rows, encoded, strict=True):
            if not row and not new:
                raise GenerationError("a prompt has no tokens")
        longest = max(len(row) + len(new) for row, new in zip(rows, encoded, strict=True))
        require_length(self.options, self._decoder.config, longest)
        for row, new in zip(rows, encoded, strict=True):
            row.extend(new)
        self._prompt = list(map(len, rows))
        self._ended = [False] * len(rows)
        self._is_first = True
        self.timing.prompt_tokens += sum(map(len, encoded))

    def next(self) -> int | list[int]:
        """Return the next token, or a list of one for each sequence; those that have ended get the padding token."""
        if self.options.num_beams > 1:
            raise GenerationError("num_beams: the tokens of a search with beams are known at its end: use generate")
        start, steps, reused = time.perf_counter(), self._sequences.steps, self._sequences.reused
        rows = self._sequences.tokens
        if self.is_done:
            raise GenerationError("the sequence has ended: append to it, or rewind it")
        logits = self._sequences.logits(self._guess if self.options.lookup or self._draft is not None else None)
        chosen = [
            self._decoder.config.pad if ended else sampler.choose(values, row, prompt)
            for sampler, values, row, prompt, ended in zip(
                self._samplers, logits, rows, self._prompt, self._ended, strict=True
            )
        ]
        for i, (row, token) in enumerate(zip(rows, chosen, strict=True)):
            row.append(token)
            self._ended[i] = self._ended[i] or token in self._decoder.config.ends
        if self.is_done:
            self._sequences.keep()
        self.timing.reused_tokens += self._sequences.reused - reused
        self._count(time.perf_counter() - start, self._sequences.steps - steps)
        return chosen[0] if len(chosen) == 1 else chosen

    def generate(self, *prompts: Prompt) -> list[int] | list[list[int]]:
        """Append prompts and return the tokens that follow until the end: a list, or one for each sequence."""
        if prompts:
            self.append(*prompts)
        if self.options.num_beams > 1:
            self._search_beams()
        if self._stop:
            for _ in self.stream():
                pass
        while not self.is_done:
            self.next()
        rows, ends = self._sequences.tokens, self._decoder.config.ends
        answers = [_until_end(row[prompt:], ends) for row, prompt in zip(rows, self._prompt, strict=True)]
        return answers[0] if len(answers) == 1 else answers

    def stream(self, *prompts: Prompt) -> Iterator[str]:
        """Append prompts and yield the text that follows, as soon as its characters are complete.

        A beam search yields its text at the end.
        """
        if prompts:
            self.append(*prompts)
        (row,) = self._one("stream")
        if self.options.num_beams > 1:
            self.generate()
            yield self.text
            return
        text = AnswerText(self._texts_of(), row, self._stop)
        while not self.is_done:
            token = self.next()
            assert isinstance(token, int)  # there is one sequence
            if token in self._decoder.config.ends:
                break
            yield from filter(None, [text.add(token)])
            if text.is_stopped:
                self._ended[0] = True
                self._sequences.keep()
                return
        yield from filter(None, [text.finish()])

    def fork(self, **search: object) -> Generator:
        """Return a copy that continues separately, without recomputing anything.

        `search` are changes to the search options, such as another seed.
        """
        clone = copy.copy(self)
        clone.options = with_options(self.options, search)
        clone.timing = Timing()
        clone._sequences = self._sequences.fork()
        clone._draft = None if self._draft is None else self._draft.fork()
        clone._paces = copy.deepcopy(self._paces)
        clone._samplers = clone._new_samplers(clone._sequences.batch)
        clone._prompt, clone._ended = list(self._prompt), list(self._ended)
        return clone

    def rewind(self, length: int) -> None:
        """Forget all tokens but the first `length` of each sequence."""
        self._sequences.rewind(length)
        self._prompt = [min(count, length) for count in self._prompt]
        self._ended = [False] * len(self._ended)
        self._is_first = True

    def logits(self) -> np.ndarray:
        """Return the logits of the next token: f32[vocabulary], or [batch, vocabulary]."""
        logits = self._sequences.logits()
        copied: np.ndarray = np.array(logits[0] if len(logits) == 1 else logits)
        return copied

    def _new_samplers(self, batch: int) -> list[Sampler]:
        """Return a sampler for each sequence."""
        guides = [None if self._grammar is None else Guide(self._grammar) for _ in range(batch)]
        ends = self._decoder.config.ends
        return [Sampler(self.options, ends, i, guide) for i, guide in enumerate(guides)]

    def _search_beams(self) -> None:
        """Replace the only sequence by the best continuation, and end it."""
        start, (row,) = time.perf_counter(), self._sequences.tokens
        room = self._room()
        if room >= UNLIMITED:
            raise GenerationError("num_beams: give max_new_tokens or max_length: the context of the model is not known")
        if not self.is_done:
            beams = Sequences(self._decoder, self.options.num_beams, self.options.chunk_size)
            most, (penalties,) = len(row) + room, self._new_samplers(1)
            sequences = search_beams(beams, row, self.options, penalties, self._decoder.config.ends, most)
            row.extend(sequences[len(row) :])
            self.timing.reused_tokens += beams.reused
            self._count(time.perf_counter() - start, beams.steps)
        self._ended = [True]

    def _guess(self) -> list[int]:
        tokens, room, paces = self._sequences.tokens[0], self._room() - 1, self._paces
        paces.compare(tokens)
        result = guess(tokens, min(self.options.lookup, room))
        result = result[: paces[LOOKUP].count(len(result))]
        paces.source = LOOKUP if result else DRAFT
        if not result and self._draft is not None:
            result = self._draft.guess(tokens, paces[DRAFT].count(min(self.options.draft_tokens, room)))
        paces.expected = len(tokens), result
        return result

    def _room(self) -> int:
        """Return the number of tokens that the longest sequence may still get."""
        rows = self._sequences.tokens
        generated = max(len(row) - prompt for row, prompt in zip(rows, self._prompt, strict=True))
        return room_for(self.options, self._decoder.config, max(map(len, rows)), generated)

    def _count(self, seconds: float, steps: int) -> None:
        if self._is_first:
            self.timing.prompt_seconds += seconds
        else:
            self.timing.tokens += len(self._ended)
            self.timing.seconds += seconds
            self.timing.steps += steps
        self._is_first = False

    def _encoded(self, prompt: Prompt, is_start: bool) -> list[int]:
        return encode_prompt(self._texts, self._decoder, prompt, is_start)

    def _texts_of(self) -> TokenTexts:
        return require_texts(self._texts)

    def _one(self, what: str) -> list[list[int]]:
        rows = self._sequences.tokens
        if len(rows) != 1:
            raise GenerationError(f"{what}: there are {len(rows)} sequences: use next or generate, which return tokens")
        return rows


def _until_end(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens up to the first end, including it."""
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in ends), tokens)
