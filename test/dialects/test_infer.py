"""Shape inference against numpy on random cases."""

from __future__ import annotations

import random

import numpy as np
import pytest
from inference import (
    Shape,
    agree,
    infer,
    infer_or_none,
    onnx_shape,
    random_shape,
    random_slice,
    shapes,
    zeros,
)

from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType


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
