"""Folders with weights in safetensors: the models compute what transformers' do, damaged folders are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, example, write_genai
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.architectures import read_options
from mirlo_llm.generate.checkpoints.decoder import import_checkpoint
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from onnx import numpy_helper
from safetensors_file import write_safetensors

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LONG = {
    "original_max_position_embeddings": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 1.0,
        "original_max_position_embeddings": 64, "short_factor": [1.0 + i / 8 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)],
    },
}  # fmt: skip
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}
SCORES = {"mscale_all_dim": 0.9}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "topk_method": "noaux_tc",
    "num_key_value_heads": 4, "num_hidden_layers": 2,
}  # fmt: skip
MIXED = {
    "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 48, "interleave_moe_layer_step": 2,
    "attention_chunk_size": 4, "no_rope_layer_interval": 3, "floor_scale": 3, "attn_scale": 0.2, "head_dim": 8,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with slower rotations": ("llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "llama with linear positions": (
        "llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}}
    ),
    "tied": ("llama", {"tie_word_embeddings": True, "head_dim": 12}),
    "mistral": ("mistral", {"sliding_window": 5}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "phi3": ("phi3", {}),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 20}),
    "granite": (
        "granite",
        {"attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0},
    ),
    "olmo": ("olmo", {"clip_qkv": 0.4}),
    "olmo without a limit": ("olmo", {"num_key_value_heads": 4}),
    "olmo2": ("olmo2", {}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "qwen3 with yarn": ("qwen3", {"rope_parameters": YARN, "head_dim": 16}),
    "gpt2": ("gpt2", {}),
    "stablelm": ("stablelm", {"use_qkv_bias": True}),
    "stablelm in parallel": ("stablelm", {"use_parallel_residual": True, "rope_parameters": HALF}),
    "phi3 with other rotations of long texts": ("phi3", LONG),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "qwen2_moe",
        {**EXPERTS, "shared_expert_intermediate_size": 32, "mlp_only_layers": [0], "norm_topk_prob": False},
    ),
    "qwen3_moe": ("qwen3_moe", {**EXPERTS, "norm_topk_prob": True}),
    "llama4": ("llama4_text", MIXED),
    "llama4 without norms": (
        "llama4_text",
        {**MIXED, "use_qk_norm": False, "num_experts_per_tok": 2, "moe_layers": [0], "no_rope_layers": [1, 0, 1]},
    ),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "topk_method": "greedy", "q_lora_rank": None, "mlp_bias": True}),
    "deepseek_v2 with groups": (
        "deepseek_v2",
        {**LATENT, "topk_method": "group_limited_greedy", "rope_parameters": {**YARN, "mscale": 0.7, **SCORES}},
    ),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "rope_interleave": False, "attention_bias": True}),
    "deepseek_v3 with yarn": (
        "deepseek_v3", {**LATENT, "norm_topk_prob": False, "rope_parameters": {**YARN, **SCORES}}
    ),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", KINDS)
def test_architectures(name: str, tmp_path: Path) -> None:
    """Logits of a prompt in two parts, and the tokens that follow, are those of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, options = KINDS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **options})
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in reference.parameters():  # norms that are not 1, biases that are not 0
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in reference.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(torch.randn_like(buffer) * 0.3)
    reference.save_pretrained(tmp_path)
    prompt = np.random.default_rng(0).integers(3, SMALL["vocab_size"], 11)
    with torch.no_grad():
        expected = reference(torch.from_numpy(prompt)[None]).logits[0, -1].numpy()
        tokens = reference.generate(torch.from_numpy(prompt)[None], max_new_tokens=9, do_sample=False)[0, 11:].tolist()
    model = generate.load(tmp_path, cache=False)
    generator = model.generator(max_new_tokens=9, chunk_size=7)
    generator.append(prompt.tolist())
    np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)
    found = model.generator(max_new_tokens=9, do_sample=False).generate(prompt.tolist())
    assert [token for token in found if token != 2] == [token for token in tokens if token != 2], (found, tokens)


