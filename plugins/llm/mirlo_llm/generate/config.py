"""Configuration of a language model for generation: files, names of inputs and outputs, special tokens."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from mirlo_llm.caches.paged_inputs import MAX_ROWS
from mirlo_llm.generate.checkpoints.architectures import longest_text, positions
from mirlo_llm.generate.checkpoints.image_options import ImageOptions, read_image_options, text_config
from mirlo_llm.generate.checkpoints.safetensors import CHECKPOINTS
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile, is_gguf, read_gguf
from mirlo_llm.generate.gguf.keys import decoder_keys, end_tokens, special_token
from mirlo_llm.generate.gguf.projector_keys import read_projector_options
from mirlo_llm.generate.json_file import JsonObject, read_json
from mirlo_llm.generate.path_errors import no_folder
from mirlo_llm.generate.search import SearchOptions, read_search

MAX_LAYERS = 4096
TABLES = {"cumulative_sequence_lengths": "ends", "past_sequence_lengths": "past", "block_table": "table"}
"""Roles in paged attention of the inputs for paged caches, by key of the configuration."""
GENAI, PLAIN = "genai_config.json", "config.json"
GENERATION = "generation_config.json"
MODEL_FILES = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "model_q4.onnx")
"""Names of the model file in folders of plain exports, in order of preference; also searched in `onnx/`."""


@dataclass(frozen=True)
class ModelConfig:
    """A language model in a folder."""

    folder: Path
    model: Path
    """The ONNX file, or that of the weights."""
    source: Path
    """The file that this configuration was read from, for messages."""
    kind: str
    """The architecture: "llama", "qwen3"."""
    names: NodeNames
    ends: tuple[int, ...]
    """The tokens that end a sequence."""
    start: int | None
    pad: int
    context: int
    """Maximum number of tokens of a sequence; 0 if unknown."""
    vocabulary: int
    """Size of the vocabulary; 0 if unknown."""
    search: SearchOptions
    page_rows: int | None = None
    """Tokens of a page of paged caches; None for the model's own size."""
    page_count: int | None = None
    """Maximum number of pages; None without a limit."""
    gguf: GgufFile | None = field(default=None, repr=False, compare=False)
    """The content of the model file, if that is a GGUF file."""
    images: ImageOptions | None = None
    """The image options; None if the model takes no images."""
    projector: GgufFile | None = field(default=None, repr=False, compare=False)
    """The content of the image encoder's file, if that is a GGUF file."""

    @property
    def is_checkpoint(self) -> bool:
        """Return whether the model's file has weights but no graph."""
        return self.gguf is not None or self.model.name in CHECKPOINTS


@dataclass(frozen=True)
class NodeNames:
    """The names of a model's inputs and outputs."""

    tokens: str = "input_ids"
    mask: str = "attention_mask"
    positions: str = "position_ids"
    past_length: str = "past_sequence_length"
    total_length: str = "total_sequence_length"
    logits: str = "logits"
    caches: dict[str, str] | None = None
    """The outputs with the next values of caches, by input; None for the names that exporters use."""
    states: dict[str, str] | None = None
    """The same for states of a fixed size; None for the names that exporters use."""
    logits_rows: str = "logits_indices"
    """The input that selects the packed tokens with logits."""
    tables: dict[str, str] | None = None
    """Inputs that address the rows of sequences, by key of the configuration."""
    pads_left: bool = False
    """Whether the prompts of a batch are padded on the left; otherwise on the right."""


def read_config(folder: str | Path, projector: str | Path | None = None) -> ModelConfig:
    """Read the configuration of a folder, of onnxruntime-genai's builder or of a plain export, or of a GGUF file.

    `projector` is a file with the encoder of images for the latter.
    """
    path = Path(folder)
    if is_gguf(path):
        return _read_gguf(path, None if projector is None else read_gguf(Path(projector)))
    if projector is not None:
        raise ModelFolderError(f"{path}: 'mmproj' is for GGUF files: folders have their encoders of images with them")
    if not path.is_dir():
        raise no_folder(path, "a language model, or a GGUF file")
    if (path / GENAI).exists():
        return _read_genai(path)
    if (path / PLAIN).exists():
        return _read_plain(path)
    raise ModelFolderError(f"{path}: neither {GENAI} nor {PLAIN} is there: is this the folder of a language model?")


