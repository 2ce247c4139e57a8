"""Mirlo: a machine-learning compiler built on MLIR, in Python from the graph to the kernel."""

from __future__ import annotations

import importlib
from typing import Any

from mirlo.runtime.locks import UNCUT

_LAZY = {
    "Executable": "mirlo.runtime.executable",
    "MirloError": "mirlo.runtime.errors",
    "Pipeline": "mirlo.passes.pipeline",
    "R": "mirlo.frontends.script.language",
    "Schedule": "mirlo.passes.schedule.words.schedule",
    "T": "mirlo.frontends.script.language",
    "compile": "mirlo.driver.compile",
    "legalize": "mirlo.passes.rules",
    "load": "mirlo.runtime.load",
    "onnx_operator": "mirlo.frontends.onnx.custom",
    "parse_script": "mirlo.frontends.script.module",
    "prim_func": "mirlo.frontends.script.prim",
    "script_of": "mirlo.frontends.script.printer",
    "script": "mirlo.frontends.script.module",
}
"""Where the names of the package come from; imported on first use, since most commands need few of them."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mirlo' has no attribute '{name}'")
    with UNCUT:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
