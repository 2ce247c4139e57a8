"""LoRA adapters of models by the code of transformers and of models with images, against PEFT's formula."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.errors import ModelFolderError
from test_adapted_weights import PROMPT, write_adapter
from test_images import BEGIN, KINDS, reference_of

pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

from mirlo.benchmarks.llm.architectures import tiny_model  # noqa: E402

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
ALPHA = 6
PARTS = {
    "olmo3": ("self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"),
    "gpt_neox": ("attention.query_key_value", "mlp.dense_4h_to_h"),
    "gpt_bigcode": ("attn.c_attn",),
    "lfm2": ("conv.in_proj", "feed_forward.w2"),
}
LAYERS = {"olmo3": 5}
"""Numbers of layers, where they are not those of the table: with five, one is traced for those between."""
Arrays = dict[str, np.ndarray]


def random_adapter(model: Any, parts: tuple[str, ...], rank: int, seed: int) -> Arrays:
    """Return the tensors of an adapter for all products of a model with these names."""
    random, tensors = np.random.default_rng(seed), Arrays()
    for name, module in model.named_modules():
        if name.endswith(parts):
            columns, depth = module.weight.shape if isinstance(module, torch.nn.Linear) else module.weight.shape[::-1]
            for matrix, shape in (("A", (rank, depth)), ("B", (columns, rank))):
                array = random.standard_normal(shape).astype(np.float32) * 0.3
                tensors[f"base_model.model.{name}.lora_{matrix}.weight"] = array
    assert tensors
    return tensors


def merge(model: Any, tensors: Arrays, sign: float = 1) -> None:
    """Add the products of an adapter to the weights of a model."""
    for name, a in tensors.items():
        if ".lora_A." in name:
            module = model.get_submodule(name.removeprefix("base_model.model.").partition(".lora_")[0])
            change = torch.from_numpy(tensors[name.replace("lora_A", "lora_B")] @ a * (ALPHA / len(a)))
            with torch.no_grad():
                module.weight += sign * (change if isinstance(module, torch.nn.Linear) else change.T)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", PARTS)
def test_logits_and_requests_side_by_side(kind: str, tmp_path: Path) -> None:
    options = {"num_hidden_layers": LAYERS[kind]} if kind in LAYERS else {}
    reference = tiny_model(kind, **options)
    reference.save_pretrained(tmp_path / "model")
    adapters = {name: random_adapter(reference, PARTS[kind][:count], rank, rank) for name, count, rank in CASES}
    folders = {name: write_adapter(tmp_path / name, each, lora_alpha=ALPHA) for name, each in adapters.items()}
    model = generate.load(tmp_path / "model", adapters=folders, cache=False)
    names = [None, "first", "second"]
    answers: dict[str | None, list[int]] = {}
    for name in names:
        if name is not None:
            merge(reference, adapters[name])
        generator = model.generator(adapter=name)
        generator.append(PROMPT)
        with torch.no_grad():
            expected = reference(torch.tensor([PROMPT])).logits[0, -1].numpy()
            ids = torch.tensor([PROMPT])
            chosen = reference.generate(ids, max_new_tokens=5, do_sample=False)[0, len(PROMPT) :].tolist()
        spread = max(1.0, float(expected.std()))
        assert np.abs(generator.logits().reshape(-1) - expected).max() < 1e-4 * spread, name
        answers[name] = [token for token in chosen if token not in (0, 2)]
        if name is not None:
            merge(reference, adapters[name], -1)
    engine = model.engine(slots=3, max_new_tokens=5)
    requests = {name: engine.add(PROMPT, adapter=name) for name in names}
    list(engine.run())
    for name, request in requests.items():
        assert [token for token in request.tokens if token not in (0, 2)] == answers[name], name
    assert answers[None] != answers["first"]


CASES = (("first", None, 4), ("second", 1, 2))
"""Adapters, how many parts they change, and their ranks."""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("model.layers.0.self_attn.q_norm", "'model.layers.0.self_attn.q_norm', which is no product"),
        ("model.layers.9.self_attn.q_proj", "'model.layers.9.self_attn.q_proj', which is no product"),
        ("model.layers.0.self_attn.q_proj", "expected the shape of input"),
    ],
)
def test_adapters_that_do_not_fit(module: str, message: str, tmp_path: Path) -> None:
    tiny_model("olmo3").save_pretrained(tmp_path / "model")
    tensors = {
        f"base_model.model.{module}.lora_A.weight": np.ones((2, 63), np.float32),
        f"base_model.model.{module}.lora_B.weight": np.ones((64, 2), np.float32),
    }
    with pytest.raises(ModelFolderError, match=message):
        adapters = {"a": write_adapter(tmp_path / "a", tensors)}
        generate.load(tmp_path / "model", adapters=adapters, cache=False)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a model with images, and its folder."""
    kind, options, _ = KINDS["gemma3"]
    folder = tmp_path_factory.mktemp("images")
    return SimpleNamespace(reference=reference_of(kind, options, folder / "model"), folder=folder)


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_models_with_images(images: SimpleNamespace, prefix: str) -> None:
    """The names of layers are those of versions 4 and 5 of transformers."""
    tensors = random_adapter(images.reference, ("language_model.layers.1.mlp.down_proj", "self_attn.v_proj"), 3, 1)
    tensors = {name: each for name, each in tensors.items() if "language_model" in name}
    renamed = {name.replace("model.language_model.", prefix, 1): each for name, each in tensors.items()}
    if prefix == "language_model.model.":
        renamed = {
            name.replace("base_model.language", "base_model.model.language"): each for name, each in renamed.items()
        }
    adapters = {"poet": write_adapter(images.folder / prefix.replace(".", "_"), renamed, lora_alpha=ALPHA)}
    model = generate.load(images.folder / "model", adapters=adapters, cache=False)
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3)).astype(np.uint8)
    own = list(model._image_prompts.image_tokens(pixels))
    found = {}
    for name in (None, "poet"):
        if name is not None:
            merge(images.reference, tensors)
        generator = model.generator(adapter=name)
        generator.append([5, 9, 7, 2])
        with torch.no_grad():
            expected = images.reference(torch.tensor([[5, 9, 7, 2]])).logits[0, -1].numpy()
        np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
        if name is not None:
            merge(images.reference, tensors, -1)
        found[name] = model.generator(max_new_tokens=5, adapter=name).generate([5, BEGIN, *own, 7])
    engine = model.engine(slots=2, max_new_tokens=5)
    requests = {name: engine.add([5, BEGIN, *own, 7], adapter=name) for name in found}
    list(engine.run())
    assert {name: request.tokens for name, request in requests.items()} == found


def test_adapters_of_image_encoders_are_refused(images: SimpleNamespace) -> None:
    name = "base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight"
    folder = write_adapter(images.folder / "tower", {name: np.ones((2, 24), np.float32)})
    with pytest.raises(ModelFolderError, match="q_proj.lora_A.weight' changes the encoder of images"):
        generate.load(images.folder / "model", adapters={"a": folder}, cache=False)
