"""Text generation with language models.

from mirlo import generate

model = generate.load("folder")
for text in model.generator(max_new_tokens=100).stream("Once upon a time"):
    print(text, end="", flush=True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirlo_llm.generate.config import ModelConfig, read_config
    from mirlo_llm.generate.embedding.model import EmbeddingModel
    from mirlo_llm.generate.embedding.model import load as load_embedding
    from mirlo_llm.generate.engine import ServingEngine
    from mirlo_llm.generate.errors import GenerationError, ModelFolderError
    from mirlo_llm.generate.generator import Generator, Timing
    from mirlo_llm.generate.model import LanguageModel, load
    from mirlo_llm.generate.perplexity import Perplexity
    from mirlo_llm.generate.request import Request
    from mirlo_llm.generate.search import SearchOptions
    from mirlo_llm.generate.seq2seq.model import Seq2SeqModel
    from mirlo_llm.generate.seq2seq.model import load as load_seq2seq
    from mirlo_llm.generate.speech.model import SpeechModel, Transcript
    from mirlo_llm.generate.speech.model import load as load_speech

_LAZY = {
    "ModelConfig": "mirlo_llm.generate.config",
    "read_config": "mirlo_llm.generate.config",
    "EmbeddingModel": "mirlo_llm.generate.embedding.model",
    "load_embedding": "mirlo_llm.generate.embedding.model",
    "ServingEngine": "mirlo_llm.generate.engine",
    "GenerationError": "mirlo_llm.generate.errors",
    "ModelFolderError": "mirlo_llm.generate.errors",
    "Generator": "mirlo_llm.generate.generator",
    "Timing": "mirlo_llm.generate.generator",
    "LanguageModel": "mirlo_llm.generate.model",
    "load": "mirlo_llm.generate.model",
    "Perplexity": "mirlo_llm.generate.perplexity",
    "Request": "mirlo_llm.generate.request",
    "SearchOptions": "mirlo_llm.generate.search",
    "Seq2SeqModel": "mirlo_llm.generate.seq2seq.model",
    "load_seq2seq": "mirlo_llm.generate.seq2seq.model",
    "SpeechModel": "mirlo_llm.generate.speech.model",
    "Transcript": "mirlo_llm.generate.speech.model",
    "load_speech": "mirlo_llm.generate.speech.model",
}
"""The module of each public name, so that `mirlo generate --help` imports the search options only."""
_NAMES = {"load_embedding": "load", "load_seq2seq": "load", "load_speech": "load"}
"""The names in their modules of those that are exported under another name."""

__all__ = [
    "EmbeddingModel",
    "ServingEngine",
    "GenerationError",
    "Generator",
    "LanguageModel",
    "ModelConfig",
    "ModelFolderError",
    "Perplexity",
    "Request",
    "SearchOptions",
    "Seq2SeqModel",
    "SpeechModel",
    "Timing",
    "Transcript",
    "load",
    "load_embedding",
    "load_seq2seq",
    "load_speech",
    "read_config",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mirlo.generate' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_LAZY[name]), _NAMES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
