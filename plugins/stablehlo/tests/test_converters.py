"""Wrong results and errors of converters name the function; the former name of the registration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mirlo_stablehlo.importer import import_stablehlo
from mirlo_stablehlo.registry import CONVERTERS, converter

import mirlo
from mirlo.extend.frontend import make_context

PROGRAM = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
WRONG: list[Any] = [None, 3, "text", True, [None], [3], {}, {1}, np.zeros(3), object(), int, NotImplemented]


def _error(patch: pytest.MonkeyPatch, made: Any) -> str:
    CONVERTERS.load()  # what a patch replaces, it puts back
    patch.setitem(CONVERTERS, "tanh", lambda op: made())
    with make_context(), pytest.raises(mirlo.MirloError) as error:
        import_stablehlo(PROGRAM)
    return str(error.value)


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
def test_what_is_returned(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    message = _error(monkeypatch, lambda: value)
    assert __file__ in message and "expected a Tensor" in message and "internal" not in message


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("t"), AssertionError(), StopIteration()], ids=repr)
def test_what_is_raised(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> Any:
        raise error

    message = _error(monkeypatch, made)
    assert type(error).__name__ in message and __file__ in message


def test_the_former_name_of_the_registration() -> None:
    with pytest.warns(DeprecationWarning, match=r"extend.frontend.stablehlo_converter is now mirlo_stablehlo.registry"):
        from mirlo.extend.frontend import stablehlo_converter
    assert stablehlo_converter is converter
