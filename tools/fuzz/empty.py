"""Empty axes: operators over tensors of which some dims are 0.

Nothing may trap, every element of a result is written, and results are those of an oracle. A seed is a model of
several nodes, none of which reads another.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper, numpy_helper

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime import processes
from mirlo.runtime.files import replacing, write_regular
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.compare import ModelValue, Tolerance, difference
from mirlo.tools.bisect.oracles import Oracle, OracleError, onnxruntime, reference
from mirlo.tools.fuzz.differential import RIGHT, WRONG
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy.typing as npt
    import onnx

    from mirlo.runtime.executable import Executable

COMPUTED, UNWRITTEN = "computed", "an element of the result is not written"
STATES = {
    RIGHT: "as an oracle computes it",
    COMPUTED: "computed, every element written; no oracle computes it",
    WRONG: "as no oracle computes it, or not written: a bug",
    REFUSED: "an error that tells what is not supported",
    FAILED: "an error that is not the user's: a bug",
}
NODES = 6
"""Nodes of a seed: compiling them together takes little longer than one alone."""
FLOATS, INTS = (np.float32, np.float64), (np.int32, np.int64)
NUMERIC_TYPES = (*FLOATS, *INTS)
Shape = tuple[str | int, ...]


@dataclass(frozen=True)
class EmptyCase:
    """An operator, the shapes that it reads and the constants after them."""

    shapes: tuple[Shape, ...]
    """Of tensors; a letter is a dim that may be 0."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    constants: tuple[np.ndarray | None, ...] = ()
    """The inputs after the tensors; None for one that is left out."""
    dtypes: tuple[npt.DTypeLike, ...] = FLOATS
    outputs: int = 1
    integers: tuple[int, ...] = ()
    """Tensors that are int64 whatever the others are: labels, indices."""
    opset: int = 18


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


