"""Shape inference against numpy and ONNX Runtime on random cases, and symbolic inference against static inference."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from mirlo.dialects import relax
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType

Shape = tuple[int, ...]


REFUSALS = (ValueError, IndexError, RuntimeError)
"""What numpy and ONNX Runtime raise for arguments that make no sense."""


def infer(name: str, *operands: Any, **given: Any) -> Any:
    """What the operator makes of these operands: shapes of f32, `TensorType`s, None, or lists of them."""
    op = relax.OPS[name]
    values = {key: declared.default for key, declared in op._attributes.items()} | given
    assert values.keys() == op._attributes.keys() and REQUIRED not in values.values()
    return op.infer(*map(as_types, operands), **values)


def as_types(operand: Any) -> Any:
    if operand is None or isinstance(operand, TensorType):
        return operand
    return [as_types(member) for member in operand] if isinstance(operand, list) else TensorType.of(operand, "f32")


def shapes(inferred: Any) -> Any:
    return [t.shape for t in inferred] if isinstance(inferred, tuple) else inferred.shape


def agree(expected: Callable[[], Any], found: Callable[[], Any], what: Any) -> bool:
    """Both refuse, or both give the same; returns whether they gave something."""
    try:
        reference = expected()
    except REFUSALS:
        with pytest.raises(OpError):
            pytest.fail(f"{what}: the reference refuses, but inference gives {found()}")
        return False
    assert found() == reference, what
    return True


def onnx_shape(op_type: str, inputs: list[np.ndarray], **attributes: Any) -> Shape:
    """Shape of the first output of one ONNX operator, run by ONNX Runtime."""
    import onnxruntime

    names = [f"x{i}" for i in range(len(inputs))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op_type, names, ["y"], **attributes)],
        "one",
        [onnx.helper.make_tensor_value_info(n, k, x.shape) for n, k, x in zip(names, kinds, inputs, strict=True)],
        [onnx.helper.make_empty_tensor_value_info("y")],
    )
    graph.output[0].type.tensor_type.elem_type = kinds[0]
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(zip(names, inputs, strict=True)))[0].shape
    except Exception as error:  # its exceptions have no base class of their own
        raise RuntimeError(str(error)) from error


def zeros(shape: Shape) -> np.ndarray:
    return np.zeros(shape, np.float32)


def random_shape(rng: random.Random, rank: int, low: int = 1, high: int = 5) -> Shape:
    return tuple(rng.randint(low, high) for _ in range(rank))


@pytest.mark.parametrize("seed", range(60))
def test_broadcasting(seed: int) -> None:
    rng = random.Random(seed)
    full = random_shape(rng, rng.randint(0, 4), low=0)
    one, other, third = (
        tuple(rng.choice([dim, dim, 1, rng.randint(0, 3)]) for dim in full[rng.randint(0, len(full)) :])
        for _ in range(3)
    )
    agree(lambda: np.broadcast_shapes(one, other), lambda: shapes(infer("add", one, other)), (one, other))
    condition = TensorType.of(third, "bool")
    agree(
        lambda: np.broadcast_shapes(third, one, other),
        lambda: shapes(infer("where", condition, one, other)),
        (third, one, other),
    )
    agree(
        lambda: np.broadcast_to(zeros(one), full).shape, lambda: shapes(infer("expand", one, shape=full)), (one, full)
    )


@pytest.mark.parametrize("seed", range(80))
def test_matmul(seed: int) -> None:
    rng = random.Random(seed)
    k = rng.randint(1, 4)
    batch = random_shape(rng, rng.randint(0, 2))
    sides = []
    for vector, matrix in (((k,), (rng.randint(1, 4), k)), ((k,), (k, rng.randint(1, 4)))):
        some = tuple(rng.choice([dim, 1, dim]) for dim in batch[rng.randint(0, len(batch)) :])
        sides.append(rng.choice([vector, matrix, some + matrix, some + matrix]))
    lhs, rhs = sides
    if rng.random() < 0.2:
        rhs = random_shape(rng, rng.randint(0, 3))
    agree(lambda: np.matmul(zeros(lhs), zeros(rhs)).shape, lambda: shapes(infer("matmul", lhs, rhs)), (lhs, rhs))
    if len(lhs) > 1 and len(rhs) > 1:
        agree(
            lambda: np.matmul(zeros(lhs), zeros(rhs)).shape,
            lambda: shapes(infer("matmul", swapped(lhs), swapped(rhs), transpose_lhs=True, transpose_rhs=True)),
            (lhs, rhs),
        )


def swapped(shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2])


@pytest.mark.parametrize(
    "equation",
    [
        "ij,jk->ik",
        "ij,jk",
        "bij,bjk->bik",
        "...ij,...jk->...ik",
        "...ij,jk",
        "ii->i",
        "ii",
        "ij->ji",
        "i,j->ij",
        "ij,ij->",
    ]
    + [
        "b...->...b",
        "bhsd,bhtd->bhst",
        " i j , j -> i ",
        "i...,i...->...",
        "ba",
        "ij,k->ik",
        "ij->ijj",
        "ij->k",
        "i,i,i",
    ],
)
def test_einsum(equation: str) -> None:
    rng = random.Random(equation)
    gave = 0
    for _ in range(40):
        sizes = {letter: rng.randint(1, 3) for letter in equation if letter.isalpha()}
        hidden = random_shape(rng, 2)
        operands = []
        for term in equation.replace(" ", "").split("->")[0].split(","):
            before, dots, after = term.partition("...")
            middle = tuple(rng.choice([dim, 1]) for dim in hidden[rng.randint(0, 2) :]) if dots else ()
            shape = (*[sizes[x] for x in before], *middle, *[sizes[x] for x in after])
            operands.append(shape if rng.random() < 0.9 else random_shape(rng, len(shape)))
        gave += agree(
            lambda operands=operands: np.einsum(equation, *map(zeros, operands)).shape,
            lambda operands=operands: shapes(infer("einsum", list(operands), equation=equation)),
            (equation, operands),
        )
    assert gave or equation in ("ij->ijj", "ij->k")


def windows(rng: random.Random, count: int) -> dict[str, Any]:
    """Random strides, padding and dilations; some left out."""
    full = {
        "strides": random_shape(rng, count, high=3),
        "padding": random_shape(rng, 2 * count, low=0, high=2),
        "dilations": random_shape(rng, count, high=2),
    }
    return {key: value for key, value in full.items() if rng.random() < 0.8}


def as_onnx(attributes: dict[str, Any]) -> dict[str, Any]:
    names = {"padding": "pads", "kernel": "kernel_shape", "groups": "group"}
    return {names.get(key, key): int(value) if isinstance(value, bool) else value for key, value in attributes.items()}


@pytest.mark.parametrize("seed", range(60))
def test_conv(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    groups, per_group, out = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2)
    x = (rng.randint(1, 2), groups * per_group, *random_shape(rng, count, low=2, high=9))
    weight = (groups * out, per_group, *random_shape(rng, count, high=4))
    attributes = {**windows(rng, count), "groups": groups}
    if not agree(
        lambda: onnx_shape("Conv", [zeros(x), zeros(weight)], **as_onnx(attributes)),
        lambda: shapes(infer("conv", x, weight, None, **attributes)),
        (x, weight, attributes),
    ):
        return
    expected = shapes(infer("conv", x, weight, (groups * out,), **attributes))
    last = infer(
        "conv",
        (x[0], *x[2:], x[1]),
        (*weight[2:], weight[1], weight[0]),
        None,
        data_layout="N*C",
        kernel_layout="*IO",
        **attributes,
    )
    assert shapes(last) == (expected[0], *expected[2:], expected[1])


@pytest.mark.parametrize("seed", range(60))
def test_conv_transpose(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 2)
    groups, per_group, out = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2)
    x = (rng.randint(1, 2), groups * per_group, *random_shape(rng, count, low=2, high=6))
    weight = (groups * per_group, out, *random_shape(rng, count, high=4))
    attributes = {**windows(rng, count), "groups": groups}
    strides = attributes.get("strides", (1,) * count)
    attributes["output_padding"] = tuple(rng.randint(0, stride - 1) for stride in strides)
    expected = infer_or_none("conv_transpose", x, weight, None, **attributes)
    if expected is not None:
        assert onnx_shape("ConvTranspose", [zeros(x), zeros(weight)], **as_onnx(attributes)) == expected


def infer_or_none(*arguments: Any, **attributes: Any) -> Any:
    try:
        return shapes(infer(*arguments, **attributes))
    except OpError:
        return None


@pytest.mark.parametrize("seed", range(120))
def test_pool(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    x = (1, rng.randint(1, 2), *random_shape(rng, count, low=2, high=11))
    attributes: dict[str, Any] = {**windows(rng, count), "kernel": random_shape(rng, count, high=4)}
    attributes["ceil_mode"] = rng.random() < 0.7
    if max(attributes.get("padding", (0,))) >= min(attributes["kernel"]):
        del attributes["padding"]  # ONNX Runtime refuses it, whatever the dilation makes of the window
    for name, op_type in (("max_pool", "MaxPool"), ("avg_pool", "AveragePool")):
        found = infer_or_none(name, x, **attributes)
        if found is not None:
            assert onnx_shape(op_type, [zeros(x)], **as_onnx(attributes)) == found, (x, attributes)
    if "dilations" in attributes:
        del attributes["dilations"]
    both = infer_or_none("max_pool_with_indices", x, **attributes)
    assert both is None or both == [infer_or_none("max_pool", x, **attributes)] * 2


def counted_windows(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: bool) -> int:
    """Windows counted one by one."""
    extent = (kernel - 1) * dilation + 1
    starts = range(-pads[0], size if ceil_mode else size + pads[1], stride)
    reach = stride - 1 if ceil_mode else 0
    return sum(start + extent <= size + pads[1] + reach for start in starts)


def test_pool_counts_windows() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        kernel, dilation = rng.randint(1, 4), rng.randint(1, 3)
        extent = (kernel - 1) * dilation + 1
        size, stride = rng.randint(1, 12), rng.randint(1, 5)
        pads = (rng.randint(0, extent - 1), rng.randint(0, extent - 1))
        if size + sum(pads) < extent:
            continue
        for ceil_mode in (False, True):
            attributes = {"kernel": (kernel,), "strides": (stride,), "padding": pads, "dilations": (dilation,)}
            found = shapes(infer("max_pool", (1, 1, size), ceil_mode=ceil_mode, **attributes))[2]
            assert found == counted_windows(size, kernel, stride, dilation, pads, ceil_mode), (size, attributes)


FAR = [2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]


def random_slice(rng: random.Random, rank: int) -> dict[str, Shape]:
    axes = rng.sample(range(rank), rng.randint(0, rank))
    position = lambda: rng.choice([rng.randint(-7, 7), rng.randint(-7, 7), rng.choice(FAR)])  # noqa: E731
    return {
        "axes": tuple(rng.choice([axis, axis - rank]) for axis in axes),
        "begin": tuple(position() for _ in axes),
        "end": tuple(position() for _ in axes),
        "strides": tuple(rng.choice([1, 1, 2, 3, -1, -2]) for _ in axes),
    }


@pytest.mark.parametrize("seed", range(200))
def test_strided_slice(seed: int) -> None:
    rng = random.Random(seed)
    x = random_shape(rng, rng.randint(1, 3), low=0, high=6)
    attributes = random_slice(rng, len(x))
    index = [slice(None)] * len(x)
    for axis, *bounds in zip(*attributes.values(), strict=True):
        index[axis] = slice(*bounds)
    assert shapes(infer("strided_slice", x, **attributes)) == zeros(x)[tuple(index)].shape


@pytest.mark.parametrize("seed", range(100))
def test_pad(seed: int) -> None:
    rng = random.Random(seed)
    x = random_shape(rng, rng.randint(1, 3), high=5)
    mode = rng.choice(["constant", "reflect", "edge", "wrap"])
    pads = random_shape(rng, 2 * len(x), low=0, high=min(x) - 1 if mode == "reflect" else 6)
    pairs = list(zip(pads[: len(x)], pads[len(x) :], strict=True))
    assert shapes(infer("pad", x, pads=pads, mode=mode)) == np.pad(zeros(x), pairs, mode=mode).shape
    crops = tuple(-pad for pad in pads)
    left = tuple(dim - begin - end for dim, (begin, end) in zip(x, pairs, strict=True))
    assert infer_or_none("pad", x, pads=crops) == (left if min(left) >= 0 else None)


@pytest.mark.parametrize("seed", range(60))
def test_reductions(seed: int) -> None:
    rng = random.Random(seed)
    x = random_shape(rng, rng.randint(0, 4))
    axes = rng.choice([None, tuple(rng.randint(-5, 4) for _ in range(rng.randint(0, 3)))])
    keepdims = rng.random() < 0.5
    agree(
        lambda: np.sum(zeros(x), axis=axes, keepdims=keepdims).shape,
        lambda: shapes(infer("reduce_sum", x, axes=axes, keepdims=keepdims)),
        (x, axes),
    )
    axis = rng.randint(-5, 4)
    for name in ("argmax", "argmin"):
        agree(
            lambda: np.argmax(zeros(x), axis=axis, keepdims=keepdims).shape if x else np.zeros(())[axis],
            lambda name=name: shapes(infer(name, x, axis=axis, keepdims=keepdims)),
            (x, axis),
        )


@pytest.mark.parametrize("seed", range(60))
def test_moving_elements(seed: int) -> None:
    rng = random.Random(seed)
    x = random_shape(rng, rng.randint(1, 4), low=0)
    data = zeros(x)
    order = tuple(rng.sample(range(len(x)), len(x)))
    assert shapes(infer("permute", x, axes=order)) == np.transpose(data, order).shape
    repeats = random_shape(rng, len(x), low=0, high=3)
    assert shapes(infer("tile", x, repeats=repeats)) == np.tile(data, repeats).shape
    axes = tuple(rng.randint(-6, 5) for _ in range(rng.randint(1, 3)))
    agree(lambda: np.expand_dims(data, axes).shape, lambda: shapes(infer("expand_dims", x, axes=axes)), (x, axes))
    ones = tuple(rng.choice([1, dim]) for dim in x)
    agree(lambda: np.squeeze(zeros(ones), axes).shape, lambda: shapes(infer("squeeze", ones, axes=axes)), (ones, axes))
    axis = rng.randint(-4, 3)
    others = [tuple(rng.choice([dim] * 9 + [1]) for dim in x) for _ in range(2)]
    agree(lambda: np.stack([data, data], axis).shape, lambda: shapes(infer("stack", [x, x], axis=axis)), (x, axis))
    agree(
        lambda: np.concatenate([data, *map(zeros, others)], axis).shape,
        lambda: shapes(infer("concat", [x, *others], axis=axis)),
        (x, others, axis),
    )


@pytest.mark.parametrize("seed", range(40))
def test_reshape(seed: int) -> None:
    rng = random.Random(seed)
    x, shape = random_shape(rng, 3, high=3), random_shape(rng, rng.randint(1, 4), high=3)
    agree(lambda: zeros(x).reshape(shape).shape, lambda: shapes(infer("reshape", x, shape=shape)), (x, shape))


@pytest.mark.parametrize("seed", range(60))
def test_gather_and_scatter(seed: int) -> None:
    rng = random.Random(seed)
    x = random_shape(rng, rng.randint(1, 4), low=1)
    indices = random_shape(rng, rng.randint(0, 3), high=3)
    whole = TensorType.of(indices, "i64")
    axis = rng.randint(-5, 4)
    agree(
        lambda: np.take(zeros(x), np.zeros(indices, np.int64), axis).shape,
        lambda: shapes(infer("gather", x, whole, axis=axis)),
        (x, indices, axis),
    )
    batch = rng.randint(0, len(x) - 1)
    depth = rng.randint(1, len(x) - batch)
    points = (*x[:batch], *random_shape(rng, rng.randint(0, 2)), depth)
    if len(points) > 1:
        found = shapes(infer("gather_nd", x, TensorType.of(points, "i64"), batch_dims=batch))
        data = [zeros(x), np.zeros(points, np.int64)]
        assert onnx_shape("GatherND", data, batch_dims=batch) == found, (x, points, batch)
    places = TensorType.of((rng.randint(1, 4), depth), "i64")
    updates = (places.shape[0], *x[depth:])
    assert shapes(infer("scatter_nd", x, places, updates)) == x
    assert infer_or_none("scatter_nd", x, places, (*updates, 2)) is None


@pytest.mark.parametrize(
    "start, stop, step", [(0, 7, 2), (7, 0, -2), (0, 1, 0.1), (3, 3, 1), (3, 0, 1), (-1.5, 2, 0.5)]
)
def test_arange(start: float, stop: float, step: float) -> None:
    from mirlo.dialects.core.dtypes import dtype

    found = infer("arange", start=start, stop=stop, step=step, dtype=dtype("f32"))
    assert shapes(found) == np.arange(start, stop, step).shape


def test_element_counts_that_are_known_to_differ() -> None:
    for before, after in (((2, 6), (5,)), (("n", 6), ("n", 5)), (("n + 1",), ("n",)), (("n", "m", 2), ("n*m",))):
        with pytest.raises(OpError, match="elements, but shape"):
            infer("reshape", before, shape=TensorType.of(after, "f32").shape)
    for before, after in (
        (("n", 6), ("m", 5)),
        (("?", 3), (4,)),
        (("n", "m"), ("m*n",)),
        (("n",), ("floordiv(n, 2)", 2)),
    ):
        inferred = infer("reshape", before, shape=TensorType.of(after, "f32").shape)
        assert shapes(inferred) == TensorType.of(after, "f32").shape


CONV = {"strides": (2, 1), "padding": (1, 0, 1, 2), "dilations": (1, 2)}
POOL = {"kernel": (3, 2), "strides": (2, 3), "padding": (1, 0, 1, 1)}
SYMBOLIC: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("add", [("n", 1, "m"), ("m",)], {}),
    ("matmul", [("b", "n", "m"), ("m", 3)], {}),
    ("matmul", [("m", "n"), ("b", 3, "m")], {"transpose_lhs": True, "transpose_rhs": True}),
    ("einsum", [[("b", "n", 3), ("b", 3, "m")]], {"equation": "bij,bjk->bik"}),
    ("conv", [("b", 3, "n", "m"), (4, 3, 3, 2), None], CONV),
    ("conv", [("b", "n", "m", 3), (3, 2, 3, 4), None], {**CONV, "data_layout": "N*C", "kernel_layout": "*IO"}),
    ("conv_transpose", [("b", 3, "n", "m"), (3, 4, 3, 2), None], CONV),
    ("max_pool", [("b", 3, "n", "m")], POOL),
    ("avg_pool", [("b", 3, "n", "m")], {**POOL, "ceil_mode": True}),
    ("lp_pool", [("b", "n", "m", 3)], {**POOL, "ceil_mode": True, "data_layout": "N*C"}),
    ("reduce_sum", [("b", "n", "m")], {"axes": (1,)}),
    ("argmax", [("b", "n", "m")], {"axis": -1}),
    ("reshape", [("b", "n", 8)], {"shape": ("n", "b*2", 4)}),
    ("permute", [("b", "n", "m")], {"axes": (2, 0, 1)}),
    ("tile", [("n", "m + 1")], {"repeats": (2, 3)}),
    ("concat", [[("b", "n"), ("b", 3), ("b", "n + m")]], {"axis": 1}),
    ("stack", [[("b", "n"), ("b", "n")]], {"axis": 1}),
    ("split", [("2*n + 3", "m")], {"axis": 0, "sizes": ("n", 3, "n")}),
    ("pad", [("n", "m")], {"pads": (1, -1, 2, 0)}),
    ("depth_to_space", [("b", 8, "n", "m")], {"block": 2}),
    ("space_to_depth", [("b", 3, "2*n", "4*m")], {"block": 2}),
    ("gather", [("n", "m"), TensorType.of(("b", 2), "i64")], {}),
    ("gather_nd", [("b", "n", "m"), TensorType.of(("b", 3, 1), "i64")], {"batch_dims": 1}),
    ("one_hot", [TensorType.of(("b", "n"), "i64"), (2,)], {"depth": 5, "axis": 1}),
    ("attention", [("b", 4, "n", 8), ("b", 2, "m", 8), ("b", 2, "m", 6), ("n", "m")], {}),
    ("topk", [("b", "n + 4")], {"k": 3}),
    ("dequantize", [TensorType.of(("n", "4*m"), "i8"), ("n", "m"), None], {"block": 4}),
    ("grid_sample", [("b", 3, "n", "m"), ("b", "m", "n", 2)], {}),
    ("shape_of", [("b", "n")], {}),
]


@pytest.mark.parametrize("name, operands, attributes", SYMBOLIC, ids=[case[0] for case in SYMBOLIC])
def test_symbolic_inference_says_what_static_inference_would(name: str, operands: Any, attributes: Any) -> None:
    symbolic = infer(name, *operands, **with_sizes(attributes, {}))
    rng = random.Random(name)
    for _ in range(30):
        sizes = {symbol: rng.randint(3, 12) for symbol in ("b", "n", "m")}
        static = infer(name, *[sized(operand, sizes) for operand in operands], **with_sizes(attributes, sizes))
        expected = [static] if isinstance(static, TensorType) else static
        found = [symbolic] if isinstance(symbolic, TensorType) else symbolic
        assert [sized(t, sizes) for t in found] == list(expected), sizes


def sized(operand: Any, sizes: dict[str, int]) -> Any:
    if operand is None:
        return None
    if isinstance(operand, list):
        return [sized(member, sizes) for member in operand]
    t = as_types(operand)
    return t.with_shape([D.substitute(dim, sizes) for dim in t.shape])


def with_sizes(attributes: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """The attributes with dims instead of text in shapes, and numbers instead of the symbols in them."""
    return {key: sized(value, sizes).shape if key in ("shape", "sizes") else value for key, value in attributes.items()}


@pytest.mark.parametrize("seed", range(200))
def test_symbolic_slice(seed: int) -> None:
    rng = random.Random(seed)
    attributes = random_slice(rng, 1)
    symbolic = infer("strided_slice", ("n",), **attributes)
    for size in range(12):
        expected = shapes(infer("strided_slice", (size,), **attributes))
        assert sized(symbolic, {"n": size}).shape == expected, (size, attributes, symbolic)
