"""The examples run, and the code that users write in them is as short as documented."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Load an example with temporary registries."""
    from mirlo.frontends.onnx.registry import CONVERTERS
    from mirlo.passes.legalize.legalize import load_default_rules
    from mirlo.passes.rules import LEGALIZE
    from mirlo.runtime import packed

    # What is loaded on first use would be forgotten too.
    load_default_rules()
    monkeypatch.setattr(CONVERTERS.users, "_table", {})
    monkeypatch.setattr(LEGALIZE, "_rules", {key: list(rules) for key, rules in LEGALIZE._rules.items()})
    monkeypatch.setattr(packed, "_FUNCTIONS", {})

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def _user_lines(name: str, end: str) -> int:
    """Lines with code from the comment 'What one writes' to where the model is made."""
    text = (EXAMPLES / f"{name}.py").read_text()
    part = text[text.index("# What one writes") : text.index(end)]
    return sum(bool(line.strip()) for line in part.splitlines()[1:])


def test_custom_onnx_operator(example, capsys) -> None:
    example("custom_onnx_operator").main()
    assert "['fused_tanh_fancy_norm_relu']" in capsys.readouterr().out
    assert _user_lines("custom_onnx_operator", "def model()") < 15


def test_legalize_for_target(example, capsys) -> None:
    example("legalize_for_target").main()
    assert "['fused_matmul_quick_gelu']" in capsys.readouterr().out
    assert _user_lines("legalize_for_target", "@mirlo.script") < 10


def test_packed_function(example, capsys) -> None:
    example("packed_function").main()
    assert "example.rank and example.row_sums" in capsys.readouterr().out


@pytest.mark.sample(0)
def test_packed_matmul(example) -> None:
    assert example("packed_matmul").main() > 5
