"""Hostile sizes: operators whose result sizes data or shapes of a call decide, and sizes that no memory holds.

A call is refused with an error, or returns the reference evaluator's result. The seeds of a block have one operator, so
that a process compiles few models.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from mirlo.driver.compile import compile as compile_model
from mirlo.runtime.files import replacing, write_regular
from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.compare import Tolerance, difference
from mirlo.tools.bisect.oracles import Oracle, OracleError, onnxruntime, reference
from mirlo.tools.fuzz.differential import RIGHT, WRONG
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    import onnx

    from mirlo.runtime.executable import Executable

COMPUTED = "computed"
STATES = {
    RIGHT: "as the reference evaluator computes it",
    COMPUTED: "computed; the reference evaluator has no result",
    WRONG: "not as the reference evaluator computes it: a bug",
    REFUSED: "an error that tells which size does not fit",
    FAILED: "an error that is not the user's: a bug",
}
BLOCK = 25
"""Seeds in a row that have one operator."""
SMALL = (*range(-3, 7), 0, 1, 2, 3, 17)
LARGE = (
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**40, 2**47, 2**60, 2**61, 2**62, 2**62 + 1, 2**63 - 1,
    -(2**31), -(2**32), -(2**62), -(2**63), -(2**63) + 1,
)  # fmt: skip
"""No tensor of that many elements is in the memory that a process of `mirlo fuzz` may have."""
FLOATS = (0.0, -1.0, 0.5, 2.0, 3.0, 1e9, 1e18, 1e30, -1e30, 3.4e38, np.nan, np.inf, -np.inf)
LONG_DIMS = (0, 1, 2, 3, 2**22, 2**31 - 1, 2**31, 2**32, 2**40, 2**61, 2**62)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGE = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


@dataclass(frozen=True)
class SizeCase:
    """An operator, its operands, and the inputs that the seeds change."""

    feeds: Mapping[str, np.ndarray]
    hostile: tuple[str, ...] = ("s",)
    """Inputs whose elements are sizes, places or counts."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    names: tuple[str, ...] = ()
    """The inputs of the node in order, where some are left out."""
    opset: int = 18
    is_compared: bool = True
    """Whether ONNX defines what other numbers mean."""
    is_cheap: bool = False
    """Whether the reference evaluator takes any sizes: it clamps or refuses them."""


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _int(number: int) -> np.ndarray:
    return np.array(number, np.int64)


