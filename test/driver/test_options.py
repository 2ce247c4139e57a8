"""Options of a compilation: what derives from their declarations."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.driver.options import DEFAULTS, CompileArguments, CompileOptionError, CoreArguments
from mirlo.driver.reference import reference
from mirlo.driver.request import CompileRequest
from mirlo.runtime.options import ANYTHING, UnknownOption, declared_options
from mirlo.runtime.params import ParameterStore
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.options import given_options

OPTIONS = declared_options(CoreArguments)
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
    "--no-tuning": ("", False),
    "--database": (__file__, __file__),
    "--trust-file": ("", True),
    "--invariant": ("", True),
    "--verify": ("", True),
    "--specialize": ("n=4,m=5", [{"n": 4, "m": 5}]),
}
"""By flag, the text after it and the value of the option, where that is another than any word or a choice."""
VALUES: dict[str, Any] = {
    "threads": 3, "shapes": {"x": [1]}, "pipeline": "cse", "legalize": {"relax.exp": print},
    "intrinsics": {"exp": print},
    "strategies": {"relax.conv": "im2col"}, "schedules": {"kernel": print}, "opt_level": 1, "save_ir": "folder",
    "target": "llvm{cpu=x86-64-v3}", "params": ParameterStore(), "last_rows": "logits", "ring_caches": True,
    "trust_file": True, "verify": True, "invariant": True,
}  # fmt: skip
"""A value of each option that is in cache keys and has no choices, other than the default."""


WRONG: dict[str, tuple[Any, ...]] = {
    "target": (None, [3]), "threads": ("4", 0, -1, 1.5, True, None, 1 << 70),
    "shapes": ("x=1x4", [("x", (1, 4))], {"x": 4}, {3: (1,)}, {"x": "1x4"}), "dims": ([1], {1: 2}),
    "pipeline": (["cse"], int), "legalize": ([print], {"relax.exp": 3}, {"relax.exp": [3]}, {3: print}),
    "intrinsics": ({"exp": 3},), "strategies": ("mesure", {"relax.conv": 3}, ["a"]),
    "schedules": ([print], {3: print}, {"kernel": None}), "opt_level": ("2", 4, -1, None, True, 1.5),
    "save_ir": (True, [], ""), "progress": ("x",), "load": (None, 1), "params": ({},),
    "cache": (None, 1, []), "jobs": (0, True, "2"),
    "tune": (None, -1, float("nan"), float("inf"), 10**400, []), "precision": ("F16",), "activations": ("i9",),
    "kv_cache_dtype": ("i4", ["i8"]), "last_rows": (3,), "ring_caches": (None, 1, "no"),
    "placement": (None, ["llvm"], {"onednn": 3}), "specialize": ({"n": 1}, [3], "n=1"), "trust_file": (1, "no", None),
    "verify": (1, "no", None), "invariant": (1, "no", None),
    "args": (3, "x"), "kwargs": ([1], {1: 2}),
}  # fmt: skip
"""Values that options do not take, beside those of a class that none takes."""


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


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.kind is not ANYTHING])
def test_a_value_of_another_kind_is_an_error(name: str) -> None:
    for value in (*WRONG[name], object(), b"bytes"):
        with pytest.raises(CompileOptionError, match=rf"^{name}: expected .+, found \S"):
            mirlo.compile("model.onnx", **{name: value})


def test_what_a_value_should_have_been_is_said() -> None:
    for options, message in (
        ({"threads": "4"}, "threads: expected an integer, 1 or more, found '4'"),
        ({"threads": 0}, "threads: expected 1 or more, found 0"),
        ({"opt_level": 7}, "opt_level: expected 0 to 3, found 7"),
        ({"legalize": {"relax.exp": 3}}, "legalize: expected functions, or lists of functions, by name, found"),
        ({"tune": None}, "tune: expected True or False, or a number, or a Database, or a path, found None"),
        ({"schedules": {"k": None}}, "schedules: expected a Schedule, its trace, a file of one, or a function for 'k'"),
    ):
        with pytest.raises(CompileOptionError) as error:
            mirlo.compile("model.onnx", **options)  # type: ignore[arg-type]
        assert str(error.value).startswith(message)


def test_integers_may_be_those_of_numpy() -> None:
    assert CompileRequest("model.onnx", threads=np.int64(2), opt_level=np.uint8(1)).threads == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.own_pass])
def test_options_that_are_passes_are_refused_beside_a_pipeline(name: str) -> None:
    value = OPTIONS[name].choices[-1] if OPTIONS[name].choices else VALUES.get(name, "logits")
    with pytest.raises(CompileOptionError, match=f"^{name}: a pipeline of your own.*{OPTIONS[name].own_pass}"):
        mirlo.compile("model.onnx", pipeline="cse", **{name: value})


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match=r"mirlo.compile has no option 'thread'; .*; did you mean 'threads'\?"):
        mirlo.compile("model.onnx", thread=2)  # type: ignore[call-arg]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run: python -m mirlo.driver.reference > docs/options.md"
    assert all(dataclasses.fields(CompileArguments)[i].name == name for i, name in enumerate(OPTIONS))
