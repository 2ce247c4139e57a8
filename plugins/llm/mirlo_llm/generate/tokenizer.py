"""Tokenizers of Hugging Face's format, through the package `tokenizers`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from mirlo.extend.process import BoundedProcess, BoundedWorker, Bounds
from mirlo.extend.runtime import MirloError
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.gguf.tokenizer import tokenizer_json
from mirlo_llm.generate.json_file import MAX_BYTES, read_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from mirlo_llm.generate.config import ModelConfig
    from mirlo_llm.generate.embedding.config import EmbeddingConfig

FILE = "tokenizer.json"
INSTALL = "pip install 'mirlo-llm[generate]'"
INLINE_CHARACTERS = 4096
"""Largest number of characters that this process encodes, since that takes less time than a message."""
BOUNDS = Bounds(seconds=30, memory=4 << 30)
"""Limits of the tokenizer's process; the largest files have 30 MB and take 2 seconds and 300 MB."""


def read_tokenizer(config: ModelConfig | EmbeddingConfig) -> tuple[Path, bytes] | None:
    """Return the file of a model's tokenizer and its content as `tokenizer.json`; None if there is none."""
    if config.gguf is None:
        path = config.folder / FILE
        return (path, read_bytes(path, MAX_BYTES)) if path.exists() else None
    content = tokenizer_json(config.gguf)
    return None if content is None else (config.model, content)


class ModelTokenizer:
    """The tokenizer of a model.

    A bounded process reads the file first and encodes long texts, since the package holds the interpreter lock and
    aborts when memory is exhausted. A file that it could read is then read in this process, too, for short texts and
    for tokens.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        """Read a `tokenizer.json`; `path` is the file in errors."""
        self.path, self._lock = path, Lock()
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise GenerationError(f"{path}: tokenizers need the package 'tokenizers': {INSTALL}") from None
        self._worker = BoundedWorker("mirlo_llm.generate.tokenizer_process", content, bounds=BOUNDS)
        self.most_characters: int | None = None
        """Of a text that is encoded; None if there is no limit."""
        self._prepared: object = None
        """What the process has prepared forms of answers for."""
        try:
            self.longest = int(self._worker.call("describe").value["longest"])
            """Bytes of the longest token, which bounds the characters of a text by its number of tokens."""
            self._tokenizer: Tokenizer = Tokenizer.from_str(content.decode("utf-8"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        except BaseException as error:  # panics of the package are no `Exception`
            raise _failed(path, "the tokenizer cannot be read", error) from None

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text; with `special`, also those that mark its start and end."""
        if self.most_characters is not None and len(text) > self.most_characters:
            raise GenerationError(f"the text has {len(text)} characters, expected up to {self.most_characters}")
        if len(text) > INLINE_CHARACTERS:
            return self._encoded_alone(text, None, None, special)[0]
        try:
            result: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        except BaseException as error:
            raise _failed(self.path, "the text cannot be encoded", error) from None
        return result

    def _encoded_alone(
        self, text: str, other: str | None, longest: int | None, special: bool
    ) -> tuple[list[int], list[int]]:
        """Encode a text or a pair in the bounded process; return the tokens, and the text, 0 or 1, of each."""
        try:
            first = text.encode("utf-8")
            second = b"" if other is None else other.encode("utf-8")
            start = None if other is None else len(first)
            result = self._worker.call_alone(
                "encode",
                first + second,
                bounds=_bounds_of(first + second),
                other=start,
                longest=longest,
                special=special,
            )
        except (MirloError, UnicodeEncodeError) as error:
            raise GenerationError(f"{self.path}: the text cannot be encoded: {error}") from None
        numbers = array("i", result.content).tolist()
        return numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]

    def form_process(self, vocabulary: int, ends: Sequence[int]) -> BoundedProcess:
        """Return a new process for a constraint on answers."""
        try:
            with self._lock:
                process = self._worker.process()
                prepared = (process, vocabulary, tuple(ends))
                if self._prepared != prepared:
                    process.call("prepare_forms", vocabulary=vocabulary, ends=list(ends))
                    self._prepared = prepared
            return process.fork()
        except MirloError as error:
            raise ModelFolderError(f"{self.path}: forms of answers cannot use the tokenizer: {error}") from None

    def start(self) -> list[int]:
        """Return the special tokens before a text."""
        plain, whole = (self.encode("a", special) for special in (False, True))
        places = range(len(whole) - len(plain) + 1)
        return whole[: next((at for at in places if whole[at : at + len(plain)] == plain), 0)]

    def encode_pair(self, text: str, other: str | None, longest: int | None) -> tuple[list[int], list[int]]:
        """Return the tokens of a text or a pair with special tokens, and the text, 0 or 1, of each.

        With `longest`, a text that has more tokens loses its end; of a pair, the longer one.
        """
        if len(text) + len(other or "") > INLINE_CHARACTERS:
            return self._encoded_alone(text, other, longest, True)
        with self._lock:
            try:
                if longest is not None:
                    self._tokenizer.enable_truncation(longest)
                result = self._tokenizer.encode(text, other)
            except BaseException as error:
                raise _failed(self.path, "the text cannot be encoded", error) from None
            finally:
                self._tokenizer.no_truncation()
        return result.ids, result.type_ids

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """Return the text of tokens; with `special`, also that of special ones."""
        try:
            result: str = self._tokenizer.decode(list(tokens), skip_special_tokens=not special)
        except BaseException as error:
            raise _failed(self.path, "tokens cannot be decoded", error) from None
        return result

    def token(self, text: str) -> int | None:
        """Return the token with this text; None if there is none."""
        result: int | None = self._tokenizer.token_to_id(text)
        return result

    def text(self, token: int) -> str | None:
        """Return the text of a token in prompts; None if there is no such token."""
        result: str | None = self._tokenizer.id_to_token(token)
        return result


def _bounds_of(text: bytes) -> Bounds:
    """Return the limits for encoding a text; 2 to 10 microseconds and 200 bytes per byte are usual."""
    return Bounds(seconds=10 + len(text) // 40_000, growth=(1 << 29) + 256 * len(text))


def _failed(path: Path, what: str, error: BaseException) -> BaseException:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return error
    return ModelFolderError(f"{path}: {what}: {error}")
