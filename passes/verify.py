"""Verification of the IR."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass


@register_pass
@dataclass(frozen=True)
class Verify(Pass):
    """Check every operation of the module.

    `mirlo-opt` does this after each pass anyway, except with `--no-verify-each`.
    """

    name = "verify"
    contained = True

    def run(self, op: ir.OpView, session: Session) -> None:
        op.verify()
