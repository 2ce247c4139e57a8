"""Models of text and images in GGUF files compute what transformers' do, and hostile files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("PIL", "tokenizers", "gguf"):
    pytest.importorskip(package)

import grid_models  # noqa: E402
from gguf_files import write_gguf  # noqa: E402
from grid_models import PATCH, VOCABULARY  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from mirlo_llm.generate.checkpoints.image_options import PIXELS  # noqa: E402
from mirlo_llm.generate.config import read_config  # noqa: E402
from mirlo_llm.generate.errors import ModelFolderError  # noqa: E402
from mirlo_llm.generate.gguf.projector import import_gguf_image_encoder  # noqa: E402
from mirlo_llm.generate.gguf.projector_keys import preparation_keys  # noqa: E402
from mirlo_llm.generate.tokenizer import ModelTokenizer, read_tokenizer  # noqa: E402
from mirlo_llm.generate.vision.model import ImagePrompts  # noqa: E402
from mirlo_llm.generate.vision.patches import read_patch_processor  # noqa: E402
from mirlo_llm.generate.vision.processor import read_processor  # noqa: E402
from mirlo_llm.generate.vision.tokens import ImageTokens  # noqa: E402
from mmproj_files import (  # noqa: E402
    DEVIATION,
    GRID_KEYS,
    MEAN,
    PROJECTORS,
    text_keys,
    tokens_of,
    write_grid_files,
    write_projector,
    write_text,
)
from test_image_grids import PICTURES, SHORT, expanded  # noqa: E402

from mirlo.extend.command import main  # noqa: E402

SIDE, TOKEN, STOP = 24, 62, 64
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "head_dim": 8,
    "bos_token_id": 0, "eos_token_id": STOP, "pad_token_id": 0,
}  # fmt: skip
VISION = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": SIDE,
    "patch_size": 4,
}  # fmt: skip
SQUARE_KEYS = {
    "embedding_length": 24, "feed_forward_length": 40, "block_count": 3, "attention.head_count": 2, "image_size": SIDE,
    "patch_size": 4, "projection_dim": 32,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "llava": {
        "vision_config": {"model_type": "clip_vision_model", **VISION}, "text_config": {"model_type": "llama", **TEXT},
        "image_token_id": TOKEN, "image_token_index": TOKEN,
    },
    "gemma3": {
        "vision_config": {"model_type": "siglip_vision_model", **VISION}, "mm_tokens_per_image": 9,
        "text_config": {**TEXT, "sliding_window": 6, "query_pre_attn_scalar": 8, "final_logit_softcapping": None},
        "image_token_id": TOKEN, "image_token_index": TOKEN, "boi_token_index": 60, "eoi_token_index": 61,
    },
}  # fmt: skip
KEYS: dict[str, dict[str, Any]] = {
    # Files of LLaVA have the layers up to the one whose states are read: two of three.
    "llava": {**SQUARE_KEYS, "block_count": 2, "feature_layer": [2], "attention.layer_norm_epsilon": 1e-5},
    "gemma3": {**SQUARE_KEYS, "projector.scale_factor": 2, "attention.layer_norm_epsilon": 1e-6},
}
PROMPT = [5, 9, 60, TOKEN, 61, 7, 2, 60, TOKEN, 61, 33, 4]


def reference_of(kind: str) -> Any:
    """Return a random model of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    options = OPTIONS.get(kind)
    if options is None:
        text = dict(grid_models.TEXT)
        rotation = {"rope_type": "default", "rope_theta": text.pop("rope_theta")}
        text["rope_parameters"] = {**text.pop("rope_scaling"), **rotation}
        options = {"text_config": text, "vision_config": grid_models.VISION[kind], **grid_models.TOKENS}
    config = transformers.AutoConfig.for_model(kind, **options)
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in model.parameters():  # norms that are not 1, biases that are not 0
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def write_files(folder: Path, kind: str, reference: Any, stored: str = "F32") -> tuple[Path, Path]:
    tensors = {name: each.numpy() for name, each in reference.state_dict().items()}
    if kind == "llava":
        tensors = {name: each for name, each in tensors.items() if "encoder.layers.2." not in name}
    if reference.config.tie_word_embeddings or kind == "gemma3":
        tensors.pop("lm_head.weight", None)
    config = reference.config.text_config
    text = write_text(folder / "text.gguf", kind, tensors, text_keys(kind, config), **tokens_of(kind, VOCABULARY))
    keys = {**KEYS, **GRID_KEYS}[kind]
    return text, write_projector(folder / "mmproj.gguf", kind, tensors, keys, stored)


