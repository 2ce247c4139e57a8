"""Quantization of weights to a few bits: the options, the codes of a block, the report of errors."""

from mirlo.runtime.bit_fields import pack_fields, unpack_fields
from mirlo.runtime.extenders import record_extenders
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.errors_of_outputs import Difference
from mirlo.tools.quantize.nbits import block_parameters, nearest_codes
from mirlo.tools.quantize.options import CALIBRATED, Quantization

__all__ = [
    "CALIBRATED",
    "Difference",
    "Quantization",
    "QuantizationError",
    "block_parameters",
    "nearest_codes",
    "pack_fields",
    "unpack_fields",
]

record_extenders(__name__)
