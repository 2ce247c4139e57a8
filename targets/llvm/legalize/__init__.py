"""Rules by which target `llvm` computes operators in its own way."""

from __future__ import annotations

from mirlo.targets.llvm.legalize import attention as _attention  # noqa: F401
