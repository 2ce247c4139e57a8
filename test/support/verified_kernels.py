"""Kernels that tests compile, compared with their definitions: a share of them, with `--whole` all."""

from __future__ import annotations

import zlib

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.kernel_definition import BlockDefinition
from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.passes.exact.verdict_cache import text_of


class Share:
    """Which kernels are compared: one in this many, by the text of their definitions."""

    every = 16


def require_equal(definition: ir.Operation, scheduled: ir.Operation) -> None:
    """Compare a prim function after `lower-loops` with its tensor form, if it is among the share."""
    if zlib.crc32(text_of(definition).encode()) % Share.every:
        return
    verdict = KernelPair(BlockDefinition(definition), scheduled).verify()
    assert verdict.status != DIFFERENT, f"{verdict}\n{scheduled}"
