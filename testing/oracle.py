"""The versions of ONNX Runtime and `onnx` that tests compare with: older ones lack operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import onnx
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


def lacking(error: BaseException) -> str:
    """Return what is missing for an error: a package, or a feature of an old ONNX Runtime or `onnx`; else empty."""
    message = str(error)
    package = re.search(r"its package is not installed: (pip install [\w-]+)", message)
    if package is not None:
        return f"needs a package: {package[1]}"
    if "pip install --upgrade onnx" in message:
        return "this onnx does not define the operator's function"
    kind = type(error)
    names = ("NotImplemented", "InvalidGraph", "Fail", "RuntimeException")
    if kind.__module__.startswith("onnxruntime.") and kind.__name__ in names and is_old():
        return f"this ONNX Runtime lacks it: {message.splitlines()[0]}"
    return ""


def exact_session(model: Any, options: Any = None) -> Any:
    """Return a session of ONNX Runtime whose sums of products of u8 and constant s8 are exact on every processor.

    Without VNNI it saturates pairs of them otherwise: most results of a MatMulInteger are wrong there.
    """
    import onnxruntime

    options = options or onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    model = _with_own_constants(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _with_own_constants(model: Any) -> Any:
    """Return a model whose nodes share no initializer: ONNX Runtime cannot rewrite one twice."""
    result = type(model).FromString(model.SerializeToString())
    tensors, read = {tensor.name: tensor for tensor in result.graph.initializer}, set()
    for node in result.graph.node:
        for at, name in enumerate(node.input):
            if name in tensors and name in read:
                own = result.graph.initializer.add()
                own.CopyFrom(tensors[name])
                own.name = node.input[at] = f"{name}/{node.output[0]}/{at}"
            read.add(name)
    return result


def needs_new(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test of an operator for which older versions of ONNX Runtime compute something else."""
    reason = "this ONNX Runtime computes another result"
    marked: Callable[..., Any] = pytest.mark.skipif(is_old(), reason=reason)(test)
    return marked


def needs_onnx(*version: int) -> pytest.MarkDecorator:
    """Mark a test of what the `onnx` package itself computes wrongly, or not at all, before a version."""
    installed = tuple(int(part) for part in onnx.__version__.split(".")[: len(version)])
    return pytest.mark.skipif(installed < version, reason=f"needs onnx {'.'.join(map(str, version))}")
