"""The options of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirlo.extend.options import (
    BOOLEAN,
    TEXT,
    OptionFlag,
    check_options,
    integer,
    is_list,
    is_text,
    number,
    option,
    optional,
    parse_bytes,
    values_that,
)
from mirlo_llm.generate.code_options import CodeOptions
from mirlo_llm.generate.json_file import read_bytes
from mirlo_llm.generate.search import MAX_GUESSES, MAX_SLOTS
from mirlo_llm.serve.errors import ServeError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_KEYS_BYTES = 1 << 20
IMAGES = ",mmproj="
"""Separates the file of a language model from that of its image encoder."""


@dataclass(frozen=True)
class ServeOptions(CodeOptions):
    """Limits of a server, and its batching."""

    host: str = option(
        "127.0.0.1",
        "The address.",
        OptionFlag("--host", "ADDRESS", help="the address (default: this machine)"),
        kind=TEXT,
    )
    port: int = option(8000, "The port; 0 takes a free one.", OptionFlag("--port", "N"), kind=integer(0, 65535))
    health_port: int = option(
        0,
        "The port of a separate process that answers `/v2/health/live` and `/v2/health/ready`; 0 for none.",
        OptionFlag(
            "--health-port",
            "N",
            help="a port for /v2/health/live and ready that answers also while the server is busy (default: none)",
        ),
        kind=integer(0, 65535),
    )
    slots: int = option(
        8,
        "The number of sequences that a language model computes together.",
        OptionFlag("--slots", "N"),
        kind=integer(1, MAX_SLOTS),
    )
    queue: int = option(
        64,
        "The number of requests of a model that may wait; further ones get status 429.",
        OptionFlag("--queue", "N"),
        kind=integer(0, 1 << 16),
    )
    chunk_size: int | None = option(
        None,
        "The maximum number of tokens of prompts that a step computes; fewer while other answers are written, so that "
        "these are at most three times as slow. Without it, what the folder says, or 512.",
        OptionFlag(
            "--chunk-size",
            "N",
            help="maximum number of tokens of prompts in a step (default: 512; fewer beside other answers)",
        ),
        kind=optional(integer(1, 1 << 24)),
    )
    pages: int | None = option(
        None,
        "The number of pages of the caches of a language model, 64 tokens each, which its sequences share. Without it, "
        "caches in pages only where the folder says so.",
        OptionFlag("--pages", "N", help="keep keys and values in up to N pages of 64 tokens, which sequences share"),
        kind=optional(integer(1, 1 << 24)),
    )
    lookup: int | None = option(
        None,
        "Tokens that a step guesses from earlier text of a request; correct guesses save steps. Without it, what the "
        "folder says, or 0.",
        OptionFlag("--lookup", "N", help="guess N tokens a step from earlier text; correct guesses save steps"),
        kind=optional(integer(0, MAX_GUESSES)),
    )
    draft_tokens: int | None = option(
        None,
        "Tokens that a draft model guesses in a step. Without it, what the folder says, or 4.",
        OptionFlag("--draft-tokens", "N", help="guess N tokens a step with the draft model (default: 4)"),
        kind=optional(integer(0, MAX_GUESSES)),
    )
    max_tokens: int = option(
        4096, "The maximum number of tokens of an answer.", OptionFlag("--max-tokens", "N"), kind=integer(1, 1 << 24)
    )
    max_prompt_tokens: int = option(
        32768,
        "The maximum number of tokens of a prompt.",
        OptionFlag("--max-prompt-tokens", "N"),
        kind=integer(1, 1 << 24),
    )
    max_choices: int = option(
        8,
        "The maximum number of answers to a request: `n` times its prompts.",
        OptionFlag("--max-choices", "N", help="maximum number of answers to a request (default: 8)"),
        kind=integer(1, 1024),
    )
    max_body: int = option(
        16 << 20,
        "The maximum size of the body of a request, in bytes.",
        OptionFlag("--max-body", "N"),
        kind=integer(1024, 1 << 32),
    )
    batch: int = option(
        16,
        "The maximum number of rows in a call that requests share, for models with a dynamic first dim; 1 for none.",
        OptionFlag("--batch", "N"),
        kind=integer(1, 1 << 16),
    )
    batch_delay: float = option(
        0.0,
        "Milliseconds that a request may wait for others to share its call. With 0 only those do that come while "
        "another call runs.",
        OptionFlag("--batch-delay", "N"),
        kind=number(0, 10_000),
    )
    workers: int = option(
        2,
        "The number of concurrent calls of a model that is no language model.",
        OptionFlag("--workers", "N"),
        kind=integer(1, 1024),
    )
    grace: float = option(
        30.0,
        "The seconds that running requests have to finish after a signal to end.",
        OptionFlag("--grace", "N"),
        kind=number(0, 3600),
    )
    memory: int = option(
        0,
        "Bytes of all loaded models; 0 for no limit.",
        OptionFlag(
            "--memory",
            "SIZE",
            parse_bytes,
            help="maximum memory of loaded models, such as 8G: the least recently used are unloaded (default: none)",
        ),
        kind=integer(0, 1 << 50),
    )
    loaded: int = option(
        0,
        "The maximum number of models in memory; 0 for no limit.",
        kind=integer(0, 1 << 16),
    )
    is_lazy: bool = option(False, "Whether a model is loaded when the first request needs it.", kind=BOOLEAN)
    keys: tuple[str, ...] = option(
        (),
        "API keys; without any, requests need none.",
        OptionFlag(
            "--api-keys",
            "FILE",
            help="a file with API keys, one per line; requests need one of them",
            convert=lambda path: read_keys(path),
        ),
        kind=values_that("a list of API keys", lambda value: is_list(value, is_text)),
    )
    is_open: bool = option(
        False,
        "Whether a server without keys may listen on an address that other machines reach.",
        OptionFlag("--without-keys", form="constant", help="accept requests from other machines without an API key"),
        kind=BOOLEAN,
    )
    is_strict: bool = option(
        False,
        "Whether requests with keys that are not known are refused; else these have no effect, and are logged once.",
        OptionFlag("--strict", form="constant", help="refuse requests with keys that are not known"),
        kind=BOOLEAN,
    )
    has_ollama: bool = option(
        False,
        "Whether the server has the endpoints of Ollama's API, below /api.",
        OptionFlag("--ollama", form="constant", help="answer requests of Ollama's API, too"),
        kind=BOOLEAN,
    )
    connections: int = option(
        2048,
        "Connections at a time, as far as the system lets the process have files. The one that has waited longest for "
        "a request makes room.",
        kind=integer(64, 1 << 20),
    )
    connections_each: int = option(
        512,
        "The maximum number of connections from one address; 0 for no limit.",
        OptionFlag(
            "--connections-each",
            "N",
            help="maximum number of connections from one address, such as a proxy (default: 512; 0: no limit)",
        ),
        kind=integer(0, 1 << 20),
    )
    bodies: int = option(
        256 << 20,
        "The maximum size of the bodies of all pending requests, in bytes.",
        OptionFlag("--bodies", "N", help="maximum size of the bodies of all pending requests, in bytes"),
        kind=integer(1024, 1 << 40),
    )
    head_seconds: float = option(
        10.0, "Seconds from the start of a connection, or of a request, within which the request's head must arrive.",
        kind=number(0.1, 3600),
    )  # fmt: skip
    body_seconds: float = option(30.0, "Seconds within which a body must arrive.", kind=number(0.1, 3600))
    send_seconds: float = option(60.0, "Seconds within which a client must read what is sent.", kind=number(0.1, 3600))

    def __post_init__(self) -> None:
        check_options(self, ServeError)
        for key in self.keys:
            if len(key) < MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
                raise ServeError(f"an API key has at least {MIN_KEY} printable characters of ASCII and no spaces")
        if self.host not in LOOPBACK and not self.keys and not self.is_open:
            raise ServeError(
                f"{self.host}: other machines may reach this address, and no API key is needed: pass --api-keys FILE, "
                "or --without-keys"
            )

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can use the server, without a key."""
        return self.host in LOOPBACK and not self.keys


