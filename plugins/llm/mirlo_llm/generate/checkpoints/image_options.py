"""Options of models of text and images, read from `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mirlo_llm.generate.checkpoints.architectures import MAX_LAYERS, read_activation, read_size, require_heads
from mirlo_llm.generate.checkpoints.image_grid import GRID_MODELS, GridOptions, read_grid, read_grid_tower
from mirlo_llm.generate.checkpoints.image_tower import TowerOptions
from mirlo_llm.generate.json_file import JsonObject

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

MAX_SIDE = 4096
"""Most pixels per side of an image that an encoder takes."""
PIXELS, IMAGE_ROWS = "pixels", "rows"
"""The first input and the output of encoders of images."""
ROWS, SPANS, STREAMS = "image_rows", "image_spans", "rotary_positions"
"""Inputs of decoders: rows of images, which tokens above the vocabulary index, first and last token of each image, and
positions of tokens by time, row and column."""
ARCHITECTURES = ("llava", "gemma3", *GRID_MODELS)
"""`model_type` of models of text and images."""
TEXT_ONLY = ("llama4",)
"""`model_type` of models of which only the text decoder is supported."""
Array = TypeVar("Array")
_QWEN: dict[str, Json] = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
}  # fmt: skip
_TEXT_DEFAULTS: dict[str, dict[str, Json]] = {
    "llava": {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
    },
    "qwen2_vl": {**_QWEN, "model_type": "qwen2_vl_text"}, "qwen2_5_vl": {**_QWEN, "model_type": "qwen2_5_vl_text"},
    "gemma3": {
        "model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
"""Defaults of `text_config`, as in transformers."""


@dataclass(frozen=True)
class ImageOptions:
    """The options of images in a model of text."""

    tower: TowerOptions
    hidden: int
    """Width of the text model."""
    vocabulary: int
    token: int | None
    """The placeholder token of an image part; None if `marker` is used."""
    count: int
    """Tokens per image; 0 if that depends on the image."""
    begin: int | None = None
    """The token of an image in a prompt, if it differs from the placeholder; it stays before the image."""
    end: int | None = None
    drops_first: bool = False
    """Whether the class token is left out."""
    activation: str = ""
    """The activation between two projection layers; empty for a norm and one projection of pooled patches."""
    is_seen_whole: bool = False
    """Whether the tokens of an image attend to each other in both directions."""
    around: tuple[int, int] | None = None
    """The tokens before and after an image in prompts."""
    grid: GridOptions | None = None
    """The grid of images of any size; None if all have one size."""
    marker: str = ""
    """The placeholder text of an image part, if the tokenizer has no token for it."""
    norm_offset: float = 0.0
    """The offset of the weights of the projector's norm: it multiplies by weight + offset (Gemma)."""


def text_config(root: JsonObject) -> JsonObject:
    """Return the configuration of the text decoder."""
    kind = root.value("model_type")
    if not root.has("text_config"):
        return root
    text = root.object("text_config")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        return text
    value = {**_TEXT_DEFAULTS[kind], **{key: text.content[key] for key in text}}
    for key in ("tie_word_embeddings", "quantization_config"):
        if root.has(key) and not text.has(key):
            value[key] = root.value(key)
    return JsonObject(root.path, "text_config", value)


def has_images(root: JsonObject) -> bool:
    """Return whether a configuration is that of a model of text and images with a supported decoder."""
    return read_image_options(root) is not None or root.value("model_type") in TEXT_ONLY


def own_config(root: JsonObject) -> JsonObject:
    """Return the configuration of the supported decoder within a larger model."""
    return text_config(root) if has_images(root) else root


