"""The options of a search: how the next token is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mirlo.extend.options import (
    BOOLEAN,
    OptionFlag,
    check_options,
    declared_options,
    integer,
    nearest,
    number,
    option,
    optional,
)
from mirlo_llm.generate.errors import GenerationError

if TYPE_CHECKING:
    from mirlo_llm.generate.json_file import JsonObject

DEFAULT_CHUNK = 512
"""Most prompt tokens of one call; more take more memory and are no faster."""
MAX_GUESSES = 64
MAX_BEAMS = 256
MAX_SLOTS = 4096
"""Most sequences that an engine computes together."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search; their names are those of Hugging Face's and ONNX Runtime's generation.

    Without `do_sample` the token with the largest logit is chosen, after penalties. With it, a token is drawn from the
    softmax of the logits, which `temperature` divides first, and which `top_k`, `top_p` and `min_p` restrict in this
    order.
    """

    do_sample: bool = option(False, "Whether tokens are drawn at random.", kind=BOOLEAN)
    temperature: float = option(
        1.0,
        "Divides the logits: more than 1 is more random; 0 takes the most probable tokens.",
        OptionFlag(
            "--temperature",
            "N",
            help="sample with this temperature; higher is more random, 0 selects the most probable tokens",
        ),
        kind=number(0),
    )
    top_k: int = option(
        0, "Sample from the N most probable tokens; 0 for all.", OptionFlag("--top-k", "N"), kind=integer(0)
    )
    top_p: float = option(
        1.0,
        "Sample from the fewest tokens whose probabilities add up to this.",
        OptionFlag("--top-p", "N"),
        kind=number(above=0, most=1),
    )
    min_p: float = option(
        0.0,
        "Sample from tokens with at least this fraction of the largest probability.",
        OptionFlag("--min-p", "N"),
        kind=number(0, 1),
    )
    repetition_penalty: float = option(
        1.0,
        "Divides positive and multiplies negative logits of tokens that occurred; 1 is no penalty.",
        OptionFlag("--repetition-penalty", "N", help="penalty on tokens that occurred before; 1 is no penalty"),
        kind=number(above=0),
    )
    frequency_penalty: float = option(
        0.0,
        "A penalty on the logit of a token for each time that it was generated.",
        OptionFlag("--frequency-penalty", "N"),
        kind=number(),
    )
    presence_penalty: float = option(
        0.0,
        "A penalty on the logits of tokens that were generated, once each.",
        OptionFlag("--presence-penalty", "N"),
        kind=number(),
    )
    no_repeat_ngram_size: int = option(
        0,
        "Forbid sequences of N tokens to occur twice; 0 for no limit.",
        OptionFlag("--no-repeat-ngram-size", "N"),
        kind=integer(0),
    )
    min_length: int = option(0, "The minimum number of tokens, those of the prompt included.", kind=integer(0))
    max_length: int = option(
        0, "The maximum number of tokens, those of the prompt included; 0 for the model's context.", kind=integer(0)
    )
    max_new_tokens: int = option(
        0,
        "The maximum number of tokens after the last prompt; 0 for no limit.",
        OptionFlag(
            "--max-new-tokens",
            "N",
            integer(1).parse,
            help="maximum number of tokens of an answer (default: the search options of the folder)",
        ),
        kind=integer(0),
    )
    seed: int | None = option(
        None,
        "The seed of sampling; random without it.",
        OptionFlag("--seed", "N"),
        kind=optional(integer(0)),
    )
    chunk_size: int = option(
        DEFAULT_CHUNK, "The maximum number of tokens of a prompt in one call of the model.", kind=integer(1)
    )
    num_beams: int = option(
        1,
        "The number of beams of a beam search, which prints the answer at its end.",
        OptionFlag("--num-beams", "N"),
        kind=integer(1, MAX_BEAMS),
    )
    length_penalty: float = option(
        1.0,
        "Of beams: the logarithm of a sequence's probability is divided by its length to this power.",
        kind=number(-100, 100),
    )
    early_stopping: bool = option(
        False,
        "Of beams: end when as many sequences have ended as there are beams, not when none can become better.",
        kind=BOOLEAN,
    )
    lookup: int = option(
        0,
        "Guess N tokens a step from earlier text; correct guesses save steps.",
        OptionFlag("--lookup", "N"),
        kind=integer(0, MAX_GUESSES),
    )
    draft_tokens: int = option(4, "Tokens that a draft model guesses in a step.", kind=integer(0, MAX_GUESSES))

    def __post_init__(self) -> None:
        check_options(self, GenerationError)
        if self.num_beams > 1 and self.do_sample:
            raise GenerationError(f"num_beams: expected 1 with do_sample, found {self.num_beams}")

    @property
    def is_greedy(self) -> bool:
        """Return whether the most probable token is chosen."""
        return not self.do_sample or self.temperature == 0 or self.top_k == 1


_OTHER_NAMES = {"random_seed": "seed"}
_REFUSED = {"num_return_sequences": 1, "num_beam_groups": 1, "diversity_penalty": 0}
"""Options that change the result and are not supported, with their only accepted value."""


CACHED = 256
"""Number of parsed requests that are cached, since clients mostly repeat options."""


def with_options(options: SearchOptions, changes: Mapping[str, Any]) -> SearchOptions:
    """Return options with changes by name; an unknown name is an error."""
    known = declared_options(SearchOptions)
    for name in changes:
        if name not in known:
            hint = nearest(name, known)
            raise GenerationError(f"no option of a search is named '{name}'{hint}; there are: {', '.join(known)}")
    typed = tuple((name, type(value), value) for name, value in changes.items())  # 1 is equal to True
    if all(isinstance(value, (int, float)) for _, _, value in typed):
        return _with_numbers(options, typed)
    return replace(options, **changes)


@lru_cache(CACHED)
def _with_numbers(options: SearchOptions, changes: tuple[tuple[str, type, Any], ...]) -> SearchOptions:
    """Apply changes that were already checked, cached for equal requests."""
    return replace(options, **{name: value for name, _, value in changes})


def read_search(settings: JsonObject) -> SearchOptions:
    """Return the options of a file; unknown ones are ignored."""
    options: dict[str, Any] = {}
    kinds = {field.name: str(field.type) for field in fields(SearchOptions)}
    for key in settings:
        name = _OTHER_NAMES.get(key, key)
        if key in _REFUSED and settings.value(key) != _REFUSED[key]:
            raise settings.refuse(key, f"only {_REFUSED[key]} is supported, found {settings.value(key)!a:.40}")
        kind = kinds.get(name)
        if kind == "bool":
            options[name] = settings.flag(key, False)
        elif kind == "float":
            options[name] = settings.number(key, 0.0)
        elif kind is not None and not (name == "seed" and settings.value(key) == -1):
            options[name] = settings.count(key)
    try:
        return SearchOptions(**options)
    except GenerationError as error:
        raise settings.refuse("", str(error)) from None
