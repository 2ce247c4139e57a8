"""Interrupts: Ctrl-C at a random time while a random graph is compiled.

Only KeyboardInterrupt reaches the caller, the next compilation gives the results of one that nothing interrupted, and
nothing stays of those that were interrupted.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mirlo.dialects.context import live_contexts
from mirlo.driver.compile import compile as compile_model
from mirlo.runtime import processes
from mirlo.runtime.executable import Executable
from mirlo.tools.fuzz.differential import write as write_graph
from mirlo.tools.fuzz.graphs import RandomGraph, random_graph
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

INTERRUPTED, ENDED = "interrupted", "ended"
STATES = {
    INTERRUPTED: "every interrupt was a KeyboardInterrupt, the next compilation is right, and nothing stays",
    ENDED: "each compilation ended before its interrupt",
    REFUSED: "an error says that something is not supported",
    FAILED: "an interrupt became something else, the next compilation differs, or something stays: a bug",
}
MOST_NODES = 4
INTERRUPTS = 25
"""Interrupts of a graph: three compilations beside them load modules, measure how long one takes, and are the next."""
MOST_NEW_OBJECTS = 1000
"""Objects of Python that caches may keep; one compilation has many more."""


class KeptResources(NamedTuple):
    """What a process has, once garbage is collected."""

    descriptors: int
    threads: int
    contexts: int
    """Of MLIR."""
    objects: int
    """That Python's collector tracks."""

    def growth(self, before: KeptResources) -> str:
        """Return what there is more of than before, as text."""
        allowed = KeptResources(0, 0, 0, MOST_NEW_OBJECTS)
        pairs = zip(self._fields, self, before, allowed, strict=True)
        return ", ".join(f"{now - then} more {name}" for name, now, then, most in pairs if now - then > most)


class InterruptLost(Exception):
    """Python dropped a KeyboardInterrupt, as what it came in cannot raise."""


def _kept_resources() -> KeptResources:
    gc.collect()
    return KeptResources(processes.open_descriptors(), threading.active_count(), live_contexts(), len(gc.get_objects()))


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
    before = _kept_resources()
    count = 0
    for _ in range(INTERRUPTS):
        after = float(rng.uniform(0, seconds))
        try:
            with _finalizers_without_interrupts(), processes.interrupt_after(after):
                compiled = _compiled(graph, target, threads, opt_level)
            del compiled  # freed when no interrupt can come
        except KeyboardInterrupt:
            count += 1
        except BaseException as error:
            return SeedVerdict(FAILED, f"an interrupt after {after:.6f} s: {type(error).__name__}: {error}", used)
    if _results(graph, target, threads, opt_level) != expected:
        return SeedVerdict(FAILED, f"the compilation after {count} interrupts has other results", used)
    if growth := _kept_resources().growth(before):
        return SeedVerdict(FAILED, f"after {count} interrupts there are {growth}", used)
    return SeedVerdict(INTERRUPTED if count else ENDED, "", used)


@contextmanager
def _finalizers_without_interrupts() -> Iterator[None]:
    """Raise an error after the block if Python dropped an interrupt, which came while a finalizer ran."""
    lost: list[str] = []
    before = sys.unraisablehook

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            lost.append(repr(unraisable.object))
        else:
            before(unraisable)

    sys.unraisablehook = note
    try:
        yield
    finally:
        sys.unraisablehook = before
    if lost:
        raise InterruptLost(f"an interrupt was lost in {lost[0]}")


def _compiled(graph: RandomGraph, target: str, threads: int, opt_level: int) -> Executable:
    result: Executable = compile_model(graph.model, target, threads=threads, jobs=1, cache=False, opt_level=opt_level)
    return result


def _results(graph: RandomGraph, target: str, threads: int, opt_level: int) -> list[bytes]:
    computed = _compiled(graph, target, threads, opt_level).run(graph.feeds)
    return [np.asarray(array).tobytes() for array in computed.values()]


def write(seed: int, folder: Path) -> None:
    """Write the graph of a seed."""
    write_graph(seed, folder, random_graph(seed, MOST_NODES, np.random.default_rng([seed, 9])))
