"""LoRA adapters, inputs of the model that files fill, against ONNX Runtime; files that are damaged or do not fit."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from folders import (
    VOCABULARY,
    OnDemand,
    continued,
    exact,
    lora_name,
    lora_tensors,
    write_adapter,
    write_genai,
    write_lora,
)  # fmt: skip
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel, ModelFolderError
from mirlo_llm.generate.adapter_file import read_adapter
from safetensors_file import write_safetensors

from mirlo.extend.runtime import terminal_lines

KINDS = {"optional": {}, "u4": {"bits": 4}, "required": {"is_optional": False}}
ADAPTERS = {"a": (4, 1, "qv"), "b": (7, 2, "qv"), "queries": (3, 3, "q")}
"""Rank, seed and products of each adapter."""


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(2, VOCABULARY, length)]


def peft(tensors: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """Return tensors as PEFT has them: transposed, B without the scale."""
    return {
        f"base_model.model.{name}": np.ascontiguousarray(array.T / (scale if "lora_B" in name else 1))
        for name, array in tensors.items()
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: write_adapter(folder / f"{name}.onnx_adapter", lora_tensors(*row)) for name, row in ADAPTERS.items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")

    def load(kind: str) -> LanguageModel:
        known = {name: path for name, path in files.items() if kind != "required" or name != "queries"}
        written = write_lora(folder / kind, **KINDS[kind])
        return generate.load(written, adapters=known, prefix_bytes=0, **exact(kind))

    return OnDemand(load)


def search(count: int) -> dict[str, int]:
    return {"min_length": 1000, "max_new_tokens": count}


def expected_of(model: LanguageModel, prompt: list[int], count: int, adapter: str | None) -> list[int]:
    """Return the tokens that ONNX Runtime gives."""
    constants = {} if adapter is None else lora_tensors(*ADAPTERS[adapter])
    if adapter == "queries":  # names of equal dims are not checked there, and are here
        rank, seed, _ = ADAPTERS[adapter]
        zeros = {name: np.zeros_like(array) for name, array in lora_tensors(rank, seed, "v").items()}
        constants |= zeros
    return continued(model.config.model, prompt, count, constants, without=model.config.ends)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adapter", (*ADAPTERS, None))
def test_tokens_are_those_of_onnxruntime(models: dict[str, LanguageModel], kind: str, adapter: str | None) -> None:
    model, prompt = models[kind], prompt_of(9)
    if kind == "required" and adapter in (None, "queries"):
        expected = "the model needs one" if adapter is None else "there is none named 'queries'"
        with pytest.raises(GenerationError, match=expected):
            model.generator(adapter=adapter)
        return
    found = model.generator(adapter=adapter, **search(16)).generate(prompt)
    assert found == expected_of(model, prompt, 16, adapter)


def test_adapters_change_tokens(models: dict[str, LanguageModel]) -> None:
    model, prompt = models["optional"], prompt_of(9)
    made = [model.generator(adapter=name, **search(16)).generate(prompt) for name in (None, *ADAPTERS)]
    assert len({tuple(tokens) for tokens in made}) == 4


def test_models_with_adapters_guess_without_one(models: dict[str, LanguageModel]) -> None:
    model, prompt = models["optional"], prompt_of(9)
    for name in (None, "a"):
        generator = model.generator(adapter=name, draft=model, draft_tokens=3, **search(16))
        assert generator.generate(prompt) == expected_of(model, prompt, 16, name)


def test_generators_have_adapters_of_their_own(models: dict[str, LanguageModel]) -> None:
    """Generators take turns; forks and batches keep the adapter."""
    model, prompt = models["optional"], prompt_of(5)
    generators = {name: model.generator(adapter=name, **search(12)) for name in ("a", None, "b")}
    for generator in generators.values():
        generator.append(prompt)
    for _ in range(6):
        for generator in generators.values():
            generator.next()
    for name, generator in generators.items():
        expected = expected_of(model, prompt, 12, name)
        assert generator.fork().generate() == expected == generator.generate()
        assert model.generator(2, adapter=name, **search(12)).generate(prompt, prompt) == [expected] * 2


def test_requests_with_adapters(models: dict[str, LanguageModel]) -> None:
    """Sequences of different adapters run side by side, and take over nothing from each other."""
    model, prompt = models["optional"], prompt_of(20)
    engine = model.engine(slots=3)
    names = ["a", None, "b", "a", "queries", None, "a"]
    requests = [engine.add([*prompt, 2 + i], adapter=name, **search(8)) for i, name in enumerate(names)]
    for i, (request, name) in enumerate(zip(requests, names, strict=True)):
        assert request.result() == model.generator(adapter=name, **search(8)).generate([*prompt, 2 + i])
    assert requests[3].reused_tokens == 20 and requests[2].reused_tokens == 0
    with pytest.raises(GenerationError, match="there is none named 'c'"):
        engine.add(prompt, adapter="c")


@pytest.mark.sample(0)
@pytest.mark.parametrize(("alpha", "by_root"), ((8, False), (3, False), (6, True)))
@pytest.mark.parametrize("dtype", (np.float32, np.float16, ml_dtypes.bfloat16))
def test_files_of_peft(tmp_path: Path, alpha: int, by_root: bool, dtype: Any) -> None:
    """Names, orientation and scale are those that PEFT writes; values are those of the file."""
    rank = 4
    scale = alpha / (rank**0.5 if by_root else rank)
    stored = {name: array.astype(dtype) for name, array in peft(lora_tensors(rank, 5), scale).items()}
    write_safetensors(
        tmp_path / "adapter_model.safetensors", stored, peft_type="LORA", lora_alpha=alpha, r=rank, use_rslora=by_root
    )
    given = {}
    for name, array in stored.items():
        values = array.astype(np.float32)
        scaled = (values * np.float32(scale)).astype(dtype).astype(np.float32) if "lora_B" in name else values
        given[name.removeprefix("base_model.model.")] = np.ascontiguousarray(scaled.T)
    for path in (tmp_path, tmp_path / "adapter_model.safetensors"):
        model = generate.load(write_lora(tmp_path / "model"), adapters={"x": path})
        assert model.generator(adapter="x", **search(10)).generate(prompt_of(6)) == continued(
            model.config.model, prompt_of(6), 10, given, without=model.config.ends
        )


@pytest.mark.sample(0)
def test_safetensors_with_the_names_of_inputs(tmp_path: Path, models: dict[str, LanguageModel]) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", lora_tensors(*ADAPTERS["a"]))
    model = generate.load(write_lora(tmp_path / "model"), adapters={"x": path})
    found = model.generator(adapter="x", **search(10)).generate(prompt_of(6))
    assert found == models["optional"].generator(adapter="a", **search(10)).generate(prompt_of(6))


def wrong(change: Any) -> dict[str, np.ndarray]:
    tensors = lora_tensors(4, 1)
    change(tensors)
    return tensors


A = lora_name(0, "q", "A")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("change", "is_optional", "message"),
    (
        (lambda t: t.update({"x.weight": t.pop(A)}), True, "the model has no input for the tensors 'x.weight'"),
        (lambda t: t.pop(A), False, f"the adapter has no tensors for the inputs '{A}'"),
        (lambda t: t.update({A: t[A][:-1]}), True, rf"tensor '{A}': expected the shape of input .*, found \[63, 4\]"),
        (lambda t: t.update({A: t[A][:, :3]}), True, r"with lora_r = 3, found"),
        (lambda t: t.update({A: t[A].reshape(-1)}), True, r"found \[256\]"),
        (lambda t: t.update({A: t[A].astype(np.int32)}), True, f"tensor '{A}': expected f32, found i32"),
    ),
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: Any, is_optional: bool, message: str) -> None:
    paths = {"good": lora_tensors(4, 1), "x": wrong(change)}
    files = {name: write_adapter(tmp_path / name, tensors) for name, tensors in paths.items()}
    with pytest.raises(ModelFolderError, match=message):
        generate.load(write_lora(tmp_path / "model", is_optional=is_optional), adapters=files)


@pytest.mark.sample(0)
def test_models_without_inputs_for_adapters(tmp_path: Path, files: dict[str, Path]) -> None:
    folder = write_genai(tmp_path / "plain")
    with pytest.raises(
        ModelFolderError, match=r"no input for the tensors '.*' and 3 more; its inputs of adapters: none"
    ):
        generate.load(folder, adapters=files)
    model = generate.load(folder)
    with pytest.raises(GenerationError, match="adapter: there is none named 'a'; load\\(adapters=...\\) names none"):
        model.generator(adapter="a")
    # A model whose adapters are optional is the base model without them.
    base = generate.load(write_lora(tmp_path / "lora"))
    assert base.generator(**search(9)).generate([3, 4]) == model.generator(**search(9)).generate([3, 4])
    with pytest.raises(ModelFolderError, match=r"is not known: .*inputs for adapters need load\(adapters=...\)"):
        generate.load(write_lora(tmp_path / "required", is_optional=False))


@pytest.mark.parametrize(
    ("config", "message"),
    (
        (None, "adapter_config.json is missing beside it"),
        ({"peft_type": "LOHA"}, "'peft_type': expected LORA, found 'LOHA'"),
        ({"use_dora": True}, "'use_dora': DoRA adapters are not supported"),
        ({"alpha_pattern": {"q_proj": 3}}, "'alpha_pattern': scales by module"),
        ({"lora_alpha": "x"}, "'lora_alpha': expected a finite number"),
    ),
)
def test_configurations_of_peft(tmp_path: Path, config: dict[str, Any] | None, message: str) -> None:
    write_safetensors(tmp_path / "adapter_model.safetensors", peft(lora_tensors(2, 0), 1), **(config or {}))
    with pytest.raises(ModelFolderError, match=message):
        read_adapter(tmp_path)


@pytest.mark.sample(0)
def test_command(tmp_path: Path, files: dict[str, Path]) -> None:
    from folders import example

    from mirlo.extend.command import main

    folder = write_lora(tmp_path / "model")
    example().write_tokenizer(folder)
    model = generate.load(folder, adapters={"a": files["a"]})
    expected = "".join(model.generator(adapter="a", max_new_tokens=9).stream("the dog"))
    lines = tmp_path / "lines"
    lines.write_text('"the dog"', encoding="utf-8")
    flags = ["--adapter", str(files["a"]), "--max-new-tokens", "9"]
    found = []
    for prompt in (["the dog"], ["--prompts", str(lines)]):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["generate", str(folder), *prompt, *flags]) == 0
        found.append(out.getvalue())
    assert found[0] == f"{terminal_lines(expected)}\n" and json.loads(found[1])["text"] == expected


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"first.lora_A": np.ones((3, 2), np.float32)})
    tracemalloc.start()
    read_adapter(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20


def test_no_adapter(tmp_path: Path) -> None:
    for content in (b"", b"x" * 100):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ModelFolderError, match="expected an adapter: a file"):
            read_adapter(tmp_path / "x")
    with pytest.raises(ModelFolderError, match="No such file"):
        read_adapter(tmp_path / "none")


@pytest.mark.parametrize("kind", ("onnx_adapter", "safetensors"))
def test_damaged_files_are_errors(tmp_path: Path, kind: str) -> None:
    """Whatever bytes a file has, it is read or refused, and takes no more memory than its size."""
    random, path = np.random.default_rng(0), tmp_path / f"x.{kind}"
    tensors = {"first.lora_A": np.ones((3, 2), np.float32), "second": np.ones((0, 5), np.float16)}
    content = (write_adapter if kind == "onnx_adapter" else write_safetensors)(path, tensors).read_bytes()
    values = [0, 1, 2, 0x7F, 0x80, 0xFF]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3000):
        changed = bytearray(content)
        for _ in range(int(random.integers(1, 4))):
            place, action = int(random.integers(len(changed))), random.integers(4)
            if action == 0:
                changed[place] = int(random.choice(values))
            elif action == 1:
                changed[place : place + 4] = int(random.integers(1 << 32)).to_bytes(4, "little")
            elif action == 2:
                del changed[place : place + int(random.integers(1, 9))]
            else:
                changed[place:place] = bytes(int(random.integers(1, 9)))
            if not changed:
                changed = bytearray(content)
        path.write_bytes(changed)
        try:
            found = read_adapter(path)
        except ModelFolderError as error:
            assert str(path) in str(error)
            outcomes["refused"] += 1
        else:
            assert sum(array.nbytes for array in found.tensors.values()) <= len(changed)
            outcomes["read"] += 1
    assert min(outcomes.values()) > 30


def test_headers_that_lie(tmp_path: Path) -> None:
    def written(header: Any, data: bytes = b"") -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return tmp_path / "x.safetensors"

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header, data, message in (
        (b"[" * 5000, b"", "its header is no JSON"),
        ({"a": entry}, b"", "'a.data_offsets': bytes 0 to 8 are not"),
        ({"a": entry | {"shape": [1 << 61, 8]}}, bytes(8), "dims from 0 to"),
        ({"a": entry | {"shape": [1 << 19, 8]}}, bytes(8), "takes 16777216 bytes, found 8"),
        ({"a": entry | {"shape": [-1]}}, bytes(8), "'a.shape': expected a list of integers"),
        ({"a": entry | {"dtype": "F4"}}, bytes(8), "'a.dtype': expected one of"),
        ({"a": entry | {"data_offsets": [8, 0]}}, bytes(8), "bytes 8 to 0"),
        ({"a": entry, "b": entry}, bytes(8), "bytes 0 to 8 are not"),  # would take memory twice
    ):
        with pytest.raises(ModelFolderError, match=message):
            read_adapter(written(header, data))
