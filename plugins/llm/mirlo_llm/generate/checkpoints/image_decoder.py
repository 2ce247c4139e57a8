"""A decoder of text whose image tokens are replaced by rows of an image encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, concat, maximum, minimum, where
from mirlo.extend.frontend import dims as D
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, LayerOptions
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.decoder import DecoderGraph, TokenPlaces, import_decoder, read_decoder
from mirlo_llm.generate.checkpoints.graph import BATCH, LENGTH, CheckpointWeights
from mirlo_llm.generate.checkpoints.image_grid import STREAM_COUNT
from mirlo_llm.generate.checkpoints.image_options import ROWS, SPANS, STREAMS, ImageOptions, read_image_options
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json


def import_image_decoder(weights: Path, config: Path, adapted: Sequence[str] = ()) -> ImportedModule:
    """Return the graph of a decoder of text and images; adapters change the layers `adapted`."""
    images = read_image_options(read_json(config))
    if images is None:
        raise ModelFolderError(f"{config}: the model takes no images")
    return build_image_decoder(*read_decoder(weights, config), images, adapted)


def build_image_decoder(
    options: DecoderOptions, weights: CheckpointWeights, images: ImageOptions, adapted: Sequence[str] = ()
) -> ImportedModule:
    """Return the graph of a decoder of text and images, with these weights; adapters change the layers `adapted`."""
    inputs = {ROWS: TensorType.of((D.symbol("image_rows"), images.hidden), "f32")}
    if images.is_seen_whole:
        options = replace(options, is_causal=False)
        inputs[SPANS] = TensorType.of((BATCH, LENGTH, 2), "i64")
    sections = () if images.grid is None else images.grid.sections
    if sections:
        inputs[STREAMS] = TensorType.of((BATCH, LENGTH, STREAM_COUNT), "i64")
    make_graph = partial(ImageDecoderGraph, names=list(inputs), sections=sections)
    return import_decoder(options, weights, inputs, make_graph, adapted)


class ImageDecoderGraph(DecoderGraph):
    """The graph of a decoder of text and images."""

    def __init__(
        self,
        builder: GraphBuilder,
        options: DecoderOptions,
        weights: CheckpointWeights,
        states: Sequence[Tensor],
        names: Sequence[str],
        sections: tuple[int, ...],
    ) -> None:
        """Store the inputs; `names` are the names of `states`, `sections` the rotated pairs per position axis."""
        super().__init__(builder, options, weights, states)
        self._states, self._sections = dict(zip(names, states, strict=True)), sections

    def embedded(self, table: np.ndarray | BlockWeights, tokens: Tensor) -> Tensor:
        """Return the rows of tokens and images."""
        first = self.options.vocabulary
        text = super().embedded(table, minimum(tokens, first - 1))
        images = self._states[ROWS].gather(maximum(tokens - first, 0))
        return where((tokens >= first).expand_dims(2), images, text)

    def mask(self, layer: LayerOptions, places: TokenPlaces) -> Tensor:
        """Return the additive attention mask; a token also sees all tokens of its image."""
        key = layer.window, layer.chunk
        if SPANS in self._states and key not in self._masks:
            first, last = (self._states[SPANS].slice(2, i, 1).reshape((BATCH, 1, LENGTH, 1)) for i in (0, 1))
            of_image = (places.keys >= first) & (places.keys <= last)
            self._masks[key] = places.mask(layer, of_image)
        return super().mask(layer, places)

    def angles(self, frequencies: np.ndarray, places: TokenPlaces) -> Tensor:
        """Return the rotation angles of new tokens, by time, row and column for tokens of images."""
        if not self._sections:
            return super().angles(frequencies, places)
        parts = np.split(frequencies, np.cumsum(self._sections)[:-1])
        positions = self._states[STREAMS].cast("f32")
        angles = (positions.slice(2, i, 1) * self.builder.constant(part, "f32") for i, part in enumerate(parts))
        return concat(list(angles), 2).expand_dims(1)
