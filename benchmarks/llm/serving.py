"""Continuous batching: requests that run together in an engine, compared with one after the other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from mirlo import generate

REQUESTS, NEW_TOKENS, PREFIX = 16, 32, 96
SLOTS = (1, 4, 8)
VOCABULARY = 320
"""Tokens that all models of the benchmark have."""


def report_serving(folder: Path, threads: int, activations: str | None) -> None:
    """Run the same requests with different numbers of slots, and print what all of them get a second."""
    model = generate.load(folder, threads=threads, activations=activations)
    random = np.random.default_rng(0)
    tokens = random.integers(2, VOCABULARY, (REQUESTS, 128))
    lengths = random.integers(16, 128, REQUESTS)
    apart = [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)]
    begin = tokens[0, :PREFIX].tolist()
    alike = [[*begin, *row[:16].tolist()] for row in tokens]
    print(f"{'prompts':>24} {'slots':>6} {'tokens/s':>9} {'ratio':>6} {'computed':>9} {'reused':>7}")
    for name, prompts in (("16 to 127 tokens", apart), (f"{PREFIX} common of {PREFIX + 16}", alike)):
        first = 0.0
        for slots in SLOTS:
            rate, counts = _serve(model, slots, prompts, threads)
            first = first or rate
            columns = f"{rate / first:6.2f} {counts.prompt_tokens:9} {counts.reused_tokens:7}"
            print(f"{name:>24} {slots:6} {rate:9.1f} {columns}", flush=True)


def _serve(model: Any, slots: int, prompts: list[list[int]], threads: int) -> tuple[float, Any]:
    """Return the tokens of answers in a second, prompts included, and the counts of the engine."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    model.prefixes.clear()  # of the runs before
    engine = model.engine(slots, min_length=1 << 30, max_length=0, max_new_tokens=NEW_TOKENS)
    for prompt in prompts:
        engine.add(prompt)
    start = clock()
    for _ in engine.run():
        pass
    return engine.counts.tokens / (clock() - start), engine.counts
