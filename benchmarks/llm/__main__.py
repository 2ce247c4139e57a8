"""Decoding and prompts: `python -m benchmarks.llm [--model NAME] [--threads T] [--peers NAMES] [--folder DIR]`.

Builds a decoder with random weights and runs it with Mirlo and its peers in turns in one process. Peers are those of
`onnxruntime`, `genai` (onnxruntime-genai), `openvino` and `llama.cpp` (llama-cpp-python, and `gguf` to write its model)
that are installed: `pip install onnxruntime-genai openvino gguf llama-cpp-python`; the last one builds llama.cpp, which
takes some minutes and a C++ compiler. Each row is a step: the least CPU time of all threads of the process, which other
processes hardly change, the median wall time, and the ratio of Mirlo to each peer: the median over turns, of CPU time
with one thread, else of wall time. `reading` is the time in which as many cores read the same weights and caches and do
nothing with them; with several threads there is a row of Mirlo on one thread, too. Then come the cost of the loop of
generation around the model, and what requests that run together get in all.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo.benchmarks.llm.engines import PEERS, Engine, Mirlo, Step, in_huge_pages, load_peers
from mirlo.benchmarks.llm.loop import report_loop
from mirlo.benchmarks.llm.memory import report_memory
from mirlo.benchmarks.llm.model import MODELS, DecoderConfig, feed, save
from mirlo.benchmarks.llm.reading import reader, weights_of_a_token
from mirlo.benchmarks.llm.serving import report_serving
from mirlo.benchmarks.llm.windows import report_windows
from mirlo.benchmarks.turns import relative_error

CASES = ((1, 128, 1), (1, 2046, 1), (1, 8190, 1), (1, 128, 8), (64, 0, 1), (512, 0, 1))
"""New tokens, tokens before them, sequences."""


@dataclass
class Times:
    """The milliseconds of the turns of one step."""

    cpu: list[float]
    wall: list[float]


def measure(steps: Sequence[Step], repeat: int) -> list[Times]:
    """Run the steps in turns."""
    result = [Times([], []) for _ in steps]
    for turn in range(repeat):
        order = range(len(steps)) if turn % 2 == 0 else reversed(range(len(steps)))
        for i in order:
            cpu, wall = time.process_time(), time.perf_counter()
            steps[i]()
            result[i].cpu.append(1000 * (time.process_time() - cpu))
            result[i].wall.append(1000 * (time.perf_counter() - wall))
    return result


def report(engines: dict[str, Engine], cases: Sequence[tuple[int, int, int]], threads: int, repeat: int) -> None:
    """Measure steps of all engines, of which the first is ours, and print the table."""
    print(
        f"{'tokens':>6} {'past':>6} {'batch':>6} {'engine':>14} {'cpu ms':>9} {'wall ms':>9} {'ratio':>7} {'error':>9}"
    )
    for tokens, past, batch in cases:
        steps: dict[str, Step] = {}
        for name, engine in engines.items():
            step = engine.call(tokens, past, batch)
            if step is not None:
                steps[name] = step
        # Copies: engines may write their next results to the same memory.
        results = {name: copy.copy(step()) for name, step in steps.items()}
        count = max(3, repeat // (1 + tokens * batch // 16))
        times = dict(zip(steps, measure(list(steps.values()), count), strict=True))
        ours = next(iter(times))
        for name, timing in times.items():
            pairs = (times[ours].cpu, timing.cpu) if threads == 1 else (times[ours].wall, timing.wall)
            ratio = statistics.median(a / b for a, b in zip(*pairs, strict=True))
            line = (
                f"{tokens:6} {past:6} {batch:6} {name:>14} {min(timing.cpu):9.2f} {statistics.median(timing.wall):9.2f}"
            )
            print(f"{line} {ratio:7.2f} {_error(results[name], results[ours])}", flush=True)


def _error(theirs: object, ours: np.ndarray) -> str:
    """Return the largest difference of logits, by the largest one; nothing for other results."""
    if not isinstance(theirs, np.ndarray) or theirs is ours:
        return ""
    if theirs.shape != ours.shape:
        return f"{theirs.shape} in place of {ours.shape}"
    wanted, mine = theirs.astype(np.float32), ours.astype(np.float32)
    return f"{relative_error(mine, wanted):9.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.llm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="llama", help="what to build (default: llama)")
    parser.add_argument("--threads", type=int, default=1, help="threads of all (default: 1)")
    parser.add_argument("--repeat", type=int, default=40, help="turns of a decoding step (default: 40)")
    parser.add_argument("--longest", type=int, default=16384, help="skip cases of more tokens than this")
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all that are installed"
    )
    parser.add_argument("--activations", help="how activations are represented (default: as the model says)")
    parser.add_argument("--prompts", action="store_true", help="leave steps of one token out")
    parser.add_argument("--steps", action="store_true", help="leave the loop and requests that run together out")
    parser.add_argument("--serving", action="store_true", help="measure only requests that run together")
    parser.add_argument("--windows", action="store_true", help="measure only rings of windows and reused beginnings")
    parser.add_argument("--memory", type=int, metavar="TOKENS", help="measure only memory, over this many tokens")
    parser.add_argument("--folder", type=Path, help="where the model is kept; default: a temporary folder")
    arguments = parser.parse_args()
    config = MODELS[arguments.model]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)) / arguments.model
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.windows:
            report_windows(folder / "windows")
            return
        path = folder / "model.onnx"
        if not path.exists():
            save(config, folder)
        if arguments.memory is not None:
            report_memory(folder, arguments.threads, arguments.memory)
            return
        if not arguments.serving:
            _report_steps(arguments, config, path)
        if not arguments.serving and not arguments.steps:
            report_loop(folder / "loop")
        if not arguments.steps:
            report_serving(folder, arguments.threads, arguments.activations)


def _report_steps(arguments: argparse.Namespace, config: DecoderConfig, path: Path) -> None:
    """Measure the steps of a model with all engines."""
    ours = Mirlo(config, path, arguments.threads, activations=arguments.activations)
    print(ours.executable.memory)
    engines: dict[str, Engine] = {"mirlo": ours}
    if arguments.threads > 1:
        engines["one thread"] = Mirlo(config, path, 1, activations=arguments.activations)
    engines["reading"] = _Reading(config, ours, arguments.threads)
    engines |= load_peers(arguments.peers, config, path, arguments.threads)
    cases = [case for case in CASES if case[0] + case[1] <= min(config.positions, arguments.longest)]
    cases = [case for case in cases if case[0] > 1 or not arguments.prompts]
    report(engines, cases, arguments.threads, arguments.repeat)


@dataclass(frozen=True)
class _Reading:
    """The probe, beside steps of one token."""

    config: DecoderConfig
    model: Mirlo
    threads: int

    def call(self, tokens: int, past: int, batch: int) -> Step | None:
        if tokens > 1:
            return None
        arrays = feed(self.config, tokens, past, batch)
        caches = in_huge_pages({name: array for name, array in arrays.items() if name.startswith("past")})
        return reader([*weights_of_a_token(self.model.executable), *caches.values()], self.threads)


if __name__ == "__main__":
    main()
