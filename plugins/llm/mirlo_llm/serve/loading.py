"""Loading of a server's models from files and folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from mirlo import compile as compile_model
from mirlo import load as load_compiled
from mirlo.extend.compilation import OPTIONS
from mirlo.extend.options import WITH_CACHES, declared_options
from mirlo.extend.runtime import MODEL_FILE, Executable, Program, has_magic
from mirlo_llm.generate import load as load_language_model
from mirlo_llm.generate import load_embedding, load_speech
from mirlo_llm.generate.code_options import CodeOptions
from mirlo_llm.generate.config import read_config
from mirlo_llm.generate.embedding.config import is_embedding_model
from mirlo_llm.generate.gguf.container import files_read_once, is_gguf
from mirlo_llm.generate.model import require_pages
from mirlo_llm.generate.speech.config import is_speech_folder
from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.embedding_backend import EmbeddingBackend
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.language import LanguageBackend
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ModelSource, ServeOptions
from mirlo_llm.serve.rank_processes import RankProcesses
from mirlo_llm.serve.speech_backend import SpeechBackend
from mirlo_llm.serve.tensor_backend import TensorBackend


class Loading:
    """Loads models: folders and GGUF files as models of texts, `.mirlo` files directly, others by compiling them."""

    def __init__(
        self, options: ServeOptions, metrics: ServerMetrics, executor: Executor, compile_options: Mapping[str, Any]
    ) -> None:
        self._options, self._metrics, self._executor = options, metrics, executor
        self._compile_options = dict(compile_options)
        self._code = {name: getattr(options, name) for name in declared_options(CodeOptions)}

    def require_pages(self, sources: Sequence[ModelSource]) -> None:
        """Raise an error if `pages` is requested and the caches of a language model cannot be in pages."""
        if self._options.pages is None:
            return
        if self._compile_options.get("ranks", 1) > 1:
            raise ServeError("--pages is for models on one rank: leave out --pages or --ranks")
        decoders = [source for source in sources if _is_decoder(source.path)]
        if not decoders:
            raise ServeError("--pages is for language models of a decoder, and there is none")
        with files_read_once():
            for source in decoders:
                require_pages(read_config(source.path, source.images), CodeOptions(**self._code))

    def load(self, source: ModelSource) -> Backend:
        """Load a model."""
        with files_read_once():
            return self._load(source)

    def _load(self, source: ModelSource) -> Backend:
        path, name = source.path, source.name
        if source.images is not None and not is_gguf(path):
            raise ServeError(f"{path}: mmproj is for GGUF files of language models")
        if source.adapters and not self._is_single_decoder(source):
            raise ServeError(f"{path}: adapters are for language models of a decoder, on one rank")
        if source.draft is not None and not self._is_single_decoder(source):
            raise ServeError(f"{path}: draft models are for language models of a decoder, on one rank")
        if self._compile_options.get("ranks", 1) > 1:
            return self._load_ranks(source)
        if path.is_dir() and is_speech_folder(path):
            speech = load_speech(path, **self._compile_options)
            return SpeechBackend(name, speech, self._options, self._metrics, self._executor)
        if (path.is_dir() or is_gguf(path)) and is_embedding_model(path):
            embedding = load_embedding(path, **self._code, **self._compile_options)
            return EmbeddingBackend(name, embedding, self._options, self._metrics, self._executor)
        if path.is_dir() or is_gguf(path):
            model = load_language_model(
                path, mmproj=source.images, adapters=source.adapters or None, pages=self._options.pages, **self._code,
                **self._compile_options,
            )  # fmt: skip
            draft = None
            if source.draft is not None:
                draft = load_language_model(source.draft, **self._code, **self._compile_options)
            return LanguageBackend(name, model, self._options, self._metrics, self._executor, draft=draft)
        if has_magic(path, MODEL_FILE):
            compiled: object = load_compiled(path)
        else:
            arguments = {
                key: value for key, value in self._compile_options.items() if OPTIONS[key].only_for != WITH_CACHES
            }
            compiled = compile_model(str(path), **arguments)
        if not isinstance(compiled, (Executable, Program)):
            raise ServeError(f"{path}: the model was compiled for another machine")
        return TensorBackend(name, compiled, self._options, self._metrics, self._executor)

    def _is_single_decoder(self, source: ModelSource) -> bool:
        """Return whether a model is a decoder on one rank, which supports adapters and draft models."""
        return self._compile_options.get("ranks", 1) == 1 and _is_decoder(source.path)

    def _load_ranks(self, source: ModelSource) -> Backend:
        """Load rank 0 of a model, while other processes load the other ranks."""
        path = source.path
        if not _is_decoder(path):
            raise ServeError(f"{path}: --ranks is for language models of a decoder")
        options = {**self._compile_options, **self._code, "mmproj": source.images}
        ranks = RankProcesses(path, options)
        try:
            model = load_language_model(path, **options)
            ranks.wait_until_loaded()
            return LanguageBackend(source.name, model, self._options, self._metrics, self._executor, ranks)
        except BaseException:
            ranks.stop()
            raise


def _is_decoder(path: Path) -> bool:
    """Return whether a path is a folder or a GGUF file with a language model."""
    if path.is_dir():
        return not (is_speech_folder(path) or is_embedding_model(path))
    return is_gguf(path) and not is_embedding_model(path)
