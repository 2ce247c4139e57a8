"""The help of each pass in Python: its docstring, what it runs on, its options with their defaults."""

from __future__ import annotations

import inspect

import pytest

from mirlo.passes.options import options_of
from mirlo.passes.registry import load_all
from mirlo.tools.opt_flags import pass_help, pass_list

PASSES = load_all()


@pytest.mark.parametrize("name", PASSES)
def test_the_help_of_a_pass_lists_its_options(name: str) -> None:
    cls = PASSES[name]
    lines = pass_help(name).splitlines()
    doc = inspect.cleandoc(cls.__doc__ or "").splitlines()
    assert lines[: len(doc)] == [f"{name}: {doc[0]}", *doc[1:]]
    assert lines[len(doc)] == f"Runs on {'each ' if cls.anchor == 'func.func' else ''}{cls.anchor}."
    rest, options = lines[len(doc) + 1 :], options_of(cls).values()
    assert rest[:2] == (["", "Options:"] if options else [])
    named = [line for line in rest[2:] if line.startswith("  ") and not line.startswith("   ")]
    assert named == [f"  {option.name}={option.kind.label}" for option in options]
    helps = " ".join(" ".join(rest).split())
    for option in options:
        default = "not given" if option.default is None else option.kind.print(option.default)
        assert " ".join(f"{option.help} (default: {default})".split()) in helps


def test_the_list_has_all_passes() -> None:
    passes = load_all()  # other tests register some
    listed = [line.split()[0] for line in pass_list().splitlines()[1:] if line.strip()]
    assert listed[: len(passes)] == list(passes)
