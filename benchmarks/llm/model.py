"""Decoders with random weights, as onnxruntime-genai's model builder writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder of the Llama family."""

    layers: int = 6
    hidden: int = 2048
    inner: int = 5632
    heads: int = 32
    kv_heads: int = 8
    size: int = 64
    vocabulary: int = 32000
    positions: int = 16384
    bits: int = 4
    block: int = 32
    level: int = 4
    is_symmetric: bool = True
    head_bits: int = 0
    """Bits of the last product; 0 for those of the others."""
    weights: str = "nbits"
    """How products are written: packed, "qdq" (dequantized by a node), "f32", or "bf16", which is then all types."""
    normalizes_heads: bool = False
    """Whether queries and keys are normalized by head, as in Qwen3."""
    window: int = 0
    """Tokens that every other layer sees, as in Gemma; 0 for all."""
    softcap: float = 0.0
    experts: int = 0
    """Experts of a layer, of which each token chooses `chosen`; 0 for one product that all tokens share."""
    chosen: int = 2

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return rows and columns of the products of a layer that a token multiplies with."""
        wide, narrow = self.heads * self.size, self.kv_heads * self.size
        times = self.chosen if self.experts else 1
        mlp = ((self.hidden, self.inner), (self.hidden, self.inner), (self.inner, self.hidden))
        return ((self.hidden, wide), (self.hidden, narrow), (self.hidden, narrow), (wide, self.hidden), *(mlp * times))


LLAMA = DecoderConfig()
"""The model "L": 336 million weights of 4 bits."""
TINY = DecoderConfig(layers=2, hidden=128, inner=352, heads=4, kv_heads=2, size=32, vocabulary=320, positions=128)
MODELS = {
    "tiny": TINY,
    "llama": LLAMA,
    "asymmetric": replace(LLAMA, is_symmetric=False),
    "head8": replace(LLAMA, head_bits=8),
    "block128": replace(LLAMA, block=128),
    "qdq": replace(LLAMA, weights="qdq"),
    "f32": replace(LLAMA, weights="f32"),
    "bf16": replace(LLAMA, weights="bf16"),
    "qwen3": replace(LLAMA, inner=6144, heads=16, size=128, normalizes_heads=True),
    "gemma": replace(LLAMA, inner=8192, heads=8, kv_heads=4, size=256, window=1024, softcap=50.0),
    "experts": replace(LLAMA, inner=1024, experts=16, chosen=4),
}


@dataclass
class DecoderBuilder:
    """A graph under construction."""

    config: DecoderConfig
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    @property
    def kind(self) -> int:
        """Return the element type of activations and caches."""
        return TensorProto.BFLOAT16 if self.config.weights == "bf16" else TensorProto.FLOAT

    def real(self, name: str, array: np.ndarray) -> str:
        """Add a constant of the type of the activations."""
        if self.kind == TensorProto.FLOAT:
            return self.constant(name, array)
        raw = (array.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        self.constants.append(helper.make_tensor(name, self.kind, array.shape, raw, raw=True))
        return name

    def product(self, name: str, x: str, rows: int, columns: int, bits: int = 0) -> str:
        """Multiply by random weights."""
        config, bits = self.config, bits or self.config.bits
        if config.weights in ("f32", "bf16"):
            values = self.random.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)
            return self.node("MatMul", [x, self.real(f"{name}.weight", values)], [f"{name}.out"])
        if config.weights == "qdq":
            return self.node("MatMul", [x, self.dequantized(name, rows, columns)], [f"{name}.out"])
        codes, scales = self.packed(name, rows, columns, bits)
        inputs = [x, self.constant(f"{name}.weight", codes), self.constant(f"{name}.scale", scales)]
        if not config.is_symmetric:
            blocks = codes.shape[1]
            zeros = self.random.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
            inputs.append(self.constant(f"{name}.zero", zeros))
        return self.node(
            "MatMulNBits", inputs, [f"{name}.out"], DOMAIN, K=rows, N=columns, bits=bits, block_size=config.block,
            accuracy_level=config.level,
        )  # fmt: skip

    def packed(self, name: str, rows: int, columns: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of a product's weights, u8[columns, blocks, bytes of a block], and the scales of blocks."""
        blocks = -(-rows // self.config.block)
        codes = self.random.integers(0, 256, (columns, blocks, self.config.block * bits // 8), np.uint8)
        return codes, self.scales((columns, blocks), rows, bits)

    def embedding(self) -> np.ndarray:
        """Return the rows of tokens."""
        return self.random.standard_normal((self.config.vocabulary, self.config.hidden), np.float32)

    def scales(self, shape: tuple[int, ...], rows: int, bits: int) -> np.ndarray:
        """Return scales of blocks of weights for which products of these rows keep their magnitude."""
        values = self.random.uniform(0.5, 1.5, shape).astype(np.float32) * (1.7 / (rows**0.5 * 2 ** (bits - 1)))
        return values.astype(np.float32)

    def dequantized(self, name: str, rows: int, columns: int) -> str:
        """Dequantize int4 weights [rows, columns] in blocks along the rows."""
        block = self.config.block
        codes = self.random.integers(0, 256, rows * columns // 2, np.uint8).tobytes()
        self.constants.append(helper.make_tensor(f"{name}.weight", TensorProto.INT4, (rows, columns), codes, raw=True))
        scales = self.constant(f"{name}.scale", self.scales((rows // block, columns), rows, 4))
        inputs = [f"{name}.weight", scales]
        return self.node("DequantizeLinear", inputs, [f"{name}.real"], axis=0, block_size=block)

    def norm(self, name: str, x: str) -> str:
        scale = self.real(f"{name}.weight", np.ones(self.config.hidden, np.float32))
        return self.node("SimplifiedLayerNormalization", [x, scale], [f"{name}.out"], epsilon=1e-5, axis=-1)

    def norm_of_heads(self, name: str, x: str, heads: int) -> str:
        """Normalize each head, as the builder does outside of attention."""
        size = self.config.size
        rows = self.node("Reshape", [x, self.constant(f"{name}.rows", np.array([0, -1, size]))], [f"{name}.heads"])
        scale = self.real(f"{name}.weight", np.ones(size, np.float32))
        normed = self.node("SimplifiedLayerNormalization", [rows, scale], [f"{name}.norm"], epsilon=1e-6, axis=-1)
        return self.node(
            "Reshape", [normed, self.constant(f"{name}.all", np.array([0, -1, heads * size]))], [f"{name}.out"]
        )

    def skip_norm(self, name: str, x: str, skip: str) -> tuple[str, str]:
        """Return the norm of the sum, and the sum."""
        scale = self.real(f"{name}.weight", np.ones(self.config.hidden, np.float32))
        outputs = [f"{name}.out", "", "", f"{name}.sum"]
        self.node("SkipSimplifiedLayerNormalization", [x, skip, scale], outputs, DOMAIN, epsilon=1e-5)
        return outputs[0], outputs[3]

    def layer(self, i: int, x: str) -> str:
        """Attend; return the result of the projection."""
        c, name = self.config, f"layer{i}"
        query = self.product(f"{name}.q", x, c.hidden, c.heads * c.size)
        key = self.product(f"{name}.k", x, c.hidden, c.kv_heads * c.size)
        value = self.product(f"{name}.v", x, c.hidden, c.kv_heads * c.size)
        if c.normalizes_heads:
            query = self.norm_of_heads(f"{name}.q_norm", query, c.heads)
            key = self.norm_of_heads(f"{name}.k_norm", key, c.kv_heads)
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        outputs = [f"{name}.attention", f"present.{i}.key", f"present.{i}.value"]
        inputs = [query, key, value, *past, "seqlens_k", "total_length", "cos", "sin"]
        self.node(
            "GroupQueryAttention", inputs, outputs, DOMAIN, num_heads=c.heads, kv_num_heads=c.kv_heads, do_rotary=1,
            rotary_interleaved=0, scale=c.size**-0.5, **({"softcap": c.softcap} if c.softcap else {}),
            **({"local_window_size": c.window} if c.window and i % 2 == 0 else {}),
        )  # fmt: skip
        return self.product(f"{name}.o", outputs[0], c.heads * c.size, c.hidden)

    def mlp(self, i: int, x: str) -> str:
        c, name = self.config, f"layer{i}"
        if c.experts:
            return self.mixture(name, x)
        gate = self.product(f"{name}.gate", x, c.hidden, c.inner)
        up = self.product(f"{name}.up", x, c.hidden, c.inner)
        sigmoid = self.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        silu = self.node("Mul", [gate, sigmoid], [f"{name}.silu"])
        inner = self.node("Mul", [silu, up], [f"{name}.inner"])
        return self.product(f"{name}.down", inner, c.inner, c.hidden)

    def mixture(self, name: str, x: str) -> str:
        """Emit experts, chosen for each token: gated products with packed weights."""
        c = self.config
        router = self.random.standard_normal((c.hidden, c.experts), np.float32) * np.float32(c.hidden**-0.5)
        logits = self.node("MatMul", [x, self.constant(f"{name}.router", router)], [f"{name}.router.out"])
        shape = self.constant(f"{name}.router.shape", np.array([-1, c.experts]))
        inputs = [x, self.node("Reshape", [logits, shape], [f"{name}.router.rows"])]
        for part, columns, rows in (("fc1", 2 * c.inner, c.hidden), ("fc2", c.hidden, c.inner)):
            codes = self.random.integers(0, 256, (c.experts, columns, rows * c.bits // 8), np.uint8)
            scales = self.scales((c.experts, columns, rows // c.block), rows, c.bits)
            weight = self.constant(f"{name}.{part}.weight", codes)
            inputs += [weight, self.constant(f"{name}.{part}.scale", scales), ""]
        return self.node(
            "QMoE", inputs[:-1], [f"{name}.experts.out"], DOMAIN, k=c.chosen, activation_type="swiglu",
            swiglu_fusion=1, expert_weight_bits=c.bits, block_size=c.block, normalize_routing_weights=1,
        )  # fmt: skip

    def build(self) -> Any:
        """Build the model."""
        c = self.config
        angles = np.outer(np.arange(c.positions), 10000.0 ** (-np.arange(0, c.size, 2) / c.size))
        self.real("cos", np.cos(angles).astype(np.float32))
        self.real("sin", np.sin(angles).astype(np.float32))
        self.real("embedding", self.embedding())
        # The lengths, as the builder computes them from the mask.
        self.constant("one", np.array([1], np.int64))
        self.node("ReduceSum", ["attention_mask", "one"], ["lengths"], keepdims=0)
        self.node("Sub", ["lengths", "one"], ["last"])
        self.node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], ["mask_shape"])
        self.constant("first", np.array(1, np.int64))
        self.node("Gather", ["mask_shape", "first"], ["total"], axis=0)
        self.node("Cast", ["total"], ["total_length"], to=TensorProto.INT32)
        x = self.node("Gather", ["embedding", "input_ids"], ["embedded"])
        normed = self.norm("norm0", x)
        for i in range(c.layers):
            attended = self.layer(i, normed)
            normed, x = self.skip_norm(f"layer{i}.norm1", x, attended)
            projected = self.mlp(i, normed)
            normed, x = self.skip_norm(f"layer{i}.norm2", x, projected)
        self.node("Identity", [self.product("head", normed, c.hidden, c.vocabulary, c.head_bits)], ["logits"])
        return self._finish()

    def _finish(self) -> Any:
        c = self.config
        cache, info = ["batch", c.kv_heads, "past", c.size], helper.make_tensor_value_info
        after = ["batch", c.kv_heads, "total", c.size]
        names = [f"{i}.{kind}" for i in range(c.layers) for kind in ("key", "value")]
        inputs = [
            info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
            info("attention_mask", TensorProto.INT64, ["batch", "total"]),
            *(info(f"past_key_values.{name}", self.kind, cache) for name in names),
        ]
        outputs = [
            info("logits", self.kind, ["batch", "sequence", c.vocabulary]),
            *(info(f"present.{name}", self.kind, after) for name in names),
        ]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def build(config: DecoderConfig) -> Any:
    """Return the model as an `onnx.ModelProto`."""
    return DecoderBuilder(config).build()


def save(config: DecoderConfig, folder: Path, model: Any = None) -> Path:
    """Write a model, by default with random weights, beside it its weights and configuration; return its path."""
    path = folder / "model.onnx"
    onnx.save(build(config) if model is None else model, path, save_as_external_data=True, location="model.onnx.data")
    c = config
    decoder = {
        "filename": path.name, "head_size": c.size, "hidden_size": c.hidden, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "num_hidden_layers": c.layers,
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "inputs": {
            "input_ids": "input_ids", "attention_mask": "attention_mask",
            **{f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in ("key", "value")},
        },
        "outputs": {"logits": "logits", **{f"present_{kind}_names": f"present.%d.{kind}" for kind in ("key", "value")}},
    }  # fmt: skip
    model = {
        "type": "llama", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "vocab_size": c.vocabulary,
        "context_length": c.positions, "decoder": decoder,
    }  # fmt: skip
    search = {"max_length": c.positions, "past_present_share_buffer": True}
    text = json.dumps({"model": model, "search": search}, indent=1)
    (folder / "genai_config.json").write_text(text, encoding="utf-8")
    return path


def feed(config: DecoderConfig, tokens: int, past: int, batch: int = 1) -> dict[str, np.ndarray]:
    """Return inputs for these numbers of new and past tokens."""
    random = np.random.default_rng(1)
    shape = (batch, config.kv_heads, past, config.size)
    result = {
        "input_ids": random.integers(0, config.vocabulary, (batch, tokens)),
        "attention_mask": np.ones((batch, past + tokens), np.int64),
    }
    for i in range(config.layers):
        for kind in ("key", "value"):
            rows = random.standard_normal(shape, np.float32) * np.float32(0.1)
            result[f"past_key_values.{i}.{kind}"] = rows.astype(bfloat16) if config.weights == "bf16" else rows
    return result
