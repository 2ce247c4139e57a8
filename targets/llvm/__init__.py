"""Target `llvm`: code for the CPU through LLVM."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="llvm",
    help="the CPU of this machine, through LLVM",
    rule_modules=(),
)
