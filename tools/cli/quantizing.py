"""`mirlo quantize`: store the weights of matrix products as integers of a few bits."""

from __future__ import annotations

import os
from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.progress import Progress


def execute(arguments: Arguments) -> None:
    """Quantize the model and write it."""
    from mirlo.tools.quantize import Quantization, quantize_file

    how = Quantization(
        arguments.bits, arguments.block, arguments.method, arguments.symmetric, arguments.activations or "i8"
    )
    source = Path(arguments.model)
    target = Path(arguments.output or f"{source.stem}.u{how.bits}.onnx")
    with Progress(f"quantizing {os.path.basename(source)}", arguments.verbose):
        count = quantize_file(source, target, how)
    print(f"wrote {target}: {count} product{'s' if count > 1 else ''} with weights of {how.bits} bits")