@pytest.mark.sample(0)
def test_names_of_models_without_logits(tmp_path: Path) -> None:
    """GPT-2 is published without the first part of names, and with the masks of its attentions."""
    random, hidden = np.random.default_rng(0), 16
    shapes = {
        "wte": (40, hidden), "wpe": (32, hidden), "h.0.attn.c_attn": (hidden, 3 * hidden), "h.0.mlp.c_fc": (hidden, 24),
        "h.0.attn.c_proj": (hidden, hidden), "h.0.mlp.c_proj": (24, hidden), "ln_f": (hidden,), "h.0.ln_1": (hidden,),
        "h.0.ln_2": (hidden,),
    }  # fmt: skip
    tensors = {f"{key}.weight": random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    config = {"model_type": "gpt2", "vocab_size": 40, "n_embd": hidden, "n_head": 2, "n_layer": 1, "n_positions": 32}
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_inner": 24}), encoding="utf-8")
    tokens = []
    for prefix, more in (("transformer.", {}), ("", {"h.0.attn.bias": np.ones((1, 1, 32, 32), np.float32)})):
        named = {prefix + name: array for name, array in tensors.items()}
        write_safetensors(tmp_path / "model.safetensors", {**named, **more})
        tokens.append(generate.load(tmp_path, cache=False).generator(max_new_tokens=9).generate([5, 9, 33]))
    assert tokens[0] == tokens[1]
    (tmp_path / "config.json").write_text(json.dumps({**config, "scale_attn_weights": False}), encoding="utf-8")
    with pytest.raises(ModelFolderError, match="'scale_attn_weights': only true is supported"):
        generate.load(tmp_path, cache=False)


def test_tensors_of_many_elements(tmp_path: Path) -> None:
    header = json.dumps(
        {"a": {"dtype": "F32", "shape": [0, 1 << 20, 1 << 20, 1 << 20], "data_offsets": [0, 0]}}
    ).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelFolderError, match="tensor 'a': expected fewer elements, found"):
        read_checkpoint(tmp_path / "a.safetensors")


