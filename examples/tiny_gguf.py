"""A GGUF file with a tiny language model, as converters for llama.cpp write them, and text from it.

    python examples/tiny_gguf.py [FILE] [--type Q4_0]

The model is that of `tiny_language_model.py`, with the same random weights, tokenizer and chat template: what it writes
means nothing. The file is written by the package `gguf`: `pip install gguf`.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")
"""Types that the package `gguf` can quantize to."""


def model_tensors(config: dict[str, int], graph: Any) -> dict[str, np.ndarray]:
    """Return the weights under the names of GGUF files."""
    arrays = {each.name.removesuffix(".weight"): numpy_helper.to_array(each) for each in graph.initializer}
    tensors = {"token_embd": arrays["embedding"], "output_norm": arrays["norm"], "output": arrays["head"].T}
    for i in range(config["layers"]):
        for name, place in (("norm", "attn_norm"), ("norm2", "ffn_norm")):
            tensors[f"blk.{i}.{place}"] = arrays[f"{i}.{name}"]
        for name, place in {
            "v": "attn_v",
            "o": "attn_output",
            **{k: f"ffn_{k}" for k in ("gate", "up", "down")},
        }.items():
            tensors[f"blk.{i}.{place}"] = arrays[f"{i}.{name}"].T
        for name, heads in (("q", config["heads"]), ("k", config["kv_heads"])):
            # Files of the architecture llama have the two elements that are rotated together side by side.
            halves = arrays[f"{i}.{name}"].T.reshape(heads, 2, config["size"] // 2, -1)
            tensors[f"blk.{i}.attn_{name}"] = halves.swapaxes(1, 2).reshape(heads * config["size"], -1)
    return {f"{name}.weight": np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}


def add_tokenizer(writer: Any, folder: Path) -> None:
    """Add the tokenizer and the chat template of a folder."""
    import gguf

    about = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    vocabulary = about["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    control = {each["content"] for each in about["added_tokens"]}
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.CONTROL if token in control else kinds.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in about["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(template)


def write(path: str | Path, kind: str = "Q4_0", model: dict[str, Any] | None = None) -> Path:
    """Write the file, with matrices of a type; `model` are the names of `tiny_language_model.py`, with other sizes."""
    import gguf

    tiny = model or runpy.run_path(str(Path(__file__).with_name("tiny_language_model.py")))
    config, chosen = tiny["CONFIG"], gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["context"])
    writer.add_embedding_length(config["hidden"])
    writer.add_block_count(config["layers"])
    writer.add_feed_forward_length(config["inner"])
    writer.add_head_count(config["heads"])
    writer.add_head_count_kv(config["kv_heads"])
    writer.add_key_length(config["size"])
    writer.add_value_length(config["size"])
    writer.add_rope_dimension_count(config["size"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = tiny["write_tokenizer"](Path(folder))
        add_tokenizer(writer, Path(folder))
    for name, array in model_tensors(config, tiny["TinyModel"](vocabulary, 0, 0).build().graph).items():
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def main() -> None:
    from mirlo import generate

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help="where to write it (default: a temporary file)")
    parser.add_argument("--type", default="Q4_0", choices=TYPES, help="of the matrices (default: Q4_0)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        model = generate.load(write(arguments.file or Path(temporary) / "model.gguf", arguments.type))
        generator = model.generator(max_new_tokens=40)
        for text in generator.stream("the quick brown fox"):
            print(text, end="", flush=True)
        print(f"\n{generator.timing}")


if __name__ == "__main__":
    main()
