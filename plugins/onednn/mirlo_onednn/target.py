"""The target: parts of models in the oneDNN library."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="onednn",
    help="parts of models in the oneDNN library, on the CPU",
    codegen="mirlo_onednn.codegen:OneDnn",
)
