"""Representations that activations may have in products with weights of a few bits."""

from __future__ import annotations

ACTIVATIONS = ("exact", "i8", "i8x2", "bf16")
"""As they are; as int8 with a scale for each block of a row; as two such digits, 16 bits; as bf16."""
REQUESTED = "activations"
"""Session option: the representation that the user requested, whatever the model says."""
