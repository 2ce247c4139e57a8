"""Arguments of `mirlo quantize --int8`."""

from __future__ import annotations

import argparse

from mirlo.tools.cli.values import positive


def add_static_quantization(parser: argparse.ArgumentParser) -> None:
    """Add the flags of int8 models whose ranges data calibrate."""
    group = parser.add_argument_group("weights and data as int8")
    group.add_argument("--int8", action="store_true", help="quantize weights and data, with ranges from typical data")
    group.add_argument(
        "--calibrate",
        metavar="DATA",
        help="typical inputs: an .npz file, a folder of images or of .npy files, or FILE.py:function",
    )
    group.add_argument("--samples", metavar="N", type=positive, help="use the first N samples of the data")
    group.add_argument("--mean", metavar="M[,M,M]", type=_numbers, help="of images: (byte / 255 - mean) / std")
    group.add_argument("--std", metavar="S[,S,S]", type=_numbers, help="of images")
    group.add_argument(
        "--ranges",
        choices=("minmax", "percentile", "entropy", "mse"),
        help="how ranges of data are chosen (default: mse, least squared error)",
    )
    group.add_argument(
        "--percentile", metavar="P", type=float, help="percent of the values that are not clipped (default: 99.99)"
    )
    group.add_argument(
        "--keep", metavar="NAME", action="append", default=[], help="keep this node, or this operator, in f32"
    )
    group.add_argument(
        "--max-error",
        metavar="E",
        type=float,
        help="keep the most sensitive nodes in f32, so that the relative RMS error of each output is at most E",
    )
    group.add_argument("--equalize", action="store_true", help="make the channels between two products equally large")
    group.add_argument("--no-bias-correction", action="store_true", help="do not add mean errors to biases")
    group.add_argument("--unsigned", action="store_true", help="data are u8, not i8")
    group.add_argument(
        "--whole",
        action="store_true",
        help="make all operators int8 that can be, and round the outputs, as accelerators need that compute int8 only",
    )
    group.add_argument("--report", metavar="FILE", help="write the errors of nodes to FILE: .html, .json or .txt")


def _numbers(text: str) -> tuple[float, ...]:
    """Return numbers that are separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas, found {text!r}") from None
