"""Models that take images of any size compute what transformers' do, alone, in batches and after common beginnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("PIL", "tokenizers", "jinja2"):
    pytest.importorskip(package)

from grid_models import BEGIN, END, EXAMPLE, PROCESSOR, TEXT, TOKEN, TOKENS, VISION, write_grid_model  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from mirlo_llm.generate.chat import read_template  # noqa: E402
from mirlo_llm.generate.checkpoints.architectures import read_options  # noqa: E402
from mirlo_llm.generate.checkpoints.image_options import PIXELS, read_image_options, text_config  # noqa: E402
from mirlo_llm.generate.errors import GenerationError, ModelFolderError  # noqa: E402
from mirlo_llm.generate.json_file import JsonObject  # noqa: E402
from mirlo_llm.generate.vision.patches import PatchProcessor, read_patch_processor, resized_sides  # noqa: E402
from mirlo_llm.generate.vision.tokens import ImageTokens  # noqa: E402
from PIL import Image  # noqa: E402

SHAPES = ((30, 40), (50, 21), (8, 8))
RANDOM = np.random.default_rng(0)
PICTURES = [RANDOM.integers(0, 256, (*shape, 3)).astype(np.uint8) for shape in SHAPES]
GRIDS = ((4, 5), (6, 3))
"""Rows and columns of the tokens of the first two."""
SHORT = [5, 9, BEGIN, TOKEN, END, 7, 2, BEGIN, TOKEN, END, 33, 4]


def expanded(images: list[list[int]]) -> list[int]:
    """Return the prompt with the tokens of two images."""
    pending = iter(images)
    return [token for each in SHORT for token in (next(pending) if each == TOKEN else [each])]


def processor_of(kind: str, keys: dict[str, Any]) -> PatchProcessor:
    config = {"model_type": kind, **TEXT, **TOKENS, "vision_config": VISION[kind]}
    options = read_image_options(JsonObject(Path("config.json"), "", config))
    assert options is not None and options.grid is not None
    file = JsonObject(Path("preprocessor_config.json"), "", keys)
    return read_patch_processor(file, options.tower.patch, options.grid, kind == "qwen2_5_vl")


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", VISION)
def test_architectures(kind: str, tmp_path: Path) -> None:
    """Logits of a prompt with two images, in parts too, and the tokens that follow, are those of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    text = dict(TEXT)
    if int(transformers.__version__.partition(".")[0]) >= 5:
        rotation = {"rope_type": "default", "rope_theta": text.pop("rope_theta")}
        text["rope_parameters"] = {**text.pop("rope_scaling"), **rotation}
    config = transformers.AutoConfig.for_model(kind, text_config=text, vision_config=VISION[kind], **TOKENS)
    reference = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():  # norms that are not 1, biases that are not 0
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(tmp_path)
    EXAMPLE["write_tokenizer"](tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    model, processor = generate.load(tmp_path, cache=False), processor_of(kind, PROCESSOR)
    prompts, answers = list[list[int]](), list[list[int]]()
    for pictures in (PICTURES[:2], PICTURES[1:], PICTURES[:1] * 2):
        arrays = [processor.inputs(each) for each in pictures]
        counts = [len(each.arrays[PIXELS]) for each in arrays]
        patches = [each.arrays[PIXELS].reshape(-1, 3, 1, PROCESSOR["patch_size"] ** 2) for each in arrays]
        pixels = torch.from_numpy(np.concatenate([np.repeat(each, 2, 2).reshape(len(each), -1) for each in patches]))
        sides = [(1, 2 * len(x.arrays[PIXELS]) // x.columns, 2 * x.columns) for x in arrays]
        ids = torch.tensor([expanded([[TOKEN] * count for count in counts])])
        inputs = {"pixel_values": pixels, "image_grid_thw": torch.tensor(sides), "input_ids": ids}
        if int(transformers.__version__.partition(".")[0]) >= 5:
            inputs["mm_token_type_ids"] = (ids == TOKEN).int()
        with torch.no_grad():
            expected = reference(**inputs).logits[0, -1].numpy()
            tokens = reference.generate(**inputs, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :].tolist()
        prompts.append(expanded([list(model._image_prompts.image_tokens(each)) for each in pictures]))
        answers.append([each for each in tokens if each not in (0, TEXT["eos_token_id"])])
        for chunk in (512, 12, 5):
            generator = model.generator(chunk_size=chunk)
            generator.append(prompts[-1])
            np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
            model.prefixes.clear()
    engine = model.engine(slots=2, chunk_size=12, max_new_tokens=6)
    requests = [engine.add(each) for each in prompts]
    assert len(list(engine.run())) == 3
    stop = TEXT["eos_token_id"]
    assert [[token for token in each.tokens if token not in (0, stop)] for each in requests] == answers


@pytest.mark.parametrize("shape", [*SHAPES, (13, 300), (200, 150)])
def test_preprocessing(shape: tuple[int, int]) -> None:
    """Pixels are those of transformers' processor that uses Pillow."""
    transformers = pytest.importorskip("transformers")
    names = ("Qwen2VLImageProcessorPil", "Qwen2VLImageProcessor")
    reference = getattr(transformers, next(each for each in names if hasattr(transformers, each)))(**PROCESSOR)
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    expected = reference(Image.fromarray(pixels), return_tensors="np")
    inputs = processor_of("qwen2_5_vl", PROCESSOR).inputs(pixels)
    patches = inputs.arrays[PIXELS].reshape(-1, 3, PROCESSOR["patch_size"] ** 2)
    both = np.repeat(patches[:, :, None], 2, 2).reshape(len(patches), -1)
    np.testing.assert_allclose(both, expected["pixel_values"], rtol=0, atol=1e-5)
    assert expected["image_grid_thw"].tolist() == [[1, len(patches) // inputs.columns // 2, inputs.columns * 2]]


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((480, 640), (476, 644)), ((1080, 1920), (728, 1316)), ((20, 30), (56, 84)), ((56, 56), (56, 56)),
        ((1, 150), (28, 700)), ((14, 14), (56, 56)), ((42, 70), (56, 56)), ((100, 20000), (56, 14140)),
    ],
)  # fmt: skip
def test_sides(sides: tuple[int, int], expected: tuple[int, int]) -> None:
    """Sides are those of `smart_resize` of transformers 4.57.3."""
    assert resized_sides(*sides, 28, 56 * 56, 28 * 28 * 1280) == expected


def test_positions() -> None:
    """Positions are those of `get_rope_index` of transformers 4.57.3, of tokens in parts too."""
    images = ImageTokens(65, 4)
    tokens = [
        list(images.add(str(i), lambda size=size: (np.zeros((size[0] * size[1], 4), np.float32), size[1])))
        for i, size in enumerate(GRIDS)
    ]
    whole = expanded(tokens)
    first = [[3] * 20, np.repeat(range(3, 7), 5), [3, 4, 5, 6, 7] * 4]
    second = [[12] * 18, np.repeat(range(12, 18), 3), [12, 13, 14] * 6]
    text = ([0, 1, 2], [8, 9, 10, 11], [18, 19, 20])
    expected = np.array([np.concatenate([text[0], a, text[1], b, text[2]]) for a, b in zip(first, second, strict=True)])
    for cut in range(len(whole)):
        part = images.positions(np.array([whole[cut:]]), [whole[:cut]])
        np.testing.assert_array_equal(part[0].T, expected[:, cut:])
    # Of an image that is not whole, positions go on after what there is of it.
    np.testing.assert_array_equal(images.positions(np.array([[*tokens[0][:2], 7]]), [[1]])[0, :, 2], [1, 2, 3])
    for i in range(9):
        images.add(f"large {i}", lambda: (np.zeros((1 << 21, 4), np.float32), 1))
    assert tokens[0][0] not in images and images.positions(np.array([[1]]), [whole]).tolist() == [[[21] * 3]]
    with pytest.raises(GenerationError, match="the size of an image is not in memory any more"):
        images.positions(np.array([[1 << 30]]), [[]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_grid_model(tmp_path_factory.mktemp("grids") / "pictures")


@pytest.fixture(scope="module")
def model(folder: Path) -> generate.LanguageModel:
    return generate.load(folder)


@pytest.mark.sample(0)
def test_logits_that_were_recorded(model: generate.LanguageModel) -> None:
    """Logits and tokens are those of transformers 4.57.3 with the same weights, for images of two sizes."""
    for pictures, logits, tokens in (
        (PICTURES[:2], [1.1233, 1.0714, 3.0278, 2.0441, 0.2152, 0.2441, -0.3164, 4.3386], [7, 53, 30, 31, 53, 27]),
        (PICTURES[1::-1], [-1.3969, 3.2456, 1.2855, -3.7808, 4.6084, -0.875, 0.0999, 2.5103], [4, 4, 23, 30, 30, 54]),
    ):
        prompt = model.image_tokens("w5 w9 <s> <image> </s> w7 w2 <s> <image> </s> w33 w4", pictures)
        assert len(prompt) == len(SHORT) - 2 + 38
        generator = model.generator(chunk_size=15, max_new_tokens=6)
        generator.append(prompt)
        np.testing.assert_allclose(generator.logits().reshape(-1)[:8], logits, rtol=0, atol=2e-4)
        assert list(generator.generate()) == tokens


def test_sequences_together_are_as_alone(model: generate.LanguageModel) -> None:
    """Prompts with other images share what is before them only, in a batch, an engine, and in turns."""
    words = " ".join(f"w{i}" for i in range(8))
    prompts = [model.image_tokens(f"{words} <image> w9 w10", [each]) for each in PICTURES]
    prompts.append(model.image_tokens(words, []))
    alone = []
    for each in prompts:
        model.prefixes.clear()
        alone.append(model.generator(max_new_tokens=5).generate(each))
    assert len({tuple(each) for each in alone}) == len(alone)
    assert model.generator(batch=4, max_new_tokens=5).generate(*prompts) == alone
    model.prefixes.clear()
    engine = model.engine(slots=3, chunk_size=7, max_new_tokens=5)
    requests = [engine.add(each) for each in (*prompts, prompts[1])]
    assert len(list(engine.run())) == 5
    assert [each.tokens for each in requests] == [*alone, alone[1]]
    assert [each.reused_tokens for each in requests[1:4]] <= [8] * 3 and requests[4].reused_tokens >= 8 + 18
    turns = model.generator(max_new_tokens=5)
    assert list(turns.generate(prompts[0])) == alone[0]
    turns.append(more := model.image_tokens("w3 <image> w4", [PICTURES[1]]))
    whole = [*prompts[0], *alone[0], *more]
    assert turns.tokens == whole
    model.prefixes.clear()
    assert list(turns.generate()) == list(model.generator(max_new_tokens=5).generate(whole))


def test_prompts(folder: Path, model: generate.LanguageModel) -> None:
    """Images that a prompt has no places for are between the tokens around images, before it."""
    file = folder / "image.png"
    tokens = model.image_tokens("w1", [file])
    assert [tokens[0], *tokens[-2:]] == [BEGIN, END, 1] and len(tokens) == 4 * 5 + 3
    template = folder / "chat_template.json"  # comes before that of the tokenizer, which may be one for text
    template.write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}), encoding="utf-8")
    found = read_template(folder)
    template.unlink()
    assert found is not None and found.path == template
    part = {"type": "image", "image": file}
    assert model.chat_tokens([{"role": "user", "content": [part, {"type": "text", "text": "w1"}]}]) == tokens


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("patch_size", 14, "'patch_size': expected 4, as the model has, found 14"),
        ("max_pixels", 10, "'max_pixels': expected an integer from 64 to"),
        ("min_pixels", 0, "'min_pixels': expected an integer from 1"),
        ("do_resize", False, "'do_resize': only true is supported"),
        ("image_mean", [1, 2], "'image_mean': expected three numbers"),
        ("size", 3, "'size': expected an object"),
    ],
)
def test_preparations_that_are_refused(key: str, value: object, expected: str) -> None:
    with pytest.raises(ModelFolderError, match=expected):
        processor_of("qwen2_5_vl", {**PROCESSOR, key: value})