def _read_genai(folder: Path) -> ModelConfig:
    path = folder / GENAI
    root = read_json(path)
    model = root.object("model")
    for key in ("encoder", "vision", "speech", "embedding", "encoder_decoder_init"):
        if model.has(key):
            raise model.refuse(key, "only models with a decoder alone are supported")
    decoder = model.object("decoder")
    if decoder.has("pipeline"):
        raise decoder.refuse("pipeline", "decoders in several files are not supported: export the model as one file")
    if decoder.has("sliding_window"):
        _require_own_windows(decoder.object("sliding_window"))
    batching = root.object("engine").object("dynamic_batching")
    ends = model.tokens("eos_token_id")
    return ModelConfig(
        folder, _inside(folder, decoder, "filename", "model.onnx"), path, model.text("type", "unknown"),
        _node_names(decoder), ends, _first(model.tokens("bos_token_id")), _first(model.tokens("pad_token_id"), ends),
        model.count("context_length", 0), model.count("vocab_size", 0), read_search(root.object("search")),
        batching.count("block_size", least=1, most=MAX_ROWS) if batching.has("block_size") else None,
        batching.count("num_blocks", least=1) if batching.has("num_blocks") else None,
    )  # fmt: skip


def _node_names(decoder: JsonObject) -> NodeNames:
    """Read the names of the model's inputs and outputs."""
    layers = decoder.count("num_hidden_layers", least=1, most=MAX_LAYERS)
    inputs, outputs = decoder.object("inputs"), decoder.object("outputs")

    def pairs(kinds: tuple[str, ...], suffix: str = "") -> dict[str, str]:
        result: dict[str, str] = {}
        for kind in kinds:
            before = _pattern(inputs, f"past_{kind}_names", f"past_key_values.%d.{kind}{suffix}")
            after = _pattern(outputs, f"present_{kind}_names", f"present.%d.{kind}{suffix}")
            result |= {before.replace("%d", str(i)): after.replace("%d", str(i)) for i in range(layers)}
        return result

    default = NodeNames()
    return NodeNames(
        tokens=inputs.text("input_ids", default.tokens),
        mask=inputs.text("attention_mask", default.mask),
        positions=inputs.text("position_ids", default.positions),
        past_length=inputs.text("past_sequence_length", default.past_length),
        total_length=inputs.text("total_sequence_length", default.total_length),
        logits=outputs.text("logits", default.logits),
        logits_rows=inputs.text("logits_indices", default.logits_rows),
        tables={key: inputs.text(key) for key in TABLES if inputs.has(key)},
        caches=pairs(("key", "value")),
        states=pairs(("conv", "recurrent"), "_state"),
    )


def _require_own_windows(text: JsonObject) -> None:
    """Raise an error for models with windows of inputs or caches that the caller must slide."""
    for key in ("slide_inputs", "slide_key_value_cache"):
        if text.flag(key, True):
            what = "windows that the caller moves are not supported: export attentions with 'local_window_size'"
            raise text.refuse(key, what)


def _read_plain(folder: Path) -> ModelConfig:
    path = folder / PLAIN
    root = read_json(path)
    if root.flag("is_encoder_decoder", False):
        what = "only models with a decoder alone are supported: T5 and BART are loaded by generate.load_seq2seq"
        raise root.refuse("is_encoder_decoder", what)
    # Models of text and images keep what belongs to their decoder apart.
    text = text_config(root)
    defaults = read_generation(root)
    ends = defaults.tokens("eos_token_id") or root.tokens("eos_token_id")
    model = model_file(folder)
    context = longest_text(text) if model.name in CHECKPOINTS else positions(text)
    # The text of a checkpoint is padded after its tokens, that of an export before them.
    names = NodeNames(pads_left=model.name not in CHECKPOINTS)
    return ModelConfig(
        folder, model, path, root.text("model_type", "unknown"), names, ends,
        _first(defaults.tokens("bos_token_id"), root.tokens("bos_token_id")),
        _first(defaults.tokens("pad_token_id"), root.tokens("pad_token_id"), ends),
        context, text.count("vocab_size", 0), read_search(defaults),
        images=read_image_options(root) if model.name in CHECKPOINTS else None,
    )  # fmt: skip


