"""Models by the code of transformers: they compute what transformers does, and a compiled one needs neither package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_llm import generate
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.traced import sources
from safetensors_file import write_safetensors

pytest.importorskip("mirlo.benchmarks", reason="needs a clone of the repository")

from mirlo.benchmarks.llm.architectures import ARCHITECTURES, compare, tiny_model  # noqa: E402

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SAMPLE = ("olmo3", "gpt_oss", "mamba2", "lfm2")
"""Windows, experts with sinks, a recurrent state, convolutions."""
REFUSED = ("rwkv",)
PAGED = ("gpt_oss", "qwen3_moe", "gemma3_text")
"""Sinks and windows, experts, two kinds of layers."""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_architectures(name: str, tmp_path: Path) -> None:
    found = compare(name, tmp_path)
    assert found.is_right, found


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - {*SAMPLE, *REFUSED}))
def test_architectures(name: str, tmp_path: Path) -> None:
    """The table of `python -m benchmarks.llm.architectures`."""
    found = compare(name, tmp_path)
    assert found.is_right, found


def test_what_cannot_be_exported_names_the_line(tmp_path: Path) -> None:
    tiny_model("rwkv").save_pretrained(tmp_path)
    with pytest.raises(ModelFolderError, match=r"torch.export cannot trace RwkvForCausalLM: \S*modeling_rwkv.py:\d+: "):
        generate.load(tmp_path, cache=False)


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.sample(0)) for each in PAGED] + ["olmo3"])
def test_caches_in_pages(name: str, tmp_path: Path) -> None:
    """Packed tokens with caches in pages have the logits and the tokens of contiguous caches, alone and together."""
    tiny_model(name).save_pretrained(tmp_path)
    options: dict[str, Any] = {"cache": False, "model_impl": "transformers"}
    whole = generate.load(tmp_path, prefix_bytes=0, **options)
    paged = generate.load(tmp_path, pages=40, **options)
    assert paged.executable.artifact.pages and not whole.executable.artifact.pages
    random = np.random.default_rng(0)
    prompts = [random.integers(3, 96, length).tolist() for length in (3, 70, 37)]
    search: dict[str, Any] = {"max_new_tokens": 12, "min_length": 1000, "chunk_size": 16}
    engine = paged.engine(slots=2)
    requests = [engine.add(prompt, **search) for prompt in prompts]
    for prompt, request in zip(prompts, requests, strict=True):
        generators = [model.generator(**search) for model in (whole, paged)]
        for generator in generators:
            generator.append(prompt)
        logits, own = (generator.logits() for generator in generators)
        assert np.abs(logits - own).max() < 1e-4 * max(1, logits.std())
        expected, tokens = (generator.generate() for generator in generators)
        assert tokens == expected == request.result()


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lfm2", "the state '0.conv_state' of a layer cannot be in pages"),
        ("deepseek_v3", "reads the rows of caches in pages, which only other operators of its kind read"),
        ("bloom", "the model computes positions from a mask, which caches in pages have not"),
    ],
)
def test_what_cannot_be_in_pages_is_named(name: str, message: str, tmp_path: Path) -> None:
    tiny_model(name).save_pretrained(tmp_path)
    with pytest.raises(ModelFolderError, match=message):
        generate.load(tmp_path, cache=False, model_impl="transformers", pages=8)


def test_windows_of_masks() -> None:
    from mirlo_llm.generate.traced.interfaces import window_of

    masks: dict[str, Callable[..., Any]] = {
        "all": lambda batch, head, token, key: key <= token,
        "window": lambda batch, head, token, key: (key <= token) & (key > token - 5),
        "chunks": lambda batch, head, token, key: (key <= token) & (key // 5 == token // 5),
        "later": lambda batch, head, token, key: key <= token + 1,
    }
    assert window_of(masks["all"]) == 0 and window_of(masks["window"]) == 5
    for name, message in (("chunks", "window differs by token"), ("later", "no window of tokens")):
        with pytest.raises(NotImplementedError, match=message):
            window_of(masks[name])


LOADED = """
import sys
from mirlo import generate
model = generate.load(sys.argv[1], cache=sys.argv[2])
print(*model.generator(max_new_tokens=5).generate([5, 9, 33]))
print(*[name for name in ("torch", "transformers") if name in sys.modules])
"""


def test_a_compiled_model_needs_neither_package(tmp_path: Path) -> None:
    """The key of the cache has their versions and the files of the code.

    Both processes are new ones: nothing is kept of a process in which other tests extend the compiler.
    """
    folder = tmp_path / "model"
    tiny_model("olmo3").save_pretrained(folder)
    command = [sys.executable, "-c", LOADED, str(folder), str(tmp_path / "cache")]
    cold, warm = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() for _ in range(2)
    )
    assert cold[1] == "torch transformers"
    assert warm == [cold[0], ""]


def test_mirlo_has_architectures_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transformers, and where the caller asks for it, other architectures are refused."""
    tiny_model("olmo3").save_pretrained(tmp_path)
    with pytest.raises(ModelFolderError, match="'olmo3' is not an architecture that is read from weights"):
        generate.load(tmp_path, model_impl="mirlo", cache=False)
    with pytest.raises(generate.GenerationError, match="model_impl: expected auto, mirlo, transformers, found 'vllm'"):
        generate.load(tmp_path, model_impl="vllm", cache=False)
    monkeypatch.setattr(sources, "versions", lambda: None)
    with pytest.raises(ModelFolderError, match=r"needs transformers' code: pip install 'mirlo-llm\[transformers\]'"):
        generate.load(tmp_path, cache=False)


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class DoubledConfig(LlamaConfig):
    model_type = "doubled"

