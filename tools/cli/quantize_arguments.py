"""Arguments of `mirlo quantize`."""

from __future__ import annotations

import argparse

from mirlo.tools.cli.options import add_options


def weight_options() -> type:
    """Return the options of weights of a few bits."""
    from mirlo.tools.quantize.options import Quantization

    return Quantization


def static_options() -> type:
    """Return the options of int8 models whose ranges data calibrate."""
    from mirlo.tools.quantize.options import StaticQuantization

    return StaticQuantization


def image_options() -> type:
    """Return the options that turn images into inputs."""
    from mirlo.tools.quantize.options import ImageScaling

    return ImageScaling


def add_quantization(parser: argparse.ArgumentParser) -> None:
    """Add the flags of both kinds of quantization."""
    add_options(parser, of=weight_options)
    add_options(parser, "threads", purpose="number of threads of calibration (default: 1)")
    group = parser.add_argument_group("int8 models")
    group.add_argument(
        "--int8",
        action="store_true",
        help="quantize weights and activations to int8, with ranges from calibration data",
    )
    group.add_argument(
        "--calibrate",
        metavar="DATA",
        help="calibration data: an .npz file, a folder of images or of .npy files, or FILE.py:function; for a model "
        "in a folder, a text, on which the error is printed as well",
    )
    add_options(parser, of=static_options, group=group)
    add_options(parser, of=image_options, group=group)
    group.add_argument("--report", metavar="FILE", help="write the errors of nodes to FILE: .html, .json or .txt")
