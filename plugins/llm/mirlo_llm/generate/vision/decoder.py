"""A decoder of text and image tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.extend.runtime import Executable, TensorSpec
from mirlo_llm.generate.adapters import AdapterFiles
from mirlo_llm.generate.checkpoints.image_options import ROWS, SPANS, STREAMS
from mirlo_llm.generate.config import ModelConfig
from mirlo_llm.generate.decoder import CompiledDecoder, Maker, typed
from mirlo_llm.generate.prefixes import PrefixCache
from mirlo_llm.generate.vision.tokens import ImageTokens


class ImageDecoder(CompiledDecoder):
    """The compiled decoder of a model of text and images."""

    def __init__(
        self, config: ModelConfig, executable: Executable, adapters: AdapterFiles | None, prefixes: PrefixCache
    ) -> None:
        assert config.images is not None  # the folder has an encoder of images
        self.images = ImageTokens(config.images.vocabulary, config.images.hidden)
        super().__init__(config, executable, adapters, prefixes)

    def is_token(self, token: int) -> bool:
        """Return whether a number is a token, of text or of an image."""
        return super().is_token(token) or token in self.images

    def call_length(self, tokens: Sequence[int], most: int) -> int:
        """Return the number of new tokens to compute in one call; images with bidirectional attention are not split."""
        return self.images.whole_images(tokens, most) if SPANS in self.inputs else super().call_length(tokens, most)

    def _known_inputs(self) -> dict[str, Callable[[TensorSpec], Maker]]:
        images = self.images
        return {
            **super()._known_inputs(),
            self.config.names.tokens: lambda spec: lambda new, state: typed(images.place(new.tokens)[0], spec),
            ROWS: lambda spec: lambda new, state: images.place(new.tokens)[1],
            STREAMS: lambda spec: lambda new, state: images.positions(new.tokens, new.before),
            SPANS: lambda spec: lambda new, state: images.spans(new.tokens, new.positions),
        }
