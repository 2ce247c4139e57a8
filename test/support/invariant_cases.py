"""Models with a batch in front, whose rows are independent: what the option `invariant` is tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_models import F32, make_model, node
from packed_products import Weights

import mirlo

Shape = tuple[int, ...]


@dataclass(frozen=True)
class BatchedCase:
    """A model whose inputs and results have the batch as first dim."""

    name: str
    shapes: tuple[Shape, ...]
    """The shapes of the inputs without the batch."""
    build: Callable[[list[list[Any]]], Any]
    """Return the model for these shapes."""

    def model(self, batch: int | str) -> Any:
        """Return the model for a batch, or for any."""
        return self.build([[batch, *shape] for shape in self.shapes])

    def rows(self, count: int) -> list[np.ndarray]:
        """Return rows of each input."""
        random = np.random.default_rng(len(self.name))
        return [random.standard_normal((count, *shape)).astype(np.float32) for shape in self.shapes]


def weight(*shape: int, seed: int = 1) -> np.ndarray:
    """Return random weights."""
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def graph(nodes: Sequence[Any], **constants: np.ndarray) -> Callable[[list[list[Any]]], Any]:
    """Return a function from shapes of the inputs a, b, ... to the model of these nodes."""

    def build(shapes: list[list[Any]]) -> Any:
        inputs = {name: (F32, shape) for name, shape in zip("abc", shapes, strict=False)}
        return make_model(list(nodes), inputs, ["y"], constants)

    return build


def _conv(channels: int, out: int, size: int, **attributes: Any) -> Callable[[list[list[Any]]], Any]:
    group = attributes.get("group", 1)
    return graph(
        [node("Conv", "a w v", "c", **attributes), node("Relu", "c", "y")],
        w=weight(out, channels // group, size, size), v=weight(out),
    )  # fmt: skip


def _gemm(k: int, n: int, transposed: bool = False) -> Callable[[list[list[Any]]], Any]:
    if transposed:
        return graph([node("Gemm", "a w v", "y", transB=1)], w=weight(n, k), v=weight(n))
    return graph([node("MatMul", "a w", "c"), node("Gelu", "c", "y")], w=weight(k, n))


def _packed(weights: Weights) -> Callable[[list[list[Any]]], Any]:
    return lambda shapes: weights.model(shape=tuple(shapes[0][:1]))


SCORES = [
    node("Transpose", "b", "k", perm=[0, 1, 3, 2]),
    node("MatMul", "a k", "s"),
    node("Softmax", "s", "p", axis=-1),
    node("MatMul", "p c", "y"),
]
NORMALIZED = [node("LayerNormalization", "a g v", "y", axis=-1)]
VARIANCE = [
    node("ReduceMean", "a x", "m"),
    node("Sub", "a m", "d"),
    node("Mul", "d d", "e"),
    node("ReduceMean", "e x", "v"),
    node("Div", "d v", "y"),
]

CASES = [
    *(
        BatchedCase(f"gemm {k}x{n}", ((k,),), _gemm(k, n))
        for k, n in ((64, 64), (100, 7), (768, 200), (33, 1), (300, 33))
    ),
    *(BatchedCase(f"gemm {k}x{n} transposed", ((k,),), _gemm(k, n, True)) for k, n in ((64, 64), (129, 10), (512, 1))),
    *(
        BatchedCase(f"rows {r}x{k}x{n}", ((r, k),), _gemm(k, n))
        for r, k, n in ((1, 64, 96), (3, 70, 17), (17, 128, 64))
    ),
    *(
        BatchedCase(f"conv {c}->{o} {size}x{size} of {side}", ((c, side, side),), _conv(c, o, size, **attributes))
        for c, o, size, side, attributes in (
            (3, 32, 3, 32, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
            (16, 32, 3, 14, {"pads": [1, 1, 1, 1]}),
            (64, 64, 3, 28, {"pads": [1, 1, 1, 1]}),
            (64, 128, 3, 7, {"pads": [1, 1, 1, 1]}),
            (128, 64, 1, 7, {}),
            (64, 256, 1, 1, {}),
            (32, 32, 3, 14, {"pads": [1, 1, 1, 1], "group": 32}),
            (24, 12, 5, 9, {"group": 4}),
        )
    ),
    BatchedCase("product of inputs", ((5, 40), (40, 9)), graph([node("MatMul", "a b", "y")])),
    BatchedCase("product with one row", ((1, 48), (48, 30)), graph([node("MatMul", "a b", "y")])),
    BatchedCase(
        "product of transposed inputs", ((3, 48), (21, 48)),
        graph([node("Transpose", "b", "t", perm=[0, 2, 1]), node("MatMul", "a t", "y")]),
    ),
    BatchedCase("dot", ((1, 77), (77, 1)), graph([node("MatMul", "a b", "y")])),
    BatchedCase("attention", ((4, 33, 32), (4, 33, 32), (4, 33, 32)), graph(SCORES)),
    BatchedCase("attention of one row", ((4, 1, 64), (4, 50, 64), (4, 50, 64)), graph(SCORES)),
    BatchedCase("attention of few rows", ((2, 9, 64), (2, 130, 64), (2, 130, 64)), graph(SCORES)),
    BatchedCase("softmax", ((6, 77),), graph([node("Softmax", "a", "y", axis=-1)])),
    BatchedCase("softmax of one row", ((1000,),), graph([node("Softmax", "a", "y", axis=-1)])),
    BatchedCase("softmax of columns", ((30, 5),), graph([node("Softmax", "a", "y", axis=1)])),
    BatchedCase("layer norm", ((9, 100),), graph(NORMALIZED, g=weight(100), v=weight(100, seed=2))),
    BatchedCase("variance", ((768,),), graph(VARIANCE, x=np.array([-1]))),
    BatchedCase(
        "instance norm", ((6, 10, 10),),
        graph([node("InstanceNormalization", "a g v", "y")], g=weight(6), v=weight(6, seed=2)),
    ),
    BatchedCase("mean of pixels", ((40, 7, 7),), graph([node("GlobalAveragePool", "a", "y")])),
    BatchedCase(
        "mean of all", ((3, 5, 7),), graph([node("ReduceMean", "a x", "y", keepdims=0)], x=np.array([1, 2, 3]))
    ),
    BatchedCase("sum of columns", ((50, 3),), graph([node("ReduceSum", "a x", "y", keepdims=0)], x=np.array([1]))),
    BatchedCase("pool", ((8, 11, 11),), graph([node("AveragePool", "a", "y", kernel_shape=[3, 3], strides=[2, 2])])),
    BatchedCase("running sum", ((60,),), graph([node("CumSum", "a x", "y")], x=np.array(1))),
    BatchedCase(
        "einsum", ((4, 10, 8), (4, 8, 12)), graph([node("Einsum", "a b", "y", equation="bhij,bhjk->bihk")]),
    ),
    *(
        BatchedCase(
            f"weights of {bits} bits by {block} {zeros}", ((rows,),),
            _packed(Weights(columns, rows, bits, block, zeros)),
        )
        for columns, rows, bits, block, zeros in (
            (50, 128, 4, 32, "packed"), (33, 96, 4, 32, ""), (64, 256, 2, 64, "real"), (40, 64, 8, 32, ""),
            (70, 160, 4, 16, ""), (64, 256, 8, 64, "packed"),
        )
    ),
]  # fmt: skip


def different_rows(case: BatchedCase, batches: Sequence[int], dynamic: bool = True, **options: Any) -> list[str]:
    """Return in which batches rows of a case have other bits than alone, for models of one batch and of any."""
    most = max(batches)
    rows = case.rows(most)
    alone = mirlo.compile(case.model(1), cache=False, jobs=1, **options)
    expected = [np.asarray(alone(*(each[i : i + 1] for each in rows))) for i in range(most)]
    threads = (1, 2) if dynamic else ()
    of_any = [mirlo.compile(case.model("n"), cache=False, jobs=1, threads=each, **options) for each in threads]
    found = []
    for batch in batches:
        order = np.random.default_rng(batch).permutation(most)[:batch]
        of_one = [] if dynamic else [mirlo.compile(case.model(batch), cache=False, jobs=1, **options)]
        named = [(f"dynamic, {count} threads", each) for count, each in zip(threads, of_any, strict=True)]
        for name, executable in [*named, *(("static", each) for each in of_one)]:
            result = np.asarray(executable(*(each[order] for each in rows)))
            wrong = [int(i) for at, i in enumerate(order) if result[at].tobytes() != expected[i][0].tobytes()]
            found += [f"{name} batch of {batch}: rows {wrong}"] if wrong else []
    return found
