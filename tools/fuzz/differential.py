"""A random graph, compiled and compared: with the reference evaluator, and with ONNX Runtime where it can run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

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

RIGHT, ROUNDED, WRONG, DISPUTED = "right", "rounded", "wrong", "disputed"
STATES = {
    RIGHT: "as an oracle computes it",
    ROUNDED: "departs from the oracles by rounding that a node amplifies",
    WRONG: "not as any oracle computes it",
    REFUSED: "an error says that something is not supported",
    DISPUTED: "the oracles differ from one another, and from Mirlo",
    FAILED: "an error that is not the user's: a bug",
}


VERIFIED = 4
"""The kernels of one graph in so many are compared with their definitions, which takes as long as three graphs."""


def judge(seed: int, target: str = "llvm", threads: int = 1, opt_level: int = 2) -> SeedVerdict:
    """Compile the graph of a seed, run it, compare."""
    graph = random_graph(seed)
    verify = seed % VERIFIED == 0 and can_verify(target)
    return replace(judge_graph(graph, target, threads, opt_level, verify), used=tuple(graph.operators))


def judge_graph(
    graph: RandomGraph, target: str = "llvm", threads: int = 1, opt_level: int = 2, verify: bool = False
) -> SeedVerdict:
    """Compile a graph, run it, compare; with `verify`, compare its kernels with their definitions as well."""
    from mirlo.driver.compile import compile as compile_model

    names = [value.name for value in graph.model.graph.output]
    if not names:
        return SeedVerdict(RIGHT, "no nodes")
    try:
        # Other seeds have the other cores; nobody asks for kernels of random graphs again.
        compiled = compile_model(
            graph.model, target, threads=threads, jobs=1, cache=False, opt_level=opt_level, verify=verify
        )
        fenced = FencedOutputs(compiled.outputs)
        compiled.run(graph.feeds, out=fenced.arrays)
        if (overwritten := fenced.overwritten()) is not None:
            return SeedVerdict(FAILED, overwritten)
        computed = compiled.run(graph.feeds)
    except Exception as error:
        return verdict_of_error(error)
    expected = reference(graph.model, graph.feeds, names)
    departing = {name: text for name in names if (text := _departs(name, computed, expected, graph)) is not None}
    if not departing:
        return SeedVerdict(RIGHT)
    try:
        other = onnxruntime(graph.model, graph.feeds, names)
    except OracleError:
        other = either(graph.model, graph.feeds, names)
    differences = {name: text for name, text in departing.items() if _departs(name, computed, other, graph) is not None}
    wrong = [name for name in differences if _departs(name, other, expected, graph) is None]
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
    """Write the model of a seed, its inputs, and the command that looks for the node that departs."""
    import numpy as np

    graph = graph or random_graph(seed)
    write_regular(folder / "model.onnx", graph.model.SerializeToString())
    inputs = []
    for name, array in graph.feeds.items():
        with replacing(folder / f"{file_name(name)}.npy") as file:
            np.save(file, array)
        inputs.append(shell_word(f"--input={name}={file_name(name)}.npy"))
    write_regular(folder / "bisect.txt", f"mirlo bisect model.onnx {' '.join(inputs)}\n")
