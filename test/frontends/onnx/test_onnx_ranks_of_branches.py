"""If nodes whose branches differ in rank, as exporters write `squeeze(dim)`."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import mirlo
from mirlo.frontends.onnx.check import check_model

SQUEEZE = """
  axis = Constant<value_ints = [1]>()  first = Constant<value_ints = [0]>()  one = Constant<value_int = 1>()
  s = Shape(x)  d = Gather(s, one)  c = Equal(d, one)
  y = If(c) <then_branch = g1 () => (float[] t) { t = Squeeze(x, axis) },
             else_branch = g2 () => (float[] e) { e = Identity(x) }>"""

REST = {
    "only then": "out = Gemm(y, w)",
    "both": "z = MatMul(y, w)  r = Relu(z)  out = ReduceSum<keepdims = 0>(r)",
    "output": "z = MatMul(y, w)  out = ReduceSum<keepdims = 0>(z, axis)",
    "twice": """
      z = MatMul(y, w)  zs = Shape(z)  zero = Constant<value_int = 0>()  n = Gather(zs, zero)  single = Equal(n, one)
      q = If(single) <then_branch = g3 () => (float[] t2) { t2 = Squeeze(z, first) },
                      else_branch = g4 () => (float[] e2) { e2 = Identity(z) }>
      out = ReduceMax<keepdims = 0>(q)""",
}


def parsed(text: str) -> onnx.ModelProto:
    """Return a model of which the output declares no shape."""
    model = parser.parse_model(text)
    for graph in [model.graph, *(a.g for node in model.graph.node for a in node.attribute)]:
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
    return model


def compare(model: onnx.ModelProto, *cases: dict[str, np.ndarray]) -> None:
    """Check that results are the same, and that the same inputs are errors."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    oracle, f = onnxruntime.InferenceSession(model.SerializeToString(), options), mirlo.compile(model)
    for case in cases:
        try:
            expected = oracle.run(None, case)[0]
        except Exception:
            with pytest.raises(mirlo.MirloError):
                f.run(case)
            continue
        np.testing.assert_allclose(f.run(case)["out"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rest", REST)
def test_ranks_that_differ(rest: str) -> None:
    model = parsed(f"""<ir_version: 9, opset_import: ["": 18]>
      g (float[n, k, 4] x, float[4, 3] w) => (float[] out) {{ {SQUEEZE} {REST[rest]} }}""")
    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    sizes = [(1, 1), (3, 1), (1, 2), (3, 2)]
    compare(
        model, *({"x": np.random.default_rng(1).standard_normal((*s, 4)).astype(np.float32), "w": w} for s in sizes)
    )
    assert check_model(model).is_clean


def test_a_condition_that_is_an_input() -> None:
    model = parsed("""<ir_version: 9, opset_import: ["": 18]> g (float[n, 1, 4] x, bool c) => (float[] out) {
      axis = Constant<value_ints = [1]>()
      y = If(c) <then_branch = g1 () => (float[] t) { t = Squeeze(x, axis) },
                 else_branch = g2 () => (float[] e) { e = Identity(x) }>
      s = Shape(y)  r = Size(s)  out = Cast<to = 1>(r) }""")
    x = np.ones((2, 1, 4), np.float32)
    compare(model, {"x": x, "c": np.array(True)}, {"x": x, "c": np.array(False)})


@pytest.mark.parametrize(
    "branch",
    ["t = MatMul(x, w)", "t = Reshape(x, rows)", "t = Add(x, v)", "t, u = Split<axis = 1, num_outputs = 2>(x)"],
)
def test_what_a_branch_requires_is_required_there(branch: str) -> None:
    """The other branch takes sizes for which this one is an error."""
    model = parsed(f"""<ir_version: 9, opset_import: ["": 18]> g (float[n, k] x, bool c) => (float[] out)
      <float[4, 4] w = {{1, 0, 0, 2, 0, 1, 0, 3, 0, 0, 1, 4, 0, 0, 0, 5}}, float[4] v = {{1, 2, 3, 4}}> {{
      rows = Constant<value_ints = [-1, 4]>()
      out = If(c) <then_branch = g1 () => (float[] t) {{ {branch} }},
                   else_branch = g2 () => (float[] e) {{ e = Relu(x) }}> }}""")
    sizes = [(2, 4), (2, 5), (4, 1), (1, 3)]
    cases = [{"x": np.ones(size, np.float32), "c": np.array(flag)} for size in sizes for flag in (True, False)]
    compare(model, *cases)


def test_slices_of_dims_whose_sign_depends_on_the_sizes() -> None:
    """A dim of a tensor is not negative, also where its form does not show that: all of it is taken."""
    model = parsed("""<ir_version: 9, opset_import: ["": 18]> g (float[1, 1, n] x, float[2, 1, 256] w)
      => (float[] out) {
      y = Conv<strides = [128]>(x, w)  zero = Constant<value_ints = [0]>()  two = Constant<value_ints = [2]>()
      far = Constant<value_ints = [9223372036854775807]>()  out = Slice(y, zero, far, two) }""")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((2, 1, 256)).astype(np.float32)
    compare(model, *({"x": rng.standard_normal((1, 1, n)).astype(np.float32), "w": w} for n in (256, 640, 1000)))


INNER = """n = Size(size)  is_one = Equal(n, one)
  r = If(is_one) <then_branch = g3 () => (float[] t) { t = ReduceSum<keepdims = 0>(x, axis) },
                  else_branch = g4 () => (float[] e) { e = Relu(x) }>
  y = Mul(r, two)"""
"""An If whose branches differ in rank, and a node that takes either."""

AROUND = {
    "a branch that is known": """yes = Constant<value_int = 1>()  known = Equal(yes, one)
      y2 = If(known) <then_branch = g1 () => (float[] y) {{ {inner} }},
                      else_branch = g2 () => (float[] y3) {{ y3 = Relu(x) }}>""",
    "a branch of the call": """y2 = If(c) <then_branch = g1 () => (float[] y) {{ {inner} }},
                      else_branch = g2 () => (float[] y3) {{ y3 = Exp(x) }}>""",
    "two branches that are known": """yes = Constant<value_int = 1>()  known = Equal(yes, one)
      y2 = If(known) <then_branch = g1 () => (float[] w) {{
             w0 = If(known) <then_branch = g5 () => (float[] y) {{ {inner} }},
                             else_branch = g6 () => (float[] y4) {{ y4 = Relu(x) }}>
             w = Neg(w0) }},
                      else_branch = g2 () => (float[] y3) {{ y3 = Relu(x) }}>""",
}


def around(place: str) -> str:
    return f"""<ir_version: 9, opset_import: ["": 18]> g (float[m, k] x, int64[n] size, bool c) => (float[] out)
      <float[1] two = {{2}}> {{ axis = Constant<value_ints = [1]>()  one = Constant<value_int = 1>()
      {AROUND[place].format(inner=INNER)}
      z = Add(y2, two)  s = Shape(z)  f = Cast<to = 1>(s)  total = ReduceSum<keepdims = 0>(z)
      last = ReduceMax<keepdims = 0>(f)  out = Mul(total, last) }}"""


@pytest.mark.parametrize("place", AROUND)
def test_nodes_that_take_the_result_outside(place: str) -> None:
    """What follows a graph that is imported in place of a node follows both branches, too."""
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    sizes = (np.zeros(n, np.int64) for n in (1, 2))
    compare(parsed(around(place)), *({"x": x, "size": s, "c": np.array(c)} for s in sizes for c in (True, False)))


def test_nodes_that_take_the_result_of_a_function() -> None:
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18, "own": 1]>
      g (float[m, k] x, int64[n] size, bool c) => (float out) {{ w, y2 = own.f(x, size)
        z = Sub(y2, w)  s = Shape(z)  f = Cast<to = 1>(s)  total = ReduceSum<keepdims = 0>(z)
        last = ReduceMax<keepdims = 0>(f)  out = Mul(total, last) }}
      <domain: "own", opset_import: ["": 18]> f (x, size) => (two, y) {{
        axis = Constant<value_ints = [1]>()  one = Constant<value_int = 1>()  two = Constant<value_floats = [2.0]>()
        {INNER} }}""")
    x = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    compare(model, *({"x": x, "size": np.zeros(n, np.int64), "c": np.array(True)} for n in (1, 2)))


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6), (2, 3, 1, 5, 6)], ids=str)
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.sample(0)
def test_the_body_of_affine_grid(size: tuple[int, ...], align: int) -> None:
    """Its branches give steps of rank 0 and 1, inside of a branch that is known."""
    from onnx.reference import ReferenceEvaluator

    rank = len(size) - 2
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
      g (float[2, {rank}, {rank + 1}] theta, int64[{len(size)}] size) => (float[] out) {{
        out = AffineGrid<align_corners = {align}>(theta, size) }}""")
    schema = onnx.defs.get_schema("AffineGrid")
    types = [each.type.SerializeToString() for each in model.graph.input]
    body = schema.get_context_dependent_function(model.graph.node[0].SerializeToString(), types) if (
        schema.has_context_dependent_function) else schema.function_body.SerializeToString()  # fmt: skip
    function = onnx.FunctionProto.FromString(body)
    function.domain = "own"
    model.graph.node[0].domain = "own"
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.functions.append(function)
    theta = np.random.default_rng(0).standard_normal((2, rank, rank + 1)).astype(np.float32)
    feed = {"theta": theta, "size": np.array(size, np.int64)}
    found = mirlo.compile(model).run(feed)["out"]
    np.testing.assert_allclose(found, ReferenceEvaluator(model).run(None, feed)[0], atol=1e-5)
