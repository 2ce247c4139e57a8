"""The metadata of an image encoder's file (`mmproj`) under the names of folders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo_llm.generate.checkpoints.architectures import MAX_LAYERS, read_options
from mirlo_llm.generate.checkpoints.image_options import ImageOptions, read_image_options
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile
from mirlo_llm.generate.gguf.keys import ARCHITECTURE
from mirlo_llm.generate.gguf.tokenizer import TOKENS
from mirlo_llm.generate.json_file import JsonObject, RenamedObject

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

CLIP = "clip"
"""The architecture of such files."""
PROJECTOR_TYPES = ("clip.projector_type", "clip.vision.projector_type")
"""Keys of the projector's type, of which files have one."""
PROJECTORS = {"mlp": "llava", "gemma3": "gemma3", "qwen2vl_merger": "qwen2_vl", "qwen2.5vl_merger": "qwen2_5_vl"}
"""`model_type` of `config.json`, by the type of a projector."""
TEXTS = {"gemma3": "gemma3", "qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl"}
"""The required architecture of the text decoder's file, for projector types that have one."""
MARKERS = {
    "llava": "<image>", "gemma3": "<image_soft_token>", "qwen2_vl": "<|image_pad|>", "qwen2_5_vl": "<|image_pad|>"
}  # fmt: skip
"""The placeholder text of an image part."""
_AROUND = {"boi_token_id": "<start_of_image>", "eoi_token_id": "<end_of_image>"}
_AROUND_GRID = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
_SQUARE_KEYS = {
    "hidden_size": "embedding_length", "num_attention_heads": "attention.head_count",
    "num_hidden_layers": "block_count", "image_size": "image_size", "patch_size": "patch_size",
    "layer_norm_eps": "attention.layer_norm_epsilon",
}  # fmt: skip
_GRID_KEYS = {
    "hidden_size": "embedding_length", "num_heads": "attention.head_count", "depth": "block_count",
    "patch_size": "patch_size", "out_hidden_size": "projection_dim",
}  # fmt: skip
_SECOND_KEYS = {"embed_dim": "embedding_length", "hidden_size": "projection_dim"}
"""Qwen2-VL's names of the encoder's width and the projector's."""
_REFUSED = ("image_grid_pinpoints", "mm_patch_merge_type")
"""Keys of models that read crops of an image besides the whole."""
DOWN, UP = "v.blk.0.ffn_down.weight", "v.blk.0.ffn_up.weight"
PATCHES = ("v.patch_embd.weight", "v.patch_embd.weight.1")
"""Tensors with the patch embedding, one per frame."""
BILINEAR = 2
"""Pillow's number of Gemma's resampling filter, bilinear; the others use bicubic."""
WINDOW, MERGE, MEANS = 112, 2, 4
"""Default window size in pixels, and default patches per side of a merged token."""


