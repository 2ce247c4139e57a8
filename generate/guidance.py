"""Answers of a given form: a JSON schema, a regular expression or a grammar, through the package `llguidance`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.generate.errors import GenerationError, ModelFolderError
from mirlo.generate.tokenizer import INSTALL

if TYPE_CHECKING:
    from llguidance import LLMatcher

FORMS = ("json_schema", "regex", "lark")


class Grammar:
    """A form of answers, for the tokens of a model."""

    def __init__(
        self, path: Path, tokenizer: bytes, vocabulary: int, ends: Sequence[int], form: str, text: object
    ) -> None:
        """`tokenizer` is a `tokenizer.json`, `path` the file that errors name."""
        if not ends:
            raise GenerationError(f"{form}: the model has no token that ends an answer, which a form needs")
        self.form, self.vocabulary, self._ends = form, vocabulary, list(ends)
        try:
            from llguidance import LLMatcher, LLTokenizer
        except ImportError:
            raise GenerationError(f"{form}: forms of answers need the package 'llguidance': {INSTALL}") from None
        self._matcher = LLMatcher
        content = tokenizer.decode("utf-8", "replace")
        try:
            self._tokens = LLTokenizer(content, n_vocab=vocabulary, eos_token=self._ends)
        except BaseException as error:  # panics of the package are no `Exception`
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise ModelFolderError(f"{path}: forms of answers cannot use the tokenizer: {error}") from None
        self._grammar = self._compiled(text)
        Guide(self)  # raises an error if the grammar is wrong

    def _compiled(self, text: object) -> str:
        if self.form == "json_schema":
            if not isinstance(text, (str, Mapping)):
                raise GenerationError(f"json_schema: expected a dict or JSON as text, found {text!r:.60}")
            try:
                schema = text if isinstance(text, str) else json.dumps(text)
                return str(self._matcher.grammar_from_json_schema(schema))
            except (ValueError, TypeError, RecursionError) as error:
                raise GenerationError(f"json_schema: {error}") from None
        if not isinstance(text, str):
            raise GenerationError(f"{self.form}: expected text, found {text!r:.60}")
        make_grammar = self._matcher.grammar_from_regex if self.form == "regex" else self._matcher.grammar_from_lark
        try:
            return str(make_grammar(text))
        except ValueError as error:  # text that is not Unicode
            raise GenerationError(f"{self.form}: {error}") from None

    def matcher(self) -> LLMatcher:
        """Return a matcher at the start of an answer."""
        return self._matcher(self._tokens, self._grammar, log_level=0)

    def only_ends(self) -> np.ndarray:
        """Return which tokens may follow a complete answer."""
        allowed = np.zeros(self.vocabulary, bool)
        allowed[self._ends] = True
        return allowed


class Guide:
    """Which tokens may follow those of an answer."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._matcher = grammar.matcher()
        self._taken: list[int] = []
        self._require()

    def allowed(self, answer: Sequence[int]) -> np.ndarray:
        """Return for each token whether it may follow the tokens of an answer."""
        try:
            return self._allowed(answer)
        except BaseException:  # the matcher may have taken a token that is not noted
            self._matcher, self._taken = self._grammar.matcher(), []
            raise

    def _allowed(self, answer: Sequence[int]) -> np.ndarray:
        same = 0
        while same < len(answer) and same < len(self._taken) and answer[same] == self._taken[same]:
            same += 1
        if same < len(self._taken) and not self._matcher.rollback(len(self._taken) - same):
            self._matcher, same = self._grammar.matcher(), 0
        self._taken = self._taken[:same]
        for token in answer[same:]:
            if self._matcher.is_stopped():
                break
            self._matcher.consume_token(token)
            self._require()
            self._taken.append(token)
        if self._matcher.is_stopped():
            return self._grammar.only_ends()
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._require()
        result: np.ndarray = np.unpackbits(bits, bitorder="little")[: self._grammar.vocabulary].astype(bool)
        return result

    def _require(self) -> None:
        if self._matcher.is_error():
            raise GenerationError(f"{self._grammar.form}: {self._matcher.get_error()}")
