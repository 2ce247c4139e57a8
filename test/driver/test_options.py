"""Options of a compilation: what derives from their declarations."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import mirlo
from mirlo.driver.options import DEFAULTS, OPTIONS, CompileArguments, CompileOptionError, UnknownOption
from mirlo.driver.reference import reference
from mirlo.driver.request import CompileRequest
from mirlo.driver.torch_backend.options import BackendOptionError, BackendOptions
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.options import given_options

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
FLAGS = [(name, flag) for name, option in OPTIONS.items() for flag in option.flags]
TEXTS: dict[str, tuple[str, Any]] = {
    "--target": ("c,llvm", "c,llvm"),
    "--threads": ("3", 3),
    "--shape": ("x=1x3", {"x": (1, 3)}),
    "--dim": ("n=4", {"n": 4}),
    "--strategy": ("relax.conv=im2col", {"relax.conv": "im2col"}),
    "--schedule": ("kernel=words.json", {"kernel": "words.json"}),
    "--jobs": ("2", 2),
    "--no-cache": ("", False),
    "--trust-file": ("", True),
    "--specialize": ("n=4,m=5", [{"n": 4, "m": 5}]),
}
"""By flag, the text behind it and the value of the option, where that is another than any word or a choice."""
VALUES: dict[str, Any] = {
    "threads": 3, "shapes": {"x": [1]}, "pipeline": "cse", "legalize": {"relax.exp": print},
    "intrinsics": {"exp": print},
    "strategies": {"relax.conv": "im2col"}, "schedules": {"kernel": print}, "opt_level": 1, "save_ir": "folder",
    "target": "llvm{cpu=x86-64-v3}", "params": object(), "last_rows": "logits", "ring_caches": True, "trust_file": True,
}  # fmt: skip
"""A value of each option that is in cache keys and has no choices, other than the default."""


def _words(name: str, flag: Any) -> tuple[list[str], Any]:
    choices = OPTIONS[name].choices
    text, value = TEXTS.get(flag.name, (choices[-1], choices[-1]) if choices else ("word", "word"))
    return ([flag.name, text] if text else [flag.name]), value


@pytest.mark.parametrize(("name", "flag"), FLAGS, ids=[flag.name for _, flag in FLAGS])
def test_each_flag_sets_its_option(name: str, flag: Any) -> None:
    words, value = _words(name, flag)
    arguments = make_parser().parse_args(["compile", "model.onnx", *words], namespace=Arguments())
    assert given_options(arguments) == {name: value}
    assert given_options(make_parser().parse_args(["compile", "model.onnx"], namespace=Arguments())) == {}


def test_the_signature_of_compile_is_that_of_the_declarations() -> None:
    parameters = inspect.signature(mirlo.compile).parameters
    assert {name: each.default for name, each in parameters.items() if name != "model"} == {
        name: default for name, default in DEFAULTS.items() if name != "model"
    }
    assert [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD] == ["model", "target"]
    for name, option in OPTIONS.items():
        assert f"{name}: {option.help}" in (mirlo.compile.__doc__ or "")


def _keyed() -> list[str]:
    """Return the options in keys, but for the database of `tune`, whose content counts."""
    return [name for name, option in OPTIONS.items() if option.key is not None and name != "tune"]


@pytest.mark.parametrize("name", _keyed())
def test_a_changed_option_is_another_key(name: str) -> None:
    choices = OPTIONS[name].choices
    value = choices[-1] if choices else VALUES[name]
    changed = CompileRequest("model.onnx", tune=False, **{name: value}).key_options()
    plain = CompileRequest("model.onnx", tune=False).key_options()
    assert {key for key in plain if changed[key] != plain[key]} == {name}


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.choices])
def test_a_value_that_is_no_choice_is_an_error(name: str) -> None:
    with pytest.raises(
        CompileOptionError, match=f"^{name}: expected {', '.join(OPTIONS[name].choices)}.*, found 'no such'"
    ):
        mirlo.compile("model.onnx", **{name: "no such"})


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.own_pass])
def test_options_that_are_passes_are_refused_beside_a_pipeline(name: str) -> None:
    value = OPTIONS[name].choices[-1] if OPTIONS[name].choices else "logits"
    with pytest.raises(CompileOptionError, match=f"^{name}: a pipeline of your own.*{OPTIONS[name].own_pass}"):
        mirlo.compile("model.onnx", pipeline="cse", **{name: value})


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match=r"mirlo.compile has no option 'thread'; .*; did you mean 'threads'\?"):
        mirlo.compile("model.onnx", thread=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", list(OPTIONS))
def test_torch_takes_what_names_no_parts_of_a_model(name: str) -> None:
    value = VALUES.get(name, 1)
    if OPTIONS[name].of_model:
        with pytest.raises(BackendOptionError, match=f"has no option '{name}'"):
            BackendOptions.parse({name: value}, None)
        return
    assert BackendOptions.parse({name: value, "strict": True}, None).compilation == {name: value}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run: python -m mirlo.driver.reference > docs/options.md"
    assert all(dataclasses.fields(CompileArguments)[i].name == name for i, name in enumerate(OPTIONS))
