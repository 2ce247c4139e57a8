"""Configuration of an embedding model: pooling, normalization and prompts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mirlo_llm.generate.checkpoints.architectures import longest_text
from mirlo_llm.generate.checkpoints.encoder_options import ENCODERS, read_encoder_options
from mirlo_llm.generate.checkpoints.safetensors import CHECKPOINTS, read_checkpoint
from mirlo_llm.generate.config import PLAIN, model_file, model_type_of, plain_config
from mirlo_llm.generate.embedding.pooling import POOLINGS
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile, is_gguf, read_gguf
from mirlo_llm.generate.gguf.embedding import encoder_keys, is_embedding_file, is_encoder_file, read_pooling
from mirlo_llm.generate.gguf.keys import decoder_keys
from mirlo_llm.generate.json_file import JsonObject, read_json, read_json_value

MODULES = "modules.json"
"""The file of sentence-transformers that lists the modules of a model."""
PROMPTS = "config_sentence_transformers.json"
LENGTH = "sentence_bert_config.json"
MAX_MODULES = 16
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True)
class DenseStep:
    """A linear layer after the pooling."""

    weight: np.ndarray
    bias: np.ndarray | None
    function: str

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        product = rows @ self.weight.T
        result: np.ndarray = _FUNCTIONS[self.function](product if self.bias is None else product + self.bias)
        return result


@dataclass(frozen=True)
class EmbeddingConfig:
    """An embedding model in a folder or a GGUF file."""

    folder: Path
    model: Path
    """The ONNX file, or that of the weights."""
    source: Path
    """The file that names the architecture, for messages."""
    kind: str
    """The architecture: "bert", "qwen3"."""
    is_encoder: bool
    poolings: tuple[str, ...]
    """The poolings of token rows to one row; the results of several are concatenated."""
    longest: int
    """Maximum number of tokens of a text; 0 if unknown."""
    vocabulary: int
    """Number of tokens."""
    is_normalized: bool = True
    dense: tuple[DenseStep, ...] = ()
    prompts: dict[str, str] = field(default_factory=dict)
    """Prefixes of texts, by names such as "query"."""
    default_prompt: str | None = None
    gguf: GgufFile | None = field(default=None, repr=False, compare=False)
    """The file of the weights, if it is a GGUF file."""

    @property
    def is_checkpoint(self) -> bool:
        """Return whether the model's file has weights but no graph."""
        return self.gguf is not None or self.model.name in CHECKPOINTS


def is_embedding_model(path: Path) -> bool:
    """Return whether a folder or a GGUF file has a model of embeddings or scores of texts."""
    if is_gguf(path):
        return is_embedding_file(read_gguf(path))
    return (path / MODULES).exists() or model_type_of(path) in ENCODERS


def read_embedding_config(path: Path, pooling: str | None, is_normalized: bool | None) -> EmbeddingConfig:
    """Read the configuration of a folder or a GGUF file; `pooling` and `is_normalized` override it."""
    if pooling is not None and pooling not in POOLINGS:
        raise ModelFolderError(f"pooling: expected one of {', '.join(POOLINGS)}, found {pooling!a:.40}")
    return (_read_gguf if is_gguf(path) else _read_folder)(path, pooling, is_normalized)


def _read_gguf(path: Path, pooling: str | None, is_normalized: bool | None) -> EmbeddingConfig:
    file = read_gguf(path)
    is_encoder = is_encoder_file(file)
    keys = encoder_keys(file) if is_encoder else decoder_keys(file)
    stated = read_pooling(file)
    if pooling is None and stated is None and not is_encoder:
        what = "the file does not say how the rows of tokens become one"
        raise ModelFolderError(f"{path}: {what}: give a pooling, such as 'lasttoken'")
    longest = read_encoder_options(keys).longest if is_encoder else longest_text(keys)
    return EmbeddingConfig(
        path.parent, path, path, keys.text("model_type"), is_encoder, (pooling or stated or "mean",), longest,
        keys.count("vocab_size", least=1), True if is_normalized is None else is_normalized, gguf=file,
    )  # fmt: skip


