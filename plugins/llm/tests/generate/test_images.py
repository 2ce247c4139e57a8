"""Models of text and images: what they compute is what transformers' do; images and configurations are hostile."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.image_options import read_image_options, text_config
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.json_file import read_json
from mirlo_llm.generate.vision.images import MAX_PIXELS, read_pixels
from mirlo_llm.generate.vision.processor import processor_keys, read_processor
from mirlo_llm.generate.vision.tokens import ImageTokens
from repository import ROOT
from safetensors_file import write_safetensors

Image = pytest.importorskip("PIL.Image")
for package in ("tokenizers", "jinja2"):
    pytest.importorskip(package)

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "tiny_image_model.py"))
SIDE, TOKEN, BEGIN, END = 24, 62, 60, 61
TEXT = {
    "vocab_size": 65, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "head_dim": 8, "eos_token_id": 64, "pad_token_id": 0,
}  # fmt: skip
VISION = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": SIDE,
    "patch_size": 4,
}  # fmt: skip
GEMMA = {
    "vision_config": {"model_type": "siglip_vision_model", **VISION}, "mm_tokens_per_image": 9,
    "text_config": {**TEXT, "sliding_window": 6, "query_pre_attn_scalar": 20},
    "boi_token_index": BEGIN, "eoi_token_index": END,
}  # fmt: skip
LLAVA = {
    "vision_config": {"model_type": "clip_vision_model", **VISION}, "text_config": {"model_type": "llama", **TEXT},
}  # fmt: skip
ALL_STATES = {"vision_feature_select_strategy": "full", "vision_feature_layer": 2}
KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "llava": ("llava", LLAVA, 36),
    "llava with all states": ("llava", {**LLAVA, **ALL_STATES}, 37),
    "gemma3": ("gemma3", GEMMA, 9),
}  # fmt: skip


def reference_of(kind: str, options: dict[str, Any], folder: Path) -> Any:
    """Return a random model of transformers, which is written to a folder."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokens = {"image_token_id": TOKEN, "image_token_index": TOKEN}
    config = transformers.AutoConfig.for_model(kind, **options, **tokens)
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in model.parameters():  # norms that are not 1, biases that are not 0
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    EXAMPLE["write_tokenizer"](folder)
    size = {"height": SIDE, "width": SIDE}
    (folder / "preprocessor_config.json").write_text(json.dumps({**EXAMPLE["PROCESSOR"], "size": size}))
    return model


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KINDS)
def test_architectures(name: str, tmp_path: Path) -> None:
    """Logits of a prompt with two images, in parts too, and the tokens that follow, are those of transformers."""
    kind, options, count = KINDS[name]
    reference, torch = reference_of(kind, options, tmp_path), pytest.importorskip("torch")
    model = generate.load(tmp_path, cache=False)
    pictures = list(np.random.default_rng(0).integers(0, 256, (2, 30, 40, 3)).astype(np.uint8))
    processor = read_processor(processor_keys(tmp_path), SIDE)
    pixels = torch.from_numpy(np.stack([processor.process(each) for each in pictures]))
    before, after = ([BEGIN], [END]) if kind == "gemma3" else ([], [])
    image = [*before, TOKEN, *after]
    short = [5, 9, *image, 7, 2, *image, 33, 4]
    whole = [token for each in short for token in ([each] * count if each == TOKEN else [each])]
    given = torch.tensor([whole])
    inputs = {"pixel_values": pixels, "input_ids": given, "attention_mask": torch.ones_like(given)}
    if kind == "gemma3":
        inputs["token_type_ids"] = (given == TOKEN).long()
    with torch.no_grad():
        expected = reference(**inputs).logits[0, -1].numpy()
        tokens = reference.generate(**inputs, max_new_tokens=6, do_sample=False)[0, len(whole) :].tolist()
    images = [list(model._image_prompts.image_tokens(each)) for each in pictures]
    pending = iter(images)
    prompt = [token for each in short for token in (next(pending) if each == TOKEN else [each])]
    for chunk in (512, 12, 5):
        generator = model.generator(chunk_size=chunk)
        generator.append(prompt)
        np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
        model.prefixes.clear()
    assert list(model.generator(max_new_tokens=6).generate(prompt)) == [each for each in tokens if each != 0]
    engine = model.engine(slots=2, chunk_size=12)
    requests = [engine.add(each, max_new_tokens=6) for each in (prompt, [5, 9, 7], prompt[: len(prompt) - 1])]
    assert len(list(engine.run())) == 3
    alone = [model.generator(max_new_tokens=6).generate(list(each.prompt)) for each in requests]
    assert [each.tokens for each in requests] == alone


