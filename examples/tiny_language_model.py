"""A folder with a tiny language model, as the model builder of onnxruntime-genai writes it, and text from it.

    python examples/tiny_language_model.py [FOLDER] [--bits 4] [--paged]

The model is a Llama: RMS norms, rotary embeddings, grouped-query attention with caches, a gated MLP. Its weights are
random, in f32 or in blocks of 4 bits, and its tokenizer is made of the text below, so nothing is downloaded, and what
the model writes means nothing. With `--paged` its attention is `PagedAttention`: sequences are packed, and their caches
are in pages.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONFIG = {"layers": 2, "hidden": 64, "inner": 160, "heads": 4, "kv_heads": 2, "size": 16, "context": 2048}
BLOCK = 32
PAGE = 16
"""Tokens of a page."""
TABLES = ("cumulative_sequence_lengths", "past_sequence_lengths", "block_table")
START, END, USER, MODEL = "<|start|>", "<|end|>", "<|user|>", "<|model|>"
TEXT = "the quick brown fox jumps over the lazy dog; a language model writes one token after the other. " * 4
TEMPLATE = """\
{{ bos_token }}{% for message in messages %}\
{{ '<|user|>' if message.role == 'user' else '<|model|>' }}{{ message.content }}{{ eos_token }}\
{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}"""


class TinyModel:
    """The graph of the model under construction."""

    def __init__(self, vocabulary: int, bits: int, seed: int, paged: bool = False) -> None:
        self.vocabulary, self.bits, self.paged = vocabulary, bits, paged
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def product(self, name: str, x: str, rows: int, columns: int) -> str:
        """Multiply by random weights."""
        weights = self.random.standard_normal((columns, rows)).astype(np.float32) * np.float32(1.5 / rows**0.5)
        if not self.bits:
            return self.node("MatMul", [x, self.constant(f"{name}.weight", weights.T.copy())], [f"{name}.out"])
        # A scale for each block of a column; codes of 4 bits with 8 for zero, two in a byte, the lower bits first.
        blocks = np.pad(weights, ((0, 0), (0, -rows % BLOCK))).reshape(columns, -1, BLOCK)
        scales = np.abs(blocks).max(-1) / np.float32(7)
        codes = np.clip(np.rint(blocks / scales[..., None]) + 8, 0, 15).astype(np.uint8)
        packed = codes[..., ::2] | codes[..., 1::2] << 4
        inputs = [x, self.constant(f"{name}.weight", packed), self.constant(f"{name}.scales", scales)]
        return self.node(
            "MatMulNBits", inputs, [f"{name}.out"], "com.microsoft", K=rows, N=columns, bits=4, block_size=BLOCK
        )

    def norm(self, name: str, x: str) -> str:
        weight = self.constant(f"{name}.weight", np.ones(CONFIG["hidden"], np.float32))
        return self.node("SimplifiedLayerNormalization", [x, weight], [f"{name}.out"], epsilon=1e-5, axis=-1)

    def layer(self, i: int, x: str) -> str:
        hidden, inner, size = CONFIG["hidden"], CONFIG["inner"], CONFIG["size"]
        normed, name = self.norm(f"{i}.norm", x), f"{i}"
        heads = {"q": CONFIG["heads"], "k": CONFIG["kv_heads"], "v": CONFIG["kv_heads"]}
        parts = [self.product(f"{name}.{part}", normed, hidden, count * size) for part, count in heads.items()]
        past = [f"past_key_values.{i}.{kind}" for kind in ("key", "value")]
        outputs = [f"{name}.attention", *(f"present.{i}.{kind}" for kind in ("key", "value"))]
        kind, lengths = ("PagedAttention", TABLES) if self.paged else ("GroupQueryAttention", ("seqlens_k", "total"))
        attended = self.node(
            kind, [*parts, *past, *lengths, "cos", "sin"], outputs, "com.microsoft",
            num_heads=CONFIG["heads"], kv_num_heads=CONFIG["kv_heads"], do_rotary=1,
        )  # fmt: skip
        product = self.product(f"{name}.o", attended, CONFIG["heads"] * size, hidden)
        x = self.node("Add", [x, product], [f"{name}.attended"])
        normed = self.norm(f"{name}.norm2", x)
        gate, up = (self.product(f"{name}.{part}", normed, hidden, inner) for part in ("gate", "up"))
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], [f"{name}.sigmoid"])], [f"{name}.silu"])
        product = self.product(f"{name}.down", self.node("Mul", [silu, up], [f"{name}.gated"]), inner, hidden)
        return self.node("Add", [x, product], [f"{name}.out"])

    def build(self) -> onnx.ModelProto:
        size, positions = CONFIG["size"], np.arange(CONFIG["context"])
        angles = np.outer(positions, 10000.0 ** (-np.arange(0, size, 2) / size))
        self.constant("cos", np.cos(angles).astype(np.float32)), self.constant("sin", np.sin(angles).astype(np.float32))
        if not self.paged:
            self.lengths()
        table = self.random.standard_normal((self.vocabulary, CONFIG["hidden"])).astype(np.float32)
        x = self.node("Gather", [self.constant("embedding", table), "input_ids"], ["embedded"])
        for i in range(CONFIG["layers"]):
            x = self.layer(i, x)
        logits = self.product("head", self.norm("norm", x), CONFIG["hidden"], self.vocabulary)
        self.node("Identity", [logits], ["logits"])
        return self.finish()

    def lengths(self) -> None:
        """Compute the length of each sequence and of the longest one from the mask."""
        self.constant("axis", np.array([1], np.int64)), self.constant("one", np.array(1, np.int64))
        lengths = self.node("ReduceSum", ["attention_mask", "axis"], ["lengths"], keepdims=0)
        self.node("Cast", [self.node("Sub", [lengths, "one"], ["last"])], ["seqlens_k"], to=TensorProto.INT32)
        total = self.node("Gather", [self.node("Shape", ["attention_mask"], ["sizes"]), "one"], ["longest"], axis=0)
        self.node("Cast", [total], ["total"], to=TensorProto.INT32)

    def finish(self) -> onnx.ModelProto:
        info, heads, size = helper.make_tensor_value_info, CONFIG["kv_heads"], CONFIG["size"]
        names = [f"{i}.{kind}" for i in range(CONFIG["layers"]) for kind in ("key", "value")]
        tokens: list[str] = ["tokens"] if self.paged else ["batch", "length"]
        shapes: list[list[Any]] = [["batch", heads, dim, size] for dim in ("past", "after")]
        lengths: dict[str, list[str]] = {"attention_mask": ["batch", "total"]}
        if self.paged:
            shapes = [["pages", PAGE, heads, size]] * 2
            lengths = dict(zip(TABLES, (["batch + 1"], ["batch"], ["batch", "blocks"]), strict=True))
        kind = TensorProto.INT32 if self.paged else TensorProto.INT64
        inputs = [
            info("input_ids", TensorProto.INT64, tokens),
            *(info(name, kind, shape) for name, shape in lengths.items()),
            *(info(f"past_key_values.{name}", TensorProto.FLOAT, shapes[0]) for name in names),
        ]
        outputs = [
            info("logits", TensorProto.FLOAT, [*tokens, self.vocabulary]),
            *(info(f"present.{name}", TensorProto.FLOAT, shapes[1]) for name in names),
        ]
        graph = helper.make_graph(self.nodes, "tiny", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_tokenizer(folder: Path) -> int:
    """Write a tokenizer of bytes and of some words; return the number of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[START, END, USER, MODEL], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, tokenizer.token_to_id(START))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"bos_token": START, "eos_token": END, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return int(tokenizer.get_vocab_size())


