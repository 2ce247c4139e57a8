"""Embedding models in GGUF files: embeddings of transformers' models, tokens of transformers' tokenizers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from embedding_folders import SMALL
from embedding_folders import write_encoder as write_folder
from gguf_files import keys_of, tensors_of, write_gguf
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.embedding.config import is_embedding_model
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from test_embedding import reference_of, states_of

gguf = pytest.importorskip("gguf")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgo", "bird", "black", "sing", "tree", "the", "in"]
PIECES += [",", "cafe", "##bird", "##s", "##a", "##b", "##ing"]
TEXTS = ["a blackbird sings", "The  tree, in", "Café", "birdbirds singing", "", "x the [SEP] tree"]
MEAN, FIRST, LAST, SCORES = (int(gguf.PoolingType[name]) for name in ("MEAN", "CLS", "LAST", "RANK"))


def marked(piece: str) -> str:
    """Return a piece as files have it."""
    if piece.startswith("["):
        return piece
    return piece.removeprefix("##") if piece.startswith("##") else f"\u2581{piece}"


WORDS: dict[str, Any] = {
    "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": list(map(marked, PIECES)),
    "tokenizer.ggml.token_type": [3 if piece.startswith("[") else 1 for piece in PIECES],
    "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.seperator_token_id": 3,
    "tokenizer.ggml.padding_token_id": 0,
}  # fmt: skip


def write_encoder(
    path: Path, pooling: int | None = MEAN, kind: str = "F32", keys: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Write an encoder of transformers as converters for llama.cpp do, with other values of `keys`; return it."""
    reference = reference_of(path.parent, "bert", {**options, "vocab_size": len(PIECES)})
    state = {name: each.numpy() for name, each in reference.state_dict().items()}
    write_state(path, state, reference.config, pooling, kind, keys)
    return reference


def write_state(
    path: Path, state: dict[str, np.ndarray], config: Any, pooling: int | None = MEAN, kind: str = "F32",
    keys: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write an encoder with the tensors of a checkpoint."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    tensors = {
        names.get_name(name, (".weight", ".bias")): array
        for name, array in state.items()
        if not name.startswith("pooler") and not name.endswith("position_ids")
    }
    own = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size, "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads, "attention.layer_norm_epsilon": config.layer_norm_eps,
        "attention.causal": False, **({} if pooling is None else {"pooling_type": pooling}),
    }  # fmt: skip
    own = {f"bert.{key}": each for key, each in own.items()}
    write_gguf(path, "bert", {**own, **WORDS, **(keys or {})}, tensors, kind)


def test_files_compute_what_folders_do(tmp_path: Path) -> None:
    write_folder(tmp_path)
    state = {name: np.asarray(each) for name, each in read_checkpoint(tmp_path / "model.safetensors").items()}
    config = SimpleNamespace(**SMALL, layer_norm_eps=1e-12)
    vocabulary = [*PIECES, *(f"##{i}" for i in range(SMALL["vocab_size"] - len(PIECES)))]
    words = {
        "tokenizer.ggml.tokens": list(map(marked, vocabulary)),
        "tokenizer.ggml.token_type": [3 if piece.startswith("[") else 1 for piece in vocabulary],
    }
    write_state(tmp_path / "model.gguf", state, config, keys=words)
    folder, file = (generate.load_embedding(path, cache=False) for path in (tmp_path, tmp_path / "model.gguf"))
    tokens = [[2, 9, 3], [2, 3], [2, *range(5, 25), 3]]
    np.testing.assert_allclose(file.embed_tokens(tokens), folder.embed_tokens(tokens), rtol=1e-5, atol=1e-6)
    assert file.encode("A tree")[0] == [2, PIECES.index("a"), PIECES.index("tree"), 3]


@pytest.mark.parametrize("pooling", [MEAN, FIRST, LAST, None])
def test_encoders(pooling: int | None, tmp_path: Path) -> None:
    reference = write_encoder(tmp_path / "model.gguf", pooling)
    model = generate.load_embedding(tmp_path / "model.gguf", cache=False)
    for text, row in zip(TEXTS, model.embed(TEXTS), strict=True):
        states = states_of(reference, model.encode(text)[0])
        expected = states[0] if pooling == FIRST else states[-1] if pooling == LAST else states.mean(0)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), rtol=1e-4, atol=1e-5)


