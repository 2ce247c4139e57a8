"""Chat templates: the text of a conversation as the model was trained on it, through the package `jinja2`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from mirlo.generate.errors import GenerationError, ModelFolderError
from mirlo.generate.json_file import JsonObject, read_bytes, read_json
from mirlo.generate.tokenizer import INSTALL

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
MAX_TEMPLATE = 1 << 20
"""Bytes of the largest template; those of models have up to 20 KB."""
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
Message = Mapping[str, object]


class ChatTemplate:
    """The template of a model's folder.

    Templates are programs: they run in jinja2's sandbox, which keeps them from everything but their arguments.
    """

    def __init__(self, path: Path, text: str, special: Mapping[str, str]) -> None:
        self.path, self._special = path, dict(special)
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise GenerationError(f"{path}: chat templates need the package 'jinja2': {INSTALL}") from None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _now}
        self._error = TemplateError
        try:
            self._template = environment.from_string(text)
        except (TemplateError, RecursionError) as error:
            raise ModelFolderError(f"{path}: the chat template cannot be read: {error}") from None

    def render(self, messages: Sequence[Message], is_answered: bool = False, **given: object) -> str:
        """Return the text of a conversation, up to where the model's answer begins unless it `is_answered`."""
        if not isinstance(messages, Sequence):
            raise GenerationError(f"expected a list of messages, found {messages!r:.80}")
        for message in messages:
            if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
                raise GenerationError(f"a message is a dict with 'role' and 'content', found {message!r:.80}")
        names = {"messages": list(messages), "add_generation_prompt": not is_answered, **self._special, **given}
        try:
            return str(self._template.render(**names))
        except GenerationError as error:
            raise GenerationError(f"{self.path}: the chat template refuses the messages: {error}") from None
        except Exception as error:  # a template may do anything to its arguments
            raise ModelFolderError(f"{self.path}: the chat template fails: {error}") from None


def read_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template of a folder; None if it has none."""
    config = folder / CONFIG
    given = read_json(config) if config.exists() else JsonObject(config, "", {})
    special = {name: _token_text(given, name) for name in SPECIAL if given.has(name)}
    path = folder / TEMPLATE
    if path.exists():
        text = read_bytes(path, MAX_TEMPLATE).decode("utf-8", "replace")
        return ChatTemplate(path, text, special)
    if not given.has("chat_template"):
        return None
    template = given.value("chat_template")
    if isinstance(template, list):  # several, by name
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[0].get("template") if named else None
    if not isinstance(template, str) or len(template) > MAX_TEMPLATE:
        raise given.fail("chat_template", "a template, or a list of them with one named 'default'", template)
    return ChatTemplate(config, template, special)


def _token_text(given: JsonObject, name: str) -> str:
    """Return the text of a special token, which may be an object with `content`."""
    return given.object(name).text("content") if isinstance(given.value(name), dict) else given.text(name)


def _to_json(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise GenerationError(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)