MIN_KEY = 16
"""Fewest characters of an API key; as random hexadecimal digits they have 64 bits."""


def read_keys(path: str) -> tuple[str, ...]:
    """Read API keys from a file, one per line; empty lines and lines that begin with # are ignored."""
    lines = read_bytes(Path(path), MAX_KEYS_BYTES).decode("utf-8", "replace").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ServeError(f"{path}: there is no API key in the file")
    return keys


@dataclass(frozen=True)
class ModelSource:
    """A model by name, and its file or folder."""

    name: str
    path: Path
    images: Path | None = None
    """The image encoder of a GGUF model."""
    adapters: Mapping[str, Path] = field(default_factory=dict)
    """LoRA adapters of a language model, by the model name that selects them in requests."""
    draft: Path | None = None
    """A smaller language model with the same tokens that guesses what follows."""


def parse_adapters(texts: Sequence[str], sources: Sequence[ModelSource]) -> tuple[ModelSource, ...]:
    """Add the adapters of a command line to models: `NAME=PATH`, or `MODEL:NAME=PATH` if there are several models."""
    adapters: dict[str, dict[str, Path]] = {source.name: {} for source in sources}
    taken = set(adapters)
    for text in texts:
        name, equals, path = text.partition("=")
        model, colon, own = name.rpartition(":")
        name = own if colon else name
        model = model if colon else sources[0].name
        if not equals or not _is_name(name) or not colon and len(sources) > 1:
            raise ServeError(f"{text!a:.200}: expected NAME=PATH of an adapter, or MODEL:NAME=PATH for several models")
        if model not in adapters:
            raise ServeError(f"{text!a:.200}: there is no model {model!a:.80}; there are: {', '.join(adapters)}")
        if name in taken:
            raise ServeError(f"{text!a:.200}: a model or an adapter is named '{name}' already")
        taken.add(name)
        adapters[model][name] = _existing(path, text)
    return tuple(replace(source, adapters=adapters[source.name]) for source in sources)


