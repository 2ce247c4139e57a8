"""A token's time on one rank and on two, beside what bandwidth, latency and the plan predict.

    python -m benchmarks.ranks [--ranks 2] [--tokens 48]

The model is that of examples/tiny_language_model.py in larger sizes, in f32. Each rank measures how fast it reads its
weights while the others read theirs, in turns with tokens, and what an exchange takes; the plan says how many bytes and
exchanges there are. All times are the least ones: other work on the machine adds to the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mirlo_ranks.collectives.program import RankExchange
from mirlo_ranks.collectives.shared_memory import SharedMemoryGroup, join_group
from mirlo_ranks.shard.plan import ShardingRecord

from benchmarks.llm.reading import reader
from benchmarks.serve import write_model
from mirlo import generate
from mirlo.dialects.bindings import ir
from mirlo.driver.models import open_model
from mirlo.extend.ranks import rank_place
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime.executable import Executable

SIZES = {"layers": 6, "hidden": 1024, "inner": 2816, "heads": 16, "kv_heads": 4, "size": 64}
SMALL, LARGE = 16, 1 << 20
"""Bytes of the operands that latency and bandwidth of exchanges are measured with."""
PROMPT = [5, 6, 7, 8]


def plan_of(model: Path, ranks: int) -> ShardingRecord:
    """Return how the model is divided, without compiling it."""
    opened = open_model(str(model), None, None, False, False)
    with opened.module.context, ir.Location.unknown():
        Pipeline(f"shard{{ranks={ranks} rank=0}}").run(opened.module, opened.session)
    record = opened.session.notes[-1]
    assert isinstance(record, ShardingRecord)
    return record


def least_seconds(call: Callable[[], object], repeat: int) -> float:
    """Return the least time of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def exchange_seconds(group: SharedMemoryGroup, ranks: int, nbytes: int, repeat: int) -> float:
    """Return the least time of a sum over the ranks."""
    exchange = RankExchange("all_reduce", "x", "y", ranks, (), "f32")
    x, out = np.ones(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)
    return least_seconds(lambda: group.exchange(0, exchange, x, out), repeat)


def take_turns(model: generate.LanguageModel, read: Callable[[], object], tokens: int) -> tuple[float, float]:
    """Return the least times of a token, and of reading the weights, in turns."""
    generator = model.generator(max_new_tokens=tokens + 1, do_sample=False, min_length=10**6)
    generator.append(PROMPT)
    generator.next()
    times = [(least_seconds(generator.next, 1), least_seconds(read, 1)) for _ in range(tokens)]
    return min(token for token, _ in times), min(reading for _, reading in times)


def run_rank(folder: str, ranks: int, tokens: int) -> None:
    """Measure as one rank, and print what was measured as JSON."""
    model = generate.load(folder, ranks=ranks)
    executable: Executable = model.executable
    weights = [executable.weight(spec.name) for spec in executable.artifact.params]
    weights = [array for array in weights if array.nbytes >= 1 << 16]
    read, nbytes = reader(weights), sum(array.nbytes for array in weights)
    place = rank_place()
    latency, link = 0.0, 1.0
    if ranks > 1 and place is not None:
        group = join_group(place, "0" * 64)
        latency = exchange_seconds(group, ranks, SMALL, 500)
        link = LARGE * (ranks - 1) / (exchange_seconds(group, ranks, LARGE, 50) - latency)
    token, reading = take_turns(model, read, tokens)
    print(json.dumps({"bytes": nbytes, "memory": nbytes / reading, "latency": latency, "link": link, "token": token}))


def measure(folder: Path, ranks: int, tokens: int) -> list[dict[str, float]]:
    """Return what each rank measures, all at once."""
    command = [sys.executable, "-m", "benchmarks.ranks", "--of-rank", str(folder)]
    command += ["--ranks", str(ranks), "--tokens", str(tokens)]
    started = []
    for rank in range(ranks):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a rank failed")
    return [json.loads(output) for output in outputs]


def report(folder: Path, ranks: int, tokens: int) -> None:
    """Print a line for one rank, and one for several."""
    print("| ranks | weights of a rank | read at | exchanges | latency | sent | link | predicted | measured | ratio |")
    print("|" + " ---: |" * 10)
    for count in (1, ranks):
        record = plan_of(folder / "model.onnx", count)
        rows = measure(folder, count, tokens)
        slowest = max(rows, key=lambda row: row["bytes"] / row["memory"])
        predicted = record.token_seconds(slowest["bytes"], slowest["memory"], slowest["latency"], slowest["link"])
        token = max(row["token"] for row in rows)
        print(
            f"| {count} | {slowest['bytes'] / 2**20:.0f} MiB | {slowest['memory'] / 1e9:.1f} GB/s | "
            f"{len(record.collectives)} | {slowest['latency'] * 1e6:.0f} µs | {record.sent / 1024:.1f} KiB | "
            f"{slowest['link'] / 1e9:.1f} GB/s | "
            f"{predicted * 1e3:.1f} ms | {token * 1e3:.1f} ms | {token / predicted:.2f} |"
        )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--of-rank", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.of_rank:
        run_rank(arguments.of_rank, arguments.ranks, arguments.tokens)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), SIZES, bits=0)
        report(Path(folder), arguments.ranks, arguments.tokens)


if __name__ == "__main__":
    main()
