"""Quantization of folders of safetensors: by rounding, AWQ or GPTQ."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo.extend.quantize import CALIBRATED, Difference, Quantization, QuantizationError
from mirlo.extend.runtime import read_regular, write_regular
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.decoder import read_decoder
from mirlo_llm.generate.checkpoints.packed import CONFIG, gptq_keys, gptq_tensors
from mirlo_llm.generate.checkpoints.safetensors import INDEX, write_safetensors
from mirlo_llm.generate.config import PLAIN, ModelConfig, read_config
from mirlo_llm.generate.json_file import read_json
from mirlo_llm.generate.model import LanguageModel, load
from mirlo_llm.generate.perplexity import Perplexity, sum_losses
from mirlo_llm.quantize.awq import ReadRows, scale_channels
from mirlo_llm.quantize.decoder_layers import DecoderLayer, LayerRunner, decoder_layers
from mirlo_llm.quantize.gptq import quantize_gptq
from mirlo_llm.quantize.grid import QuantizedMatrix, quantize_nearest

WEIGHTS = "model.safetensors"
COPIED = (".json", ".jinja", ".txt", ".model")
"""Suffixes of files that are copied with the weights: tokenizers, templates, generation options."""
MAX_WINDOWS = 128
"""Default number of windows of a text."""
Step = Callable[[str], object]
"""Called with the name of the next step."""


@dataclass(frozen=True)
class TextErrors:
    """The effect of quantization on a model's predictions of a text."""

    before: Perplexity
    after: Perplexity
    error: float
    """The root mean square of the differences of logits, relative to that of the logits."""
    same: float
    """The share of tokens after which both models predict the same token."""

    def __str__(self) -> str:
        """Return the lines of a command's output."""
        perplexities = f"{self.before.value:.4f} before, {self.after.value:.4f} after"
        return (
            f"perplexity of {self.before.tokens} tokens: {perplexities}\n"
            f"logits: relative RMS error {self.error:.4f}, {self.same:.1%} of the most probable tokens are the same"
        )


@dataclass(frozen=True)
class CalibrationText:
    """A text that is typical of the model's input."""

    text: str
    windows: int = MAX_WINDOWS
    """Most windows that are used."""


def quantize_folder(
    source: Path, target: Path, how: Quantization, text: CalibrationText | None, threads: int, step: Step
) -> tuple[int, TextErrors | None]:
    """Quantize the decoder of a folder to a new folder; return the number of matrices, and errors on a text."""
    config = _open(source, target)
    if text is None and how.method in CALIBRATED:
        raise QuantizationError(f"method: '{how.method}' needs typical text: --calibrate TEXT.txt")
    options, weights = read_decoder(config.model, config.source)
    original = None if text is None else load(source, progress=step, threads=threads)
    windows = [] if original is None or text is None else original.text_windows(text.text)[: text.windows]
    runner = LayerRunner(options, weights, threads)
    quantizer = _DecoderQuantizer(runner, how, runner.embed(windows) if how.method in CALIBRATED else [])
    for i, layer in enumerate(decoder_layers(options, weights)):
        step(f"layer {i + 1} of {len(options.layers)}")
        quantizer.quantize(layer)
    _write(config, target, quantizer, how)
    if original is None:
        return quantizer.count, None
    changed = load(target, progress=step, threads=threads)
    return quantizer.count, compare_models(original, changed, windows)


def compare_models(before: LanguageModel, after: LanguageModel, windows: Sequence[np.ndarray]) -> TextErrors:
    """Return the losses of two models on windows of a text, and the differences of their logits."""
    losses, count, difference = np.zeros(2), 0, Difference()
    for window in windows:
        at = 1
        for expected, actual in zip(before.text_logits(window), after.text_logits(window), strict=True):
            following = window[at : at + len(actual)]
            losses += [sum_losses(expected, following), sum_losses(actual, following)]
            count, at = count + len(following), at + len(actual)
            difference.add(actual, expected)
    first, second = (Perplexity(count, float(loss) / count) for loss in losses)
    return TextErrors(first, second, difference.relative, difference.same / difference.rows)


