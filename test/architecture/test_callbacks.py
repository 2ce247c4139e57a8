"""MLIR calls Python in few places, where what a callback raises is kept: the bindings lose an interrupt."""

from __future__ import annotations

import re

from commands import ROOT

SHIPPED = (
    "dialects", "frontends", "passes", "targets", "runtime", "driver", "tools", "plugins",
    "benchmarks",
)  # fmt: skip
CALLBACKS = re.compile(r"(?<!\bos)(?<!\bast)(?<!\bself)(?<!\bwheel)\.walk\(|\.attach_diagnostic_handler\(")


def test_only_the_safe_layer_gives_callbacks_to_mlir() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in SHIPPED
        for path in (ROOT / folder).rglob("*.py")
        if CALLBACKS.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"dialects/wheel.py"}
