"""LoRA adapters of PEFT on folders of weights and GGUF files, against models with merged weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf_files import keys_of, tensors_of, write_gguf
from layered_folders import VOCABULARY, write_layers
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, ModelFolderError
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from safetensors_file import write_safetensors

LAYERS = 2
PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj")
KINDS = ("qwen3", "gguf")
PROMPT = [5, 9, 2, 33, 17, 8]
Arrays = dict[str, np.ndarray]


def adapter_of(weights: Arrays, parts: tuple[str, ...], ranks: tuple[int, ...], seed: int) -> Arrays:
    """Return the tensors of an adapter in PEFT's names, whose ranks differ by product."""
    random, tensors = np.random.default_rng(seed), Arrays()
    modules = [f"model.layers.{i}.{part}" for i in range(LAYERS) for part in parts]
    for i, module in enumerate(modules):
        (rows, depth), rank = weights[f"{module}.weight"].shape, ranks[i % len(ranks)]
        for matrix, shape in (("A", (rank, depth)), ("B", (rows, rank))):
            array = random.standard_normal(shape).astype(np.float32) * 0.4
            tensors[f"base_model.model.{module}.lora_{matrix}.weight"] = array
    return tensors


def write_adapter(folder: Path, tensors: Arrays, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    settings = {"peft_type": "LORA", "lora_alpha": 6, "use_rslora": False} | config
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def merged(weights: Arrays, tensors: Arrays, by_root: bool = False) -> Arrays:
    """Return weights to which an adapter is added."""
    result = dict(weights)
    for name, a in tensors.items():
        if ".lora_A." in name:
            b = tensors[name.replace("lora_A", "lora_B")]
            weight = name.removeprefix("base_model.model.").replace(".lora_A", "")
            result[weight] = result[weight] + b @ a * (6 / (math.sqrt(len(a)) if by_root else len(a)))
    return result


def write_weights(folder: Path, kind: str, weights: Arrays, config: dict[str, Any]) -> Path:
    """Write a model of these weights as a folder, or as a GGUF file."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind != "gguf":
        (folder / "config.json").write_text(json.dumps(config))
        write_safetensors(folder / "model.safetensors", weights)
        return folder
    options = SimpleNamespace(**config, pad_token_id=None)
    tensors = tensors_of(weights, "llama", options.num_attention_heads, options.num_key_value_heads)
    return write_gguf(folder / "model.gguf", "llama", keys_of(options, "llama"), tensors)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a model with two adapters, and the models whose weights have them."""
    kind, folder = request.param, tmp_path_factory.mktemp("models")
    plain = write_layers(folder / "plain", LAYERS, kind="llama" if kind == "gguf" else kind)
    weights: Arrays = {name: np.array(each) for name, each in read_checkpoint(plain / "model.safetensors").items()}
    config = json.loads((plain / "config.json").read_text())
    first, second = adapter_of(weights, PARTS, (4, 2, 3), 1), adapter_of(weights, ("self_attn.v_proj",), (5,), 2)
    adapters = {
        "first": write_adapter(folder / "first", first),
        "second": write_adapter(folder / "second", second, use_rslora=True),
    }
    models = {None: weights, "first": merged(weights, first), "second": merged(weights, second, by_root=True)}
    made = {name: write_weights(folder / f"merged-{name}", kind, each, config) for name, each in models.items()}
    return SimpleNamespace(
        model=generate.load(made[None], adapters=adapters, cache=False),
        merged={name: generate.load(path, cache=False) for name, path in made.items()}, path=made[None], folder=folder,
        weights=weights,
    )  # fmt: skip


def test_logits_are_those_of_merged_weights(case: SimpleNamespace) -> None:
    found = {}
    for name, reference in case.merged.items():
        generators = case.model.generator(adapter=name), reference.generator()
        for generator in generators:
            generator.append(PROMPT)
        logits, expected = (generator.logits() for generator in generators)
        assert np.abs(logits - expected).max() < 1e-4 * max(1.0, float(expected.std()))
        found[name] = logits
    assert np.abs(found[None] - found["first"]).max() > 0.01 < np.abs(found[None] - found["second"]).max()


def test_requests_with_adapters_side_by_side(case: SimpleNamespace) -> None:
    engine = case.model.engine(slots=3, max_new_tokens=9)
    names = [None, "first", "second", "first", None]
    requests = [engine.add([*PROMPT, 3 + i], adapter=name) for i, name in enumerate(names)]
    list(engine.run())
    for i, (name, request) in enumerate(zip(names, requests, strict=True)):
        expected = case.merged[name].generator(max_new_tokens=9).generate([*PROMPT, 3 + i])
        assert request.sequence[len(PROMPT) + 1 :] == expected
    with pytest.raises(GenerationError, match="there is none named 'third'"):
        engine.add(PROMPT, adapter="third")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model.layers.0.self_attn.q_norm": (8, 16)},
            "'model.layers.0.self_attn.q_norm', which is no product",
        ),
        (
            {"model.layers.7.self_attn.q_proj": (8, 32)},
            "'model.layers.7.self_attn.q_proj', which is no product",
        ),
        ({"model.embed_tokens": (VOCABULARY, 32)}, "changes 'model.embed_tokens', which the model computes together"),
        ({"model.layers.0.self_attn.q_proj": (32, 31)}, "expected the shape of input"),
    ],
)
def test_adapters_that_do_not_fit(case: SimpleNamespace, change: dict[str, tuple[int, int]], message: str) -> None:
    tensors: Arrays = {}
    for module, (rows, depth) in change.items():
        for matrix, shape in (("A", (2, depth)), ("B", (rows, 2))):
            tensors[f"base_model.model.{module}.lora_{matrix}.weight"] = np.ones(shape, np.float32)
    with pytest.raises(ModelFolderError, match=message):
        generate.load(case.path, adapters={"a": write_adapter(case.folder / "wrong", tensors)}, cache=False)


def test_files_that_are_no_adapters_of_peft(case: SimpleNamespace) -> None:
    name = "model.layers.0.self_attn.q_proj"
    for tensors, message in (
        ({f"{name}.lora_A.weight": np.ones((2, 32), np.float32)}, "expected an adapter as PEFT writes it"),
        ({f"base_model.model.{name}.weight": np.ones((2, 32), np.float32)}, "expected one of lora_A and lora_B"),
        ({f"base_model.model.{name}.lora_A.weight": np.ones((2, 32), np.float32)}, "no tensors for the inputs|lora_B"),
    ):
        with pytest.raises((ModelFolderError, GenerationError), match=message):
            model = generate.load(case.path, adapters={"a": write_adapter(case.folder / "other", tensors)}, cache=False)
            model.generator(adapter="a", max_new_tokens=1).generate(PROMPT)