class _DecoderQuantizer:
    """Quantizes a decoder layer by layer, and collects the tensors of the result's file."""

    def __init__(self, runner: LayerRunner, how: Quantization, states: list[np.ndarray]) -> None:
        """Start with the first layer's input for windows of a text; methods without a text need none."""
        self.runner, self._how, self._states = runner, how, states
        self.count = 0
        """How many matrices were quantized."""
        self.replaced: dict[str, dict[str, np.ndarray]] = {}
        """By the name of a tensor in the file, the tensors that take its place."""

    def quantize(self, layer: DecoderLayer) -> None:
        """Quantize the matrices of the next layer."""
        self._require_blocks(layer)
        original = dict(layer.weights)
        rows = self._read(layer) if self._states else {}
        if self._how.method == "awq":
            scale_channels(layer, self.runner.options, rows, self._how)
        matrices = {name: self._rounded(layer.weights[f"{name}.weight"], rows.get(name)) for name in layer.matrices}
        for name, matrix in matrices.items():
            self._replace_matrix(f"{name}.weight", matrix)
        for name, array in layer.weights.items():
            if array is not original[name] and name.removesuffix(".weight") not in matrices:
                key = self.runner.weights.name_in_file(name)
                self.replaced[key] = {key: layer.stored(name)}
        if self._how.method == "gptq":  # later layers make up for what this one has lost
            layer.weights |= {f"{name}.weight": matrix.values() for name, matrix in matrices.items()}
            self._states = [self.runner.run(layer, states)[0] for states in self._before]

    def _require_blocks(self, layer: DecoderLayer) -> None:
        """Raise an error if the rows of a matrix are not whole blocks."""
        for name in layer.matrices:
            depth = layer.weights[f"{name}.weight"].shape[1]
            if depth % self._how.block:
                place = f"{self.runner.weights.path}: tensor '{self.runner.weights.name_in_file(f'{name}.weight')}'"
                what = f"{depth} elements of a row are not whole blocks of {self._how.block}: choose another --block"
                raise QuantizationError(f"{place}: {what}")

    def _read(self, layer: DecoderLayer) -> dict[str, ReadRows]:
        """Return the statistics of each linear layer's input; advance the states to the next layer."""
        depths = {number: layer.weights[f"{name}.weight"].shape[1] for name, number in layer.reads.items()}
        sums = {number: ReadRows.empty(depth) for number, depth in depths.items()}
        self._before, self._states = self._states, []
        for states in self._before:
            result, read = self.runner.run(layer, states)
            self._states.append(result)
            for number, rows in sums.items():
                rows.add(read[number])
        return {name: sums[number] for name, number in layer.reads.items()}

    def _rounded(self, weights: np.ndarray, rows: ReadRows | None) -> QuantizedMatrix:
        if self._how.method == "gptq" and rows is not None:
            return quantize_gptq(weights, rows.hessian, self._how)
        return quantize_nearest(weights, self._how)

    def _replace_matrix(self, name: str, matrix: QuantizedMatrix) -> None:
        key = self.runner.weights.name_in_file(name)
        base = key.removesuffix(".weight")
        parts = gptq_tensors(matrix.codes, matrix.scales, matrix.zeros, self._how.bits)
        self.replaced[key] = {f"{base}.{part}": array for part, array in parts.items()}
        self.count += 1


def _open(source: Path, target: Path) -> ModelConfig:
    """Return the configuration of an unquantized folder; check that the target can be written."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise QuantizationError(f"{target} is there already: name a folder that is not")
    config = read_config(source)
    if not config.is_checkpoint:
        raise QuantizationError(f"{source}: the folder has an ONNX model: quantize that file, {config.model}")
    root = read_json(config.source)
    for key in ("text_config", "vision_config"):
        if root.has(key):
            raise QuantizationError(f"{config.source}: '{key}': models that read more than texts are not quantized")
    if root.has(CONFIG):
        raise QuantizationError(f"{config.source}: '{CONFIG}': the model is quantized already: use the original one")
    return config


def _write(config: ModelConfig, target: Path, quantizer: _DecoderQuantizer, how: Quantization) -> None:
    """Write a folder: tensors, configuration, and the other files of the source."""
    weights, tensors = quantizer.runner.weights, dict[str, np.ndarray]()
    for name, tensor in weights.tensors.items():
        assert not isinstance(tensor, BlockWeights)
        tensors |= quantizer.replaced.get(name, {name: tensor})
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(config.folder.iterdir()):
        if path.is_file() and path.suffix in COPIED and path.name not in (PLAIN, INDEX):
            write_regular(target / path.name, read_regular(path))
    write_safetensors(target / WEIGHTS, tensors)
    keys = read_json(config.source)
    root = {key: keys.value(key) for key in keys}
    root[CONFIG] = gptq_keys(how.bits, how.block, how.symmetric, how.method)
    write_regular(target / PLAIN, json.dumps(root, indent=2))