def parse_drafts(texts: Sequence[str], sources: Sequence[ModelSource]) -> tuple[ModelSource, ...]:
    """Add draft models of a command line to models: `PATH`, or `MODEL=PATH` if there are several models."""
    drafts: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in {source.name for source in sources}:
            name, path = sources[0].name, text
            if len(sources) > 1:
                models = ", ".join(source.name for source in sources)
                raise ServeError(f"{text!a:.200}: expected MODEL=PATH of a draft model, for one of {models}")
        if name in drafts:
            raise ServeError(f"{text!a:.200}: '{name}' has a draft model already")
        drafts[name] = _existing(path, text)
    return tuple(replace(source, draft=drafts.get(source.name)) for source in sources)


def _is_name(name: str) -> bool:
    return name.isascii() and 0 < len(name) <= 200 and all(letter.isalnum() or letter in "._-" for letter in name)


def parse_models(texts: Sequence[str]) -> tuple[ModelSource, ...]:
    """Return models of a command line: `PATH` or `NAME=PATH`; the default name is the last part of the path.

    `,mmproj=FILE` after a path names the file with the encoder of images of a GGUF file.
    """
    result: dict[str, ModelSource] = {}
    for text in texts:
        whole, separator, encoder = text.partition(IMAGES)
        name, equals, path = whole.partition("=")
        if not equals or "/" in name:
            name, path = "", whole
        place = _existing(path, text)
        images = _existing(encoder, text) if separator else None
        name = name or (place.resolve().name if place.is_dir() else place.stem)
        if not all(letter.isalnum() or letter in "._-:" for letter in name) or not name.isascii() or len(name) > 200:
            raise ServeError(f"{name!a}: the name of a model has letters, digits, '.', '_', '-' and ':': use NAME=PATH")
        if name in result:
            raise ServeError(f"two models are named '{name}': use NAME=PATH")
        result[name] = ModelSource(name, place, images)
    if not result:
        raise ServeError("there is no model to serve")
    return tuple(result.values())


def _existing(path: str, text: str) -> Path:
    if not path or not Path(path).exists():
        raise ServeError(f"{path or text}: there is no such file or folder")
    return Path(path)
