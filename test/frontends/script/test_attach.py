"""Prim functions attached: to an operator, to one node by name, to ONNX operators of other domains."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo import R, T
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.passes.rules import decline
from mirlo.runtime.packed import packed

S = T.shapes("S")
factor = T.attrs("factor")


@mirlo.prim_func
def scaled(x: T.Buffer[S, T.f32], y: T.Out[S, T.f32]):
    for i in T.grid(*S):
        y[i] = x[i] * factor


def _model(*nodes, domain: str = "com.acme"):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph(list(nodes), "g", [x], [y]), opset_imports=imports)


X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch) -> None:
    monkeypatch.setattr(CONVERTERS.users, "_table", {})


def test_node_by_name() -> None:
    model = _model(
        helper.make_node("Relu", ["x"], ["a"], name="/first/relu"),
        helper.make_node("Relu", ["a"], ["b"], name="/second/relu"),
        helper.make_node("Neg", ["b"], ["y"], name="/neg"),
    )
    rule = {"node:/second/relu": lambda op, b: b.call_prim_func(scaled, op.x, factor=3.0)}
    np.testing.assert_allclose(mirlo.compile(model, legalize=rule)(X), -3 * np.maximum(X, 0), rtol=1e-6)
    # A rule for a node declines like any other, and the operator's own rules are tried.
    declines = {"node:/second/relu": lambda op, b: decline("not today")}
    np.testing.assert_allclose(mirlo.compile(model, legalize=declines)(X), -np.maximum(X, 0))


def test_node_that_is_not_there() -> None:
    model = _model(helper.make_node("Relu", ["x"], ["y"], name="/first/relu"))
    message = "legalize: the model has no node '/frist/relu'; did you mean '/first/relu'?"
    with pytest.raises(mirlo.MirloError, match=re.escape(message)):
        mirlo.compile(model, legalize={"node:/frist/relu": lambda op, b: decline("never")})


def test_onnx_operator_shares_functions() -> None:
    mirlo.onnx_operator("com.acme", "Scale", prim_func=scaled, attributes={"factor": 2.0})
    nodes = [
        helper.make_node("Scale", ["x"], ["a"], name="one", domain="com.acme"),
        helper.make_node("Scale", ["a"], ["b"], name="two", domain="com.acme", factor=5.0),
        helper.make_node("Scale", ["b"], ["y"], name="three", domain="com.acme"),
    ]
    from mirlo.frontends.onnx.importer import import_model

    module, _ = import_model(_model(*nodes))
    assert str(module).count("func.func private") == 2
    np.testing.assert_allclose(mirlo.compile(_model(*nodes))(X), 20 * X, rtol=1e-6)


def test_onnx_operator_with_packed_function() -> None:
    mirlo.onnx_operator("com.acme", "Twice", packed="attach.twice", infer=lambda x: x)

    @packed("attach.twice", override=True)
    def twice(x, y):
        y[:] = 2 * x

    model = _model(helper.make_node("Twice", ["x"], ["y"], name="t", domain="com.acme"))
    np.testing.assert_array_equal(mirlo.compile(model)(X), 2 * X)


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Scale", {"faktor": 2.0}, "node 'n' (Scale): attribute 'faktor' is not supported"),
        ("Odd", {}, " must return TensorType, or a tuple of them; found 3, an int"),
        ("Wide", {}, "'y' of 'scaled' cannot be f32[3, 8]: S is (3, 4) in another parameter, and (3, 8) here"),
    ],
)
def test_onnx_operator_errors(operator, attributes, message) -> None:
    mirlo.onnx_operator("com.acme", "Scale", prim_func=scaled, attributes={"factor": 2.0})
    mirlo.onnx_operator("com.acme", "Odd", prim_func=scaled, attributes={"factor": 1.0}, infer=lambda x, factor: 3)
    wide = {"attributes": {"factor": 1.0}, "infer": lambda x, factor: x.with_shape((3, 8))}
    mirlo.onnx_operator("com.acme", "Wide", prim_func=scaled, **wide)
    with pytest.raises(OnnxImportError) as caught:
        mirlo.compile(_model(helper.make_node(operator, ["x"], ["y"], name="n", domain="com.acme", **attributes)))
    assert message in str(caught.value)


def test_onnx_operator_needs_one_kind() -> None:
    with pytest.raises(TypeError, match="needs either prim_func=, a prim function, or packed="):
        mirlo.onnx_operator("com.acme", "None")
    with pytest.raises(TypeError, match="'f' needs infer="):
        mirlo.onnx_operator("com.acme", "None", packed="f")


@mirlo.script
def attributes(x: R.Tensor[(3, 4), R.f32]):
    y = R.call_tir(scaled, x, factor=2.0)
    z = R.call_tir(scaled, y, factor=2.0)
    return R.call_tir(scaled, z, factor=0.5)


def test_attributes_in_a_script() -> None:
    assert str(attributes).count("func.func private") == 2
    np.testing.assert_allclose(mirlo.compile(attributes)(X), 2 * X, rtol=1e-6)
