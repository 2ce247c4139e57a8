"""Cases of operators that move, select, order and reduce elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.dialects.relax import OPS
from mirlo.tools.conformance.case import ANY, NUMERIC_TYPES, TABLE, Draw, OperatorCase, case, operator, wide
from mirlo.tools.conformance.derived import expected


def _moves(name: str, **attributes: object) -> None:
    """Add a case of an operator that moves the elements of x, of shape (4, 6, 8), as its class says."""

    def make(draw: Draw) -> OperatorCase:
        x = draw.array(4, 6, 8)
        return OperatorCase((x,), attributes, expected(OPS[name], [x], attributes))

    TABLE.add(name, ANY, make)


_moves("reshape", shape=(6, 32))
_moves("permute", axes=(2, 0, 1))
_moves("expand", shape=(3, 4, 6, 8))
_moves("expand_dims", axes=(1, 3))
_moves("tile", repeats=(1, 2, 3))
_moves("reverse", axes=(0, 2))
_moves("strided_slice", axes=(0, 2), begin=(1, -1), end=(4, 0), strides=(1, -2))
_moves("split", axis=1, sizes=(2, 4))
_moves("tri", k=1)


@operator("squeeze", kinds=ANY)
def _squeeze(draw: Draw) -> OperatorCase:
    x = draw.array(4, 1, 8)
    return case(x, axes=[1], expected=wide(x).reshape(4, 8))


@operator("depth_to_space", kinds=ANY)
def _depth_to_space(draw: Draw) -> OperatorCase:
    x = draw.array(2, 12, 3, 5)
    moved = wide(x).reshape(2, 2, 2, 3, 3, 5).transpose(0, 3, 4, 1, 5, 2)
    return case(x, block=2, expected=moved.reshape(2, 3, 6, 10))


@operator("space_to_depth", kinds=ANY)
def _space_to_depth(draw: Draw) -> OperatorCase:
    x = draw.array(2, 3, 6, 10)
    moved = wide(x).reshape(2, 3, 3, 2, 5, 2).transpose(0, 3, 5, 1, 2, 4)
    return case(x, block=2, expected=moved.reshape(2, 12, 3, 5))


def _pad(mode: str) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        x = draw.array(5, 19)
        extra: dict[str, int] = {"constant_values": 1} if mode == "constant" else {}
        expected = np.pad(wide(x), [(1, 2), (3, 0)], mode=mode, **extra)  # type: ignore[call-overload]
        return case(x, pads=[1, 3, 2, 0], mode=mode, value=1.0, expected=expected)

    return make


for _mode in ("constant", "reflect", "edge", "wrap"):
    TABLE.add("pad", NUMERIC_TYPES, _pad(_mode))


@operator("concat", kinds=ANY)
def _concat(draw: Draw) -> OperatorCase:
    parts = [draw.array(3, size, 5) for size in (4, 1, 7)]
    return case(parts, axis=1, expected=np.concatenate([wide(x) for x in parts], 1))


@operator("stack", kinds=ANY)
def _stack(draw: Draw) -> OperatorCase:
    parts = [draw.array(3, 5) for _ in range(3)]
    return case(parts, axis=1, expected=np.stack([wide(x) for x in parts], 1))


@operator("full", kinds=ANY)
def _full(draw: Draw) -> OperatorCase:
    return case(shape=(3, 5), value=1.0, dtype=draw.kind, expected=np.ones((3, 5)))


@operator("arange", kinds=("f32", "f64", "i32", "i64"))
def _arange(draw: Draw) -> OperatorCase:
    return case(start=2.0, stop=11.0, step=3.0, dtype=draw.kind, expected=np.arange(2, 11, 3))


@operator("dft_matrix", kinds=("f32", "f64"))
def _dft_matrix(draw: Draw) -> OperatorCase:
    spectra = np.fft.fft(np.eye(5), 7)
    expected = np.stack([spectra.real, spectra.imag], 2)[:, None]
    return case(shape=[5, 1, 7, 2], length=[7], dtype=draw.kind, expected=expected)


@operator("dft_matrix", kinds=("f32", "f64"))
def _inverse_dft_matrix(draw: Draw) -> OperatorCase:
    """Return a case from half a spectrum to its real signal."""
    parts = np.eye(4)
    signals = np.stack([np.fft.irfft(parts, 6), np.fft.irfft(parts * 1j, 6)], 1)[..., None]
    return case(
        shape=[4, 2, 6, 1], length=[6], inverse=True, mirrored=True, dtype=draw.kind, expected=signals
    )  # fmt: skip


@operator("eye", kinds=ANY)
def _eye(draw: Draw) -> OperatorCase:
    return case(shape=(4, 6), k=1, dtype=draw.kind, expected=np.eye(4, 6, 1))


@operator("shape_of", kinds=("f32",))
def _shape_of(draw: Draw) -> OperatorCase:
    return case(draw.array(3, 5), expected=np.array([3, 5]))


@operator("gather", kinds=ANY)
def _gather(draw: Draw) -> OperatorCase:
    x, indices = draw.array(5, 7, 9), draw.ints(-7, 7, 2, 3)
    return case(x, indices, axis=1, expected=np.take(wide(x), indices, 1, mode="wrap"))


@operator("gather_elements", kinds=ANY)
def _gather_elements(draw: Draw) -> OperatorCase:
    x, indices = draw.array(5, 9), draw.ints(0, 5, 3, 9)
    return case(x, indices, axis=0, expected=np.take_along_axis(wide(x), indices, 0))


@operator("gather_nd", kinds=ANY)
def _gather_nd(draw: Draw) -> OperatorCase:
    x, points = draw.array(5, 7, 9), np.stack([draw.ints(0, 5, 4), draw.ints(0, 7, 4)], -1)
    return case(x, points, expected=wide(x)[points[:, 0], points[:, 1]])


def _scatter(reduction: str, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        x, updates = draw.array(5, 9), draw.array(3, 9)
        indices = np.stack([draw.random.permutation(5)[:3] for _ in range(9)], 1)
        expected = wide(x).copy()
        for at in np.ndindex(indices.shape):
            where = indices[at], at[1]
            expected[where] = combine(expected[where], wide(updates)[at])
        return case(x, indices, updates, axis=0, reduction=reduction, expected=expected)

    return make


_COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum
}  # fmt: skip
for _how, _combine in _COMBINE.items():
    TABLE.add("scatter_elements", NUMERIC_TYPES, _scatter(_how, _combine))


@operator("scatter_nd", kinds=NUMERIC_TYPES)
def _scatter_nd(draw: Draw) -> OperatorCase:
    x, updates, points = draw.array(5, 9), draw.array(3, 9), draw.random.permutation(5)[:3, None]
    expected = wide(x).copy()
    expected[points[:, 0]] = wide(updates)
    return case(x, points, updates, expected=expected)


@operator("one_hot", kinds=ANY)
def _one_hot(draw: Draw) -> OperatorCase:
    indices, values = draw.ints(-4, 4, 6), np.array([0, 1]).astype(draw.kind.to_numpy())
    return case(indices, values, depth=4, expected=np.eye(4)[indices % 4])


@operator("sort", kinds=NUMERIC_TYPES)
def _sort(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 9)
    return case(x, axis=0, descending=True, expected=np.flip(np.sort(wide(x), 0), 0))


@operator("argsort", kinds=NUMERIC_TYPES)
def _argsort(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 9)
    return case(x, expected=np.argsort(wide(x), -1, kind="stable"))


@operator("topk", kinds=NUMERIC_TYPES)
def _topk(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 9)
    order = np.argsort(-wide(x), -1, kind="stable")[:, :3]
    return case(x, k=3, expected=(np.take_along_axis(wide(x), order, -1), order))


@operator("argmax", kinds=NUMERIC_TYPES)
def _argmax(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 9)
    return case(x, axis=1, keepdims=False, expected=np.argmax(wide(x), 1))


@operator("argmin", kinds=NUMERIC_TYPES)
def _argmin(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 9)
    return case(x, axis=0, expected=np.argmin(wide(x), 0)[None])


@operator("cumsum", kinds=NUMERIC_TYPES)
def _cumsum(draw: Draw) -> OperatorCase:
    x = draw.array(3, 7)
    return case(x, axis=1, expected=np.cumsum(wide(x), 1))


@operator("cumprod", kinds=NUMERIC_TYPES)
def _cumprod(draw: Draw) -> OperatorCase:
    x = draw.nonzero(3, 4, high=1.5)
    return case(x, axis=0, reverse=True, expected=np.flip(np.cumprod(np.flip(wide(x), 0), 0), 0))
