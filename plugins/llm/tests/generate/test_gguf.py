"""Models in GGUF files compute what transformers' do with the dequantized weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import example
from gguf_files import write_model
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights, import_graph
from mirlo_llm.generate.gguf.blocks import TYPES
from mirlo_llm.generate.gguf.keys import ARCHITECTURES
from repository import ROOT
from test_checkpoints import KINDS, SMALL

import mirlo
from mirlo.extend.frontend import GraphBuilder, Tensor, TensorType

pytest.importorskip("gguf")
torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

NAMES = {
    "gemma3_text": "gemma3", "mistral": "llama", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
}  # fmt: skip
"""Architectures of files, where they have other names."""
FOLDERS_ONLY = ("llama4_text",)
FILE_KINDS = {name: each for name, each in KINDS.items() if each[0] not in FOLDERS_ONLY}


def make_model(kind: str, **options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, "intermediate_size": 64, **options})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in model.parameters():  # norms that are not 1, biases that are not 0
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def require_equal(path: Path, reference: Any, count: int = 9, **options: Any) -> None:
    """Compare logits of a prompt in two parts, and the tokens that follow."""
    prompt = np.random.default_rng(0).integers(3, SMALL["vocab_size"], 11)
    with torch.no_grad():
        given = torch.from_numpy(prompt)[None]
        expected = reference(given).logits[0, -1].numpy()
        tokens = reference.generate(given, max_new_tokens=count, do_sample=False)[0, 11:].tolist()
    model = generate.load(path, cache=False, **options)
    generator = model.generator(chunk_size=7)
    generator.append(prompt.tolist())
    np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
    found = model.generator(max_new_tokens=count).generate(prompt.tolist())
    assert [token for token in found if token != 2] == [token for token in tokens if token != 2]


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", FILE_KINDS)
def test_architectures(name: str, tmp_path: Path) -> None:
    kind, options = KINDS[name]
    if kind == "qwen2":
        options = {}  # files do not say of its windows
    if options.get("head_dim") == 12:
        options = {**options, "head_dim": 16}
    if "query_pre_attn_scalar" in options:
        options = {**options, "query_pre_attn_scalar": 16}
    if kind == "qwen2_moe":
        options = {**options, "mlp_only_layers": []}
    if kind == "smollm3":
        options = {"no_rope_layers": [1, 1, 1, 0], "num_hidden_layers": 4}
    if kind.startswith("deepseek"):  # files rotate neighbours, and have no scales of rotated elements
        sizes = ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "moe_intermediate_size")
        query = {"q_lora_rank": options["q_lora_rank"] and 32}
        options = {**options, **dict.fromkeys(sizes, 32), **query, "rope_interleave": True}
        if "rope_parameters" in options:
            options["rope_parameters"] = {**options["rope_parameters"], "mscale": 0.9}
    reference = make_model(kind, **options)
    stored = ("F32", "Q8_0", "BF16")[list(KINDS).index(name) % 3]
    require_equal(write_model(tmp_path / "a.gguf", reference, NAMES.get(kind, kind), stored), reference)


def test_texts_are_as_long_as_their_rotations(tmp_path: Path) -> None:
    """A model with other rotations of long texts takes short ones only, and says so."""
    kind, options = KINDS["phi3 with other rotations of long texts"]
    reference = make_model(kind, **options)
    model = generate.load(write_model(tmp_path / "a.gguf", reference, "phi3"), cache=False)
    assert model.config.context == 64
    assert len(model.generator(min_length=80).generate(list(range(3, 63)))) == 4


def test_every_architecture_is_tested() -> None:
    of_images = {"qwen2vl"}  # test_gguf_images.py
    assert {NAMES.get(kind, kind) for kind, _ in FILE_KINDS.values()} | of_images == set(ARCHITECTURES)


WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 32, "num_attention_heads": 8}


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", [kind.name for kind in TYPES.values()])
def test_types(kind: str, tmp_path: Path) -> None:
    """Weights of each type, those of the embedding included, have the values of the package `gguf`."""
    reference = make_model("llama", tie_word_embeddings=kind < "Q4", **WIDE)
    path = write_model(tmp_path / "a.gguf", reference, "llama", kind)
    require_equal(path, reference, 4)


def test_codes_of_a_table_stay_packed() -> None:
    """Products match matrices of IQ4_NL, whose codes are those of a table: they are not dequantized."""
    raw = np.random.default_rng(0).integers(16, 60, (64, 4 * 18), dtype=np.uint8)
    weights = CheckpointWeights(Path("products"), {"w.weight": TYPES[20].read(raw, (64, 128))})

    def build(builder: GraphBuilder, x: Tensor) -> dict[str, Tensor]:
        return {"y": CheckpointGraph(builder, weights).product("w", x, 64)}

    graph = import_graph(weights, {"x": TensorType.of((1, 128), "f32")}, build)
    model = mirlo.compile(graph, target="llvm{cpu=x86-64-v4}", cache=False)
    (panels,) = model.artifact.params
    assert panels.name.endswith(".panels") and panels.dtype == "u8"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that the example writes."""
    import runpy

    write = runpy.run_path(str(ROOT / "examples" / "tiny_gguf.py"))["write"]
    path: Path = write(tmp_path_factory.mktemp("tiny") / "model.gguf", "F32")
    return path


def test_the_same_model_in_a_folder(tiny: Path, tmp_path: Path) -> None:
    """Texts, conversations and forms of answers are those of the folder with the same model."""
    for package in ("tokenizers", "jinja2", "llguidance"):
        pytest.importorskip(package)
    found, expected = generate.load(tiny), generate.load(example().write(tmp_path))
    messages = [{"role": "user", "content": "the lazy dog"}]
    assert found.chat_tokens(messages) == expected.chat_tokens(messages)
    for model in (found, expected):
        assert model.config.ends == (1,) and model.config.context == 2048 and model.config.vocabulary == 320
    for options in ({}, {"regex": "(red|green|blue)+"}, {"do_sample": True, "seed": 4}):
        made = [
            "".join(each.generator(max_new_tokens=12, **options).stream("größer: the")) for each in (found, expected)
        ]
        assert made[0] == made[1]


def test_without_a_tokenizer(tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.gguf", make_model("llama", num_hidden_layers=1), "llama")
    model = generate.load(path, cache=False)
    assert model.tokenizer is None and model.template is None and str(path) in repr(model)
    assert len(model.generator(max_new_tokens=3, min_length=8).generate([5, 6, 7])) <= 3
    for call in (lambda: model.chat_tokens([]), lambda: model.generator(regex="a")):
        with pytest.raises(generate.GenerationError, match=r"a\.gguf: there is no (chat template|tokenizer)"):
            call()


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3"))
def test_files_are_as_transformers_reads_them(kind: str, tmp_path: Path) -> None:
    """The tests' files have names and orders of tensors from which transformers makes the same model."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    reference = make_model(kind)
    write_model(tmp_path / "a.gguf", reference, NAMES.get(kind, kind))
    found = load_gguf_checkpoint(str(tmp_path / "a.gguf"), return_tensors=True, model_to_load=reference)["tensors"]
    for name, expected in reference.state_dict().items():
        if name != "lm_head.weight" or not reference.config.tie_word_embeddings:
            torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-6)
