"""Random graphs in memory between pages that cannot be read or written, with sizes and values that do not fit.

Each input, output and weight, the arena and each tensor of a data-dependent size has pages of its own, and ends at an
inaccessible one, or begins after one; read-only memory cannot be written. A call is computed in memory of two
contents, which its results must not depend on. A seed is a graph, most with a symbol of its own for each dim of each
input, and calls of it: one that fits, others whose sizes disagree or whose integers are no indices.

An access outside of memory ends the process, which is a finding of `run_jobs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper, numpy_helper

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime.executable import Executable
from mirlo.runtime.files import replacing, write_regular
from mirlo.runtime.names import file_name, shell_word
from mirlo.runtime.records import dataclass
from mirlo.tools.fuzz.graphs import RandomGraph, random_graph
from mirlo.tools.fuzz.guarded_memory import GuardedMemory
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    import onnx

SAFE = "safe"
STATES = {
    SAFE: "computed or refused; nothing outside of memory was touched, results depend on the inputs alone",
    REFUSED: "an error says that something is not supported",
    FAILED: "results depend on what was in memory, bytes around it were written, or an error is not the user's: a bug",
}
MOST_NODES = 4
"""Nodes of a graph: kernels of one operator and of a few that are fused."""
CALLS = 6
"""Calls with sizes or values that do not fit: they take little time beside the compilation."""
SYMBOLIC_SHARE, LIFTED_SHARE = 0.8, 0.5
"""Part of the graphs of which all dims are symbolic, and of the constant integers that become inputs."""
OPT_LEVEL = 0
"""LLVM's and the C compiler's level: half of the time of a seed at level 2, and no access is optimized away."""
FILLS = (0x5A, 0xFF)
"""Bytes in memory before a call: a large number in each type, and NaN or -1."""
HOSTILE = (-1, -2, 5, 1000, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
"""Integers that are no index, size, axis or count of most tensors."""
SPECIAL = (np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0)
Feeds = dict[str, np.ndarray]


@dataclass
class GuardedCase:
    """Models, of which the first one that can be compiled is called, and the arrays of each call."""

    graph: RandomGraph
    models: list[onnx.ModelProto]
    """The one with the least that is known before the call comes first."""
    lifted: Feeds
    """Constants that are inputs of some of the models."""
    seed: int

    def calls(self, inputs: Sequence[str]) -> list[Feeds]:
        """Return the arrays of each call of a model with these inputs: the first one fits."""
        rng = np.random.default_rng([self.seed, 8])
        whole = {**self.graph.feeds, **self.lifted}
        fitting = {name: whole[name] for name in inputs}
        return [fitting, *(_disagreeing(fitting, rng) for _ in range(CALLS))]


def guarded_case(seed: int) -> GuardedCase:
    """Return the models and the calls of a seed."""
    rng = np.random.default_rng([seed, 7])
    graph = random_graph(seed, MOST_NODES, rng)
    lifted = {
        tensor.name: _array(tensor)
        for tensor in graph.model.graph.initializer
        if _array(tensor).dtype.kind in "iub" and rng.random() < LIFTED_SHARE
    }
    models = [graph.model]
    if rng.random() < SYMBOLIC_SHARE:
        models.insert(0, _open(graph.model, ()))
        if lifted:
            models.insert(0, _open(graph.model, lifted))
    elif lifted:
        models.insert(0, _lift(graph.model, lifted))
    return GuardedCase(graph, models, lifted, seed)


def judge(seed: int, target: str = "llvm", threads: int = 1, opt_level: int = OPT_LEVEL) -> SeedVerdict:
    """Compile the graph of a seed and run its calls in guarded memory."""
    case = guarded_case(seed)
    used = tuple(case.graph.operators)
    refusal = SeedVerdict(REFUSED, "no nodes", used)
    for model in case.models if case.graph.operators else ():
        compiled = _compiled(model, target, threads, opt_level)
        if isinstance(compiled, SeedVerdict):
            refusal = SeedVerdict(compiled.state, compiled.text, used)
            if compiled.state == FAILED:
                return refusal
            continue
        places = guarded_places(compiled)
        names = [value.name for value in model.graph.input]
        for number, feeds in enumerate(case.calls(names)):
            problem = judge_call(places, feeds)
            if problem is not None:
                return SeedVerdict(FAILED, f"call {number}, {_shown(feeds)}: {problem}", used)
        return SeedVerdict(SAFE, "", used)
    return refusal


def guarded_places(compiled: Executable) -> list[tuple[GuardedMemory, Executable]]:
    """Return the model in memory that ends at inaccessible pages, and in memory that begins after them."""
    places = [GuardedMemory(at_end) for at_end in (True, False)]
    return [(memory, memory.executable(compiled)) for memory in places]


def judge_call(places: Sequence[tuple[GuardedMemory, Executable]], feeds: Feeds) -> str | None:
    """Run a call in memory of each kind; return the problem, or None."""
    first: list[bytes] | str | None = None
    for memory, guarded in places:
        for fill in FILLS:
            memory.begin(fill)
            guarded.fill_device(fill)
            verdict = _run(guarded, feeds, memory)
            if isinstance(verdict, SeedVerdict) and verdict.state == FAILED:
                return verdict.text
            overwritten = memory.overwritten()
            if overwritten is not None:
                return overwritten
            result = verdict.text if isinstance(verdict, SeedVerdict) else verdict
            if first is None:
                first = result
            elif first != result:
                return _dependence(guarded, first, result)
    return None


def _dependence(compiled: Executable, first: list[bytes] | str, other: list[bytes] | str) -> str:
    if isinstance(first, str) or isinstance(other, str):
        shown = [text if isinstance(text, str) else "results" for text in (first, other)]
        return f"the call gives {shown[0]} or {shown[1]}, as memory was before it"
    names = [spec.name for spec, a, b in zip(compiled.outputs, first, other, strict=True) if a != b]
    return f"'{names[0]}' depends on what was in memory before the call"


def _run(guarded: Executable, feeds: Feeds, memory: GuardedMemory) -> list[bytes] | SeedVerdict:
    """Return the bytes of each output, or the verdict on the error."""
    try:
        inputs = {name: memory.read_only(array) for name, array in feeds.items()}
        results = guarded.run(inputs, out=[None] * len(guarded.outputs))
    except Exception as error:
        return verdict_of_error(error)
    return [array.tobytes() for array in results.values()]


def _compiled(model: onnx.ModelProto, target: str, threads: int, opt_level: int) -> Executable | SeedVerdict:
    try:
        compiled = compile_model(model, target, threads=threads, jobs=1, cache=False, opt_level=opt_level)
    except Exception as error:
        return verdict_of_error(error)
    if not isinstance(compiled, Executable):
        return SeedVerdict(REFUSED, f"it is a {type(compiled).__name__}, which Python runs")
    return compiled


def _disagreeing(feeds: Mapping[str, np.ndarray], rng: np.random.Generator) -> Feeds:
    """Return arrays of which one or two have other sizes or other values."""
    result = dict(feeds)
    names = list(feeds)
    for name in rng.choice(names, min(len(names), 1 + int(rng.integers(2))), replace=False) if names else ():
        array = result[name]
        if array.ndim and rng.random() < 0.6:
            array = _resized(array, rng)
        if rng.random() < 0.6 or not array.ndim:
            array = _revalued(array, rng)
        result[name] = array
    return result


def _resized(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an array of which some dims have other sizes; its elements are those of the other, again and again."""
    shape = list(array.shape)
    for axis in rng.choice(len(shape), 1 + int(rng.integers(min(len(shape), 2))), replace=False):
        size = shape[axis]
        shape[axis] = int(rng.choice([0, 1, max(size - 1, 0), size + 1, 2 * size, 3 * size + 1, 40]))
    result: np.ndarray = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    return result


