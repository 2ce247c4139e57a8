"""The decoder with random weights as a GGUF file, for llama.cpp."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirlo.benchmarks.llm.model import DecoderConfig


def save_gguf(config: DecoderConfig, path: Path) -> None:
    """Write a model of the architecture llama: weights in blocks of 32 of 4 bits (Q4_0), f32, or bf16."""
    import gguf
    from gguf.quants import quantize

    kinds = gguf.GGMLQuantizationType
    kind = {"f32": kinds.F32, "bf16": kinds.BF16}.get(config.weights, kinds.Q4_0)
    c, random, writer = config, np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(c.vocabulary)
    writer.add_context_length(c.positions)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.inner)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(c.size)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("no_vocab")

    def put(name: str, *shape: int) -> None:
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            return
        values = random.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
        writer.add_tensor(name, values if kind == kinds.F32 else quantize(values, kind), raw_dtype=kind)

    put("token_embd.weight", c.vocabulary, c.hidden)
    put("output_norm.weight", c.hidden)
    put("output.weight", c.vocabulary, c.hidden)
    for i in range(c.layers):
        put(f"blk.{i}.attn_norm.weight", c.hidden)
        put(f"blk.{i}.ffn_norm.weight", c.hidden)
        put(f"blk.{i}.attn_q.weight", c.heads * c.size, c.hidden)
        put(f"blk.{i}.attn_k.weight", c.kv_heads * c.size, c.hidden)
        put(f"blk.{i}.attn_v.weight", c.kv_heads * c.size, c.hidden)
        put(f"blk.{i}.attn_output.weight", c.hidden, c.heads * c.size)
        put(f"blk.{i}.ffn_gate.weight", c.inner, c.hidden)
        put(f"blk.{i}.ffn_up.weight", c.inner, c.hidden)
        put(f"blk.{i}.ffn_down.weight", c.hidden, c.inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
