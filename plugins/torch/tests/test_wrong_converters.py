"""Converters of users that return something else than tensors, or raise: the errors name the function and the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.registry import CONVERTERS, converter  # noqa: E402

import mirlo  # noqa: E402

WRONG: dict[str, Any] = {
    "None": None, "int": 3, "float": 1.5, "complex": 1j, "text": "text", "bytes": b"b", "True": True, "empty": [],
    "tuple": (), "dict": {}, "set": {1}, "list of int": [3], "list of None": [None], "pair": ("a", 3),
    "range": range(3),
    "generator": (each for each in (1, 2)), "array": np.zeros(4, np.float32), "scalar": np.int64(3),
    "object": object(), "class": int, "function": len, "error": KeyError("x"), "ellipsis": ...,
    "tensor of torch": torch.zeros(4), "NotImplemented": NotImplemented, "frozenset": frozenset(), "nested": [[[1]]],
    "module": np, "slice": slice(3), "two lists": [[], []],
}  # fmt: skip
RAISED = [KeyError("x"), TypeError("t"), AttributeError("a"), AssertionError(), RuntimeError("r"), StopIteration()]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    known = dict(CONVERTERS)
    yield
    CONVERTERS.pop("aten.relu.default")
    CONVERTERS.update(known)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_returned(name: str) -> None:
    message = error_of(lambda: WRONG[name])
    assert "returned" in message and "expected a Tensor" in message


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_is_raised(error: Exception) -> None:
    def made() -> Any:
        raise error

    assert type(error).__name__ in error_of(made)


def error_of(made: Any) -> str:
    """Return the message of an error, which names the operator and the converter."""

    def convert(op: Any, x: Any) -> Any:
        return made()

    CONVERTERS.pop("aten.relu.default", None)
    converter("aten.relu.default")(convert)
    with pytest.raises(mirlo.MirloError) as error:
        mirlo.compile(torch.nn.ReLU().eval(), args=(torch.ones(4),), cache=False)
    message = str(error.value)
    assert "aten.relu.default" in message and f"convert() at {__file__}" in message
    return message
