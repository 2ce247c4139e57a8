"""The process that renders a chat template: a template is a program, whose time and memory are limited here.

It is run as a script, so that it loads jinja2 and nothing of Mirlo's compiler: it reads a template, then arguments, as
lines of JSON, and answers each line with one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from mirlo.runtime.system import limit_memory, limit_processor

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_TEXT = 64 << 20
"""Characters of the longest text; conversations have up to a few million."""
MAX_REASON = 500
"""Characters of the longest reason in an answer."""

Answer = dict[str, str]
"""`text`, or why there is none: `refused`, by the template itself, or `failed`."""


class _Refused(Exception):
    """Raised by a template that calls `raise_exception`."""


def _environment() -> Environment:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _now}
    return environment


def _to_json(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise _Refused(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _answer(make: Callable[[], str]) -> Answer:
    """Return a text, or why there is none: a template may do anything to its arguments, and to its compiler."""
    try:
        text = make()
        if len(text) > MAX_TEXT:
            return {"failed": f"its text has {len(text)} characters, expected at most {MAX_TEXT}"}
        return {"text": text}
    except _Refused as error:
        return {"refused": str(error)[:MAX_REASON]}
    except MemoryError:
        return {"failed": "it takes too much memory"}
    except RecursionError:
        return {"failed": "it is nested too deeply"}
    except Exception as error:
        return {"failed": str(error)[:MAX_REASON] or type(error).__name__}


def _serve(template: str, memory: int, seconds: int) -> None:
    from jinja2 import Template

    compiled: list[Template] = []
    limit_memory(memory)

    def compile() -> str:
        compiled.append(_environment().from_string(template))
        return ""

    def render(names: Mapping[str, object]) -> str:
        return str(compiled[0].render(**names))

    print("{}", flush=True)  # from here on, the time counts
    limit_processor(seconds)
    print(json.dumps(_answer(compile)), flush=True)
    for line in sys.stdin:
        names = json.loads(line)
        limit_processor(seconds)
        print(json.dumps(_answer(partial(render, names))), flush=True)


if __name__ == "__main__":
    request = json.loads(sys.stdin.readline())
    _serve(request["template"], request["memory"], request["seconds"])
