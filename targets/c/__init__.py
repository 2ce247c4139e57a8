"""Target `c`: readable C source for parts of a model or for all of it."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="c",
    help="C source, compiled by the system's C compiler",
    rule_modules=("mirlo.targets.c.intrinsics",),
    codegen="mirlo.targets.c.generator:CGenerator",
)
