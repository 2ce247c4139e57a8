"""Text generation with language models.

from mirlo import generate

model = generate.load("folder")
for text in model.generator(max_new_tokens=100).stream("Once upon a time"):
    print(text, end="", flush=True)
"""

from mirlo.generate.config import ModelConfig, read_config
from mirlo.generate.engine import ServingEngine
from mirlo.generate.errors import GenerationError, ModelFolderError
from mirlo.generate.generator import Generator, Timing
from mirlo.generate.model import LanguageModel, load
from mirlo.generate.request import Request
from mirlo.generate.search import SearchOptions

__all__ = [
    "ServingEngine",
    "GenerationError",
    "Generator",
    "LanguageModel",
    "ModelConfig",
    "ModelFolderError",
    "Request",
    "SearchOptions",
    "Timing",
    "load",
    "read_config",
]