CASES: dict[str, SizeCase] = {
    "Expand": SizeCase({"x": X[:1, :1], "s": _ints(3, 2)}),
    "Expand-1": SizeCase({"x": np.ones(1, np.float32), "s": _ints(2, 3, 4)}),
    "Tile": SizeCase({"x": X, "s": _ints(2, 3)}),
    "Pad": SizeCase({"x": X, "s": _ints(1, 0, 0, 1)}),
    "Pad-edge": SizeCase({"x": X, "s": _ints(1, 0, 0, 1)}, attributes={"mode": "edge"}),
    "Pad-reflect": SizeCase({"x": X, "s": _ints(1, 0, 0, 1)}, attributes={"mode": "reflect"}),
    "ConstantOfShape": SizeCase({"s": _ints(1, 2, 3)}),
    "Range": SizeCase({"a": _int(0), "s": _int(5), "d": _int(1)}, ("a", "s", "d")),
    "Range-f32": SizeCase({"a": np.float32(0), "s": np.float32(5), "d": np.float32(1)}, ("s", "d")),
    "OneHot": SizeCase({"x": _ints(1, 2, 3), "s": _ints(5), "v": np.array([0, 1], np.float32)}),
    "Resize": SizeCase({"x": IMAGE, "s": np.array([1, 1, 2, 2], np.float32)}, names=("x", "", "s")),
    "Resize-sizes": SizeCase(
        {"x": IMAGE, "s": _ints(1, 2, 6, 8)}, names=("x", "", "", "s"), attributes={"mode": "linear"}
    ),
    "Reshape": SizeCase({"x": X, "s": _ints(2, 6)}, is_cheap=True),
    "Reshape-zero": SizeCase({"x": X[:0], "s": _ints(0, 6)}, attributes={"allowzero": 1}),
    "Slice": SizeCase(
        {"x": X, "s": _ints(0), "e": _ints(3), "a": _ints(0), "d": _ints(1)}, ("s", "e", "d"), is_cheap=True
    ),
    "Gather": SizeCase({"x": X, "s": _ints(0, 2)}, is_cheap=True),
    "GatherElements": SizeCase({"x": X, "s": _ints(0, 2).reshape(1, 2)}, is_cheap=True),
    "GatherND": SizeCase({"x": X, "s": _ints(0, 2)}, is_cheap=True),
    "ScatterElements": SizeCase({"x": X, "s": _ints(0, 2).reshape(1, 2), "u": X[:1, :2]}),
    "ScatterND": SizeCase({"x": X, "s": _ints(0, 2).reshape(1, 2), "u": X[0, :1]}),
    "TopK": SizeCase({"x": X, "s": _ints(2)}, attributes={"axis": 1}, outputs=2),
    "Split": SizeCase({"x": X, "s": _ints(1, 3)}, attributes={"axis": 1}, outputs=2),
    "Trilu": SizeCase({"x": X, "s": _int(1)}, is_cheap=True),
    "CenterCropPad": SizeCase({"x": X, "s": _ints(2, 2)}),
    "HannWindow": SizeCase({"s": _int(7)}),
    "BlackmanWindow": SizeCase({"s": _int(7)}, is_compared=False),  # its ends cancel, but for rounding
    "AffineGrid": SizeCase({"t": np.ones((1, 2, 3), np.float32), "s": _ints(1, 1, 2, 3)}, opset=20),
    "ReverseSequence": SizeCase(
        {"x": X, "s": _ints(1, 2, 3, 1)}, is_compared=False, attributes={"batch_axis": 1, "time_axis": 0}
    ),
    "Col2Im": SizeCase({"x": np.ones((1, 4, 4), np.float32), "s": _ints(3, 3), "b": _ints(2, 2)}, ("s", "b")),
    "DFT": SizeCase({"x": X.reshape(1, 12, 1), "s": _int(8)}, attributes={"axis": 1}, opset=17),
    "MaxUnpool": SizeCase(
        {"x": IMAGE[:, :, :2, :2], "i": _ints(0, 2, 5, 7, 9, 11, 13, 15).reshape(1, 2, 2, 2), "s": _ints(1, 2, 4, 4)},
        ("i", "s"), {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "NonMaxSuppression": SizeCase(
        {"b": np.ones((1, 3, 4), np.float32), "c": np.ones((1, 1, 3), np.float32), "s": _ints(2)},
    ),
    "RoiAlign": SizeCase(
        {"x": IMAGE, "r": np.array([[0, 0, 2, 2]], np.float32), "s": _ints(0)}, ("r", "s"), opset=16,
    ),
    "GridSample": SizeCase({"x": IMAGE, "g": np.zeros((1, 2, 2, 2), np.float32)}, ("g",), opset=16),
    "CumSum": SizeCase({"x": X, "s": _int(1)}),
    "Upsample": SizeCase({"x": IMAGE, "s": np.array([1, 1, 2, 2], np.float32)}, opset=9),
}  # fmt: skip
DIMS: dict[str, tuple[tuple[tuple[str | int, ...], ...], dict[str, object]]] = {
    "Gemm": ((("n", "k"), ("m", "k")), {"transB": 1}),
    "MatMul": ((("n", "k"), ("k", "m")), {}),
    "Add": ((("n", 1, "k"), (1, "m", "k")), {}),
    "Concat": ((("n", "k"), ("m", "k")), {"axis": 0}),
    "Flatten": ((("n", "m", "k"),), {"axis": 2}),
    "Transpose": ((("n", "k"),), {"perm": [1, 0]}),
    "Softmax": ((("n", "k"),), {"axis": 1}),
    "ReduceSum": ((("n", "k", "m"),), {"keepdims": 0}),
    "Einsum": ((("n", "k"), ("m", "k")), {"equation": "nk,mk->nm"}),
    "Conv": ((("n", 2, "k", "m"), (3, 2, 2, 2)), {}),
    "MaxPool": ((("n", 2, "k"),), {"kernel_shape": [2], "pads": [1, 1]}),
    "ConvTranspose": ((("n", 2, "k"), (2, 3, 2)), {"strides": [1 << 20]}),
    "SpaceToDepth": ((("n", 4, "k", "m"),), {"blocksize": 2}),
    "Shape": ((("n", "k"),), {}),
    "Size": ((("n", "m", "k"),), {}),
    "Relu": ((("n", "m", "k"),), {}),
    "NonZero": ((("n", "k"),), {}),
    "EyeLike": ((("n", "k"),), {}),
    "GlobalAveragePool": ((("n", "m", "k"),), {}),
}
"""Operators over arrays without elements, whose other dims may be any number."""
ALL = (*CASES, *(f"{name} of empty arrays" for name in DIMS))


@dataclass(frozen=True)
class ModelCall:
    """A model and the arguments of a call."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    is_known: bool
    """Whether the reference evaluator can be asked."""


def hostile_call(seed: int) -> ModelCall:
    """Return the call of a seed."""
    rng = np.random.default_rng([seed, 4])
    name = ALL[seed // BLOCK % len(ALL)]
    with_sum = seed // BLOCK // len(ALL) % 2 == 1
    if name in CASES:
        return _call_of_data(name, with_sum, rng)
    return _call_of_dims(name.split(" ")[0], rng)


def _call_of_data(name: str, with_sum: bool, rng: np.random.Generator) -> ModelCall:
    case = CASES[name]
    is_usual, feeds = bool(rng.random() < 0.15), dict(case.feeds)
    for each in () if is_usual else case.hostile:
        feeds[each] = _changed(case.feeds[each], with_sum, rng)
    is_cancelled = with_sum and name == "DFT"  # but for rounding, the sum of a period is 0
    is_small = all(np.isfinite(feeds[each]).all() and (np.abs(feeds[each]) <= 64).all() for each in case.hostile)
    is_known = is_usual or (case.is_compared and (is_small or case.is_cheap))
    return ModelCall(name, model_of_data(name, with_sum), feeds, is_known and not is_cancelled)


def _changed(usual: np.ndarray, with_sum: bool, rng: np.random.Generator) -> np.ndarray:
    """Change some values; with sums over many elements, sizes are small or far too large."""
    flat = usual.copy().reshape(-1)
    large = [number for number in LARGE if not with_sum or abs(number) >= 2**61]
    floats = [number for number in FLOATS if not with_sum or not 100 < abs(number) < 2.0**61]
    for place in range(flat.size):
        if rng.random() < 0.3:
            continue
        if flat.dtype.kind == "f":
            flat[place] = floats[int(rng.integers(len(floats)))]
        else:
            numbers = SMALL if rng.random() < 0.3 else large
            flat[place] = numbers[int(rng.integers(len(numbers)))]
    changed: np.ndarray = flat.reshape(usual.shape)
    return changed


def _call_of_dims(name: str, rng: np.random.Generator) -> ModelCall:
    shapes, _ = DIMS[name]
    sizes = {dim: int(LONG_DIMS[int(rng.integers(len(LONG_DIMS)))]) for dim in ("n", "m")}
    feeds = {}
    for index, shape in enumerate(shapes):
        known = [{**sizes, "k": 0}[dim] if isinstance(dim, str) else dim for dim in shape]
        try:
            feeds[f"x{index}"] = np.zeros(known, np.float32)
        except (ValueError, MemoryError):  # numpy has no such array
            feeds[f"x{index}"] = np.zeros([min(dim, 3) for dim in known], np.float32)
    return ModelCall(f"{name} of empty arrays", model_of_dims(name), feeds, max(sizes.values()) < 64)


@lru_cache(maxsize=8)
def model_of_data(name: str, with_sum: bool = False) -> onnx.ModelProto:
    """Return the model of a case, of one node; or of two, where a sum over the result needs it in no memory."""
    case = CASES[name]
    names = case.names or tuple(case.feeds)
    outputs = [f"y{i}" for i in range(case.outputs)]
    operator = name.split("-")[0]
    nodes = [helper.make_node(operator, names, outputs, name="sized", **case.attributes)]
    if with_sum:
        nodes.append(helper.make_node("ReduceSum", ["y0"], ["z"], name="sum"))
        outputs = ["z", *outputs[1:]]
    return _model(nodes, case.feeds, {each: array.shape for each, array in case.feeds.items()}, outputs, case.opset)


@lru_cache(maxsize=8)
def model_of_dims(name: str) -> onnx.ModelProto:
    """Return the model of an operator over arrays of any sizes."""
    shapes, attributes = DIMS[name]
    inputs = {f"x{index}": shape for index, shape in enumerate(shapes)}
    nodes = [helper.make_node(name, list(inputs), ["y"], name="sized", **attributes)]
    return _model(nodes, dict.fromkeys(inputs, X), inputs, ["y"], 18)


def _model(
    nodes: list[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int | str]],
    outputs: list[str],
    opset: int,
) -> onnx.ModelProto:
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for name, array in feeds.items()}
    values = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", values, [helper.make_empty_tensor_value_info(name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@lru_cache(maxsize=4)
def _compiled(content: bytes) -> Executable:
    result: Executable = compile_model(content, jobs=1, cache=False)
    return result


def judge(seed: int) -> SeedVerdict:
    """Call the model of a seed."""
    call = hostile_call(seed)
    shown = ", ".join(f"{name}={_shown(array)}" for name, array in call.feeds.items())
    try:
        computed = _compiled(call.model.SerializeToString()).run(call.feeds)
    except Exception as error:
        return verdict_of_error(error, f"{call.name}: {shown}", (call.name,))
    text = _departs(call, computed, reference) if call.is_known else None
    if text and not _departs(call, computed, onnxruntime):
        text = None  # numpy has no slice from an element before the first one, ONNX begins with the first
    if text is None:
        return SeedVerdict(RIGHT if call.is_known else COMPUTED, "", (call.name,))
    return SeedVerdict(WRONG if text else COMPUTED, f"{call.name}: {shown}: {text}" if text else "", (call.name,))


def _shown(array: np.ndarray) -> str:
    return f"{array.shape}" if array.size > 8 or not array.size else str(array.tolist())


def _departs(call: ModelCall, computed: Mapping[str, np.ndarray], oracle: Oracle) -> str | None:
    """Return how results depart from those of an oracle; empty where it has none."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = oracle(call.model, call.feeds, list(computed))
    except OracleError:
        return ""
    for name, array in computed.items():
        if name not in expected:
            return ""
        text = difference(array, np.asarray(expected[name]), Tolerance(1e-5))
        if text is not None:
            return f"'{name}': {text}"
    return None


def write(seed: int, folder: Path) -> None:
    """Write the model of a seed and the arguments of its call."""
    call = hostile_call(seed)
    write_regular(folder / "model.onnx", call.model.SerializeToString())
    for name, array in call.feeds.items():
        with replacing(folder / f"{name}.npy") as file:
            np.save(file, array)