def read_projector_options(text: GgufFile, keys: JsonObject, file: GgufFile) -> ImageOptions:
    """Return the image options of a model; `keys` is the configuration of the text decoder."""
    read_options(keys)  # names that file in errors
    kind = projector_kind(file)
    architecture, expected = text.metadata.text(ARCHITECTURE), TEXTS.get(kind)
    if expected not in (None, architecture):
        what = f"the encoder belongs to texts of '{expected}', found '{architecture:.40}' in {text.metadata.path}"
        raise file.metadata.refuse(_type_key(file.metadata), what)
    tokens = _token_numbers(text.metadata, (MARKERS[kind], *_AROUND.values(), *_AROUND_GRID.values()))
    around = {"gemma3": _AROUND}.get(kind, _AROUND_GRID if kind != "llava" else {})
    value: dict[str, Json] = {"model_type": kind}
    for name, token in around.items():
        if token not in tokens:
            raise text.metadata.refuse(TOKENS, f"there is no token '{token}', which images have in texts")
        value[name] = tokens[token]
    marker = MARKERS[kind] if MARKERS[kind] not in tokens else ""
    if not marker:
        value["image_token_id"] = tokens[MARKERS[kind]]
    names, vision = _vision_keys(file, kind)
    value["vision_config"] = vision
    if kind == "llava":
        value["vision_feature_layer"] = _feature_layer(file.metadata)
        names["vision_feature_layer"] = _vision("feature_layer")
    if kind == "gemma3":
        names["mm_tokens_per_image"] = _vision("projector.scale_factor")
        each = file.metadata.count(names["mm_tokens_per_image"], MEANS, least=1)
        patches = file.metadata.count(_vision("image_size")) // file.metadata.count(_vision("patch_size"), least=1)
        value["mm_tokens_per_image"] = (patches // each) ** 2
    options = read_image_options(RenamedObject(file.metadata.path, names, value), marker, keys)
    assert options is not None  # there is a vision_config
    return replace(options, norm_offset=0.0)  # the weights of norms include offsets


def projector_kind(file: GgufFile) -> str:
    """Return the `model_type` of folders with the same image encoder."""
    metadata = file.metadata
    if metadata.text(ARCHITECTURE) != CLIP:
        what = f"expected '{CLIP}', the architecture of encoders of images, found '{metadata.text(ARCHITECTURE):.40}'"
        raise metadata.refuse(ARCHITECTURE, what)
    if not metadata.flag("clip.has_vision_encoder", True):
        raise metadata.refuse("clip.has_vision_encoder", "the file has no encoder of images")
    key = _type_key(metadata)
    kind = metadata.text(key, "mlp")  # what the first files were
    if kind not in PROJECTORS:
        raise metadata.refuse(key, f"expected one of {', '.join(PROJECTORS)}, found '{kind:.40}'")
    for name in _REFUSED:
        if metadata.has(_vision(name)):
            raise metadata.refuse(_vision(name), "models that see parts of an image beside the whole are not supported")
    return PROJECTORS[kind]


def are_products_swapped(file: GgufFile) -> bool:
    """Return whether the names of the MLP's two layers are exchanged, as in files of older converters."""
    down, up = (_require(file, name) for name in (DOWN, UP))
    return down[-1] == file.metadata.count(_vision("embedding_length")) and down[0] == up[-1]


def preparation_keys(file: GgufFile, options: ImageOptions) -> JsonObject:
    """Return the image preprocessing in the form of `preprocessor_config.json`."""
    metadata, size = file.metadata, options.tower.size
    names = {"image_mean": "image_mean", "image_std": "image_std"}
    if options.grid is not None:
        names |= {"min_pixels": "image_min_pixels", "max_pixels": "image_max_pixels"}
    names = {name: _vision(key) for name, key in names.items()}
    value: dict[str, Json] = {name: _listed(metadata.value(key)) for name, key in names.items() if metadata.has(key)}
    square: Json = {"height": size, "width": size}
    if options.tower.is_clip:
        value |= {"size": {"shortest_edge": size}, "crop_size": square}
    elif options.grid is None:
        value |= {"size": square, "resample": BILINEAR}
    else:
        value |= {"patch_size": options.tower.patch, "merge_size": options.grid.merge}
    return RenamedObject(metadata.path, names, value)


def _vision(name: str) -> str:
    return f"clip.vision.{name}"


def _type_key(metadata: JsonObject) -> str:
    return next((key for key in PROJECTOR_TYPES if metadata.has(key)), PROJECTOR_TYPES[0])


def _vision_keys(file: GgufFile, kind: str) -> tuple[dict[str, str], dict[str, Json]]:
    """Return the file's names of keys by the common ones, and a `vision_config`."""
    metadata, is_grid = file.metadata, kind.startswith("qwen")
    places = {"qwen2_vl": {**_GRID_KEYS, **_SECOND_KEYS}, "qwen2_5_vl": _GRID_KEYS}.get(kind, _SQUARE_KEYS)
    for key in map(_vision, places.values()):
        if not metadata.has(key):
            raise metadata.fail(key, "a number", None)
    value: dict[str, Json] = {name: metadata.value(_vision(key)) for name, key in places.items()}
    width, layers = (metadata.count(_vision(key), least=1) for key in ("embedding_length", "block_count"))
    if layers > MAX_LAYERS:
        raise metadata.fail(_vision("block_count"), f"up to {MAX_LAYERS} layers", layers)
    # What files say of the inner width is not always so.
    inner = _require(file, DOWN if are_products_swapped(file) else UP)[0]
    value["intermediate_size"] = inner
    value["hidden_act"] = _activation(metadata, kind)
    if not is_grid:
        return {f"vision_config.{name}": _vision(key) for name, key in places.items()}, value
    places = {
        **places, "spatial_merge_size": "spatial_merge_size", "window_size": "window_size",
        "fullatt_block_indexes": "n_wa_pattern",
    }  # fmt: skip
    names = {f"vision_config.{name}": _vision(key) for name, key in places.items()}
    value["spatial_merge_size"] = metadata.count(_vision("spatial_merge_size"), MERGE)
    value["mlp_ratio"] = (inner + 0.5) / width  # is rounded down
    value["temporal_patch_size"] = sum(name in file.tensors for name in PATCHES)
    if kind == "qwen2_5_vl":
        value["window_size"] = metadata.count(_vision("window_size"), WINDOW)
        every = metadata.count(_vision("n_wa_pattern"), least=1)
        value["fullatt_block_indexes"] = list(range(every - 1, layers, every))
    return {**names, "vision_config.temporal_patch_size": PATCHES[0]}, value


def _activation(metadata: JsonObject, kind: str) -> str:
    if metadata.flag("clip.use_silu", False):
        return "silu"
    if metadata.flag("clip.use_gelu", False):
        return "gelu_pytorch_tanh" if kind == "gemma3" else "gelu"
    return "quick_gelu"


def _feature_layer(metadata: JsonObject) -> Json:
    """Return the layer whose result is used; without a key it is the last one of the file."""
    key = _vision("feature_layer")
    listed = _listed(metadata.value(key))
    if listed is None:
        return metadata.value(_vision("block_count"))
    if not isinstance(listed, list) or len(listed) != 1:
        raise metadata.fail(key, "one layer", listed)
    return listed[0]


def _require(file: GgufFile, name: str) -> tuple[int, ...]:
    """Return the shape of a matrix; raise an error if it is missing."""
    tensor = file.tensors.get(name)
    if tensor is None or len(tensor.shape) != 2:
        actual = "none" if tensor is None else f"{list(tensor.shape)}"
        raise ModelFolderError(f"{file.metadata.path}: tensor '{name}': expected a matrix, found {actual}")
    return tensor.shape


def _token_numbers(metadata: JsonObject, texts: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers of those of some tokens that the vocabulary has."""
    tokens = metadata.value(TOKENS)
    if not isinstance(tokens, list):
        raise metadata.fail(TOKENS, "an array of texts, which prompts with images need", tokens)
    return {text: tokens.index(text) for text in texts if text in tokens}


def _listed(value: object) -> Json:
    """Return an array of metadata as a list."""
    listed: Json = value.tolist() if isinstance(value, np.ndarray) else value  # type: ignore[assignment]
    return listed
