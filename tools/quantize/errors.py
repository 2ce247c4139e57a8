"""Errors of quantization."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class QuantizationError(MirloError, ValueError):
    """Raised for options that describe no quantization, unsuitable data, and models with nothing to quantize."""

    error_code = "MIR0702"
    remedy = "Change the options or the data of the calibration, as the message says."
