"""Errors of quantization."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class QuantizationError(MirloError, ValueError):
    """Raised for options that describe no quantization, data that do not fit, and models without what is quantized."""
