"""Language models on several ranks: the tokens are those that transformers chooses."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, write_genai, write_hybrid
from mirlo_llm import generate
from mirlo_ranks.testing import run_ranks

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
COUNT = 12
"""Tokens that are generated."""
NIGHTLY = pytest.mark.sample(0)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("kind", "options", "ranks", "plan"),
    [
        ("llama", {}, 2, ()),
        ("llama", {}, 4, ()),  # two ranks have the same head of keys and values
        ("mixtral", EXPERTS, 2, ()),
        ("mixtral", EXPERTS, 4, ("*.experts.*=expert",)),
        ("llama", {"tie_word_embeddings": True, "vocab_size": 95}, 2, ("*.layers.0.mlp.*=replicate",)),
        ("phi3", {}, 2, ()),  # one product for query, key and value
        ("gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20}, 2, ()),
        ("qwen2", {"num_attention_heads": 2}, 2, ()),
    ],
)
def test_tokens(kind: str, options: dict[str, Any], ranks: int, plan: tuple[str, ...], tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **options})
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(tmp_path)
    prompt = np.random.default_rng(0).integers(3, 90, 7).tolist()
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(COUNT):
            logits = reference(tokens).logits[:, -1:]
            logits[..., SMALL["eos_token_id"]] = -np.inf
            tokens = torch.cat([tokens, logits.argmax(-1)], -1)
    expected = tokens[0, len(prompt) :].tolist()

    def call(rank: int) -> tuple[list[Any], int]:
        model = generate.load(tmp_path, ranks=ranks, rank_plan=plan)
        generator = model.generator(do_sample=False, max_new_tokens=COUNT, min_length=100)
        return generator.generate(prompt), model.executable.memory.weights_bytes

    results = run_ranks(call, ranks)
    assert [result if isinstance(result, Exception) else result[0] for result in results] == [expected] * ranks


REQUESTS: list[dict[str, Any]] = [
    {"max_new_tokens": 6},
    {"max_new_tokens": 9, "do_sample": True, "temperature": 2.0},
    {"max_new_tokens": 4, "repetition_penalty": 1.3},
    {"max_new_tokens": 7},
]
"""More than there are slots; tokens are drawn by the leader only."""


@pytest.mark.parametrize("kind", ["contiguous", *(pytest.param(kind, marks=NIGHTLY) for kind in ("paged", "hybrid"))])
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=NIGHTLY)])
def test_an_engine_leads_the_other_ranks(kind: str, ranks: int, tmp_path: Path) -> None:
    """Requests that begin alike, end at other times and wait for slots have the tokens that one rank computes."""
    if kind == "hybrid":
        write_hybrid(tmp_path)
    else:
        write_genai(tmp_path, paged=kind == "paged")
    random = np.random.default_rng(0)
    start = random.integers(2, VOCABULARY, 9).tolist()
    prompts = [[*start, *random.integers(2, VOCABULARY, length).tolist()] for length in (2, 9, 1, 3)]
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(ranks)]

    def operations(rank: int) -> Iterator[Any]:
        while (operation := pipes[rank][0].recv()) is not None:
            yield operation

    def send(operation: Any) -> None:
        for _, writing in pipes[1:]:
            writing.send(operation)

    def call(rank: int) -> list[list[int]] | None:
        model = generate.load(tmp_path, ranks=ranks, activations="exact")
        if kind == "paged":  # a rank keeps the rows of one of the two heads
            assert {spec.shape[2] for spec in model.executable.inputs if len(spec.shape) == 4} == {1}
        # Ranks that draw different tokens would compute different texts.
        with pytest.raises(generate.GenerationError, match="seed: ranks of a model draw the same tokens only"):
            model.generator(do_sample=True, temperature=0.8)
        if rank:
            return model.follow(operations(rank))
        engine = model.engine(3, send, chunk_size=5)
        added = [engine.add(prompt, seed=7, **search) for prompt, search in zip(prompts, REQUESTS, strict=True)]
        assert len(list(engine.run())) == len(prompts)
        send(None)
        return [request.result() for request in added]

    model = generate.load(tmp_path, activations="exact")
    alone = [model.generator(seed=7, **s).generate(p) for p, s in zip(prompts, REQUESTS, strict=True)]
    assert run_ranks(call, ranks) == [alone, *[None] * (ranks - 1)]
