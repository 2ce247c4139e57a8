"""The bounded process of a tokenizer: it reads the file, encodes long texts and compiles constraints.

The packages that it runs are written in Rust: they recurse, abort when memory is exhausted, and hold the interpreter
lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from mirlo.extend.process import ArgumentsRefused, Function, Result
from mirlo_llm.generate.references import MAX_CHAIN, is_gbnf, lark_chain

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


def open(content: bytes) -> Mapping[str, Function]:
    """Read a `tokenizer.json`; return the functions of the process."""
    text = content.decode()
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    forms = _Forms(text)

    def describe(content: bytes) -> Result:
        """Return the bytes of the longest token, which bounds the characters of a text."""
        return Result({"longest": max((len(token.encode()) for token in tokenizer.get_vocab()), default=0)})

    def encode(content: bytes, other: int | None, longest: int | None, special: bool) -> Result:
        """Return the tokens of a text or a pair, and the text, 0 or 1, of each; `other` is the start of the second."""
        first, second = content[:other].decode(), None if other is None else content[other:].decode()
        if longest is not None:
            tokenizer.enable_truncation(longest)
        encoding = tokenizer.encode(first, second, add_special_tokens=special)
        return Result({}, array("i", [*encoding.ids, *encoding.type_ids]).tobytes())

    return {
        "describe": describe,
        "encode": encode,
        "prepare_forms": forms.prepare,
        "compile_form": forms.compile,
        "allowed_tokens": forms.allowed,
    }


class _Forms:
    """The matchers of one constraint; the process is forked for each of them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._grammar = ""
        self._guides: dict[int, _Guide] = {}

    def prepare(self, content: bytes, vocabulary: int, ends: Sequence[int]) -> Result:
        """Read the tokens that constraints are matched with."""
        from llguidance import LLTokenizer

        self._tokens: LLTokenizer = LLTokenizer(self._text, n_vocab=vocabulary, eos_token=list(ends))
        return Result()

    def compile(self, content: bytes, form: str) -> Result:
        """Compile a constraint; refuse one that no answer satisfies."""
        from llguidance import LLMatcher

        text = content.decode()
        try:
            if form == "json_schema":
                self._grammar = str(LLMatcher.grammar_from_json_schema(text))
            elif form == "regex":
                self._grammar = str(LLMatcher.grammar_from_regex(text))
            else:
                is_converted = form == "grammar" and is_gbnf(text)
                self._grammar = str(LLMatcher.grammar_from_lark(_lark_of(text) if is_converted else text))
        except ValueError as error:
            raise ArgumentsRefused(str(error)) from None
        _Guide(self._matcher()).allowed(array("i"))
        return Result()

    def allowed(self, content: bytes, guide: int) -> Result:
        """Return a bit for each token that may follow an answer; no bits if only its end may."""
        answer = array("i", content)
        if guide not in self._guides:
            self._guides[guide] = _Guide(self._matcher())
        try:
            return Result({}, self._guides[guide].allowed(answer))
        except BaseException:  # the matcher may be in the middle of the answer
            del self._guides[guide]
            raise

    def _matcher(self) -> LLMatcher:
        from llguidance import LLMatcher

        return LLMatcher(self._tokens, self._grammar, log_level=0)


def _lark_of(text: str) -> str:
    """Convert a grammar from GBNF to Lark's syntax."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        converted = str(gbnf_to_lark(text))
    except RecursionError:
        raise ValueError("its parts are too deep in one another") from None
    except Exception as error:  # the converter raises plain ones
        raise ValueError(str(error)) from None
    chain = lark_chain(converted)
    if chain > MAX_CHAIN:
        raise ValueError(f"expected up to {MAX_CHAIN} rules that refer to one another, found {chain}")
    return converted


class _Guide:
    """A matcher, and the tokens that it has consumed."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._taken = array("i")
        self._require()

    def allowed(self, answer: array[int]) -> bytes:
        """Return a bit for each token that may follow an answer; nothing if only its end may."""
        same = len(self._taken)
        if answer[:same] != self._taken:
            same = next(i for i, token in enumerate(self._taken) if answer[i : i + 1] != array("i", [token]))
        if same < len(self._taken) and not self._matcher.rollback(len(self._taken) - same):
            self._matcher.reset()
            same = 0
        self._taken = self._taken[:same]
        for token in answer[same:]:
            if self._matcher.is_stopped():
                break
            self._matcher.consume_token(token)
            self._require()
            self._taken.append(token)
        if self._matcher.is_stopped():
            return b""
        bits = bytes(self._matcher.compute_bitmask())
        self._require()
        return bits

    def _require(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().strip()
            first = reason.partition("\n")[0]
            raise ArgumentsRefused("no answer can go on from here" if first.startswith("NoExtension") else reason)