def _revalued(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an array of which some elements are no index, or no usual number."""
    result: np.ndarray = array.copy()
    flat = result.reshape(-1)
    for at in rng.integers(0, max(flat.size, 1), min(flat.size, 3)):
        if flat.dtype.kind == "f":
            with np.errstate(all="ignore"):
                flat[at] = np.float64(rng.choice(SPECIAL)).astype(flat.dtype)
        else:
            flat[at] = np.int64(rng.choice(HOSTILE)).astype(flat.dtype)
    return result


def _lift(model: onnx.ModelProto, lifted: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model with constants as inputs."""
    copied = type(model)()
    copied.CopyFrom(model)
    kept = [tensor for tensor in copied.graph.initializer if tensor.name not in lifted]
    del copied.graph.initializer[:]
    copied.graph.initializer.extend(kept)
    for name, array in lifted.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        copied.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    return copied


def _open(model: onnx.ModelProto, lifted: Mapping[str, np.ndarray] | tuple[()]) -> onnx.ModelProto:
    """Return a model each dim of whose inputs has a symbol of its own."""
    copied = _lift(model, dict(lifted))
    for value in copied.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
    for value in copied.graph.output:
        value.type.tensor_type.ClearField("shape")
    return copied


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    return np.asarray(numpy_helper.to_array(tensor))


def _shown(feeds: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name}: {array.dtype.name}{list(array.shape)}" for name, array in feeds.items())


def write(seed: int, folder: Path) -> None:
    """Write the models of a seed, and the arrays and the command of each call, none of which is run here."""
    case = guarded_case(seed)
    for index, model in enumerate(case.models):
        write_regular(folder / f"model{index}.onnx", model.SerializeToString())
        lines = []
        for number, feeds in enumerate(case.calls([value.name for value in model.graph.input])):
            place = folder / f"model{index}-call{number}"
            place.mkdir(exist_ok=True)
            words = []
            for name, array in feeds.items():
                with replacing(place / f"{file_name(name)}.npy") as file:
                    np.save(file, array)
                words.append(shell_word(f"--input={name}={place.name}/{file_name(name)}.npy"))
            lines.append(f"mirlo run model{index}.onnx {' '.join(words)}\n")
        write_regular(folder / f"model{index}.txt", "".join(lines))
