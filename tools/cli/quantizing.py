"""`mirlo quantize`: weights of products as integers of a few bits, of ONNX models and folders; or int8 models."""

from __future__ import annotations

import os
from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.options import given_flags, given_options
from mirlo.tools.cli.progress import Progress
from mirlo.tools.folders import FolderQuantization, folder_form
from mirlo.tools.quantize.nbits import quantize_file
from mirlo.tools.quantize.options import CALIBRATED, ImageScaling, Quantization, StaticQuantization
from mirlo.tools.quantize.static import quantize_static_file


def execute(arguments: Arguments) -> None:
    """Quantize the model and write it."""
    if arguments.int8 and os.path.isdir(arguments.model):
        raise CommandError("--int8 is for ONNX models; weights of folders are quantized to 2, 4 or 8 bits")
    if arguments.int8:
        _quantize_to_int8(arguments)
        return
    if os.path.isdir(arguments.model):
        _quantize_folder(arguments)
        return

    others = {**given_flags(arguments, StaticQuantization), **given_flags(arguments, ImageScaling)}
    flags = [name for name in ("calibrate", "report") if getattr(arguments, name)]
    for flag in [*(f"--{name}" for name in flags), *(flag for flag, _ in others.values())]:
        raise CommandError(f"{flag} is for '--int8 --calibrate DATA'")
    how = Quantization(**given_options(arguments, Quantization))
    if how.method in CALIBRATED:
        raise CommandError(f"--method {how.method} is for models in folders, with weights in safetensors")
    source = Path(arguments.model)
    target = Path(arguments.output or f"{source.stem}.u{how.bits}.onnx")
    with Progress(f"quantizing {os.path.basename(source)}", arguments.verbose):
        count = quantize_file(source, target, how)
    print(f"wrote {target}: {count} product{'s' if count > 1 else ''} with weights of {how.bits} bits")


def _quantize_folder(arguments: Arguments) -> None:
    others = {**given_flags(arguments, StaticQuantization), **given_flags(arguments, ImageScaling)}
    for name, (flag, _) in others.items():
        if name != "samples":
            raise CommandError(f"{flag} is for '--int8 --calibrate DATA', and for ONNX models")
    flags = given_options(arguments, Quantization)
    for flag, value in (("--report", arguments.report), ("--activations", flags.get("activations"))):
        if value is not None:
            raise CommandError(f"{flag} is for ONNX models: `mirlo generate` takes --activations for folders")
    form = folder_form(arguments.model)
    if form.quantize is None:
        raise CommandError(f"{arguments.model}: weights of such folders are not quantized")
    how, samples = Quantization(**flags), others.get("samples", ("", None))[1]
    source = Path(arguments.model)
    name = source.resolve().name
    target = Path(arguments.output or f"{name}.u{how.bits}")
    with Progress(f"quantizing {name}", arguments.verbose) as progress:
        threads = arguments.options.get("threads") or 1
        request = FolderQuantization(source, target, how, arguments.calibrate, samples, threads, progress)
        done = form.quantize(request)
    print(f"wrote {target}: {done.products} product{'s' if done.products > 1 else ''} with weights of {how.bits} bits")
    if done.errors is not None:
        print(done.errors)


def _quantize_to_int8(arguments: Arguments) -> None:
    for flag, _ in given_flags(arguments, Quantization).values():
        raise CommandError(f"{flag} is for weights of a few bits, not for --int8")
    if arguments.calibrate is None:
        raise CommandError("--int8 needs data: --calibrate FILE.npz, a folder, or FILE.py:function")
    images = ImageScaling(**given_options(arguments, ImageScaling))
    how = StaticQuantization(**given_options(arguments, StaticQuantization), images=images)
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
