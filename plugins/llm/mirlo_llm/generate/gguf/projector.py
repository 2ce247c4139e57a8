"""The encoder of images in a GGUF file (`mmproj`) as a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from mirlo.extend.frontend import ImportedModule
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.graph import CheckpointWeights
from mirlo_llm.generate.checkpoints.image_encoder import build_image_encoder
from mirlo_llm.generate.checkpoints.image_options import ImageOptions
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile
from mirlo_llm.generate.gguf.projector_keys import PATCHES, are_products_swapped

_SQUARES = {
    "vision_tower.embeddings.class_embedding": "v.class_embd",
    "vision_tower.embeddings.patch_embedding.weight": "v.patch_embd.weight",
    "vision_tower.embeddings.patch_embedding.bias": "v.patch_embd.bias",
    "vision_tower.embeddings.position_embedding.weight": "v.position_embd.weight",
    "multi_modal_projector.mm_soft_emb_norm.weight": "mm.soft_emb_norm.weight",
    "multi_modal_projector.mm_input_projection_weight": "mm.input_projection.weight",
    "visual.patch_embed.proj.weight": "v.patch_embd.weight",
}
"""Tensor names of files, by those of folders."""
_PARTS = {
    "vision_tower.pre_layrnorm": "v.pre_ln", "vision_tower.post_layernorm": "v.post_ln",
    "multi_modal_projector.linear_1": "mm.0", "multi_modal_projector.linear_2": "mm.2",
    "visual.merger.ln_q": "v.post_ln", "visual.merger.mlp.0": "mm.0", "visual.merger.mlp.2": "mm.2",
}  # fmt: skip
_LAYERS = {
    "layer_norm1": "ln1", "layer_norm2": "ln2", "norm1": "ln1", "norm2": "ln2", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
    "attn.q": "attn_q", "attn.k": "attn_k", "attn.v": "attn_v", "attn.qkv": "attn_qkv", "attn.proj": "attn_out",
    "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_SWAPPED = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}


def import_gguf_image_encoder(options: ImageOptions, file: GgufFile) -> ImportedModule:
    """Return the graph from the pixels of an image to its rows in a text."""
    tensors: dict[str, np.ndarray | BlockWeights] = {
        name: tensor.kind.read(tensor.data, tensor.shape) for name, tensor in file.tensors.items()
    }
    if options.grid is not None:
        tensors = _with_joined_patches(file, tensors)
    layers = options.tower.layers
    unused = tuple(f"v.blk.{i}." for i in range(layers, layers + 64))
    if options.tower.is_clip:
        unused = (*unused, "v.post_ln.")
    names = _FileNames(are_products_swapped(file))
    return build_image_encoder(options, CheckpointWeights(file.metadata.path, tensors, names, unused))


class _FileNames:
    """Maps tensor names of folders to those of a file."""

    def __init__(self, are_products_swapped: bool) -> None:
        self._swapped = _SWAPPED if are_products_swapped else {}

    def __call__(self, name: str) -> str:
        if name in _SQUARES:
            return _SQUARES[name]
        base, _, part = name.rpartition(".")
        layer = re.fullmatch(r"(?:vision_tower\.encoder\.layers|visual\.blocks)\.(\d+)\.(.+)", base)
        if layer is None:
            return f"{_PARTS[base]}.{part}"
        place = _LAYERS[layer[2]]
        return f"v.blk.{layer[1]}.{self._swapped.get(place, place)}.{part}"


def _with_joined_patches(
    file: GgufFile, tensors: Mapping[str, np.ndarray | BlockWeights]
) -> dict[str, np.ndarray | BlockWeights]:
    """Return tensors with the patch embeddings of all frames joined."""
    kernels = [tensors[name] for name in PATCHES if name in tensors]
    first = kernels[0] if kernels else None
    for name, kernel in zip(PATCHES, kernels, strict=False):
        if not isinstance(kernel, np.ndarray) or kernel.ndim != 4 or first is None or kernel.shape != first.shape:
            what = f"expected 4 dims of plain elements, alike for each picture, found {list(kernel.shape)}"
            raise ModelFolderError(f"{file.metadata.path}: tensor '{name}': {what}")
    others = {name: tensor for name, tensor in tensors.items() if name not in PATCHES}
    if not kernels:
        return others
    return {**others, PATCHES[0]: np.stack([np.asarray(kernel) for kernel in kernels], 2)}
