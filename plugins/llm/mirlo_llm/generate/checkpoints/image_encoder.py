"""Graphs of image encoders, CLIP and SigLIP, with the projector to the text model."""

from __future__ import annotations

from pathlib import Path

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, concat
from mirlo.extend.library import join_heads, layer_norm, rms_norm, split_heads
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph, CheckpointWeights, import_graph
from mirlo_llm.generate.checkpoints.image_options import (
    IMAGE_ROWS,
    PIXELS,
    ImageOptions,
    read_image_options,
    split_tensors,
)
from mirlo_llm.generate.checkpoints.patch_encoder import import_patch_encoder
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json

TOWER, PROJECTOR = "vision_tower", "multi_modal_projector"


def import_image_encoder(weights: Path, config: Path) -> ImportedModule:
    """Import the image encoder of a file: pixels to rows of the text model."""
    options = read_image_options(read_json(config))
    if options is None:
        raise ModelFolderError(f"{config}: the model takes no images")
    _, tensors = split_tensors(read_checkpoint(weights))
    # The heads of towers are not used, nor the layers after the states that are read.
    behind = tuple(f"{TOWER}.encoder.layers.{i}." for i in range(options.tower.layers, options.tower.layers + 64))
    ends = ("post_layernorm.",) if options.tower.is_clip else ()
    unused = (*behind, *(f"{TOWER}.{part}" for part in ("head.", "embeddings.position_ids", *ends)))
    return build_image_encoder(options, CheckpointWeights(weights, tensors, unused=unused))


def build_image_encoder(options: ImageOptions, weights: CheckpointWeights) -> ImportedModule:
    """Build the graph of an image encoder with these weights: pixels to rows of the text model."""
    if options.grid is not None:
        return import_patch_encoder(options.tower, options.grid, options.hidden, weights)
    side = options.tower.size

    def build(builder: GraphBuilder, pixels: Tensor) -> dict[str, Tensor]:
        graph = ImageEncoderGraph(builder, options, weights)
        rows = graph.projected(graph.states(pixels))
        return {IMAGE_ROWS: rows.reshape((options.count, options.hidden))}

    return import_graph(weights, {PIXELS: TensorType.of((1, 3, side, side), "f32")}, build)


class ImageEncoderGraph(CheckpointGraph):
    """The graph of an encoder of images under construction."""

    def __init__(self, builder: GraphBuilder, options: ImageOptions, weights: CheckpointWeights) -> None:
        super().__init__(builder, weights)
        self.options, self.tower = options, options.tower

    def states(self, pixels: Tensor) -> Tensor:
        """Return a row for each patch, [1, patches, hidden]; the class token comes first, if there is one."""
        tower = self.tower
        side, patch, hidden = tower.side, tower.patch, tower.hidden
        cut = pixels.part((0, 0, 0, 0), (1, 3, side * patch, side * patch))
        parts = cut.reshape((1, 3, side, patch, side, patch)).permute((0, 2, 4, 1, 3, 5))
        x = self._embedded(parts.reshape((1, side * side, 3 * patch * patch)))
        if tower.is_clip:
            whole = self.matrix(self._weights.take(f"{TOWER}.embeddings.class_embedding", hidden))
            x = concat([whole.reshape((1, 1, hidden)), x], 1)
        rows = x.shape[1]
        assert isinstance(rows, int)
        x = x + self.weight(f"{TOWER}.embeddings.position_embedding", rows, hidden)
        if tower.is_clip:
            x = self.norm(f"{TOWER}.pre_layrnorm", x)  # so it is called
        for i in range(tower.layers):
            x = self.layer(f"{TOWER}.encoder.layers.{i}", x)
        return x if tower.is_clip else self.norm(f"{TOWER}.post_layernorm", x)

    def projected(self, x: Tensor) -> Tensor:
        """Project patches to rows of the text model."""
        options, tower = self.options, self.tower
        if options.activation:
            x = x.slice(1, 1, tower.side**2) if options.drops_first else x
            inner = self.activated(self.product(f"{PROJECTOR}.linear_1", x, options.hidden), options.activation)
            return self.product(f"{PROJECTOR}.linear_2", inner, options.hidden)
        side = int(options.count**0.5)
        each = tower.side // side
        means = x.reshape((1, side, each, side, each, tower.hidden)).mean([2, 4])
        scale = self.weight(f"{PROJECTOR}.mm_soft_emb_norm", tower.hidden) + options.norm_offset
        normed = rms_norm(means.reshape((1, options.count, tower.hidden)), scale, -1, tower.epsilon)
        weights = self._weights.take(f"{PROJECTOR}.mm_input_projection_weight", tower.hidden, options.hidden)
        return normed.matmul(self.matrix(weights))

    def layer(self, name: str, x: Tensor) -> Tensor:
        """Return the result of a layer, in which all patches see each other."""
        tower = self.tower
        normed = self.norm(f"{name}.layer_norm1", x)
        parts = (self.product(f"{name}.self_attn.{part}_proj", normed, tower.hidden) for part in "qkv")
        heads = [split_heads(each, tower.heads, tower.hidden // tower.heads) for each in parts]
        attended = join_heads(self.builder.emit("attention", *heads, None))
        x = x + self.product(f"{name}.self_attn.out_proj", attended, tower.hidden)
        inner = self.product(f"{name}.mlp.fc1", self.norm(f"{name}.layer_norm2", x), tower.inner)
        return x + self.product(f"{name}.mlp.fc2", self.activated(inner, tower.activation), tower.hidden)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Apply LayerNorm."""
        scale, bias = (self.weight(name, self.tower.hidden, part=part) for part in ("weight", "bias"))
        return layer_norm(x, scale, bias, -1, self.tower.epsilon)

    def _embedded(self, patches: Tensor) -> Tensor:
        """Return the embeddings of patches; a convolution with disjoint windows is a product."""
        hidden, patch, name = self.tower.hidden, self.tower.patch, f"{TOWER}.embeddings.patch_embedding"
        kernel = self._weights.take(f"{name}.weight", hidden, 3, patch, patch)
        x = patches.matmul(self.matrix(kernel).reshape((hidden, 3 * patch * patch)), transpose_rhs=True)
        return x + self.weight(name, hidden, part="bias") if f"{name}.bias" in self._weights else x
