"""`mirlo quantize FOLDER`: the formulas of GPTQ and AWQ, what folders hold afterwards, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import example
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.decoder import read_decoder
from mirlo_llm.generate.checkpoints.safetensors import parse_safetensors
from mirlo_llm.quantize.awq import ReadRows, channel_folds, scale_channels, search_factors
from mirlo_llm.quantize.decoder_layers import DecoderLayer, LayerRunner, decoder_layers
from mirlo_llm.quantize.gptq import quantize_gptq
from mirlo_llm.quantize.grid import choose_grid, quantize_nearest
from safetensors_file import write_safetensors
from test_checkpoints import KINDS, SMALL, write_checkpoint

from mirlo.extend.command import main
from mirlo.extend.quantize import Quantization


def nearest(weights: np.ndarray, bits: int, block: int) -> np.ndarray:
    """Return weights rounded to the grid between the least and the largest of each block, in f64."""
    top, blocks = (1 << bits) - 1, weights.astype(np.float64).reshape(len(weights), -1, block)
    low, high = (np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0))
    exact = (high - low) / top
    zero = np.rint(-low / exact)[..., None]
    scale = exact.astype(np.float16).astype(np.float64)[..., None]
    codes = np.clip(np.rint(blocks / scale) + zero, 0, top)
    return np.asarray(((codes - zero) * scale).reshape(weights.shape))


def rows_of_text(random: np.random.Generator, count: int, depth: int) -> np.ndarray:
    """Return rows whose channels depend on each other, and of which few are large."""
    mixed = random.standard_normal((count, depth)) @ random.standard_normal((depth, depth)) / np.sqrt(depth)
    return np.asarray((mixed * np.where(np.arange(depth) % 17 == 3, 8, 1)).astype(np.float32))


@pytest.mark.parametrize("bits, block", [(4, 32), (2, 16), (8, 64)])
def test_rounding(bits: int, block: int) -> None:
    weights = np.random.default_rng(bits).standard_normal((24, 128)).astype(np.float32)
    found = quantize_nearest(weights, Quantization(bits, block)).values()
    expected = nearest(weights, bits, block)
    different = np.abs(found - expected) > 1e-5  # at ties f32 and f64 differ
    assert different.mean() < 0.01 and np.abs(found - expected).max() <= np.abs(expected).max() / (1 << (bits - 1))


def test_blocks_without_negative_weights() -> None:
    """The code of 0 is from 1 on, as files hold what is one below."""
    weights = np.random.default_rng(0).uniform(0.5, 1, (4, 32)).astype(np.float32)
    found = quantize_nearest(weights, Quantization(4, 32))
    assert (found.zeros == 1).all() and found.codes.max() == 15
    assert np.abs(found.values() - weights).max() < 0.51 / 14


@pytest.mark.sample(0)
@pytest.mark.parametrize("symmetric", (False, True))
def test_gptq(symmetric: bool) -> None:
    """Each column is rounded, and the others take up its error by the inverse of H of the columns that are left."""
    random, how = np.random.default_rng(1), Quantization(4, 16, "gptq", symmetric)
    rows, weights = rows_of_text(random, 300, 160), random.standard_normal((12, 160)).astype(np.float32)
    hessian = rows.T.astype(np.float64) @ rows
    damped = hessian + 0.01 * np.diagonal(hessian).mean() * np.eye(160)
    left, expected = weights.astype(np.float64), np.empty((12, 160))
    for at in range(160):
        if at % 16 == 0:
            grid = choose_grid(left[:, None, at : at + 16].astype(np.float32), how)
        inverse = np.linalg.inv(damped[at:, at:])
        expected[:, at] = grid.values(grid.codes(left[:, at, None, None].astype(np.float32)))[:, 0, 0]
        left[:, at:] -= np.outer((left[:, at] - expected[:, at]) / inverse[0, 0], inverse[0])
    found = quantize_gptq(weights, hessian, how).values()
    assert np.mean(np.abs(found - expected) > 1e-4) < 0.01  # a tie that f32 breaks otherwise changes later columns

    def error(values: np.ndarray) -> float:
        return float(np.square(rows @ (values - weights).T).sum())

    assert error(found) < 0.6 * error(quantize_nearest(weights, how).values())
    assert error(found) < 1.05 * error(expected)


def test_gptq_of_channels_that_are_not_used() -> None:
    weights, hessian = np.random.default_rng(2).standard_normal((8, 64)).astype(np.float32), np.zeros((64, 64))
    how = Quantization(4, 32, "gptq")
    np.testing.assert_array_equal(
        quantize_gptq(weights, hessian, how).values(), quantize_nearest(weights, how).values()
    )


def first_layer(folder: Path) -> tuple[DecoderLayer, LayerRunner]:
    options, weights = read_decoder(folder / "model.safetensors", folder / "config.json")
    return next(iter(decoder_layers(options, weights))), LayerRunner(options, weights, 1)


def test_awq(tmp_path: Path) -> None:
    """Factors are powers of the mean magnitudes, with the exponent that changes products least."""
    write_checkpoint(tmp_path)
    layer, runner = first_layer(tmp_path)
    random, how = np.random.default_rng(3), Quantization(4, 16, "awq")
    rows = {name: rows_of_text(random, 200, layer.weights[f"{name}.weight"].shape[1]) for name in layer.reads}
    read = {}
    for name, array in rows.items():
        read[name] = ReadRows.empty(array.shape[1])
        for part in np.split(array, 4):
            read[name].add(part)
    folds = list(channel_folds(layer, runner.options))
    assert [len(fold.readers) for fold in folds] == [3, 2, 1, 1]  # q, k and v; gate and up; o; down
    for fold in (folds[0], folds[3]):
        x = rows[fold.readers[0]].astype(np.float64)
        for name in fold.readers:
            read[name] = read[fold.readers[0]]
        losses = []
        for step in range(20):
            factors = np.maximum(np.abs(x).mean(0) / np.abs(x).mean(0).max(), 1e-4) ** (step / 20)
            factors /= np.sqrt(factors.max() * factors.min())
            matrices = (layer.weights[f"{name}.weight"].astype(np.float64) for name in fold.readers)
            errors = (x / factors @ nearest(w * factors, 4, 16).T - x @ w.T for w in matrices)
            losses.append((sum(float(np.square(each).sum()) for each in errors), factors))
        found = search_factors(layer, fold, read, how)
        best, _ = min(losses, key=lambda each: each[0])
        assert found is not None and best < 0.8 * losses[0][0]
        step = int(np.argmin([np.abs(found - factors).max() for _, factors in losses]))
        assert losses[step][0] < 1.01 * best


def make_folder(kind: str, folder: Path, **options: Any) -> Any:
    """Write a model of transformers with random weights; return it."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, "intermediate_size": 64, **options})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", KINDS)
