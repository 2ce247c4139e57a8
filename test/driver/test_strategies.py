"""Strategies: a rule selected by name, by a function of the operator, or by measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.driver.strategies import Measured
from mirlo.passes.files import FileError
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.rules import decline
from mirlo.tools.explain.model import explain_model


def _module(shapes: list[tuple[int, ...]], name: str, **attributes: Any) -> Any:
    """Return a module of one operator, in the current context."""
    module = ir.Module.create()
    types = [TensorType.of(shape, "f32").to_mlir() for shape in shapes]
    with ir.InsertionPoint(module.body):
        main = func.FuncOp("main", ir.FunctionType.get(types, []))
    with ir.InsertionPoint(main.add_entry_block()), ir.Location.name("the/node"):
        made = OPS[name].make(*main.arguments, **attributes)
        func.ReturnOp([made])
    main.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [made.type]))
    return module


def _with_module(shapes: list[tuple[int, ...]], name: str, function: Callable[[Any], Any], **attributes: Any) -> Any:
    with make_context(), ir.Location.unknown():
        return function(_module(shapes, name, **attributes))


CONV: list[tuple[list[tuple[int, ...]], dict[str, Any]]] = [
    ([(2, 5, 9, 8), (7, 5, 3, 3), (7,)], {"strides": [2, 1], "padding": [1, 0, 1, 2]}),
    ([(2, 5, 9, 8), (7, 5, 3, 3)], {"dilations": [2, 2]}),
    ([(2, 9, 8, 5), (3, 3, 5, 7), (7,)], {"data_layout": "N*C", "kernel_layout": "*IO", "padding": [1] * 4}),
    ([(2, 9, 8, 5), (7, 5, 3, 3), (7,)], {"data_layout": "N*C"}),
    ([(2, 5, 9, 8), (3, 3, 5, 7)], {"kernel_layout": "*IO"}),
    ([(1, 5, 19), (7, 5, 3), (7,)], {"strides": [2]}),
    ([(1, 6, 9, 8), (6, 1, 3, 3)], {"groups": 6}),
]


@pytest.mark.parametrize(("shapes", "attributes"), CONV)
def test_both_strategies_of_conv_agree(shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    direct, other = (
        _with_module(shapes, "conv", lambda m, s=name: mirlo.compile(m, strategies={"relax.conv": s}), **attributes)
        for name in ("conv", "im2col")
    )
    np.testing.assert_allclose(other(*arrays), direct(*arrays), rtol=1e-4, atol=1e-4)


def test_a_strategy_that_declines_falls_through() -> None:
    strategies = {"relax.conv": "im2col"}
    found = _with_module(
        [(1, 6, 9, 8), (6, 1, 3, 3)], "conv", lambda m: explain_model(m, strategies=strategies), groups=6
    )
    (record,) = found.nodes[0].operators
    assert record.rule.name == "conv" and record.chosen == "im2col"
    assert [str(attempt) for attempt in record.attempts] == [
        "im2col [default]: a product of matrices is for convolutions without groups (groups=6)"
    ]


def test_a_function_chooses() -> None:
    asked = []

    def choose(op: Any) -> str | None:
        asked.append(tuple(op.weight.type.shape))
        return "im2col" if op.weight.type.shape[0] > 6 else None

    for outputs, winner in ((7, "im2col"), (5, "conv")):
        found = _with_module(
            [(1, 5, 9, 8), (outputs, 5, 3, 3)],
            "conv",
            lambda m: explain_model(m, strategies={"relax.conv": choose}),
        )
        assert found.nodes[0].operators[0].rule.name == winner
    assert asked == [(7, 5, 3, 3), (5, 5, 3, 3)]


def test_rules_of_the_caller_stay_first() -> None:
    def mine(op: Any, b: Any) -> Any:
        return decline("only asked")

    strategies = {"relax.conv": "im2col"}
    found = _with_module(
        [(1, 5, 9, 8), (7, 5, 3, 3)],
        "conv",
        lambda m: explain_model(m, strategies=strategies, legalize={"relax.conv": mine}),
    )
    record = found.nodes[0].operators[0]
    assert [attempt.rule.name for attempt in record.attempts] == ["mine"] and record.rule.name == "im2col"


def test_measured_strategies_are_remembered(tmp_path: Path) -> None:
    cache = tmp_path / "strategies.json"
    shapes: list[tuple[int, ...]] = [(1, 5, 9, 8), (7, 5, 3, 3)]
    first = _with_module(shapes, "conv", lambda m: explain_model(m, strategies=Measured(cache)))
    (record,) = first.measured
    assert set(record.microseconds) == {"conv", "im2col"} and record.operator == "relax.conv"
    assert first.nodes[0].operators[0].rule.name == record.fastest
    assert list(json.loads(cache.read_text()).values()) == [record.microseconds]
    # The other one is made to look faster: nothing is measured again.
    known = {key: {"conv": 2.0, "im2col": 1.0} for key in json.loads(cache.read_text())}
    cache.write_text(json.dumps(known))
    start = time.perf_counter()
    again = _with_module(shapes, "conv", lambda m: explain_model(m, strategies=Measured(cache)))
    assert again.nodes[0].operators[0].rule.name == "im2col" and time.perf_counter() - start < 30
    assert str(again.measured[0]) == "strategies of relax.conv: conv 2.0 us, im2col 1.0 us"


def test_what_declines_is_not_measured() -> None:
    found = _with_module(
        [(1, 6, 9, 8), (6, 1, 3, 3)], "conv", lambda m: explain_model(m, strategies="measure"), groups=6
    )
    assert set(found.measured[0].microseconds) == {"conv"}


def test_compile_measures() -> None:
    exe = _with_module([(1, 5, 9, 8), (7, 5, 3, 3)], "conv", lambda m: mirlo.compile(m, strategies="measure"))
    assert exe.outputs[0].shape == (1, 7, 7, 6)


def test_damaged_cache(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(FileError, match="cannot read measured strategies from"):
        Measured(tmp_path / "c.json")


def test_unknown_strategies() -> None:
    shapes: list[tuple[int, ...]] = [(1, 5, 9, 8), (7, 5, 3, 3)]
    message = r"'relax.conv' has no strategy 'winograd'; it has: conv, im2col"
    with pytest.raises(PassFailed, match=message):
        _with_module(shapes, "conv", lambda m: mirlo.compile(m, strategies={"relax.conv": "winograd"}))
    message = r"a strategy is given for 'relax.cnv', which is not an operator; did you mean 'relax.conv'\?"
    with pytest.raises(PassFailed, match=message):
        _with_module(shapes, "conv", lambda m: mirlo.compile(m, strategies={"relax.cnv": "im2col"}))
    with pytest.raises(ValueError, match="expected names by operator, or 'measure', found 'fastest'"):
        _with_module(shapes, "conv", lambda m: mirlo.compile(m, strategies="fastest"))
