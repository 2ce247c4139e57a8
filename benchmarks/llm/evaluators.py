"""Engines as functions of tokens: the logits after each token of a text, [tokens, vocabulary].

`llama.cpp` needs the package llama-cpp-python, `transformers` those named transformers, torch and gguf.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.benchmarks.llm.engines import open_genai
from mirlo.benchmarks.llm.model import DecoderConfig, feed
from mirlo.benchmarks.turns import onnxruntime_session

Evaluator = Callable[[np.ndarray], np.ndarray]
"""Return the logits after each token; nothing is kept from one call to the next."""

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "llama.cpp": ("llama_cpp",),
    "transformers": ("transformers", "torch", "gguf"),
    "onnxruntime": ("onnxruntime",),
    "genai": ("onnxruntime_genai",),
}
"""What an engine needs; it is left out where a package is missing."""


def missing_packages(engine: str) -> list[str]:
    """Return the packages of an engine that are not installed."""
    return [name for name in PACKAGES.get(engine, ()) if importlib.util.find_spec(name) is None]


def load_mirlo(path: Path, threads: int, **options: object) -> Evaluator:
    """Load a model; all tokens are computed in parts of at most 512."""
    from mirlo import generate

    model = generate.load(path, threads=threads, cache=False, **options)
    return lambda tokens: np.concatenate([part.copy() for part in model.text_logits(tokens)])


def evaluate_steps(path: Path, threads: int, **options: object) -> Evaluator:
    """Load a model for steps of one token each."""
    from mirlo import generate

    model = generate.load(path, threads=threads, cache=False, **options)

    def evaluate(tokens: np.ndarray) -> np.ndarray:
        generator = model.generator()
        rows = []
        for token in tokens.tolist():
            generator.append([token])
            rows.append(generator.logits().reshape(-1).copy())
        return np.array(rows)

    return evaluate


def load_onnxruntime(path: Path, config: DecoderConfig, threads: int) -> Evaluator:
    """Load the graph of a decoder of the benchmark into a session of ONNX Runtime."""
    session = onnxruntime_session(str(path), threads)

    def evaluate(tokens: np.ndarray) -> np.ndarray:
        inputs = {**feed(config, len(tokens), 0), "input_ids": tokens[None]}
        result: np.ndarray = session.run(["logits"], inputs)[0][0]
        return result

    return evaluate


def load_onnx_genai(folder: Path, threads: int) -> Evaluator:
    """Load a folder into onnxruntime-genai, for steps of one token each."""
    import onnxruntime_genai

    model = open_genai(folder, threads)

    def evaluate(tokens: np.ndarray) -> np.ndarray:
        options = onnxruntime_genai.GeneratorParams(model)
        options.set_search_options(max_length=len(tokens) + 1, do_sample=False)
        generator = onnxruntime_genai.Generator(model, options)
        rows = []
        for token in tokens.tolist():
            generator.append_tokens([token])
            rows.append(generator.get_logits().reshape(-1).copy())
        return np.array(rows)

    return evaluate


def load_llama_cpp(path: Path, threads: int, length: int, cache: str = "f16") -> Evaluator:
    """Load a GGUF file for texts of this length, with caches of f16, the default of llama.cpp, or f32."""
    import llama_cpp

    kind = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}[cache]
    model = llama_cpp.Llama(
        str(path), n_ctx=length, n_batch=length, n_threads=threads, n_threads_batch=threads, logits_all=True,
        verbose=False, type_k=kind, type_v=kind,
    )  # fmt: skip

    def evaluate(tokens: np.ndarray) -> np.ndarray:
        model.reset()
        model.eval(tokens.tolist())
        return np.array(model.scores[: len(tokens)])

    return evaluate


def load_transformers(path: Path, threads: int, dtype: str) -> Evaluator:
    """Load a GGUF file as transformers dequantizes it, and compute in `float64`, `float32` or `bfloat16`."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    mode = _only_f64 if dtype == "float64" else contextlib.nullcontext
    kind = getattr(torch, dtype)
    with mode():
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=kind, attn_implementation="eager"
        ).eval()

    def evaluate(tokens: np.ndarray) -> np.ndarray:
        with torch.no_grad(), mode():
            logits = model(torch.from_numpy(tokens)[None]).logits[0]
        result: np.ndarray = logits.to(torch.promote_types(logits.dtype, torch.float32)).numpy()
        return result

    return evaluate


def _only_f64() -> contextlib.AbstractContextManager[object]:
    """Return a context in which what asks torch for f32 gets f64: norms, angles and softmax of models in f64, too."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnlyF64(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def wider(value: object) -> object:
                return torch.float64 if value is torch.float32 else value

            function = torch.Tensor.double if func is torch.Tensor.float else func
            return function(*map(wider, args), **{key: wider(value) for key, value in (kwargs or {}).items()})

    return OnlyF64()