def test_layers(name: str, tmp_path: Path) -> None:
    """Layers compute the states of transformers, and the same with scaled channels."""
    kind, given = KINDS[name]
    reference = make_folder(kind, tmp_path, **given)
    import torch

    tokens = np.random.default_rng(0).integers(3, SMALL["vocab_size"], 40)
    with torch.no_grad():
        expected = reference(torch.from_numpy(tokens)[None], output_hidden_states=True).hidden_states
    options, weights = read_decoder(tmp_path / "model.safetensors", tmp_path / "config.json")
    runner, how = LayerRunner(options, weights, 1), Quantization(4, 16, "awq")
    (states,) = runner.embed([tokens])
    np.testing.assert_allclose(states, expected[0].numpy(), rtol=1e-4, atol=1e-4)
    for i, layer in enumerate(decoder_layers(options, weights)):
        after, read = runner.run(layer, states)
        if i + 1 < len(options.layers):
            np.testing.assert_allclose(after, expected[i + 1].numpy(), rtol=2e-4, atol=2e-4)
        rows = {each: ReadRows.empty(read[number].shape[-1]) for each, number in layer.reads.items()}
        for each, number in layer.reads.items():
            rows[each].add(read[number])
        others = replace(layer, weights=dict(reversed(layer.weights.items())))
        np.testing.assert_array_equal(runner.run(others, states)[0], after, "weights are found by name")
        before = dict(layer.weights)
        scale_channels(layer, options, rows, how)
        assert any(layer.weights[each] is not array for each, array in before.items())
        np.testing.assert_allclose(runner.run(layer, states)[0], after, rtol=1e-3, atol=1e-3)
        states = after


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    path = folder / "model.safetensors"
    return dict(parse_safetensors(path, path.read_bytes()))