def read_image_options(root: JsonObject, marker: str = "", text: JsonObject | None = None) -> ImageOptions | None:
    """Return the image options of a model; None if it takes no images.

    `marker` is the placeholder text of an image part, if the tokenizer has no token for it; `text` is the configuration
    of the text decoder, if `root` does not contain it.
    """
    kind = root.value("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES or not root.has("vision_config"):
        return None
    text = text_config(root) if text is None else text
    hidden, vocabulary = read_size(text, "hidden_size"), read_size(text, "vocab_size")

    def token(name: str) -> int:
        key = f"{name}_id" if root.has(f"{name}_id") else f"{name}_index"
        return root.count(key, most=vocabulary - 1)

    part = None if marker else token("image_token")
    if kind in GRID_MODELS:
        tower = read_grid_tower(root, kind, hidden)
        around = token("vision_start_token"), token("vision_end_token")
        return ImageOptions(
            tower, hidden, vocabulary, part, 0, around=around, grid=read_grid(root, text, tower), marker=marker
        )  # fmt: skip
    if kind == "llava":
        return replace(_llava(root, hidden, vocabulary, part), marker=marker)
    tower = _tower(root, "siglip_vision_model")
    count = root.count("mm_tokens_per_image", 256, least=1, most=tower.side**2)
    side = math.isqrt(count)
    if side**2 != count or tower.side % side:
        what = f"the {tower.side} x {tower.side} patches of an image do not divide into {count} squares"
        raise root.refuse("mm_tokens_per_image", what)
    begin, end = token("boi_token"), token("eoi_token")
    return ImageOptions(
        tower, hidden, vocabulary, part, count, begin, end, is_seen_whole=True, marker=marker, norm_offset=1.0
    )  # fmt: skip


def _llava(root: JsonObject, hidden: int, vocabulary: int, token: int | None) -> ImageOptions:
    tower = _tower(root, "clip_vision_model")
    strategy = root.text("vision_feature_select_strategy", "default")
    if strategy not in ("default", "full"):
        raise root.refuse("vision_feature_select_strategy", f"expected default or full, found {strategy!a:.40}")
    activation = read_activation(root, "projector_hidden_act", "gelu")
    drops_first = strategy == "default"
    count = tower.side**2 + (not drops_first)
    return ImageOptions(tower, hidden, vocabulary, token, count, drops_first=drops_first, activation=activation)


def _tower(root: JsonObject, expected: str) -> TowerOptions:
    keys, is_clip = root.object("vision_config"), expected == "clip_vision_model"
    kind = keys.text("model_type", expected)
    if kind != expected:
        raise keys.refuse("model_type", f"expected {expected}, found {kind!a:.40}")
    hidden = read_size(keys, "hidden_size", 768)
    heads = require_heads(keys, "num_attention_heads", hidden) if keys.has("num_attention_heads") else 12
    size = read_size(keys, "image_size", 224, MAX_SIDE)
    patch = read_size(keys, "patch_size", 32 if is_clip else 16, size)
    layers = read_size(keys, "num_hidden_layers", 12, MAX_LAYERS)
    if hidden % heads or keys.count("num_channels", 3) != 3:
        raise keys.refuse("hidden_size", "expected heads of one size, and images of 3 channels")
    if is_clip:
        layers = _used_layers(root, layers)
    activation = read_activation(keys, "hidden_act", "quick_gelu" if is_clip else "gelu_pytorch_tanh")
    epsilon = keys.number("layer_norm_eps", 1e-5 if is_clip else 1e-6)
    inner = read_size(keys, "intermediate_size", 3072)
    return TowerOptions(hidden, inner, heads, layers, size, patch, epsilon, activation, is_clip)


def _used_layers(root: JsonObject, layers: int) -> int:
    """Return the number of layers whose result is used."""
    value = root.value("vision_feature_layer")
    layer = -2 if value is None else value
    if not isinstance(layer, int) or isinstance(layer, bool) or not -layers <= layer <= layers:
        raise root.fail("vision_feature_layer", f"an integer from {-layers} to {layers}", value)
    used = layer if layer >= 0 else layers + 1 + layer
    if not used:
        raise root.refuse("vision_feature_layer", "expected a layer from 1 on, found what the first one reads")
    return used


_TOWERS = ("vision_tower.", "vision_model.", "multi_modal_projector.", "visual.")
"""Prefixes of tensors that do not belong to the decoder."""


def split_tensors(tensors: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Split tensors into those of the decoder and those of the image encoder, under common names."""
    decoder, tower = dict[str, Array](), dict[str, Array]()
    for name, tensor in tensors.items():
        own = decoder_name(name)
        if own is None:
            tower[name.removeprefix("model.").replace("vision_tower.vision_model.", "vision_tower.")] = tensor
        else:
            decoder[own] = tensor
    return decoder, tower


def decoder_name(name: str) -> str | None:
    """Return the name that a tensor or module has in a decoder of text; None for those of the image encoder."""
    short = name.removeprefix("model.")
    if short.startswith(_TOWERS):
        return None
    rest = short.removeprefix("language_model.")
    is_inner = rest == short or rest.startswith(("model.", "lm_head."))
    return name if rest == short else rest if is_inner else f"model.{rest}"