def test_other_poolings_and_lengths(tmp_path: Path) -> None:
    reference = write_encoder(tmp_path / "model.gguf")
    model = generate.load_embedding(tmp_path / "model.gguf", pooling="cls", normalize=False, cache=False)
    np.testing.assert_allclose(model.embed("a"), states_of(reference, model.encode("a")[0])[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(GenerationError, match="the model takes up to"):
        model.embed("a " * SMALL["max_position_embeddings"])


def test_quantized_weights(tmp_path: Path) -> None:
    """Weights of 8 bits, read as they are stored, differ by their rounding only."""
    options = {"hidden_size": 64, "intermediate_size": 96}
    write_encoder(tmp_path / "whole.gguf", **options)
    write_encoder(tmp_path / "short.gguf", kind="Q8_0", **options)
    whole, short = (
        generate.load_embedding(tmp_path / name, cache=False).embed(TEXTS) for name in ("whole.gguf", "short.gguf")
    )
    assert 0 < np.abs(whole - short).max() < 0.03


def test_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    """Words become pieces as in BERT's tokenizer, without cases and accents."""
    write_encoder(tmp_path / "model.gguf")
    model = generate.load_embedding(tmp_path / "model.gguf", cache=False)
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    reference = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    random = np.random.default_rng(0)
    signs = [*"abcdefgo ,.'\t", "É", "sing", "bird", "中", "##", "[MASK]", "\u0301", " the "]
    texts = ["".join(random.choice(signs, random.integers(0, 12))) for _ in range(200)]
    for text in [*TEXTS, *texts]:
        assert model.encode(text) == (reference(text).input_ids, reference(text).token_type_ids), text
    assert model.encode("a", "the")[0] == reference("a", "the").input_ids


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_decoders(kind: str, tmp_path: Path) -> None:
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "vocab_size": len(PIECES)}
    options = {**sizes, "hidden_act": "silu"}
    reference = reference_of(tmp_path, kind, options)
    config, path = reference.config, tmp_path / "model.gguf"
    state = {f"model.{name}": each.numpy() for name, each in reference.state_dict().items()}
    tensors = tensors_of(state, kind, config.num_attention_heads, config.num_key_value_heads)
    keys = {**keys_of(config, kind), **WORDS}
    write_gguf(path, kind, keys, tensors)
    assert not is_embedding_model(path)
    with pytest.raises(ModelFolderError, match="give a pooling, such as 'lasttoken'"):
        generate.load_embedding(path)
    write_gguf(path, kind, {**keys, f"{kind}.pooling_type": LAST}, tensors)
    assert is_embedding_model(path)
    model = generate.load_embedding(path, cache=False)
    for text, row in zip(TEXTS, model.embed(TEXTS), strict=True):
        last = states_of(reference, model.encode(text)[0])[-1]
        np.testing.assert_allclose(row, last / np.linalg.norm(last), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bert.pooling_type": SCORES}, "'bert.pooling_type': files that score pairs of texts are not supported"),
        ({"bert.pooling_type": 9}, r"expected one of 1 \(mean\), 2 \(cls\), 3 \(lasttoken\), found 9"),
        ({"bert.attention.causal": True}, "an encoder reads a text in both directions"),
        ({"bert.attention.head_count": 5}, "bert.attention.head_count"),
        ({"tokenizer.ggml.cls_token_id": 99}, "cls_token_id': there are"),
        ({"tokenizer.ggml.model": "t5"}, "expected one of llama, gpt2, bert, found 't5'"),
        ({"tokenizer.ggml.model": "none"}, "no tokenizer, which texts need"),
        ({"bert.context_length": 7}, "position_embd.weight"),
    ],
)
def test_wrong_files(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "model.gguf", keys=keys)
    with pytest.raises(ModelFolderError, match=message):
        generate.load_embedding(tmp_path / "model.gguf", cache=False)
