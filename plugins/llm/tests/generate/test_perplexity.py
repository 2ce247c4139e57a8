"""The perplexity of a text: that of transformers on the same tokens, and of the logits of a generator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from folders import example
from mirlo_llm import generate
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.tokenizer import ModelTokenizer
from test_checkpoints import SMALL

from mirlo.extend.command import main

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the example writes."""
    pytest.importorskip("tokenizers")
    path: Path = example().write(tmp_path_factory.mktemp("tiny"))
    return path


def marked(folder: Path, before: int, behind: int) -> bytes:
    """Return the tokenizer of a folder with this many tokens `<|end|>` before and after a text."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    mark = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    pattern = [*[mark] * before, {"Sequence": {"id": "A", "type_id": 0}}, *[mark] * behind]
    special = {"<|end|>": {"id": "<|end|>", "ids": [1], "tokens": ["<|end|>"]}}
    post = {"type": "TemplateProcessing", "single": pattern, "pair": pattern, "special_tokens": special}
    return json.dumps({**content, "post_processor": post}).encode()


@pytest.mark.sample(0)
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


@pytest.mark.sample(0)
def test_each_window_begins_as_texts_do(folder: Path, tmp_path: Path) -> None:
    """The token that begins texts replaces the first one of each window, as in llama.cpp; tokens stay as they are."""
    path, sentence = tmp_path / "tokenizer.json", "the quick brown fox jumps over the lazy dog"
    tokens = ModelTokenizer(path, marked(folder, 0, 0)).encode(sentence, special=True)
    model = generate.load(folder)
    for before, behind in ((1, 1), (0, 0), (2, 0)):
        model.tokenizer = ModelTokenizer(path, marked(folder, before, behind))
        start = model.tokenizer.start()
        assert start == [1] * before
        whole = [*start, *tokens, *[1] * behind]
        windows = [[*start, *whole[at + len(start) : at + 7]] for at in range(0, len(whole), 7)]
        expected = [each for each in windows if len(each) > 1]
        assert [each.tolist() for each in model.text_windows(sentence, 7)] == expected
        assert [each.tolist() for each in model.text_windows(tokens, 7)][1] == tokens[7:14]
        losses = [model.perplexity(each) for each in expected]
        result = model.perplexity(sentence, 7)
        mean = np.average([each.loss for each in losses], weights=[each.tokens for each in losses])
        np.testing.assert_allclose(result.loss, mean, rtol=1e-6)


@pytest.mark.sample(0)
def test_what_is_refused(folder: Path) -> None:
    model = generate.load(folder)
    with pytest.raises(GenerationError, match="the text has 1 tokens: a perplexity needs at least 2"):
        model.perplexity([5])
    for window in (1, 1 << 20, True):
        with pytest.raises(GenerationError, match=r"window: expected a number of tokens from 2 to \d+, found"):
            model.perplexity([5, 6, 7], window)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_perplexity_of_transformers(kind: str, folder: Path, tmp_path: Path) -> None:
    """Tokens are read as they are; of a text, each window begins with the token that begins texts."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, "vocab_size": 320})
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(marked(folder, 1, 0))
    model = generate.load(tmp_path, cache=False)
    assert model.tokenizer is not None
    text = "the quick brown fox jumps over the lazy dog " * 9
    tokens = torch.tensor(model.tokenizer.encode(text, special=True))
    for prompt in (tokens.tolist(), text):
        parts = [part.clone() for part in tokens.split(32) if len(part) > 1]
        for part in parts if prompt is text else []:
            part[0] = 1
        with torch.no_grad():
            losses = [reference(part[None], labels=part[None]).loss.item() for part in parts]
        counts = [len(part) - 1 for part in parts]
        result = model.perplexity(prompt, window=32)
        assert result.tokens == sum(counts) and len(parts) > 2
        np.testing.assert_allclose(result.value, np.exp(np.average(losses, weights=counts)), rtol=1e-4)
