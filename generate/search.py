"""How the next token is chosen: the options of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from mirlo.generate.errors import GenerationError
from mirlo.generate.json_file import JsonObject, is_number

DEFAULT_CHUNK = 512
"""Most tokens of a prompt in one call: more cost memory and gain no speed."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search; their names are those of Hugging Face's and ONNX Runtime's generation.

    Without `do_sample` the token with the largest logit is chosen, after penalties. With it, a token is drawn from the
    softmax of the logits, which `temperature` divides first, and which `top_k`, `top_p` and `min_p` restrict in this
    order.
    """

    do_sample: bool = False
    temperature: float = 1.0
    """0 is the same as `do_sample=False`."""
    top_k: int = 0
    """Draw from this many most probable tokens; 0 for all."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities add up to this."""
    min_p: float = 0.0
    """Draw from tokens with at least this share of the largest probability."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens that the prompt or the output has."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time that the output has it."""
    presence_penalty: float = 0.0
    """Subtracted once from the logits of tokens that the output has."""
    no_repeat_ngram_size: int = 0
    """No sequence of this many tokens occurs twice; 0 for no limit."""
    min_length: int = 0
    """No end of sequence before there are so many tokens, those of the prompt included."""
    max_length: int = 0
    """End after so many tokens, those of the prompt included; 0 for the model's context."""
    max_new_tokens: int = 0
    """End after so many tokens behind the last prompt; 0 for no limit."""
    seed: int | None = None
    """Of the drawn tokens; None for another one each time."""
    chunk_size: int = DEFAULT_CHUNK
    """Most tokens of a prompt that the model gets in one call."""
    num_beams: int = 1
    """Sequences that are continued at the same time; the most probable one is the result."""
    length_penalty: float = 1.0
    """Of beams: the logarithm of a sequence's probability is divided by its length to this power."""
    early_stopping: bool = False
    """Of beams: end when as many sequences have ended as there are beams, not when none can become better."""
    lookup: int = 0
    """Tokens to guess in a step, from what followed the same tokens before; right ones cost no further step."""

    draft_tokens: int = 4
    """Tokens that a draft model guesses in a step."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, str(field.type), getattr(self, field.name))
        limits = (
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "more than 0, at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "more than 0"),
            ("chunk_size", self.chunk_size >= 1, "1 or more"),
            ("length_penalty", abs(self.length_penalty) <= 100, "-100 to 100"),
            ("num_beams", 1 <= self.num_beams <= MAX_BEAMS, f"1 to {MAX_BEAMS}"),
            ("num_beams", self.num_beams == 1 or not self.do_sample, "1 with do_sample"),
            ("lookup", self.lookup <= MAX_GUESSES, f"at most {MAX_GUESSES}"),
            ("draft_tokens", self.draft_tokens <= MAX_GUESSES, f"at most {MAX_GUESSES}"),
            *((name, getattr(self, name) >= 0, "0 or more") for name in _COUNTS),
        )
        for name, holds, expected in limits:
            if not holds:
                raise GenerationError(f"{name}: expected {expected}, found {getattr(self, name)}")

    @property
    def is_greedy(self) -> bool:
        """Return whether the most probable token is chosen."""
        return not self.do_sample or self.temperature == 0 or self.top_k == 1


MAX_GUESSES = 64
MAX_BEAMS = 256
_COUNTS = ("top_k", "no_repeat_ngram_size", "min_length", "max_length", "max_new_tokens", "lookup", "draft_tokens")
_OTHER_NAMES = {"random_seed": "seed"}
_REFUSED = {"num_return_sequences": 1, "num_beam_groups": 1, "diversity_penalty": 0}
"""Options that change what is generated and are not supported, with the value that is."""


def _check_type(name: str, kind: str, value: object) -> None:
    allowed = {
        "bool": isinstance(value, bool),
        "float": is_number(value),
        "int": is_number(value) and isinstance(value, int),
        "int | None": value is None or (is_number(value) and isinstance(value, int) and value >= 0),
    }
    if not allowed[kind]:
        expected = {"bool": "True or False", "float": "a number"}.get(kind, "an integer, 0 or more")
        raise GenerationError(f"{name}: expected {expected}, found {value!r:.60}")


def with_options(options: SearchOptions, changes: Mapping[str, Any]) -> SearchOptions:
    """Return options with changes by name; an unknown name is an error."""
    known = list(SearchOptions.__dataclass_fields__)
    for name in changes:
        if name not in known:
            raise GenerationError(f"no option of a search is named '{name}'; there are: {', '.join(known)}")
    return replace(options, **changes)


def read_search(given: JsonObject) -> SearchOptions:
    """Return the options of a file; unknown ones are left out."""
    options: dict[str, Any] = {}
    kinds = {field.name: str(field.type) for field in fields(SearchOptions)}
    for key in given:
        name = _OTHER_NAMES.get(key, key)
        if key in _REFUSED and given.value(key) != _REFUSED[key]:
            raise given.refuse(key, f"only {_REFUSED[key]} is supported, found {given.value(key)!a:.40}")
        kind = kinds.get(name)
        if kind == "bool":
            options[name] = given.flag(key, False)
        elif kind == "float":
            options[name] = given.number(key, 0.0)
        elif kind is not None and not (name == "seed" and given.value(key) == -1):
            options[name] = given.count(key)
    try:
        return SearchOptions(**options)
    except GenerationError as error:
        raise given.refuse("", str(error)) from None
