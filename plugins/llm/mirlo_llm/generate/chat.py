"""Chat templates: the text of a conversation as the model was trained on it, through the package `jinja2`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path

from mirlo.extend.process import BoundedFailure, BoundedRefusal, BoundedWorker, Bounds
from mirlo_llm.generate.errors import GenerationError, ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile
from mirlo_llm.generate.gguf.tokenizer import token_texts
from mirlo_llm.generate.json_file import JsonObject, read_bytes, read_json
from mirlo_llm.generate.tokenizer import INSTALL

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
PROCESSOR_TEMPLATE = "chat_template.json"
MAX_TEMPLATE = 1 << 20
"""Bytes of the largest accepted template; templates of models have up to 20 KB."""
BOUNDS = Bounds()
"""Limits of the process that renders a template; templates of models take milliseconds and 50 MB."""
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
Message = Mapping[str, object]


class ChatTemplate:
    """The template of a model's folder.

    Templates are programs. They run in jinja2's sandbox, which keeps them from everything but their arguments, and in a
    process of their own, whose time and memory are limited.
    """

    def __init__(self, path: Path, text: str, special: Mapping[str, str]) -> None:
        self.path, self._text, self._special = path, text, dict(special)
        if find_spec("jinja2") is None:
            raise GenerationError(f"{path}: chat templates need the package 'jinja2': {INSTALL}")
        self._worker = BoundedWorker(
            "mirlo_llm.generate.template_process", text.encode("utf-8", "surrogatepass"), bounds=BOUNDS
        )
        try:
            self._worker.process()
        except BoundedFailure as error:
            raise ModelFolderError(f"{path}: the chat template cannot be read: {error}") from None

    @property
    def takes_tools(self) -> bool:
        """Return whether the template renders the list of tools."""
        return re.search(r"\btools\b", self._text) is not None

    def mentions(self, mark: str) -> bool:
        """Return whether the template contains a text, such as a tag that answers contain, too."""
        return mark in self._text

    def render(self, messages: Sequence[Message], is_answered: bool = False, **variables: object) -> str:
        """Return the text of a conversation up to the start of the model's answer, or all of it if it `is_answered`."""
        if not isinstance(messages, Sequence):
            raise GenerationError(f"expected a list of messages, found {messages!r:.80}")
        for message in messages:
            if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
                raise GenerationError(f"a message is a dict with 'role' and 'content', found {message!r:.80}")
        names = {"messages": list(messages), "add_generation_prompt": not is_answered, **self._special, **variables}
        try:
            line = json.dumps(names, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise GenerationError(f"messages and arguments of templates hold what JSON does: {error}") from None
        try:
            return self._worker.call("render", line.encode()).content.decode("utf-8", "surrogatepass")
        except BoundedRefusal as error:
            raise GenerationError(f"{self.path}: the chat template refuses the messages: {error}") from None
        except BoundedFailure as error:
            raise ModelFolderError(f"{self.path}: the chat template fails: {error}") from None

    def render_beginning(self, messages: Sequence[Message], **variables: object) -> str:
        """Return the text of a conversation up to where the model continues.

        That is the start of a new answer, or the end of the last message if that is one of the model.

        It goes on after a last message of the model, which then has no end.
        """
        last = messages[-1] if isinstance(messages, Sequence) and messages else None
        content = last.get("content") if isinstance(last, Mapping) and last.get("role") == "assistant" else None
        if not isinstance(content, str) or not content.strip() or last is None or last.get("tool_calls"):
            return self.render(messages, False, **variables)
        text = self.render(messages, True, **variables)
        place = text.rfind(content.strip())
        if place < 0:
            raise GenerationError(f"{self.path}: the chat template does not show the last message, to be continued")
        own = content.lstrip()  # templates may leave out white space at either end
        return text[: place + len(own if text.startswith(own, place) else own.rstrip())]


def gguf_template(path: Path, file: GgufFile) -> ChatTemplate | None:
    """Return the chat template of a GGUF file; None if it has none."""
    key, metadata = "tokenizer.chat_template", file.metadata
    if not metadata.has(key):
        return None
    text = metadata.text(key)
    if len(text) > MAX_TEMPLATE:
        raise metadata.refuse(key, f"expected up to {MAX_TEMPLATE} characters, found {len(text)}")
    return ChatTemplate(path, text, token_texts(file))


def read_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template of a folder; None if it has none."""
    config = folder / CONFIG
    settings = read_json(config) if config.exists() else JsonObject(config, "", {})
    special = {name: _token_text(settings, name) for name in SPECIAL if settings.has(name)}
    path = folder / TEMPLATE
    if path.exists():
        text = read_bytes(path, MAX_TEMPLATE).decode("utf-8", "replace")
        return ChatTemplate(path, text, special)
    own = folder / PROCESSOR_TEMPLATE  # of models of text and images, whose tokenizers may have one for text
    if own.exists() and (of_images := read_json(own)).has("chat_template"):
        config, settings = own, of_images
    if not settings.has("chat_template"):
        return None
    template = settings.value("chat_template")
    if isinstance(template, list):  # several, by name
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[0].get("template") if named else None
    if not isinstance(template, str) or len(template) > MAX_TEMPLATE:
        raise settings.fail("chat_template", "a template, or a list of them with one named 'default'", template)
    return ChatTemplate(config, template, special)


def _token_text(settings: JsonObject, name: str) -> str:
    """Return the text of a special token, which may be an object with `content`."""
    return settings.object(name).text("content") if isinstance(settings.value(name), dict) else settings.text(name)


def _plain(value: object) -> object:
    """Return a value with mappings and sequences converted to JSON types."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    if isinstance(value, (Integral, Real)):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(f"found a {type(value).__name__}")
