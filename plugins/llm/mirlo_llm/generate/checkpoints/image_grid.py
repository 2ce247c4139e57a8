"""Options of image encoders with dynamic image sizes (Qwen2-VL): merged patches and attention windows."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo_llm.generate.checkpoints.architectures import MAX_LAYERS, read_activation, read_size, require_heads
from mirlo_llm.generate.checkpoints.image_tower import TowerOptions
from mirlo_llm.generate.json_file import JsonObject, is_count

GRID_MODELS = ("qwen2_vl", "qwen2_5_vl")
"""`model_type` of models that take images of any size."""
PLACES, WINDOWS, SQUARES = "places", "windows", "squares"
"""Inputs of encoders beside pixels: the row and the column of each patch, the merged patches of each window, and the
position of each merged patch in the windows."""
MAX_PATCH, MAX_MERGE, MAX_FRAMES, MAX_WINDOW = 256, 8, 16, 64
STREAM_COUNT = 3
"""Positions of a token of an image: time, row and column."""


@dataclass(frozen=True)
class GridOptions:
    """The grid of an image: squares of patches, each of which is merged into one token."""

    merge: int
    """Patches per side of a square."""
    frames: int
    """Frames per patch; an image repeats its pixels for each."""
    window: int
    """Squares per side of an attention window; 0 for none."""
    whole_layers: frozenset[int]
    """The layers with attention over all patches."""
    is_gated: bool
    """Whether layers have gated MLPs and RMSNorm."""
    sections: tuple[int, ...]
    """Number of rotated pairs by time, row and column."""


def read_grid_tower(root: JsonObject, kind: str, hidden: int) -> TowerOptions:
    """Return the options of an encoder's layers; `hidden` is the width of the text model."""
    keys, is_second = root.object("vision_config"), kind == "qwen2_vl"
    own, result = ("embed_dim", "hidden_size") if is_second else ("hidden_size", "out_hidden_size")
    width = read_size(keys, own, 1280 if is_second else 3584)
    heads = require_heads(keys, "num_heads", width) if keys.has("num_heads") else 16
    if width % heads or width // heads % 4 or keys.count("in_channels", keys.count("in_chans", 3)) != 3:
        raise keys.refuse(own, f"expected {heads} heads of a multiple of 4 elements, and images of 3 channels")
    if keys.count(result, 3584) != hidden:
        raise keys.refuse(result, f"expected {hidden}, the elements of a token of the text, found {keys.value(result)}")
    ratio = keys.number("mlp_ratio", 4.0)
    if is_second and not 1 / width <= ratio <= 64:
        raise keys.fail("mlp_ratio", "a number up to 64", ratio)
    inner = int(width * ratio) if is_second else read_size(keys, "intermediate_size", 3420)
    activation = read_activation(keys, "hidden_act", "quick_gelu" if is_second else "silu")
    layers, patch = read_size(keys, "depth", 32, MAX_LAYERS), read_size(keys, "patch_size", 14, MAX_PATCH)
    return TowerOptions(width, inner, heads, layers, 0, patch, 1e-6, activation, is_clip=False)


def read_grid(root: JsonObject, text: JsonObject, tower: TowerOptions) -> GridOptions:
    """Return the grid that splits images into tokens."""
    keys, is_gated = root.object("vision_config"), root.value("model_type") != "qwen2_vl"
    merge = read_size(keys, "spatial_merge_size", 2, MAX_MERGE)
    frames, window, whole = read_size(keys, "temporal_patch_size", 2, MAX_FRAMES), 0, frozenset(range(tower.layers))
    if is_gated:
        window = keys.count("window_size", 112, most=merge * tower.patch * MAX_WINDOW) // merge // tower.patch
        listed = [7, 15, 23, 31] if keys.value("fullatt_block_indexes") is None else keys.value("fullatt_block_indexes")
        if not isinstance(listed, list) or not all(is_count(each, 0, MAX_LAYERS) for each in listed):
            raise keys.fail("fullatt_block_indexes", "a list of layers", listed)
        whole = frozenset(range(tower.layers)) & frozenset(each for each in listed if isinstance(each, int))
        if not window:
            raise keys.refuse("window_size", f"expected at least the {merge * tower.patch} pixels of a square")
    return GridOptions(merge, frames, window, whole, is_gated, _sections(text))


def _sections(text: JsonObject) -> tuple[int, ...]:
    rotation = text.object("rope_parameters" if text.has("rope_parameters") else "rope_scaling")
    heads, hidden = read_size(text, "num_attention_heads"), read_size(text, "hidden_size")
    pairs, listed = read_size(text, "head_dim", max(hidden // heads, 1)) // 2, rotation.value("mrope_section")
    sections = tuple(each for each in listed if is_count(each, 1, pairs)) if isinstance(listed, list) else ()
    if not isinstance(listed, list) or not len(listed) == len(sections) == STREAM_COUNT or sum(sections) != pairs:
        raise rotation.fail("mrope_section", f"{STREAM_COUNT} numbers of pairs, {pairs} together", listed)
    return sections
