"""A random graph, compiled and compared: with the reference evaluator, and with ONNX Runtime where it can run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.driver.compile import compile_levels
from mirlo.driver.options import CompileArguments
from mirlo.runtime.errors import DeviceLimit
from mirlo.runtime.files import replacing, write_regular
from mirlo.runtime.names import file_name, shell_word
from mirlo.tools.bisect.bisect import is_rounding
from mirlo.tools.bisect.compare import ModelValue, Tolerance, difference, tolerance_of
from mirlo.tools.bisect.oracles import OracleError, either, onnxruntime, reference
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.fuzz.fences import FencedOutputs
from mirlo.tools.fuzz.graphs import RandomGraph, random_graph
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error
from mirlo.tools.verify.model import can_verify

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable

RIGHT, ROUNDED, WRONG, DISPUTED, LIMITED = "right", "rounded", "wrong", "disputed", "limited"
STATES = {
    RIGHT: "as an oracle computes it",
    ROUNDED: "departs from the oracles by rounding that a node amplifies",
    WRONG: "not as any oracle computes it",
    LIMITED: "an error says which limit of its own the device has",
    REFUSED: "an error says that something is not supported, in a valid model: a bug",
    DISPUTED: "the oracles differ from one another, and from Mirlo",
    FAILED: "an error that is not the user's: a bug",
}

REPEATS = 2
"""How often every other graph repeats its nodes."""
LEVELS = (0, 1, 2, 3)
"""Levels of optimization; the passes of a graph run once for all."""


def graph_of(seed: int) -> RandomGraph:
    """Return the random graph of a seed; every other one repeats its nodes, so that kernels are merged."""
    return random_graph(seed, repeats=seed % 2 * REPEATS)


def judge(seed: int, target: str = "llvm", threads: int = 1, opt_level: int | None = None) -> SeedVerdict:
    """Compile the graph of a seed at one or all levels of optimization, run it, compare; kernels also exactly."""
    graph = graph_of(seed)
    levels = LEVELS if opt_level is None else (opt_level,)
    return replace(judge_graph(graph, target, threads, levels, can_verify(target)), used=tuple(graph.operators))


def judge_graph(
    graph: RandomGraph, target: str = "llvm", threads: int = 1, levels: Sequence[int] = (2,), verify: bool = False
) -> SeedVerdict:
    """Compile a graph at each level, run it, compare; with `verify`, compare its kernels with their definitions too.

    The verdict is that of the first level that departs from the oracles.
    """
    names = [value.name for value in graph.model.graph.output]
    if not names:
        return SeedVerdict(RIGHT, "no nodes")
    oracles = _Oracles(graph, names)
    verdict, compiled = SeedVerdict(RIGHT), 0
    try:
        # Other seeds have the other cores; nobody asks for kernels of random graphs again.
        arguments = CompileArguments(graph.model, target, threads=threads, jobs=1, cache=False, verify=verify)
        for model in compile_levels(arguments, levels, merges=True):
            verdict = _judge_model(model, oracles, target, threads)
            if verdict.state != RIGHT:
                break
            compiled += 1
    except DeviceLimit as error:
        verdict = SeedVerdict(LIMITED, str(error))
    except Exception as error:
        verdict = verdict_of_error(error)
    if verdict.state == RIGHT or len(levels) == 1:
        return verdict
    return replace(verdict, text=f"level {levels[compiled]}: {verdict.text}")


class _Oracles:
    """The expected outputs of a graph, computed once."""

    def __init__(self, graph: RandomGraph, names: list[str]):
        self.graph, self.names = graph, names

    @cached_property
    def reference(self) -> Mapping[str, ModelValue]:
        return reference(self.graph.model, self.graph.feeds, self.names)

    @cached_property
    def other(self) -> Mapping[str, ModelValue]:
        try:
            return onnxruntime(self.graph.model, self.graph.feeds, self.names)
        except OracleError:
            return either(self.graph.model, self.graph.feeds, self.names)


def _judge_model(model: Executable, oracles: _Oracles, target: str, threads: int) -> SeedVerdict:
    """Run a compiled graph and compare it with the oracles."""
    graph = oracles.graph
    fenced = FencedOutputs(model.outputs)
    model.run(graph.feeds, out=fenced.arrays)
    if (overwritten := fenced.overwritten()) is not None:
        return SeedVerdict(FAILED, overwritten)
    computed = model.run(graph.feeds)

    def departing(names: Iterable[str], expected: Mapping[str, ModelValue]) -> dict[str, str]:
        texts = {name: _departs(name, computed, expected, graph) for name in names}
        return {name: text for name, text in texts.items() if text is not None}

    first = departing(oracles.names, oracles.reference)
    if not first:
        return SeedVerdict(RIGHT)
    differences = departing(first, oracles.other)
    wrong = [name for name in differences if _departs(name, oracles.other, oracles.reference, graph) is None]
    if wrong and _is_rounding(graph, target, threads, wrong):
        return SeedVerdict(ROUNDED, f"'{wrong[0]}': {differences[wrong[0]]}")
    if wrong:
        return SeedVerdict(WRONG, f"'{wrong[0]}': {differences[wrong[0]]}")
    if differences:
        return SeedVerdict(DISPUTED, "; ".join(f"'{name}': {text}" for name, text in differences.items()))
    return SeedVerdict(RIGHT)


def _departs(
    name: str, computed: Mapping[str, ModelValue], expected: Mapping[str, ModelValue], graph: RandomGraph
) -> str | None:
    return difference(computed[name], expected[name], Tolerance(tolerance_of(graph.epsilons[name])))


def _is_rounding(graph: RandomGraph, target: str, threads: int, names: list[str]) -> bool:
    """Return whether outputs depart by nothing but rounding that a node amplifies."""
    tolerance = Tolerance(min(tolerance_of(graph.epsilons[name]) for name in names))
    settings = TrialOptions(target, threads, tolerance=tolerance)
    return is_rounding(graph.model, graph.feeds, against="reference", settings=settings)


def write(seed: int, folder: Path, graph: RandomGraph | None = None) -> None:
    """Write the model of a seed, its inputs, and the command that searches for the departing node."""
    graph = graph or graph_of(seed)
    write_regular(folder / "model.onnx", graph.model.SerializeToString())
    inputs = []
    for name, array in graph.feeds.items():
        with replacing(folder / f"{file_name(name)}.npy") as file:
            np.save(file, array)
        inputs.append(shell_word(f"--input={name}={file_name(name)}.npy"))
    write_regular(folder / "bisect.txt", f"mirlo bisect model.onnx {' '.join(inputs)}\n")