@pytest.mark.parametrize(
    ("part", "key", "value", "expected"),
    [
        (
            "",
            "rope_scaling",
            {"type": "mrope"},
            "'rope_scaling.mrope_section': expected 3 numbers of pairs, 8 together",
        ),
        ("", "rope_scaling", {"mrope_section": [4, 4, 1]}, "'rope_scaling.mrope_section': expected 3 numbers"),
        ("", "vision_end_token_id", 99, "'vision_end_token_id': expected an integer from 0 to 64"),
        ("vision_config", "out_hidden_size", 31, "'vision_config.out_hidden_size': expected 32, the elements of"),
        ("vision_config", "num_heads", 16, "'vision_config.hidden_size': expected 16 heads of a multiple of 4"),
        ("vision_config", "window_size", 7, "'vision_config.window_size': expected at least the 8 pixels"),
        ("vision_config", "fullatt_block_indexes", [-1], "'vision_config.fullatt_block_indexes': expected a list"),
    ],
)
def test_configurations_that_are_refused(part: str, key: str, value: object, expected: str) -> None:
    config: dict[str, Any] = {"model_type": "qwen2_5_vl", **TEXT, **TOKENS, "vision_config": VISION["qwen2_5_vl"]}
    config = {**config, part: {**config[part], key: value}} if part else {**config, key: value}
    with pytest.raises(ModelFolderError, match=expected):
        read_image_options(JsonObject(Path("config.json"), "", config))


