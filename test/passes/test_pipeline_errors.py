"""Each way in which the text of a pipeline can be wrong: the message, and the place of the caret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from mirlo.passes.pipeline import Pipeline, PipelineError
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class Options(Pass):
    """Has one option of each kind."""

    name = "errors-test-options"
    flag: bool = option(False, "a bool")
    level: int = option(1, "an int")
    ratio: float = option(1.0, "a float")
    words: tuple[str, ...] = option((), "strings")
    sizes: tuple[int, ...] = option((), "ints")

    def __post_init__(self) -> None:
        if self.level < 0:
            raise ValueError("the level cannot be negative")

    def run(self, op: Any, session: Session) -> None:
        """Nothing to do."""


# The caret is expected under the character after `^`.
CASES = [
    ("cse,^legalise", "unknown pass 'legalise'; did you mean 'legalize'?"),
    ("func.func(^canonicalise)", "unknown pass 'canonicalise'; did you mean 'canonicalize'?"),
    ("^zzz", "unknown pass 'zzz'; 'mirlo-opt --list-passes' lists them all"),
    ("cse{^a=1}", "pass 'cse' has no option 'a'; it has no options"),
    ("canonicalize{^max-iteration=3}", "has no option 'max-iteration'; did you mean 'max-iterations'?"),
    ("canonicalize{top-down=false max-iterations=^many}", "cannot take 'many' for its option 'max-iterations'"),
    ("verify{^limit=3}", "pass 'verify' has no option 'limit'; it has no options"),
    ("errors-test-options{^flg}", "has no option 'flg'; did you mean 'flag'?"),
    ("errors-test-options{ ^zzz}", "has no option 'zzz'; it has: flag, level, ratio, words, sizes"),
    ("errors-test-options{flag=^maybe}", "option 'flag' of pass 'errors-test-options' is a bool, got 'maybe'"),
    ("errors-test-options{flag level=^high}", "option 'level' of pass 'errors-test-options' is an int, got 'high'"),
    ("errors-test-options{level=^1.5}", "is an int, got '1.5'"),
    ("errors-test-options{ratio=^half}", "is a float, got 'half'"),
    ("errors-test-options{ratio=^nan}", "is a float, got 'nan'"),
    ("errors-test-options{sizes=^1,two}", "is a list of ints, got '1,two'"),
    ("errors-test-options{level=1 ^level=2}", "option 'level' is given twice"),
    ("errors-test-options{^level=-1}", "pass 'errors-test-options': the level cannot be negative"),
    ("errors-test-options{^,}", "expected the name of an option, found ','"),
    ("errors-test-options{level^,ratio}", "expected a space or '=' after the option 'level', found ','"),
    ("errors-test-options^{words={a}", "the brace of these options is not closed"),
    ('errors-test-options^{words="a}', "the quote of these options is not closed"),
    ("builtin.module^(cse", "'builtin.module(' is not closed"),
    ("cse^)", "expected ',' or the end, found ')'"),
    ("cse ^canonicalize", "expected ',' or the end, found 'c'"),
    ("func.func(cse ^canonicalize)", "expected ',' or ')', found 'c'"),
    ("cse,^", "expected the name of a pass, found the end"),
    ("cse,^,cse", "expected the name of a pass, found ','"),
    ("func.func(^", "expected the name of a pass, found the end"),
    ("^func.fun(cse)", "cannot nest on 'func.fun'; did you mean 'func.func'?"),
    ("^zz.zz(cse)", "cannot nest on 'zz.zz'; it can be builtin.module, "),
    ("verify^(cse)", "'verify' is a pass: its options go in braces, 'verify{...}'"),
    ("canonicalize^(cse)", "'canonicalize' is a pass"),
    ("func.func(^verify)", "pass 'verify' runs on builtin.module, and cannot stand in func.func(...)"),
    ("func.func(^convert-gpu-to-nvvm)", "runs on gpu.module, and cannot stand in func.func(...)"),
]


@pytest.mark.parametrize(("marked", "message"), CASES)
def test_error(marked, message):
    at = marked.index("^")
    text = marked[:at] + marked[at + 1 :]
    with pytest.raises(PipelineError) as caught:
        Pipeline(text)
    first, shown, caret = str(caught.value).split("\n")
    assert message in first
    assert shown == f"  {text}"
    assert caret == f"  {' ' * at}^"


def test_long_text_is_shown_around_the_place():
    text = ",".join(["canonicalize"] * 20 + ["zzz"] + ["cse"] * 50)
    with pytest.raises(PipelineError) as caught:
        Pipeline(text)
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("zzz,cse")
    assert shown.startswith("  ...") and shown.endswith("...")


def test_mlir_prints_nothing_itself(capfd):
    with pytest.raises(PipelineError):
        Pipeline("canonicalize{max-iterations=many}")
    assert capfd.readouterr() == ("", "")
