"""Engines that run the decoder: Mirlo, and those of its peers that are installed.

`Engine.call` returns one step: a number of new tokens after a number of earlier ones, whose caches are there already.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import mirlo
from mirlo.benchmarks.llm.gguf_model import save_gguf
from mirlo.benchmarks.llm.model import DecoderConfig, feed
from mirlo.benchmarks.turns import onnxruntime_session
from mirlo.runtime.huge_pages import empty_together

Step = Callable[[], Any]


class Engine(Protocol):
    """A model that is loaded by one engine."""

    def call(self, tokens: int, past: int, batch: int) -> Step | None:
        """Return a step of this number of tokens after others; None if the engine has no such step."""


def with_room(arrays: dict[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
    """Return copies of caches that have room for new tokens."""
    return {
        name: np.concatenate([array, np.zeros_like(array, shape=(*array.shape[:2], tokens, array.shape[3]))], 2)
        for name, array in arrays.items()
        if name.startswith("past")
    }


def in_huge_pages(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return copies in memory as `Executable.state` allocates it: in huge pages, aligned to cache lines."""
    copies = dict(zip(arrays, empty_together([(a.dtype, a.shape) for a in arrays.values()]), strict=True))
    for name, array in arrays.items():
        copies[name][...] = array
    return copies


class Mirlo:
    """Mirlo, with caches in place."""

    def __init__(self, config: DecoderConfig, path: Path, threads: int, **options: Any) -> None:
        self.config = config
        self.executable = mirlo.compile(str(path), threads=threads, **options).resident()

    def call(self, tokens: int, past: int, batch: int) -> Step:
        arrays = feed(self.config, tokens, past, batch)
        outputs = {name: output for output, name in self.executable.aliases.items()}
        caches = in_huge_pages(with_room(arrays, tokens))
        others = {name: array for name, array in arrays.items() if name not in outputs}
        call = self.executable.updating(caches, outputs)
        if call is None:  # sizes depend on data, as with experts
            feeds, out = {**others, **caches}, {output: caches[name] for name, output in outputs.items()}
            return lambda: self.executable.run(feeds, out=out)["logits"]
        return lambda: call.run(others)["logits"]


class OnnxRuntime:
    """ONNX Runtime's session on arrays that are bound once, with caches that inputs and outputs share."""

    def __init__(self, config: DecoderConfig, path: Path, threads: int) -> None:
        self.config, self.session = config, onnxruntime_session(str(path), threads)

    def call(self, tokens: int, past: int, batch: int) -> Step:
        import onnxruntime

        session, binding = self.session, self.session.io_binding()
        arrays = feed(self.config, tokens, past, batch)
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
            for name, array in {**arrays, **with_room(arrays, tokens)}.items()
        }
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            source = output.name.replace("present", "past_key_values")
            if source in values:
                binding.bind_ortvalue_output(output.name, values[source])
            else:
                binding.bind_output(output.name, "cpu")
        return lambda: (session.run_with_iobinding(binding), binding.get_outputs(), values)[1][0].numpy()


def open_genai(folder: Path, threads: int) -> Any:
    """Return the model of a folder in onnxruntime-genai."""
    import json

    import onnxruntime_genai

    settings = onnxruntime_genai.Config(str(folder))
    options = {"intra_op_num_threads": threads}
    settings.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    return onnxruntime_genai.Model(settings)


class GenAi:
    """The loop of onnxruntime-genai: a step chooses a token, and the sequence grows."""

    def __init__(self, config: DecoderConfig, path: Path, threads: int) -> None:
        import onnxruntime_genai

        self.library, self.config = onnxruntime_genai, config
        self.model = open_genai(path.parent, threads)

    def _generator(self, length: int, batch: int) -> Any:
        options = self.library.GeneratorParams(self.model)
        options.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=batch)
        return self.library.Generator(self.model, options)

    def call(self, tokens: int, past: int, batch: int) -> Step | None:
        if tokens > 1 and past:
            return None
        ids = np.random.default_rng(1).integers(2, self.config.vocabulary, (batch, past or tokens)).astype(np.int32)
        if past == 0:
            return lambda: self._generator(tokens + 1, batch).append_tokens(ids)
        generator = self._generator(past + 512, batch)
        generator.append_tokens(ids)
        generator.generate_next_token()
        return lambda: (generator.generate_next_token(), None)[1]


