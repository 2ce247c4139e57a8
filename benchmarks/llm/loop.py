"""The cost of generation around the model: choosing tokens, making inputs, checking arrays, bookkeeping.

The time of a step of a generator without the time in the model's machine code, which does not depend on how large the
model's products are: so a model with small ones is measured, with as many layers and tokens as a real one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mirlo import generate
from mirlo.benchmarks.llm.model import LLAMA, save

STEPS, ROUNDS, PROMPT = 50, 6, 500
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "top_k=40 top_p=0.9": {"do_sample": True, "top_k": 40, "top_p": 0.9, "temperature": 0.8, "seed": 1},
    "top_p=0.9": {"do_sample": True, "top_p": 0.9, "seed": 1},
    "repetition_penalty=1.1": {"repetition_penalty": 1.1},
}


def report_loop(folder: Path) -> None:
    """Measure each search and print the table: milliseconds of CPU time a token, the least of some rounds."""
    config = replace(LLAMA, hidden=128, inner=352, heads=4, kv_heads=2, size=32, positions=2048)
    folder.mkdir(parents=True, exist_ok=True)
    save(config, folder)
    model = generate.load(folder)
    spent = _time_calls(model.executable)
    print(f"{'search':>24} {'loop ms':>8}")
    for name, search in SEARCHES.items():
        generator = model.generator(min_length=1 << 30, max_length=0, **search)
        generator.append(range(2, 2 + PROMPT))
        generator.next()
        rounds = []
        for _ in range(ROUNDS):
            spent[0], start = 0.0, time.thread_time()
            for _ in range(STEPS):
                generator.next()
            rounds.append((time.thread_time() - start - spent[0]) / STEPS)
        print(f"{name:>24} {1000 * min(rounds):8.3f}", flush=True)


def _time_calls(executable: Any) -> list[float]:
    """Make an executable measure its machine code; return the list of the seconds."""
    spent, entry = [0.0], executable._code.entry

    def timed(*arguments: Any) -> None:
        start = time.thread_time()
        entry(*arguments)
        spent[0] += time.thread_time() - start

    executable._code = replace(executable._code, entry=timed)
    return spent
