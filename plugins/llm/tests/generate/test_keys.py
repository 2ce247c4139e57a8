"""No key of a configuration is ignored: it changes the options, has no effect in transformers, or is named."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm.generate.checkpoints.architectures import ARCHITECTURES, NO_EFFECT, read_options, unread_keys
from mirlo_llm.generate.code_options import CodeOptions
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import JsonObject
from mirlo_llm.generate.traced import sources

pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

from mirlo.benchmarks.llm.architectures import ARCHITECTURES as CONFIGURATIONS  # noqa: E402
from mirlo.benchmarks.llm.architectures import COMMON  # noqa: E402

LLAMA: dict[str, Any] = {**COMMON, "model_type": "llama"}
UNKNOWN: dict[str, Any] = {
    "use_bidirectional_attention": True, "is_causal": False, "attn_logit_softcapping": 30.0, "residual_scale": 0.5,
}  # fmt: skip
"""Keys that change what is computed, or might, and that Llama does not have."""
KINDS = sorted(ARCHITECTURES.keys() & CONFIGURATIONS.keys())
NOT_CHANGED = (
    "model_type", "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "layer_types", "num_hidden_layers",
    "architectures", "dtype", "rope_parameters", "problem_type", "id2label", "label2id",
)  # fmt: skip
"""Keys that other values of make another model of, or none."""


def options_of(config: dict[str, Any]) -> str:
    """Return the options that a configuration stands for."""
    return str(read_options(JsonObject(Path("config.json"), "", config)))


@pytest.mark.parametrize("key", UNKNOWN)
def test_a_key_that_is_not_known_is_named(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of transformers computes such a model, if it is installed."""
    config = JsonObject(Path("config.json"), "", {**LLAMA, key: UNKNOWN[key]})
    assert unread_keys(config) == [key]
    monkeypatch.setattr(sources, "versions", lambda: {"torch": "2.13", "transformers": "5.24"})
    assert sources.is_traced(config, CodeOptions())
    with pytest.raises(ModelFolderError, match=f"'{key}': Mirlo's definition of 'llama' does not know this key"):
        sources.is_traced(config, CodeOptions("mirlo"))
    monkeypatch.setattr(sources, "versions", lambda: None)
    with pytest.raises(ModelFolderError, match=f"'{key}': .* pip install 'mirlo-llm"):
        sources.is_traced(config, CodeOptions())
    assert not sources.is_traced(JsonObject(Path("config.json"), "", LLAMA), CodeOptions())


def test_keys_of_rotations() -> None:
    rotation = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0, "mscale": 2.0}
    config = JsonObject(Path("config.json"), "", {**LLAMA, "rope_parameters": rotation})
    assert unread_keys(config) == ["rope_parameters.mscale"]


@cache
def configuration(kind: str) -> dict[str, Any]:
    """Return the whole configuration of a tiny model, as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **{**COMMON, **CONFIGURATIONS[kind]})
    result: dict[str, Any] = json.loads(config.to_json_string(use_diff=False)) | {"model_type": kind}
    return result


def logits_of(config: dict[str, Any]) -> np.ndarray | None:
    """Return the logits of a model with weights that depend on their shapes alone; None if there is no such model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    given = {key: value for key, value in config.items() if key not in ("model_type", "transformers_version")}
    try:
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(config["model_type"], **given), attn_implementation="eager"
        )
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for each in model.float().eval().parameters():
                each.copy_(torch.randn(each.shape, generator=generator) / each.shape[-1] ** 0.5)
            ids = torch.arange(3, 43)[None]
            logits: np.ndarray = model(ids).logits[0].numpy()
            return logits
    except Exception:  # values that the model does not take
        return None


def changed(value: object) -> object:
    """Return another value of the same type; None if there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value < 2 else value * 2
    return value * 1.5 + 0.25 if isinstance(value, float) else None


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_change_what_transformers_computes(kind: str) -> None:
    config = configuration(kind)
    assert unread_keys(JsonObject(Path("config.json"), "", config)) == []
    plain, options = logits_of(config), options_of(config)
    assert plain is not None
    ignored = []
    for key, value in config.items():
        other = changed(value)
        if other is None or key in NOT_CHANGED:
            continue
        mutated = {**config, key: other}
        logits = logits_of(mutated)
        if logits is None or (logits.shape == plain.shape and np.allclose(logits, plain, rtol=1e-5, atol=1e-6)):
            continue
        try:
            is_seen = options_of(mutated) != options or key in unread_keys(JsonObject(Path("config.json"), "", mutated))
        except ModelFolderError:
            is_seen = True
        if not is_seen:
            ignored.append(key)
    assert set(ignored) <= OF_TENSORS, (ignored, NO_EFFECT & set(ignored))


OF_TENSORS = {"attention_bias", "mlp_bias", "use_qkv_bias", "qkv_bias"}
"""Keys that the file's tensors determine: whether there are biases."""