@pytest.mark.parametrize("shape", [(30, 40), (41, 17), (24, 24), (13, 300)])
@pytest.mark.parametrize("kind", ["CLIP", "Gemma3"])
def test_preprocessing(kind: str, shape: tuple[int, int], tmp_path: Path) -> None:
    """Pixels are those of transformers' processors, which use Pillow."""
    transformers = pytest.importorskip("transformers")
    if kind == "CLIP":
        sizes: dict[str, Any] = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    else:
        sizes = {"size": {"height": SIDE, "width": SIDE}}
    name = next(each for each in (f"{kind}ImageProcessorPil", f"{kind}ImageProcessor") if hasattr(transformers, each))
    reference = getattr(transformers, name)(**sizes)
    reference.save_pretrained(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    expected = np.asarray(reference(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0])
    np.testing.assert_allclose(
        read_processor(processor_keys(tmp_path), SIDE).process(pixels), expected, rtol=0, atol=1e-5
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = EXAMPLE["write"](tmp_path_factory.mktemp("images") / "pictures")
    return path


def test_prompts(folder: Path) -> None:
    """Images are at their places; the same image has the same tokens, another one has others."""
    model = generate.load(folder)
    file = folder / "image.png"
    pixels = np.asarray(Image.open(file))
    first = model.image_tokens("w1 <image> w2", [file])
    assert first == [1, *range(65, 81), 2] == model.image_tokens("w1 <image> w2", [pixels])
    assert model.image_tokens("w3", [file.read_bytes()]) == [*range(65, 81), 3]
    assert model.image_tokens("<image> <image>", [pixels[::-1], file]) == [*range(81, 97), *range(65, 81)]
    part = {"type": "image", "image": file}
    chat = model.chat_tokens([{"role": "user", "content": [part, {"type": "text", "text": "w4"}]}])
    assert chat[1:17] == list(range(65, 81)) and 4 in chat
    answers = [
        model.generator(max_new_tokens=5, min_length=40, no_repeat_ngram_size=2).generate(first) for _ in range(2)
    ]
    assert answers[0] == answers[1] and max(answers[0]) < 65
    other = model.generator(batch=2, max_new_tokens=5, repetition_penalty=1.3)
    assert len(other.generate(first, model.image_tokens("w1 <image> w2", [pixels[::-1]]))) == 2
    for call, expected in (
        (lambda: model.image_tokens("<image> <image>", [file]), "2 places for images, written <image>, for 1 images"),
        (lambda: model.image_tokens("w1", [file] * 65), "up to 64 images, found 65"),
        (lambda: model.image_tokens("w1", [3]), "an image is a path, bytes of a file or an array of pixels, found 3"),
        (lambda: model.chat_tokens([{"role": "user", "content": [{"type": "image"}]}]), "has 'image': a path, bytes"),
        (lambda: model.generator(draft=model), "draft: models that take images"),
        (lambda: model.generator().generate([1, 500]), "a token must be from 0 to 64, found 500"),
    ):  # fmt: skip
        with pytest.raises(GenerationError, match=expected):
            call()


def test_rows_that_were_left_out() -> None:
    """The images that were used last stay; tokens of others are an error, not another image."""
    tokens = ImageTokens(100, 4, most_bytes=3 * 2 * 16)
    ranges = [tokens.add(str(i), lambda i=i: (np.full((2, 4), i, np.float32), 1)) for i in range(3)]
    assert tokens.add("0", lambda: (np.zeros((9, 9), np.float32), 1)) == ranges[0] == range(100, 102)
    assert tokens.add("3", lambda: (np.full((2, 4), 3, np.float32), 1)) == range(106, 108)
    assert 101 in tokens and 102 not in tokens and 5 not in tokens
    numbers, rows = tokens.place(np.array([[7, 107, 101, 107]]))
    np.testing.assert_array_equal(numbers, [[7, 101, 100, 101]])
    np.testing.assert_array_equal(rows[:, 0], [0, 3])
    np.testing.assert_array_equal(tokens.spans(np.array([[7, 101]]), np.array([[4, 5]])), [[[0, -1], [4, 5]]])
    assert [tokens.whole_images([1, 100, 101, 2], most) for most in (1, 2, 3, 4, 9)] == [1, 1, 3, 4, 4]
    assert tokens.whole_images([100, 101, 2], 1) == 2
    with pytest.raises(GenerationError, match="not in memory any more"):
        tokens.place(np.array([[102]]))


def test_images_that_are_refused(tmp_path: Path) -> None:
    def png(width: int, height: int) -> bytes:
        file = io.BytesIO()
        Image.new("1", (width, height)).save(file, "PNG")
        return file.getvalue()

    assert read_pixels(png(30, 20)).shape == (20, 30, 3)
    bomb = png(8192, 8193)
    assert len(bomb) < 1 << 20
    for image, expected in (
        (bomb, f"expected up to {MAX_PIXELS} pixels, found 8192 x 8193"),
        (png(402, 2), "one is up to 200 times the other, found 402 x 2"),
        (b"no image", "the image cannot be decoded: it has no format that Pillow knows"),
        (png(50, 50)[:40], "the image cannot be decoded"),
        (np.zeros((2, 2), np.uint8), r"expected u8\[height, width, 3\], found uint8\[2, 2\]"),
        (tmp_path / "none.png", "none.png: No such file"),
    ):  # fmt: skip
        with pytest.raises((GenerationError, ModelFolderError), match=expected):
            read_pixels(image)
    random, whole = np.random.default_rng(0), png(40, 30)
    for _ in range(100):  # damaged files are read or refused with our error
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] = random.integers(256)
        try:
            read_pixels(bytes(damaged))
        except GenerationError:
            continue


HOSTILE: list[Any] = [None, -1, 0, 1, 7, 2**40, 1e300, -0.5, True, "", "llama", [], [[]], {}, [1, 2, 0], {"height": 3}]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["llava", "gemma3"])
def test_damaged_configurations(kind: str, tmp_path: Path) -> None:
    """Configurations with other values give options or are refused with our error."""
    whole = {**(LLAVA if kind == "llava" else GEMMA), "model_type": kind, "image_token_index": TOKEN}
    whole |= {"vision_feature_layer": -2, "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu"}
    path, taken = tmp_path / "config.json", 0
    for part in (None, "vision_config", "text_config"):
        for key in whole if part is None else whole[part]:
            for value in HOSTILE:
                changed = {**whole, key: value} if part is None else {**whole, part: {**whole[part], key: value}}
                path.write_text(json.dumps(changed), encoding="utf-8")
                try:
                    root = read_json(path)
                    taken += read_image_options(root) is not None and text_config(root) is not None
                except ModelFolderError as error:
                    assert str(path) in str(error)
    assert taken > 30
    size = {"height": SIDE, "width": SIDE}
    processor = {**EXAMPLE["PROCESSOR"], "size": {"shortest_edge": SIDE}, "crop_size": size, "do_resize": True}
    for key in processor:
        for value in HOSTILE:
            (tmp_path / "preprocessor_config.json").write_text(json.dumps({**processor, key: value}))
            try:
                read_processor(processor_keys(tmp_path), SIDE)
            except ModelFolderError as error:
                assert "preprocessor_config.json" in str(error)


def test_folders_that_are_refused(folder: Path, tmp_path: Path) -> None:
    tensors = read_checkpoint(folder / "model.safetensors")
    EXAMPLE["write"](tmp_path)
    name = "vision_tower.vision_model.pre_layrnorm.weight"
    write_safetensors(tmp_path / "model.safetensors", {key: each for key, each in tensors.items() if key != name})
    model = generate.load(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(ModelFolderError, match=r"there is no tensor 'vision_tower\.pre_layrnorm\.weight'"):
        model.image_tokens("w1", [tmp_path / "image.png"])
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"there is no preprocessor_config\.json"):
        generate.load(tmp_path, cache=tmp_path / "cache").image_tokens("w1", [tmp_path / "image.png"])
