"""Operations of StableHLO, compiled and compared with its reference interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from interpreted import require_equal
from mirlo_stablehlo.importer import import_stablehlo

import mirlo

RANDOM = np.random.default_rng(3)
KINDS = {
    "f32": np.float32, "f64": np.float64, "i8": np.int8, "i32": np.int32, "i64": np.int64, "ui8": np.uint8,
    "ui32": np.uint32, "i1": np.bool_,
}  # fmt: skip
FLOATS, SIGNED, INTEGERS = ("f32", "f64"), ("i8", "i32", "i64"), ("i8", "i32", "i64", "ui8", "ui32")
UNARY = {
    "abs": (*FLOATS, *SIGNED), "cbrt": FLOATS, "ceil": FLOATS, "cosine": FLOATS, "exponential": FLOATS,
    "exponential_minus_one": FLOATS, "floor": FLOATS, "log": FLOATS, "log_plus_one": FLOATS, "logistic": FLOATS,
    "negate": (*FLOATS, *SIGNED), "not": (*INTEGERS, "i1"), "popcnt": INTEGERS, "count_leading_zeros": INTEGERS,
    "round_nearest_afz": FLOATS, "round_nearest_even": FLOATS, "rsqrt": FLOATS, "sign": (*FLOATS, *SIGNED),
    "sine": FLOATS, "sqrt": FLOATS, "tan": FLOATS, "tanh": FLOATS,
}  # fmt: skip
NUMBERS = (*FLOATS, *INTEGERS)
BINARY = {
    "add": (*NUMBERS, "i1"), "atan2": FLOATS, "divide": NUMBERS, "maximum": (*NUMBERS, "i1"),
    "minimum": (*NUMBERS, "i1"), "multiply": (*NUMBERS, "i1"), "power": FLOATS, "remainder": NUMBERS,
    "subtract": NUMBERS, "and": (*INTEGERS, "i1"), "or": (*INTEGERS, "i1"), "xor": (*INTEGERS, "i1"),
    "shift_left": INTEGERS, "shift_right_arithmetic": INTEGERS, "shift_right_logical": INTEGERS,
}  # fmt: skip


def values(kind: str, *shape: int) -> np.ndarray:
    """Return values of both signs; integers with many bits, and small ones."""
    dtype = np.dtype(KINDS[kind])
    if dtype.kind == "b":
        return RANDOM.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return (4 * RANDOM.standard_normal(shape)).astype(dtype)
    info = np.iinfo(dtype)
    large = RANDOM.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return np.where(RANDOM.random(shape) < 0.5, large, RANDOM.integers(0, 9, shape).astype(dtype))


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kinds in table.items() for kind in kinds]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("name", "kind"), cases(UNARY))
def test_unary(name: str, kind: str) -> None:
    x = values(kind, 37)
    if name in ("log", "sqrt", "rsqrt", "log_plus_one"):
        x = np.abs(x) + 1
    form = f"tensor<37x{kind}>"
    text = f"func.func @main(%x: {form}) -> {form} {{\n%0 = stablehlo.{name} %x : {form}\nreturn %0 : {form}\n}}"
    require_equal(text, x)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("name", "kind"), cases(BINARY))
def test_binary(name: str, kind: str) -> None:
    x, y = values(kind, 37), values(kind, 37)
    if name in ("divide", "remainder"):
        y = np.where(y == 0, 3, y).astype(y.dtype)
        y = np.where(y == -1, 3, y).astype(y.dtype) if kind in SIGNED else y
    if name == "power":
        x = np.abs(x) + 1
    if name.startswith("shift"):
        y = RANDOM.integers(0, 40 if kind == "i32" else 9, 37).astype(y.dtype)
    form = f"tensor<37x{kind}>"
    text = (
        f"func.func @main(%x: {form}, %y: {form}) -> {form} {{\n"
        f"%0 = stablehlo.{name} %x, %y : {form}\nreturn %0 : {form}\n}}"
    )
    require_equal(text, x, y)


@pytest.mark.sample(4)
@pytest.mark.parametrize("divisor", ["%y", "dense<[0, 3, 0, 7]>"], ids=["data", "known"])
@pytest.mark.parametrize("kind", ["i8", "ui8", "i32", "ui32", "i64"])
def test_integers_divided_by_zero(kind: str, divisor: str) -> None:
    """The interpreter refuses these; XLA computes -1, with all bits set, and the dividend."""
    dtype = np.dtype(KINDS[kind])
    x, y = np.array([5, 7, 0, 100], dtype), np.array([0, 3, 0, 7], dtype)
    form = f"tensor<4x{kind}>"
    known = "" if divisor == "%y" else f"%c = stablehlo.constant {divisor} : {form}"
    name = "%c" if known else divisor
    text = f"""func.func @main(%x: {form}, %y: {form}) -> ({form}, {form}) {{
  {known}
  %0 = stablehlo.divide %x, {name} : {form}
  %1 = stablehlo.remainder %x, {name} : {form}
  return %0, %1 : {form}, {form}
}}"""
    module, store = import_stablehlo(text)
    quotients, rests = mirlo.compile(module, params=store, cache=False, jobs=1)(x, y)
    ones = np.iinfo(dtype).max if kind.startswith("u") else -1
    np.testing.assert_array_equal(quotients, np.array([ones, 2, ones, 14], dtype))
    np.testing.assert_array_equal(rests, np.array([5, 1, 0, 2], dtype))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("direction", "kind"), [*itertools.product(("EQ", "NE", "LT", "GE"), ("f32", "i32", "ui8", "i1"))]
)
def test_compare(direction: str, kind: str) -> None:
    x, y = values(kind, 37), values(kind, 37)
    x[:5] = y[:5]
    form = f"tensor<37x{kind}>"
    text = (
        f"func.func @main(%x: {form}, %y: {form}) -> tensor<37xi1> {{\n"
        f"%0 = stablehlo.compare {direction}, %x, %y : ({form}, {form}) -> tensor<37xi1>\nreturn %0 : tensor<37xi1>\n}}"
    )
    require_equal(text, x, y)


def test_total_order() -> None:
    """The interpreter has the usual order: the oracle is the bits of the floats as signed integers."""
    x = np.array([-0.0, 0.0, np.nan, -np.inf, 1.0, -1.0, np.inf], np.float32)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(x, x))
    text = """func.func @main(%x: tensor<49xf32>, %y: tensor<49xf32>) -> tensor<49xi1> {
      %0 = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<49xf32>, tensor<49xf32>) -> tensor<49xi1>
      return %0 : tensor<49xi1>
    }"""
    order = [np.where(v.view(np.int32) < 0, v.view(np.int32) ^ 0x7FFFFFFF, v.view(np.int32)) for v in (a, b)]
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(a, b)
    np.testing.assert_array_equal(found, order[0] < order[1])


CONVERSIONS = [(a, b) for a, b in itertools.product(KINDS, KINDS) if a != b]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_convert(source: str, target: str) -> None:
    x = values(source, 37)
    if source in FLOATS and target in INTEGERS:
        x = np.abs(np.trunc(x))  # the interpreter wraps where XLA takes the nearest value
    text = (
        f"func.func @main(%x: tensor<37x{source}>) -> tensor<37x{target}> {{\n"
        f"%0 = stablehlo.convert %x : (tensor<37x{source}>) -> tensor<37x{target}>\nreturn %0 : tensor<37x{target}>\n}}"
    )
    require_equal(text, x)


PROGRAMS: dict[str, str] = {
    "broadcast, with a permutation": """(%x: tensor<3x1xf32>) -> tensor<2x5x3xf32> {
      %0 = stablehlo.broadcast_in_dim %x, dims = [2, 1] : (tensor<3x1xf32>) -> tensor<2x5x3xf32>
      return %0 : tensor<2x5x3xf32>""",
    "broadcast twice": """(%x: tensor<3xf32>) -> tensor<3x4x5xf32> {
      %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
      %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<3x4xf32>) -> tensor<3x4x5xf32>
      %2 = stablehlo.negate %1 : tensor<3x4x5xf32>
      return %2 : tensor<3x4x5xf32>""",
    "slice with strides": """(%x: tensor<7x9xf32>) -> tensor<3x3xf32> {
      %0 = stablehlo.slice %x [1:7:2, 0:9:3] : (tensor<7x9xf32>) -> tensor<3x3xf32>
      return %0 : tensor<3x3xf32>""",
    "pad of three kinds": """(%x: tensor<4x5xf32>, %v: tensor<f32>) -> tensor<10x4xf32> {
      %0 = stablehlo.pad %x, %v, low = [1, -1], high = [2, 0], interior = [1, 0]
        : (tensor<4x5xf32>, tensor<f32>) -> tensor<10x4xf32>
      return %0 : tensor<10x4xf32>""",
    "iota, reverse, transpose": """(%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
      %0 = stablehlo.iota dim = 1 : tensor<2x3x4xf32>
      %1 = stablehlo.add %x, %0 : tensor<2x3x4xf32>
      %2 = stablehlo.reverse %1, dims = [0, 2] : tensor<2x3x4xf32>
      %3 = stablehlo.transpose %2, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
      return %3 : tensor<4x2x3xf32>""",
    "a product over two axes": """(%x: tensor<2x3x4x5xf32>, %y: tensor<4x6x2x3xf32>) -> tensor<2x5x6xf32> {
      %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [2], contracting_dims = [1, 2] x [3, 0]
        : (tensor<2x3x4x5xf32>, tensor<4x6x2x3xf32>) -> tensor<2x5x6xf32>
      return %0 : tensor<2x5x6xf32>""",
    "an outer product": """(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3x4xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [] x [] : (tensor<3xf32>, tensor<4xf32>) -> tensor<3x4xf32>
      return %0 : tensor<3x4xf32>""",
    "an inner product": """(%x: tensor<5xf32>, %y: tensor<5xf32>) -> tensor<f32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<5xf32>, tensor<5xf32>) -> tensor<f32>
      return %0 : tensor<f32>""",
    "a sum with a start": """(%x: tensor<4x5xf32>) -> tensor<5xf32> {
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<4x5xf32>, tensor<f32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>""",
    "a sum over nothing": """(%x: tensor<0x5xf32>) -> tensor<5xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<0x5xf32>, tensor<f32>) -> tensor<5xf32>
      return %0 : tensor<5xf32>""",
    "a reduction by a function of its own": """(%x: tensor<7x5xf32>) -> tensor<7xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %c) across dimensions = [1] : (tensor<7x5xf32>, tensor<f32>) -> tensor<7xf32>
      reducer(%a: tensor<f32>, %b: tensor<f32>) {
        %1 = stablehlo.multiply %a, %a : tensor<f32>
        %2 = stablehlo.multiply %b, %b : tensor<f32>
        %3 = stablehlo.add %1, %2 : tensor<f32>
        %4 = stablehlo.sqrt %3 : tensor<f32>
        stablehlo.return %4 : tensor<f32>
      }
      return %0 : tensor<7xf32>""",
    "windows that overlap": """(%x: tensor<2x9x9x3xf32>) -> tensor<2x4x5x3xf32> {
      %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 1, 3, 3, 1>,
        window_strides = array<i64: 1, 2, 2, 1>,
        padding = dense<[[0, 0], [0, 0], [1, 1], [0, 0]]> : tensor<4x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.maximum %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) : (tensor<2x9x9x3xf32>, tensor<f32>) -> tensor<2x4x5x3xf32>
      return %0 : tensor<2x4x5x3xf32>""",
    "windows of integers with holes": """(%x: tensor<12xi32>) -> tensor<4xi32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %0 = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 3>, window_strides = array<i64: 2>,
        window_dilations = array<i64: 2>, padding = dense<[[0, 0]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %1 = stablehlo.add %a, %b : tensor<i32>
        stablehlo.return %1 : tensor<i32>
      }) : (tensor<12xi32>, tensor<i32>) -> tensor<4xi32>
      return %0 : tensor<4xi32>""",
    "a convolution with a dilated input": """(%x: tensor<1x5x5x2xf32>, %w: tensor<3x3x2x4xf32>)
        -> tensor<1x9x9x4xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64,
        feature_group_count = 1 : i64} : (tensor<1x5x5x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x9x9x4xf32>
      return %0 : tensor<1x9x9x4xf32>""",
    "a convolution in groups": """(%x: tensor<2x4x6x7xf32>, %w: tensor<8x2x3x3xf32>) -> tensor<2x8x4x3xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {stride = [1, 2]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
        : (tensor<2x4x6x7xf32>, tensor<8x2x3x3xf32>) -> tensor<2x8x4x3xf32>
      return %0 : tensor<2x8x4x3xf32>""",
    "clamp, select, map": """(%x: tensor<5xf32>, %y: tensor<5xf32>) -> tensor<5xf32> {
      %a = stablehlo.constant dense<-1.0> : tensor<f32>
      %b = stablehlo.constant dense<1.0> : tensor<f32>
      %0 = stablehlo.clamp %a, %x, %b : (tensor<f32>, tensor<5xf32>, tensor<f32>) -> tensor<5xf32>
      %1 = stablehlo.compare LT, %0, %y : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xi1>
      %2 = stablehlo.select %1, %0, %y : tensor<5xi1>, tensor<5xf32>
      %3 = "stablehlo.map"(%2, %x) <{dimensions = array<i64: 0>}> ({
      ^bb0(%c: tensor<f32>, %d: tensor<f32>):
        %4 = stablehlo.multiply %c, %d : tensor<f32>
        stablehlo.return %4 : tensor<f32>
      }) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
      return %3 : tensor<5xf32>""",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text = f"func.func @main{PROGRAMS[name]}\n}}"
    head = text[: text.index("->")]
    arrays = []
    for form in [part.split(">")[0] for part in head.split("tensor<")[1:]]:
        *dims, kind = form.split("x")
        arrays.append(values(kind, *map(int, dims)) if kind == "f32" else RANDOM.integers(-9, 9, [*map(int, dims)]))
        arrays[-1] = np.asarray(arrays[-1]).astype(KINDS[kind])
    require_equal(text, *arrays)


GATHERS = [
    # slice sizes, offset dims, collapsed dims, index map, vector dim, shape of indices, shape of the result
    ((1, 3), [1], [0], [0], 1, (4, 1), (4, 3)),
    ((2, 2), [1, 2], [], [0, 1], 1, (4, 2), (4, 2, 2)),
    ((1, 2), [0], [0], [1, 0], 0, (2, 4), (2, 4)),
    ((5, 1), [0], [1], [1], 1, (4, 1), (5, 4)),
    ((1, 1), [], [0, 1], [0, 1], 2, (2, 3, 2), (2, 3)),
    ((2, 3), [0, 2], [], [0], 1, (4, 1), (2, 4, 3)),
]


@pytest.mark.parametrize("form", GATHERS, ids=str)
def test_gather(form: tuple) -> None:
    sizes, offset, collapsed, index_map, vector, indices, result = form
    shape, given, made = "5x3xf32", "x".join([*map(str, indices), "i32"]), "x".join([*map(str, result), "f32"])
    text = f"""func.func @main(%x: tensor<{shape}>, %i: tensor<{given}>) -> tensor<{made}> {{
      %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = {offset},
        collapsed_slice_dims = {collapsed}, start_index_map = {index_map}, index_vector_dim = {vector}>,
        slice_sizes = array<i64: {sizes[0]}, {sizes[1]}>}}> : (tensor<{shape}>, tensor<{given}>) -> tensor<{made}>
      return %0 : tensor<{made}>
    }}"""
    require_equal(text, values("f32", 5, 3), RANDOM.integers(-3, 9, indices).astype(np.int32))


SCATTERS = [
    # window dims of updates, inserted dims, map, vector dim, shapes of indices and updates
    ([1], [0], [0], 1, (4, 1), (4, 3)),
    ([1, 2], [], [0, 1], 1, (4, 2), (4, 2, 2)),
    ([], [0, 1], [1, 0], 2, (2, 3, 2), (2, 3)),
    ([0], [1], [1], 1, (4, 1), (5, 4)),
    ([0, 2], [], [0], 1, (4, 1), (2, 4, 3)),
]
COMBINED = {"add": "%3 = stablehlo.add %a, %b : tensor<f32>", "maximum": "%3 = stablehlo.maximum %b, %a : tensor<f32>",
            "multiply": "%3 = stablehlo.multiply %a, %b : tensor<f32>"}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", SCATTERS, ids=str)
@pytest.mark.parametrize("combined", [*COMBINED, "replace"])
def test_scatter(form: tuple, combined: str) -> None:
    windows, inserted, index_map, vector, indices, updates = form
    shape, given, new = "5x3xf32", "x".join([*map(str, indices), "i32"]), "x".join([*map(str, updates), "f32"])
    text = f"""func.func @main(%x: tensor<{shape}>, %i: tensor<{given}>, %u: tensor<{new}>) -> tensor<{shape}> {{
      %0 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
        update_window_dims = {windows}, inserted_window_dims = {inserted},
        scatter_dims_to_operand_dims = {index_map}, index_vector_dim = {vector}>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        {COMBINED.get(combined, "")}
        stablehlo.return {"%3" if combined in COMBINED else "%b"} : tensor<f32>
      }}) : (tensor<{shape}>, tensor<{given}>, tensor<{new}>) -> tensor<{shape}>
      return %0 : tensor<{shape}>
    }}"""
    # Windows that fit, and ones that are outside as a whole: of those that overlap the edge XLA writes nothing, the
    # specification of StableHLO a part.
    given_indices = RANDOM.choice([-2, 0, 1, 7], indices).astype(np.int32)
    if combined == "replace":  # the last of several writes to an element is not defined
        once = np.array([-2, 0, 9, 7]).reshape(-1, 1)
        pairs = np.array([[[0, 0], [1, 1], [2, 2]], [[0, 3], [1, 4], [7, 0]]])
        given_indices[:] = once if len(indices) == 2 else pairs
    require_equal(text, values("f32", 5, 3), given_indices, values("f32", *updates), tolerance=1e-4)


@pytest.mark.sample(2)
@pytest.mark.parametrize("begin", [-4, 0, 2, 3, 99])
def test_dynamic_slices(begin: int) -> None:
    text = """func.func @main(%x: tensor<6x5xf32>, %u: tensor<2x3xf32>, %i: tensor<i32>, %j: tensor<i32>)
        -> (tensor<4x5xf32>, tensor<6x5xf32>) {
      %0 = stablehlo.dynamic_slice %x, %i, %j, sizes = [4, 5]
        : (tensor<6x5xf32>, tensor<i32>, tensor<i32>) -> tensor<4x5xf32>
      %1 = stablehlo.dynamic_update_slice %x, %u, %i, %j
        : (tensor<6x5xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<6x5xf32>
      return %0, %1 : tensor<4x5xf32>, tensor<6x5xf32>
    }"""
    require_equal(text, values("f32", 6, 5), values("f32", 2, 3), np.int32(begin), np.int32(1))


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sort_by_two_keys(direction: str, axis: int) -> None:
    form = "tensor<6x5xi32>"
    text = f"""func.func @main(%x: {form}, %y: {form}, %z: {form}) -> ({form}, {form}, {form}) {{
      %0:3 = "stablehlo.sort"(%x, %y, %z) <{{dimension = {axis} : i64, is_stable = true}}> ({{
      ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>, %e: tensor<i32>, %f: tensor<i32>):
        %1 = stablehlo.compare {direction}, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %2 = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %3 = stablehlo.compare LT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %4 = stablehlo.and %2, %3 : tensor<i1>
        %5 = stablehlo.or %1, %4 : tensor<i1>
        stablehlo.return %5 : tensor<i1>
      }}) : ({form}, {form}, {form}) -> ({form}, {form}, {form})
      return %0#0, %0#1, %0#2 : {form}, {form}, {form}
    }}"""
    require_equal(text, *(RANDOM.integers(0, 3, (6, 5)).astype(np.int32) for _ in range(3)))


def test_control_flow() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<i32>, tensor<4xf32>, tensor<4xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
      cond {
        %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %1 = stablehlo.add %i, %one : tensor<i32>
        %2 = stablehlo.add %v, %x : tensor<4xf32>
        stablehlo.return %1, %2 : tensor<i32>, tensor<4xf32>
      }
      %3 = "stablehlo.case"(%n) ({
        %4 = stablehlo.negate %x : tensor<4xf32>
        stablehlo.return %4 : tensor<4xf32>
      }, {
        stablehlo.return %x : tensor<4xf32>
      }, {
        %4 = func.call @double(%x) : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %4 : tensor<4xf32>
      }) : (tensor<i32>) -> tensor<4xf32>
      return %0#0, %0#1, %3 : tensor<i32>, tensor<4xf32>, tensor<4xf32>
    }
    func.func private @double(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.add %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    for count in (-3, 0, 1, 2, 7):
        require_equal(text, values("f32", 4), np.int32(count))