HOSTILE: list[Any] = [
    None, -1, 0, 1, 7, 2**40, 1e300, 1e-300, -0.5, True, "", "llama", [], [[]], {}, [1, 2, 0], [2**70], [True],
    {"mrope_section": "a"}, {"mrope_section": [[1], 2, 5]}, {"mrope_section": [True, 3, 4]},
    {"shortest_edge": 5, "longest_edge": 3},
]  # fmt: skip


@pytest.mark.sample(0)
@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("kind", VISION)
def test_damaged_configurations(kind: str, is_nested: bool, tmp_path: Path) -> None:
    """Configurations with other values give options that images can be prepared by, or are refused with our error."""
    text = {"text_config": {**TEXT, "model_type": f"{kind}_text"}} if is_nested else TEXT
    whole: dict[str, Any] = {"model_type": kind, **TOKENS, **text, "vision_config": VISION[kind]}
    taken = 0
    for part in (None, "vision_config", *(("text_config",) if is_nested else ())):
        for key in whole if part is None else whole[part]:
            for value in HOSTILE:
                changed = {**whole, key: value} if part is None else {**whole, part: {**whole[part], key: value}}
                root = JsonObject(tmp_path / "config.json", "", changed)
                try:
                    options = read_image_options(root)
                    read_options(text_config(root))
                    taken += options is not None
                except ModelFolderError as error:
                    assert "config.json" in str(error)
    assert taken > 100
    for key in (*PROCESSOR, "size", "rescale_factor"):
        for value in HOSTILE:
            try:
                processor = processor_of(kind, {**PROCESSOR, key: value})
                for shape in ((1, 1), (1, 200), (300, 2)):
                    processor.inputs(np.zeros((*shape, 3), np.uint8))
            except ModelFolderError as error:
                assert "preprocessor_config.json" in str(error)