class DoubledForCausalLM(LlamaForCausalLM):
    config_class = DoubledConfig

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 2
        return output
"""


def test_code_of_the_folder_runs_where_the_caller_asks_for_it(tmp_path: Path) -> None:
    model = tiny_model("llama")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    names = {"AutoConfig": "doubled.DoubledConfig", "AutoModelForCausalLM": "doubled.DoubledForCausalLM"}
    config = json.loads(path.read_text()) | {"model_type": "doubled", "auto_map": names}
    path.write_text(json.dumps(config))
    (tmp_path / "doubled.py").write_text(f"print('the code ran', file=open({str(tmp_path / 'ran')!r}, 'w'))\n{CODE}")
    with pytest.raises(ModelFolderError, match="code of its own, which runs with --trust-remote-code"):
        generate.load(tmp_path, cache=False)
    assert not (tmp_path / "ran").exists()
    generator = generate.load(tmp_path, trust_remote_code=True, cache=False).generator()
    generator.append([5, 9, 33])
    with torch.no_grad():
        expected = 2 * model(torch.tensor([[5, 9, 33]])).logits[0, -1].numpy()
    np.testing.assert_allclose(generator.logits().reshape(-1), expected, rtol=1e-4, atol=1e-4)


SCALED = """
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

class ScaledConfig(LlamaConfig):
    model_type = "scaled"

class ScaledLayer(LlamaDecoderLayer):
    def forward(self, hidden_states, *args, **kwargs):
        return super().forward(hidden_states * SCALE, *args, **kwargs)

class ScaledForCausalLM(LlamaForCausalLM):
    config_class = ScaledConfig

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            number, layer.__class__ = layer.self_attn.layer_idx, ScaledLayer
            INIT
"""


def logits_of(code: str, folder: Path) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the logits of a model whose code is in its folder, those of transformers, and its layers that are traced.

    `code` defines the class of a layer; the model has six of them.
    """
    model = tiny_model("llama", num_hidden_layers=6)
    model.save_pretrained(folder)
    path = folder / "config.json"
    names = {"AutoConfig": "scaled.ScaledConfig", "AutoModelForCausalLM": "scaled.ScaledForCausalLM"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "scaled", "auto_map": names}))
    (folder / "scaled.py").write_text(code)
    traced: list[int] = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: traced.append(module.layer_idx) if type(module).__name__ == "LlamaAttention" else None
    )
    try:
        generator = generate.load(folder, trust_remote_code=True, cache=False).generator()
    finally:
        hook.remove()
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
    generator.append([5, 9, 33])
    with torch.no_grad():
        expected = own(torch.tensor([[5, 9, 33]])).logits[0, -1].numpy()
    return generator.logits().reshape(-1), expected, traced[model.config.num_hidden_layers :]  # after those for states


@pytest.mark.parametrize(
    ("scale", "init", "traced"),
    [
        ("1.5", "pass", [0, 5]),
        ("self.scale", "layer.scale = 1.5 if number == 2 else 1.25", [0, 2, 5]),
        ("(1.0 + 0.1 * self.self_attn.layer_idx)", "pass", [0, 5, *range(6)]),
        ("self.scale", "layer.scale = [0.5, 1.5, 0.75, 1.25, 2.5, 0.25][number]", [*range(6)]),
    ],
    ids=["equal", "one-differs", "numbers-are-used", "all-differ"],
)  # fmt: skip
def test_equal_layers_are_traced_once(scale: str, init: str, traced: list[int], tmp_path: Path) -> None:
    """The first is compared with the last; where they differ, all are traced."""
    found, expected, layers = logits_of(SCALED.replace("SCALE", scale).replace("INIT", init), tmp_path)
    assert layers == traced
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_wrong_tensors(tmp_path: Path) -> None:
    """A tensor that is missing, one of another shape, and one that a layer lacks are errors."""
    model = tiny_model("olmo3")
    model.save_pretrained(tmp_path)
    arrays = {name: each.detach().numpy() for name, each in model.state_dict().items()}
    norm = "model.layers.1.self_attn.q_norm.weight"

    def load(tensors: dict[str, Any]) -> None:
        write_safetensors(tmp_path / "model.safetensors", tensors)
        generate.load(tmp_path, cache=False)

    with pytest.raises(ModelFolderError, match=f"there is no tensor '{norm}', which the architecture needs"):
        load({name: each for name, each in arrays.items() if name != norm})
    with pytest.raises(ModelFolderError, match=rf"tensor '{norm}': expected \[64\], found \[63\]"):
        load(arrays | {norm: np.ones(63, np.float32)})
    with pytest.raises(ModelFolderError, match=r"self_attn.q_proj.bias' is not one of the architecture"):
        load(arrays | {"model.layers.1.self_attn.q_proj.bias": np.ones(64, np.float32)})


def test_embeddings_see_what_transformers_lets_them_see(tmp_path: Path) -> None:
    """Rows of a batch with padding, of tokens that see those after them."""
    config = transformers.AutoConfig.for_model(
        "olmo3", vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, is_causal=False, sliding_window=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 5}, "unk_token": "a"}})
    )
    texts = [[5, 9, 33, 7, 8, 60, 4, 4, 19], [40, 41]]
    found = generate.load_embedding(tmp_path, pooling="mean", normalize=False, cache=False).embed_tokens(texts)
    with torch.no_grad():
        expected = [model(torch.tensor([each])).last_hidden_state[0].mean(0).numpy() for each in texts]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