def write_checkpoint(folder: Path, parts: int = 1) -> dict[str, np.ndarray]:
    """Write the weights of the example's model as transformers does; return them."""
    module = example()
    c, folder = module.CONFIG, Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    graph = module.TinyModel(VOCABULARY, 0, 0).build().graph
    arrays = {each.name.removesuffix(".weight"): numpy_helper.to_array(each) for each in graph.initializer}
    tensors = {"model.embed_tokens.weight": arrays["embedding"], "model.norm.weight": arrays["norm"]}
    tensors["lm_head.weight"] = arrays["head"].T
    for i in range(c["layers"]):
        for name, place in (("norm", "input_layernorm"), ("norm2", "post_attention_layernorm")):
            tensors[f"model.layers.{i}.{place}.weight"] = arrays[f"{i}.{name}"]
        for name, place in {
            **dict.fromkeys("qkvo", "self_attn"),
            **dict.fromkeys(("gate", "up", "down"), "mlp"),
        }.items():
            tensors[f"model.layers.{i}.{place}.{name}_proj.weight"] = np.ascontiguousarray(arrays[f"{i}.{name}"].T)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    config = {
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": c["hidden"], "intermediate_size": c["inner"],
        "num_hidden_layers": c["layers"], "num_attention_heads": c["heads"], "num_key_value_heads": c["kv_heads"],
        "head_dim": c["size"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": c["context"],
        "eos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names = list(tensors)
    if parts == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return tensors
    files = {name: f"model-{i % parts}.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        write_safetensors(folder / file, {name: tensors[name] for name in names if files[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    return tensors


@pytest.mark.sample(0)
@pytest.mark.parametrize("parts", [3, 1])
def test_the_same_model_in_onnx(parts: int, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "weights", parts)
    found, expected = (
        generate.load(folder, cache=False) for folder in (tmp_path / "weights", write_genai(tmp_path / "onnx"))
    )
    prompts = [[5, 9, 33, 7, 2, 80, 41], [3, 4], [300, 17, 6, 6, 9]]
    tokens = [model.generator(batch=3, max_new_tokens=12).generate(*prompts) for model in (found, expected)]
    assert tokens[0] == tokens[1]
    engine = found.engine(slots=2)
    requests = [engine.add(prompt, max_new_tokens=12) for prompt in prompts]
    assert len(list(engine.run())) == 3
    assert [request.sequence[len(request.prompt) :] for request in requests] == tokens[0]


@pytest.mark.sample(0)
def test_known_models_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is asked by the content of the files; a change of one is another model."""
    write_checkpoint(tmp_path / "a", parts=3)
    imported = []

    def counted(weights: Path, *others: Any) -> Any:
        imported.append(weights)
        return import_checkpoint(weights, *others)

    monkeypatch.setattr("mirlo_llm.generate.checkpoints.decoder.import_checkpoint", counted)
    monkeypatch.setattr("mirlo.driver.build.MIN_COMPILE_SECONDS", 0)
    # What other tests of this process extended is no part of this model.
    monkeypatch.setattr("mirlo.driver.model_cache.extended", lambda target: None)
    tokens = []
    for changed in (None, None, "config.json", "model-1.safetensors"):
        if changed == "config.json":
            path = tmp_path / "a" / changed
            path.write_text(json.dumps({**json.loads(path.read_text()), "rms_norm_eps": 0.5}), encoding="utf-8")
        elif changed:
            content = bytearray((tmp_path / "a" / changed).read_bytes())
            content[-1] ^= 1
            (tmp_path / "a" / changed).write_bytes(content)
        model = generate.load(tmp_path / "a", cache=tmp_path / "cache")
        tokens.append(model.generator(max_new_tokens=12).generate([5, 9, 33]))
    assert len(imported) == 3 and tokens[0] == tokens[1] != tokens[2]


def test_what_is_refused(tmp_path: Path) -> None:
    tensors = write_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    key = "model.layers.0.mlp.up_proj.weight"

    def refusal(changes: dict[str, Any], others: dict[str, np.ndarray] | None = None) -> str:
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
        write_safetensors(tmp_path / "model.safetensors", tensors if others is None else others)
        with pytest.raises(ModelFolderError) as caught:
            generate.load(tmp_path, model_impl="mirlo", cache=False)
        return str(caught.value)

    assert "'model_type': 'bert' is not an architecture that is read from weights: deepseek_v2" in refusal(
        {"model_type": "bert"}
    )
    assert "'num_key_value_heads': 4 heads do not divide into 3 groups" in refusal({"num_key_value_heads": 3})
    assert "expected default, linear, llama3, longrope, mrope or yarn, found 'other'" in refusal(
        {"rope_scaling": {"rope_type": "other", "factor": 2.0}}
    )
    assert "'layer_types': expected 'full_attention'" in refusal({"layer_types": ["full_attention", {}]})
    text = (
        "tensor 'model.layers.0.mlp.gate_proj.weight': expected [161, 64] of f32, f16 or bf16, found float32[160, 64]"
    )
    assert text in refusal({"intermediate_size": 161})
    assert f"there is no tensor '{key}'" in refusal({}, {name: each for name, each in tensors.items() if name != key})
    assert "1 tensors are not those of the architecture, such as 'more'" in refusal(
        {}, {**tensors, "more": tensors[key]}
    )
    for name in ("../model.safetensors", "/etc/passwd", "a/b.safetensors"):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {key: name}}))
        assert "names of .safetensors files in the folder" in refusal({})


def test_damaged_files(tmp_path: Path) -> None:
    """A file cut short or with bytes changed is read or refused with our error."""
    write_checkpoint(tmp_path)
    path, random = tmp_path / "model.safetensors", np.random.default_rng(0)
    whole = path.read_bytes()
    refused = 0
    for trial in range(200):
        damaged = bytearray(whole)
        if trial % 3 == 0:
            del damaged[random.integers(len(whole)) :]
        else:
            for at in random.integers(2000, size=trial % 3):
                damaged[at] = random.integers(256)
        path.write_bytes(damaged)
        try:
            read_checkpoint(path)
        except ModelFolderError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 80


def test_damaged_configurations(tmp_path: Path) -> None:
    """A configuration with other values gives a graph or is refused with our error."""
    write_checkpoint(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}, "layer_types": ["full_attention"] * 2}
    config |= {"sliding_window": 4, "hidden_act": "silu", "tie_word_embeddings": False, "partial_rotary_factor": 1.0}
    import_checkpoint(tmp_path / "model.safetensors", path)
    latent = {**SMALL, **LATENT, "model_type": "deepseek_v3", "rope_parameters": {**YARN, "mscale_all_dim": 1.0}}
    latent |= {"norm_topk_prob": True, "n_shared_experts": 1, "num_nextn_predict_layers": 1, "moe_layer_freq": 1}
    chunked = {**SMALL, **MIXED, "model_type": "llama4_text", "moe_layers": [0], "no_rope_layers": [1, 0, 1]}
    chunked |= {"layer_types": ["chunked_attention"] * 3, "attn_temperature_tuning": True, "use_qk_norm": True}
    for whole in (config, latent, chunked):
        path.write_text(json.dumps(whole), encoding="utf-8")
        read_options(read_json(path))
        for key in whole:
            for value in HOSTILE:
                path.write_text(json.dumps({**whole, key: value}), encoding="utf-8")
                try:
                    read_options(read_json(path))
                except ModelFolderError as error:
                    assert str(path) in str(error)


HOSTILE: list[Any] = [
    None, -1, 0, 1, 3, 2**40, 1e300, -0.5, True, "", "gelu", [], [[]], ["full_attention", {}], {}, {"factor": 0},
    {"rope_type": "yarn", "factor": 1e300, "mscale_all_dim": 1e300},
]  # fmt: skip


def test_mixtures_that_are_refused(tmp_path: Path) -> None:
    """What the router of DeepSeek would not do as the file says is an error."""
    latent = {**SMALL, **LATENT, "model_type": "deepseek_v3"}
    for changes, expected in (
        ({"topk_method": "greedy"}, "'topk_method': expected noaux_tc, found 'greedy'"),
        ({"scoring_func": "softmax"}, "'scoring_func': expected sigmoid, found 'softmax'"),
        ({"n_group": 3}, "'n_group': 3 of 8 experts are not in 2 of 3 groups"),
        ({"num_experts_per_tok": 5}, "'n_group': 5 of 8 experts are not in 2 of 4 groups"),
        ({"moe_layer_freq": 2}, "'moe_layer_freq': only 1 is supported"),
        ({"qk_rope_head_dim": 7}, "no rotation of 7 of 7 elements"),
        ({"model_type": "deepseek_v2"}, "'topk_method': expected greedy or group_limited_greedy"),
        (
            {"model_type": "deepseek_v2", "topk_method": "greedy", "norm_topk_prob": True},
            "'norm_topk_prob': only false is supported",
        ),
    ):  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps({**latent, **changes}), encoding="utf-8")
        with pytest.raises(ModelFolderError) as caught:
            read_options(read_json(tmp_path / "config.json"))
        assert expected in str(caught.value)


def test_caches_hold_latents(tmp_path: Path) -> None:
    """A layer has one cache with one row a token; sequences in batches and engines get the tokens they get alone."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    options = {**SMALL, **LATENT, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
    config = transformers.AutoConfig.for_model("deepseek_v3", **options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    tensors = read_checkpoint(tmp_path / "model.safetensors")
    write_safetensors(
        tmp_path / "model.safetensors", {**tensors, "model.layers.2.enorm.weight": np.ones(32, np.float32)}
    )
    prompts = [[5, 9, 33, 7, 2, 80, 41], [3, 4], [30, 17, 6, 6, 9]]
    for kind in (None, "i8"):
        model = generate.load(tmp_path, cache=False, kv_cache_dtype=kind)
        caches = [spec for spec in model.executable.inputs if spec.name.endswith(".key")]
        assert [spec.shape[1::2] for spec in caches] == [(1, 32)] * 2
        alone = [model.generator(max_new_tokens=6).generate(prompt) for prompt in prompts]
        assert model.generator(batch=3, max_new_tokens=6).generate(*prompts) == alone
        engine = model.engine(slots=2)
        requests = [engine.add(prompt, max_new_tokens=6) for prompt in prompts]
        assert len(list(engine.run())) == 3
        assert [request.sequence[len(request.prompt) :] for request in requests] == alone
