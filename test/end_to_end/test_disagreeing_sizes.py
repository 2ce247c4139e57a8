"""Operators whose operands disagree: each dim is a symbol, and one less, one more, 0, 1 and much larger in turn.

A call computes what the reference evaluator does, or is refused with an error. It runs in a process of its own, whose
end by a signal is a failure.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import mirlo
from mirlo.runtime.errors import MirloError
from mirlo.tools.bisect.compare import Tolerance, difference
from mirlo.tools.bisect.oracles import OracleError, reference
from mirlo.tools.fuzz.empty import CASES, EmptyCase

MUCH_LARGER = 20000
IMAGE = ("n", "c", "h", "w")
MORE = {
    "Gather rows": EmptyCase((("n", "m"), ("k", "p")), {"axis": 0}, integers=(1,)),
    "GatherElements any": EmptyCase((("k", "m"), ("n", "p")), {"axis": 1}, integers=(1,)),
    "GatherND batch": EmptyCase((("b", "n", "m"), ("b", 1)), {"batch_dims": 1}, integers=(1,)),
    "ScatterElements any": EmptyCase((("k", "m"), ("n", "p"), ("n", "p")), {"axis": 1}, integers=(1,)),
    "ScatterElements add": EmptyCase(
        (("n", "m"), ("k", "p"), ("k", "p")), {"axis": 0, "reduction": "add"}, integers=(1,)
    ),
    "ScatterND any": EmptyCase((("n", "m"), ("k", 2), ("k",)), {"reduction": "max"}, integers=(1,)),
    "Where": EmptyCase((("n", 1), ("n", "m"), (1, "m")), dtypes=(np.float32,)),
    "Add both": EmptyCase((("n", "m"), ("n", "m"))),
    "PRelu": EmptyCase((("n", "m"), ("m",))),
    "Conv grouped": EmptyCase(((1, "c", "w"), ("k", 2, 2), ("k",)), {"group": 2}),
    "GridSample": EmptyCase((IMAGE, ("n", "p", "q", 2)), opset=20),
    "RoiAlign": EmptyCase((IMAGE, ("k", 4), ("k",)), integers=(2,), opset=20),
    "Resize sizes": EmptyCase((IMAGE,), {"mode": "linear"}, (None, None, np.array([8, 1, 2, 3]))),
    "Resize": EmptyCase((IMAGE,), {"mode": "linear"}, (None, np.array([1, 1, 2, 2], np.float32))),
    "Pad reflect": EmptyCase((("n", "m"),), {"mode": "reflect"}, (np.array([1, 1, 1, 1]),)),
    "Col2Im": EmptyCase((("n", 12, "k"),), {}, (np.array([3, 3]), np.array([2, 2]))),
    "Attention": EmptyCase((("b", 2, "s", 4), ("b", 2, "t", 4), ("b", 2, "t", 3)), opset=23),
    "DepthToSpace any": EmptyCase((("n", 8, "h", "w"),), {"blocksize": 2}),
    "SpaceToDepth any": EmptyCase((("n", 2, 4, 4),), {"blocksize": 2}),
    "Split any": EmptyCase((("n", 5),), {"axis": 1}, (np.array([2, 3]),), outputs=2),
    "Squeeze": EmptyCase((("n", 1, "m"),), {}, (np.array([1]),)),
    "LayerNormalization any": EmptyCase((("n", "m"), ("m",), ("m",)), {"axis": -1}),
}  # fmt: skip
SIZES = dict(zip("nmkbpchwtsq", (2, 3, 4, 2, 2, 4, 4, 4, 3, 2, 3), strict=True))
UNCOMPARED = ("RNN", "GRU", "LSTM", "LRN", "Unique", "Attention", "Resize")
"""Operators whose reference is slow, or computes something else; they are run all the same."""
Sizes = list[tuple[int, ...]]


def _all_cases() -> dict[str, EmptyCase]:
    return {**{name: case for name, case in CASES.items() if " " not in name}, **MORE}


def _model(name: str, case: EmptyCase, are_symbols: bool) -> onnx.ModelProto:
    """Return a model of the operator, each dim of each operand a symbol of its own."""
    values, names = [], []
    for i, shape in enumerate(case.shapes):
        names.append(f"x{i}")
        dtype = np.int64 if i in case.integers else _dtype(name, case, i)
        dims = [f"d{i}_{k}" if are_symbols or isinstance(dim, str) else dim for k, dim in enumerate(shape)]
        values.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
    constants = []
    for k, constant in enumerate(case.constants):
        names.append("" if constant is None else f"c{k}")
        if constant is not None:
            content = constant.astype(case.dtypes[0]) if name == "Pad" and k == 1 else constant
            constants.append(numpy_helper.from_array(content, names[-1]))
    results = [f"y{k}" for k in range(case.outputs)]
    operator = helper.make_node(name.split(" ")[0], names, results, name="node", **case.attributes)
    outputs = [helper.make_empty_tensor_value_info(result) for result in results]
    graph = helper.make_graph([operator], "g", values, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def _dtype(name: str, case: EmptyCase, number: int) -> type:
    return bool if (name, number) == ("Where", 0) else case.dtypes[0]  # type: ignore[return-value]


def _disagreeing(case: EmptyCase) -> Iterator[Sizes]:
    """Yield shapes of the operands: those that agree, then those of which one dim is another number."""
    agreed = [tuple(SIZES[dim] if isinstance(dim, str) else dim for dim in shape) for shape in case.shapes]
    yield agreed
    for i, shape in enumerate(agreed):
        for axis, size in enumerate(shape):
            for other in dict.fromkeys((size - 1, size + 1, 0, 1, MUCH_LARGER)):
                if other != size and np.prod(shape, dtype=float) / max(size, 1) * other < 1e7:
                    changed = (*shape[:axis], other, *shape[axis + 1 :])
                    yield [*agreed[:i], changed, *agreed[i + 1 :]]


def _feeds(name: str, case: EmptyCase, shapes: Sizes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        f"x{i}": rng.integers(0, 2, shape)
        if i in case.integers
        else rng.integers(1, 5, shape).astype(_dtype(name, case, i))
        for i, shape in enumerate(shapes)
    }


def _run_all(name: str, sender: Connection) -> None:
    """Run an operator over all sizes; send each case, and then the failures."""
    case, wrong = _all_cases()[name], list[str]()
    model = _model(name, case, True)
    try:
        function = mirlo.compile(model, jobs=1)
    except MirloError:
        model = _model(name, case, False)  # a dim decides the rank, or an algorithm
        function = mirlo.compile(model, jobs=1)
    for shapes in _disagreeing(case):
        sender.send(str(shapes))
        feeds = _feeds(name, case, shapes)
        try:
            computed = function.run(feeds)
        except MirloError as error:
            if shapes == next(_disagreeing(case)):
                wrong.append(f"{shapes}: {error}")
            continue
        except Exception as error:
            wrong.append(f"{shapes}: {type(error).__name__}: {error}")
            continue
        if name.split(" ")[0] not in UNCOMPARED and max(max(shape, default=0) for shape in shapes) < MUCH_LARGER:
            wrong += [f"{shapes}: {text}" for text in _departures(model, feeds, computed)]
    sender.send(wrong)


def _departures(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], computed: Mapping[str, np.ndarray]
) -> list[str]:
    """Return how results depart from those of the reference evaluator, if it has any."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = reference(model, dict(feeds), list(computed))
    except OracleError:
        return []
    found = [difference(computed[name], np.asarray(array), Tolerance(1e-4)) for name, array in expected.items()]
    return [text for text in found if text is not None]


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", _all_cases())
def test_operands_that_disagree(name: str) -> None:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_all, args=(name, sender))
    process.start()
    sender.close()
    last: str | list[str] = "compiled"
    try:
        while isinstance(last, str):
            last = receiver.recv()
    except EOFError:
        pass
    process.join()
    assert process.exitcode == 0, f"ended with {process.exitcode} over {last}"
    assert last == []
