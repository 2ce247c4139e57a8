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
    from mirlo.generate.config import ModelConfig, read_config
    from mirlo.generate.embedding.model import EmbeddingModel
    from mirlo.generate.embedding.model import load as load_embedding
    from mirlo.generate.engine import ServingEngine
    from mirlo.generate.errors import GenerationError, ModelFolderError
    from mirlo.generate.generator import Generator, Timing
    from mirlo.generate.model import LanguageModel, load
    from mirlo.generate.perplexity import Perplexity
    from mirlo.generate.request import Request
    from mirlo.generate.search import SearchOptions
    from mirlo.generate.seq2seq.model import Seq2SeqModel
    from mirlo.generate.seq2seq.model import load as load_seq2seq
    from mirlo.generate.speech.model import SpeechModel, Transcript
    from mirlo.generate.speech.model import load as load_speech

_LAZY = {
    "ModelConfig": "mirlo.generate.config",
    "read_config": "mirlo.generate.config",
    "EmbeddingModel": "mirlo.generate.embedding.model",
    "load_embedding": "mirlo.generate.embedding.model",
    "ServingEngine": "mirlo.generate.engine",
    "GenerationError": "mirlo.generate.errors",
    "ModelFolderError": "mirlo.generate.errors",
    "Generator": "mirlo.generate.generator",
    "Timing": "mirlo.generate.generator",
    "LanguageModel": "mirlo.generate.model",
    "load": "mirlo.generate.model",
    "Perplexity": "mirlo.generate.perplexity",
    "Request": "mirlo.generate.request",
    "SearchOptions": "mirlo.generate.search",
    "Seq2SeqModel": "mirlo.generate.seq2seq.model",
    "load_seq2seq": "mirlo.generate.seq2seq.model",
    "SpeechModel": "mirlo.generate.speech.model",
    "Transcript": "mirlo.generate.speech.model",
    "load_speech": "mirlo.generate.speech.model",
}
"""By name, the module that has it: `mirlo generate --help` reads the options of a search only."""
_NAMES = {"load_embedding": "load", "load_seq2seq": "load", "load_speech": "load"}
"""What modules call those that have other names here."""

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
