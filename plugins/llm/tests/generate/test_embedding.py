"""Embeddings and scores of texts: those of transformers, from weights and from ONNX; damaged folders are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_folders import SMALL, TEXTS, write_encoder, write_tokenizer
from mirlo_llm import generate
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from safetensors_file import write_safetensors

POOLING = "pooling_mode_mean_tokens"


def write_modules(folder: Path, pooling: str = POOLING, normalizes: bool = True, dense: int = 0) -> None:
    """Write the files of sentence-transformers."""
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), *(["Normalize"] if normalizes else [])]
    paths = ["", "1_Pooling", *(["2_Dense"] if dense else []), *(["3_Normalize"] if normalizes else [])]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({pooling: True}), encoding="utf-8")
    if dense:
        (folder / "2_Dense").mkdir(exist_ok=True)
        config = {
            "in_features": 24,
            "out_features": dense,
            "bias": True,
            "activation_function": "torch.nn.modules.Tanh",
        }
        (folder / "2_Dense" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        random = np.random.default_rng(1)
        tensors = {"linear.weight": random.standard_normal((dense, 24)), "linear.bias": random.standard_normal(dense)}
        write_safetensors(
            folder / "2_Dense" / "model.safetensors", {name: x.astype(np.float32) for name, x in tensors.items()}
        )


def reference_of(folder: Path, kind: str, options: dict[str, Any], is_reranker: bool = False) -> Any:
    """Write a model of transformers with random weights; return it."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **options})
    family = transformers.AutoModelForSequenceClassification if is_reranker else transformers.AutoModel
    reference = family.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(folder)
    write_tokenizer(folder)
    return reference


def states_of(reference: Any, tokens: list[int], **inputs: Any) -> np.ndarray:
    """Return the rows of a text's tokens."""
    import torch

    with torch.no_grad():
        result: np.ndarray = reference(torch.tensor([tokens]), **inputs).last_hidden_state[0].numpy()
    return result


ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "bert with one kind": ("bert", {"type_vocab_size": 1, "hidden_act": "gelu_new"}),
    "roberta": ("roberta", {"pad_token_id": 1, "max_position_embeddings": 26, "type_vocab_size": 1}),
    "xlm-roberta": ("xlm-roberta", {"pad_token_id": 1, "max_position_embeddings": 26, "type_vocab_size": 1}),
    "distilbert": ("distilbert", {"dim": 24, "hidden_dim": 40, "n_layers": 2, "n_heads": 4}),
    "mpnet": ("mpnet", {"pad_token_id": 1, "max_position_embeddings": 26}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name: str, tmp_path: Path) -> None:
    """Texts of different lengths share a batch, and get what each gets alone."""
    kind, options = ENCODERS[name]
    reference = reference_of(tmp_path, kind, options)
    model = generate.load_embedding(tmp_path, cache=False)
    found = model.embed(TEXTS)
    assert found.shape == (len(TEXTS), 24) and found.dtype == np.float32
    for text, row in zip(TEXTS, found, strict=True):
        mean = states_of(reference, model.encode(text)[0]).mean(0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["qwen3", "llama", "gemma3_text"])
