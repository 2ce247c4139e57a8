"""Tokenizers of Hugging Face's format, through the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from mirlo.generate.errors import GenerationError, ModelFolderError
from mirlo.generate.gguf.tokenizer import tokenizer_json
from mirlo.generate.json_file import MAX_BYTES, read_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from mirlo.generate.config import ModelConfig

FILE = "tokenizer.json"
INSTALL = "pip install 'mirlo[generate]'"


def read_tokenizer(config: ModelConfig) -> tuple[Path, bytes] | None:
    """Return the file of a model's tokenizer, and its content as a `tokenizer.json`; None if it has none."""
    if config.gguf is None:
        path = config.folder / FILE
        return (path, read_bytes(path, MAX_BYTES)) if path.exists() else None
    content = tokenizer_json(config.gguf)
    return None if content is None else (config.model, content)


class ModelTokenizer:
    """The tokenizer of a model."""

    def __init__(self, path: Path, content: bytes) -> None:
        """`content` is a `tokenizer.json`, `path` the file that errors name."""
        self.path, self._lock = path, Lock()
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise GenerationError(f"{path}: tokenizers need the package 'tokenizers': {INSTALL}") from None
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_str(content.decode("utf-8"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        except BaseException as error:  # panics of the package are no `Exception`
            raise _failed(path, "the tokenizer cannot be read", error) from None

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text; with `special`, also those that mark its start and end."""
        try:
            result: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        except BaseException as error:
            raise _failed(self.path, "the text cannot be encoded", error) from None
        return result

    def start(self) -> list[int]:
        """Return the special tokens that the tokenizer puts before a text."""
        plain, whole = (self.encode("a", special) for special in (False, True))
        places = range(len(whole) - len(plain) + 1)
        return whole[: next((at for at in places if whole[at : at + len(plain)] == plain), 0)]

    def encode_pair(self, text: str, other: str | None, longest: int | None) -> tuple[list[int], list[int]]:
        """Return the tokens of a text or a pair, with special ones, and of which of the two each is.

        With `longest`, a text that has more tokens loses its end; of a pair, the longer one.
        """
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
        """Return the text of a token as prompts have it; None if there is no such token."""
        result: str | None = self._tokenizer.id_to_token(token)
        return result


def _failed(path: Path, what: str, error: BaseException) -> BaseException:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return error
    return ModelFolderError(f"{path}: {what}: {error}")
