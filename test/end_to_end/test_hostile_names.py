"""Names of a model act nowhere: not in C, shell, HTML, IR or terminals, whatever command they are given to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.driver.models import ModelError
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.tools.fuzz.names import COMMANDS, FAILED, PAYLOADS, TEXT_FIELDS, UNSAFE, judge, judge_model, model_with


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(4 * len(COMMANDS)))
def test_random_places_and_commands(seed: int) -> None:
    verdict = judge(seed)
    assert verdict.state not in (UNSAFE, FAILED), verdict.text


@pytest.mark.parametrize("payload", PAYLOADS[:5], ids=ascii)
def test_no_name_is_code_in_c(payload: str) -> None:
    texts = dict.fromkeys(set(TEXT_FIELDS) - {"operator", "domain", "attribute", "attribute_text"}, payload)
    assert judge_model(model_with(texts), "source") == ("safe", "")


@pytest.mark.parametrize("payload", ["<!--<script", "</script><x-pwned>", "</title><x-pwned>"])
def test_no_name_is_a_tag_of_the_page(payload: str) -> None:
    assert judge_model(model_with(dict.fromkeys(("node", "value", "input", "dim"), payload)), "partition")[0] == "safe"


def test_names_that_cannot_be_shown_are_called_by_their_escapes() -> None:
    model = model_with({"input": "\x1b[2J\n", "output": "\u202e"})
    before = model.SerializeToString()
    executable = mirlo.compile(model, shapes={r"x\x1b[2J\n": (2, 4)}, cache=False)
    assert [spec.name for spec in executable.inputs] == [r"x\x1b[2J\n", "c"]
    assert [spec.name for spec in executable.outputs] == [r"y\u202e"]
    made = executable.run({r"x\x1b[2J\n": np.ones((2, 4), np.float32), "c": np.array(True)})
    np.testing.assert_array_equal(made[r"y\u202e"], np.full((2, 4), 8, np.float32))
    assert model.SerializeToString() == before  # the caller's model is not changed


def test_two_names_do_not_become_one() -> None:
    model = model_with({"input": "\x1b"})
    model.graph.value_info[0].name = r"x\x1b"
    with pytest.raises(OnnxImportError, match="cannot be distinguished"):
        mirlo.compile(model, cache=False)


@pytest.mark.parametrize("name", [r"\1B[2J", r"a\0Ab", r"\FF\FE", r"\E2\80\AE"])
def test_ir_cannot_name_inputs_so(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(
        f'func.func @main(%x: tensor<4xf32> {{relax.name = "{name}"}}) -> tensor<4xf32> {{\n'
        '  %y = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n'
    )
    with pytest.raises(ModelError, match="must be a string of printable characters"):
        mirlo.compile(path, cache=False)
