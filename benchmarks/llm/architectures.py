"""All architectures by the code of transformers: `python -m benchmarks.llm.architectures [NAME ...] [--seconds N]`.

Each is a tiny model with random weights, which Mirlo compiles from transformers' code and transformers runs. A row has
the largest difference of logits, of a prompt in parts and of steps, in standard deviations of the logits (at least 1);
whether the tokens of a greedy search are equal; whether two prompts of different lengths in one batch give what each
gives alone; and the processor time of import and compilation. Needs `mirlo-llm[transformers]`.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 96
PROMPT, ANSWER, CHUNK = 37, 12, 8
MOST = 1e-4
"""The largest difference of logits that is right."""
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_EXPERTS = {"moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2}
_LOCAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
_ROUTED = {"moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
_LATENT = {
    "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "n_shared_experts": 1,
}  # fmt: skip
_GROUPS = {**_LATENT, **_ROUTED, "num_experts_per_tok": 4, "n_group": 2}
_LINEAR = {
    "head_dim": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}  # fmt: skip
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
_CONVOLUTIONS = {"layer_types": ["conv", "conv", "full_attention", "conv"]}
_GPT2 = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512}
_WINDOW = {"sliding_window": 16}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "mistral": _WINDOW, "ministral": {**_WINDOW, "head_dim": 16}, "ministral3": {}, "mixtral": _LOCAL,
    "qwen2": {}, "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 56},
    "qwen3": {"head_dim": 32}, "qwen3_moe": {**_EXPERTS, "head_dim": 32},
    "qwen3_next": {**_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 48, "partial_rotary_factor": 0.25},
    "qwen3_5_text": _LINEAR, "qwen3_5_moe_text": {**_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 48},
    "gemma": {"head_dim": 32}, "gemma2": {**_WINDOW, "head_dim": 32, "query_pre_attn_scalar": 32},
    "gemma3_text": {**_WINDOW, "head_dim": 32, "query_pre_attn_scalar": 32, "num_hidden_layers": 7},
    "gemma3n_text": {
        **_WINDOW, "head_dim": 32, "num_hidden_layers": 5, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCABULARY, "laurel_rank": 8,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0, 0.0],
    },
    "gemma4_text": {
        **_WINDOW, "head_dim": 32, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16
    },
    "gpt_oss": {**_LOCAL, **_WINDOW, "head_dim": 16}, "glm": {"head_dim": 16}, "glm4": {"head_dim": 16},
    "glm4_moe": {**_ROUTED, "head_dim": 16},
    "granite": {
        "embedding_multiplier": 12.0, "attention_multiplier": 0.1, "residual_multiplier": 0.3, "logits_scaling": 2.0
    },
    "granitemoe": _LOCAL,
    "granitemoehybrid": {
        **_MAMBA, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 112,
        "layer_types": ["mamba", "mamba", "attention", "mamba"], "position_embedding_type": "nope",
    },
    "llama4_text": {
        "head_dim": 16, "intermediate_size_mlp": 112, "num_local_experts": 4, "num_experts_per_tok": 1,
        "attention_chunk_size": 16, "interleave_moe_layer_step": 2,
    },
    "deepseek_v2": {**_LATENT, **_ROUTED, "topk_method": "greedy"}, "deepseek_v3": _GROUPS, "deepseek_v32": _GROUPS,
    "olmo": {"clip_qkv": 2.0}, "olmo2": {}, "olmo3": _WINDOW, "olmoe": {"num_experts": 8, "num_experts_per_tok": 2},
    "smollm3": {}, "phi": {}, "phi3": {**_WINDOW, "partial_rotary_factor": 0.75},
    "phimoe": {**_LOCAL, "num_local_experts": 4},
    "falcon": {"ffn_hidden_size": 112, "new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    "falcon_h1": {**_MAMBA, "head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4},
    "lfm2": {**_CONVOLUTIONS, "block_ff_dim": 112},
    "lfm2_moe": {**_CONVOLUTIONS, **_EXPERTS, "num_dense_layers": 1},
    "mamba": {}, "mamba2": {"num_heads": 8, "head_dim": 16, "expand": 2, "state_size": 16, "n_groups": 1},
    "falcon_mamba": {}, "exaone4": _WINDOW, "exaone": {}, "ernie4_5": {},
    "ernie4_5_moe": {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48},
    "hunyuan_v1_dense": {"head_dim": 16}, "cohere": {}, "cohere2": _WINDOW, "nemotron": {},
    "starcoder2": {"sliding_window": None}, "stablelm": {}, "gpt2": _GPT2, "gpt_neox": {},
    "opt": {"ffn_dim": 112, "word_embed_proj_dim": 64}, "bloom": {"n_layer": 4, "n_head": 4},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 4, "max_seq_len": 512}, "gpt_bigcode": _GPT2, "rwkv": {},
    "helium": {"head_dim": 16}, "arcee": {}, "apertus": {}, "seed_oss": {"head_dim": 16},
    "dots1": {**_ROUTED, "n_shared_experts": 1}, "bitnet": {}, "minimax_m2": {**_LOCAL, "head_dim": 16},
    "jamba": {"num_experts": 4, "mamba_d_state": 8, "attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {**_MAMBA, "attn_layer_indices": [2]},
    "kimi_linear": {
        **_LATENT, **_LOCAL, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_head_dim": 16,
        "linear_num_heads": 4, "moe_intermediate_size": 48,
    },
    "nanochat": {}, "vaultgemma": {"head_dim": 32}, "internlm3": {"head_dim": 16}, "nemotron_h": {},
    "zamba2": {
        "num_hidden_layers": 6, "hybrid_layer_ids": [2, 4], "mamba_d_state": 16, "mamba_ngroups": 1,
        "layer_types": ["linear_attention", *["linear_attention", "hybrid"] * 2, "linear_attention"],
        "n_mamba_heads": 8, "mamba_headdim": 16, "num_mem_blocks": 1, "num_key_value_heads": 4,
    },
}  # fmt: skip
"""What tiny configurations have beside `COMMON`, by `model_type`."""
_KEPT = ("A_log", "dt_bias", ".D")
"""The ends of names of parameters whose first values matter."""


@dataclass(frozen=True)
class Comparison:
    """What Mirlo computes of a model, compared with transformers."""

    error: float
    """The largest difference of logits, in their standard deviations."""
    same_tokens: bool
    same_batch: bool | None
    """Whether a batch of two prompts gives what each gives alone; None where the model takes no such batch."""
    import_seconds: float
    compile_seconds: float

    @property
    def is_right(self) -> bool:
        """Return whether all is as transformers has it."""
        return self.error < MOST and self.same_tokens and self.same_batch is not False


def tiny_model(name: str, seed: int = 0, **options: Any) -> Any:
    """Return a tiny model of transformers with random weights; `options` are keys of its configuration."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(name, **{**COMMON, **ARCHITECTURES[name], **options})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    generator = torch.Generator().manual_seed(seed)
    corrections = [(key, each) for key, each in model.named_buffers() if "correction" in key]
    with torch.no_grad():
        for key, each in (*model.named_parameters(), *corrections):
            noise = torch.randn(each.shape, generator=generator)
            if key.endswith(_KEPT):
                continue
            if each.dim() < 2:  # norms that are not 1, biases that are not 0
                each.add_(noise * 0.2)
            else:
                each.copy_(noise * (1.0 if "embed" in key or "wte" in key else 1.3 / each.shape[-1] ** 0.5))
    return model


