"""Whose code says what a model computes: options of loading a folder with weights."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.extend.options import BOOLEAN, OptionFlag, check_options, one_of, option
from mirlo_llm.generate.errors import GenerationError

AUTO, OWN, TRANSFORMERS = "auto", "mirlo", "transformers"


@dataclass(frozen=True)
class CodeOptions:
    """Whose code says what a model computes."""

    model_impl: str = option(
        AUTO,
        "Whose code says what a folder of weights computes: Mirlo's own, transformers', or Mirlo's where it has some.",
        OptionFlag("--model-impl"),
        kind=one_of(AUTO, OWN, TRANSFORMERS),
    )
    trust_remote_code: bool = option(
        False,
        "Run the files of Python in the folder of a model, if transformers lacks its architecture.",
        OptionFlag("--trust-remote-code", form="constant"),
        kind=BOOLEAN,
    )

    def __post_init__(self) -> None:
        check_options(self, GenerationError)


DEFAULT = CodeOptions()
