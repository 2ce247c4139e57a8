"""Errors of quantization."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class QuantizationError(MirloError, ValueError):
    """Raised for options that describe no quantization, data that do not fit, and models without what is quantized."""

    error_code = "MIR0702"
    remedy = "Change the options or the data of the calibration, as the message says."
