"""The options of quantization, derived from their declarations."""

from __future__ import annotations

from typing import Any

import pytest

from mirlo.runtime.options import declared_options
from mirlo.tools.cli import main
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.options import given_options
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.options import ImageScaling, Quantization, StaticQuantization

KINDS: tuple[type, ...] = (Quantization, StaticQuantization, ImageScaling)
FLAGS = [(kind, name, flag) for kind in KINDS for name, each in declared_options(kind).items() for flag in each.flags]
VALUES: dict[str, tuple[list[str], Any]] = {
    "--bits": (["8"], 8), "--block": (["64"], 64), "--symmetric": ([], True), "--percentile": (["99"], 99.0),
    "--no-bias-correction": ([], False), "--equalize": ([], True), "--keep": (["head"], ("head",)),
    "--max-error": (["0.5"], 0.5), "--whole": ([], True), "--unsigned": ([], True), "--integer-io": ([], True),
    "--samples": (["3"], 3),
    "--mean": (["0.5,0.25,0"], (0.5, 0.25, 0.0)), "--std": (["2"], (2.0,)),
}  # fmt: skip
"""By flag, the words after it and the value of the option; others take their last choice."""


@pytest.mark.parametrize(("kind", "name", "flag"), FLAGS, ids=[flag.name for _, _, flag in FLAGS])
def test_each_flag_sets_its_option(kind: type, name: str, flag: Any) -> None:
    choices = declared_options(kind)[name].choices
    words, value = VALUES[flag.name] if flag.name in VALUES else ([choices[-1]], choices[-1])
    arguments = make_parser().parse_args(["quantize", "model.onnx", flag.name, *words], namespace=Arguments())
    given = {each: given_options(arguments, each) for each in KINDS}
    assert given == {each: {name: value} if each is kind else {} for each in KINDS}
    assert getattr(kind(**given[kind]), name) == value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--samples 3", "--samples is for '--int8 --calibrate DATA'"),
        ("--report r.txt --mean 1", "--report is for '--int8 --calibrate DATA'"),
        ("--int8 --calibrate d.npz --bits 4", "--bits is for weights of a few bits, not for --int8"),
        ("--int8", "--int8 needs data"),
        ("--block 24", "block: expected a power of two from 16, found 24"),
    ],
)
def test_flags_that_do_not_apply(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", __file__, *flags.split()]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Quantization, {"bits": "4"}, "bits: expected 2, 4 or 8, found '4'"),
        (Quantization, {"symmetric": None}, "symmetric: expected True or False"),
        (StaticQuantization, {"percentile": 50}, "percentile: expected more than 50, at most 100, found 50"),
        (StaticQuantization, {"keep": "head"}, "keep: expected a list of names, found 'head'"),
        (StaticQuantization, {"max_error": 0}, "max_error: expected more than 0, found 0"),
        (StaticQuantization, {"images": 1}, "images: expected an ImageScaling, found 1"),
        (ImageScaling, {"mean": (1.0, 2.0)}, "mean: expected one finite number, or three"),
        (ImageScaling, {"std": (float("nan"),)}, "std: expected one finite number, or three"),
        (ImageScaling, {"std": (0.0,)}, "std: expected numbers above 0"),
    ],
)
def test_wrong_values(kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        kind(**options)
