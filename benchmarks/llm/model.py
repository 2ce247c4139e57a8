"""Decoders with random weights of a few bits, as onnxruntime-genai's model builder writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
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


LLAMA = DecoderConfig()
"""The model "L": 336 million weights of 4 bits."""
TINY = DecoderConfig(layers=2, hidden=128, inner=352, heads=4, kv_heads=2, size=32, vocabulary=320, positions=128)


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

    def product(self, name: str, x: str, rows: int, columns: int, bits: int = 0) -> str:
        """Multiply by random weights."""
        config, bits = self.config, bits or self.config.bits
        blocks = -(-rows // config.block)
        codes = self.random.integers(0, 256, (columns, blocks, config.block * bits // 8), np.uint8)
        scales = self.random.uniform(0.5, 1.5, (columns, blocks)).astype(np.float32)
        scales *= 1.7 / (rows**0.5 * 2 ** (bits - 1))
        inputs = [x, self.constant(f"{name}.weight", codes), self.constant(f"{name}.scale", scales)]
        if not config.is_symmetric:
            zeros = self.random.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
            inputs.append(self.constant(f"{name}.zero", zeros))
        return self.node(
            "MatMulNBits", inputs, [f"{name}.out"], DOMAIN, K=rows, N=columns, bits=bits, block_size=config.block,
            accuracy_level=config.level,
        )  # fmt: skip

    def norm(self, name: str, x: str) -> str:
        scale = self.constant(f"{name}.weight", np.ones(self.config.hidden, np.float32))
        return self.node("SimplifiedLayerNormalization", [x, scale], [f"{name}.out"], epsilon=1e-5, axis=-1)

    def skip_norm(self, name: str, x: str, skip: str) -> tuple[str, str]:
        """Return the norm of the sum, and the sum."""
        scale = self.constant(f"{name}.weight", np.ones(self.config.hidden, np.float32))
        outputs = [f"{name}.out", "", "", f"{name}.sum"]
        self.node("SkipSimplifiedLayerNormalization", [x, skip, scale], outputs, DOMAIN, epsilon=1e-5)
        return outputs[0], outputs[3]

    def layer(self, i: int, x: str) -> str:
        """Attend; return the result of the projection."""
        c, name = self.config, f"layer{i}"
        query = self.product(f"{name}.q", x, c.hidden, c.heads * c.size)
        key = self.product(f"{name}.k", x, c.hidden, c.kv_heads * c.size)
        value = self.product(f"{name}.v", x, c.hidden, c.kv_heads * c.size)
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        outputs = [f"{name}.attention", f"present.{i}.key", f"present.{i}.value"]
        inputs = [query, key, value, *past, "seqlens_k", "total_length", "cos", "sin"]
        self.node(
            "GroupQueryAttention", inputs, outputs, DOMAIN, num_heads=c.heads, kv_num_heads=c.kv_heads, do_rotary=1,
            rotary_interleaved=0, scale=c.size**-0.5,
        )  # fmt: skip
        return self.product(f"{name}.o", outputs[0], c.heads * c.size, c.hidden)

    def mlp(self, i: int, x: str) -> str:
        c, name = self.config, f"layer{i}"
        gate = self.product(f"{name}.gate", x, c.hidden, c.inner)
        up = self.product(f"{name}.up", x, c.hidden, c.inner)
        sigmoid = self.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        silu = self.node("Mul", [gate, sigmoid], [f"{name}.silu"])
        inner = self.node("Mul", [silu, up], [f"{name}.inner"])
        return self.product(f"{name}.down", inner, c.inner, c.hidden)

    def build(self) -> Any:
        """Build the model."""
        c = self.config
        angles = np.outer(np.arange(c.positions), 10000.0 ** (-np.arange(0, c.size, 2) / c.size))
        self.constant("cos", np.cos(angles).astype(np.float32))
        self.constant("sin", np.sin(angles).astype(np.float32))
        table = self.random.standard_normal((c.vocabulary, c.hidden), np.float32)
        self.constant("embedding", table)
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
            made = self.mlp(i, normed)
            normed, x = self.skip_norm(f"layer{i}.norm2", x, made)
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
            *(info(f"past_key_values.{name}", TensorProto.FLOAT, cache) for name in names),
        ]
        outputs = [
            info("logits", TensorProto.FLOAT, ["batch", "sequence", c.vocabulary]),
            *(info(f"present.{name}", TensorProto.FLOAT, after) for name in names),
        ]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def build(config: DecoderConfig) -> Any:
    """Return the model as an `onnx.ModelProto`."""
    return DecoderBuilder(config).build()


def save(config: DecoderConfig, folder: Path) -> Path:
    """Write the model with its weights beside it, and its configuration; return its path."""
    path = folder / "model.onnx"
    onnx.save(build(config), path, save_as_external_data=True, location="model.onnx.data")
    decoder = {"filename": path.name, "num_hidden_layers": config.layers}
    model = {"type": "llama", "eos_token_id": 1, "context_length": config.positions, "decoder": decoder}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {}}), encoding="utf-8")
    return path


def feed(config: DecoderConfig, tokens: int, past: int, batch: int = 1) -> dict[str, np.ndarray]:
    """Return inputs for so many new tokens after a past."""
    random = np.random.default_rng(1)
    shape = (batch, config.kv_heads, past, config.size)
    made = {
        "input_ids": random.integers(0, config.vocabulary, (batch, tokens)),
        "attention_mask": np.ones((batch, past + tokens), np.int64),
    }
    for i in range(config.layers):
        for kind in ("key", "value"):
            made[f"past_key_values.{i}.{kind}"] = random.standard_normal(shape, np.float32) * 0.1
    return made