def read_generation(root: JsonObject) -> JsonObject:
    """Read the generation configuration beside that of a model; return an empty one if it is missing."""
    path = root.path.parent / GENERATION
    return read_json(path) if path.exists() else JsonObject(path, "", {})


def _read_gguf(path: Path, projector: GgufFile | None) -> ModelConfig:
    file = read_gguf(path)
    keys = decoder_keys(file)
    images = None if projector is None else read_projector_options(file, keys, projector)
    ends, start, pad = end_tokens(file), special_token(file, "bos"), special_token(file, "padding")
    return ModelConfig(
        path.parent, path, path, keys.text("model_type"), NodeNames(), ends, start, pad or 0,
        longest_text(keys), keys.count("vocab_size"), SearchOptions(), gguf=file, images=images,
        projector=projector,
    )  # fmt: skip


def require_folder(folder: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a model folder, or raise an error; `what` is the kind of model in the error."""
    path = Path(folder)
    if not path.is_dir():
        if is_gguf(path):
            raise ModelFolderError(
                f"{path}: a GGUF file is read as a language model or an embedding model: pass the folder of {what}"
            )
        raise no_folder(path, what)
    return path


def plain_config(folder: Path, what: str) -> JsonObject:
    """Return the configuration of a folder; `what` is the kind of model in errors."""
    path = folder / PLAIN
    if not path.is_file():
        raise ModelFolderError(f"{folder}: there is no {PLAIN}: is this the folder of {what}?")
    return read_json(path)


def model_type_of(folder: Path) -> object:
    """Return the architecture that the configuration of a folder names; None if there is none."""
    path = folder / PLAIN
    return read_json(path).value("model_type") if path.is_file() else None


def weights_file(folder: Path) -> Path:
    """Return the file of a folder with the weights, or with an index of them."""
    path = next((folder / name for name in CHECKPOINTS if (folder / name).exists()), None)
    if path is None:
        raise ModelFolderError(f"{folder}: expected {' or '.join(CHECKPOINTS)}, found none")
    return path


def model_file(folder: Path) -> Path:
    """Return the model file of a folder: an ONNX file, or one of weights."""
    places = [place / name for place in (folder, folder / "onnx") for name in MODEL_FILES]
    places += [folder / name for name in CHECKPOINTS]
    result = next((path for path in places if path.exists()), None)
    if result is None:
        others = sorted(folder.glob("*.onnx"))
        if len(others) == 1:
            return others[0]
        raise ModelFolderError(f"{folder}: expected one of {', '.join((*MODEL_FILES, *CHECKPOINTS))}, found none")
    return result


def _inside(folder: Path, settings: JsonObject, key: str, default: str) -> Path:
    """Return a file of the folder by name; raise an error for a path outside of the folder."""
    name = settings.text(key, default)
    if not re.fullmatch(r"[\w.+@-][\w .+@/-]*", name) or ".." in Path(name).parts:
        raise settings.fail(key, "the name of a file in the folder", name)
    path = folder / name
    if not path.is_file():
        raise settings.refuse(key, f"there is no file {path}")
    return path


def _pattern(settings: JsonObject, key: str, default: str) -> str:
    """Return a pattern of cache names with one %d for the layer."""
    pattern = settings.text(key, default)
    if pattern.count("%d") != 1 or pattern.count("%") != 1:
        raise settings.fail(key, "names with one %d", pattern)
    return pattern


def _first(*candidates: tuple[int, ...]) -> int:
    """Return the first token of the first nonempty list; 0 if all are empty."""
    return next((tokens[0] for tokens in candidates if tokens), 0)