def compare(name: str, folder: Path, **options: Any) -> Comparison:
    """Compare a tiny model, which is written to a folder; `options` are those of `mirlo.compile`."""
    import torch
    from mirlo_llm.generate.config import read_config
    from mirlo_llm.generate.model import LanguageModel
    from mirlo_llm.generate.traced.decoder import import_traced_decoder

    import mirlo

    model = tiny_model(name)
    model.save_pretrained(folder)
    ids = np.random.default_rng(1).integers(3, VOCABULARY, PROMPT + ANSWER)

    def continued(tokens: list[int], count: int) -> list[int]:
        for _ in range(count):
            tokens = [*tokens, int(model(torch.tensor([tokens])).logits[0, -1].argmax())]
        return tokens

    prompts = [ids[:PROMPT].tolist(), ids[5:16].tolist()]
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)[None]).logits[0].double().numpy()
        whole = continued(prompts[0], ANSWER)
    start = time.process_time()
    graph = import_traced_decoder(
        folder / "model.safetensors", folder / "config.json", rings_below=COMMON["max_position_embeddings"]
    )
    assert graph.module is not None
    imported = time.process_time()
    executable = mirlo.compile(graph, last_rows="logits", cache=False, **options)
    compiled = time.process_time()
    language = LanguageModel(read_config(folder), executable)
    generator, errors = language.generator(chunk_size=CHUNK), []
    for begin, end in ((0, PROMPT), *((at, at + 1) for at in range(PROMPT, PROMPT + ANSWER))):
        generator.append(ids[begin:end].tolist())
        errors.append(np.abs(generator.logits().reshape(-1) - expected[end - 1]).max())

    def answer(*texts: list[int]) -> list[list[int]]:
        tokens = language.generator(batch=len(texts), max_new_tokens=ANSWER, chunk_size=CHUNK).generate(*texts)
        return [list(each) for each in (tokens if len(texts) > 1 else [tokens])]

    (alone,) = answer(prompts[0])
    same_batch = None
    if not language._decoder.states:
        same_batch = answer(*prompts) == [alone, *answer(prompts[1])]
    return Comparison(
        float(max(errors) / max(1.0, expected.std())), alone == whole[PROMPT:][: len(alone)] and len(alone) > 0,
        same_batch, imported - start, compiled - imported,
    )  # fmt: skip


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise an error in what takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="architectures (default: all)")
    parser.add_argument("--seconds", metavar="N", type=int, default=900, help="most wall time of each (default: 900)")
    arguments = parser.parse_args()
    names = arguments.names or list(ARCHITECTURES)
    print(
        "| architecture | error | tokens | batch | import, s | compile, s |\n| --- | ---: | --- | --- | ---: | ---: |"
    )
    right = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with _limited(arguments.seconds):
                    result = compare(name, Path(folder), threads=1)
            except Exception as error:  # each is a row
                print(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:200]} | | | | |", flush=True)
                continue
        right += result.is_right
        same = {True: "equal", False: "differ", None: "one length"}
        seconds = [f"{each:.1f}" for each in (result.import_seconds, result.compile_seconds)]
        row = [name, f"{result.error:.1e}", same[result.same_tokens], same[result.same_batch], *seconds]
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n{right} of {len(names)} are right.")


if __name__ == "__main__":
    main()
