"""The image encoder of a model, and prompts with images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from mirlo.extend.runtime import Executable
from mirlo_llm.generate.checkpoints.image_options import IMAGE_ROWS, ImageOptions
from mirlo_llm.generate.config import ModelConfig
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.gguf.projector_keys import preparation_keys
from mirlo_llm.generate.tokenizer import ModelTokenizer
from mirlo_llm.generate.vision.images import ImageSource, read_pixels
from mirlo_llm.generate.vision.patches import PatchProcessor, read_patch_processor
from mirlo_llm.generate.vision.processor import ImageProcessor, processor_keys, read_processor
from mirlo_llm.generate.vision.tokens import ImageTokens

MAX_IMAGES = 64
"""Most images of a prompt, since prompts come from clients."""


class ImagePrompts:
    """Encodes texts with images to tokens."""

    def __init__(
        self, config: ModelConfig, images: ImageTokens, tokenizer: ModelTokenizer, executable: Callable[[], Executable]
    ) -> None:
        """Read the tokens that stand for images; `executable` returns the compiled encoder on first use."""
        assert config.images is not None  # the folder has an encoder of images
        self._options: ImageOptions = config.images
        self._tokens, self._tokenizer, self._executable = images, tokenizer, executable
        self._folder, self._projector = config.folder, config.projector
        part = self._options.marker if self._options.token is None else self._text(self._options.token)
        self._placeholder = part if self._options.begin is None else self._text(self._options.begin)
        self._expanded, self._inserted = self._placeholder, f"{self._placeholder}\n"
        if self._options.around is not None:
            before, behind = map(self._text, self._options.around)
            self._inserted = f"{before}{self._placeholder}{behind}"
        if self._options.begin is not None and self._options.end is not None:
            self._expanded = f"\n\n{self._placeholder}{part}{self._text(self._options.end)}\n\n"

    @cached_property
    def _processor(self) -> ImageProcessor | PatchProcessor:
        options, projector = self._options, self._projector
        keys = processor_keys(self._folder) if projector is None else preparation_keys(projector, options)
        if options.grid is None:
            return read_processor(keys, options.tower.size)
        has_windows = len(options.grid.whole_layers) < options.tower.layers
        return read_patch_processor(keys, options.tower.patch, options.grid, has_windows)

    def encode(self, text: str, images: Sequence[ImageSource], special: bool) -> list[int]:
        """Return the tokens of a text with images at its placeholders, or before it if it has none."""
        if len(images) > MAX_IMAGES:
            raise GenerationError(f"a prompt has up to {MAX_IMAGES} images, found {len(images)}")
        places = text.count(self._placeholder)
        if images and not places:
            text, places = self._inserted * len(images) + text, len(images)
        if places != len(images):
            what = f"{places} places for images, written {self._placeholder}, for {len(images)} images"
            raise GenerationError(f"the text of the prompt has {what}")
        rows = [self.image_tokens(image) for image in images]
        first, *others = self._parts(text.replace(self._placeholder, self._expanded), special)
        if len(others) != len(rows):
            raise ModelFolderError(f"{self._tokenizer.path}: '{self._placeholder}' is not one token of its own")
        return [*first, *(token for each, part in zip(rows, others, strict=True) for token in (*each, *part))]

    def _parts(self, text: str, special: bool) -> list[list[int]]:
        """Split a text at the image placeholders; return the tokens of its parts."""
        part, tokenizer = self._options.token, self._tokenizer
        if part is None:
            parts = [tokenizer.encode(each, special=False) for each in text.split(self._options.marker)]
            return [tokenizer.start() + parts[0], *parts[1:]] if special else parts
        result: list[list[int]] = [[]]
        for token in tokenizer.encode(text, special=special):
            if token == part:
                result.append([])
            else:
                result[-1].append(token)
        return result

    def image_tokens(self, image: ImageSource) -> range:
        """Return the tokens of an image."""
        pixels = read_pixels(image)
        digest = hashlib.sha256(repr(pixels.shape).encode())
        digest.update(np.ascontiguousarray(pixels).data)

        def compute() -> tuple[np.ndarray, int]:
            inputs = self._processor.inputs(pixels)
            return np.array(self._executable().run(inputs.arrays)[IMAGE_ROWS]), inputs.columns

        return self._tokens.add(digest.hexdigest(), compute)

    def _text(self, token: int) -> str:
        text = self._tokenizer.text(token)
        if not text:
            raise ModelFolderError(f"{self._tokenizer.path}: there is no token {token}, which stands for images")
        return text


def take_images(messages: Sequence[Mapping[str, object]]) -> tuple[list[dict[str, object]], list[ImageSource]]:
    """Return messages with empty image parts, and the images of these parts: `{"type": "image", "image": ...}`."""
    plain, images = list[dict[str, object]](), list[ImageSource]()
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list):
            plain.append(dict(message) if isinstance(message, Mapping) else message)
            continue
        parts = list[object]()
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "image":
                images.append(_image_of(part))
                part = {"type": "image"}
            parts.append(part)
        plain.append({**message, "content": parts})
    return plain, images


def _image_of(part: Mapping[str, object]) -> ImageSource:
    image = part.get("image")
    if isinstance(image, (str, bytes, np.ndarray)) or hasattr(image, "__fspath__"):
        return image
    raise GenerationError(f"a part of type 'image' has 'image': a path, bytes or pixels, found {image!r:.60}")
