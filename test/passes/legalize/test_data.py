"""Operators that move, pick, make and convert elements, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx_reference import onnx_node
from operator_cases import Case, Runner, f32, ints

X = f32(3, 4, 5)


def shape_cases() -> list[Case]:
    images = f32(2, 8, 3, 4)
    return [
        Case("reshape", [X], {"shape": (5, 12)}, X.reshape(5, 12)),
        Case("reshape", [X], {"shape": (60,)}, X.reshape(60)),
        Case("expand_dims", [X], {"axes": (0, -1)}, X[None, ..., None]),
        Case("squeeze", [f32(1, 3, 1)], {"axes": (0, -1)}, f32(3)),
        Case("permute", [X], {"axes": (2, 0, 1)}, X.transpose(2, 0, 1)),
        Case("permute", [f32(2, 3, 4, 5)], {"axes": (0, 2, -1, 1)}, f32(2, 3, 4, 5).transpose(0, 2, 3, 1)),
        Case("permute", [X > 0], {"axes": (1, 0, 2)}, (X > 0).transpose(1, 0, 2)),
        Case("expand", [f32(4, 1)], {"shape": (3, 4, 5)}, np.broadcast_to(f32(4, 1), (3, 4, 5))),
        Case("expand", [np.float32(3.0)[()].reshape(())], {"shape": (2, 2)}, np.full((2, 2), 3.0, np.float32)),
        Case("tile", [X], {"repeats": (2, 1, 3)}, np.tile(X, (2, 1, 3))),
        Case("tile", [f32(3, 1)], {"repeats": (1, 4)}, np.tile(f32(3, 1), (1, 4))),
        Case("reverse", [X], {"axes": (0, -1)}, X[::-1, :, ::-1]),
        Case("depth_to_space", [images], {"block": 2}, onnx_node("DepthToSpace", [images], {"blocksize": 2})),
        Case(
            "depth_to_space",
            [images],
            {"block": 2, "mode": "CRD"},
            onnx_node("DepthToSpace", [images], {"blocksize": 2, "mode": "CRD"}),
        ),
        Case(
            "space_to_depth",
            [f32(2, 3, 6, 9)],
            {"block": 3},
            onnx_node("SpaceToDepth", [f32(2, 3, 6, 9)], {"blocksize": 3}),
        ),
        Case("reshape", [f32(3, 0)], {"shape": (0, 5)}, f32(0, 5)),
        Case("permute", [f32(0, 3)], {"axes": (1, 0)}, f32(3, 0)),
        Case("shape_of", [X], {}, np.array([3, 4, 5])),
    ]


def slice_cases() -> list[Case]:
    def taken(axes: Any, begin: Any, end: Any, strides: Any, result: np.ndarray) -> Case:
        return Case("strided_slice", [X], {"axes": axes, "begin": begin, "end": end, "strides": strides}, result)

    made = [
        taken((0,), (1,), (3,), (1,), X[1:3]),
        taken((-1, 1), (0, -2), (100, 100), (2, 1), X[:, -2:, ::2]),
        taken((2,), (-1,), (-100,), (-2,), X[:, :, -1:-100:-2]),
        taken((0,), (2,), (1,), (1,), X[2:1]),
        taken((2,), (2,), (1,), (1,), X[:, :, 2:1]),
        taken((), (), (), (), X),
    ]
    for pads in ((1, 0, 2, 0, 3, 1), (-1, 0, 0, 0, -1, 0), (2, -1, 0, -1, 2, 0)):
        around = list(zip([max(p, 0) for p in pads[:3]], [max(p, 0) for p in pads[3:]], strict=True))
        crop = tuple(slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(pads[:3], pads[3:], X.shape, strict=True))
        cropped = X[crop]
        made.append(Case("pad", [X], {"pads": pads, "value": 2.5}, np.pad(cropped, around, constant_values=2.5)))
    pads, around = (1, 2, 3, 2, 1, 0), ((1, 2), (2, 1), (3, 0))
    made += [
        Case("pad", [X], {"pads": pads, "mode": m}, np.pad(X, around, mode=m)) for m in ("reflect", "edge", "wrap")
    ]
    made += [
        Case(
            "pad", [ints(0, 9, 4)], {"pads": (1, 2), "value": -3.0}, np.pad(ints(0, 9, 4), (1, 2), constant_values=-3)
        ),
        Case(
            "pad",
            [X > 0],
            {"pads": (0, 0, 1, 0, 0, 0), "value": 1.0},
            np.pad(X > 0, ((0, 0), (0, 0), (1, 0)), constant_values=True),
        ),
        Case("pad", [f32(3)], {"pads": (7, 8), "mode": "wrap"}, np.pad(f32(3), (7, 8), mode="wrap")),
    ]
    for axis, count in ((0, 2), (1, 3), (-1, 4), (1, 7), (0, 5)):
        parts = [f32(*(i + 1 if d == axis % 3 else n for d, n in enumerate((2, 3, 4))), seed=i) for i in range(count)]
        made.append(Case("concat", parts, {"axis": axis}, np.concatenate(parts, axis), variadic=True))
    for axis, count in ((0, 2), (-1, 3), (1, 6)):
        parts = [f32(3, 4, seed=i) for i in range(count)]
        made.append(Case("stack", parts, {"axis": axis}, np.stack(parts, axis), variadic=True))
    made += [
        Case("concat", [f32(0, 3), f32(2, 3)], {"axis": 0}, f32(2, 3), variadic=True, note="empty part"),
        Case("concat", [f32(2, 0), f32(2, 3)], {"axis": 1}, f32(2, 3), variadic=True, note="empty part"),
        Case("concat", [X], {"axis": 0}, X, variadic=True, note="alone"),
        Case("concat", [X > 0, X < 0], {"axis": 0}, np.concatenate([X > 0, X < 0]), variadic=True),
        Case("split", [X], {"axis": 1, "sizes": (1, 3)}, [X[:, :1], X[:, 1:]]),
        Case("split", [X], {"axis": -1, "sizes": (2, 2, 1)}, [X[..., :2], X[..., 2:4], X[..., 4:]]),
        Case("split", [X], {"axis": 0, "sizes": (1, 1, 1)}, [X[:1], X[1:2], X[2:]]),
    ]
    return made


def index_cases() -> list[Case]:
    rows = ints(-3, 3, 2, 4)
    places = ints(-4, 4, 3, 2, 5)
    points = np.array([[[0, 1], [-1, -2]], [[2, 3], [1, 0]]])
    batched = ints(-3, 3, 3, 2, 1)
    made = [
        Case("gather", [X, rows], {}, X[rows]),
        Case("gather", [X, rows.astype(np.int32)], {"axis": 1}, np.take(X, rows, 1)),
        Case("gather", [X, np.array(2)], {"axis": -1}, X[..., 2]),
        Case("gather", [ints(0, 99, 7), np.array([0, 6, -1])], {}, ints(0, 99, 7)[[0, 6, -1]]),
        Case("gather", [f32(300, 2), ints(0, 250, 5, dtype=np.uint8)], {}, f32(300, 2)[ints(0, 250, 5)]),
        Case("gather", [X, np.array([99, -99])], {}, X[[2, 0]], note="out of range"),
        Case("gather_elements", [X, places], {"axis": 1}, np.take_along_axis(X, places % 4, 1)),
        Case("gather_elements", [X, ints(0, 3, 2, 4, 5)], {"axis": 0}, np.take_along_axis(X, ints(0, 3, 2, 4, 5), 0)),
        Case("gather_nd", [X, points], {}, X[points[..., 0], points[..., 1]]),
        Case("gather_nd", [X, batched], {"batch_dims": 1}, np.stack([X[i][batched[i, :, 0]] for i in range(3)])),
    ]
    updates = f32(3, 2, 5, seed=1)
    for reduction in ("none", "add", "mul", "max", "min"):
        chosen = places % 4 if reduction != "none" else np.argsort(f32(3, 4, 5, seed=3), 1)[:, :2]
        exact = onnx_node("ScatterElements", [X, chosen, updates], {"axis": 1, "reduction": reduction}, opset=18)
        made.append(Case("scatter_elements", [X, chosen, updates], {"axis": 1, "reduction": reduction}, exact))
        points = np.array([[0, 1], [-1, -2], [2, 3]] if reduction == "none" else [[0, 1], [0, 1], [-1, 3]])
        slices = f32(3, 5, seed=2)
        exact = onnx_node("ScatterND", [X, points, slices], {"reduction": reduction}, opset=18)
        made.append(Case("scatter_nd", [X, points, slices], {"reduction": reduction}, exact))
    large = f32(40, 60)
    made += [
        Case(
            "scatter_elements",
            [f32(4), np.array([9, -9, 1]), f32(3, seed=1)],
            {},
            np.where([0, 1, 0, 0], f32(3, seed=1)[2], f32(4)),
            note="out of range",
        ),
        Case(
            "scatter_nd",
            [large, np.array([[3], [7]]), f32(2, 60, seed=1)],
            {},
            onnx_node("ScatterND", [large, np.array([[3], [7]]), f32(2, 60, seed=1)]),
        ),
        Case(
            "one_hot",
            [np.array([0, 2, -1, 7]), np.float32([0, 1])],
            {"depth": 4},
            np.float32([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]),
        ),
        Case(
            "one_hot",
            [np.array([[1, 0]]), np.array([5, 9])],
            {"depth": 3, "axis": 1},
            np.array([[[5, 9], [9, 5], [5, 5]]]),
        ),
    ]
    return made


def create_cases() -> list[Case]:
    matrix = f32(2, 4, 3)
    return [
        Case("full", [], {"shape": (2, 3), "value": 1.5, "dtype": "f32"}, np.full((2, 3), 1.5, np.float32)),
        Case("full", [], {"shape": (), "value": 7.0, "dtype": "i64"}, np.array(7)),
        Case("full", [], {"shape": (2,), "value": 1.0, "dtype": "bool"}, np.array([True, True])),
        Case("arange", [], {"start": 2.0, "stop": 11.0, "step": 3.0, "dtype": "i64"}, np.arange(2, 11, 3)),
        Case(
            "arange",
            [],
            {"start": 0.0, "stop": 1.0, "step": 0.1, "dtype": "f32"},
            np.arange(0, 1, 0.1).astype(np.float32),
        ),
        Case(
            "arange", [], {"start": 5.0, "stop": 0.0, "step": -1.0, "dtype": "i32"}, np.arange(5, 0, -1, dtype=np.int32)
        ),
        Case("eye", [], {"shape": (3, 5), "k": 1, "dtype": "f32"}, np.eye(3, 5, 1, dtype=np.float32)),
        Case("eye", [], {"shape": (4, 3), "k": -2, "dtype": "i32"}, np.eye(4, 3, -2, dtype=np.int32)),
        Case("tri", [matrix], {}, np.tril(matrix)),
        Case("tri", [matrix], {"k": 1, "upper": True}, np.triu(matrix, 1)),
        Case("tri", [matrix], {"k": -1}, np.tril(matrix, -1)),
    ]


def cast_cases() -> list[Case]:
    values = np.float32([-2.7, -1.0, -0.5, 0.0, 0.3, 1.0, 99.9, 120.0])
    positive = np.abs(values)
    names = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i64": np.int64,
             "i32": np.int32, "i16": np.int16, "i8": np.int8, "u64": np.uint64, "u32": np.uint32, "u16": np.uint16,
             "u8": np.uint8, "bool": np.bool_}  # fmt: skip
    made = []
    for source, source_type in names.items():
        for target, target_type in names.items():
            unsigned = source.startswith(("u", "b")) or target.startswith("u")
            array = (positive if unsigned else values).astype(source_type)
            made.append(Case("cast", [array], {"dtype": target}, array.astype(target_type), note=f"from {source}"))
    wide = np.array([-1, 255, 256, 300, -129, 2**40 + 5])
    made += [
        Case("cast", [wide], {"dtype": t}, wide.astype(names[t]), note="wraps") for t in ("i8", "u8", "i32", "u32")
    ]
    halves = np.arange(0, 2**16, 77, dtype=np.uint16)
    for array, target, kind in (
        (f32(3, 5), "i32", np.int32),
        (f32(6).view(np.uint32), "f32", np.float32),
        (np.array([1.5, -0.0, np.pi]), "u64", np.uint64),
        (halves, "i16", np.int16),
        (halves[halves % 0x8000 < 0x7C00], "f16", np.float16),
        (np.array([-1, 0, 127], np.int8), "u8", np.uint8),
        (np.array([True, False]), "i8", np.int8),
        (np.array([0, 1, 2, 255], np.uint8), "bool", np.bool_),
    ):
        wanted = array != 0 if target == "bool" else array.view(kind)
        made.append(Case("bitcast", [array], {"dtype": target}, wanted, note=f"from {array.dtype}"))
    made.append(Case("cast", [np.array([2**63 + 2**40], np.uint64)], {"dtype": "f64"}, np.array([2.0**63 + 2.0**40])))
    made.append(Case("cast", [np.array([2.0**63 + 2.0**40])], {"dtype": "u64"}, np.array([2**63 + 2**40], np.uint64)))
    return made


SMALL_FLOATS = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f8e8m0": ml_dtypes.float8_e8m0fnu, "f4e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
SMALL_INTS = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}


def narrow_cases() -> list[Case]:
    made = []
    spread = np.concatenate([f32(200, scale=s) for s in (1e-3, 0.05, 1.0, 30.0, 3e4)])
    special = np.float32(
        [0.0, -0.0, np.nan, np.inf, -np.inf, 448, 464, 465, 57344, 61440, 1e30, -1e30, 2.0**-9, 2.0**-10]
    )
    for name, kind in SMALL_FLOATS.items():
        codes = np.arange(16 if name == "f4e2m1" else 256, dtype=np.uint8).view(kind)
        made.append(Case("cast", [codes], {"dtype": "f32"}, codes.astype(np.float32), note=f"from {name}"))
        x = np.concatenate([spread, special[[0, 5, 12, 13]] if name == "f4e2m1" else special])
        x = np.abs(x[x != 0]) if name == "f8e8m0" else x
        made.append(Case("cast", [x], {"dtype": name, "saturate": False}, x.astype(kind)))
        transposed = {"shape": (2, codes.size // 2)}
        made.append(Case("reshape", [codes], transposed, codes.reshape(2, -1), note=f"of {name}"))
        if name != "f8e8m0":
            bound = np.float32(ml_dtypes.finfo(kind).max)
            exact = np.clip(x, -bound, bound).astype(kind)
            made.append(Case("cast", [x], {"dtype": name}, exact, note="saturates"))
            finite = codes[np.isfinite(codes.astype(np.float32))]
            exact = (finite.astype(np.float32) * np.float32(0.5)).astype(kind)
            half = np.full(finite.shape, 0.5, np.float32).astype(kind)
            made.append(Case("multiply", [finite, half], {}, exact, note=f"of {name}"))
    numbers = ints(-100, 100, 40)
    for name, kind in SMALL_INTS.items():
        small = numbers.astype(np.int8).astype(kind)
        made.append(Case("cast", [numbers], {"dtype": name}, small, note="wraps"))
        made.append(Case("cast", [small], {"dtype": "i32"}, small.astype(np.int32), note=f"from {name}"))
        made.append(Case("add", [small, small], {}, (small.astype(np.int8) * 2).astype(kind), note=f"of {name}"))
    return made


RUNNER = Runner(shape_cases() + slice_cases() + index_cases() + create_cases() + cast_cases() + narrow_cases())


@pytest.mark.sample(4)
@RUNNER.parametrize
def test_data(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)
