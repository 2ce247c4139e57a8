"""Converters of users: for operators of their own, and before Mirlo's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from commands import output_of, python
from onnx import helper
from onnx_models import F32, check, make_model, node

from mirlo import compile
from mirlo.frontends.onnx import OnnxImportError, converter, import_model
from mirlo.frontends.onnx.node import NodeTrait
from mirlo.frontends.onnx.registry import CONVERTERS, Registry


@pytest.fixture(autouse=True)
def own_converters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CONVERTERS, "users", Registry())
    yield


def own_model(**attributes: Any) -> Any:
    call = helper.make_node("Twice", ["x"], ["y"], domain="com.example", **attributes)
    model = make_model([call], {"x": (F32, [4])}, ["y"])
    model.opset_import.add(domain="com.example", version=2)
    return model


def test_operator_of_an_own_domain(imported: Callable[..., str]) -> None:
    with pytest.raises(OnnxImportError, match="no operator of this domain is supported"):
        imported(own_model())

    @converter("Twice", domain="com.example", since=2)
    def twice(node: Any) -> Any:
        return node.emit("add", node[0], node[0])

    check(imported(own_model()), '"relax.add"(%arg0, %arg0)')


def test_attribute_that_is_not_read_is_refused(imported: Callable[..., str]) -> None:
    @converter("Twice", domain="com.example")
    def twice(node: Any) -> Any:
        return node.emit("add", node[0], node[0])

    with pytest.raises(OnnxImportError, match="attribute 'times' is not supported"):
        imported(own_model(times=3))


def test_users_come_first_and_may_decline(imported: Callable[..., str]) -> None:
    @converter("Relu")
    def relu(node: Any) -> Any:
        if node.type(0).rank == 1:
            return node.emit("clip", node[0], min=0.0)
        return NotImplemented

    text = imported(
        make_model([node("Relu", "x", "y"), node("Relu", "m", "z")], {"x": (F32, [4]), "m": (F32, [2, 2])}, "yz")
    )
    check(text, '"relax.clip"', '"relax.relu"')


def test_own_operators_are_not_folded_as_those_of_onnx(imported: Callable[..., str]) -> None:
    @converter("Add", domain="com.example")
    def add(node: Any) -> Any:
        return node.emit("multiply", node[0], node[1])

    nodes = [node("Shape", "x", "s"), helper.make_node("Add", ["s", "s"], ["y"], domain="com.example")]
    model = make_model(nodes, {"x": (F32, [3, 5])}, ["y"])
    model.opset_import.add(domain="com.example", version=1)
    check(imported(model), "dense<[3, 5]>", '"relax.multiply"')


def test_own_operators_move_strings() -> None:
    @converter("Swap", domain="com.example", traits=[NodeTrait.MOVES])
    def swap(node: Any) -> Any:
        return node.emit("permute", node[0], axes=(1, 0))

    @converter("Count", domain="com.example", traits=[NodeTrait.MEASURES])
    def count(node: Any) -> Any:
        return node.constant(node.type(0).elements, "i64")

    text = """<ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>
    g (string[2, 3] x) => (string[3, 2] y, int64 n) { y = com.example.Swap(x) n = com.example.Count(x) }"""
    x = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    y, n = compile(onnx.parser.parse_model(text))(x)
    assert (y == x.T).all()
    assert n == 6


def test_two_converters_for_one_version() -> None:
    @converter("Twice", domain="com.example")
    def first(node: Any) -> Any:
        """One."""

    with pytest.raises(
        ValueError, match="Twice of domain 'com.example' has two converters since version 1: .*first at .*py:96 and"
    ):

        @converter("Twice", domain="com.example")
        def second(node: Any) -> Any:
            """Another."""


def test_unknown_relax_operator(context: Any) -> None:
    @converter("Twice", domain="com.example")
    def twice(node: Any) -> Any:
        return node.emit("addd", node[0], node[0])

    with pytest.raises(ValueError, match="relax has no operator 'addd'; did you mean 'add'?"):
        import_model(own_model(), context=context)


def test_none_of_mirlos_own_stands_among_the_users() -> None:
    made = output_of(
        python(
            "-c",
            "from mirlo.frontends.onnx import registry; registry.load_converters(); "
            "print(registry.CONVERTERS.users.operators())",
        )
    )
    assert made.strip() == "[]"
