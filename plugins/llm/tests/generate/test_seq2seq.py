"""T5 and BART: what they write is what transformers' models write; damaged folders are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.distances import groups_of
from mirlo_llm.generate.checkpoints.encoder_options import Distances
from mirlo_llm.generate.errors import GenerationError, ModelFolderError

from mirlo.testing.commands import output_of, run_command

T5 = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": 60}
BART = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 32,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 48, "vocab_size": 60,
    "bos_token_id": 0, "forced_eos_token_id": None,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}),
    "t5 with gates": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1}),
    "bart": ("bart", {}),
    "bart that begins with a token": ("bart", {"forced_bos_token_id": 7, "scale_embedding": True}),
}


def write_model(folder: Path, name: str) -> Any:
    """Write a tiny model with random weights; return transformers' model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, options = KINDS[name]
    torch.manual_seed(3)
    common = {"pad_token_id": 0 if kind == "t5" else 1, "eos_token_id": 1 if kind == "t5" else 2}
    common["decoder_start_token_id"] = 0 if kind == "t5" else 2
    config = transformers.AutoConfig.for_model(kind, **{**(T5 if kind == "t5" else BART), **common, **options})
    reference = transformers.AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        if kind == "bart":
            reference.final_logits_bias.copy_(torch.randn(1, 60))
    reference.save_pretrained(folder)
    write_tokenizer(folder)
    return reference


def write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(60)}, unk_token="w3"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens([AddedToken(f"w{i}", special=True) for i in range(3)])
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_written(name: str, tmp_path: Path) -> None:
    """Logits of each token, greedy tokens and those of a search with beams."""
    torch = pytest.importorskip("torch")
    reference = write_model(tmp_path, name)
    model = generate.load_seq2seq(tmp_path, cache=False)
    source = np.random.default_rng(0).integers(5, 60, 17).tolist()
    given = torch.tensor([source])
    written = [*model.config.first, 9, 33, 12]
    with torch.no_grad():
        expected = reference(input_ids=given, decoder_input_ids=torch.tensor([written])).logits[0].numpy()
        options = {"max_new_tokens": 12, "attention_mask": torch.ones_like(given)}
        greedy = reference.generate(given, do_sample=False, num_beams=1, **options)[0].tolist()
        beams = reference.generate(given, do_sample=False, num_beams=3, **options)[0].tolist()
    generator = model.generator(source)
    for i, token in enumerate(written):
        generator.append([token])
        np.testing.assert_allclose(generator.logits().reshape(-1), expected[i], rtol=1e-4, atol=2e-4)
    for count, wanted in ((1, greedy), (3, beams)):
        length = 12 - (len(model.config.first) - 1)
        found = model.generate(source, num_beams=count, max_new_tokens=length)
        wanted, ends = wanted[len(model.config.first) :], model.config.model.ends
        end = next((i for i, token in enumerate(wanted) if token in ends), len(wanted))
        assert [token for token in found if token not in ends] == wanted[:end]


def test_groups_of_distances() -> None:
    torch, modeling = pytest.importorskip("torch"), pytest.importorskip("transformers.models.t5.modeling_t5")
    for buckets, far in ((32, 128), (8, 20), (32, 64), (4, 9)):
        for has_both in (True, False):
            apart = torch.arange(-3 * far, 3 * far + 1)
            expected = modeling.T5Attention._relative_position_bucket(apart, has_both, buckets, far).numpy()
            clipped = np.clip(apart.numpy(), -far, far)
            np.testing.assert_array_equal(groups_of(clipped, Distances(buckets, far), has_both), expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bart")
    write_model(path, "bart")
    return path


def test_texts(folder: Path) -> None:
    model = generate.load_seq2seq(folder)
    text = "".join(model.stream("w9 w8 w7", max_new_tokens=5))
    assert text == model.tokenizer.decode(model.generate([9, 8, 7], max_new_tokens=5))  # type: ignore[union-attr]
    out = output_of(run_command("generate", folder, "w9 w8 w7", "--max-new-tokens", 5))
    assert out == f"{text}\n"
    done = run_command("generate", folder, "w9", "--regex", "a")
    assert done.returncode == 1 and "--regex: encoder-decoder models do not support it" in done.stderr
    for source, words in (([], "has 0 tokens"), ([60], "from 0 to 59"), ([5] * 49, "has 49 tokens, the model reads")):
        with pytest.raises(GenerationError, match=words):
            model.generate(source)
    with pytest.raises(ModelFolderError, match="T5 and BART are loaded by generate.load_seq2seq"):
        generate.load(folder)


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"model_type": "marian"}, "'marian' is not an encoder with a decoder that is read: bart, t5"),
    "heads": ({"encoder_attention_heads": 5}, "24 elements do not divide into 5 heads"),
    "function": ({"activation_function": "sin"}, "'activation_function': expected one of silu"),
    "sizes": ({"decoder_ffn_dim": 20}, r"expected \[20, 24\] of f32, f16 or bf16"),
    "layers": ({"encoder_layers": 1}, "tensors are not those of the architecture"),
    "start": ({"decoder_start_token_id": 77}, "expected tokens below 60, found 77"),
    "no start": ({"decoder_start_token_id": None}, "'decoder_start_token_id': it is missing"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_damaged_folders(name: str, folder: Path, tmp_path: Path) -> None:
    change, text = ERRORS[name]
    for each in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / each).write_bytes((folder / each).read_bytes())
    given = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**given, **change}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match=text):
        generate.load_seq2seq(tmp_path)
