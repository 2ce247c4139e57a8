"""Rings as caches of sliding windows, compared with caches of all tokens; reused beginnings of prompts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
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
    _compare(folder, prompt)
    _report_reuse(folder, prompt[:REUSED])
    if find_spec("transformers") is not None:
        for name in ("gemma3_text", "olmo3"):  # by hand, and by the code of transformers
            _save_weights(name, folder / name)
            print(f"\n{name}, of weights:")
            _compare(folder / name, prompt)


def _save_weights(name: str, folder: Path) -> None:
    """Write the weights of a small model, three of four of whose layers have windows of 512 tokens."""
    from mirlo.benchmarks.llm.architectures import tiny_model

    model = tiny_model(
        name, vocab_size=4096, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=16384, sliding_window=512, eos_token_id=None,
        layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 2,
    )  # fmt: skip
    model.save_pretrained(folder)


def _compare(folder: Path, prompt: list[int]) -> None:
    """Print the times of a prompt and of steps, and the sizes of caches, with rings and with caches of all tokens."""
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
