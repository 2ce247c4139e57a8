"""The process that parses and compiles documents for the server: one line of JSON per request and response.

A document that crashes the parser, or never finishes, ends this process but not the server.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from mirlo.extend.runtime import MirloError
from mirlo_editor import definitions
from mirlo_editor.document import Name


def index(text: str, path: str) -> dict[str, Any]:
    """Return the index of a document."""
    if path.endswith(".py"):
        from mirlo_editor.script_index import index_of_scripts

        return dataclasses.asdict(index_of_scripts(text, path))
    from mirlo_editor.mlir_index import index_of_ir

    return dataclasses.asdict(index_of_ir(text, path))


def report(**arguments: Any) -> str:
    """Return the report on lines of a document."""
    from mirlo_editor.compiled import report_at

    return report_at(**arguments)


def hover(kind: str, text: str) -> str | None:
    """Return the definition of an operation, or of a script name."""
    if kind == "script":
        return definitions.describe_script_name(text)
    return definitions.describe_operation(text) if kind == "operation" else None


def places(kind: str, text: str, target: str, rules: bool) -> list[dict[str, Any]]:
    """Return the locations of an operation, a script name or a rule, or of the rules for an operation."""
    name = Name(definitions.NOWHERE, kind, text)
    return [dataclasses.asdict(place) for place in definitions.places_of(name, target, rules)]


METHODS: dict[str, Callable[..., Any]] = {"index": index, "report": report, "hover": hover, "places": places}


def main() -> None:
    """Answer requests until standard input ends."""
    # Only answers go to standard output: what anything else prints goes to standard error.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")
            answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": METHODS[request["method"]](**request["arguments"])}
    except MirloError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"internal error: {type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
