"""Constrained answers: a JSON schema, a regular expression or a grammar, through the package `llguidance`.

Each constraint runs in its own bounded process (`tokenizer_process.py`), since it comes from clients.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import count

import numpy as np

from mirlo.extend.process import BoundedFailure, BoundedProcess, BoundedRefusal, Places
from mirlo_llm.generate.errors import FormError, GenerationError
from mirlo_llm.generate.references import MAX_CHAIN, is_gbnf, lark_chain, schema_chain
from mirlo_llm.generate.tokenizer import INSTALL, ModelTokenizer

FORMS = ("json_schema", "regex", "lark", "grammar")
"""Keys of a constraint; `grammar` is in GBNF, as for llama.cpp, or in Lark's syntax."""
COMPILE_SECONDS = 5
"""Seconds for the compilation of a constraint; schemas of large interfaces take some 100 ms."""
STEP_SECONDS = 2
"""Seconds for the next allowed tokens, which all sequences of an engine wait for."""

_compiling = Places()
"""Limits concurrent compilations, which would take all cores."""


class Grammar:
    """A constraint on answers, for the tokens of a model."""

    def __init__(
        self, tokenizer: ModelTokenizer, vocabulary: int, ends: Sequence[int], form: str, text: object
    ) -> None:
        if not ends:
            raise GenerationError(f"{form}: the model has no token that ends an answer, which a form needs")
        if find_spec("llguidance") is None:
            raise GenerationError(f"{form}: forms of answers need the package 'llguidance': {INSTALL}")
        self.form, self.vocabulary = form, vocabulary
        self._tokenizer, self._ends, self._numbers = tokenizer, list(ends), count()
        try:
            self._text = _text(form, text).encode("utf-8")
        except UnicodeEncodeError as error:
            raise GenerationError(f"{form}: {error}") from None
        self._process: BoundedProcess | None = None
        self._usable_process()

    def new_guide(self) -> int:
        """Return a unique number for an answer."""
        return next(self._numbers)

    def allowed(self, guide: int, answer: Sequence[int]) -> np.ndarray:
        """Return a mask of the tokens that may follow those of an answer."""
        tokens = array("i", answer).tobytes()
        try:
            process = self._usable_process()
            bits = process.call("allowed_tokens", tokens, seconds=STEP_SECONDS, guide=guide).content
        except (BoundedFailure, BoundedRefusal) as error:
            raise FormError(f"{self.form}: {error}") from None
        if not bits:
            allowed = np.zeros(self.vocabulary, bool)
            allowed[self._ends] = True
            return allowed
        unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
        result: np.ndarray = unpacked[: self.vocabulary].astype(bool)
        return result

    def _usable_process(self) -> BoundedProcess:
        """Return the process that has compiled the constraint; start one if there is none."""
        if self._process is not None and self._process.is_usable:
            return self._process
        process = self._tokenizer.form_process(self.vocabulary, self._ends)
        try:
            with _compiling:
                process.call("compile_form", self._text, seconds=COMPILE_SECONDS, form=self.form)
        except (BoundedFailure, BoundedRefusal) as error:
            process.end()
            raise FormError(f"{self.form}: {error}") from None
        self._process = process
        return process


class Guide:
    """The constraint's state for one answer."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar, self._number = grammar, grammar.new_guide()

    def allowed(self, answer: Sequence[int]) -> np.ndarray:
        """Return a mask of the tokens that may follow those of an answer."""
        return self._grammar.allowed(self._number, answer)


def _text(form: str, text: object) -> str:
    """Return the text of a constraint; raise an error if its references are nested too deeply."""
    if form == "json_schema":
        if not isinstance(text, (str, Mapping)):
            raise GenerationError(f"json_schema: expected a dict or JSON as text, found {text!r:.60}")
        try:
            written = text if isinstance(text, str) else json.dumps(text)
            chain = schema_chain(json.loads(written))
        except (ValueError, TypeError, RecursionError) as error:
            raise GenerationError(f"json_schema: {error}") from None
    elif not isinstance(text, str):
        raise GenerationError(f"{form}: expected text, found {text!r:.60}")
    else:
        written, chain = text, lark_chain(text) if form in ("lark", "grammar") and not is_gbnf(text) else 0
    if chain > MAX_CHAIN:
        what = "definitions" if form == "json_schema" else "rules"
        raise FormError(f"{form}: expected up to {MAX_CHAIN} {what} that refer to one another, found {chain}")
    return written