def reference_inputs(model: generate.LanguageModel, kind: str, pictures: list[np.ndarray]) -> dict[str, Any]:
    """Return the inputs of transformers for the prompt with two images."""
    torch = pytest.importorskip("torch")
    arrays = [model._image_prompts._processor.inputs(each) for each in pictures]
    if kind in GRID_KEYS:
        counts = [len(each.arrays[PIXELS]) for each in arrays]
        patches = [each.arrays[PIXELS].reshape(-1, 3, 1, PATCH**2) for each in arrays]
        pixels = torch.from_numpy(np.concatenate([np.repeat(each, 2, 2).reshape(len(each), -1) for each in patches]))
        sides = [(1, 2 * len(x.arrays[PIXELS]) // x.columns, 2 * x.columns) for x in arrays]
        extra = {"image_grid_thw": torch.tensor(sides)}
    else:
        counts = [36 if kind == "llava" else 9] * 2
        pixels, extra = torch.from_numpy(np.concatenate([each.arrays[PIXELS] for each in arrays])), {}
    pending = iter(counts)
    ids = torch.tensor([[each for token in PROMPT for each in [token] * (next(pending) if token == TOKEN else 1)]])
    if kind == "gemma3":
        extra["token_type_ids"] = (ids == TOKEN).long()
    if kind in GRID_KEYS:
        extra["mm_token_type_ids"] = (ids == TOKEN).int()
    return {"pixel_values": pixels, "input_ids": ids, "attention_mask": torch.ones_like(ids), **extra}


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", [*OPTIONS, *GRID_KEYS])
def test_architectures(kind: str, tmp_path: Path) -> None:
    """Logits of a prompt with two images, in parts too, and the tokens that follow, are those of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    if int(transformers.__version__.partition(".")[0]) < 5:
        pytest.skip("configurations of transformers 4 have no rope_parameters")
    reference = reference_of(kind)
    text, projector = write_files(tmp_path, kind, reference)
    model = generate.load(text, mmproj=projector, cache=False)
    inputs = reference_inputs(model, kind, PICTURES[:2])
    with torch.no_grad():
        expected = reference(**inputs).logits[0, -1].numpy()
        tokens = reference.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    pending = iter([list(model._image_prompts.image_tokens(each)) for each in PICTURES[:2]])
    prompt = [each for token in PROMPT for each in (next(pending) if token == TOKEN else [token])]
    for chunk in (512, 12, 5):
        generator = model.generator(chunk_size=chunk)
        generator.append(prompt)
        np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
        model.prefixes.clear()
    answer = model.generator(max_new_tokens=6).generate(prompt)
    assert [each for each in answer if each not in (0, STOP)] == [t for t in tokens.tolist() if t not in (0, STOP)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_grid_files(tmp_path_factory.mktemp("files"))


@pytest.mark.sample(0)
def test_logits_that_were_recorded(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Logits and tokens are those of transformers 4.57.3 with the same weights."""
    model = generate.load(files[0], mmproj=files[1])
    prompt = expanded([list(model._image_prompts.image_tokens(each)) for each in PICTURES[:2]])
    assert len(prompt) == len(SHORT) - 2 + 38
    generator = model.generator(chunk_size=15, max_new_tokens=6)
    generator.append(prompt)
    expected = [1.1233, 1.0714, 3.0278, 2.0441, 0.2152, 0.2441, -0.3164, 4.3386]
    np.testing.assert_allclose(generator.logits().reshape(-1)[:8], expected, rtol=0, atol=2e-4)
    assert list(generator.generate()) == [7, 53, 30, 31, 53, 27]
    tokens = model.image_tokens("GA<|vision_start|><|image_pad|><|vision_end|>B", [PICTURES[0]])
    assert [*tokens[:3], *tokens[-2:]] == [8, 2, 60, 61, 3] and len(tokens) == 25
    assert model.image_tokens("B", [PICTURES[0]]) == tokens[2:]
    image = str(files[0].with_name("image.png"))
    options = ("--mmproj", str(files[1]), "--image", image, "--max-new-tokens", "2")
    assert main(["generate", str(files[0]), "A", *options]) == 0
    assert capsys.readouterr().out


def small_projector(path: Path, kind: str, changes: dict[str, Any]) -> Path:
    """Write an encoder of ones with other keys and shapes of tensors; None leaves one out."""
    keys = {
        "clip.has_vision_encoder": True, "clip.projector_type": PROJECTORS[kind], "clip.use_silu": kind != "llava",
        "clip.vision.image_mean": MEAN, "clip.vision.image_std": DEVIATION,
        **{f"clip.vision.{key}": value for key, value in {**KEYS, **GRID_KEYS}[kind].items()},
    }  # fmt: skip
    shapes: dict[str, Any] = {
        "v.class_embd": (24,), "v.patch_embd.weight": (24, 3, 4, 4), "v.position_embd.weight": (37, 24),
        "mm.0.weight": (32, 24), "mm.0.bias": (32,), "mm.2.weight": (32, 32), "mm.2.bias": (32,),
        **{f"v.pre_ln.{part}": (24,) for part in ("weight", "bias")},
    }  # fmt: skip
    if kind != "llava":
        shapes = dict.fromkeys(("v.patch_embd.weight", "v.patch_embd.weight.1"), (32, 3, PATCH, PATCH))
        shapes |= {"v.post_ln.weight": (32,), "mm.0.weight": (128, 128), "mm.0.bias": (128,)}
        shapes |= {"mm.2.weight": (32, 128), "mm.2.bias": (32,)}
    width, inner = (24, 40) if kind == "llava" else (32, 40)
    for i in range(keys["clip.vision.block_count"]):
        products = {f"attn_{part}": (width, width) for part in ("q", "k", "v", "out")}
        products |= {"ffn_up": (inner, width), "ffn_down": (width, inner)}
        products |= {} if kind == "llava" else {"ffn_gate": (inner, width)}
        shapes |= {f"v.blk.{i}.{name}.weight": shape for name, shape in products.items()}
        shapes |= {f"v.blk.{i}.{name}.bias": shape[:1] for name, shape in products.items()}
        norms = ("weight", "bias") if kind == "llava" else ("weight",)
        shapes |= {f"v.blk.{i}.ln{n}.{part}": (width,) for n in (1, 2) for part in norms}
    keys = {key: value for key, value in {**keys, **changes}.items() if "clip." in key and value is not None}
    shapes |= {key: value for key, value in changes.items() if "clip." not in key and "general." not in key}
    tensors = {key: np.ones(shape, np.float32) for key, shape in shapes.items() if shape is not None}
    return write_gguf(path, changes.get("general.architecture", "clip"), keys, tensors)


def read_both(text: Path, projector: Path) -> None:
    """Read files as far as the graph of the encoder."""
    config = read_config(text, projector)
    assert config.images is not None and config.projector is not None
    preparation = preparation_keys(config.projector, config.images)
    if config.images.grid is None:
        read_processor(preparation, config.images.tower.size)
    else:
        read_patch_processor(preparation, config.images.tower.patch, config.images.grid, True)
    import_gguf_image_encoder(config.images, config.projector)


LLAMA = {
    "llama.embedding_length": 32, "llama.feed_forward_length": 32, "llama.block_count": 1, "llama.context_length": 64,
    "llama.attention.head_count": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e4,
}  # fmt: skip
TABLE = {"token_embd.weight": np.ones((VOCABULARY, 32), np.float32)}
EMBEDDING, TYPE = "clip.vision.embedding_length", "clip.projector_type"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"general.architecture": "llama"}, "'general.architecture': expected 'clip'"),
    "another projector": ({TYPE: "ldp"}, f"'{TYPE}': expected one of mlp, gemma3, qwen2vl_merger, qwen2.5vl_merger"),
    "an encoder of sound": ({"clip.has_vision_encoder": False}, "the file has no encoder of images"),
    "another text": ({TYPE: "gemma3"}, "the encoder belongs to texts of 'gemma3', found 'qwen2vl' in"),
    "no width": ({EMBEDDING: None}, f"'{EMBEDDING}': expected a number, found None"),
    "a width without heads": ({EMBEDDING: 31}, "'clip.vision.attention.head_count': 31 elements do not divide"),
    "a huge width": ({EMBEDDING: 1 << 31}, f"'{EMBEDDING}': expected an integer from 1 to"),
    "another result": ({"clip.vision.projection_dim": 48}, "'clip.vision.projection_dim': expected 32"),
    "no layers": ({"clip.vision.block_count": 1 << 30}, "'clip.vision.block_count': expected up to"),
    "windows of nothing": ({"clip.vision.n_wa_pattern": 0}, "'clip.vision.n_wa_pattern': expected an integer from 1"),
    "no deviation": (
        {"clip.vision.image_std": [0.0, 1.0, 1.0]}, "'clip.vision.image_std': expected three numbers above 0"
    ),
    "no mean": ({"clip.vision.image_mean": None}, "'clip.vision.image_mean': expected three numbers, found None"),
    "parts of images": ({"clip.vision.image_grid_pinpoints": [336, 672]}, "parts of an image beside the whole"),
    "no matrix": ({"v.blk.0.ffn_up.weight": None}, "'v.blk.0.ffn_up.weight': expected a matrix, found none"),
    "a tensor that is missing": ({"v.blk.1.attn_k.weight": None}, "there is no tensor 'v.blk.1.attn_k.weight'"),
    "another shape": ({"mm.2.weight": (32, 64)}, "tensor 'mm.2.weight': expected [32, 128] of f32"),
    "other pictures": (
        {"v.patch_embd.weight.1": (32, 3, 4, 8)}, "tensor 'v.patch_embd.weight.1': expected 4 dims of plain elements"
    ),
    "no patches": ({"v.patch_embd.weight": None, "v.patch_embd.weight.1": None}, "'v.patch_embd.weight': expected an"),
    "a tensor too many": (
        {"v.more.weight": (2,)}, "1 tensors are not those of the architecture, such as 'v.more.weight'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    changes, expected = REFUSED[name]
    projector = small_projector(tmp_path / "b.gguf", "qwen2_5_vl", changes)
    with pytest.raises(ModelFolderError) as caught:
        read_both(files[0], projector)
    assert expected in str(caught.value) and str(projector) in str(caught.value) and "\n" not in str(caught.value)


def test_texts_without_tokens_for_images(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A tokenizer that lacks the token of an image has texts divided there; Qwen's tokens around one must be there."""
    tokens = tokens_of("llava", VOCABULARY)
    tokens["tokenizer.ggml.tokens"] = [each.replace("<image>", "<other>") for each in tokens["tokenizer.ggml.tokens"]]
    keys = {**LLAMA, "tokenizer.ggml.bos_token_id": 60, "tokenizer.ggml.add_bos_token": True, **tokens}
    text = write_gguf(tmp_path / "a.gguf", "llama", keys, TABLE)
    projector = small_projector(tmp_path / "b.gguf", "llava", {})
    config = read_config(text, projector)
    read_both(text, projector)
    content = read_tokenizer(config)
    assert config.images is not None and config.images.token is None and content is not None
    images = ImageTokens(VOCABULARY, 32)
    prompts = ImagePrompts(config, images, ModelTokenizer(*content), lambda: pytest.fail("not called"))
    prompts.image_tokens = lambda image: range(65, 67)  # type: ignore[method-assign,assignment]
    pixels = np.zeros((2, 2, 3), np.uint8)
    assert prompts.encode("GA<image>B", [pixels], special=True) == [60, 8, 2, 65, 66, 3]
    assert prompts.encode("B", [pixels], special=False) == [65, 66, 1, 3]
    renamed = {key.replace("llama.", "qwen2vl."): value for key, value in keys.items()}
    text = write_gguf(tmp_path / "c.gguf", "qwen2vl", renamed, TABLE)
    with pytest.raises(
        ModelFolderError, match=r"c\.gguf: 'tokenizer\.ggml\.tokens': there is no token '<\|vision_start"
    ):
        read_config(text, files[1])
    with pytest.raises(ModelFolderError, match="'mmproj' is for GGUF files"):
        read_config(tmp_path, projector)


HOSTILE: list[Any] = [0, 1, 3, 2**31, 1e30, -0.5, float("nan"), True, "", "clip", [2, 2], ["a"], [0.5]]


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava"])
def test_hostile_keys(kind: str, seed: int, files: tuple[Path, Path], tmp_path: Path) -> None:
    """A file with other values of its keys gives a graph or is refused with our error."""
    text, random, refused = files[0], np.random.default_rng(seed), 0
    if kind == "llava":
        text = write_gguf(tmp_path / "a.gguf", "llama", {**LLAMA, **tokens_of("llava", VOCABULARY)}, TABLE)
    read_both(text, path := small_projector(tmp_path / "b.gguf", kind, {}))
    keys = [TYPE, "clip.use_silu", "clip.vision.image_mean", "clip.vision.image_std"]
    for key in [*keys, *(f"clip.vision.{name}" for name in {**KEYS, **GRID_KEYS}[kind])]:
        for value in random.permutation(np.array(HOSTILE, object))[:2]:
            try:
                read_both(text, small_projector(path, kind, {key: value}))
            except ModelFolderError as error:
                refused += 1
                assert str(path) in str(error) or str(text) in str(error)
    assert refused > 10
