"""The target: parts of models in the oneDNN library."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="onednn",
    help="parts of models in the oneDNN library, on the CPU",
    codegen="mirlo.targets.onednn.codegen:OneDnn",
)
