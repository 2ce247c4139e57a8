"""Values that functions of users may return or raise by mistake, and the model that they are tested with."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

import mirlo
import mirlo.extend
from mirlo import R
from mirlo.dialects.core import op
from mirlo.dialects.core.errors import DialectError
from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.frontend import UnsupportedOperation

WRONG: dict[str, Any] = {
    "None": None, "int": 3, "negative": -1, "float": 1.5, "nan": float("nan"), "complex": 1j, "text": "text",
    "empty text": "", "bytes": b"bytes", "True": True, "False": False, "list": [], "tuple": (), "dict": {}, "set": {1},
    "frozenset": frozenset(), "list of None": [None], "list of int": [3], "list of text": ["a"], "pair": ("a", 3),
    "nested": [[["a"]]], "range": range(3), "generator": (each for each in (1, 2)), "array": np.zeros(3),
    "scalar": np.int64(3), "object": object(), "class": int, "function": len, "module": types, "error": KeyError("x"),
    "Ellipsis": ..., "NotImplemented": NotImplemented,
}  # fmt: skip

ERRORS = (mirlo.MirloError, DialectError, op.OpError, UnsupportedOperation)

RAISED: dict[str, Exception] = {
    "KeyError": KeyError("x"), "TypeError": TypeError("t"), "AttributeError": AttributeError("a"),
    "AssertionError": AssertionError(), "RuntimeError": RuntimeError("r"), "StopIteration": StopIteration(),
}  # fmt: skip


@mirlo.script
def MODEL(x: R.Tensor[(4,), R.f32]):  # noqa: N802
    return R.tanh(R.relu(x))


class Generator(CodeGenerator):
    name = "callbacks"
    made: Callable[[], Any]

    def patterns(self) -> Any:
        return [("relu", is_op("relax.relu")(wildcard()))]

    def codegen(self, module: Any) -> Any:
        return type(self).made()
