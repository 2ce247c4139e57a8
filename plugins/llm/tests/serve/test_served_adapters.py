"""LoRA adapters of a served model: requests choose them by name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "tokenizers", "jinja2"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm import generate  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.errors import ServeError  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_adapters, parse_models  # noqa: E402
from served import load_failure, ready_client, write_language_model, write_tensor_model  # noqa: E402
from test_adapted_weights import write_adapter  # noqa: E402
from test_checkpoints import write_checkpoint  # noqa: E402

NAMES = ("tiny", "first", "second")
PROMPT = "the quick brown fox"


def write_model(folder: Path) -> tuple[Path, dict[str, Path]]:
    """Write a model of weights with a tokenizer, and two adapters."""
    weights = write_checkpoint(folder / "tiny")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(write_language_model(folder / "tokenizer") / file, folder / "tiny" / file)
    adapters = {}
    for seed, name in enumerate(NAMES[1:]):
        random, tensors = np.random.default_rng(seed), {}
        for layer in range(2):
            module = f"model.layers.{layer}.mlp.down_proj"
            rows, depth = weights[f"{module}.weight"].shape
            for matrix, shape in (("A", (3, depth)), ("B", (rows, 3))):
                array = random.standard_normal(shape).astype(np.float32)
                tensors[f"base_model.model.{module}.lora_{matrix}.weight"] = array
        adapters[name] = write_adapter(folder / name, tensors)
    return folder / "tiny", adapters


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    return write_model(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def client(files: tuple[Path, dict[str, Path]]) -> Iterator[Any]:
    folder, adapters = files
    sources = parse_adapters([f"{name}={path}" for name, path in adapters.items()], parse_models([str(folder)]))
    with ready_client(Server(sources, ServeOptions(max_tokens=8, max_prompt_tokens=64))) as running:
        yield running


def test_requests_choose_adapters(client: Any, files: tuple[Path, dict[str, Path]]) -> None:
    folder, adapters = files

    def answer(name: str) -> str:
        body = {"model": name, "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True}
        text: str = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
        return text

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(answer, NAMES * 2))
    model = generate.load(folder, adapters=adapters)
    for i, name in enumerate(NAMES * 2):
        generator = model.generator(adapter=None if name == "tiny" else name, max_new_tokens=8, min_length=1000)
        assert answers[i] == "".join(generator.stream(PROMPT))
    assert len(set(answers)) == 3


def test_adapters_are_listed(client: Any) -> None:
    listed = {model["id"]: model.get("parent") for model in client.get("/v1/models").json()["data"]}
    assert listed == {"tiny": None, "first": "tiny", "second": "tiny"}
    assert client.get("/v1/models/second").json()["parent"] == "tiny"
    tokens = client.post("/tokenize", json={"model": "first", "prompt": PROMPT}).json()["tokens"]
    assert tokens == client.post("/tokenize", json={"model": "tiny", "prompt": PROMPT}).json()["tokens"]
    missing = client.post("/v1/completions", json={"model": "third", "prompt": PROMPT})
    assert missing.status_code == 404 and "there are: tiny, first, second" in missing.json()["error"]["message"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("first", "expected NAME=PATH"),
        ("first=none", "none: there is no such file"),
        ("tiny={}", "a model or an adapter is named 'tiny' already"),
        ("other:first={}", "there is no model 'other'"),
        ("a b={}", "expected NAME=PATH"),
    ],
)
def test_wrong_adapters(files: tuple[Path, dict[str, Path]], text: str, message: str) -> None:
    folder, adapters = files
    with pytest.raises(ServeError, match=message):
        parse_adapters([text.format(adapters["first"])], parse_models([str(folder)]))


def test_adapters_of_several_models(files: tuple[Path, dict[str, Path]], tmp_path: Path) -> None:
    folder, adapters = files
    models = parse_models([f"a={folder}", f"b={write_tensor_model(tmp_path / 'sum.onnx')}"])
    with pytest.raises(ServeError, match="MODEL:NAME=PATH for several models"):
        parse_adapters([f"first={adapters['first']}"], models)
    sources = parse_adapters([f"b:first={adapters['first']}"], models)
    assert [list(source.adapters) for source in sources] == [[], ["first"]]
    assert "adapters are for language models of a decoder" in load_failure(Server(sources[1:], ServeOptions()))
    assert parse_adapters([], models) == models