NMK: tuple[Shape, ...] = (("n", "m", "k"),)
IMAGE: tuple[Shape, ...] = (("n", "c", "h", "w"),)
REDUCTIONS = (
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
OF_FLOATS = ("ReduceLogSum", "ReduceLogSumExp")
"""Reductions that are minus infinity over no elements: no integer."""
POOLS = ("MaxPool", "GlobalMaxPool")
"""The reference evaluator gives other shapes for these where there are no elements."""
CASES: dict[str, EmptyCase] = {
    **{
        f"{name}{label}": EmptyCase(NMK, {"keepdims": keep}, (axes,), FLOATS if name in OF_FLOATS else NUMERIC_TYPES)
        for name in REDUCTIONS
        for label, axes, keep in (("", _ints(1), 0), (" all", None, 1), (" last", _ints(0, 2), 0))
    },
    **{name: EmptyCase(NMK, {"axis": 1}) for name in ("Softmax", "LogSoftmax", "Hardmax")},
    **{f"{name} last": EmptyCase(NMK, {"axis": -1}) for name in ("Softmax", "LogSoftmax", "Hardmax")},
    "LpNormalization": EmptyCase(NMK, {"axis": 1}),
    "LpNormalization 1": EmptyCase(NMK, {"axis": 1, "p": 1}),
    "ArgMax": EmptyCase(NMK, {"axis": 1}, (), NUMERIC_TYPES),
    "ArgMin": EmptyCase(NMK, {"axis": 2, "keepdims": 0}, (), NUMERIC_TYPES),
    "CumSum": EmptyCase(NMK, {}, (np.array(1),), NUMERIC_TYPES),
    "TopK": EmptyCase(NMK, {"axis": 1}, (_ints(0),), NUMERIC_TYPES, 2),
    "MeanVarianceNormalization": EmptyCase(NMK, {"axes": [1]}),
    "LayerNormalization": EmptyCase((("n", "m", "k"), ("k",), ("k",)), {"axis": -1}),
    # Mean and deviation have the type of `stash_type`, f32; the reference evaluator gives them that of the data.
    "LayerNormalization 1": EmptyCase((("n", "m", "k"), ("m", "k")), {"axis": 1}, (), (np.float32,), 3),
    "InstanceNormalization": EmptyCase((("n", "c", "m"), ("c",), ("c",))),
    "GroupNormalization": EmptyCase((("n", 4, "m"), (4,), (4,)), {"num_groups": 2}, opset=21),
    "BatchNormalization": EmptyCase((("n", "c", "m"), ("c",), ("c",), ("c",), ("c",))),
    "RMSNormalization": EmptyCase((("n", "m", "k"), ("k",)), {"axis": -1}, opset=23),
    "RMSNormalization 1": EmptyCase((("n", "m", "k"), ("m", "k")), {"axis": 1}, opset=23),
    "GlobalAveragePool": EmptyCase(IMAGE),
    "GlobalMaxPool": EmptyCase(IMAGE),
    "GlobalLpPool": EmptyCase(IMAGE),
    "AveragePool": EmptyCase(IMAGE, {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "AveragePool counted": EmptyCase(IMAGE, {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    "MaxPool": EmptyCase(IMAGE, {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "MaxPool both": EmptyCase((("n", "c", "w"),), {"kernel_shape": [2], "pads": [1, 1]}, (), FLOATS, 2),
    "LpPool": EmptyCase(IMAGE, {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "LRN": EmptyCase(IMAGE, {"size": 3}),
    "Conv": EmptyCase((("n", "c", "h", "w"), (3, "c", 2, 2)), {"pads": [1, 1, 1, 1]}),
    "Conv biased": EmptyCase((("n", "c", "w"), (3, "c", 1), (3,))),
    "ConvTranspose": EmptyCase((("n", "c", "w"), ("c", 2, 2))),
    "MatMul": EmptyCase((("n", "m", "k"), ("k", "p")), {}, (), NUMERIC_TYPES),
    "MatMul batched": EmptyCase((("b", "m", "k"), ("b", "k", "n")), {}, (), NUMERIC_TYPES),
    "Gemm": EmptyCase((("m", "k"), ("k", "n"), ("n",))),
    "Gemm plain": EmptyCase((("k", "m"), ("n", "k")), {"transA": 1, "transB": 1}),
    "Einsum": EmptyCase((("m", "k"), ("n", "k")), {"equation": "mk,nk->mn"}),
    "Einsum sum": EmptyCase((("m", "k"), ("n", "k")), {"equation": "mk,nk->m"}),
    "Relu": EmptyCase(NMK),
    "Add": EmptyCase((("n", "m", 1), ("m", "k")), {}, (), NUMERIC_TYPES),
    "Div": EmptyCase((("n", "m"), (1, "m")), {}, (), INTS),
    "Mean": EmptyCase((("n", "m"), ("m",))),
    "Concat": EmptyCase((("n", "m"), ("k", "m")), {"axis": 0}, (), NUMERIC_TYPES),
    "Transpose": EmptyCase(NMK, {"perm": [2, 0, 1]}, (), NUMERIC_TYPES),
    "Flatten": EmptyCase(NMK, {"axis": 2}),
    "Pad": EmptyCase((("n", "m"),), {}, (_ints(1, 1, 1, 1), np.array(3)), INTS),
    "Tile": EmptyCase((("n", "m"),), {}, (_ints(2, 0),), NUMERIC_TYPES),
    "Expand": EmptyCase(((1, "m"),), {}, (_ints(3, 1),), NUMERIC_TYPES),
    "Slice": EmptyCase((("n", "m"),), {}, (_ints(1), _ints(9), _ints(0)), NUMERIC_TYPES),
    "Split": EmptyCase((("n", 4),), {"axis": 1, "num_outputs": 2}, (), NUMERIC_TYPES, 2),
    "Gather": EmptyCase((("n", 3), ("k",)), {"axis": 1}, (), NUMERIC_TYPES, 1, (1,)),
    "GatherElements": EmptyCase(((3, "m"), ("k", "m")), {}, (), NUMERIC_TYPES, 1, (1,)),
    "ScatterElements": EmptyCase(((3, "m"), ("k", "m"), ("k", "m")), {}, (), NUMERIC_TYPES, 1, (1,)),
    "GatherND": EmptyCase(((3, "m"), ("k", 1)), {}, (), NUMERIC_TYPES, 1, (1,)),
    "ScatterND": EmptyCase(((3, "m"), ("k", 1), ("k", "m")), {}, (), NUMERIC_TYPES, 1, (1,)),
    "NonZero": EmptyCase((("n", "m"),), {}, (), NUMERIC_TYPES),
    "Unique": EmptyCase((("n", "m"),), {}, (), NUMERIC_TYPES),
    "Compress": EmptyCase((("n", 2),), {"axis": 1}, (np.array([True, False]),), NUMERIC_TYPES),
    "OneHot": EmptyCase((("n", "m"),), {}, (_ints(3), np.array([0, 1], np.float32)), (np.int64,)),
    "Trilu": EmptyCase((("n", "m", "k"),), {}, (), NUMERIC_TYPES),
    "Shape": EmptyCase(NMK),
    "Size": EmptyCase(NMK),
    "ReverseSequence": EmptyCase((("t", "b", "k"), ("b",)), {}, (), NUMERIC_TYPES, 1, (1,)),
    "SpaceToDepth": EmptyCase((("n", 2, "h", 4),), {"blocksize": 2}),
    "DepthToSpace": EmptyCase((("n", 4, "h", "w"),), {"blocksize": 2}),
    "RNN": EmptyCase(((2, "b", 3), (1, 4, 3), (1, 4, 4)), {"hidden_size": 4}, (), (np.float32,), 2),
    "GRU": EmptyCase(((2, "b", 3), (1, 12, 3), (1, 12, 4)), {"hidden_size": 4}, (), (np.float32,), 2),
    "LSTM": EmptyCase(((2, "b", 3), (1, 16, 3), (1, 16, 4)), {"hidden_size": 4}, (), (np.float32,), 3),
    **{
        f"SoftmaxCrossEntropyLoss {reduction}": EmptyCase(
            (("n", 3, "k"), ("n", "k")), {"reduction": reduction}, (), FLOATS, 1, (1,)
        )
        for reduction in ("none", "sum", "mean")
    },
    **{
        f"NegativeLogLikelihoodLoss {reduction}": EmptyCase(
            (("n", 3, "k"), ("n", "k"), (3,)), {"reduction": reduction}, (), FLOATS, 1, (1,)
        )
        for reduction in ("none", "sum", "mean")
    },
}  # fmt: skip


@dataclass(frozen=True)
class SizedCase:
    """A case with sizes."""

    name: str
    dtype: npt.DTypeLike
    sizes: Mapping[str, int]
    is_dynamic: bool
    seed: int = 0

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """Return the tensors that the graph reads."""
        case, rng, feeds = CASES[self.name], np.random.default_rng([self.seed, 6]), {}
        for index, shape in enumerate(case.shapes):
            known = tuple(self.sizes[dim] if isinstance(dim, str) else dim for dim in shape)
            dtype = np.int64 if index in case.integers else self.dtype
            low, high = (0, 2) if index in case.integers else (1, 5)  # divisors and variances are positive
            feeds[f"x{index}"] = rng.integers(low, high, known).astype(dtype)
        return feeds

    def __str__(self) -> str:
        shown = ", ".join(f"{np.dtype(array.dtype).name}{list(array.shape)}" for array in self.feeds.values())
        return f"{self.name}({shown}){', dynamic' if self.is_dynamic else ''}"


def random_nodes(seed: int) -> list[SizedCase]:
    """Return the nodes of a seed: of one opset, each with a dim that is 0."""
    rng = np.random.default_rng([seed, 5])
    names = list(CASES)
    opset = CASES[names[int(rng.integers(len(names)))]].opset
    names = [name for name, case in CASES.items() if case.opset == opset]
    is_dynamic = bool(rng.random() < 0.5)
    nodes = []
    for _ in range(NODES):
        name = names[int(rng.integers(len(names)))]
        case = CASES[name]
        letters = sorted({dim for shape in case.shapes for dim in shape if isinstance(dim, str)})
        sizes = {letter: int(rng.integers(0, 5)) if rng.random() < 0.7 else 0 for letter in letters}
        sizes[letters[int(rng.integers(len(letters)))]] = 0
        dtype = case.dtypes[int(rng.integers(len(case.dtypes)))]
        nodes.append(SizedCase(name, dtype, sizes, is_dynamic, int(rng.integers(1 << 30))))
    return nodes


def model_of(nodes: list[SizedCase]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of independent nodes and its inputs. Outputs of the i-th are `y<i>_...`."""
    messages, values, constants, outputs, feeds = [], [], [], [], {}
    for i, node in enumerate(nodes):
        case, names = CASES[node.name], []
        for (name, array), shape in zip(node.feeds.items(), case.shapes, strict=True):
            names.append(f"n{i}_{name}")
            feeds[names[-1]] = array
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            dims = [f"{dim}{i}" if isinstance(dim, str) else dim for dim in shape] if node.is_dynamic else array.shape
            values.append(helper.make_tensor_value_info(names[-1], kind, dims))
        for k, constant in enumerate(case.constants):
            names.append("" if constant is None else f"n{i}_c{k}")
            if constant is not None:
                content = constant.astype(node.dtype) if node.name == "Pad" and k == 1 else constant
                constants.append(numpy_helper.from_array(content, names[-1]))
        results = [f"y{i}_{k}" for k in range(case.outputs)]
        outputs += results
        messages.append(helper.make_node(node.name.split(" ")[0], names, results, name=f"node{i}", **case.attributes))
    shown = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(messages, "g", values, shown, constants)
    opset = max(CASES[node.name].opset for node in nodes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds


def judge(seed: int, target: str = "llvm", threads: int = 1, opt_level: int = 2) -> SeedVerdict:
    """Compile and run the nodes of a seed, together, or each by itself where they cannot be."""
    nodes = random_nodes(seed)
    verdict = judge_nodes(nodes, target, threads, opt_level)
    if verdict.state not in (RIGHT, COMPUTED):
        alone = [judge_nodes([node], target, threads, opt_level) for node in nodes]
        order = (FAILED, WRONG, REFUSED, COMPUTED, RIGHT)
        verdict = min(alone, key=lambda each: order.index(each.state))
    return SeedVerdict(verdict.state, verdict.text, tuple(node.name.split(" ")[0] for node in nodes))


def judge_nodes(nodes: list[SizedCase], target: str = "llvm", threads: int = 1, opt_level: int = 2) -> SeedVerdict:
    """Compile nodes to one function, run it, and compare the results of each with those of the oracles."""
    model, feeds = model_of(nodes)
    shown = "; ".join(map(str, nodes))
    try:
        function = compile_model(
            model, target, threads=threads, opt_level=opt_level, jobs=1
        )  # with the cache: many cases share kernels
        computed = function.run(feeds)
        unwritten = _unwritten(function, feeds, computed)
    except Exception as error:
        return verdict_of_error(error, shown)
    if unwritten:
        return SeedVerdict(WRONG, f"{shown}: '{unwritten}': {UNWRITTEN}")
    state = RIGHT
    for i, node in enumerate(nodes):
        texts = departures(node, {k.split("_")[1]: v for k, v in computed.items() if k.startswith(f"y{i}_")})
        if texts and None not in texts:
            return SeedVerdict(WRONG, f"{node}: {'; '.join(str(text) for text in texts)}")
        state = state if texts else COMPUTED
    return SeedVerdict(state)


def _unwritten(function: Executable, feeds: Mapping[str, np.ndarray], computed: Mapping[str, np.ndarray]) -> str:
    """Return the name of an output whose bytes are those that its memory had before."""
    results = []
    for garbage in (0x5A, 0xA5):
        out = [
            np.full(array.nbytes, garbage, np.uint8).view(array.dtype).reshape(array.shape)
            for array in computed.values()
        ]
        try:
            function.run(feeds, out=out if len(out) > 1 else out[0])
        except (ValueError, TypeError):  # sizes that only data tell: memory is the run time's
            return ""
        results.append([array.tobytes() for array in out])
    return next((name for name, a, b in zip(computed, *results, strict=True) if a != b), "")


def _run_onnxruntime_in_child(
    model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str]
) -> dict[str, ModelValue]:
    """Run ONNX Runtime in a process of its own: some of its operators end the process over empty axes."""
    context = processes.process_context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, model, feeds, names))
    process.start()
    sender.close()
    try:
        values: dict[str, ModelValue] | None = receiver.recv()
    except EOFError:
        values = None
    finally:
        process.join()
    if values is None:
        raise OracleError("ONNX Runtime cannot run the model")
    return values


def _send(sender: Connection, model: onnx.ModelProto, feeds: Mapping[str, ModelValue], names: Sequence[str]) -> None:
    processes.silence(2)
    try:
        sender.send(onnxruntime(model, feeds, names))
    except OracleError:
        sender.send(None)


def departures(node: SizedCase, computed: Mapping[str, np.ndarray]) -> list[str | None]:
    """Return, for each oracle that computes a node, how results depart from its results; None where they do not."""
    model, feeds = model_of([node])
    names = [value.name for value in model.graph.output]
    texts: list[str | None] = []
    oracles: tuple[Oracle, ...] = (reference, _run_onnxruntime_in_child)
    for oracle in oracles[1:] if node.name.split(" ")[0] in POOLS else oracles:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                expected = oracle(model, feeds, names)
        except OracleError:
            continue
        pairs = [(computed[name.split("_")[1]], np.asarray(array)) for name, array in expected.items()]
        differences = [text for one, other in pairs if (text := difference(one, other, Tolerance(1e-5))) is not None]
        texts.append(
            f"{'the reference' if oracle is reference else 'ONNX Runtime'}: {differences[0]}" if differences else None
        )
        if not differences:
            break
    return texts


def write(seed: int, folder: Path) -> None:
    """Write the model of a seed and its inputs."""
    model, feeds = model_of(random_nodes(seed))
    write_regular(folder / "model.onnx", model.SerializeToString())
    for name, array in feeds.items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array)