class OpenVino:
    """OpenVINO on the ONNX model with its default types; caches are copied."""

    def __init__(self, config: DecoderConfig, path: Path, threads: int) -> None:
        import openvino

        self.library, self.config = openvino, config
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.model = openvino.Core().compile_model(str(path), "CPU", options)

    def call(self, tokens: int, past: int, batch: int) -> Step | None:
        if batch > 1:
            return None  # it computes nothing for several sequences with caches, and later calls fail
        request = self.model.create_infer_request()
        arrays = feed(self.config, tokens, past, batch)
        for name, array in arrays.items():
            request.set_tensor(name, self.library.Tensor(array, shared_memory=True))
        request.infer()
        return lambda: (request.infer(), arrays, request.get_tensor("logits").data)[2]


class LlamaCpp:
    """llama.cpp on a model of the same sizes with other weights: Q4_0, or floats; caches in f16."""

    ROOM = 512

    def __init__(self, config: DecoderConfig, path: Path, threads: int) -> None:
        import llama_cpp

        if config.normalizes_heads or config.experts or config.window or config.head_bits or not config.is_symmetric:
            raise NotImplementedError("only models of the architecture llama are written for llama.cpp")
        self.library, self.config, self.threads = llama_cpp, config, threads
        file = path.with_suffix(".gguf")
        if not file.exists():
            save_gguf(config, file)
        llama_cpp.llama_backend_init()
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, ctypes.c_void_p(0))
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(file).encode(), options)
        self.contexts: dict[int, Any] = {}
        self.lengths: dict[int, int] = {}

    def _context(self, batch: int, length: int) -> Any:
        if batch not in self.contexts:
            options = self.library.llama_context_default_params()
            options.n_ctx = batch * (length + self.ROOM)
            options.n_seq_max, options.n_batch, options.n_ubatch = batch, 2048, 512
            options.n_threads = options.n_threads_batch = self.threads
            self.contexts[batch] = self.library.llama_init_from_model(self.model, options)
            self.lengths[batch] = 0
        return self.contexts[batch]

    def _decode(self, context: Any, tokens: int, first: int, batch: int) -> None:
        llama_batch = self.library.llama_batch_init(tokens * batch, 0, 1)
        llama_batch.n_tokens = tokens * batch
        for i in range(tokens * batch):
            llama_batch.token[i] = 3 + i * 7 % 3000
            llama_batch.pos[i], llama_batch.n_seq_id[i], llama_batch.seq_id[i][0] = first + i % tokens, 1, i // tokens
            llama_batch.logits[i] = True  # as all engines here
        if self.library.llama_decode(context, llama_batch):
            raise RuntimeError("llama.cpp has no room for these tokens")
        self.library.llama_synchronize(context)
        self.library.llama_batch_free(llama_batch)

    def call(self, tokens: int, past: int, batch: int) -> Step:
        context = self._context(batch, self.config.positions // 2 if batch == 1 else past)
        memory = self.library.llama_get_memory(context)

        def step() -> None:
            self._decode(context, tokens, past, batch)
            for sequence in range(batch):
                self.library.llama_memory_seq_rm(memory, sequence, past, -1)

        for sequence in range(batch):
            self.library.llama_memory_seq_rm(memory, sequence, min(past, self.lengths[batch]), -1)
        for first in range(min(past, self.lengths[batch]), past, 256):
            self._decode(context, min(256, past - first), first, batch)
        self.lengths[batch] = past
        return step


PEERS: dict[str, Callable[[DecoderConfig, Path, int], Engine]] = {
    "onnxruntime": OnnxRuntime,
    "genai": GenAi,
    "openvino": OpenVino,
    "llama.cpp": LlamaCpp,
}


def load_peers(names: list[str], config: DecoderConfig, path: Path, threads: int) -> dict[str, Engine]:
    """Return the peers that are installed and take the model; say why others do not."""
    peers: dict[str, Engine] = {}
    for name in names:
        try:
            peers[name] = PEERS[name](config, path, threads)
        except Exception as failure:  # whatever a peer raises: the others are measured
            print(f"{name}: {type(failure).__name__}: {str(failure).strip().splitlines()[0][:150]}", flush=True)
    return peers
