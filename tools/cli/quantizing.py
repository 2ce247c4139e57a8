"""`mirlo quantize`: weights of matrix products as integers of a few bits, or whole models as int8."""

from __future__ import annotations

import os
from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.progress import Progress

STATIC_FLAGS = {
    "--calibrate": "calibrate", "--ranges": "ranges", "--percentile": "percentile", "--keep": "keep",
    "--max-error": "max_error", "--whole": "whole", "--unsigned": "unsigned", "--equalize": "equalize",
    "--no-bias-correction": "no_bias_correction", "--samples": "samples", "--report": "report", "--mean": "mean",
    "--std": "std",
}  # fmt: skip
"""The flags that `--int8` takes, by their names in the arguments."""
WEIGHT_FLAGS = {
    "--bits": "bits", "--block": "block", "--method": "method", "--symmetric": "symmetric",
    "--activations": "activations",
}  # fmt: skip
"""The flags of weights of a few bits."""


def execute(arguments: Arguments) -> None:
    """Quantize the model and write it."""
    if arguments.int8:
        _quantize_to_int8(arguments)
        return
    given = [flag for flag, name in STATIC_FLAGS.items() if getattr(arguments, name)]
    if given:
        raise CommandError(f"{given[0]} is for '--int8 --calibrate DATA'")
    from mirlo.tools.quantize.nbits import Quantization, quantize_file

    how = Quantization(
        arguments.bits or 4, arguments.block or 32, arguments.method or "rtn", arguments.symmetric,
        arguments.activations or "i8",
    )  # fmt: skip
    source = Path(arguments.model)
    target = Path(arguments.output or f"{source.stem}.u{how.bits}.onnx")
    with Progress(f"quantizing {os.path.basename(source)}", arguments.verbose):
        count = quantize_file(source, target, how)
    print(f"wrote {target}: {count} product{'s' if count > 1 else ''} with weights of {how.bits} bits")


def _quantize_to_int8(arguments: Arguments) -> None:
    from mirlo.tools.quantize.data import ImageScaling
    from mirlo.tools.quantize.static import StaticQuantization, quantize_static_file

    given = [flag for flag, name in WEIGHT_FLAGS.items() if getattr(arguments, name)]
    if given:
        raise CommandError(f"{given[0]} is for weights of a few bits, not for --int8")
    if arguments.calibrate is None:
        raise CommandError("--int8 needs data: --calibrate FILE.npz, a folder, or FILE.py:function")
    chosen = {
        "ranges": arguments.ranges, "percentile": arguments.percentile, "max_error": arguments.max_error,
        "samples": arguments.samples,
    }  # fmt: skip
    how = StaticQuantization(
        keep=tuple(arguments.keep),
        whole=arguments.whole,
        unsigned=arguments.unsigned,
        equalize=arguments.equalize,
        correct_bias=not arguments.no_bias_correction,
        images=ImageScaling(arguments.mean or (0.0,), arguments.std or (1.0,)),
        **{name: value for name, value in chosen.items() if value is not None},
    )
    source = Path(arguments.model)
    target = Path(arguments.output or f"{source.stem}.int8.onnx")
    with Progress(f"quantizing {source.name}", arguments.verbose) as progress:
        report = quantize_static_file(str(source), target, arguments.calibrate, how, progress)
    print(f"wrote {target}")
    if arguments.report is None:
        print(report.as_text())
        return
    report.save(arguments.report)
    print(f"wrote {arguments.report}\n{report.summary()}")