def _read_folder(folder: Path, pooling: str | None, is_normalized: bool | None) -> EmbeddingConfig:
    root = plain_config(folder, "an embedding model")
    kind = root.text("model_type")
    is_encoder = kind in ENCODERS
    longest = read_encoder_options(root).longest if is_encoder else longest_text(root)
    steps = _read_modules(folder) if (folder / MODULES).exists() else []
    poolings, dense, normalizes = _read_steps(folder, steps)
    if not steps and not is_encoder and pooling is None:
        what = f"{MODULES} is not there, which says how the tokens of '{kind}' become one row"
        raise ModelFolderError(f"{folder}: {what}: give a pooling, such as 'lasttoken'")
    if (folder / LENGTH).exists():
        stated = read_json(folder / LENGTH).count("max_seq_length", longest, least=1 if longest else 0)
        longest = min(stated, longest) if longest else stated
    prompts = read_json(folder / PROMPTS) if (folder / PROMPTS).exists() else JsonObject(folder / PROMPTS, "", {})
    texts = prompts.object("prompts")
    return EmbeddingConfig(
        folder, model_file(folder), root.path, kind, is_encoder, (pooling,) if pooling else poolings or ("mean",),
        longest, root.count("vocab_size", least=1),
        (normalizes or not steps) if is_normalized is None else is_normalized, dense,
        {name: texts.text(name) for name in texts},
        prompts.text("default_prompt_name") if prompts.has("default_prompt_name") else None,
    )  # fmt: skip


def _read_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the kinds of the modules of a model, and their folders."""
    path = folder / MODULES
    listed = read_json_value(path)
    if not isinstance(listed, list) or len(listed) > MAX_MODULES:
        raise ModelFolderError(f"{path}: expected a list of up to {MAX_MODULES} modules")
    result = []
    for i, each in enumerate(listed):
        module = JsonObject(path, str(i), each)
        place = module.text("path", "")
        if place and (not re.fullmatch(r"[\w+@-][\w.+@-]*", place) or not (folder / place).is_dir()):
            if module.text("type").endswith("Normalize"):  # has no file
                place = ""
            else:
                raise module.fail("path", "the name of a folder in this one", place)
        result.append((module.text("type").rpartition(".")[2], folder / place))
    return result


def _read_steps(folder: Path, steps: list[tuple[str, Path]]) -> tuple[tuple[str, ...], tuple[DenseStep, ...], bool]:
    """Return the poolings of a model, the linear layers after them, and whether results are normalized."""
    poolings, dense, normalizes = tuple[str, ...](), list[DenseStep](), False
    for kind, place in steps:
        if kind == "Pooling":
            poolings = _read_pooling(place / PLAIN)
        elif kind == "Dense":
            dense.append(_read_dense(place))
        elif kind == "Normalize":
            normalizes = True
        elif kind != "Transformer":
            what = f"steps of kind {kind!a:.40} are not supported: Transformer, Pooling, Dense, Normalize are"
            raise ModelFolderError(f"{folder / MODULES}: {what}")
    return poolings, tuple(dense), normalizes


def _read_pooling(path: Path) -> tuple[str, ...]:
    config = read_json(path)
    if not config.flag("include_prompt", True):
        raise config.refuse("include_prompt", "only true is supported: the tokens of a prompt count as those of a text")
    if config.has("pooling_mode"):
        named = config.value("pooling_mode")
        poolings = tuple(str(each) for each in (named if isinstance(named, list) else [named]))
    else:
        poolings = tuple(name for key, name in _POOLING_KEYS.items() if config.flag(key, False))
    if not poolings or not set(poolings) <= set(POOLINGS):
        raise config.refuse(
            "pooling_mode", f"expected some of {', '.join(POOLINGS)}, found {', '.join(poolings)!a:.80}"
        )
    return poolings


def _read_dense(place: Path) -> DenseStep:
    config, file = read_json(place / PLAIN), place / CHECKPOINTS[1]
    if not file.exists():
        raise ModelFolderError(f"{place}: there is no {file.name}: save the model with safetensors")
    rows, columns = (config.count(key, least=1, most=1 << 20) for key in ("out_features", "in_features"))
    function = config.text("activation_function", "Identity").rpartition(".")[2]
    if function not in _FUNCTIONS:
        raise config.refuse("activation_function", f"expected one of {', '.join(_FUNCTIONS)}, found {function!a:.40}")
    tensors = read_checkpoint(file)
    shapes = {"linear.weight": (rows, columns)} | ({"linear.bias": (rows,)} if config.flag("bias", True) else {})
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            raise ModelFolderError(f"{file}: expected a tensor '{name}' of {list(shape)}")
    weight, bias = (
        tensors[name].astype(np.float32) if name in shapes else None for name in ("linear.weight", "linear.bias")
    )
    assert weight is not None
    return DenseStep(weight, bias, function)
