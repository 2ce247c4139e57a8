"""The version of ONNX Runtime that tests compare with: the last one for an older Python lacks operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FIRST = (1, 24)
"""The first version that has all operators that tests ask for; Python 3.10 has 1.23 at most."""


def is_old() -> bool:
    """Return whether the installed ONNX Runtime is older than tests expect."""
    try:
        import onnxruntime
    except ImportError:
        return False
    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < FIRST


def lacks(error: BaseException) -> bool:
    """Return whether an error says that an old ONNX Runtime does not know a model's operator or its inputs."""
    kind = type(error)
    names = ("NotImplemented", "InvalidGraph", "Fail", "RuntimeException")
    return kind.__module__.startswith("onnxruntime.") and kind.__name__ in names and is_old()


def needs_new(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test of an operator for which older versions of ONNX Runtime compute something else."""
    reason = "this ONNX Runtime computes another result"
    return pytest.mark.skipif(is_old(), reason=reason)(test)
