"""A tiny encoder with random weights in a folder, as sentence-transformers writes it: what it says means nothing.

python examples/tiny_encoder.py [FOLDER]
python examples/tiny_encoder.py reranker --labels 1
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "blackbird",
    "sings",
    "in",
    "the",
    "old",
    "tree",
    "query",
    ":",
    "rain",
]
CONFIG = {
    "vocab_size": 32, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 24, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip
PRODUCTS = {
    "attention.self.query": ("hidden", "hidden"), "attention.self.key": ("hidden", "hidden"),
    "attention.self.value": ("hidden", "hidden"), "attention.output.dense": ("hidden", "hidden"),
    "intermediate.dense": ("inner", "hidden"), "output.dense": ("hidden", "inner"),
}  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of words, which marks the start and the end of a text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def shapes_of(labels: int, norm: tuple[str, str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of BERT's files; `norm` is what they call the weights of norms."""
    sizes = {"hidden": int(CONFIG["hidden_size"]), "inner": int(CONFIG["intermediate_size"])}
    hidden = sizes["hidden"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (int(CONFIG["vocab_size"]), hidden),
        "embeddings.position_embeddings.weight": (int(CONFIG["max_position_embeddings"]), hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "pooler.dense.weight": (hidden, hidden), "pooler.dense.bias": (hidden,),
    }  # fmt: skip
    layers = [f"encoder.layer.{i}" for i in range(int(CONFIG["num_hidden_layers"]))]
    norms = ["embeddings", *(f"{layer}.{name}" for layer in layers for name in ("attention.output", "output"))]
    shapes |= {f"{name}.LayerNorm.{each}": (hidden,) for name in norms for each in norm}
    for layer in layers:
        for name, (rows, columns) in PRODUCTS.items():
            shapes |= {
                f"{layer}.{name}.weight": (sizes[rows], sizes[columns]), f"{layer}.{name}.bias": (sizes[rows],)
            }  # fmt: skip
    if labels:
        shapes |= {"classifier.weight": (labels, hidden), "classifier.bias": (labels,)}
    return shapes


def write_weights(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors of f32 as safetensors."""
    header, data = {}, b""
    for name, array in tensors.items():
        content = array.astype("<f4").tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(
    folder: Path, labels: int = 0, prefix: str = "", norm: tuple[str, str] = ("weight", "bias"),
    more: Mapping[str, np.ndarray] | None = None,
) -> Path:  # fmt: skip
    """Write an encoder, or with labels a reranker, which gives this many scores."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    tensors = {prefix + name: random.standard_normal(shape) for name, shape in shapes_of(labels, norm).items()}
    write_weights(folder / "model.safetensors", {**tensors, **(more or {})})
    config = {"model_type": "bert", "type_vocab_size": 2, **CONFIG}
    if labels:
        config |= {"architectures": ["BertForSequenceClassification"], "num_labels": labels}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder)
    return folder


def write_with_steps(folder: Path) -> None:
    """Write an encoder with the files that say how rows of tokens become one, and what queries begin with."""
    write(folder)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}', encoding="utf-8")
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": ""}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    prompts = {"prompts": {"query": "query: ", "document": ""}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")


def main() -> None:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("encoder"))
    parser.add_argument("--labels", type=int, default=0, help="scores of a pair of texts: 1 for a reranker")
    arguments = parser.parse_args()
    if arguments.labels:
        write(arguments.folder, arguments.labels)
    else:
        write_with_steps(arguments.folder)


if __name__ == "__main__":
    main()