def dequantized(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a folder, by the definition of GPTQ's form."""
    tensors = tensors_of(folder)
    for name, array in tensors.items():
        base, _, part = name.rpartition(".")
        if part == "qweight":
            bits = json.loads((folder / "config.json").read_text())["quantization_config"]["bits"]
            fields, mask = np.arange(0, 32, bits, dtype=np.int32), (1 << bits) - 1
            scales, index = tensors[f"{base}.scales"].astype(np.float32), tensors[f"{base}.g_idx"]
            codes = (array[:, None] >> fields[:, None] & mask).reshape(-1, array.shape[1])
            zeros = (tensors[f"{base}.qzeros"][..., None] >> fields & mask).reshape(len(scales), -1)
            zeros = zeros[:, : array.shape[1]] + 1
            yield f"{base}.weight", ((codes - zeros[index]) * scales[index]).T.astype(np.float32)
        elif part not in ("qzeros", "scales", "g_idx"):
            yield name, array


@pytest.mark.parametrize("bits", (2, 4, 8))
def test_rounded_folder(bits: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Matrices of layers are rounded, the embedding and the logits are not; other files are copied."""
    original = write_checkpoint(tmp_path / "a")
    (tmp_path / "a" / "tokenizer.json").write_text("{}")
    target = tmp_path / "b"
    assert main(["quantize", str(tmp_path / "a"), "-o", str(target), "--bits", str(bits), "--block", "16"]) == 0
    assert f"wrote {target}: 14 products with weights of {bits} bits" in capsys.readouterr().out
    assert (target / "tokenizer.json").read_text() == "{}"
    found = dict(dequantized(target))
    assert found.keys() == original.keys()
    for name, array in original.items():
        expected = nearest(array, bits, 16) if "_proj" in name else array
        assert np.mean(np.abs(found[name] - expected) > 1e-5) < 0.01


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind, method", [("llama", "gptq"), ("gpt2", "awq"), ("qwen3_moe", "gptq"), ("gemma2", "awq")])
def test_logits(kind: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder computes what transformers does with its dequantized weights; they are better than rounded ones."""
    torch = pytest.importorskip("torch")
    options = next(given for each, given in KINDS.values() if each == kind)
    reference = make_folder(kind, tmp_path / "a", **options)
    text, prompt = tmp_path / "text.txt", np.random.default_rng(0).integers(3, SMALL["vocab_size"], 40)
    text.write_text(" ".join(map(str, np.random.default_rng(1).integers(3, SMALL["vocab_size"], 400))))
    write_tokenizer(tmp_path / "a")
    with torch.no_grad():
        exact = reference(torch.from_numpy(prompt)[None]).logits[0].numpy()
    errors = {}
    for each in ("rtn", method):
        target = tmp_path / each
        flags = ["-o", str(target), "--method", each, "--block", "16", "--calibrate", str(text), "--samples", "1"]
        assert main(["quantize", str(tmp_path / "a"), *flags]) == 0
        out = capsys.readouterr().out
        errors[each] = float(out.partition("relative RMS error ")[2].partition(",")[0])
        assert "perplexity of 255 tokens: " in out
        with torch.no_grad():
            unknown = reference.load_state_dict(
                {name: torch.from_numpy(array.astype(np.float32)) for name, array in dequantized_of(target, kind)},
                strict=False,
            ).unexpected_keys
            if unknown:
                pytest.skip(f"this version of transformers has {unknown[0]} in another form")
            expected = reference(torch.from_numpy(prompt)[None]).logits[0].numpy()
        (found,) = generate.load(target, cache=False).text_logits(prompt)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert np.abs(exact - expected).max() > 0.01
    assert errors[method] < errors["rtn"]


def dequantized_of(folder: Path, kind: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield tensors as transformers has them: GPT-2 has the columns of a product as columns."""
    for name, array in dequantized(folder):
        yield name, array.T if kind == "gpt2" and ".c_" in name and array.ndim == 2 else array


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose texts are the numbers of tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {str(i): i for i in range(SMALL["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = write_checkpoint(tmp_path / "a")
    text, target = tmp_path / "text.txt", tmp_path / "b"
    text.write_text("5 6 7")

    def problem(*flags: str, folder: Path = tmp_path / "a") -> str:
        assert main(["quantize", str(folder), "-o", str(target), *flags]) == 1
        return capsys.readouterr().err

    assert "method: 'gptq' needs typical text: --calibrate TEXT.txt" in problem("--method", "gptq")
    assert (
        "tensor 'model.layers.0.self_attn.q_proj.weight': 64 elements of a row are not whole blocks of 128"
        in problem("--block", "128")
    )
    assert "--int8 is for ONNX models" in problem("--int8")
    assert "--report is for ONNX models" in problem("--report", "a.html")
    assert "--unsigned is for '--int8 --calibrate DATA'" in problem("--unsigned")
    assert "--activations is for ONNX models" in problem("--activations", "i8")
    assert "the folder has an ONNX model: quantize that file" in problem(folder=example().write(tmp_path / "onnx"))
    config = tmp_path / "a" / "config.json"
    keys = json.loads(config.read_text())
    config.write_text(json.dumps({**keys, "quantization_config": {"quant_method": "gptq"}}))
    assert "'quantization_config': the model is quantized already" in problem()
    config.write_text(json.dumps({**keys, "text_config": keys}))
    assert "'text_config': models that read more than texts are not quantized" in problem()
    config.write_text(json.dumps({**keys, "vision_config": {}}))
    assert "'vision_config': models that read more than texts are not quantized" in problem()
    config.write_text(json.dumps(keys))
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = np.inf
    write_safetensors(tmp_path / "a" / "model.safetensors", tensors)
    assert "tensor 'model.layers.1.mlp.up_proj.weight' has values that are not finite" in problem()
    target.mkdir()
    (target / "file").touch()
    assert f"{target} is there already" in problem()
    assert main(["quantize", str(tmp_path / "onnx" / "model.onnx"), "--method", "awq"]) == 1
    assert "--method awq is for models in folders" in capsys.readouterr().err
