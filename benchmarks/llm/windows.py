"""Rings as caches of sliding windows, compared with caches of all tokens; reused beginnings of prompts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from mirlo import generate
from mirlo.benchmarks.llm.model import MODELS, save

PROMPT, CHUNK, STEPS = 8000, 512, 40
"""Tokens of the prompt and of a part of it; steps that are measured after it."""
REUSED = 2000
"""Tokens of a common beginning."""


def report_windows(folder: Path) -> None:
    """Run a small model, half of whose layers have windows of 512 tokens, and print milliseconds of CPU time."""
    config = replace(MODELS["gemma"], hidden=512, inner=1024, layers=4, window=512, positions=16384)
    folder.mkdir(parents=True, exist_ok=True)
    save(config, folder)
    prompt = [int(token) for token in np.random.default_rng(0).integers(2, 300, PROMPT)]
    models = {rings: generate.load(folder, ring_caches=rings, prefix_bytes=0) for rings in (True, False)}
    generators = {rings: model.generator(min_length=1 << 30, max_length=0) for rings, model in models.items()}
    prompts: dict[bool, float] = {}
    for rings, generator in generators.items():
        generator.append(prompt)
        prompts[rings] = _milliseconds(generator.next)
    steps: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(STEPS):
        for rings, generator in generators.items():
            steps[rings].append(_milliseconds(generator.next))
    print(f"{'windows':>12} {f'prompt {PROMPT}':>12} {'step':>8} {'median':>8} {'caches MiB':>11}")
    for rings, generator in generators.items():
        arrays = generator._sequences._state._caches.arrays  # type: ignore[union-attr]
        size = sum(array.nbytes for array in arrays.values()) / (1 << 20)
        columns = f"{min(steps[rings]):8.1f} {statistics.median(steps[rings]):8.1f} {size:11.0f}"
        print(f"{'rings' if rings else 'all tokens':>12} {prompts[rings]:12.0f} {columns}", flush=True)
    _report_reuse(folder, prompt[:REUSED])


def _report_reuse(folder: Path, begin: list[int]) -> None:
    """Print the time of a prompt that begins like others, the first one of which computes the beginning."""
    model = generate.load(folder)
    for last in range(2, 5):
        generator = model.generator(min_length=1 << 30, max_length=0)
        generator.append([*begin, last])
        spent = _milliseconds(generator.next)
        print(f"prompt of {len(begin) + 1} tokens, {generator.timing.reused_tokens} reused: {spent:.0f}", flush=True)


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return 1000 * (time.thread_time() - start)
