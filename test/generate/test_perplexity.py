"""The perplexity of a text: that of transformers on the same tokens, and of the logits of a generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import example
from test_checkpoints import SMALL

from mirlo import generate
from mirlo.generate.errors import GenerationError
from mirlo.tools.cli import main

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the example writes."""
    pytest.importorskip("tokenizers")
    path: Path = example().write(tmp_path_factory.mktemp("tiny"))
    return path


def test_probabilities_of_each_token(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = generate.load(folder)
    tokens = np.random.default_rng(0).integers(3, 300, 23).tolist()
    losses = []
    for first in range(0, 23, 9):
        generator = model.generator()
        for at in range(first, min(first + 9, 23) - 1):
            generator.append([tokens[at]])
            expected = torch.tensor([tokens[at + 1]])
            losses.append(torch.nn.functional.cross_entropy(torch.from_numpy(generator.logits().copy()), expected))
    found = model.perplexity(tokens, window=9)
    assert found.tokens == len(losses) == 20
    np.testing.assert_allclose(found.value, np.exp(np.mean(losses)), rtol=1e-4)
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 4, encoding="utf-8")
    value = model.perplexity(text.read_text(), window=16)
    assert main(["perplexity", str(folder), str(text), "--window", "16"]) == 0
    assert capsys.readouterr().out == f"perplexity {value.value:.4f} of {value.tokens} tokens\n"
    text.write_bytes(b"\xff\xfe")
    assert main(["perplexity", str(folder), str(text)]) == 1
    assert f"{text}: not a text in UTF-8" in capsys.readouterr().err


def test_what_is_refused(folder: Path) -> None:
    model = generate.load(folder)
    with pytest.raises(GenerationError, match="the text has 1 tokens: a perplexity needs at least 2"):
        model.perplexity([5])
    for window in (1, 1 << 20, True):
        with pytest.raises(GenerationError, match=r"window: expected a number of tokens from 2 to \d+, found"):
            model.perplexity([5, 6, 7], window)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_perplexity_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SMALL)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(tmp_path)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(3, SMALL["vocab_size"], 100))
    with torch.no_grad():
        losses = [reference(part[None], labels=part[None]).loss.item() for part in tokens.split(32)]
    expected = np.exp(np.average(losses, weights=[31, 31, 31, 3]))
    found = generate.load(tmp_path, cache=False).perplexity(tokens.tolist(), window=32)
    assert found.tokens == 96
    np.testing.assert_allclose(found.value, expected, rtol=1e-4)
