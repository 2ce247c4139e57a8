"""The options of models on several ranks: flags, values and keys, and their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mirlo_ranks.options import RankOptions

import mirlo
from mirlo.extend.command import Arguments, given_options, make_parser
from mirlo.extend.compilation import DEFAULTS, OPTIONS, CompileRequest
from mirlo.extend.options import CompileOptionError, declared_options

VALUES: dict[str, tuple[list[str], Any]] = {
    "ranks": (["--ranks", "2"], 2),
    "rank": (["--rank", "1"], 1),
    "rank_plan": (["--rank-plan", "*=row"], ["*=row"]),
}
WRONG: dict[str, tuple[Any, ...]] = {
    "ranks": (0, "2", None, 1 << 20, object()), "rank": (-1, "0", b"1"), "rank_plan": (None, "*=row", [3]),
}  # fmt: skip


def test_all_options_are_tested() -> None:
    assert list(declared_options(RankOptions)) == list(VALUES) == list(WRONG)


@pytest.mark.parametrize("name", list(VALUES))
def test_an_option_is_one_of_compile(name: str) -> None:
    words, value = VALUES[name]
    for command in ("compile", "run", "explain"):
        arguments = make_parser().parse_args([command, "model.onnx", *words], namespace=Arguments())
        assert given_options(arguments) == {name: value}
    keys = [CompileRequest("model.onnx", tune=False, **each).key_options() for each in ({name: value}, {})]
    assert {key for key in keys[1] if keys[0][key] != keys[1][key]} == {name}
    with pytest.raises(CompileOptionError, match=f"^{name}: a pipeline of your own.*shard"):
        mirlo.compile("model.onnx", pipeline="cse", **{name: value})
    for wrong in WRONG[name]:
        with pytest.raises(CompileOptionError, match=rf"^{name}: expected .+, found \S"):
            mirlo.compile("model.onnx", **{name: wrong})


def test_the_page_lists_the_options() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for name, option in declared_options(RankOptions).items():
        shown = " ".join(filter(None, (option.flags[0].name, option.flags[0].metavar)))
        assert f"| `{name}={DEFAULTS[name]!r}` | `{shown}` |" in text and OPTIONS[name] is option
