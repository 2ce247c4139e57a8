"""The bounded process that renders a chat template, which is a program of the model's author."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from jinja2.sandbox import ImmutableSandboxedEnvironment

from mirlo.extend.process import ArgumentsRefused, Function, Result

MAX_TEXT = 64 << 20
"""Most characters of a rendered text; conversations have up to a few million."""


def open(content: bytes) -> Mapping[str, Function]:
    """Compile a template; return the functions of the process."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _now}
    template = environment.from_string(content.decode())

    def render(content: bytes) -> Result:
        text = str(template.render(**json.loads(content)))
        if len(text) > MAX_TEXT:
            raise ValueError(f"its text has {len(text)} characters, expected at most {MAX_TEXT}")
        return Result({}, text.encode("utf-8", "surrogatepass"))

    return {"render": render}


def _to_json(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise ArgumentsRefused(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)