def write_config(folder: Path, vocabulary: int, paged: bool = False) -> None:
    """Write what says how to drive the model."""
    caches = {f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in ("key", "value")}
    after = {f"present_{kind}_names": f"present.%d.{kind}" for kind in ("key", "value")}
    decoder = {
        "filename": "model.onnx",
        "head_size": CONFIG["size"],
        "hidden_size": CONFIG["hidden"],
        "num_attention_heads": CONFIG["heads"],
        "num_key_value_heads": CONFIG["kv_heads"],
        "num_hidden_layers": CONFIG["layers"],
        "inputs": {name: name for name in ("input_ids", *(TABLES if paged else ("attention_mask",)))} | caches,
        "outputs": {"logits": "logits", **after},
    }
    model = {
        "type": "llama", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "vocab_size": vocabulary,
        "context_length": CONFIG["context"], "decoder": decoder,
    }  # fmt: skip
    search = {"do_sample": False, "max_length": CONFIG["context"], "num_beams": 1, "past_present_share_buffer": True}
    config = {"model": model, "search": search}
    if paged:
        config["engine"] = {"dynamic_batching": {"block_size": PAGE}}
    (folder / "genai_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def write(folder: str | Path, bits: int = 0, seed: int = 0, paged: bool = False) -> Path:
    """Write the folder: the model, its configuration, its tokenizer and its chat template."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(path)
    onnx.save(TinyModel(vocabulary, bits, seed, paged).build(), path / "model.onnx")
    write_config(path, vocabulary, paged)
    return path


def main() -> None:
    from mirlo import generate

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="where to write it (default: a temporary folder)")
    parser.add_argument("--bits", type=int, default=0, choices=(0, 4), help="4 for weights of 4 bits (default: f32)")
    parser.add_argument("--paged", action="store_true", help="keep caches in pages, with PagedAttention")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        model = generate.load(write(arguments.folder or temporary, arguments.bits, paged=arguments.paged))
        generator = model.generator(max_new_tokens=40)
        for text in generator.stream("the quick brown fox"):
            print(text, end="", flush=True)
        print(f"\n{generator.timing}")


if __name__ == "__main__":
    main()
