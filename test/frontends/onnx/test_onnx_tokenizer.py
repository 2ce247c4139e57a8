"""Tokenizer of com.microsoft: generated texts and expressions, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx import OnnxImportError

PATTERNS = [" ", ",", "a", "ab", "[bc]", "c a", "b+", "\u00f6", "(a|b)", "a|ab", "ab|a"]


def model(dims: Any, **attributes: Any) -> Any:
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", pad_value="#", **attributes)
    value, result = (
        helper.make_tensor_value_info(name, TensorProto.STRING, d) for name, d in (("x", dims), ("y", None))
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", [value], [result]), opset_imports=imports, ir_version=9)


def attributes_of(rng: np.random.Generator, case: int) -> dict[str, Any]:
    mark = int(rng.integers(0, 2))
    if case % 5 == 0:
        return {"separators": [""], "mincharnum": 1, "mark": mark}
    least = int(rng.integers(1, 4))
    if case % 2:
        chosen = rng.choice(PATTERNS, rng.integers(1, 4), replace=False)
        return {"separators": list(map(str, chosen)), "mincharnum": least, "mark": mark}
    return {"tokenexp": str(rng.choice([*PATTERNS, "[a-c]+", "a*", "(a|b)(c)?"])), "mincharnum": least, "mark": mark}


def test_tokenizer() -> None:
    rng = np.random.default_rng(0)
    for case in range(30):
        texts = ["".join(rng.choice(list("ab c,\u00f6"), rng.integers(0, 9))) for _ in range(rng.integers(1, 5))]
        x = np.array(texts, object) if case % 3 else np.array([texts], object)
        made = model([f"d{i}" for i in range(x.ndim)], **attributes_of(rng, case))
        expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
        found = mirlo.compile(made)(x)
        assert found.shape == expected.shape and found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("dims", "attributes", "said"),
    [
        (["n"], {"separators": [""], "mincharnum": 2}, "'mincharnum' must be 1 for letters, got 2"),
        (["n"], {"separators": [" "], "mincharnum": 0}, "'mincharnum' must be 1 or more, got 0"),
        (["n"], {"separators": ["["], "mincharnum": 1}, "'separators' has '\\[', no regular expression"),
        (["n"], {"tokenexp": "(", "mincharnum": 1}, "'tokenexp' has '\\(', no regular expression"),
        (["n"], {"mincharnum": 1}, "exactly one of the attributes 'separators' and 'tokenexp'"),
        (["n", 1, 1], {"separators": [" "], "mincharnum": 1}, "input 'X' must be strings"),
    ],
)
def test_wrong_tokenizers_are_refused(dims: list[Any], attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(OnnxImportError, match=said):
        mirlo.compile(model(dims, mark=0, **attributes))
