"""The options of quantization, each declared once: checks and the flags of `mirlo quantize` derive from them."""

from __future__ import annotations

import dataclasses

from mirlo.runtime.options import (
    BOOLEAN,
    OptionDeclaration,
    OptionFlag,
    check_options,
    integer,
    is_integer,
    is_list,
    is_number,
    is_text,
    number,
    one_of,
    option,
    optional,
    parse_integer,
    values_that,
)
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.errors import QuantizationError

RANGES = ("minmax", "percentile", "entropy", "mse")
"""How ranges of data are chosen: `entropy` is of least divergence, `mse` of least squared error."""
CALIBRATED = ("awq", "gptq")
"""Methods that read a text, and quantize models in folders."""
LEVELS = {"exact": 1, "bf16": 3, "i8": 4}
"""The `accuracy_level` that permits a representation of activations."""
MIN_BLOCK = 16
"""Weights of the smallest block that MatMulNBits has."""


def _is_block(value: object) -> bool:
    return is_integer(value) and int(value) >= MIN_BLOCK and int(value) & (int(value) - 1) == 0


def _bits(text: str) -> int:
    if text not in ("2", "4", "8"):
        raise ValueError(f"expected 2, 4 or 8, found '{text}'")
    return int(text)


def _numbers(text: str) -> tuple[float, ...]:
    """Return numbers that are separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, found {text!r}") from None


CHANNELS = values_that(
    "one finite number, or three", lambda value: is_list(value, is_number) and len(value) in (1, 3), _numbers
)
"""A number for each channel of an image, or one for all."""


@dataclass(frozen=True)
class Quantization:
    """Options of the quantization of weights to a few bits."""

    bits: int = option(
        4,
        "Bits per weight.",
        OptionFlag("--bits", "{2,4,8}"),
        kind=values_that("2, 4 or 8", lambda value: is_integer(value) and value in (2, 4, 8), _bits),
    )
    block: int = option(
        32,
        "Number of weights that share a scale.",
        OptionFlag("--block", "N"),
        kind=values_that("a power of two from 16", _is_block, lambda text: parse_integer(text, 1)),
    )
    method: str = option(
        "rtn",
        "Round to the nearest of the range of a block (`rtn`), or search for the scale of least weighted error "
        "(`k_quant`). For models in folders, with a text: scale channels (`awq`), or compensate the errors "
        "of earlier weights in later ones (`gptq`).",
        OptionFlag(
            "--method",
            help="rtn: round to nearest; k_quant: search for the scales of least error; awq, gptq: for folders, with "
            "a text for calibration (default: rtn)",
        ),
        kind=one_of("rtn", "k_quant", *CALIBRATED),
    )
    symmetric: bool = option(False, "Store no zero points.", OptionFlag("--symmetric", form="constant"), kind=BOOLEAN)
    activations: str = option(
        "i8",
        "The type of activations that products may use.",
        OptionFlag("--activations"),
        kind=one_of(*LEVELS),
    )

    def __post_init__(self) -> None:
        check_options(self, QuantizationError)


@dataclass(frozen=True)
class ImageScaling:
    """The scaling from bytes of an image to values of an input: `(byte / 255 - mean) / std`."""

    mean: tuple[float, ...] = option(
        (0.0,), "The mean of images: (byte / 255 - mean) / std.", OptionFlag("--mean", "M[,M,M]"), kind=CHANNELS
    )
    std: tuple[float, ...] = option(
        (1.0,), "The standard deviation of images.", OptionFlag("--std", "S[,S,S]"), kind=CHANNELS
    )

    def __post_init__(self) -> None:
        check_options(self, QuantizationError)
        if min(self.std) <= 0:
            raise QuantizationError(f"std: expected numbers above 0, found {list(self.std)}")


@dataclass(frozen=True)
class StaticQuantization:
    """Options of the quantization of a model with calibration data."""

    ranges: str = option(
        "mse",
        "How the ranges of activations are chosen: by least squared error (`mse`), by least divergence (`entropy`), "
        "all values (`minmax`), or without outliers (`percentile`).",
        OptionFlag("--ranges", help="how to choose the ranges of activations (default: mse, the least squared error)"),
        kind=one_of(*RANGES),
    )
    percentile: float = option(
        99.99,
        "Percent of values that are not clipped.",
        OptionFlag("--percentile", "P"),
        kind=number(above=50, most=100),
    )
    correct_bias: bool = option(
        True,
        "Whether biases take up the mean error of their channels.",
        OptionFlag(
            "--no-bias-correction", form="constant", constant=False, help="do not correct biases by mean errors"
        ),
        kind=BOOLEAN,
    )
    equalize: bool = option(
        False,
        "Equalize the ranges of the channels between two products.",
        OptionFlag("--equalize", form="constant"),
        kind=BOOLEAN,
    )
    keep: tuple[str, ...] = option(
        (),
        "Nodes, or operators, that stay in f32.",
        OptionFlag(
            "--keep",
            "NAME",
            form="append",
            convert=tuple,
            help="keep this node, or all nodes of this operator, in f32; may be repeated",
        ),
        kind=values_that("a list of names", lambda value: is_list(value, is_text)),
    )
    max_error: float | None = option(
        None,
        "Keep the most sensitive nodes in f32, so that the relative RMS error of each output is at most E.",
        OptionFlag("--max-error", "E"),
        kind=optional(number(above=0)),
    )
    whole: bool = option(
        False,
        "Quantize every supported operator and the outputs, for accelerators that compute int8 only.",
        OptionFlag("--whole", form="constant"),
        kind=BOOLEAN,
    )
    integer_io: bool = option(
        False,
        "Use integer inputs and outputs; their scales and zero points are in the model's metadata.",
        OptionFlag("--integer-io", form="constant"),
        kind=BOOLEAN,
    )
    unsigned: bool = option(
        False,
        "Whether activations are u8 instead of i8.",
        OptionFlag("--unsigned", form="constant", help="use u8 instead of i8 for activations"),
        kind=BOOLEAN,
    )
    samples: int | None = option(
        None, "Use only the first N samples.", OptionFlag("--samples", "N"), kind=optional(integer(1))
    )
    images: ImageScaling = dataclasses.field(
        default_factory=ImageScaling,
        metadata={
            "option": OptionDeclaration(
                "The scaling of the bytes of images.",
                kind=values_that("an ImageScaling", lambda value: isinstance(value, ImageScaling)),
            )
        },
    )
    threads: int = option(1, "Threads of the calls that measure.", kind=integer(1))

    def __post_init__(self) -> None:
        check_options(self, QuantizationError)
