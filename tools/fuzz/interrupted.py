"""Interrupts: Ctrl-C at a random time while a random graph is compiled.

Only KeyboardInterrupt reaches the caller, and the next compilation gives the results of one that nothing interrupted.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from mirlo.runtime import system
from mirlo.runtime.executable import Executable
from mirlo.tools.fuzz.differential import write as write_graph
from mirlo.tools.fuzz.graphs import RandomGraph, random_graph
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

INTERRUPTED, ENDED = "interrupted", "ended"
STATES = {
    INTERRUPTED: "every interrupt was a KeyboardInterrupt, and the next compilation is right",
    ENDED: "each compilation ended before its interrupt",
    REFUSED: "an error says that something is not supported",
    FAILED: "an interrupt became something else, or the next compilation differs: a bug",
}
MOST_NODES = 4
INTERRUPTS = 10
"""Interrupts of a graph: two compilations measure how long one takes, and check the next one."""


def judge(seed: int, target: str = "llvm", threads: int = 1, opt_level: int = 0) -> SeedVerdict:
    """Interrupt compilations of the graph of a seed; compare the results of the last one with those of the first."""
    rng = np.random.default_rng([seed, 9])
    graph = random_graph(seed, MOST_NODES, rng)
    used = tuple(graph.operators)
    if not used:
        return SeedVerdict(REFUSED, "no nodes")
    try:
        _compiled(graph, target, threads, opt_level)  # loads modules
        begin = time.perf_counter()
        expected = _results(graph, target, threads, opt_level)
        seconds = time.perf_counter() - begin
    except Exception as error:
        return verdict_of_error(error, used=used)
    count = 0
    for _ in range(INTERRUPTS):
        after = float(rng.uniform(0, seconds))
        try:
            with system.interrupt_after(after):
                _compiled(graph, target, threads, opt_level)
        except KeyboardInterrupt:
            count += 1
        except BaseException as error:
            return SeedVerdict(FAILED, f"an interrupt after {after:.6f} s: {type(error).__name__}: {error}", used)
    if _results(graph, target, threads, opt_level) != expected:
        return SeedVerdict(FAILED, f"the compilation after {count} interrupts has other results", used)
    return SeedVerdict(INTERRUPTED if count else ENDED, "", used)


def _compiled(graph: RandomGraph, target: str, threads: int, opt_level: int) -> Executable:
    from mirlo.driver.compile import compile as compile_model

    result: Executable = compile_model(graph.model, target, threads=threads, jobs=1, cache=False, opt_level=opt_level)
    return result


def _results(graph: RandomGraph, target: str, threads: int, opt_level: int) -> list[bytes]:
    computed = _compiled(graph, target, threads, opt_level).run(graph.feeds)
    return [np.asarray(array).tobytes() for array in computed.values()]


def write(seed: int, folder: Path) -> None:
    """Write the graph of a seed."""
    write_graph(seed, folder, random_graph(seed, MOST_NODES, np.random.default_rng([seed, 9])))
