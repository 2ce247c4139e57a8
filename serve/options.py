"""The options of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from mirlo.generate.engine import MAX_SLOTS
from mirlo.generate.json_file import read_bytes
from mirlo.serve.errors import ServeError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_KEYS_BYTES = 1 << 20


@dataclass(frozen=True)
class ServeOptions:
    """The limits of a server, and how it batches."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    slots: int = 8
    """Sequences of a language model that are computed together."""
    queue: int = 64
    """Requests of a model that may wait; further ones get status 429."""
    max_tokens: int = 4096
    """Most tokens of an answer."""
    max_prompt_tokens: int = 32768
    """Most tokens of a prompt."""
    max_choices: int = 8
    """Most answers to a request: `n` times its prompts."""
    max_body: int = 16 << 20
    """Bytes of the largest body of a request."""
    batch: int = 16
    """Most rows of requests that are computed together, where the first dim of a model is dynamic; 1 for none."""
    batch_delay: float = 0.0
    """Milliseconds that a request may wait for others. With 0 only those share a call that come while another runs."""
    workers: int = 2
    """Calls of a model that is no language model at a time."""
    memory: int = 0
    """Bytes of all loaded models; 0 for no limit."""
    body_seconds: float = 30.0
    """Time in which a body must have come."""
    send_seconds: float = 60.0
    """Time in which a client must read what is sent."""
    grace: float = 30.0
    """Seconds that running requests have when the server ends."""
    keys: tuple[str, ...] = ()
    """API keys; without any, none is needed."""
    is_open: bool = False
    """Whether a server without keys may listen on an address that other machines reach."""

    def __post_init__(self) -> None:
        limits = {
            "port": (0, 65535),
            "slots": (1, MAX_SLOTS),
            "queue": (0, 1 << 16),
            "max_tokens": (1, 1 << 24),
            "max_prompt_tokens": (1, 1 << 24),
            "max_choices": (1, 1024),
            "max_body": (1024, 1 << 32),
            "batch": (1, 1 << 16),
            "batch_delay": (0, 10_000),
            "workers": (1, 1024),
            "memory": (0, 1 << 50),
            "body_seconds": (0.1, 3600),
            "send_seconds": (0.1, 3600),
            "grace": (0, 3600),
        }
        for field in fields(self):
            least, most = limits.get(field.name, (None, None))
            value = getattr(self, field.name)
            if least is not None and (isinstance(value, bool) or not least <= value <= most):
                raise ServeError(f"{field.name}: expected {least} to {most}, found {value!r:.40}")
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
        """Return whether only this machine may use the server, without a key."""
        return self.host in LOOPBACK and not self.keys


MIN_KEY = 16
"""Characters of the shortest API key: one of random hexadecimal digits has 64 bits."""


def read_keys(path: str) -> tuple[str, ...]:
    """Return the API keys of a file, one in a line; empty lines and those that begin with # are left out."""
    lines = read_bytes(Path(path), MAX_KEYS_BYTES).decode("utf-8", "replace").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ServeError(f"{path}: there is no API key in the file")
    return keys


@dataclass(frozen=True)
class ModelSource:
    """A model by its name and its file or folder."""

    name: str
    path: Path


def parse_models(texts: Sequence[str]) -> tuple[ModelSource, ...]:
    """Return models of a command line: `PATH` or `NAME=PATH`; the name of a path is its last part."""
    result: dict[str, ModelSource] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = "", text
        place = Path(path)
        if not path or not place.exists():
            raise ServeError(f"{path or text}: there is no such file or folder")
        name = name or (place.resolve().name if place.is_dir() else place.stem)
        if not all(letter.isalnum() or letter in "._-:" for letter in name) or not name.isascii() or len(name) > 200:
            raise ServeError(f"{name!a}: the name of a model has letters, digits, '.', '_', '-' and ':': use NAME=PATH")
        if name in result:
            raise ServeError(f"two models are named '{name}': use NAME=PATH")
        result[name] = ModelSource(name, place)
    if not result:
        raise ServeError("there is no model to serve")
    return tuple(result.values())