def test_decoders_give_the_state_of_the_last_token(kind: str, tmp_path: Path) -> None:
    options = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "sliding_window": 3}
    reference = reference_of(tmp_path, kind, options)
    with pytest.raises(ModelFolderError, match="give a pooling, such as 'lasttoken'"):
        generate.load_embedding(tmp_path)
    write_modules(tmp_path, "pooling_mode_lasttoken")
    model = generate.load_embedding(tmp_path, cache=False)
    for text, row in zip(TEXTS, model.embed(TEXTS), strict=True):
        last = states_of(reference, model.encode(text)[0])[-1]
        np.testing.assert_allclose(row, last / np.linalg.norm(last), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_rerankers(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    options = {**ENCODERS[kind][1], "num_labels": 1}
    reference = reference_of(tmp_path, kind, options, True)
    model = generate.load_embedding(tmp_path, cache=False)
    found = model.score("sings", TEXTS)
    for text, score in zip(TEXTS, found, strict=True):
        tokens, kinds = model.encode("sings", text)
        assert len(set(kinds)) == 2 and tokens.count(3) == 2
        more = {"token_type_ids": torch.tensor([kinds])} if kind == "bert" else {}
        with torch.no_grad():
            logits = reference(torch.tensor([tokens]), **more).logits
        np.testing.assert_allclose(score, torch.sigmoid(logits)[0, 0].numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(GenerationError, match=r"scores pairs of texts: call score\(query, documents\)"):
        model.embed(TEXTS)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an encoder, written without transformers."""
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder)
    return folder


@pytest.mark.sample(0)
def test_names_of_files(encoder: Path, tmp_path: Path) -> None:
    """Files of models with a head have a prefix, older ones other names of norms."""
    expected = generate.load_embedding(encoder).embed(TEXTS)
    write_encoder(tmp_path, 0, "bert.", ("gamma", "beta"), {"cls.predictions.bias": np.zeros(32)})
    np.testing.assert_array_equal(generate.load_embedding(tmp_path, cache=False).embed(TEXTS), expected)
    write_encoder(tmp_path, more={"more": np.zeros(3)})
    with pytest.raises(ModelFolderError, match="1 tensors are not those of the architecture, such as 'more'"):
        generate.load_embedding(tmp_path, cache=False)


def pooled(rows: np.ndarray, pooling: str) -> np.ndarray:
    """Return what sentence-transformers computes of the rows of one text."""
    weights = np.arange(1, len(rows) + 1)[:, None]
    result: np.ndarray = {
        "cls": rows[0], "max": rows.max(0), "mean": rows.mean(0), "lasttoken": rows[-1],
        "mean_sqrt_len": rows.sum(0) / np.sqrt(len(rows)), "weightedmean": (rows * weights).sum(0) / weights.sum(),
    }[pooling]  # fmt: skip
    return result


def test_poolings(encoder: Path) -> None:
    from mirlo_llm.generate.embedding.pooling import POOLINGS

    plain = generate.load_embedding(encoder, normalize=False)
    for pooling in POOLINGS:
        model = generate.EmbeddingModel(replace(plain.config, poolings=(pooling,)), plain.executable)
        for text, row in zip(TEXTS, model.embed(TEXTS), strict=True):
            tokens, kinds = plain.encode(text)
            inputs = {"input_ids": tokens, "attention_mask": [1] * len(tokens), "token_type_ids": kinds}
            arrays = {name: np.array([each], np.int64) for name, each in inputs.items()}
            rows = plain.executable.run(arrays)["last_hidden_state"][0]
            np.testing.assert_allclose(row, pooled(rows, pooling), rtol=1e-4, atol=1e-5)


def test_modules(encoder: Path, tmp_path: Path) -> None:
    """A product after the pooling, lengths of rows, prompts and the longest text are those of the files."""
    write_encoder(tmp_path)
    plain = generate.load_embedding(tmp_path, normalize=False).embed(TEXTS)
    write_modules(tmp_path, normalizes=False, dense=5)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 8}', encoding="utf-8")
    prompts = {"prompts": {"query": "query : ", "document": ""}, "default_prompt_name": None}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    model = generate.load_embedding(tmp_path)
    random = np.random.default_rng(1)
    weight, bias = random.standard_normal((5, 24)), random.standard_normal(5)
    found = model.embed(TEXTS[:3], batch=2)
    np.testing.assert_allclose(found, np.tanh(plain[:3] @ weight.T + bias), rtol=1e-4, atol=1e-5)
    asked = model.embed("rain", prompt_name="query")
    np.testing.assert_array_equal(asked, model.embed("query : rain"))
    np.testing.assert_array_equal(asked, model.embed("rain", prompt="query : "))
    assert asked.shape == (5,) and model.embed("rain", dimensions=2).shape == (2,)
    with pytest.raises(GenerationError, match="a text has 12 tokens, the model takes up to 8: 'a a a"):
        model.embed(TEXTS)
    assert model.embed(TEXTS, truncate=True).shape == (4, 5)
    scores = model.score("rain", TEXTS[:3])
    assert scores.shape == (3,) and abs(scores).max() <= 1.00001


def test_an_exported_encoder(encoder: Path, tmp_path: Path) -> None:
    """A folder with an ONNX file in place of weights gives the same rows."""
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("onnxscript")  # what its export needs

    class States(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, encoder: Any) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, tokens: Any, mask: Any, kinds: Any) -> Any:
            return self.encoder(input_ids=tokens, attention_mask=mask, token_type_ids=kinds).last_hidden_state

    reference = States(reference_of(tmp_path, "bert", {}))
    expected = generate.load_embedding(tmp_path).embed(TEXTS)
    args = tuple(torch.ones((2, 5), dtype=torch.int64) for _ in range(3))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        reference, args, str(tmp_path / "model.onnx"), input_names=names, output_names=["last_hidden_state"],
        dynamo=True, external_data=False, dynamic_shapes=[{0: "batch", 1: "length"}] * 3, verbose=False,
    )  # fmt: skip
    found = generate.load_embedding(tmp_path, cache=False)
    assert found.config.model.suffix == ".onnx"
    np.testing.assert_allclose(found.embed(TEXTS), expected, rtol=1e-4, atol=1e-5)


def damaged(folder: Path, file: str, change: Any) -> None:
    path = folder / file
    value = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(value)), encoding="utf-8")


ERRORS: dict[str, tuple[str, Any, str]] = {
    "modules are a list": ("modules.json", lambda x: {}, "expected a list of up to 16 modules"),
    "a module is an object": ("modules.json", lambda x: [3], "'0': expected an object, found 3"),
    "an unknown step": (
        "modules.json", lambda x: [*x, {"path": "", "type": "a.WordWeights"}], "steps of kind 'WordWeights' are not"
    ),
    "a folder outside": (
        "modules.json", lambda x: [x[0], {**x[1], "path": "../1_Pooling"}], "expected the name of a folder in this one"
    ),
    "no pooling": ("1_Pooling/config.json", lambda x: {}, "'pooling_mode': expected some of cls, max, mean"),
    "prompts apart": ("1_Pooling/config.json", lambda x: {**x, "include_prompt": False}, "only true is supported"),
    "heads": ("config.json", lambda x: {**x, "num_attention_heads": 5}, "24 elements do not divide into 5 heads"),
    "positions": ("config.json", lambda x: {**x, "position_embedding_type": "relative_key"}, "a table of positions"),
    "a function": ("config.json", lambda x: {**x, "hidden_act": "sin"}, "'hidden_act': expected one of silu"),
    "other sizes": ("config.json", lambda x: {**x, "hidden_size": 28}, r"expected \[32, 28\] of f32, f16 or bf16"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_damaged_folders(name: str, tmp_path: Path) -> None:
    write_encoder(tmp_path)
    write_modules(tmp_path)
    file, change, text = ERRORS[name]
    damaged(tmp_path, file, change)
    with pytest.raises(ModelFolderError, match=text):
        generate.load_embedding(tmp_path)


def test_wrong_arguments(encoder: Path, tmp_path: Path) -> None:
    model = generate.load_embedding(encoder)
    for arguments, text in (
        ({"prompt": "a", "prompt_name": "b"}, "texts begin with one of them"),
        ({"prompt_name": "b"}, "the folder has no prompt 'b'; it has: none"),
        ({"dimensions": 25}, "dimensions: expected 1 to 24, found 25"),
        ({"batch": 0}, "batch: expected a number of texts, found 0"),
    ):
        with pytest.raises(GenerationError, match=text):
            model.embed(TEXTS, **arguments)  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="there are no texts"):
        model.embed([])
    with pytest.raises(ModelFolderError, match="pooling: expected one of cls, max"):
        generate.load_embedding(encoder, pooling="median")
    with pytest.raises(ModelFolderError, match="there is no such folder"):
        generate.load_embedding(tmp_path / "none")
    with pytest.raises(ModelFolderError, match=r"there is no config.json: is this the folder of an embedding model\?"):
        generate.load_embedding(tmp_path)
    assert model.score("rain", []).shape == (0,)


def test_tokens_of_the_model(encoder: Path) -> None:
    model = generate.load_embedding(encoder)
    np.testing.assert_array_equal(model.embed_tokens([[2, 6, 3]])[0], model.embed("sings"))
    for tokens in ([2, 32, 3], []):
        with pytest.raises(GenerationError, match="tokens: expected numbers below 32 for each text, found 32"):
            model.embed_tokens([[2, 3], tokens])
    with pytest.raises(GenerationError, match="a text has 25 tokens, the model takes up to 24"):
        model.embed_tokens([[2] * 25])


def test_files_cannot_make_texts_longer(tmp_path: Path) -> None:
    """The table of positions bounds them, whatever a file says."""
    write_encoder(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 99}', encoding="utf-8")
    assert generate.load_embedding(tmp_path).config.longest == 24


@pytest.mark.sample(0)
def test_scores_are_from_0_to_1(tmp_path: Path) -> None:
    write_encoder(tmp_path, labels=1)
    model = generate.load_embedding(tmp_path)
    rows = np.array([[-1000], [0], [1000]], np.float32)
    np.testing.assert_array_equal(model.scores_of(rows), [0, 0.5, 1])
    write_encoder(tmp_path, labels=3)
    with pytest.raises(GenerationError, match="the model gives 3 scores a pair, a reranker gives one"):
        generate.load_embedding(tmp_path).score("rain", TEXTS)
