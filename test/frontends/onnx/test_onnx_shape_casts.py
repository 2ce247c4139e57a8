"""Shapes that a model computes in int32, as converters of TensorFlow write them: they stay dims through casts."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import mirlo

CONSTANTS = """
  zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()  two = Constant<value_ints = [2]>()
  four = Constant<value_ints = [4]>()  rest = Constant<value_ints = [-1]>()
  twice = Constant<value_floats = [2.0, 2.0]>()
  s = Shape(x)  narrow = Cast<to = 6>(s)  n = Slice(narrow, zero, one, zero)  sizes = Slice(narrow, two, four, zero)
  last = Cast<to = 6>(rest)  pair = Cast<to = 6>(two)  channels = Cast<to = 6>(four)"""

BODIES = {
    "flatten": ("t = Concat<axis = 0>(n, last)", ("n", "4*h*w")),
    "groups": ("t = Concat<axis = 0>(n, last, channels)", ("n", "h*w", 4)),
    "products": ("p = ReduceProd<keepdims = 1>(sizes) t = Concat<axis = 0>(n, channels, p)", ("n", 4, "h*w")),
    "differences": ("d = Sub(sizes, sizes) c = Add(d, sizes) t = Concat<axis = 0>(n, last, c)", ("n", 4, "h", "w")),
    "floats": (
        """f = Cast<to = 1>(sizes) g = Mul(f, twice) i = Cast<to = 6>(g) v = Div(i, pair)
        t = Concat<axis = 0>(n, last, v)""",
        ("n", 4, "h", "w"),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_shapes_survive_casts(name: str) -> None:
    body, shape = BODIES[name]
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g (float[n, 4, h, w] x) => (float[] y) {{
        {CONSTANTS} {body} wide = Cast<to = 7>(t) y = Reshape(x, wide) }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    assert f.outputs[0].shape == shape
    for sizes in ((2, 4, 3, 5), (1, 4, 1, 1)):
        x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
        np.testing.assert_array_equal(f(x), oracle.run(None, {"x": x})[0])


def test_the_cast_itself_is_a_tensor() -> None:
    model = parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
      g (float[n, m] x) => (int32[2] narrow, int64[2] wide) {
        s = Shape(x)  narrow = Cast<to = 6>(s)  wide = Cast<to = 7>(narrow) }""")
    found = mirlo.compile(model)(np.zeros((3, 7), np.float32))
    assert [(each.dtype, each.tolist()) for each in found] == [(np.int32, [3, 7]), (np.int64, [3, 7])]


def test_elements_of_run_time_leave_the_others_known() -> None:
    model = parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
      g (float[n, 6, m] x, int64[1] k) => (float[a, b, c] y) {
        zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()  rest = Constant<value_ints = [-1]>()
        s = Shape(x)  narrow = Cast<to = 6>(s)  n = Slice(narrow, zero, one, zero)
        part = Cast<to = 6>(k)  last = Cast<to = 6>(rest)  t = Concat<axis = 0>(n, part, last)
        wide = Cast<to = 7>(t)  y = Reshape(x, wide) }""")
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    assert f.outputs[0].shape[0] == "n"
    for k in (1, 2, 12):
        given = {"x": np.random.default_rng(0).standard_normal((3, 6, 2)).astype(np.float32), "k": np.array([k])}
        np.testing.assert_array_equal(f.run(given)["y"], oracle.run(None, given)[0])


@pytest.mark.parametrize("sizes, number", [(("n", 6, "m"), 4), (("n", 6, "m"), 9), (("n", 2, "h", "w"), 8)])
def test_rests_that_a_number_must_divide(sizes: tuple[int | str, ...], number: int) -> None:
    """`6*m` elements in rows of 4: the call checks that m is even, since no symbol can be solved."""
    dims = ", ".join(map(str, sizes))
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]> g (float[{dims}] x) => (float[a, b, c] y) {{
        zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
        tail = Constant<value_ints = [-1, {number}]>()  s = Shape(x)  n = Slice(s, zero, one, zero)
        t = Concat<axis = 0>(n, tail)  y = Reshape(x, t) }}""")
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    for size in (1, 2, 3, 4, 6):
        shape = tuple(size if isinstance(dim, str) else dim for dim in sizes)
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        if x.size // size % number:
            with pytest.raises(mirlo.MirloError):
                f(x)
        else:
            np.testing.assert_array_equal(f(x), oracle.run(None, {"x": x})[0])


@pytest.mark.parametrize("result", ["y = Reshape(found, tail)", "a, b = Split<axis = 0>(found)  y = Add(a, b)"])
def test_numbers_of_elements_that_must_be_even(result: str) -> None:
    """What other nodes require of a size that depends on data is checked where it is known."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 11]>
      g (float[n, 3] x, float[n] e) => (float[p, q] y) {{
        zero = Constant<value = float {{0}}>()  tail = Constant<value = int64[2] {{-1, 2}}>()  c = Greater(e, zero)
        found = Compress<axis = 0>(x, c)  {result} }}""")
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    for flags in ([1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1]):
        given = {"x": x, "e": np.float32(flags)}
        if sum(flags) % 2:
            with pytest.raises(mirlo.MirloError, match="no multiple of 2, which other nodes need"):
                f.run(given)
        else:
            np.testing.assert_array_equal(f.run(given)["y"], oracle.run(None, given)[0])
