"""Options that select the implementation of a model: Mirlo's graphs, or the code of transformers."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.extend.options import BOOLEAN, OptionFlag, check_options, one_of, option
from mirlo_llm.generate.errors import GenerationError

AUTO, OWN, TRANSFORMERS = "auto", "mirlo", "transformers"


@dataclass(frozen=True)
class CodeOptions:
    """Options that select the implementation of a model."""

    model_impl: str = option(
        AUTO,
        "The implementation of the architecture: Mirlo's, transformers', or Mirlo's if there is one (auto).",
        OptionFlag("--model-impl"),
        kind=one_of(AUTO, OWN, TRANSFORMERS),
    )
    trust_remote_code: bool = option(
        False,
        "Run the Python files in the folder of a model whose architecture transformers lacks.",
        OptionFlag("--trust-remote-code", form="constant"),
        kind=BOOLEAN,
    )

    def __post_init__(self) -> None:
        check_options(self, GenerationError)


DEFAULT = CodeOptions()
