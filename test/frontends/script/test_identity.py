"""A script is the code that its decorator saw, whatever else has its name."""

from __future__ import annotations

import itertools
import linecache
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.frontends.script.errors import ScriptError

BODY = """
    @R.function
    def main(x: R.Tensor[(4,), "f32"]) -> R.Tensor[(4,), "f32"]:
        return R.{operator}(x)
"""
FORMS = {
    "decorated": "@mirlo.script\nclass M:{body}",
    "attributes": "@mirlo.script(attrs={{}})\nclass M:{body}",
    "two decorators": "@(lambda module: module)\n@mirlo.script\nclass M:{body}",
    "called": "class M:{body}\nM = mirlo.script(M)",
}
X = np.linspace(0.5, 1, 4, dtype=np.float32)


def run(text: str, folder: Path, name: str = "file.py") -> dict[str, object]:
    path = folder / name
    path.write_text(text)
    linecache.checkcache(str(path))
    names: dict[str, object] = {"__name__": "test_identity_module"}
    exec(compile(text, str(path), "exec"), names)
    return names


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def computed(module: object) -> np.ndarray:
    return np.asarray(mirlo.compile(module, cache=False)(X))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", [True, False])
def test_branches(condition: bool, form: str, tmp_path: Path) -> None:
    """The definition that ran counts."""
    exp, tanh = (FORMS[form].format(body=BODY.format(operator=operator)) for operator in ("exp", "tanh"))
    text = f"import mirlo\nfrom mirlo import R, T\nif {condition}:\n{indented(exp)}else:\n{indented(tanh)}"
    np.testing.assert_allclose(
        computed(run(text, tmp_path)["M"]), np.exp(X) if condition else np.tanh(X), rtol=1e-5, atol=1e-6
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("forms", list(itertools.product(FORMS, FORMS)), ids="-".join)
def test_defined_again(forms: tuple[str, str], tmp_path: Path) -> None:
    text = "import mirlo\nfrom mirlo import R, T\n"
    for i, (form, operator) in enumerate(zip(forms, ("exp", "tanh"), strict=True)):
        text += FORMS[form].format(body=BODY.format(operator=operator)) + f"\nM{i} = M\n"
    names = run(text, tmp_path)
    texts = [str(names[f"M{i}"]) for i in range(2)]
    assert "relax.exp" in texts[0] and "relax.tanh" in texts[1]


def test_cells(tmp_path: Path) -> None:
    """The same cell with other code, as a notebook runs it, is another class."""
    for i, operator in enumerate(("exp", "tanh")):
        names = run("import mirlo\nfrom mirlo import R\n" + FORMS["decorated"].format(
            body=BODY.format(operator=operator)), tmp_path, f"cell{i}.py")  # fmt: skip
        assert f"relax.{operator}" in str(names["M"])


def test_nothing_tells(tmp_path: Path) -> None:
    constants = "import mirlo\nclass M:\n    A = 1\nfirst = M\nclass M:\n    A = 2\nmirlo.script(first)\n"
    with pytest.raises(ScriptError, match="'M' is defined 2 times, at .*file.py:2, .*file.py:5, and nothing tells"):
        run(constants, tmp_path)


def test_a_changed_file(tmp_path: Path) -> None:
    text = "import mirlo\nfrom mirlo import R\ndef f(x: R.Tensor[(4,), 'f32']):\n    return R.exp(x)\n"
    function = run(text, tmp_path)["f"]
    other = "def g(x: R.Tensor[(4,), 'f32']):\n    return x\n\n"
    (tmp_path / "file.py").write_text(text.replace("def f", f"{other}def f"))
    with pytest.raises(ScriptError, match=r"the source of 'f' is not at .*file.py:\d+: the file has changed"):
        mirlo.script(function)  # type: ignore[arg-type]
